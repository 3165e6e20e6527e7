package queue

import (
	"os"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

// The tests measure rates and durations.
var _ = hosttest.MarkPackage(hosttest.Alone)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// longest is the longest frame of the tests' ports.
const longest = 1518

// softSwitch is a switch with a buffer that only shares, served by DWRR with
// equal weights, and some ports.
func softSwitch(buffer units.Bytes, ports int) *plan.Switch {
	sw := &plan.Switch{Name: "leaf1", HashSeed: 7, Soft: &plan.SoftSwitch{
		Buffer: buffer, Shared: buffer, Alpha: units.Factor{Num: 1, Den: 1},
		Scheduler: plan.Scheduler{Weights: [spec.Priorities]int{1, 1, 1, 1, 1, 1, 1, 1}, Quantum: longest},
	}}
	for i := range ports {
		sw.Ports = append(sw.Ports, plan.Interface{Name: "p" + string(rune('0'+i)), MTU: 1500})
	}
	return sw
}

// withPFC reserves what each port needs for one lossless priority.
func withPFC(sw *plan.Switch, at plan.PortPFC, priorities ...int) {
	sw.Soft.PFC = &plan.PFC{Priorities: priorities, Quanta: 65535}
	sw.Soft.Reserved = units.Bytes(len(sw.Ports)*len(priorities)) * (at.XOff + at.Headroom)
	sw.Soft.Shared = sw.Soft.Buffer - sw.Soft.Reserved
	for i := range sw.Ports {
		sw.Ports[i].PFC = &at
	}
}

// withGFC does the same for GFC.
func withGFC(sw *plan.Switch, kind string, at plan.PortGFC, priorities ...int) {
	sw.Soft.GFC = &plan.GFC{Kind: kind, Priorities: priorities}
	sw.Soft.Reserved = units.Bytes(len(sw.Ports)*len(priorities)) * at.Limit
	sw.Soft.Shared = sw.Soft.Buffer - sw.Soft.Reserved
	for i := range sw.Ports {
		sw.Ports[i].GFC = &at
	}
}

// memory is the buffer of a switch and its ports.
func memory(tb testing.TB, sw *plan.Switch, signals Signals) (*Memory, []*Port) {
	tb.Helper()
	m, err := NewMemory(sw, signals)
	if err != nil {
		tb.Fatal(err)
	}
	ports := make([]*Port, len(sw.Ports))
	for i := range ports {
		ports[i] = m.NewPort(i)
	}
	return m, ports
}

// spoken implements Signals. It records the last signal and counts the signals. It fails the test
// when a pause is requested twice.
type spoken struct {
	tb     testing.TB
	paused map[[2]int]bool
	stages map[[2]int]uint8
	pauses int
	words  int
	report clock.Time // the last request
}

func listen(tb testing.TB) *spoken {
	return &spoken{tb: tb, paused: map[[2]int]bool{}, stages: map[[2]int]uint8{}}
}

func (s *spoken) Pause(ingress int, priority uint8, on bool) {
	if s.paused[[2]int{ingress, int(priority)}] == on {
		s.tb.Errorf("pause %t of ingress %d, priority %d, twice in a row", on, ingress, priority)
	}
	s.paused[[2]int{ingress, int(priority)}] = on
	s.words++
	if on {
		s.pauses++
	}
}

func (s *spoken) Stage(ingress int, priority, stage uint8) {
	s.stages[[2]int{ingress, int(priority)}] = stage
	s.words++
}

func (s *spoken) ReportAt(at clock.Time) { s.report = at }

// frameOf is the datagram of an ECN-capable flow, in a frame of some bytes.
func frameOf(length int, priority uint8) *packet.Packet {
	one := &packet.Packet{Data: make([]byte, length), Length: length, Priority: priority, Ingress: -1}
	datagram(one.Data, wire.ECT0)
	one.Parse()
	return one
}

// datagram writes the headers of IPv4 and UDP into a frame, as RFC 791 and 768
// have them, where it has room.
func datagram(frame []byte, ecn wire.ECN) {
	const l3, l4 = 14, 34
	if len(frame) < l4+8 {
		return
	}
	wire.Ethernet(frame).Encode(&wire.EthernetFields{Dst: wire.MAC{2, 0, 0, 0, 0, 2},
		Src: wire.MAC{2, 0, 0, 0, 0, 1}, EtherType: 0x0800})
	ip := wire.IPv4(frame[l3:])
	ip.Encode(&wire.IPv4Fields{
		TotalLength: uint16(len(ip)),
		TTL:         64,
		Protocol:    17,
		Src:         [4]byte{10, 0, 0, 1},
		Dst:         [4]byte{10, 0, 0, 2},
		DSCP:        35,
		ECN:         ecn,
	})
	udp := wire.UDP(frame[l4:])
	udp.Encode(&wire.UDPFields{SrcPort: 4791, DstPort: 4792, Length: uint16(len(udp))})
	for i := range udp.Payload() {
		udp.Payload()[i] = byte(i)
	}
	udp.FillChecksum(wire.PseudoIPv4(ip.Src(), ip.Dst(), 17, len(udp)))
}

// simulation is a virtual time with planned events.
type simulation struct {
	now   clock.Time
	queue clock.Queue[func()]
}

// in calls a function some time later. Calls of one time are in the order of their requests.
func (s *simulation) in(after time.Duration, do func()) {
	s.queue.Push(s.now.Add(after), do)
}

// run lets the time pass until the end, or until nothing is left to do.
func (s *simulation) run(until clock.Time) {
	for s.queue.Len() > 0 && s.queue.Next() <= until {
		at, do := s.queue.Pop()
		s.now = at
		do()
	}
	s.now = until
}

// line sends a port's packets over a link.
type line struct {
	s       *simulation
	port    *Port
	rate    units.Rate
	delay   time.Duration
	busy    bool
	waking  clock.Time
	arrived func(*packet.Packet)
}

// kick sends when the line is free and something may be sent.
func (l *line) kick() {
	if l.busy {
		return
	}
	one := l.port.Dequeue(l.s.now)
	if one == nil {
		if next := l.port.Next(l.s.now); next != clock.Never && next != l.waking {
			l.waking = next
			l.s.in(next.Sub(l.s.now), func() { l.waking = -1; l.kick() })
		}
		return
	}
	l.busy = true
	taken := l.rate.SerialisationTime(units.Bytes(len(one.Data)))
	l.s.in(taken, func() { l.busy = false; l.kick() })
	l.s.in(taken+l.delay, func() { l.arrived(one) })
}
