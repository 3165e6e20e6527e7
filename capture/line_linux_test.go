package capture

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"railbed/internal/kernel"
	"railbed/testkit/hosttest"
)

// within runs a command inside a namespace.
func within(t testing.TB, ns *kernel.Namespace, command string) string {
	t.Helper()
	var out []byte
	err := ns.Do(func() (err error) {
		fields := strings.Fields(command)
		out, err = exec.Command(fields[0], fields[1:]...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return string(out)
}

// line is two hosts with a router between them: a:eth0 - r:p0, r:p1 - b:eth0.
type line struct{ a, r, b *kernel.Namespace }

func newNamespace(t testing.TB) *kernel.Namespace {
	t.Helper()
	ns, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

func newLine(t testing.TB) line {
	t.Helper()
	hosttest.Need(t, hosttest.Netns, hosttest.IP, hosttest.Ethtool)
	l := line{newNamespace(t), newNamespace(t), newNamespace(t)}
	for _, ns := range []*kernel.Namespace{l.a, l.r, l.b} {
		// A forwarded packet waits until the router's link-local address is
		// known to be unique, which takes a second.
		within(t, ns, "sysctl -q -w net.ipv6.conf.default.accept_dad=0")
	}
	wire := func(port string, host *kernel.Namespace) {
		within(t, l.r, fmt.Sprintf("ip link add %s type veth peer name eth0 netns /proc/%d/fd/%d", port,
			os.Getpid(), host.Fd()))
	}
	wire("p0", l.a)
	wire("p1", l.b)
	for _, step := range []struct {
		ns       *kernel.Namespace
		commands string
	}{
		{l.r, "sysctl -q -w net.ipv4.ip_forward=1;sysctl -q -w net.ipv6.conf.all.forwarding=1;ip addr add " +
			"10.0.0.1/31 dev p0;ip addr add 10.0.0.3/31 dev p1;ip addr add fd00:0:0:1::1/64 dev p0 " +
			"nodad;ip addr add fd00:0:0:2::1/64 dev p1 nodad;ip link set p0 up;ip link set p1 up"},
		{l.a, "ip addr add 10.0.0.0/31 dev eth0;ip addr add fd00:0:0:1::2/64 dev eth0 nodad;ip link set " +
			"eth0 up;ip link set lo up;ip route add default via 10.0.0.1;ip -6 route add default via " +
			"fd00:0:0:1::1"},
		{l.b, "ip addr add 10.0.0.2/31 dev eth0;ip addr add fd00:0:0:2::2/64 dev eth0 nodad;ip link set " +
			"eth0 up;ip link set lo up;ip route add default via 10.0.0.3;ip -6 route add default via " +
			"fd00:0:0:2::1"},
	} {
		for command := range strings.SplitSeq(step.commands, ";") {
			within(t, step.ns, command)
		}
	}
	for _, end := range []struct {
		ns   *kernel.Namespace
		port string
	}{{l.a, "eth0"}, {l.b, "eth0"}, {l.r, "p0"}, {l.r, "p1"}} {
		within(t, end.ns, "ethtool -K "+end.port+" tso off gso off gro off tx off")
	}
	return l
}

func (l line) taps() []Tap {
	return []Tap{
		{Node: "a", Port: "eth0", Link: "a--r", NIC: true, NS: l.a},
		{Node: "r", Port: "p0", Link: "a--r", NS: l.r},
		{Node: "r", Port: "p1", Link: "r--b", NS: l.r},
		{Node: "b", Port: "eth0", Link: "r--b", NIC: true, NS: l.b},
	}
}

// udp opens a socket inside a namespace.
func udp(t testing.TB, ns *kernel.Namespace, address string) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	err := ns.Do(func() error {
		local, err := net.ResolveUDPAddr("udp", address)
		if err != nil {
			return err
		}
		conn, err = net.ListenUDP("udp", local)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// connect sends until something arrives: links come up and neighbours are found
// some time after they were asked for. Then it waits until all that is under
// way has arrived.
func connect(t testing.TB, from, to *net.UDPConn) {
	t.Helper()
	buffer := make([]byte, 100)
	for deadline := time.Now().Add(hosttest.Bound); time.Now().Before(deadline); {
		sent, last := "anybody there, at "+time.Now().String(), ""
		send(t, from, to, []byte(sent), 1)
		for { // also those before, which may all arrive at once
			if err := to.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			n, err := to.Read(buffer)
			if err != nil {
				break
			}
			last = string(buffer[:n])
		}
		if last == sent {
			return
		}
	}
	t.Fatalf("nothing arrives at %s", to.LocalAddr())
}

// deliver sends datagrams, and each after the one before has arrived: the socket's buffer holds few.
func deliver(t testing.TB, from, to *net.UDPConn, payload []byte, count int) {
	t.Helper()
	if err := to.SetReadDeadline(time.Now().Add(hosttest.Bound)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, len(payload)+1)
	for i := range count {
		send(t, from, to, payload, 1)
		for n := -1; n < 0 || !bytes.Equal(buffer[:n], payload); {
			var err error
			if n, err = to.Read(buffer); err != nil {
				t.Fatalf("datagram %d of %d does not arrive: %v", i+1, count, err)
			}
		}
	}
}

func send(t testing.TB, from *net.UDPConn, to *net.UDPConn, payload []byte, count int) {
	t.Helper()
	for range count {
		if _, err := from.WriteTo(payload, to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
}
