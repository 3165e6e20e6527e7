package forward_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric"
	"railbed/fabric/link"
	"railbed/fabric/softswitch/forward"
	"railbed/fabric/softswitch/packet"
	"railbed/internal/kernel"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

// unlike are frames that Linux treats otherwise, and why we do not.
var unlike = map[string]string{
	"v4 time exceeded": "Linux copies the type of service, ECN bits included; errors have the " +
		"default one (RFC 1349, 5.1)",
	"ICMP cut short":  "Linux takes a message without a whole header for no error",
	"ICMPv6 redirect": "Linux answers redirects, which RFC 4443, 2.4(e.2), forbids",
	"later fragment of IPv6": "Linux answers all fragments of IPv6; for IPv4 RFC 1812 forbids it, and we " +
		"make no difference",
	"to a link-local address": "Linux has no route to one where addr_gen_mode is none, and says so; we are " +
		"silent as RFC 4291, 2.5.6, has it stay on the link",
}

// TestLinuxAnswersAlike gives each frame to a Linux router that this project
// built from the same plan: it answers the same bytes by the same port, or keeps
// silent, too. The IPv4 identification and the IPv6 flow label may differ.
func TestLinuxAnswersAlike(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	p := twoRouters(t)
	pool, err := packet.NewPool(1<<20, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s, err := forward.New(p, p.Switch("s"), pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	tap := linuxRouter(t, p)
	names, frames := forward.KnownFrames(t)
	answered := 0
	for i, frame := range frames {
		one := pool.Get()
		one.Data = one.Data[:copy(one.Data, frame)]
		one.Parse()
		var ours []byte
		if d := s.Decide(0, one, 0); d.Action == forward.Reply {
			ours = anonymous(d.Reply.Data)
			pool.Put(d.Reply)
			answered++
		}
		pool.Put(one)
		theirs := tap.ask(frame, uint16(i))
		if slices.Equal(ours, theirs) {
			continue
		}
		if reason := unlike[names[i]]; reason != "" {
			t.Logf("%s: %s", names[i], reason)
			continue
		}
		t.Errorf("%s: % x\nwe answer    % x\nLinux answers % x", names[i], frame, ours, theirs)
	}
	if answered < 15 {
		t.Errorf("only %d answers were compared", answered)
	}
}

func twoRouters(t *testing.T) *plan.Plan {
	t.Helper()
	file := &spec.Testbed{Name: "t", Fabric: spec.Fabric{
		Topology: spec.Explicit, Hosts: []string{"a", "b"}, Connect: []string{"a -- s", "b -- t", "s -- t"},
		Switch:   spec.Switch{Kind: spec.Router},
		Switches: spec.Ordered[spec.Switch]{{Key: "s"}, {Key: "t"}},
		// what any machine reaches
		Links: spec.Ordered[spec.Link]{{Key: spec.DefaultKey,
			Value: spec.Link{Direction: spec.Direction{Rate: 20e6}}}},
	}}
	p, err := plan.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// linuxRouter builds the plan of Linux routers and returns a tap in the place of
// node a.
func linuxRouter(t *testing.T, p *plan.Plan) *tap {
	t.Helper()
	all := map[string]*kernel.Namespace{}
	for _, name := range []string{"a", "b", "s", "t"} {
		ns, err := kernel.NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ns.Close() })
		all[name] = ns
	}
	calibration, err := link.LoadCalibration(filepath.Join(t.TempDir(), "calibration.json"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.Build(context.Background(), p, all, fabric.Options{Calibration: calibration})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return newTap(t, all["a"])
}

// tap sends and receives frames as node a. It does not stop the node's own stack.
type tap struct {
	t  *testing.T
	fd int
}

func newTap(t *testing.T, ns *kernel.Namespace) *tap {
	t.Helper()
	one := &tap{t: t}
	const every = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8
	err := ns.Do(func() error {
		nic, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		if one.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, every); err != nil {
			return err
		}
		wait := unix.NsecToTimeval(int64(5 * time.Second))
		return errors.Join(unix.Bind(one.fd, &unix.SockaddrLinklayer{Protocol: every, Ifindex: nic.Index}),
			unix.SetsockoptTimeval(one.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(one.fd) })
	return one
}

// ask sends a frame and then a request that is always answered. A packet before that answer is the
// answer to the frame.
func (o *tap) ask(frame []byte, number uint16) (answer []byte) {
	o.t.Helper()
	request := echo(number)
	for _, f := range [][]byte{frame, request} {
		if _, err := unix.Write(o.fd, f); err != nil {
			o.t.Fatal(err)
		}
	}
	buffer := make([]byte, 4096)
	for {
		n, from, err := unix.Recvfrom(o.fd, buffer, 0)
		if err != nil {
			o.t.Fatalf("no answer to the last request: %v", err)
		}
		got := slices.Clone(buffer[:n])
		h := wire.Parse(got)
		switch {
		case from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING:
		case h.Protocol == wire.ProtocolICMPv4 && got[h.L4] == wire.ICMPv4EchoReply &&
			binary.BigEndian.Uint32(got[h.L4+4:]) == wire.EchoRest(0xfeed, number):
			return answer
		case h.Protocol == wire.ProtocolICMPv6 && (got[h.L4] >= 130 && got[h.L4] <= 135 || got[h.L4] == 143):
			// Unsolicited messages of the routers: group membership and neighbours.
		case answer != nil:
			o.t.Errorf("two answers to % x: % x and % x", frame, answer, got)
		default:
			answer = anonymous(got)
		}
	}
}

// echo is a request of a to s.
func echo(number uint16) []byte {
	frame := make([]byte, wire.EthernetLen+wire.IPv4MinLen+wire.ICMPLen)
	wire.Ethernet(frame).Encode(&wire.EthernetFields{Dst: wire.MAC{2, 0, 0, 0, 0, 3},
		Src: wire.MAC{2, 0, 0, 0, 0, 1}, EtherType: wire.EtherTypeIPv4})
	wire.IPv4(frame[wire.EthernetLen:]).Encode(&wire.IPv4Fields{TotalLength: 28, TTL: 64,
		Protocol: wire.ProtocolICMPv4, Src: [4]byte{10, 128, 0, 1}, Dst: [4]byte{10, 0, 0, 5}})
	wire.ICMPv4(frame[34:]).Encode(
		&wire.ICMPFields{Type: wire.ICMPv4Echo, Rest: wire.EchoRest(0xfeed, number)})
	return frame
}

// anonymous is a frame without its IPv4 identification and its IPv6 flow label,
// which Linux draws.
func anonymous(frame []byte) []byte {
	frame = slices.Clone(frame)
	switch h := wire.Parse(frame); {
	case h.Has(wire.IsIPv4):
		binary.BigEndian.PutUint16(frame[h.L3+4:], 0)
		wire.IPv4(frame[h.L3:]).FillChecksum()
	case h.Has(wire.IsIPv6):
		wire.IPv6(frame[h.L3:]).SetFlowLabel(0)
	}
	return frame
}
