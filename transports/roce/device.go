package roce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
	"railbed/transports"
	"railbed/transports/completion"
	"railbed/transports/datagram"
	"railbed/transports/roce/cm"
	"railbed/transports/roce/queuepair"
)

// DeviceConfig configures a device. Only Addr is required.
type DeviceConfig struct {
	// Addr is the address of the NIC. An unspecified address is refused.
	Addr netip.Addr
	// NIC is the NIC's name. The socket is bound to it where the kernel permits this process to.
	// Default: not bound.
	NIC string
	// MTU is the link's MTU in bytes. Default: the MTU of the NIC that has the address, or else
	// 1500.
	MTU int
	// Clock is the testbed's clock. Default: a clock without dilation.
	Clock *clock.Clock
	// DSCP is the DSCP of all packets but CNPs, which have 48. Default 26.
	DSCP uint8
	// Bypass makes packets take queues of the NIC, past the node's kernel (package nicqueue). Connections are
	// made, and the node itself is reached, by the kernel.
	Bypass bool

	block uint32 // see Config.Block
}

// Device is a RoCEv2 port whose queue pairs belong to its user, as with verbs:
//
//	device, err := roce.OpenDevice(roce.DeviceConfig{Addr: addr})
//	region, err := device.Register(memory, queuepair.RemoteWrite)
//	pair, err := device.NewQueuePair(queuepair.Config{}, nil)
//	... send pair.Local(), region.Base and region.RKey to the peer, and get its ...
//	err = pair.Connect(remote)
//	err = pair.Post(queuepair.Request{Op: queuepair.Write, Local: [][]byte{data}, Address: base, RKey: rkey})
//	err = pair.Completions().Wait(ctx)
//	n := pair.Completions().Poll(done)
//
// Instead of Connect, Dial and Listen connect as rdma_cm does. Opening a device needs CAP_NET_RAW
// in the network's user namespace. All methods of a device, and of objects that it made, are safe
// for concurrent use.
type Device struct {
	driver
	config  DeviceConfig
	changed sync.Cond // a packet arrived; see Region.Await

	// Under the driver's lock.
	pairs     map[infiniband.QPN]*QueuePair
	byConn    map[cm.Conn]*QueuePair
	listeners map[uint16]*Listener
	asking    map[cm.Conn]*Incoming
	reporting []*QueuePair // that have completions to report
	watchers  int          // of changed
}

// OpenDevice opens a device and claims a block of queue pair numbers at the address.
func OpenDevice(config DeviceConfig) (*Device, error) {
	config.MTU = cmp.Or(config.MTU, linkMTU(config.Addr))
	d := &Device{
		config: config, pairs: map[infiniband.QPN]*QueuePair{}, byConn: map[cm.Conn]*QueuePair{},
		listeners: map[uint16]*Listener{}, asking: map[cm.Conn]*Incoming{},
	}
	d.changed.L = &d.mu
	d.driver.advance, d.driver.report, d.driver.gaveUp = func(clock.Time) {}, d.reportDone, d.failAll
	if err := d.open(&d.config, random(), cm.Config{}, connecting{d}); err != nil {
		return nil, fmt.Errorf("open roce device on %v: %w", config.Addr, err)
	}
	d.start()
	return d, nil
}

// linkMTU is the MTU of the NIC that has an address, or 0.
func linkMTU(at netip.Addr) int {
	nic, err := datagram.InterfaceOf("", at)
	if err != nil {
		return 0
	}
	return nic.MTU
}

// Addr is the device's address, whose 16-byte form is its GID (A17.3.1: IPv4 addresses are mapped
// into IPv6).
func (d *Device) Addr() netip.Addr { return d.config.Addr }

// PathMTU is the largest payload of a packet in bytes: the largest MTU of a queue pair.
func (d *Device) PathMTU() int { return d.mtu }

// Counters returns the sum over all queue pairs, also closed queue pairs.
func (d *Device) Counters() Counters { return d.count() }

// Region is memory that peers may access.
type Region struct {
	// Base and RKey identify the region to peers.
	Base uint64
	RKey uint32

	region *region
	device *Device
}

// Register lets peers access memory, which belongs to them until the region is closed. Read it with
// Look or Await, or when a completion says which bytes arrived.
func (d *Device) Register(memory []byte, rights queuepair.Rights) (*Region, error) {
	r, err := d.register(memory, rights)
	if err != nil {
		return nil, err
	}
	return &Region{Base: r.Base, RKey: r.key, region: r, device: d}, nil
}

// Look calls f with the memory while nothing is placed there.
func (r *Region) Look(f func(memory []byte)) {
	r.device.mu.Lock()
	defer r.device.mu.Unlock()
	f(r.region.Memory)
}

// Await calls f as Look does, and again after packets arrived, until f returns true. It fails when
// the context ends, and with transports.ErrClosed when the device is closed.
func (r *Region) Await(ctx context.Context, f func(memory []byte) bool) error {
	d := r.device
	defer context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.changed.Broadcast()
	})()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watchers++
	defer func() { d.watchers-- }()
	for !f(r.region.Memory) {
		switch {
		case d.closed:
			return transports.ErrClosed
		case d.err != nil:
			return d.err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		d.changed.Wait()
	}
	return nil
}

// Close ends the access of peers.
func (r *Region) Close() error { return r.region.Close() }

// reportDone reports completions, and wakes the callers of Await.
func (d *Device) reportDone() {
	for _, q := range d.reporting {
		q.completions.Push(q.done...)
		clear(q.done)
		q.done = q.done[:0]
	}
	d.reporting = d.reporting[:0]
	if d.watchers > 0 {
		d.changed.Broadcast()
	}
}

// failAll breaks all queue pairs.
func (d *Device) failAll(err error) {
	for _, q := range d.pairs {
		q.end(err)
	}
	for _, l := range d.listeners {
		l.incoming.Close()
	}
}

// Close breaks all queue pairs, notifies the peers of queue pairs that rdma_cm connected, and
// closes the socket.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		d.running.Wait()
		return nil
	}
	for _, q := range d.pairs {
		q.leave(transports.ErrClosed)
	}
	for port, l := range d.listeners {
		l.incoming.Close()
		delete(d.listeners, port)
	}
	d.closed = true
	d.unlock()
	return d.stop()
}

// Completion is the end of a request or of a receive of a queue pair.
type Completion struct {
	queuepair.Completion
	QueuePair *QueuePair
}

// Completions is a completion queue of one or more queue pairs.
type Completions = completion.List[Completion]

var errNotConnected = errors.New("the queue pair is not connected")
