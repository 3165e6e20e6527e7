// Package judge judges the checks of a file from the evidence of a run: results of workloads and programs,
// measurements, and recordings. The evidence is plain data, so that another source than a run can fill it.
// From the same data the package makes the charts of the report.
package judge

import (
	"io"
	"slices"
	"time"

	"railbed/capture/follow"
	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/clock"
	"railbed/internal/plural"
	"railbed/plan/spec"
	"railbed/transports/rd/privacy"
	"railbed/workloads/stacks"
	"railbed/workloads/worker"
)

// Evidence is the data from which checks are judged.
type Evidence struct {
	Workloads []Finished
	Stacks    []stacks.Result
	Steps     []report.Step // records of the file's steps, in order
	// Acts are the times in which steps changed the testbed.
	Acts []report.Act
	// Sends are the flows of the traffic steps that ran.
	Sends []verify.Send
	// Passing looks for the packets of link steps in the recording.
	Passing []*verify.Passing
	// Crossing returns the packets that a stack's run had to send, and the other steps that ran at the same
	// time.
	Crossing func(stack string) (verify.Crossing, error)
	Captures Recordings
	Fidelity *report.Fidelity
	// Drops are the packets that the queues of kernel switches counted as dropped, by port.
	Drops map[string]uint64
	// Lost are the packets that kernel links and routers lost outside of queues, by port or switch.
	Lost map[string]uint64
	// Interrupted are the links that lost their carrier for a time.
	Interrupted map[string]bool
	// Harm counts the packets that faults hit, by port.
	Harm map[string]verify.Harm
	// Clock is the timeline's clock, or nil if the timeline did not run.
	Clock *clock.Clock
	// Keys decrypt packets, if the file asks for a key log. Otherwise Keys is nil.
	Keys *privacy.KeyLog
	// Aborted is the reason why no check is judged, or nil.
	Aborted error
	// recording has the packets and messages of the run's recording. It is nil if that was not followed.
	recording *follow.Recording
	// Out is the directory of the results, as the user names it.
	Out string
	// Keep writes a file of the results. If it is nil, packets that break checks are not written.
	Keep func(name string, write func(io.Writer) error) error
}

// Finished is the result of a workload that ran to its end.
type Finished struct {
	Name string
	// Wrong is the number of wrong elements or bytes over all operations.
	Wrong uint64
	report.LeftOut
	// Traffic describes which packets belong to the workload.
	Traffic verify.Workload
	// spans are the ranks' times in some operations, and Times the distributions of the workload's times.
	spans []timedSpans
	Times []report.Distribution
	// Began and Ended are the times of the workload's timed operations, in real time, or zero.
	Began, Ended time.Time
	Outcome
}

// Timed sets when the workload's timed operations began and ended, in real time. Open-loop messages are sent
// at their own times, so their duration shows no bound.
func (f *Finished) Timed(r *worker.Result, action spec.Action) {
	if m, is := action.(*spec.Messages); is && m.Open != nil {
		return
	}
	for _, o := range r.Operations {
		if !o.Timed {
			continue
		}
		if f.Began.IsZero() {
			f.Began = o.Start
		}
		f.Ended = o.Start.Add(o.Time * time.Duration(max(1, o.Count)))
	}
}

// Outcome is the part of a result that depends on the kind of workload.
type Outcome interface {
	// AddTo adds the result to a report.
	AddTo(r *report.Report)
	// Figure returns the figure with a key of spec.Figures, in the unit of the report. Not every workload has
	// each figure.
	Figure(key string) (value float64, there bool)
	// Correctness returns the words of a check of the result.
	Correctness() Correctness
	// Observations returns the part of the result with observations of the ranks.
	Observations() *report.Conduct
}

// Correctness is the words of a check of a workload's result.
type Correctness struct {
	Unit    string // elements or bytes.
	Wrong   string // for a wrong result: a format, with %d for the number of units.
	Right   string // for a right result.
	Parts   string // partial sums or messages, which may be missing.
	Without string // stands between right and the missing parts.
	Unknown string // the reason why the result cannot be judged, or ""
}

// Elements returns the words for elements of a number of ranks.
func Elements(ranks int) Correctness {
	return Correctness{Unit: "elements", Wrong: "%d elements are wrong",
		Right: plural.Text("every element of %d ranks is right", ranks), Parts: "partial sums",
		Without: " but for"}
}

// otherClocks reports whether the times of a workload are unknown, because its ranks have other
// clocks.
func otherClocks(f *Finished) bool {
	if f == nil {
		return false
	}
	t, is := f.Outcome.(interface{ UnknownTimes() bool })
	return is && t.UnknownTimes()
}

func (e *Evidence) Workload(name string) *Finished {
	for i := range e.Workloads {
		if e.Workloads[i].Name == name {
			return &e.Workloads[i]
		}
	}
	return nil
}

// Recordings are the recordings of a run, from which packet checks are judged as from one.
type Recordings []report.Capture

// complete reports whether there are recordings and all of them are complete.
func (r Recordings) complete() bool {
	return len(r) > 0 && !slices.ContainsFunc(r, func(c report.Capture) bool { return !c.Complete })
}

// filtered reports whether a recording is of chosen packets.
func (r Recordings) filtered() bool {
	return slices.ContainsFunc(r, func(c report.Capture) bool { return c.Filter != "" })
}

// packets returns the number of records in all recordings.
func (r Recordings) packets() (n uint64) {
	for _, c := range r {
		n += c.Packets()
	}
	return n
}

// dropped returns the number of packets that the recordings lost.
func (r Recordings) dropped() (n uint64) {
	for _, c := range r {
		n += c.Dropped()
	}
	return n
}

// names returns the files.
func (r Recordings) names() (names []string) {
	for _, c := range r {
		names = append(names, c.File)
	}
	return names
}
