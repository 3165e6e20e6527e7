// Package medium simulates one direction of an emulated link: how long a frame takes to be sent and
// to arrive, and which faults it meets.
//
// Every random draw is a pure function of the link's seed, the packet's flow and its ordinal in the
// flow. So a flow that sends the same packets meets the same faults, whatever other packets are on
// the link. Flows defines a flow. The package has no clock, and nothing in it is safe for
// concurrent use.
//
// # Order of events
//
// A packet is lost while the link is down; if its flow's DropList or DropEvery selects it; if the
// Gilbert-Elliott chain loses it; and with the probability Loss. It is lost, too, if one of its bits
// is wrong, each with the probability BitErrorRatio. Other packets arrive after Delay and its
// jitter, but not before the packet sent before them. With the probability Reorder a packet is held back by
// ReorderBy instead, and later packets do not wait for it. With the probability Corrupt one bit
// after the Ethernet header is flipped. With the probability Duplicate the packet arrives twice, at
// the same time. Each of these draws is independent of the others.
package medium

import (
	"math/bits"
	"slices"
	"time"

	"railbed/fabric/softswitch/draw"
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/feed"
	"railbed/plan"
)

// Arrives is the reason of a packet that arrives.
const Arrives = feed.None

// ethernetHeader is never corrupted, so that the frame still arrives at its destination.
const ethernetHeader = 14

// purpose distinguishes the draws of one packet. The numbers are part of the meaning of a seed:
// changing one changes every run.
type purpose uint64

const (
	forLoss purpose = 1 + iota
	forState
	forBurst
	forJitter
	forReorder
	forCorrupt
	forBit
	forDuplicate
	forEpoch
	forBitError
)

// Transit is the outcome for a packet on the link.
type Transit struct {
	Reason feed.Reason // Arrives, or the reason why the packet does not arrive
	// At is the arrival of the packet. Again is the arrival of its duplicate, or clock.Never
	// without a duplicate.
	At, Again clock.Time
	// Corrupt is the index of the flipped bit, or -1: bit Corrupt%8, of value 1<<(Corrupt%8), of
	// byte Corrupt/8 of the frame.
	Corrupt int
}

// Medium is one direction of a link.
type Medium struct {
	direction plan.Direction
	seed      uint64
	// remainder is the fraction of a nanosecond that was not yet counted in a frame's time, in
	// 1/Rate nanoseconds.
	remainder uint64
	// last is the arrival time of the latest packet that was not reordered.
	last clock.Time
	// began is the time from which flaps are counted.
	began clock.Time
	// unnumbered counts the packets that belong to no flow.
	unnumbered uint64

	drawn                             bool // the outcome depends on a draw
	loss, reorder, corrupt, duplicate draw.Chance
	jitter                            jitter
	bursts                            *bursts
	bitErrors                         *bitErrors
}

// Seed returns the seed of one direction of a link from the testbed's seed.
func Seed(testbed uint64, link string, aToB bool) uint64 {
	direction := plan.BToA
	if aToB {
		direction = plan.AToB
	}
	return draw.Seed(testbed, "link", link, direction)
}

// New returns the direction of a link. Seed depends on the testbed, link and direction: see Seed.
func New(d plan.Direction, seed uint64) *Medium {
	m := &Medium{seed: seed}
	m.Set(d)
	return m
}

// Set changes the settings for packets that are sent from now on.
func (m *Medium) Set(d plan.Direction) {
	if old := uint64(m.direction.Rate); old != 0 {
		// Keep the same fraction of a nanosecond.
		high, low := bits.Mul64(m.remainder, uint64(d.Rate))
		m.remainder, _ = bits.Div64(high, low, old)
	}
	d.DropList = slices.Clone(d.DropList)
	m.direction = d
	m.loss, m.reorder = draw.NewChance(d.Loss), draw.NewChance(d.Reorder)
	m.corrupt, m.duplicate = draw.NewChance(d.Corrupt), draw.NewChance(d.Duplicate)
	m.jitter = newJitter(d)
	m.bursts, m.bitErrors = newBursts(d.GilbertElliott), newBitErrors(d)
	m.drawn = d.Jitter != 0 || m.bursts != nil || m.bitErrors != nil ||
		!d.Loss.IsZero() || !d.Reorder.IsZero() || !d.Corrupt.IsZero() || !d.Duplicate.IsZero()
}

// Begin counts flaps from now. Without it they are counted from time 0.
func (m *Medium) Begin(now clock.Time) { m.began = now }

// Direction returns the settings of the last Set.
func (m *Medium) Direction() plan.Direction { return m.direction }

// Serialise returns the time for which a frame occupies the link; the direction's Overhead is
// added. Bytes is the frame's length from its Ethernet header on, without frame check sequence.
// Fractions of nanoseconds are carried over to the next frame: n frames take the time of their bits
// to the nanosecond, rounded down once. A rate of 0 is unlimited and takes no time.
func (m *Medium) Serialise(bytes int) time.Duration {
	rate := uint64(m.direction.Rate)
	if rate == 0 {
		return 0
	}
	high, low := bits.Mul64((uint64(bytes)+uint64(m.direction.Overhead))*8, uint64(time.Second))
	low, carry := bits.Add64(low, m.remainder, 0)
	high += carry
	if high >= rate { // over 2^64 ns, 584 years
		return 1<<63 - 1
	}
	whole, rest := bits.Div64(high, low, rate)
	m.remainder = rest
	return time.Duration(min(whole, 1<<63-1))
}

// Up reports whether the link is up according to the flap schedule.
func (m *Medium) Up(now clock.Time) bool {
	since, ok := m.flap(now)
	return !ok || since >= clock.Time(m.direction.Flap.For)
}

// NextChange returns the time, after now, at which the flap schedule next takes the link down or
// up. It is clock.Never without a schedule.
func (m *Medium) NextChange(now clock.Time) clock.Time {
	every, down := clock.Time(m.direction.Flap.Every), clock.Time(m.direction.Flap.For)
	if every <= 0 || down <= 0 {
		return clock.Never
	}
	since, fell := m.flap(now)
	switch {
	case !fell:
		return m.began + every
	case since < down && down < every:
		return now + down - since
	case down < every:
		return now + every - since
	}
	return clock.Never // permanently down
}

// flap returns the time since the schedule last took the link down.
func (m *Medium) flap(now clock.Time) (since clock.Time, fell bool) {
	every := clock.Time(m.direction.Flap.Every)
	if every <= 0 || m.direction.Flap.For <= 0 || now-m.began < every {
		return 0, false
	}
	return (now - m.began) % every, true
}

// Send determines the outcome for a packet whose last bit leaves at sent. Calls must be in the
// order of the packets on the link. A packet that the fabric itself made and that has no number,
// such as a pause frame, has the Ordinal 0. All such packets of a direction are one flow, to which
// DropEvery and DropList do not apply.
func (m *Medium) Send(sent clock.Time, one *packet.Packet) Transit {
	t := Transit{Again: clock.Never, Corrupt: -1}
	d := &m.direction
	if d.Flap.Every != 0 && !m.Up(sent) {
		t.Reason = feed.LinkDown
		return t
	}
	if m.listed(one.Ordinal) {
		t.Reason = feed.Nth
		return t
	}
	if !m.drawn {
		m.last = max(m.last, sent.Add(time.Duration(d.Delay)))
		t.At = m.last
		return t
	}
	ordinal := one.Ordinal
	if ordinal == 0 {
		m.unnumbered++
		ordinal = m.unnumbered
	}
	flow := draw.Pair(m.seed, one.Flow)
	base := draw.Nth(flow, ordinal)
	switch {
	case m.bursts != nil && m.bursts.lost(flow, base, ordinal):
		t.Reason = feed.Burst
	case m.loss.Happens(of(base, forLoss)):
		t.Reason = feed.Loss
	case m.bitErrors != nil && m.bitErrors.lost(of(base, forBitError), len(one.Data)):
		t.Reason = feed.BitError
	default:
		m.arrive(&t, sent, base, len(one.Data))
	}
	return t
}

// arrive determines when and how a packet that is not lost arrives.
func (m *Medium) arrive(t *Transit, sent clock.Time, base uint64, length int) {
	delay := time.Duration(m.direction.Delay)
	if m.jitter.spread != 0 {
		delay = max(0, delay+m.jitter.drawn(of(base, forJitter)))
	}
	if t.At = max(m.last, sent.Add(delay)); m.reorder.Happens(of(base, forReorder)) {
		t.At = t.At.Add(time.Duration(m.direction.ReorderBy))
	} else {
		m.last = t.At
	}
	if length > ethernetHeader && m.corrupt.Happens(of(base, forCorrupt)) {
		bits := uint64(length-ethernetHeader) * 8
		t.Corrupt = ethernetHeader*8 + int(draw.Within(of(base, forBit), bits))
	}
	if m.duplicate.Happens(of(base, forDuplicate)) {
		t.Again = t.At
	}
}

// of returns a packet's draw for a purpose.
func of(base uint64, p purpose) uint64 { return draw.Nth(base, uint64(p)) }

// LossReasons returns the reasons for which a direction loses packets while its link is up.
func LossReasons(d plan.Direction) (reasons []feed.Reason) {
	for _, of := range []struct {
		why  feed.Reason
		does bool
	}{
		{feed.Loss, !d.Loss.IsZero()},
		{feed.Burst, d.GilbertElliott != plan.GilbertElliott{}},
		{feed.Nth, d.DropEvery > 0 || len(d.DropList) > 0},
		{feed.BitError, !d.BitErrorRatio.IsZero()},
	} {
		if of.does {
			reasons = append(reasons, of.why)
		}
	}
	return reasons
}

// listed reports whether DropEvery or DropList selects the packet by its ordinal.
func (m *Medium) listed(ordinal uint64) bool {
	if ordinal == 0 {
		return false
	}
	if every := m.direction.DropEvery; every != 0 && ordinal%every == 0 {
		return true
	}
	if len(m.direction.DropList) == 0 {
		return false
	}
	_, found := slices.BinarySearch(m.direction.DropList, ordinal)
	return found
}

// Twin returns the Flow for a packet's duplicate, so that later links draw faults for the duplicate
// separately.
func Twin(flow uint64) uint64 { return draw.Pair(flow, 2) }
