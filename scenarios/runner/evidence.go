package runner

import (
	"slices"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/clock"
	"railbed/plan/spec"
	"railbed/transports/rd/privacy"
	"railbed/workloads/stacks"
)

// evidence is what checks are judged from.
type evidence struct {
	workloads []finished
	stacks    []stacks.Result
	steps     []report.Step // of the file, in its order
	captures  []report.Capture
	fidelity  *report.Fidelity
	// drops are the packets that queues of kernel switches counted as dropped, by port.
	drops map[string]uint64
	// clock is the timeline's, nil where it did not run.
	clock *clock.Clock
	// keys open encrypted packets, where the file says so; else they are nil.
	keys *privacy.KeyLog
	// aborted says why nothing is judged, if nothing is.
	aborted error
}

// finished is a workload that ran to its end.
type finished struct {
	report.Workload
	// traffic says which packets were the workload's.
	traffic verify.Workload
	// training is a training job, nil of a collective.
	training *report.Training
	// messages are those of a step of messages, nil of a collective.
	messages *report.Messages
	// unchecked says that nobody could look whether results are right.
	unchecked bool
}

// figure is what the workload came to, as spec.Figures have it: durations in nanoseconds,
// shares of 1. Not every workload has each.
func (f *finished) figure(name string) (value float64, there bool) {
	if f == nil {
		return 0, false
	}
	if l := f.Learning; l != nil {
		switch name {
		case "loss":
			return l.Held, true
		case "accuracy":
			return l.Accuracy, true
		}
	}
	if m := f.messages; m != nil {
		switch name {
		case "p50":
			return m.Times.P50 * 1e9, m.Times.Count > 0
		case "p99":
			return m.Times.P99 * 1e9, m.Times.Count > 0
		case "most":
			return m.Times.Most * 1e9, m.Times.Count > 0
		case "attained":
			if m.Attained != nil {
				return *m.Attained, true
			}
		}
	}
	if t := f.training; t != nil {
		switch name {
		case "iteration":
			return t.Median() * 1e9, len(t.Iterations) > 0
		case "exposed":
			return t.Mean().Exposed, true
		case "utilisation":
			return t.Mean().Compute, true
		}
	}
	return f.BusBW, name == "busbw" && f.BusBW > 0 && f.training == nil && f.messages == nil
}

// otherClocks says that nothing is known of the times of a training job.
func (f *finished) otherClocks() bool {
	return f != nil && f.training != nil && f.training.OtherClocks
}

func (e *evidence) workload(name string) *finished {
	for i := range e.workloads {
		if e.workloads[i].Name == name {
			return &e.workloads[i]
		}
	}
	return nil
}

// captured is the recording that checks of packets read: that of the file's
// first capture, or nil when it did not start.
func (e *evidence) captured(file *spec.Testbed) *report.Capture {
	first := slices.IndexFunc(file.Steps, func(s spec.Step) bool { return s.Capture != nil })
	if first < 0 {
		return nil
	}
	i := slices.IndexFunc(e.captures, func(c report.Capture) bool {
		return c.File == file.Steps[first].Capture.File
	})
	if i < 0 {
		return nil
	}
	return &e.captures[i]
}
