package live_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric"
	"railbed/fabric/softswitch/live"
	"railbed/internal/kernel"
	"railbed/internal/nicqueue"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/transports/datagram"
)

const bypassPort = 20000

// bypassing is a program of a node with queues of its NIC.
type bypassing struct {
	*datagram.NIC
	addr netip.Addr
}

func openBypass(t *testing.T, p *plan.Plan, spaces map[string]*kernel.Namespace, node string) (n bypassing) {
	t.Helper()
	return openPort(t, p, spaces, node, bypassPort)
}

func openPort(t *testing.T, p *plan.Plan, spaces map[string]*kernel.Namespace, node string,
	port uint16) (n bypassing) {
	t.Helper()
	n.addr = netip.MustParseAddr(address(p, node))
	err := spaces[node].Do(func() (err error) {
		n.NIC, err = datagram.OpenNIC(datagram.NICOptions{Name: "eth0", Addr: n.addr, First: port,
			Last: port})
		if err == nil { // a later look-up needs the namespace
			for _, other := range []string{"h0", "h1"} {
				to := netip.MustParseAddr(address(p, other))
				if _, reaches := n.Station(to); to != n.addr && !reaches {
					err = fmt.Errorf("%s does not reach %v", node, to)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// send posts datagrams, and waits for room as often as needed.
func (n bypassing) send(t *testing.T, to netip.Addr, port uint16, departs time.Time, payloads ...[]byte) {
	t.Helper()
	for _, payload := range payloads {
		for n.Room() == 0 {
			if err := n.Post(); err != nil {
				t.Fatal(err)
			}
			if n.Rest(1000, true) {
				await(t, n.Bell())
			}
			n.Wake(false)
		}
		station, _ := n.Station(to)
		n.Put(&datagram.Outgoing{To: to, Station: station, SrcPort: bypassPort, DstPort: port,
			Payload: payload, Departs: departs})
	}
	if err := n.Post(); err != nil {
		t.Fatal(err)
	}
}

// await waits for a doorbell.
func await(t *testing.T, bell int) {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(bell), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(hosttest.Bound.Milliseconds()))
	for err == unix.EINTR {
		n, err = unix.Poll(fds, int(hosttest.Bound.Milliseconds()))
	}
	if n != 1 {
		t.Fatalf("the doorbell did not ring: %v", err)
	}
}

// receive returns the next datagram's payload.
func (n bypassing) receive(t *testing.T) []byte {
	t.Helper()
	for {
		var in datagram.Incoming
		got, err := n.Next(&in)
		if err != nil {
			t.Fatal(err)
		}
		if got {
			data := bytes.Clone(in.Data)
			n.Return()
			return data
		}
		if n.Rest(1, false) {
			await(t, n.Bell())
		}
		n.Wake(false)
	}
}

func nicState(t *testing.T, f *fabric.Fabric, node string) (s live.NICState) {
	t.Helper()
	_, state, err := f.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range state.NICs {
		if one.Node == node {
			s = one
		}
	}
	return s
}

// A program past the kernel talks with another one, and with the kernel's sockets of another node, both ways.
func TestBypassTalksToBothPaths(t *testing.T) {
	f, p, spaces := twoHosts(t, "{rate: 100mbit, mtu: 9000}")
	left, right := openBypass(t, p, spaces, "h0"), openBypass(t, p, spaces, "h1")
	var socket net.PacketConn
	if err := spaces["h1"].Do(func() (err error) {
		socket, err = net.ListenPacket("udp", net.JoinHostPort(right.addr.String(), "9000"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for i, size := range []int{1, 2, 59, 1472, 8972} {
		sent := bytes.Repeat([]byte{byte(i + 1)}, size)
		left.send(t, right.addr, bypassPort, time.Time{}, sent)
		if got := right.receive(t); !bytes.Equal(got, sent) {
			t.Errorf("%d bytes came as %d", size, len(got))
		}
		left.send(t, right.addr, 9000, time.Time{}, sent)
		got := make([]byte, 9000)
		if err := socket.SetReadDeadline(time.Now().Add(hosttest.Bound)); err != nil {
			t.Fatal(err)
		}
		n, from, err := socket.ReadFrom(got)
		if err != nil || !bytes.Equal(got[:n], sent) || from.(*net.UDPAddr).Port != bypassPort {
			t.Errorf("%d bytes came to the kernel as %d from %v: %v", size, n, from, err)
		}
		if _, err := socket.WriteTo(sent, from); err != nil {
			t.Fatal(err)
		}
		if got := left.receive(t); !bytes.Equal(got, sent) {
			t.Errorf("%d bytes came from the kernel as %d", size, len(got))
		}
	}
	s := nicState(t, f, "h0").Bypass
	if s.Queues != 1 || s.Sent != 10 || s.Received != 5 || s.Refused+s.Broken != 0 {
		t.Errorf("%+v, want 10 frames sent and 5 received by one pair of queues", s)
	}
}

// A program that sends faster than the line is held back by its full queue, and loses nothing.
func TestBypassHoldsProgramsBack(t *testing.T) {
	_, p, spaces := twoHosts(t, "{rate: 100mbit, mtu: 1500}")
	left, right := openBypass(t, p, spaces, "h0"), openBypass(t, p, spaces, "h1")
	const count = 200 // more than the sender's queue holds, less than the receiver's
	done := make(chan bool)
	go func() {
		defer close(done)
		for i := range count {
			payload := make([]byte, 1400)
			binary.BigEndian.PutUint32(payload, uint32(i))
			left.send(t, right.addr, bypassPort, time.Time{}, payload)
		}
	}()
	began := time.Now()
	for i := range count {
		if got := right.receive(t); binary.BigEndian.Uint32(got) != uint32(i) {
			t.Fatalf("datagram %d came as number %d", i, binary.BigEndian.Uint32(got))
		}
	}
	<-done
	if least := time.Duration(count-1) * 1400 * 80 * time.Nanosecond; time.Since(began) < least {
		t.Errorf("it took %v, less than the line's %v", time.Since(began), least)
	}
}

// A program that stops reading loses the frames for which its queue has no room, and they are counted.
// Another program of the NIC loses none. When the first program reads again, it gets the oldest frames and
// then new ones.
func TestBypassStoppedProgram(t *testing.T) {
	f, p, spaces := twoHosts(t, "{rate: 1gbit, mtu: 1500}")
	left, stopped := openBypass(t, p, spaces, "h0"), openBypass(t, p, spaces, "h1")
	reading := openPort(t, p, spaces, "h1", bypassPort+1)
	const count = 900 // more than a queue holds
	payload := func(i int) []byte { return binary.BigEndian.AppendUint32(make([]byte, 0, 4), uint32(i)) }
	for i := range count {
		left.send(t, stopped.addr, bypassPort, time.Time{}, payload(i))
		left.send(t, stopped.addr, bypassPort+1, time.Time{}, payload(i))
		if got := binary.BigEndian.Uint32(reading.receive(t)); got != uint32(i) {
			t.Fatalf("the reading program got datagram %d, want %d", got, i)
		}
	}
	holds := stopped.Holds()
	if s := nicState(t, f, "h1"); s.Refused != uint64(count-holds) || s.Bypass.Overrun != s.Refused {
		t.Errorf("%d frames refused, %d of them by full queues, want %d", s.Refused, s.Bypass.Overrun,
			count-holds)
	}
	for i := range holds {
		if got := binary.BigEndian.Uint32(stopped.receive(t)); got != uint32(i) {
			t.Fatalf("the stopped program got datagram %d, want %d", got, i)
		}
	}
	left.send(t, stopped.addr, bypassPort, time.Time{}, payload(count))
	if got := binary.BigEndian.Uint32(stopped.receive(t)); got != count {
		t.Errorf("after its pause it got datagram %d, want %d", got, count)
	}
}

// The NIC releases a frame at the time in its descriptor, and at once if that has passed.
func TestBypassDeparture(t *testing.T) {
	_, p, spaces := twoHosts(t, "{rate: 100mbit, mtu: 1500}")
	left, right := openBypass(t, p, spaces, "h0"), openBypass(t, p, spaces, "h1")
	const wait = 30 * time.Millisecond
	began := time.Now()
	left.send(t, right.addr, bypassPort, began.Add(wait), []byte("later"))
	if right.receive(t); time.Since(began) < wait {
		t.Errorf("it came after %v, before its departure", time.Since(began))
	}
	left.send(t, right.addr, bypassPort, began, []byte("at once"))
	if got := right.receive(t); string(got) != "at once" {
		t.Errorf("%q came", got)
	}
}

// Two programs cannot have one port. What a NIC cannot give is refused with the reason.
func TestBypassRefuses(t *testing.T) {
	_, p, spaces := twoHosts(t, "{rate: 100mbit, mtu: 1500}")
	openBypass(t, p, spaces, "h0")
	good := nicqueue.Request{NIC: "eth0", First: 1, Last: 9, Geometry: nicqueue.Geometry{Send: 4, Receive: 4,
		Room: 1514}}
	for _, test := range []struct {
		change func(*nicqueue.Request)
		want   string
		is     error
	}{
		{func(r *nicqueue.Request) { r.First, r.Last = bypassPort-1, bypassPort }, "UDP ports 19999 to 20000",
			unix.EADDRINUSE},
		{func(r *nicqueue.Request) { r.NIC = "eth7" }, `no NIC "eth7"`, nil},
		{func(r *nicqueue.Request) { r.Geometry.Room = 60000 }, "frames of 60000 bytes", nil},
		{func(r *nicqueue.Request) { r.Geometry.Send = 3 }, "power of two", nil},
	} {
		r := good
		test.change(&r)
		err := spaces["h0"].Do(func() error {
			opened, err := nicqueue.Open(r)
			if err == nil {
				opened.Close()
			}
			return err
		})
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte(test.want)) ||
			test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%+v: %v, want %s", r, err, test.want)
		}
	}
}

// A node whose namespace becomes another one, as a container's does after a restart, offers its NICs to the
// programs there, and has its mirror there. Arrivals are measured there. The old namespace has neither a
// socket nor a mirror.
func TestNamespaceBecomesAnother(t *testing.T) {
	f, p, spaces := build(t, "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, "+
		"switch: {kind: soft}}\nnodes: {h1: {nic-mirror: true}}\n")
	left := openBypass(t, p, spaces, "h0")
	for _, round := range []string{"first", "second"} {
		old := replaceNamespace(t, spaces["h1"])
		if _, err := f.Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.Reopen(t.Context(), "h1"); err != nil {
			t.Fatal(err)
		}
		right := openBypass(t, p, spaces, "h1")
		wantPass(t, left, right, round)
		if shown, err := mirrored(spaces["h1"]); err != nil || shown != 1 {
			t.Errorf("%s: the mirror shows %d frames, %v; want 1", round, shown, err)
		}
		wantArrivals(t, f, p, spaces)
		if sockets := packetSockets(t, old); sockets != 0 {
			t.Errorf("%s: the old namespace has %d packet sockets still", round, sockets)
		}
		if _, err := mirrored(old); err == nil {
			t.Errorf("%s: the old namespace has its mirror still", round)
		}
		if _, err := openOne(old); !errors.Is(err, nicqueue.ErrNoBypass) {
			t.Errorf("%s: %v in the old namespace, want %v", round, err, nicqueue.ErrNoBypass)
		}
		if err := right.Close(); err != nil {
			t.Fatal(err)
		}
		wantQueues(t, f, "h1", 0)
	}
	if err := f.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

// wantArrivals requires that frames from h0 are measured where they arrive, at h1.
func wantArrivals(t *testing.T, f *fabric.Fabric, p *plan.Plan, spaces map[string]*kernel.Namespace) {
	t.Helper()
	measured := func() uint64 { return nicState(t, f, "h1").Arrivals.Frames }
	const frames = 10
	before := measured()
	hosttest.Eventually(t, "the measured arrivals", func() error {
		datagrams(t, spaces["h0"], address(p, "h1"), time.Millisecond, frames*time.Millisecond)
		if got := measured() - before; got < frames {
			return fmt.Errorf("%d frames, want %d", got, frames)
		}
		return nil
	})
}

// packetSockets returns the number of packet sockets in a namespace.
func packetSockets(t *testing.T, ns *kernel.Namespace) int {
	t.Helper()
	var text []byte
	err := ns.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/packet")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n")) - 1 // without the title
}

// replaceNamespace makes a namespace become another one, and returns the old one.
func replaceNamespace(t *testing.T, ns *kernel.Namespace) *kernel.Namespace {
	t.Helper()
	file, err := ns.Dup()
	if err != nil {
		t.Fatal(err)
	}
	old, err := kernel.NamespaceOf(file)
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { old.Close() })
	another, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ns.Become(another), another.Close()); err != nil {
		t.Fatal(err)
	}
	return old
}

// mirrored returns how many frames the first mirror in a namespace has shown.
func mirrored(ns *kernel.Namespace) (frames int, err error) {
	var text []byte
	err = ns.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/dev")
		return err
	})
	if err != nil {
		return 0, err
	}
	_, counters, found := strings.Cut(string(text), "mirror0:")
	if !found {
		return 0, errors.New("there is no mirror0")
	}
	var bytes int
	_, err = fmt.Sscan(counters, &bytes, &frames)
	return frames, err
}
