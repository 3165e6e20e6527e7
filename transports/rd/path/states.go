package path

import (
	"time"

	"railbed/internal/clock"
)

// State is the usability of a path.
type State uint8

// States. The names are MRC's, except for Suspect, which MRC does not have.
const (
	// Good paths carry packets.
	Good State = iota
	// Skip is a good path that sits out one rotation, which is as many picks as there are usable
	// paths. One of its packets was marked, or trimmed before the last hop. Only choosers with
	// turns skip it: Oblivious, and REPS and Mixed when they draw a new path.
	Skip
	// Suspect paths lost a packet, and none has arrived over them since. They are probed, and sit
	// out like Skip until they are good or bad. See States.
	Suspect
	// Bad paths carry probes only, until a probe returns. MRC calls this state ASSUMED_BAD.
	Bad
	// Denied paths are not used and not probed, because the user denied them.
	Denied
)

var stateNames = [...]string{"good", "skip", "suspect", "bad", "denied"}

// String returns the state in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Counters count events on the paths since New.
type Counters struct {
	Picks     uint64 // calls of Pick
	Skips     uint64 // reports that skipped a path
	Suspected uint64 // paths that became suspect
	Excluded  uint64 // paths that became bad
	Returned  uint64 // paths that became good again
	Probes    uint64 // probes requested
}

// States records which paths carry packets. Every chooser has one.
//
// When a path is excluded. Suppose a path loses a packet (Lost, TimedOut, or a probe without an
// answer for 1.25 round trips). If a packet sent later over it has arrived, that is ordinary loss:
// it only counts in the loss rate. Any other loss makes the path suspect. A suspect is probed at
// once and then every eighth of a round trip, six times. From then on it is probed at doubling
// intervals, but at once after each loss that counts. The suspect is good again when anything
// arrives that was sent no earlier than the first lost packet. It is bad when the losses since that
// packet meet three conditions:
//
//   - They lie an eighth of a round trip apart or more, by the times of
//     sending. So a burst of drops, or a batch that is lost together, is one
//     loss.
//   - Each has a reference: a packet that arrived over another path and was sent
//     within a quarter of a round trip of the lost one. It shows that the peer,
//     and the parts that all paths share, worked then. Where data gives no
//     reference, as when all of it is on one path, a probe accompanies each
//     probe of the suspect. It goes over the path of the latest arrival, or else
//     over three other paths in turn.
//   - They would have happened by chance less than once in 2^24 times. The
//     probability of a loss is the loss rate of working paths, measured over all
//     of them and taken as 2 % at least. For a probe it is the probability that
//     the probe or its answer is lost. Five losses are enough on a fabric that
//     loses 2 % or less, and 58 where it loses half.
//
// How soon. On a path that loses everything, the fourth probe is sent 0.375 round trips after the
// first loss was found, and has no answer 1.25 round trips later. So the path is bad within 1.63
// round trips of the first evidence. It is bad sooner when earlier data is found lost in that time,
// and within 1.88 round trips when a reference or two are lost by chance. It takes longer than two
// round trips where more than 2 % are lost everywhere. It also does, one time in some thousands,
// where more references are lost by chance, or where most paths die at once and no data shows which
// still work. With choosers that skip Suspect, the path carries no data from the first evidence on.
//
// How often a good path is excluded. The path has to lose a packet, and then all that follow for
// half a round trip: at least four probes or their answers. At 1 % random loss in each direction
// that is 0.01 x 0.0199^4: 1.6 for each 10^9 packets sent with no other data behind them. Among
// clean paths, a path that loses 5 % is excluded once in 2 x 10^5 packets. A path that loses half
// is excluded soon, each time for longer.
//
// Loss of all paths at once condemns none, for want of a reference. Losses near its beginning and
// its end have references, but they are too few unless chance adds some on a path. That happens to
// one path in one of some thousand such outages. By the same rule the last usable path is excluded
// only if another path answers. So all paths are unusable only when the remaining paths are denied.
// Then the path that was found bad, or lost a packet, longest ago is used.
//
// When a bad path is tried again. A first probe is sent one round trip after the path was
// excluded. Further intervals double up to Options.ProbeMax, and each is lengthened at random by
// up to a quarter. So paths excluded together are not probed together. The first answer makes the
// path good. If a path is excluded again within eight of the intervals that it had reached, it
// continues with those intervals. So a path that flaps is used less and less.
type States struct {
	n        int
	count    int // members of usable
	usable   set // neither bad nor denied
	denied   set
	watched  set // suspect or bad
	paths    []record
	sends    latest  // data and probes
	proven   latest  // arrivals, by when the packet was sent
	arrivals history // the same, further back
	loss     uint32  // of working paths, in 1/65536
	counters Counters
	// changes counts the changes of usable.
	changes uint32

	roundTrip, probeMax time.Duration
	ignoreMarks         bool
	random              random

	expiry clock.Time // when the first open probe expires
	probe  clock.Time // when the first probe is due
	// controls are the reference paths to probe beside a suspect, since waitingSince.
	controls     [3]int
	waiting      int // how many
	waitingSince clock.Time
	circle       int // the last path that became a reference in turn
}

// before is earlier than every moment.
const before = -1 << 63

// record is the state of one path.
type record struct {
	state State // Good, Suspect, Bad or Denied; Skip follows from skip
	// skip is the number of picks from which on the path has its turn again.
	skip uint64
	// confirmed is when the latest packet that is known to have arrived was sent.
	confirmed clock.Time
	// used is when the path was last sent on.
	used clock.Time
	// next is when a suspect or bad path is to be probed.
	next clock.Time

	suspicion
	// since is when the path became suspect or bad. If a bad path is in use because no better one
	// exists, since is when it last lost a packet.
	since clock.Time
	// returned is when a bad path became good. patience is the time between its probes at that
	// moment.
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
		s.paths[p].confirmed, s.paths[p].used, s.paths[p].returned = before, before, before
		s.use(p)
	}
	s.SetRoundTrip(o.RoundTrip)
	return s
}

// Paths returns the states themselves. Choosers embed States and get the method from here.
func (s *States) Paths() *States { return s }

// Len is the number of paths.
func (s *States) Len() int { return s.n }

// Usable is the number of paths that are neither bad nor denied.
func (s *States) Usable() int { return s.count }

// Counters returns the counts so far.
func (s *States) Counters() Counters { return s.counters }

// State returns the state of a path, or Denied if the path does not exist.
func (s *States) State(path int) State {
	switch {
	case path < 0 || path >= s.n:
		return Denied
	case s.paths[path].state == Good && s.counters.Picks < s.paths[path].skip:
		return Skip
	}
	return s.paths[path].state
}

// SetRoundTrip sets the longest time of a packet and its answer on the slowest path without faults:
// the smoothed round trip and some deviations. It is kept between 1 us and 10 s.
func (s *States) SetRoundTrip(d time.Duration) {
	s.roundTrip = min(max(d, time.Microsecond), 10*time.Second)
	s.arrivals.fit(s.spacing())
}

// Deny takes a path out of use until Allow. It reports whether the path is denied now. The last
// allowed path cannot be denied, nor can a path that does not exist.
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
	s.waiting = 0 // a reference path may be the denied one
	return true
}

// Allow makes a denied path good again.
func (s *States) Allow(path int) {
	if path < 0 || path >= s.n || !s.denied.has(path) {
		return
	}
	s.denied.remove(path)
	s.paths[path] = record{confirmed: s.paths[path].confirmed, used: before, returned: before}
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

// leave makes a path unusable.
func (s *States) leave(p int) {
	if s.usable.has(p) {
		s.usable.remove(p)
		s.count--
		s.changes++
	}
}

// only returns the pick when there is no choice.
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

// sent records that a packet or a probe was sent over a path.
func (s *States) sent(p int, now clock.Time) {
	s.sends.record(p, now)
	s.paths[p].used = now
}

// leastBad returns the allowed path that was found bad longest ago.
func (s *States) leastBad() int {
	best := -1
	for p := range s.n {
		if !s.denied.has(p) && (best < 0 || s.paths[p].since < s.paths[best].since) {
			best = p
		}
	}
	return best
}

// ready reports whether a usable path need not sit out.
func (s *States) ready(p int) bool {
	return s.paths[p].state == Good && s.counters.Picks >= s.paths[p].skip
}

// anyone returns a random usable path, preferably a ready one: it draws at most four times.
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

// Feedback processes a report.
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
	s.confirmed(r.Path, sent, packets, now)
	if (r.Event == Marked || r.Event == Trimmed) && !s.ignoreMarks {
		s.paths[r.Path].skip = s.counters.Picks + uint64(s.count)
		s.counters.Skips++
	}
}
