package verify

import (
	"cmp"
	"slices"

	"railbed/fabric/units"
	"railbed/testbed/plan"
)

// Rate is what one direction of a link carried, of what it was asked to.
type Rate struct {
	Link, From, To string
	// Asked is in real time, whatever the dilation.
	Asked units.Rate
	// Busiest is the most bit/s of an interval of RateInterval.
	Busiest float64
	// Busy is how many intervals there were in which the link had more to send
	// than it could; where the capture does not say what waited, those in which it
	// carried more than it was asked to.
	Busy int
	// Achieved is the share of the asked rate in these, or 0 when they are fewer
	// than BusyLeast.
	Achieved float64
	// Known says that the capture holds all that passed and says what waited, so
	// that also too little is found.
	Known bool
}

// maxIntervals bounds the memory of a meter to that of 3.6 hours of packets. What
// comes later is not judged.
const maxIntervals = 1 << 16

// burstTime and burstMTUs are what the kernel's shaper may let pass at once:
// max(2 MTU, asked rate x 200 us).
const (
	burstTime = 200e-6 // s
	burstMTUs = 2
)

// meter counts what passes a tap in one direction, by intervals.
type meter struct {
	// asked is the direction of the link in real time, and perByte how long a byte
	// takes, in nanoseconds; zero without a plan.
	asked    units.Rate
	perByte  float64
	overhead int
	mtu      int
	dilation float64
	arrives  bool // the tap is at the far end

	interval int64 // number of the one that is filled
	bytes    uint64
	longest  int
	began    bool // whether more waited when the interval began
	more     bool // whether more waits behind the last packet
	known    bool // whether packets say what waits
	paused   bool // the far end has stopped the link
	held     bool // it did in this interval
	due      int64
	done     []interval
}

// interval is a past one of a meter.
type interval struct {
	bytes float32
	busy  bool // more waited at both ends of it, and nothing held it back
}

func newMeter(c *Capture, tap *Tap, d Direction) *meter {
	m := &meter{arrives: d == In, dilation: float64(c.Dilation)}
	if c.Plan == nil {
		return m
	}
	link := c.Plan.Link(tap.Link)
	if link == nil {
		return m
	}
	atA := link.A.Node == tap.Node && link.A.Port == tap.Port
	set := link.Direction(atA == (d == Out))
	m.asked, m.overhead, m.mtu = set.Rate/units.Rate(c.Dilation), int(set.Overhead), link.MTU
	if m.asked > 0 {
		m.perByte = 8e9 / float64(m.asked)
	}
	return m
}

// add takes a packet that passes.
func (m *meter) add(p *Packet) {
	length := p.Length + m.overhead
	// A packet that comes late is counted in the present interval.
	if now := p.Time / int64(RateInterval); m.bytes == 0 && len(m.done) == 0 {
		m.interval = now
	} else if now > m.interval {
		m.turn(now)
	}
	m.bytes += uint64(length)
	m.longest = max(m.longest, length)
	switch {
	case m.arrives:
		// Frames of a soft switch follow each other without a gap, by their due
		// times, while the link is busy; a nanosecond in a hundred is rounding.
		took := m.perByte * float64(length)
		m.more = float64(p.Due-m.due) <= 1.01*took+100*m.dilation
	case p.Depth >= 0 && (p.Verdict == "" || p.Verdict == "dequeue"):
		m.known, m.more = true, p.Depth > 0
	case p.Depth < 0:
		m.more = false
	}
	m.due = p.Due
}

// control takes a frame that comes the other way and holds the link back.
func (m *meter) control(verdict string) {
	m.paused = verdict != "resume"
	m.held = true
}

func (m *meter) turn(now int64) {
	if len(m.done) < maxIntervals {
		m.done = append(m.done, interval{float32(m.bytes), m.began && m.more && !m.held})
	}
	// Of a time in which nothing was sent the meter knows no busy intervals.
	m.began = m.more && now == m.interval+1
	m.held, m.bytes, m.interval = m.paused, 0, now
}

// rate judges what was counted. Packets tell whether the link was busy, or it is
// known only of intervals with more than was asked for.
func (m *meter) rate(told bool) (busiest float64, busy []float32) {
	most := float64(m.bytes)
	for _, i := range m.done {
		most = max(most, float64(i.bytes))
		if share := m.share(float64(i.bytes)); told && i.busy || !told && share > 1 {
			busy = append(busy, float32(share))
		}
	}
	return most * 8 / RateInterval.Seconds(), busy
}

// share is what an interval held of what was asked for. It may be off by a frame,
// and hold a burst.
func (m *meter) share(bytes float64) float64 {
	whole := float64(m.asked) / 8 * RateInterval.Seconds()
	burst := max(float64(burstMTUs*(m.mtu+etherHeader)), float64(m.asked)/8*burstTime)
	if least := bytes + float64(m.longest); least < whole {
		return least / whole
	}
	return max(whole, bytes-float64(m.longest)-burst) / whole
}

// measured is a direction of a link and the meter that says most of it.
type measured struct {
	Rate
	meter *meter
}

// measure finds the tap that says most of a direction of a link. A soft switch's
// port says what waited behind a packet that it sent, and by due times what came
// without a gap; a node's tap stands before its emulated NIC, where the node's own
// shaper paces. The kernel stamps behind its shaper. One direction without any tap
// is missing.
func (k *Fidelity) measure(link *plan.Link, atA bool) (found measured, missing bool) {
	c, from, to := k.capture, link.A, link.B
	if !atA {
		from, to = link.B, link.A
	}
	found = measured{Rate: Rate{
		Link: link.Name, From: from.Node + ":" + from.Port, To: to.Node + ":" + to.Port, Asked: link.Direction(atA).Rate / units.Rate(c.Dilation),
	}}
	sender, receiver := c.Tap(from.Node, from.Port), c.Tap(to.Node, to.Port)
	switch {
	case sender != nil && soft(c.Plan, from.Node):
		found.meter = k.meter(sender, Out)
		found.Known = found.meter != nil && found.meter.known && sender.whole()
	case receiver != nil && soft(c.Plan, to.Node):
		found.meter, found.Known = k.meter(receiver, In), receiver.whole()
	case sender != nil:
		found.meter = k.meter(sender, Out)
	case receiver != nil:
		found.meter = k.meter(receiver, In)
	default:
		return found, true
	}
	return found, false
}

// whole reports whether the capture holds every packet of a tap.
func (t *Tap) whole() bool { return !t.filtered && t.Lost == 0 }

func soft(p *plan.Plan, node string) bool {
	s := p.Switch(node)
	return s != nil && s.Soft != nil
}

// Rates is what every link direction with traffic carried, the busiest first, and
// how many directions were not captured; once Result was called.
func (k *Fidelity) Rates() (rates []Rate, missing int) {
	if k.capture.Plan == nil {
		return nil, 0
	}
	for i := range k.capture.Plan.Links {
		link := &k.capture.Plan.Links[i]
		for _, atA := range []bool{true, false} {
			m, lacking := k.measure(link, atA)
			if lacking {
				missing++
			}
			if m.meter == nil || m.Asked == 0 {
				continue
			}
			busiest, busy := m.meter.rate(m.Known)
			m.Busiest = busiest
			if k.changed == nil || !k.changed(link.Name) {
				m.Busy = len(busy)
				m.Achieved, _ = Achieved(busy)
			} else {
				m.Known = false
			}
			rates = append(rates, m.Rate)
		}
	}
	slices.SortStableFunc(rates, func(x, y Rate) int {
		return cmp.Compare(y.Busiest/float64(y.Asked), x.Busiest/float64(x.Asked))
	})
	return rates, missing
}

func (k *Fidelity) meter(tap *Tap, d Direction) *meter {
	if tap.Index >= len(k.meters) {
		return nil
	}
	return k.meters[tap.Index][d-In]
}
