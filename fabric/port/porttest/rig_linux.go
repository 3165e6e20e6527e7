package porttest

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/fabric/kernel"
	"railbed/fabric/port"
)

// Names and indexes of a rig's interfaces.
const (
	NICName   = "eth0"
	NICIndex  = 10
	PortName  = "port0"
	PortIndex = 11

	rigGroup = 7
)

// NodeMAC is the address of a rig's NIC.
var NodeMAC = kernel.MAC{2, 0, 0, 0, 0, 1}

// Rig is a node with one NIC, and the port of a switch at the other end.
type Rig struct {
	Driver port.Driver
	Node   *kernel.Namespace
	Switch *kernel.Namespace // where the port opens; the node's for a tap
	MTU    int

	conn *kernel.Conn // in Node
}

// NewRig makes the namespaces and, but for a tap, the veth between them. The
// node's offloads are off as in a testbed unless offloads is true.
func NewRig(t testing.TB, driver port.Driver, mtu int, offloads bool) *Rig {
	t.Helper()
	r := &Rig{Driver: driver, MTU: mtu}
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
	batch := kernel.NewBatch("switch", nil)
	batch.AddVeth(
		kernel.VethEnd{Namespace: r.Node, Node: "node", Name: NICName, Index: NICIndex, MAC: NodeMAC, MTU: mtu},
		kernel.VethEnd{Namespace: r.Switch, Node: "switch", Name: PortName, Index: PortIndex, MAC: kernel.MAC{2, 0, 0, 0, 1, 1}, MTU: mtu}, rigGroup)
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
		if err := kernelQuiet(PortName); err != nil {
			return err
		}
		return setUp(PortName, PortIndex, true)
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *Rig) build() (err error) {
	if r.Node, err = kernel.NewNamespace(); err != nil {
		return err
	}
	if r.conn, err = kernel.OpenIn(r.Node); err != nil {
		return err
	}
	if err := r.Node.Do(func() error { return kernelQuiet("default") }); err != nil {
		return err
	}
	if r.Driver == port.Tap {
		r.Switch = r.Node
		return nil
	}
	r.Switch, err = kernel.NewNamespace()
	return err
}

// kernelQuiet turns IPv6 off, whose discovery would send frames of its own.
func kernelQuiet(name string) error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0)
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
	name := PortName
	if r.Driver == port.Tap {
		name = NICName
		options.MTU, options.Index, options.MAC = r.MTU, NICIndex, NodeMAC
	}
	var handle *port.Handle
	err := r.Switch.Do(func() (err error) {
		handle, err = port.Open(r.Driver, name, options)
		if err == nil && r.Driver == port.Tap {
			err = setUp(NICName, NICIndex, true)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return handle
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

// close deletes the veth before the namespaces, so that what is queued in it
// holds nothing.
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
	if r.Switch != nil && r.Switch != r.Node {
		errs = append(errs, r.Switch.Close())
	}
	if r.Node != nil {
		errs = append(errs, r.Node.Close())
	}
	return errors.Join(errs...)
}

// NIC is a packet socket of a program on the node: it sends and receives frames
// through the node's own stack and queueing discipline.
type NIC struct {
	fd  int
	buf []byte
	oob []byte
}

// NIC opens a packet socket on the rig's NIC. It receives what comes in, in a
// queue of some MiB.
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
			{unix.SOL_SOCKET, unix.SO_RCVBUF, 4 << 20}, // what an ordinary user gets is bounded by rmem_max
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

// Received is a frame that came to the node.
type Received struct {
	Data  []byte // valid until the next Receive
	Stamp int64  // the kernel's, in nanoseconds of CLOCK_REALTIME
	// Tag is what the kernel took out of the frame, 0 for nothing.
	Tag uint32 // its type and its content
}

// Receive waits for a frame for as long as patience, in steps of a
// millisecond. It returns false when none came.
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
				tci, tpid := *(*uint16)(unsafe.Pointer(&message.Data[16])), *(*uint16)(unsafe.Pointer(&message.Data[18]))
				r.Tag = uint32(tpid)<<16 | uint32(tci)
			}
		}
	}
	return r, true, err
}

// Counters are those of the node's NIC.
func (r *Rig) Counters(t testing.TB) kernel.Counters {
	t.Helper()
	links, err := r.conn.Links(true)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if link.Name == NICName {
			return link.Counters
		}
	}
	t.Fatalf("no %s among %v", NICName, links)
	return kernel.Counters{}
}
