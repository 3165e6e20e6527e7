package path

import (
	"math/bits"
	"slices"
	"time"

	"railbed/internal/clock"
)

// The rule of evidence, whose reasons stand at States.
const (
	// bit is a bit of surprise.
	bit = 256
	// enough is the surprise that condemns.
	enough = 24 * bit
	// leastLoss is the loss rate that is assumed where less is measured, 2 % in
	// 1/65536.
	leastLoss = 1311
	// lossShare is the weight of one packet in the loss rate, 1/64: a change is
	// known within a hundred packets.
	lossShare = 64
	// lossesCounted is how many losses of one suspicion that ended well go into
	// the loss rate. More were one outage rather than a rate.
	lossesCounted = 4
	// quickProbes is how many probes of a suspect go at the shortest interval. Four
	// are enough on a clean fabric; two are for chance.
	quickProbes = 6
)

// suspicion is the evidence against a path since it last brought a packet
// through.
type suspicion struct {
	first    clock.Time // when the first packet that it lost was sent
	last     clock.Time // when the last one that counts was
	surprise int
	losses   int
	probes   int // of a suspect; of a bad path they have no open times
	open     openProbes
}

// openProbes are the times at which the probes went that are not answered yet,
// oldest first. Eight is more than a suspect's intervals leave open.
type openProbes struct {
	at    [8]clock.Time
	count int
}

func (o *openProbes) push(at clock.Time) {
	if o.count == len(o.at) {
		o.pop() // it is late by now and will not count: less evidence, not more
	}
	o.at[o.count] = at
	o.count++
}

func (o *openProbes) pop() clock.Time {
	first := o.at[0]
	copy(o.at[:], o.at[1:])
	o.count--
	return first
}

// spacing is the least time between losses that count, and between probes of a
// suspect.
func (s *States) spacing() time.Duration { return max(s.roundTrip/8, 1) }

// answerTime is how long the answer to a probe may take.
func (s *States) answerTime() time.Duration { return s.roundTrip + s.roundTrip/4 }

// surprise is how unlikely a loss is, -log2 of the loss rate in bits of 256,
// rounded down. The mantissa's logarithm is taken as linear plus the most by
// which it lies above that, 0.0861.
func surprise(loss uint32) int {
	const above = 24 // 0.0861 x 256, and 1 for the bits cut off
	exponent := bits.Len32(loss) - 1
	mantissa := int(loss<<8>>exponent) & 255
	return max(0, 16*bit-exponent*bit-mantissa-above)
}

// lost feeds losses on paths that live into the loss rate.
func (s *States) lost(packets int) {
	for range min(packets, lossesCounted) {
		s.loss += (1<<16 - s.loss) / lossShare
	}
}

// missed takes in that packets of a path did not arrive.
func (s *States) missed(p int, sent clock.Time, packets int, now clock.Time) {
	r := &s.paths[p]
	switch {
	case sent <= r.heard:
		s.lost(packets)
	case r.state == Bad:
		r.since = now
	case r.state == Good:
		s.suspect(p, sent, packets, now)
	case sent <= r.since:
		s.weigh(p, sent, packets, s.loss, now)
	default:
		// The probes speak for what is sent while it is suspect. Data between
		// them would take the place of some, with no better spacing.
		r.losses += packets
	}
}

// bothWays is the rate at which a probe or its answer is lost.
func bothWays(loss uint32) uint32 { return 2*loss - uint32(uint64(loss)*uint64(loss)>>16) }

// weigh takes a loss of a suspect as evidence, if it is, and if packets like it
// are lost at some rate.
func (s *States) weigh(p int, sent clock.Time, packets int, rate uint32, now clock.Time) {
	r := &s.paths[p]
	r.losses += packets
	if sent.Sub(r.last) < s.spacing() || !s.arrivals.near(p, sent) {
		return
	}
	r.last = sent
	if r.surprise += surprise(max(rate, leastLoss)); r.surprise >= enough {
		s.condemn(p, now)
	} else if r.probes >= quickProbes {
		// It is this path rather than all: no need to wait long.
		s.schedule(p, min(r.next, now))
	}
}

// suspect starts a suspicion.
func (s *States) suspect(p int, sent clock.Time, packets int, now clock.Time) {
	r := &s.paths[p]
	r.state, r.since = Suspect, now
	r.suspicion = suspicion{first: sent, last: sent, surprise: surprise(max(s.loss, leastLoss)),
		losses: packets}
	s.watched.add(p)
	s.schedule(p, now)
	s.counters.Suspected++
}

// condemn makes a suspect bad.
func (s *States) condemn(p int, now clock.Time) {
	r := &s.paths[p]
	r.state, r.since, r.open.count = Bad, now, 0
	if r.returned == before || now.Sub(r.returned) > 8*r.patience {
		r.patience = min(s.roundTrip, s.probeMax)
	}
	s.leave(p)
	s.counters.Condemned++
	s.schedule(p, s.later(now, r.patience))
}

// later is a time after now, longer than d by up to a quarter of it.
func (s *States) later(now clock.Time, d time.Duration) clock.Time {
	return now.Add(d + time.Duration(s.random.below(int(d/4)+1)))
}

// heard takes in that packets of a path arrived.
func (s *States) heard(p int, sent clock.Time, packets int, now clock.Time) {
	s.loss -= s.loss / lossShare * uint32(min(packets, lossShare/2))
	s.arrivals.record(p, sent)
	s.proven.record(p, sent)
	r := &s.paths[p]
	r.heard = max(r.heard, sent)
	if r.state == Good || sent < r.first {
		return
	}
	if r.state == Bad {
		r.returned = now
		s.counters.Returned++
		s.use(p)
	} else {
		s.lost(r.losses)
	}
	s.forget(p)
	r.state = Good
}

// forget ends the watch on a path.
func (s *States) forget(p int) {
	s.watched.remove(p)
	s.paths[p].suspicion = suspicion{}
	// The times stay as they are: at worst one look finds nothing to do.
}

// schedule sets when a path is probed next.
func (s *States) schedule(p int, at clock.Time) {
	s.paths[p].next = at
	s.probe = min(s.probe, at)
}

// settle judges the probes that had their time. Every call does it first.
func (s *States) settle(now clock.Time) {
	if now < s.expiry {
		return
	}
	s.expiry = clock.Never
	for p := s.watched.next(0); p >= 0; p = s.watched.next(p + 1) {
		r := &s.paths[p]
		for r.state == Suspect && r.open.count > 0 && r.open.at[0].Add(s.answerTime()) <= now {
			s.weigh(p, r.open.pop(), 1, bothWays(s.loss), now)
		}
		if r.open.count > 0 {
			s.expiry = min(s.expiry, r.open.at[0].Add(s.answerTime()))
		}
	}
}

// Probe is a path to send a probe on now.
func (s *States) Probe(now clock.Time) (path int, ok bool) {
	s.settle(now)
	if s.waiting > 0 {
		s.waiting--
		s.counters.Probes++
		s.sent(s.witnesses[s.waiting], now)
		return s.witnesses[s.waiting], true
	}
	if now < s.probe {
		return 0, false
	}
	path, s.probe = -1, clock.Never
	for p := s.watched.next(0); p >= 0; p = s.watched.next(p + 1) {
		if path < 0 && s.paths[p].next <= now {
			path = p
			s.probing(p, now)
		}
		s.probe = min(s.probe, s.paths[p].next)
	}
	return max(path, 0), path >= 0
}

// probing notes that a path is probed now, and plans what follows.
func (s *States) probing(p int, now clock.Time) {
	r := &s.paths[p]
	s.counters.Probes++
	if r.state == Bad {
		r.patience = min(2*r.patience, s.probeMax)
		r.next = s.later(now, r.patience)
		s.sent(p, now)
		return
	}
	s.callWitness(p, now)
	r.open.push(now)
	if r.probes++; r.probes < quickProbes {
		r.next = now.Add(s.spacing())
	} else {
		r.next = now.Add(min(s.spacing()<<min(r.probes-quickProbes+1, 30), s.probeMax))
	}
	s.expiry = min(s.expiry, now.Add(s.answerTime()))
	s.sent(p, now)
}

// callWitness has another path probed beside a suspect, if nothing was just sent
// over it: the path that was heard of last. It is no help when it is suspect too;
// then it is three others in turn, if nothing at all was just sent.
func (s *States) callWitness(suspect int, now clock.Time) {
	recent := now.Add(-s.arrivals.width())
	s.waiting, s.waitingSince = 0, now
	for _, q := range [...]int{s.proven.path, s.proven.otherPath} {
		if q >= 0 && q != suspect && s.paths[q].state == Good {
			if s.paths[q].used < recent {
				s.witnesses[0], s.waiting = q, 1
			}
			return
		}
	}
	if s.sends.except(suspect) >= recent {
		return
	}
	among := &s.usable
	if s.count < 2 {
		among = &s.watched // the bad ones
	}
	for range len(s.witnesses) {
		q := among.after(s.circle)
		if q == suspect {
			q = among.after(q)
		}
		if q < 0 || q == suspect || slices.Contains(s.witnesses[:s.waiting], q) {
			return
		}
		s.witnesses[s.waiting], s.circle = q, q
		s.waiting++
	}
}

// NextProbe is when Probe has something to do.
func (s *States) NextProbe() clock.Time {
	if s.waiting > 0 {
		return s.waitingSince
	}
	return min(s.probe, s.expiry)
}
