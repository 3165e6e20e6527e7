// Package path chooses the paths that an engine's next packets to one peer take. A path is an
// entropy: a source port that the fabric's switches hash. The engine numbers paths 0 to n-1. It
// calls a chooser before each packet, or before each batch that is sent as a unit.
//
// The engine's observations of paths (Report) go to two layers. States is below all choosers and
// records which paths carry packets: it has the states of OCP's Multipath Reliable Connection 1.0
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

// maxPaths is the most paths of a chooser: the largest set of entropy values that MRC names.
const maxPaths = 256

// Chooser chooses among the paths to one peer. A chooser with shares or turns (Oblivious, Bitmap,
// Weighted) counts picks, so batches should be of equal size.
type Chooser interface {
	// Pick returns the path of the next packet or batch. The path is never denied. It is bad only
	// when all allowed paths are bad.
	Pick(now clock.Time) int
	// Feedback processes a report on packets. For an acknowledgement that shows arrivals and
	// losses, report the arrivals first: a loss behind which packets arrived is then recognized as
	// ordinary.
	Feedback(r Report, now clock.Time)
	// Probe returns a path to send a probe on now, a small packet that the peer answers at once; ok
	// is false when no probe is due. The caller sends the probe and calls Probe again. A lost probe
	// needs no report: the missing answer is enough.
	Probe(now clock.Time) (path int, ok bool)
	// NextProbe is the time at which Probe has a probe to send, or clock.Never. Picks, reports and
	// probes change it.
	NextProbe() clock.Time
	// Paths returns the states of the paths, with which a caller reads, denies and allows them, and
	// sets the round trip.
	Paths() *States
}

// Event is the fate of packets.
type Event uint8

// Events. All but Lost and TimedOut show that packets still arrive.
const (
	Acked          Event = iota // they arrived
	Marked                      // they arrived, with ECN's Congestion Experienced.
	Trimmed                     // their headers arrived: a queue was full
	TrimmedLastHop              // the same, at the peer's own port, where all paths end.
	Lost                        // acknowledgements of later packets leave them out
	TimedOut                    // no answer until the retransmission timer fired
	ProbeReturned               // the answer to a probe arrived

	// Events is the number of events.
	Events = int(ProbeReturned) + 1
)

var eventNames = [Events]string{"acked", "marked", "trimmed", "trimmed-last-hop", "lost", "timed-out",
	"probe-returned"}

// String returns the event's name, with hyphens.
func (e Event) String() string {
	if int(e) < Events {
		return eventNames[e]
	}
	return "unknown"
}

// arrived reports whether an event shows that packets arrive.
func (e Event) arrived() bool { return e != Lost && e != TimedOut }

// Report is the fate of packets of one path. Reports about unknown paths or with unknown events are
// ignored, because they come from the network.
type Report struct {
	Path  int
	Event Event
	// Packets is the number of packets; less than 1 counts as 1.
	Packets int
	// Sent is the time at which the last of the packets, or the answered probe, was sent. An
	// arrival clears a path only of losses of packets sent before it. 0 stands for unknown and is
	// older than everything. Such a report is no evidence for or against the path. It still counts
	// as a mark, an entropy to reuse or a loss.
	Sent clock.Time
}

// Kind is a kind of chooser.
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

// String returns the kind's name in the user's file.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Names returns the names of all kinds, in their order.
func Names() []string { return slices.Clone(kindNames) }

// Parse returns the kind with a name.
func Parse(name string) (Kind, error) {
	if i := slices.Index(kindNames, name); i >= 0 {
		return Kind(i), nil
	}
	return 0, fmt.Errorf("spray %q: want one of %s", name, strings.Join(kindNames, ", "))
}

// Options are a chooser's settings. The zero value is valid for every kind.
type Options struct {
	// Seed feeds every draw. Give peers and engines different seeds: otherwise they use their paths
	// in step. Seeds may be close to each other.
	Seed uint64
	// RoundTrip is the round trip until States.SetRoundTrip. Default 1 ms.
	RoundTrip time.Duration
	// ProbeMax is the longest time between probes of a bad path. So a repaired path stays unused
	// for at most ProbeMax, a jitter of a quarter and a round trip. Default 100 ms.
	ProbeMax time.Duration
	// IgnoreMarks keeps marked and trimmed paths good, so that they skip no turn. With it Oblivious
	// ignores feedback as the chooser of that name in uet-htsim does.
	IgnoreMarks bool
	// Ring is the number of entropies that REPS keeps for reuse. Default 8.
	Ring int
	// Freeze is the time for which REPS uses only its ring after a failure. Default 10 ms.
	Freeze time.Duration
	// Explore is the number of picks that REPS draws at random after a freeze. Default 16.
	Explore int
	// Weights are the shares of Weighted, one for each path, at most MaxWeight. A path of weight 0
	// is a spare, used when no other path is usable. Default: equal shares.
	Weights []uint32
}

// withDefaults replaces zero values by defaults.
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

// check returns every problem of the options for n paths.
func (o Options) check(n int) error {
	var problems []error
	complain := func(format string, values ...any) {
		problems = append(problems, fmt.Errorf(format, values...))
	}
	if n < 1 || n > maxPaths {
		complain("%d paths: want 1 to %d", n, maxPaths)
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

// New makes a chooser among n paths, 1 to MaxPaths. The error names every invalid option.
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
