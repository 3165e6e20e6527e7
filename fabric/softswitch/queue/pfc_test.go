package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/testkit/plantest"
)

// control is a PFC frame without its check sequence, in bytes.
const control = 60

// pausedLink is a link to a switch whose egress is slower than the link, with the reverse path of
// the pause. The pause waits for a longest frame that has just begun to leave, and takes its own
// time and the delay.
type pausedLink struct {
	simulation
	rate   units.Rate
	delay  time.Duration
	frame  int
	length func() int // of the sender's next frame, 0 for no more

	memory  *Memory
	egress  *Port
	paused  bool // the sender is
	sending bool
	dropped int
	passed  int
	pauses  int
	gave    func() // after each frame that arrived
}

func (l *pausedLink) time(bytes int) time.Duration {
	return l.rate.SerialisationTime(units.Bytes(bytes))
}

// Pause implements Signals.
func (l *pausedLink) Pause(_ int, _ uint8, on bool) {
	l.pauses += count(on)
	l.in(l.time(l.frame+control)+l.delay, func() {
		l.in(0, func() { // what else is to happen at this moment comes before
			l.paused = on
			l.send()
		})
	})
}

// Stage implements Signals.
func (l *pausedLink) Stage(int, uint8, uint8) {}

func (l *pausedLink) ReportAt(clock.Time) {}

// send begins a frame unless the sender is paused. A frame and a pause of the
// same moment: the frame begins.
func (l *pausedLink) send() {
	if l.paused || l.sending {
		return
	}
	length := l.length()
	if length == 0 {
		return
	}
	l.sending = true
	l.in(l.time(length), func() { l.sending = false; l.send() })
	l.in(l.time(length)+l.delay, func() { l.arrive(length) })
}

func (l *pausedLink) arrive(length int) {
	one := &packet.Packet{Data: make([]byte, length), Priority: 3, Ingress: 0}
	if o := l.egress.Enqueue(l.now, one); o.Dropped {
		l.dropped++
	} else {
		l.passed++
	}
	if l.gave != nil {
		l.gave()
	}
}

// newPausedLink begins with an egress that is stopped.
func newPausedLink(t *testing.T, l *pausedLink, at plan.PortPFC) *pausedLink {
	sw := softSwitch(1<<30, 2)
	withPFC(sw, at, 3)
	m, ports := memory(t, sw, l)
	l.memory, l.egress = m, ports[1]
	l.egress.Pause(0, 3, true)
	return l
}

// headroom returns the bytes that may arrive beyond XOff (IEEE 802.1Q-2022, annex N; Zhu et al.,
// SIGCOMM 2015, section 4). First is the frame that exceeded XOff. Then come the link's bytes in
// the time of two delays, of a longest frame ahead of the pause and of the pause. Last is the frame
// that the sender has just begun then.
func headroom(rate units.Rate, delay time.Duration, frame int) int {
	return frame + int(2*delay*time.Duration(rate)/8/time.Second) + frame + control + frame
}

type pfcCase struct {
	rate  units.Rate
	delay time.Duration
	frame int
}

var pfcCases = []pfcCase{
	{1e9, 0, 1518}, {1e9, 5 * time.Microsecond, 1518}, {1e9, 5 * time.Microsecond, 9018},
	{4e9, time.Microsecond, 4218},
	{8e9, 10 * time.Microsecond, 1518}, {8e9, 123 * time.Nanosecond, 9018}, {100e6, time.Millisecond, 1518},
}

// worst returns the sender's worst frames. First are k longest frames that fill the buffer up to
// XOff, and the frame that exceeds it. Then come as many bytes as end when the pause arrives, a
// longest frame that begins right then, and more that must not arrive.
func worst(c pfcCase, k int) func() int {
	var lengths []int
	for range k + 1 {
		lengths = append(lengths, c.frame)
	}
	const shortest = 60
	for fill := headroom(c.rate, c.delay, c.frame) - 2*c.frame; fill > 0; {
		next := min(fill, c.frame)
		if rest := fill - next; rest > 0 && rest < shortest {
			next -= shortest
		}
		lengths = append(lengths, next)
		fill -= next
	}
	return func() int {
		if len(lengths) == 0 {
			return c.frame
		}
		next := lengths[0]
		lengths = lengths[1:]
		return next
	}
}

// The computed headroom is enough in the worst case, and a byte less is not.
func TestHeadroomIsEnoughAndNoMore(t *testing.T) {
	for _, c := range pfcCases {
		t.Run(fmt.Sprintf("%v %v %dB", c.rate, c.delay, c.frame), func(t *testing.T) {
			const k = 4
			need := headroom(c.rate, c.delay, c.frame)
			for less := range 2 {
				at := plan.PortPFC{XOff: units.Bytes(k * c.frame), XOn: units.Bytes(2 * c.frame),
					Headroom: units.Bytes(need - less)}
				l := newPausedLink(t, &pausedLink{rate: c.rate, delay: c.delay, frame: c.frame,
					length: worst(c, k)}, at)
				l.send()
				l.run(1 << 40)
				if l.dropped != less || l.pauses != 1 || !l.paused {
					t.Errorf("headroom of %d bytes less %d: %d dropped after %d pauses, want %d after 1",
						need, less, l.dropped, l.pauses, less)
				}
				if held := l.memory.Held(0, 3); less == 0 && held != int64(k*c.frame+need) {
					t.Errorf("%d bytes wait, want the whole headroom used: %d", held, k*c.frame+need)
				}
			}
		})
	}
}

// planned is the plan of a soft switch between two hosts.
func planned(t *testing.T, c pfcCase) *plan.Plan {
	t.Helper()
	text := fmt.Sprintf("name: t\nfabric:\n  topology: single-switch\n  params: {hosts: 2}\n"+
		"  switch: {kind: soft, buffer: 64MB, pfc: true}\n"+
		"  links:\n    default: {rate: %v, delay: %v, mtu: %d}\n", c.rate, units.Duration(c.delay),
		c.frame-18)
	return plantest.Compile(t, text)
}

// What the plan keeps for a port is that headroom, and in a switch that is made
// from the plan nothing is lost in the worst case.
func TestPlannedHeadroomIsEnough(t *testing.T) {
	for _, c := range pfcCases {
		p := planned(t, c)
		sw := &p.Switches[0]
		at := sw.Ports[0].PFC
		if want := headroom(c.rate, c.delay, c.frame); int(at.Headroom) != want {
			t.Errorf("%v: the plan's headroom is %d bytes, want %d", c, at.Headroom, want)
		}
		// Frames that fill the buffer up to XOff, to the byte, come before the worst.
		most, rest := worst(c, 0), int(at.XOff)
		l := &pausedLink{rate: c.rate, delay: c.delay, frame: c.frame}
		l.length = func() int {
			if rest == 0 {
				return most()
			}
			next := min(rest, c.frame)
			rest -= next
			return next
		}
		m, ports := memory(t, sw, l)
		l.memory, l.egress = m, ports[1]
		l.egress.Pause(0, 3, true)
		l.send()
		l.run(1 << 40)
		if held := m.Held(0, 3); l.dropped != 0 || l.pauses != 1 || held != int64(at.XOff+at.Headroom) {
			t.Errorf("%v: %d dropped after %d pauses, %d bytes wait, want %d", c, l.dropped, l.pauses, held,
				at.XOff+at.Headroom)
		}
	}
}

// Nothing is lost, and the line behind never idles with a packet to send, while
// an egress of half the rate pauses the sender again and again.
func TestPausedSenderLosesNothing(t *testing.T) {
	for i, c := range pfcCases {
		random := rand.New(rand.NewPCG(5, uint64(i)))
		left := 5000
		l := &pausedLink{rate: c.rate, delay: c.delay, frame: c.frame}
		l.length = func() int {
			if left--; left < 0 {
				return 0
			}
			return 60 + random.IntN(c.frame-59)
		}
		need := headroom(c.rate, c.delay, c.frame)
		xon := need - c.frame // what comes until the sender has gone on, as plan has it
		newPausedLink(t, l, plan.PortPFC{XOff: units.Bytes(xon + 2*c.frame), XOn: units.Bytes(xon),
			Headroom: units.Bytes(need)})
		l.egress.Pause(0, 3, false)
		sent, busy := 0, time.Duration(0)
		first, last := clock.Time(-1), clock.Time(0)
		out := &line{s: &l.simulation, port: l.egress, rate: c.rate / 2, waking: -1}
		out.arrived = func(one *packet.Packet) {
			sent++
			busy += out.rate.SerialisationTime(units.Bytes(len(one.Data)))
			last = l.now
		}
		l.gave = func() {
			if first < 0 {
				first = l.now
			}
			out.kick()
		}
		l.send()
		l.run(1 << 50)
		if l.dropped != 0 || sent != 5000 || l.pauses < 3 || l.paused {
			t.Errorf("%v: %d dropped, %d of 5000 sent, %d pauses", c, l.dropped, sent, l.pauses)
		}
		if last.Sub(first) != busy {
			t.Errorf("%v: the line behind needed %v for what takes %v", c, last.Sub(first), busy)
		}
		if used := l.memory.Used(); used != 0 {
			t.Errorf("%v: %d bytes are accounted, and none waits", c, used)
		}
	}
}

// Priorities and ports are paused each for itself.
func TestPausesAreOfOnePortAndPriority(t *testing.T) {
	sw := softSwitch(1<<20, 3)
	withPFC(sw, plan.PortPFC{XOff: 3000, XOn: 1000, Headroom: 3000}, 3, 5)
	heard := listen(t)
	m, ports := memory(t, sw, heard)
	put := func(ingress int32, q uint8) Outcome {
		one := frameOf(1000, q)
		one.Ingress = ingress
		return ports[2].Enqueue(0, one)
	}
	for range 3 {
		put(0, 3)
		put(0, 5)
		put(1, 3)
	}
	if heard.words != 0 {
		t.Errorf("%d words at xoff, want none", heard.words)
	}
	put(0, 3)
	if paused, _ := m.Asked(0, 3); !paused || heard.words != 1 || !heard.paused[[2]int{0, 3}] {
		t.Errorf("above xoff: %+v", heard)
	}
	put(0, 3)
	put(0, 3)
	if o := put(0, 3); !o.Dropped || o.Reason != Headroom {
		t.Errorf("beyond the headroom: %+v", o)
	}
	for n := 6; m.Held(0, 3) > 0; n-- {
		if paused := heard.paused[[2]int{0, 3}]; paused != (m.Held(0, 3) > 1000) {
			t.Errorf("%d bytes wait, paused %t", m.Held(0, 3), paused)
		}
		ports[2].Dequeue(0)
	}
	if heard.words != 2 {
		t.Errorf("%d words, want 2: a pause and its end", heard.words)
	}
}

// A packet that is too long for the whole reservation pauses no sender if nothing waits: no later
// packet would end the pause.
func TestTooLongPacketPausesNobodyForGood(t *testing.T) {
	sw := softSwitch(1<<20, 2)
	withPFC(sw, plan.PortPFC{XOff: 1000, XOn: 500, Headroom: 100}, class)
	heard := listen(t)
	_, ports := memory(t, sw, heard)
	put := func(length int) Reason {
		one := frameOf(length, class)
		one.Ingress = 0
		return ports[1].Enqueue(0, one).Reason
	}
	if reason := put(1200); reason != Headroom || heard.words != 0 {
		t.Errorf("reason %d, %d words, want a drop and none", reason, heard.words)
	}
	put(600)
	if reason := put(600); reason != Headroom || !heard.paused[[2]int{0, class}] {
		t.Errorf("reason %d, and the sender is not paused while 600 bytes wait", reason)
	}
	ports[1].Dequeue(0)
	if heard.paused[[2]int{0, class}] {
		t.Error("the sender stays paused")
	}
}

// A port's reservation grows out of unused shared bytes and shrinks when few enough bytes wait. The
// sender gets a signal with its new state.
func TestThresholdsChange(t *testing.T) {
	sw := softSwitch(20_000, 2)
	withPFC(sw, plan.PortPFC{XOff: 2000, XOn: 1000, Headroom: 2000}, 3)
	heard := listen(t)
	m, ports := memory(t, sw, heard)
	put := func(q uint8, length int) Outcome {
		one := frameOf(length, q)
		one.Ingress = 0
		return ports[1].Enqueue(0, one)
	}
	set := func(at plan.PortPFC) bool { return m.Set(0, 0, Thresholds{PFC: at}) }
	shrink := func(at plan.PortPFC) bool { return m.Shrink(0, Thresholds{PFC: at}) }
	kept := func() plan.PortPFC { return m.Thresholds(0).PFC }
	// 20,000 less 8,000 are shared, of which one frame stays.
	if spare := m.Spare(); spare != 12_000-longest {
		t.Errorf("%d bytes are spare", spare)
	}
	for range 4 {
		put(0, 1500)
	}
	if spare := m.Spare(); spare != 12_000-6000 {
		t.Errorf("%d bytes are spare while 6000 are used", spare)
	}
	for range 3 {
		put(3, 1000)
	}
	if !heard.paused[[2]int{0, 3}] {
		t.Fatal("above xoff, and not paused")
	}
	for _, wrong := range []plan.PortPFC{{XOff: 5001, XOn: 1000, Headroom: 5000},
		{XOff: 1 << 62, Headroom: 1 << 63}} {
		if before := kept(); set(wrong) || kept() != before {
			t.Errorf("%+v is taken: %+v", wrong, kept())
		}
	}
	less := plan.PortPFC{XOff: 1000, XOn: 500, Headroom: 1999}
	if !set(less) || shrink(less) || kept() != (plan.PortPFC{XOff: 1000, XOn: 500, Headroom: 3000}) ||
		m.free() != 6000 {
		t.Errorf("3000 bytes wait, and are to have room: %+v, %d bytes are free", kept(), m.free())
	}
	if !set(plan.PortPFC{XOff: 5000, XOn: 2999, Headroom: 5000}) || m.free() != 0 ||
		!heard.paused[[2]int{0, 3}] {
		t.Errorf("%d bytes are free, heard %+v", m.free(), heard)
	}
	if o := put(0, 100); o.Reason != Buffer {
		t.Errorf("a frame found room that a port keeps: %+v", o)
	}
	if !set(plan.PortPFC{XOff: 5000, XOn: 3000, Headroom: 5000}) || heard.paused[[2]int{0, 3}] {
		t.Error("as little as xon waits, and the sender does not go on")
	}
	less = plan.PortPFC{XOff: 2000, XOn: 1000, Headroom: 1000}
	if !set(less) || !heard.paused[[2]int{0, 3}] || m.free() != 0 {
		t.Errorf("more than xoff waits: %d bytes are free, heard %+v", m.free(), heard)
	}
	if !shrink(less) || kept() != less || m.free() != 7000 {
		t.Errorf("%d bytes are free, and %+v kept", m.free(), kept())
	}
	if o := put(3, 60); o.Reason != Headroom {
		t.Errorf("beyond the headroom that shrank: %+v", o)
	}
	ports[1].Flush(func(*packet.Packet) {})
	if m.Used() != 0 || heard.paused[[2]int{0, 3}] {
		t.Errorf("%d bytes are used when none waits, heard %+v", m.Used(), heard)
	}
}
