// Package path chooses the paths that an engine's next packets to one peer take. A path is an
// entropy: a source port that the fabric's switches hash. The engine numbers paths 0 to n-1. It
// asks a chooser before each packet, or before each batch that is sent as a unit.
//
// The engine's observations of paths (Report) go to two layers. States is below all choosers and
// knows which paths carry packets: it has the states of OCP's Multipath Reliable Connection 1.0
// (MRC), with Railbed's own rule of evidence. The choosers above it spread packets over the paths
// that States allows:
//
//   - Oblivious, Bitmap, REPS and Mixed follow the Ultra Ethernet Consortium's
//     simulator (uet-htsim, uec_mp.cpp) and use its constants. REPS is Recycled
//     Entropy Packet Spraying (Bonato and others, 2024).
//   - Weighted holds planned shares.
//   - Pinned keeps the packets of one key on one path, as flow hashing does.
//
// Nothing here has a clock, a goroutine or a socket, and nothing is allocated after New. The same
// calls after the same seed give the same answers. A chooser must be used by one goroutine at a
// time.
package path

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"railbed/internal/clock"
)

// MaxPaths is how many paths a chooser can have, the largest set of entropy
// values that MRC names.
const MaxPaths = 256

// Chooser chooses among the paths to one peer. One that holds shares or turns
// (Oblivious, Bitmap, Weighted) holds them in picks: batches should be alike.
type Chooser interface {
	// Pick is the path of the next packet or batch. It is never a denied one,
	// and a bad one only when all that are allowed are bad.
	Pick(now clock.Time) int
	// Feedback takes in what became of packets. An acknowledgement that shows
	// arrivals and losses is to be reported arrivals first, so that a loss
	// behind which packets came through is known for what it is.
	Feedback(r Report, now clock.Time)
	// Probe is a path to send a probe on now, a small packet that the peer
	// answers at once; false when none is due. Who calls it sends the probe, and
	// asks again. A probe that was lost needs no report: silence is one.
	Probe(now clock.Time) (path int, ok bool)
	// NextProbe is when Probe has something to do, clock.Never if nothing
	// waits. Picks, reports and probes change it.
	NextProbe() clock.Time
	// Paths are the states of the paths, to read, deny and allow them, and to
	// say how long a round trip takes.
	Paths() *States
}

// Event is what became of packets.
type Event uint8

// Events. All but Lost and TimedOut show that packets still pass.
const (
	Acked          Event = iota // they arrived
	Marked                      // they arrived, with ECN's Congestion Experienced
	Trimmed                     // their headers arrived: a queue was full
	TrimmedLastHop              // so, at the peer's own port, where all paths end
	Lost                        // acknowledgements of later packets leave them out
	TimedOut                    // nobody answered until the retransmission timer ran out
	ProbeReturned               // the answer to a probe came

	// Events is one more than the last event.
	Events = int(ProbeReturned) + 1
)

var eventNames = [Events]string{"acked", "marked", "trimmed", "trimmed-last-hop", "lost", "timed-out",
	"probe-returned"}

// String is the event in words with hyphens.
func (e Event) String() string {
	if int(e) < Events {
		return eventNames[e]
	}
	return "unknown"
}

// arrived says that an event shows that packets pass.
func (e Event) arrived() bool { return e != Lost && e != TimedOut }

// Report says what became of packets of one path. Reports about paths that do
// not exist, and of unknown events, are ignored: they come from the network.
type Report struct {
	Path  int
	Event Event
	// Packets is how many packets it is about; less than 1 is 1.
	Packets int
	// Sent is when the last of them was sent; of a probe, the one that is
	// answered. It decides which evidence is stale: what arrived clears a path
	// of losses of packets sent before it, and of no others. 0, where it is not
	// known, is older than everything: no evidence for or against the path, but a
	// mark, an entropy to use again or a loss to count all the same.
	Sent clock.Time
}

// Kind is a way to choose.
type Kind uint8

// Kinds.
const (
	KindOblivious Kind = iota
	KindBitmap
	KindREPS
	KindMixed
	KindPinned
	KindWeighted
)

var kindNames = []string{"oblivious", "bitmap", "reps", "mixed", "pinned", "weighted"}

// String is the kind's name in the user's file.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Names are the names of all kinds, in their order.
func Names() []string { return slices.Clone(kindNames) }

// Parse is the kind of a name.
func Parse(name string) (Kind, error) {
	if i := slices.Index(kindNames, name); i >= 0 {
		return Kind(i), nil
	}
	return 0, fmt.Errorf("paths %q: want one of %s", name, strings.Join(kindNames, ", "))
}

// Options are a chooser's settings. The zero value is good for every kind.
type Options struct {
	// Seed feeds every draw. Peers and engines should have seeds of their own,
	// or they take their paths in step; near seeds are good enough.
	Seed uint64
	// RoundTrip is the round trip until States.SetRoundTrip. Default 1 ms.
	RoundTrip time.Duration
	// ProbeMax is the longest time between probes of a bad path, so the longest
	// that a repaired one stays unused, but for a round trip and the jitter of
	// a quarter. Default 100 ms.
	ProbeMax time.Duration
	// IgnoreMarks leaves marked and trimmed paths good; they skip no turn. With
	// it Oblivious is as blind as its namesake in uet-htsim.
	IgnoreMarks bool
	// Ring is how many entropies REPS keeps to use again. Default 8.
	Ring int
	// Freeze is how long REPS keeps to its ring after a failure. Default 10 ms.
	Freeze time.Duration
	// Explore is how many picks REPS draws at random after that. Default 16.
	Explore int
	// Weights are the shares of Weighted, one for each path, at most MaxWeight.
	// A path of weight 0 is a spare: used when no other is left. Default: all
	// alike.
	Weights []uint32
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	if o.RoundTrip == 0 {
		o.RoundTrip = time.Millisecond
	}
	if o.ProbeMax == 0 {
		o.ProbeMax = 100 * time.Millisecond
	}
	if o.Ring == 0 {
		o.Ring = 8
	}
	if o.Freeze == 0 {
		o.Freeze = 10 * time.Millisecond
	}
	if o.Explore == 0 {
		o.Explore = 16
	}
	return o
}

// check is every problem of the options for n paths.
func (o Options) check(n int) error {
	var problems []error
	complain := func(format string, values ...any) {
		problems = append(problems, fmt.Errorf(format, values...))
	}
	if n < 1 || n > MaxPaths {
		complain("%d paths: want 1 to %d", n, MaxPaths)
	}
	if o.RoundTrip < 0 {
		complain("round trip %v: want 0 or more", o.RoundTrip)
	}
	if o.ProbeMax < 0 || o.ProbeMax > time.Hour {
		complain("longest time between probes %v: want 0 to 1h", o.ProbeMax)
	}
	if o.Ring < 0 || o.Ring > maxRing {
		complain("ring of %d: want 0 to %d", o.Ring, maxRing)
	}
	if o.Freeze < 0 {
		complain("freeze %v: want 0 or more", o.Freeze)
	}
	if o.Explore < 0 {
		complain("explore %d: want 0 or more", o.Explore)
	}
	if o.Weights != nil {
		problems = append(problems, checkWeights(o.Weights, n))
	}
	return errors.Join(problems...)
}

// New is a chooser among n paths, 1 to MaxPaths. The error names every option
// that cannot be.
func New(kind Kind, n int, o Options) (Chooser, error) {
	if err := o.check(n); err != nil {
		return nil, fmt.Errorf("choose paths: %w", err)
	}
	o = o.withDefaults()
	switch kind {
	case KindOblivious:
		return newOblivious(n, o), nil
	case KindBitmap:
		return newBitmap(n, o), nil
	case KindREPS:
		return newREPS(n, o), nil
	case KindMixed:
		return newMixed(n, o), nil
	case KindPinned:
		return newPinned(n, o), nil
	case KindWeighted:
		return newWeighted(n, o), nil
	}
	return nil, fmt.Errorf("choose paths: kind %d: want 0 to %d", kind, len(kindNames)-1)
}
