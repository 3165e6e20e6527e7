package porttest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/internal/kernel"
)

// Names and indexes of a rig's interfaces.
const (
	NICName  = "eth0"
	NICIndex = 10

	firstPort = 100
	rigGroup  = 7
)

// Rig is a node with one NIC, and the switch's port at the other end.
type Rig struct {
	Driver port.Driver
	Node   *kernel.Namespace
	Switch *kernel.Namespace // where the port opens; the node's for a tap
	MTU    int

	Number int

	conn  *kernel.Conn // in Node
	owned bool         // the rig created Switch
}

// PortName returns the name of the interface on which a veth's port opens.
func (r *Rig) PortName() string { return fmt.Sprintf("port%d", r.Number) }

// PortIndex is the index of that interface.
func (r *Rig) PortIndex() int { return firstPort + r.Number }

// MAC is the address of the rig's NIC.
func (r *Rig) MAC() kernel.MAC { return kernel.MAC{2, 0, 0, 0, 0, byte(r.Number)} }

// Settings are the settings of a rig; the zero value is a node as in a testbed.
type Settings struct {
	MTU      int  // 0 is 1,500
	Offloads bool // leave the NIC's offloads on
	// Switch is the namespace of the port's end of a veth; nil makes a new namespace.
	Switch *kernel.Namespace
	Number int // of the rig in that namespace, and of its addresses
}

// NewRig creates the namespaces and, except for a tap, the veth between them.
func NewRig(t testing.TB, driver port.Driver, settings Settings) *Rig {
	t.Helper()
	r := &Rig{Driver: driver, MTU: cmp.Or(settings.MTU, 1500), Switch: settings.Switch,
		Number: settings.Number}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.build(); err != nil {
		t.Fatal(err)
	}
	if driver == port.Tap {
		return r
	}
	r.makeVeth(t, settings.Offloads)
	return r
}

// makeVeth creates the veth and sets it up.
func (r *Rig) makeVeth(t testing.TB, offloads bool) {
	t.Helper()
	batch := kernel.NewBatch("switch", nil)
	batch.AddVeth(
		kernel.VethEnd{Namespace: r.Node, Node: "node", Name: NICName, Index: NICIndex, MAC: r.MAC(),
			MTU: r.MTU},
		kernel.VethEnd{Namespace: r.Switch, Node: "switch", Name: r.PortName(), Index: r.PortIndex(),
			MAC: kernel.MAC{2, 0, 0, 0, 1, byte(r.Number)}, MTU: r.MTU}, rigGroup)
	batch.SetUp(NICName, NICIndex, true)
	if err := r.conn.Do(batch); err != nil {
		t.Fatal(err)
	}
	if !offloads {
		if err := r.conn.TurnOffloadsOff(NICName); err != nil {
			t.Fatal(err)
		}
	}
	err := r.Switch.Do(func() error {
		if err := setIPv6(r.PortName(), false); err != nil {
			return err
		}
		return setUp(r.PortName(), r.PortIndex(), true)
	})
	if err != nil {
		t.Fatal(err)
	}
	r.WaitUp(t)
}

// Rebuild deletes the veth and recreates it with the same names, addresses and indexes.
func (r *Rig) Rebuild(t testing.TB) {
	t.Helper()
	r.deleteNIC(t)
	r.makeVeth(t, false)
}

// SetPort sets the port's interface up or down.
func (r *Rig) SetPort(t testing.TB, up bool) { r.setPort(t, up) }

// WaitUp waits until the node's NIC sends. The kernel activates its queue some time after both ends
// are up, and silently drops frames sent before.
func (r *Rig) WaitUp(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if link := r.link(t); link.Operstate == "up" || link.Kind == "tun" && link.Carrier {
			// a tap's state stays unknown
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the node's NIC did not come up: %+v", r.link(t))
		}
	}
}

func (r *Rig) build() (err error) {
	if r.Node, err = kernel.NewNamespace(); err != nil {
		return err
	}
	if r.conn, err = kernel.OpenIn(r.Node); err != nil {
		return err
	}
	if err := r.Node.Do(func() error { return setIPv6("default", false) }); err != nil {
		return err
	}
	if r.Driver == port.Tap {
		r.Switch = r.Node
		return nil
	}
	if r.Switch != nil {
		return nil
	}
	r.owned = true
	r.Switch, err = kernel.NewNamespace()
	return err
}

// setIPv6 turns an interface's IPv6 on or off: its neighbour discovery sends frames by itself.
func setIPv6(name string, on bool) error {
	value := "1"
	if on {
		value = "0"
	}
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte(value), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // a kernel without IPv6
	}
	return err
}

// setUp sets an interface of the calling thread's namespace up or down.
func setUp(name string, index int, up bool) error {
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	batch := kernel.NewBatch("rig", nil)
	batch.SetUp(name, index, up)
	return errors.Join(conn.Do(batch), conn.Close())
}

// Open opens the rig's port and sets a tap's interface up.
func (r *Rig) Open(t testing.TB, options port.Options) *port.Handle {
	t.Helper()
	handle, err := r.open(options)
	if err != nil {
		t.Fatal(err)
	}
	if r.Driver == port.Tap {
		r.WaitUp(t)
	}
	return handle
}

func (r *Rig) open(options port.Options) (handle *port.Handle, err error) {
	name := r.PortName()
	if r.Driver == port.Tap {
		name = NICName
		options.MTU, options.Index, options.MAC = r.MTU, NICIndex, r.MAC()
	}
	err = r.Switch.Do(func() (err error) {
		handle, err = port.Open(r.Driver, name, options)
		if err == nil && r.Driver == port.Tap {
			err = setUp(NICName, NICIndex, true)
		}
		return err
	})
	return handle, err
}

// Port opens the rig's port and makes a Port of it.
func (r *Rig) Port(t testing.TB, options port.Options) port.Port {
	t.Helper()
	p, err := r.Open(t, options).Port()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// close deletes the veth before the namespaces, so that packets queued in it keep nothing alive.
func (r *Rig) close() error {
	var errs []error
	if r.conn != nil {
		batch := kernel.NewBatch("node", nil)
		batch.DeleteGroup(rigGroup)
		if err := r.conn.Do(batch); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, err)
		}
		errs = append(errs, r.conn.Close())
	}
	if r.owned && r.Switch != nil {
		errs = append(errs, r.Switch.Close())
	}
	if r.Node != nil {
		errs = append(errs, r.Node.Close())
	}
	return errors.Join(errs...)
}

// NIC is a packet socket of a program on the node. It sends and receives frames through the node's
// own stack and queueing discipline.
type NIC struct {
	fd  int
	buf []byte
	oob []byte
}

// NIC opens a packet socket on the rig's NIC. Received frames wait in a queue of a few MiB.
func (r *Rig) NIC(t testing.TB) *NIC {
	t.Helper()
	n := &NIC{fd: -1, buf: make([]byte, 1<<17), oob: make([]byte, 512)}
	t.Cleanup(func() { unix.Close(n.fd) })
	err := r.Node.Do(func() (err error) {
		n.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		for _, option := range []struct{ level, name, value int }{
			{unix.SOL_SOCKET, unix.SO_RCVBUF, 4 << 20}, // rmem_max limits an ordinary user's buffer
			{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1},
			{unix.SOL_PACKET, unix.PACKET_AUXDATA, 1},
			{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		} {
			if err := unix.SetsockoptInt(n.fd, option.level, option.name, option.value); err != nil {
				return fmt.Errorf("option %d: %w", option.name, err)
			}
		}
		const all = unix.ETH_P_ALL
		return unix.Bind(n.fd, &unix.SockaddrLinklayer{Protocol: all>>8 | all<<8&0xFF00, Ifindex: NICIndex})
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Send sends one frame.
func (n *NIC) Send(frame []byte) error { return unix.Send(n.fd, frame, 0) }

func (n *NIC) send(t testing.TB, frame []byte) {
	t.Helper()
	if err := n.Send(frame); err != nil {
		t.Fatalf("the node sends %d bytes: %v", len(frame), err)
	}
}

// receive returns the next frame, valid until the next call, or nil.
func (n *NIC) receive(t testing.TB) []byte {
	t.Helper()
	r, _, err := n.Receive(patience)
	if err != nil {
		t.Fatal(err)
	}
	return r.Data
}

// clearError clears the error of an interface that was down.
func (n *NIC) clearError() { _, _ = unix.GetsockoptInt(n.fd, unix.SOL_SOCKET, unix.SO_ERROR) }

// Received is a frame that the node received.
type Received struct {
	Data  []byte // valid until the next Receive
	Stamp int64  // the kernel's, in nanoseconds of CLOCK_REALTIME
	// Tag is the VLAN tag that the kernel removed from the frame, or 0.
	Tag uint32 // its type and its content
}

// Receive waits up to patience for a frame, in steps of a millisecond. It returns false if none
// arrived.
func (n *NIC) Receive(patience time.Duration) (r Received, ok bool, err error) {
	poll := []unix.PollFd{{Fd: int32(n.fd), Events: unix.POLLIN}}
	ready, err := unix.Poll(poll, int(patience/time.Millisecond))
	if errors.Is(err, unix.EINTR) {
		return n.Receive(patience)
	}
	if err != nil || ready == 0 {
		return r, false, err
	}
	length, oob, _, _, err := unix.Recvmsg(n.fd, n.buf, n.oob, unix.MSG_DONTWAIT)
	if err != nil {
		return r, false, err
	}
	r.Data = n.buf[:length]
	messages, err := unix.ParseSocketControlMessage(n.oob[:oob])
	for _, message := range messages {
		switch {
		case message.Header.Level == unix.SOL_SOCKET && message.Header.Type == unix.SCM_TIMESTAMPNS:
			stamp := (*unix.Timespec)(unsafe.Pointer(&message.Data[0]))
			r.Stamp = stamp.Nano()
		case message.Header.Level == unix.SOL_PACKET && message.Header.Type == unix.PACKET_AUXDATA:
			// struct tpacket_auxdata: status, len, snaplen u32; mac, net, tci, tpid u16.
			if status := *(*uint32)(unsafe.Pointer(&message.Data[0])); status&unix.TP_STATUS_VLAN_VALID != 0 {
				tci, tpid := *(*uint16)(unsafe.Pointer(&message.Data[16])),
					*(*uint16)(unsafe.Pointer(&message.Data[18]))
				r.Tag = uint32(tpid)<<16 | uint32(tci)
			}
		}
	}
	return r, true, err
}

func (r *Rig) setNIC(t testing.TB, up bool) {
	t.Helper()
	if err := r.Node.Do(func() error { return setUp(NICName, NICIndex, up) }); err != nil {
		t.Fatal(err)
	}
}

func (r *Rig) setPort(t testing.TB, up bool) {
	t.Helper()
	if err := r.Switch.Do(func() error { return setUp(r.PortName(), r.PortIndex(), up) }); err != nil {
		t.Fatal(err)
	}
}

// deleteNIC deletes the node's NIC, and with it the port's interface.
func (r *Rig) deleteNIC(t testing.TB) {
	t.Helper()
	batch := kernel.NewBatch("node", nil)
	batch.DeleteLink(NICName, NICIndex)
	if err := r.conn.Do(batch); err != nil {
		t.Fatal(err)
	}
}

func (r *Rig) setNICMTU(t testing.TB, mtu int) {
	t.Helper()
	err := r.Node.Do(func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		request, err := unix.NewIfreq(NICName)
		if err != nil {
			return err
		}
		request.SetUint32(uint32(mtu))
		return unix.IoctlIfreq(fd, unix.SIOCSIFMTU, request)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Counters returns the counters of the node's NIC.
func (r *Rig) Counters(t testing.TB) kernel.Counters { return r.link(t).Counters }

func (r *Rig) link(t testing.TB) kernel.Link {
	t.Helper()
	links, err := r.conn.Links(true)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if link.Name == NICName {
			return link
		}
	}
	t.Fatalf("no %s among %v", NICName, links)
	return kernel.Link{}
}
