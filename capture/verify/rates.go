package verify

import (
	"cmp"
	"math"
	"slices"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan"
)

// Rate compares the rate that one direction of a link carried with its configured rate.
type Rate struct {
	Link, From, To string
	// Asked is the configured rate in real time, whatever the dilation.
	Asked units.Rate
	// Busiest is the highest rate of an interval of RateInterval, in bit/s.
	Busiest float64
	// Peak is the highest rate of an interval of PeakInterval, in bit/s, by the times at which packets were
	// due. It is 0 if the capture does not hold all packets, or if the file asks for other arrivals.
	Peak float64
	// Busy is the number of intervals that yield a rate. In some of them packets waited for the link
	// for a part of the time, as far as the capture records queue lengths. In the others the link
	// carried more than its configured rate.
	Busy int
	// Time is the time in which the link was busy in these intervals.
	Time time.Duration
	// Achieved is the share of the configured rate in these intervals. It is 0 when there are fewer
	// than BusyLeast.
	Achieved float64
	// Known reports whether the capture holds all packets and records queue lengths. Only then does
	// the check find a rate that is too low.
	Known bool
	// Unjudged reports whether there is no rate because the file asks for other rates or arrivals.
	Unjudged bool
}

// PeakInterval is the time over which the peak of a link is measured. A rate over such a time is no evidence
// about the emulator: one frame is up to some percent of the bytes. It shows short operations, though.
const PeakInterval = 10 * time.Millisecond

// maxIntervals bounds the memory of a meter to the intervals of 3.6 hours of packets. Later packets
// are not judged.
const maxIntervals = 1 << 16

// A stretch lasts from a packet behind which others wait to the last packet that follows without a
// gap. The first stretchStart of a stretch does not count, because the packet that wakes an idle
// switch is later than the packets after it. An interval yields a rate when stretches fill
// busyLeast of it.
const (
	stretchStart = time.Millisecond
	busyLeast    = RateInterval / 4
)

// burstTime and burstMTUs are the burst that the kernel's shaper may send at once: max(2 MTU, asked
// rate x 200 us).
const (
	burstTime = 200e-6 // s
	burstMTUs = 2
)

// meter counts the packets that pass a tap in one direction, by intervals.
type meter struct {
	tap *evidence.Tap
	// asked is the configured rate of the link's direction in real time. perByte is how long a byte
	// takes, in nanoseconds. Both are zero without a plan.
	asked    units.Rate
	perByte  float64
	overhead int
	mtu      int
	dilation float64
	arrives  bool              // the tap is at the receiving end
	excepted []evidence.Active // times in which the file asks for another rate or other arrivals

	interval int64 // number of the current interval
	bytes    uint64
	longest  int
	known    bool                                  // packets record how much waits
	short    struct{ interval, bytes, most int64 } // of PeakInterval
	paused   bool                                  // the far end has paused the link
	more     bool                                  // more packets wait behind the last packet
	last     struct {
		time, due int64
		length    int
	} // the last packet
	start int64   // due time of the stretch's first packet
	busy  stretch // counted part of the stretches in this interval
	done  []interval
}

// stretch is the number of bytes that passed while more packets waited, and how long that took.
type stretch struct {
	bytes uint64
	time  int64 // ns
}

// interval is a past interval of a meter.
type interval struct {
	bytes    float32
	share    float32       // achieved share of the configured rate while busy
	busy     time.Duration // 0 when too short to yield a rate
	excepted bool          // it yields no rate
}

func newMeter(c *evidence.Capture, tap *evidence.Tap, d evidence.Direction) *meter {
	m := &meter{tap: tap, arrives: d == evidence.In, dilation: float64(c.Dilation)}
	if c.Plan == nil {
		return m
	}
	link := c.Plan.Link(tap.Link)
	if link == nil {
		return m
	}
	atA := link.A.Node == tap.Node && link.A.Port == tap.Port
	set := link.Direction(atA == (d == evidence.Out))
	m.asked, m.overhead, m.mtu = set.Rate/units.Rate(c.Dilation), int(set.Overhead), link.MTU
	if m.asked > 0 {
		m.perByte = 8e9 / float64(m.asked)
	}
	return m
}

// add counts a packet that passes.
func (m *meter) add(p *evidence.Packet) {
	length := p.Length + m.overhead
	// A packet that arrives late is counted in the current interval.
	if now := p.Time / int64(RateInterval); m.bytes == 0 && len(m.done) == 0 {
		m.interval = now
	} else if now > m.interval {
		m.turn(now)
	}
	if now := p.Due / int64(PeakInterval); now > m.short.interval {
		m.short.interval, m.short.bytes = now, 0
	}
	m.short.bytes += int64(length)
	m.short.most = max(m.short.most, m.short.bytes)
	m.bytes += uint64(length)
	m.longest = max(m.longest, length)
	follows := m.more
	switch {
	case m.arrives:
		// While the link is busy, frames of a soft switch follow each other without a gap, by their due
		// times. The margin of 1 % and 100 ns is for rounding.
		took := m.perByte * float64(length)
		follows = float64(p.Due-m.last.due) <= 1.01*took+100*m.dilation
	case p.Depth >= 0 && (p.Verdict == "" || p.Verdict == "dequeue"):
		m.known, m.more = true, p.Depth > 0
	case p.Depth < 0:
		m.more = false
	}
	m.stretch(p, length, follows && !m.paused)
	m.last.time, m.last.due, m.last.length = p.Time, p.Due, length
}

// stretch adds the time since the last packet if no gap lies in it. A tap records a packet with its
// first bit where the packet leaves, and with its last bit where it arrives.
func (m *meter) stretch(p *evidence.Packet, length int, follows bool) {
	if !follows {
		m.start = p.Due
		return
	}
	if m.last.due-m.start < int64(stretchStart) {
		return
	}
	if !m.arrives {
		length = m.last.length
	}
	m.busy.bytes += uint64(length)
	m.busy.time += p.Time - m.last.time
}

// control takes a frame from the other direction that pauses or resumes the link.
func (m *meter) control(verdict string) {
	m.paused, m.more = verdict != "resume", false
}

func (m *meter) turn(now int64) {
	if len(m.done) < maxIntervals {
		one := interval{bytes: float32(m.bytes), excepted: m.excepts(m.interval)}
		if took := time.Duration(m.busy.time); took >= busyLeast && m.asked > 0 {
			one.busy = took
			one.share = float32(float64(m.busy.bytes) * m.perByte / float64(m.busy.time))
		}
		m.done = append(m.done, one)
	}
	if now != m.interval+1 { // the meter knows nothing about a time without packets
		m.more, m.last.due = false, math.MinInt64/2
	}
	m.busy, m.bytes, m.interval = stretch{}, 0, now
}

// excepts reports whether the file asks for another rate or other arrivals in an interval, or right before
// it, because packets may then still wait.
func (m *meter) excepts(interval int64) bool {
	from := interval * int64(RateInterval)
	return slices.ContainsFunc(m.excepted, func(a evidence.Active) bool {
		return a.From < from+int64(RateInterval) && from < a.To+int64(RateInterval)
	})
}

// rate judges the counted packets. If packets tell when the link was busy, it uses these times.
// Otherwise it uses the intervals that exceed the configured rate.
func (m *meter) rate(told bool) (busiest float64, shares []float32, busy time.Duration) {
	most := float64(m.bytes)
	for _, i := range m.done {
		most = max(most, float64(i.bytes))
		if i.excepted {
			continue
		}
		if told && i.busy > 0 {
			shares = append(shares, i.share)
			busy += i.busy
		} else if share := m.share(float64(i.bytes)); share > 1 {
			shares = append(shares, float32(share))
			busy += RateInterval
		}
	}
	return most * 8 / RateInterval.Seconds(), shares, busy
}

// peak returns the highest rate of an interval of PeakInterval. The frame at the end of an interval may have
// begun before it, so that the rate can exceed the configured rate by one frame.
func (m *meter) peak() float64 {
	seconds := PeakInterval.Seconds()
	rate, frame := float64(m.short.most)*8/seconds, float64(m.longest)*8/seconds
	if asked := float64(m.asked); rate > asked && rate-frame <= asked {
		return asked
	}
	return rate
}

// share returns the bytes of an interval as a share of the configured rate. The result allows for
// an error of one frame and for one burst.
func (m *meter) share(bytes float64) float64 {
	whole := float64(m.asked) / 8 * RateInterval.Seconds()
	burst := max(float64(burstMTUs*(m.mtu+wire.EthernetLen)), float64(m.asked)/8*burstTime)
	if least := bytes + float64(m.longest); least < whole {
		return least / whole
	}
	return max(whole, bytes-float64(m.longest)-burst) / whole
}

// measured is a direction of a link, and the meter with the best evidence for it.
type measured struct {
	Rate
	meter *meter
	// altered reports whether arrivals may lack packets that left, so that they show no rate that is too low.
	altered bool
	whole   bool // the capture holds all packets of the tap
	// unknown reports whether faults hit packets, and the capture lacks its records of them.
	unknown bool
}

// measure finds the tap with the best evidence for a direction of a link. A soft switch's port
// records how much waited behind a packet that it sent. Its due times tell which packets arrived
// without a gap. A node's tap is in front of the emulated NIC, where the node's own shaper paces
// packets. The kernel takes its timestamps behind its shaper. A direction without any tap is
// missing.
func (k *Fidelity) measure(link *plan.Link, atA bool) (found measured, missing bool) {
	c, from, to := k.capture, link.A, link.B
	if !atA {
		from, to = link.B, link.A
	}
	found = measured{Rate: Rate{
		Link:  link.Name,
		From:  from.Node + ":" + from.Port,
		To:    to.Node + ":" + to.Port,
		Asked: link.Direction(atA).Rate / units.Rate(c.Dilation),
	}}
	sender, receiver := c.Tap(from.Node, from.Port), c.Tap(to.Node, to.Port)
	arrives := true
	switch {
	case sender != nil && soft(c.Plan, from.Node):
		found.meter, arrives = k.meter(sender, evidence.Out), false
		found.Known = found.meter != nil && found.meter.known && sender.Whole()
	case receiver != nil && soft(c.Plan, to.Node):
		found.meter, found.Known = k.meter(receiver, evidence.In), receiver.Whole()
	case sender != nil:
		found.meter, arrives = k.meter(sender, evidence.Out), false
	case receiver != nil:
		found.meter = k.meter(receiver, evidence.In)
	default:
		return found, true
	}
	found.Unjudged = k.changesRate(link.Name)
	if arrives {
		var faults bool
		faults, found.unknown = k.faultsAt(from, sender, receiver)
		found.altered = faults || link.Direction(atA).AltersArrivals() || k.changesArrivals(link.Name, to)
		found.Unjudged = found.Unjudged || found.unknown || link.Direction(atA).HastensArrivals() ||
			k.changesArrivals(link.Name, to)
	}
	found.whole = found.meter != nil && found.meter.tap.Whole()
	return found, false
}

func soft(p *plan.Plan, node string) bool {
	s := p.Switch(node)
	return s != nil && s.Soft != nil
}

// Rates returns the rate of every link direction with traffic, the busiest first, and the number of
// directions of which the capture lacks evidence. It is valid after Result was called.
func (k *Fidelity) Rates() (rates []Rate, missing int) {
	if k.capture.Plan == nil {
		return nil, 0
	}
	for i := range k.capture.Plan.Links {
		link := &k.capture.Plan.Links[i]
		for _, atA := range []bool{true, false} {
			m, lacking := k.measure(link, atA)
			if lacking || m.unknown && m.meter != nil {
				missing++
			}
			if m.meter == nil || m.Asked == 0 {
				continue
			}
			m.Known = m.Known && !m.altered && !m.Unjudged
			busiest, shares, busy := m.meter.rate(m.Known)
			m.Busiest = busiest
			if m.whole && !m.altered {
				m.Peak = m.meter.peak()
			}
			if !m.Unjudged {
				m.Busy, m.Time = len(shares), busy
				m.Achieved, _ = Achieved(shares)
			}
			rates = append(rates, m.Rate)
		}
	}
	slices.SortStableFunc(rates, func(x, y Rate) int {
		return cmp.Compare(y.Busiest/float64(y.Asked), x.Busiest/float64(x.Asked))
	})
	return rates, missing
}

func (k *Fidelity) meter(tap *evidence.Tap, d evidence.Direction) *meter {
	return k.meters.At(tap.Index)[d-evidence.In]
}
