package path

import (
	"math/bits"
	"slices"
	"time"

	"railbed/internal/clock"
)

// Constants of the rule of evidence; see States for the reasons.
const (
	// bit is a bit of surprise.
	bit = 256
	// enough is the surprise at which a path is excluded.
	enough = 24 * bit
	// leastLoss is the minimum of the assumed loss rate: 2 %, in 1/65536.
	leastLoss = 1311
	// lossShare is the weight of one packet in the loss rate, 1/64: a change shows within a hundred
	// packets.
	lossShare = 64
	// lossesCounted is how many losses of a suspicion that ended well count in the loss rate. More
	// losses are one outage rather than a rate.
	lossesCounted = 4
	// quickProbes is how many probes of a suspect are sent at the shortest interval. Four are
	// enough on a clean fabric; two more allow for chance.
	quickProbes = 6
)

// suspicion is the evidence against a path since a packet last arrived over it.
type suspicion struct {
	first    clock.Time // when the first lost packet was sent
	last     clock.Time // when the last lost packet that counts was sent
	surprise int
	losses   int
	probes   int // sent to a suspect; those to a bad path are not in open
	open     openProbes
}

// openProbes are the times at which the unanswered probes were sent, oldest first. A suspect's
// intervals leave fewer than eight open.
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

// spacing is the minimum time between losses that count, and between probes of a suspect.
func (s *States) spacing() time.Duration { return max(s.roundTrip/8, 1) }

// answerTime is how long the answer to a probe may take.
func (s *States) answerTime() time.Duration { return s.roundTrip + s.roundTrip/4 }

// surprise is the improbability of a loss: -log2 of the loss rate, in 1/256 bit, rounded down. The
// mantissa's logarithm is approximated by a line, plus 0.0861, the most by which it exceeds that
// line.
func surprise(loss uint32) int {
	const above = 24 // 0.0861 x 256, and 1 for the bits cut off
	exponent := bits.Len32(loss) - 1
	mantissa := int(loss<<8>>exponent) & 255
	return max(0, 16*bit-exponent*bit-mantissa-above)
}

// lost adds losses on working paths to the loss rate.
func (s *States) lost(packets int) {
	for range min(packets, lossesCounted) {
		s.loss += (1<<16 - s.loss) / lossShare
	}
}

// missed processes the loss of packets on a path.
func (s *States) missed(p int, sent clock.Time, packets int, now clock.Time) {
	r := &s.paths[p]
	switch {
	case sent <= r.confirmed:
		s.lost(packets)
	case r.state == Bad:
		r.since = now
	case r.state == Good:
		s.suspect(p, sent, packets, now)
	case sent <= r.since:
		s.weigh(p, sent, packets, s.loss, now)
	default:
		// The probes stand for the packets that are sent while the path is suspect. Data between
		// them would replace some probes, with no better spacing.
		r.losses += packets
	}
}

// bothWays is the rate at which a probe or its answer is lost.
func bothWays(loss uint32) uint32 { return 2*loss - uint32(uint64(loss)*uint64(loss)>>16) }

// weigh counts a suspect's loss as evidence if it meets the rules. rate is the rate at which such
// packets are lost on working paths.
func (s *States) weigh(p int, sent clock.Time, packets int, rate uint32, now clock.Time) {
	r := &s.paths[p]
	r.losses += packets
	if sent.Sub(r.last) < s.spacing() || !s.arrivals.near(p, sent) {
		return
	}
	r.last = sent
	if r.surprise += surprise(max(rate, leastLoss)); r.surprise >= enough {
		s.exclude(p, now)
	} else if r.probes >= quickProbes {
		// It is this path rather than all, so its next probe is due now.
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

// exclude makes a suspect path bad.
func (s *States) exclude(p int, now clock.Time) {
	r := &s.paths[p]
	r.state, r.since, r.open.count = Bad, now, 0
	if r.returned == before || now.Sub(r.returned) > 8*r.patience {
		r.patience = min(s.roundTrip, s.probeMax)
	}
	s.leave(p)
	s.counters.Excluded++
	s.schedule(p, s.later(now, r.patience))
}

// later returns a time d after now, plus a random quarter of d at most.
func (s *States) later(now clock.Time, d time.Duration) clock.Time {
	return now.Add(d + time.Duration(s.random.below(int(d/4)+1)))
}

// confirmed processes the arrival of packets over a path.
func (s *States) confirmed(p int, sent clock.Time, packets int, now clock.Time) {
	s.loss -= s.loss / lossShare * uint32(min(packets, lossShare/2))
	s.arrivals.record(p, sent)
	s.proven.record(p, sent)
	r := &s.paths[p]
	r.confirmed = max(r.confirmed, sent)
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

// forget removes a path from those watched.
func (s *States) forget(p int) {
	s.watched.remove(p)
	s.paths[p].suspicion = suspicion{}
	// expiry and probe stay as they are: at worst one look finds nothing to do.
}

// schedule sets when a path is probed next.
func (s *States) schedule(p int, at clock.Time) {
	s.paths[p].next = at
	s.probe = min(s.probe, at)
}

// settle counts probes without an answer in time as lost. Every call does it first.
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

// Probe returns a path to send a probe on now; ok is false when none is due.
func (s *States) Probe(now clock.Time) (path int, ok bool) {
	s.settle(now)
	if s.waiting > 0 {
		s.waiting--
		s.counters.Probes++
		s.sent(s.controls[s.waiting], now)
		return s.controls[s.waiting], true
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

// probing records that a path is probed now, and schedules its next probe.
func (s *States) probing(p int, now clock.Time) {
	r := &s.paths[p]
	s.counters.Probes++
	if r.state == Bad {
		r.patience = min(2*r.patience, s.probeMax)
		r.next = s.later(now, r.patience)
		s.sent(p, now)
		return
	}
	s.callControl(p, now)
	r.open.push(now)
	if r.probes++; r.probes < quickProbes {
		r.next = now.Add(s.spacing())
	} else {
		r.next = now.Add(min(s.spacing()<<min(r.probes-quickProbes+1, 30), s.probeMax))
	}
	s.expiry = min(s.expiry, now.Add(s.answerTime()))
	s.sent(p, now)
}

// callControl also probes another path than the suspect, unless that path was used just now: the
// path of the latest arrival. If that path is suspect, too, three other paths in turn are probed
// instead, unless a packet was just sent on any path.
func (s *States) callControl(suspect int, now clock.Time) {
	recent := now.Add(-s.arrivals.width())
	s.waiting, s.waitingSince = 0, now
	for _, q := range [...]int{s.proven.path, s.proven.otherPath} {
		if q >= 0 && q != suspect && s.paths[q].state == Good {
			if s.paths[q].used < recent {
				s.controls[0], s.waiting = q, 1
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
	for range len(s.controls) {
		q := among.after(s.circle)
		if q == suspect {
			q = among.after(q)
		}
		if q < 0 || q == suspect || slices.Contains(s.controls[:s.waiting], q) {
			return
		}
		s.controls[s.waiting], s.circle = q, q
		s.waiting++
	}
}

// NextProbe is the time at which Probe or settle has work to do.
func (s *States) NextProbe() clock.Time {
	if s.waiting > 0 {
		return s.waitingSince
	}
	return min(s.probe, s.expiry)
}
