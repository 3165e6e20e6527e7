package verify

import (
	"slices"

	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
)

// ofOneClock takes a check that is limited to times of a run's steps. The returned check is INCONCLUSIVE for
// recordings of other programs, whose clocks may differ from the clock of the run.
func ofOneClock(c evidence.Check) evidence.Check {
	w := &oneClock{Check: c}
	w.watcher, _ = c.(evidence.Watcher)
	return w
}

type oneClock struct {
	evidence.Check
	watcher evidence.Watcher // nil if the check is none
	capture *evidence.Capture
}

// Begin implements Check.
func (o *oneClock) Begin(c *evidence.Capture) {
	o.capture = c
	o.Check.Begin(c)
}

// Event implements Watcher.
func (o *oneClock) Event(p *evidence.Packet) {
	if o.watcher != nil {
		o.watcher.Event(p)
	}
}

// Result implements Check.
func (o *oneClock) Result() evidence.Result {
	r := o.Check.Result()
	if o.capture.Railbed {
		return r
	}
	const lacking = "the recording is not Railbed's, so its clock may differ from that of the run's steps"
	r.Verdict, r.Near = verdict.Inconclusive, nil
	r.Lacking = slices.Insert(slices.Clone(r.Lacking), 0, lacking)
	r.Details = slices.Insert(slices.Clone(r.Details), 0, lacking)
	return r
}
