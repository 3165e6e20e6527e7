package path

import (
	"time"

	"railbed/internal/clock"
)

// State is what a path is good for.
type State uint8

// States. The names are MRC's, but for Suspect, which MRC does not have.
const (
	// Good paths carry packets.
	Good State = iota
	// Skip is a good path that sits out one rotation, as many picks as there are
	// usable paths: one of its packets was marked, or trimmed before the last
	// hop. Only choosers with turns heed it: Oblivious, and REPS and Mixed when
	// they draw a new path.
	Skip
	// Suspect paths lost a packet and brought none through since. They are probed,
	// and sit out like Skip until it is known what they are. See States.
	Suspect
	// Bad paths are left alone, but for probes, until one returns. MRC says
	// ASSUMED_BAD.
	Bad
	// Denied paths are not used and not probed, because the user said so.
	Denied
)

var stateNames = [...]string{"good", "skip", "suspect", "bad", "denied"}

// String is the state in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Counters say what happened to the paths since New.
type Counters struct {
	Picks     uint64 // calls of Pick
	Skips     uint64 // reports that made a path sit out a rotation
	Suspected uint64 // times that a path became suspect
	Condemned uint64 // times that a path became bad
	Returned  uint64 // times that a bad path became good
	Probes    uint64 // probes asked for
}

// States know which paths carry packets. Every chooser has one.
//
// When a path is condemned. A packet lost (Lost, TimedOut, or a probe without
// an answer for 1.25 round trips) on a path of which a packet sent later has
// arrived is ordinary loss: it only feeds the loss rate. Any other loss makes the
// path suspect. A suspect is probed at once and then every eighth of a round
// trip, six times, and from then on at doubling intervals, but at once after
// each loss that counts. It is good again when
// anything arrives that was sent no earlier than the first packet it lost, and
// bad when the losses since that one
//
//   - lie an eighth of a round trip apart or more, by the times of sending, so
//     that a burst of drops, or a batch that goes down together, is one loss;
//   - each have a witness that the peer and what all paths share worked then: a
//     packet that arrived over another path and was sent within a quarter of a
//     round trip of the lost one. Where data gives none, as when all of it is on
//     one path, a probe goes with each probe of the suspect over the path that
//     was heard of last, or else over three others in turn; and
//   - would have happened by chance less than once in 2^24 times. A loss has the
//     probability at which packets of paths that live are lost, measured over
//     all of them and taken as 2 % at least; of a probe, that at which it or its
//     answer is. Five losses are enough on a fabric that loses 2 % or less, and
//     58 where it loses half.
//
// How soon. The fourth probe of a path that swallows everything goes 0.375 round
// trips after its first loss was found and has no answer 1.25 later: it is bad
// within 1.63 round trips of the first evidence, sooner when its data of before
// is found lost in that time, and within 1.88 when chance takes a witness or two.
// Later than two it becomes bad where more than 2 % are lost everywhere, and, one
// time in some thousands, where chance takes more witnesses, or most paths die at
// once and no data shows which live. With choosers that heed Suspect no data takes
// it from the first evidence on.
//
// How often wrongly. The path has to lose a packet, and then all that follow for
// half a round trip, four probes or their answers at the least. At 1 % random loss
// in each direction that is 0.01 x 0.0199^4, 1.6 for each 10^9 packets sent with
// no other data behind them. A path that loses 5 % among clean ones goes once in
// 2 x 10^5 packets, one that loses half soon, each time for longer.
//
// Loss of all paths at once condemns none: there is no witness, but for losses
// near its beginning and its end, which are too few unless chance adds some on a
// path (one path in one of some thousand such outages). By the same rule
// the last usable path cannot be condemned but by a path that answers, so a
// fabric in which everything is bad comes from denying what is left. Then the
// path that was found bad, or lost a packet, longest ago is used.
//
// When a bad path is tried again. A probe goes one round trip after it was
// condemned, and then at intervals that double up to Options.ProbeMax, each
// lengthened by up to a quarter, at random, so that paths condemned together are
// not probed together. The first answer makes it good. A path that is condemned
// again within eight of the intervals it had reached goes on with them, so one
// that flaps is used less and less.
type States struct {
	n        int
	count    int // members of usable
	usable   set // neither bad nor denied
	denied   set
	watched  set // suspect or bad
	paths    []record
	sends    latest  // data and probes
	proven   latest  // what arrived, by when it was sent
	arrivals history // the same, further back
	loss     uint32  // of paths that live, in 1/65536
	counters Counters
	// changes counts the changes of usable.
	changes uint32

	roundTrip, probeMax time.Duration
	ignoreMarks         bool
	random              random

	expiry clock.Time // when the first open probe has no answer
	probe  clock.Time // when the first probe is due
	// witnesses are paths to be probed beside a suspect, since some moment.
	witnesses    [3]int
	waiting      int // how many
	waitingSince clock.Time
	circle       int // the last path that was made a witness in turn
}

// before is earlier than every moment.
const before = -1 << 63

// record is what is known of one path.
type record struct {
	state State // Good, Suspect, Bad or Denied: Skip is by skip
	// skip is the number of picks from which the path has its turn again.
	skip uint64
	// heard is when the last packet that is known to have arrived was sent.
	heard clock.Time
	// used is when the path was last sent on.
	used clock.Time
	// next is when a suspect or bad path is to be probed.
	next clock.Time

	suspicion
	// since is when a path became suspect, or bad or, in use for want of a better
	// one, lost a packet.
	since clock.Time
	// returned is when a bad path became good, patience the time between probes
	// that it had reached.
	returned clock.Time
	patience time.Duration
}

func newStates(n int, o Options) States {
	s := States{
		n:           n,
		paths:       make([]record, n),
		roundTrip:   o.RoundTrip,
		probeMax:    o.ProbeMax,
		ignoreMarks: o.IgnoreMarks,
		random:      random(mix(o.Seed)), loss: leastLoss, expiry: clock.Never, probe: clock.Never,
		sends: nothing, proven: nothing,
	}
	for p := range s.paths {
		s.paths[p].heard, s.paths[p].used, s.paths[p].returned = before, before, before
		s.use(p)
	}
	s.SetRoundTrip(o.RoundTrip)
	return s
}

// Paths are the states themselves: what embeds them has it from here.
func (s *States) Paths() *States { return s }

// Len is the number of paths.
func (s *States) Len() int { return s.n }

// Usable is how many paths are neither bad nor denied.
func (s *States) Usable() int { return s.count }

// Counters are what happened so far.
func (s *States) Counters() Counters { return s.counters }

// State is the state of a path, Denied for one that does not exist.
func (s *States) State(path int) State {
	switch {
	case path < 0 || path >= s.n:
		return Denied
	case s.paths[path].state == Good && s.counters.Picks < s.paths[path].skip:
		return Skip
	}
	return s.paths[path].state
}

// SetRoundTrip says how long a packet and its answer take at most, when nothing
// is wrong, on the slowest path: the smoothed round trip and some deviations. It
// is kept between 1 us and 10 s.
func (s *States) SetRoundTrip(d time.Duration) {
	s.roundTrip = min(max(d, time.Microsecond), 10*time.Second)
	s.arrivals.fit(s.spacing())
}

// Deny takes a path out of use until Allow. It reports whether the path is denied
// now, which the last allowed one, and one that does not exist, cannot be.
func (s *States) Deny(path int) bool {
	if path < 0 || path >= s.n {
		return false
	}
	if s.denied.has(path) {
		return true
	}
	allowed := 0
	for p := range s.n {
		if !s.denied.has(p) {
			allowed++
		}
	}
	if allowed == 1 {
		return false
	}
	s.forget(path)
	s.leave(path)
	s.denied.add(path)
	s.paths[path].state = Denied
	s.waiting = 0 // it may be one of them
	return true
}

// Allow gives a denied path back, good.
func (s *States) Allow(path int) {
	if path < 0 || path >= s.n || !s.denied.has(path) {
		return
	}
	s.denied.remove(path)
	s.paths[path] = record{heard: s.paths[path].heard, used: before, returned: before}
	s.use(path)
}

// use makes a path usable.
func (s *States) use(p int) {
	if !s.usable.has(p) {
		s.usable.add(p)
		s.count++
		s.changes++
	}
}

// leave makes it unusable.
func (s *States) leave(p int) {
	if s.usable.has(p) {
		s.usable.remove(p)
		s.count--
		s.changes++
	}
}

// only is the pick when there is no choice.
func (s *States) only(now clock.Time) (path int, ok bool) {
	s.settle(now)
	switch s.count {
	case 0:
		return s.take(s.leastBad(), now), true
	case 1:
		return s.take(s.usable.next(0), now), true
	}
	return 0, false
}

// take makes a path the pick.
func (s *States) take(p int, now clock.Time) int {
	s.counters.Picks++
	s.sent(p, now)
	return p
}

// sent notes that a path is used, by a packet or a probe.
func (s *States) sent(p int, now clock.Time) {
	s.sends.record(p, now)
	s.paths[p].used = now
}

// leastBad is the allowed path that was found bad longest ago.
func (s *States) leastBad() int {
	best := -1
	for p := range s.n {
		if !s.denied.has(p) && (best < 0 || s.paths[p].since < s.paths[best].since) {
			best = p
		}
	}
	return best
}

// ready says that a usable path has its turn: it need not sit out.
func (s *States) ready(p int) bool {
	return s.paths[p].state == Good && s.counters.Picks >= s.paths[p].skip
}

// anyone is a random usable path, of those that are ready if a few draws find
// one.
func (s *States) anyone() int {
	p := s.usable.nth(s.random.below(s.count))
	for range 3 {
		if s.ready(p) {
			break
		}
		p = s.usable.nth(s.random.below(s.count))
	}
	return p
}

// Feedback takes in a report.
func (s *States) Feedback(r Report, now clock.Time) {
	s.settle(now)
	if r.Path < 0 || r.Path >= s.n || int(r.Event) >= Events || s.denied.has(r.Path) {
		return
	}
	packets, sent := max(r.Packets, 1), min(r.Sent, now)
	if !r.Event.arrived() {
		s.missed(r.Path, sent, packets, now)
		return
	}
	s.heard(r.Path, sent, packets, now)
	if (r.Event == Marked || r.Event == Trimmed) && !s.ignoreMarks {
		s.paths[r.Path].skip = s.counters.Picks + uint64(s.count)
		s.counters.Skips++
	}
}
