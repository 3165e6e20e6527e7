package live_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/softswitch"
	"railbed/internal/wire"
	"railbed/testkit/hosttest"
	"railbed/transports/datagram"
)

// outcome has the effects of a fabric on packets of priority 3.
type outcome struct {
	Drops, Marks           map[string]softswitch.ByReason // by port
	PausesSent, PausesSeen map[string]bool                // by port; their number also depends on time
	Order                  []uint32                       // in which the numbered packets arrived
	Marked                 uint64
}

// The same burst meets the same drops, marks and pauses and arrives in the same order, whether its program
// takes the kernel's path or bypasses it. The link to the receiver is slow: before a second packet has left
// it, the whole burst has come.
func TestPathsMeetTheSame(t *testing.T) {
	for name, treatment := range map[string]string{
		"drop-tail": "buffer: 12KB",
		"marks":     "buffer: 40KB, ecn: {kmin: 3KB, kmax: 12KB, pmax: 50%}",
		"pauses":    "buffer: 40KB, pfc: {priorities: [3]}",
	} {
		t.Run(name, func(t *testing.T) {
			if name != "marks" {
				hosttest.Long(t)
			}
			kernel, bypass := burst(t, treatment, false), burst(t, treatment, true)
			if !reflect.DeepEqual(kernel, bypass) {
				t.Errorf("by the kernel %+v, past it %+v", kernel, bypass)
			}
			met := len(kernel.Drops) > 0
			switch name {
			case "marks":
				met = kernel.Marked > 0
			case "pauses":
				met = len(kernel.PausesSeen) > 0 && len(kernel.Drops) == 0
			}
			if !met || len(kernel.Order) < 10 {
				t.Errorf("%+v tests nothing", kernel)
			}
		})
	}
}

// burst sends 40 packets of random sizes at once from one node to another, and returns the effects on them.
func burst(t *testing.T, treatment string, past bool) (o outcome) {
	t.Helper()
	f, p, spaces := build(t, fmt.Sprintf("name: paths\nseed: 5\nfabric:\n  topology: single-switch\n"+
		"  params: {hosts: 2}\n  switch: {kind: soft, %s}\n"+
		"  links: {default: {rate: 1gbit, mtu: 1500}, h1--leaf1: {rate: 50kbit}}\n"+
		"nodes: {default: {nic-path: bypass}}\n", treatment))
	const port, count, dscp, size = 9000, 40, 24, 600
	to, from := netip.MustParseAddr(address(p, "h1")), netip.MustParseAddr(address(p, "h0"))
	var receiver net.PacketConn
	if err := spaces["h1"].Do(func() (err error) {
		receiver, err = net.ListenPacket("udp4", netip.AddrPortFrom(to, port).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	var send func(payload []byte) error
	if past {
		left := openBypass(t, p, spaces, "h0")
		send = func(payload []byte) error {
			station, _ := left.Station(to)
			left.Put(&datagram.Outgoing{To: to, Station: station, SrcPort: bypassPort, DstPort: port,
				DSCP: dscp, ECN: wire.ECT0, Payload: payload})
			return left.Post()
		}
	} else {
		var socket net.Conn
		if err := spaces["h0"].Do(func() (err error) {
			dialer := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, bypassPort))}
			if socket, err = dialer.Dial("udp4", netip.AddrPortFrom(to, port).String()); err != nil {
				return err
			}
			raw, err := socket.(*net.UDPConn).SyscallConn()
			if err != nil {
				return err
			}
			return raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, dscp<<2|int(wire.ECT0))
			})
		}); err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		send = func(payload []byte) error { _, err := socket.Write(payload); return err }
	}
	draw := rand.New(rand.NewPCG(5, 5))
	for i := range count {
		payload := make([]byte, 100+draw.IntN(size))
		binary.BigEndian.PutUint32(payload, uint32(i))
		if err := send(payload); err != nil {
			t.Fatal(err)
		}
	}
	buffer := make([]byte, 2*size)
	for {
		// Far longer than a packet takes on the slow link.
		if err := receiver.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := receiver.ReadFrom(buffer); err != nil {
			break
		}
		o.Order = append(o.Order, binary.BigEndian.Uint32(buffer))
	}
	links, err := f.Links(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const priority = dscp / 8
	o.Drops, o.Marks = map[string]softswitch.ByReason{}, map[string]softswitch.ByReason{}
	o.PausesSent, o.PausesSeen = map[string]bool{}, map[string]bool{}
	for _, l := range links {
		for _, one := range []*softswitch.PortState{l.A.Soft, l.B.Soft} {
			o.add(one, priority)
		}
	}
	return o
}

// add adds the counts of a port.
func (o *outcome) add(one *softswitch.PortState, priority int) {
	if one.Counters.PausesSent[priority] > 0 {
		o.PausesSent[one.Port] = true
	}
	if one.Counters.PausesReceived[priority] > 0 {
		o.PausesSeen[one.Port] = true
	}
	if one.Drops.Total() > 0 {
		o.Drops[one.Port] = one.Drops
	}
	if one.Marks.Total() > 0 {
		o.Marks[one.Port], o.Marked = one.Marks, o.Marked+one.Marks.Total()
	}
}
