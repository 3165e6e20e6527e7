package queue

import (
	"math/bits"
	"time"

	"railbed/internal/clock"
	"railbed/internal/units"
)

// unknownRate is the assumed rate, in bit/s, of a line without a rate, if a share of it is
// requested.
const unknownRate = 100e9

// pace limits one priority to a rate below the line's. A packet is sent when the time of the
// packets before it has passed. When the rate changes, the remaining time is recalculated at the
// new rate.
type pace struct {
	rate uint64     // bit/s
	next clock.Time // when the next packet may be sent
	rest uint64     // fraction of a nanosecond, in 1/rate
	part uint64     // share of the line's rate, in 1/2^32; 0 is none
}

// sent accounts for a packet of some bytes.
func (s *pace) sent(now clock.Time, length int64) {
	if s.next < now {
		s.next, s.rest = now, 0
	}
	over, under := bits.Mul64(uint64(length)*8, uint64(time.Second))
	under, carry := bits.Add64(under, s.rest, 0)
	over += carry
	if over >= s.rate {
		s.next, s.rest = clock.Never, 0
		return
	}
	var whole uint64
	whole, s.rest = bits.Div64(over, under, s.rate)
	s.next = after(s.next, whole)
}

// after returns the time some nanoseconds later, or clock.Never.
func after(t clock.Time, ns uint64) clock.Time {
	if ns >= uint64(clock.Never-t) {
		return clock.Never
	}
	return t + clock.Time(ns)
}

// change sets a new rate from now on.
func (s *pace) change(now clock.Time, rate uint64) {
	if s.next > now && s.next != clock.Never && s.rate > 0 {
		over, under := bits.Mul64(uint64(s.next-now), s.rate)
		if over >= rate {
			s.next = clock.Never
		} else {
			whole, _ := bits.Div64(over, under, rate)
			s.next = after(now, whole)
		}
	} else {
		s.next = now
	}
	s.rate, s.rest = rate, 0
}

// tooEarly returns the slowed priorities, among those given, that may not send now.
func (p *Port) tooEarly(waiting Mask, now clock.Time) (early Mask) {
	for ; waiting != 0; waiting &= waiting - 1 {
		if q := waiting.first(); p.pace[q].next > now {
			early |= 1 << q
		}
	}
	return early
}

// Limit sets the rate of one priority; 0 is the line's rate.
func (p *Port) Limit(now clock.Time, priority uint8, rate units.Rate) {
	p.pace[priority].part = 0
	p.slow(now, priority, uint64(rate))
}

// wholeLine is the share that means the line's whole rate.
const wholeLine uint64 = 1 << 32

// Stage sets the rate of one priority to the line's rate / 2^stage, as GFC requests.
func (p *Port) Stage(now clock.Time, priority, stage uint8) {
	p.share(now, priority, max(1, wholeLine>>stage))
}

// Share sets the rate of one priority to the line's rate * share/FullRate, as time-based GFC
// requests.
func (p *Port) Share(now clock.Time, priority uint8, share uint16) {
	p.share(now, priority, max(1, uint64(share)*wholeLine/FullRate))
}

func (p *Port) share(now clock.Time, priority uint8, part uint64) {
	if part == wholeLine {
		p.Limit(now, priority, 0)
		return
	}
	p.pace[priority].part = part
	p.slow(now, priority, p.part(part))
}

// part returns a share of the line's rate, in bit/s, at least 1.
func (p *Port) part(share uint64) uint64 {
	line := p.rate
	if line == 0 {
		line = unknownRate
	}
	high, low := bits.Mul64(line, share)
	return max(1, high<<32|low>>32)
}

func (p *Port) slow(now clock.Time, priority uint8, rate uint64) {
	s := &p.pace[priority]
	switch {
	case rate == 0:
		s.next, s.rest, s.rate = now, 0, 0
		p.slowed &^= 1 << priority
	case s.rate != rate || !p.slowed.Has(priority):
		s.change(now, rate)
		p.slowed |= 1 << priority
	}
}

// Rate returns the rate to which a priority is limited, or 0.
func (p *Port) Rate(priority uint8) units.Rate {
	if !p.slowed.Has(priority) {
		return 0
	}
	return units.Rate(p.pace[priority].rate)
}
