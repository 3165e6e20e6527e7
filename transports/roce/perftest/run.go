package perftest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"railbed/transports/infiniband"
	"railbed/transports/roce"
	"railbed/transports/roce/queuepair"
)

// Result is what a run found.
type Result struct {
	Test   string `json:"test"`
	Server bool   `json:"server"`
	// Peer is the address of the other end, and Version what it says of itself.
	Peer       string  `json:"peer"`
	Version    float64 `json:"version"`
	Device     string  `json:"device"`
	MTU        int     `json:"mtu"`
	QueuePairs int     `json:"queue_pairs"`
	// Packets of this end: sent, of these again, and received with a wrong ICRC.
	Sent    uint64 `json:"sent"`
	Resent  uint64 `json:"resent"`
	BadICRC uint64 `json:"bad_icrc"`
	// Bandwidth has a row for each size of a bandwidth test, Latency of a latency
	// test.
	Bandwidth []Bandwidth `json:"bandwidth,omitempty"`
	Latency   []Latency   `json:"latency,omitempty"`
}

// run is one run.
type run struct {
	config      *Config
	print       printer
	talk        dialogue
	device      *roce.Device
	name        string // of the NIC
	mtu         int
	pairs       []*pair
	completions *roce.Completions
	done        [64]roce.Completion
	result      Result
}

// pair is a queue pair with its memory.
type pair struct {
	*roce.QueuePair
	index        int
	mine, theirs Keys
	local        []byte // that is sent, or that a READ fills
	shared       []byte // that the peer writes or reads, or SENDs to
	region       *roce.Region
	requests     []queuepair.Request // as many of one as there is depth for
	sent, done   int
	received     int
}

// Run carries out a test with the other end: as a server until one client is done.
// It prints the programs' tables.
func Run(ctx context.Context, config Config, out io.Writer) (*Result, error) {
	if err := config.complete(); err != nil {
		return nil, fmt.Errorf("%v: %w: %w", config.Test, ErrConfig, err)
	}
	r := &run{config: &config, completions: new(roce.Completions)}
	r.print = printer{out: out, config: &config}
	err := r.all(ctx)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", config.Test, err)
	}
	return &r.result, nil
}

func (r *run) all(ctx context.Context) (err error) {
	if r.talk.conn, err = r.meet(ctx); err != nil {
		return err
	}
	defer r.talk.conn.Close()
	defer context.AfterFunc(ctx, func() { r.talk.conn.Close() })()
	if err := r.openDevice(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.device.Close()) }()
	defer context.AfterFunc(ctx, func() { r.device.Close() })()
	if r.mtu, err = r.talk.open(min(cmp.Or(r.config.MTU, 4096), r.device.PathMTU())); err != nil {
		return err
	}
	if err := r.connect(); err != nil {
		return err
	}
	r.result = Result{
		Test: r.config.Test.String(), Server: r.config.Server == "", Peer: r.pairs[0].theirs.GID.String(), Version: r.talk.version, Device: r.name,
		MTU: r.mtu, QueuePairs: r.config.QueuePairs,
	}
	if err := r.measure(ctx); err != nil {
		return err
	}
	r.print.line()
	counters := r.device.Counters()
	r.result.Sent, r.result.Resent, r.result.BadICRC = counters.Sent, counters.Resent, counters.BadICRC
	return r.talk.close()
}

// meet connects the two ends by TCP.
func (r *run) meet(ctx context.Context) (net.Conn, error) {
	c := r.config
	port := strconv.Itoa(c.Port)
	if c.Server != "" {
		r.talk.client = true
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp", net.JoinHostPort(c.Server, port))
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", ":"+port)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	r.print.banner()
	return l.Accept()
}

// openDevice opens the NIC that is asked for, or the one that the peer is reached
// from.
func (r *run) openDevice() error {
	at := r.talk.conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().WithZone("")
	nics, err := net.Interfaces()
	if err != nil {
		return err
	}
	r.name = r.config.NIC
	found := false
	for _, nic := range nics {
		addrs, err := nic.Addrs()
		if err != nil {
			return fmt.Errorf("addresses of %s: %w", nic.Name, err)
		}
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil || prefix.Addr().IsLinkLocalUnicast() {
				continue
			}
			switch {
			case r.config.NIC == "" && prefix.Addr() == at:
				r.name, found = nic.Name, true
				if theirs := r.talk.conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(); nic.Flags&net.FlagLoopback != 0 && !theirs.IsLoopback() {
					r.name = at.String() // of a node, and not of one of its links
				}
			case r.config.NIC == nic.Name && prefix.Addr().Is4() == at.Is4() && !found:
				at, found = prefix.Addr(), true
			}
		}
	}
	if !found && r.config.NIC != "" {
		return fmt.Errorf("there is no NIC %s with an address of the peer's family", r.config.NIC)
	}
	config := roce.DeviceConfig{Addr: at, NIC: r.config.NIC}
	if tcp, ok := r.talk.conn.(*net.TCPConn); ok && config.NIC == "" {
		config.MTU = pathMTU(tcp)
	}
	if r.config.TOS > 0 {
		config.DSCP = uint8(r.config.TOS) >> 2
	}
	r.device, err = roce.OpenDevice(config)
	return err
}

// connect makes the queue pairs, and exchanges their keys.
func (r *run) connect() error {
	c := r.config
	size := c.Size
	if c.All {
		size = MaxSize
	}
	for i := range c.QueuePairs {
		p, err := r.newPair(i, size)
		if err != nil {
			return err
		}
		r.pairs = append(r.pairs, p)
	}
	r.print.info(r)
	if c.Test == WriteLat { // these programs say it once more
		if _, err := r.talk.keys(&r.pairs[0].mine); err != nil {
			return err
		}
	}
	for _, p := range r.pairs {
		var err error
		if p.theirs, err = r.talk.keys(&p.mine); err != nil {
			return err
		}
		remote := roce.Place{Addr: p.theirs.GID, QPN: p.theirs.QPN, PSN: p.theirs.PSN, Reads: int(p.theirs.Reads)}
		if err := p.ConnectMTU(remote, r.mtu); err != nil {
			return err
		}
		p.prepare(r)
	}
	if c.Test.send() { // and these say here that they are connected
		if _, err := r.talk.keys(&r.pairs[0].mine); err != nil {
			return err
		}
	}
	for _, p := range r.pairs {
		r.print.keys("local", &p.mine)
	}
	for _, p := range r.pairs {
		if _, err := r.talk.keys(&p.mine); err != nil {
			return err
		}
		r.print.keys("remote", &p.theirs)
	}
	if !c.Test.send() {
		if _, err := r.talk.keys(&r.pairs[0].mine); err != nil {
			return err
		}
	}
	return nil
}

// newPair makes a queue pair for messages of a size, with memory.
func (r *run) newPair(index, size int) (*pair, error) {
	c := r.config
	q, err := r.device.NewQueuePair(queuepair.Config{
		Timeout: infiniband.AckTimeout(uint8(c.QPTimeout)), Reads: c.Reads, RemoteReads: c.Reads,
	}, r.completions)
	if err != nil {
		return nil, err
	}
	p := &pair{QueuePair: q, index: index, local: make([]byte, size), shared: make([]byte, max(size, r.talk.cycle))}
	mine, theirs := p.local, p.shared
	if c.Test == ReadBW {
		mine, theirs = theirs, mine
	}
	clear(theirs)
	if !c.Test.Latency() && c.Test != AtomicBW {
		fill(mine, r.talk.client, index)
	}
	if p.region, err = r.device.Register(p.shared, queuepair.RemoteWrite|queuepair.RemoteRead|queuepair.RemoteAtomic); err != nil {
		return nil, err
	}
	place := q.Local()
	p.mine = Keys{Reads: uint16(c.Reads), QPN: place.QPN, PSN: place.PSN, RKey: p.region.RKey, VAddr: p.region.Base, GID: place.Addr}
	return p, nil
}

// fill writes what one end sends by one of its queue pairs: no two places near each
// other are alike, nor are those of two queue pairs or ends.
func fill(b []byte, client bool, index int) {
	x := uint32(index)*2 + 1
	if client {
		x++
	}
	x *= 0x9E3779B1
	for i := range b {
		v := (uint32(i) ^ x) * 0x85EBCA6B
		b[i] = byte(v >> 24)
	}
}

// verify looks whether the memory has what the other end sent.
func (r *run) verify(p *pair, got []byte) error {
	want := make([]byte, len(got))
	fill(want, !r.talk.client, p.index)
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("queue pair %d: %w: byte %d of %d is %#02x, want %#02x", p.index, ErrData, i, len(got), got[i], want[i])
		}
	}
	return nil
}

// verifyAll is verify for all queue pairs by which something of a size came.
func (r *run) verifyAll(size int) error {
	c := r.config
	came := r.talk.client == (c.Test == ReadBW) || c.Bidirectional
	if !c.Verify || c.Test.Latency() || c.Test == AtomicBW || !came {
		return nil
	}
	for _, p := range r.pairs {
		if c.Test == ReadBW {
			if err := r.verify(p, p.local[:size]); err != nil {
				return err
			}
			continue
		}
		var got []byte
		p.region.Look(func(memory []byte) { got = bytes.Clone(memory[:size]) })
		if err := r.verify(p, got); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the requests of a queue pair.
func (p *pair) prepare(r *run) {
	one := queuepair.Request{ID: uint64(p.index), Local: [][]byte{p.local}, Address: p.theirs.VAddr, RKey: p.theirs.RKey}
	switch r.config.Test {
	case SendBW, SendLat:
		one.Op = queuepair.Send
	case ReadBW:
		one.Op = queuepair.Read
	case AtomicBW:
		one.Op, one.Local, one.Operand = queuepair.FetchAdd, nil, 1
		if r.config.CompareSwap {
			one.Op = queuepair.CompareSwap
		}
	default:
		one.Op = queuepair.Write
	}
	p.requests = make([]queuepair.Request, r.config.TxDepth)
	for i := range p.requests {
		p.requests[i] = one
	}
}

// resize sets the bytes of the requests, and forgets what was counted.
func (p *pair) resize(size int) {
	p.sent, p.done, p.received = 0, 0, 0
	if p.requests[0].Local == nil {
		return
	}
	local := [][]byte{p.local[:size]}
	for i := range p.requests {
		p.requests[i].Local = local
	}
}

// now is a moment in nanoseconds.
func now() int64 { return int64(time.Since(began)) }

var began = time.Now()
