// Package verify judges the behaviour of a fabric from its packets.
//
// It has the checks that files, "railbed run" and "railbed verify" share. The checks are in packages by
// subject: fabric, ranks, rd, roce and rules. The file of each check registers its kind, which gives an
// example and makes the check. Package evidence has what all checks share, and knows no check.
//
// Fidelity is beside these checks. It judges whether the emulation kept its promises, so that the verdicts
// of other checks count.
package verify

import (
	"context"
	"io"

	"railbed/capture/verify/evidence"
)

// Names of other packages for callers: what they describe to checks, and what checks return.
type (
	Check      = evidence.Check
	Options    = evidence.Options
	Result     = evidence.Result
	Summary    = evidence.Summary
	Tap        = evidence.Tap
	Workload   = evidence.Workload
	Rank       = evidence.Rank
	Sums       = evidence.Sums
	Framing    = evidence.Framing
	Empty      = evidence.Empty
	FlowAddr   = evidence.FlowAddr
	Harm       = evidence.Harm
	QueuePairs = evidence.QueuePairs
	Pair       = evidence.Pair
	Active     = evidence.Active
	Send       = evidence.Send
	Sources    = evidence.Sources

	Crossing     = evidence.Crossing
	CrossingRank = evidence.CrossingRank
)

// Patterns of a Workload besides the ring.
const (
	AllToAll = evidence.AllToAll
	Pairs    = evidence.Pairs
)

// Run reads a capture and returns a result for each check, in the order of the checks. A truncated
// capture is judged up to its end, and then no check passes. Run returns an error when r could not
// be read, or does not hold a capture.
func Run(ctx context.Context, r io.Reader, o Options, checks ...Check) ([]Result, Summary, error) {
	return evidence.Run(ctx, r, o, checks...)
}

// RunAll is Run for all recordings of a run, which may have different taps and times. names are for
// messages. The evidence is the union of the recordings.
func RunAll(ctx context.Context, names []string, recordings []io.Reader, o Options, checks ...Check) (
	[]Result, Summary, error) {
	return evidence.RunAll(ctx, names, recordings, o, checks...)
}
