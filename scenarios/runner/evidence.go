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

// evidence is the data from which checks are judged.
type evidence struct {
	workloads []finished
	stacks    []stacks.Result
	prepared  []step        // of the file, in order
	steps     []report.Step // their records
	captures  []report.Capture
	fidelity  *report.Fidelity
	// drops are the packets that the queues of kernel switches counted as dropped, by port.
	drops map[string]uint64
	// clock is the timeline's clock, or nil if the timeline did not run.
	clock *clock.Clock
	// keys decrypt packets, if the file asks for a key log. Otherwise keys is nil.
	keys *privacy.KeyLog
	// aborted is the reason why no check is judged, or nil.
	aborted error
}

// finished is the result of a workload that ran to its end.
type finished struct {
	report.Workload
	// traffic describes which packets belong to the workload.
	traffic verify.Workload
	// training is the report of a training job, or nil for other workloads.
	training *report.Training
	// messages is the report of a messages step, or nil for other workloads.
	messages *report.Messages
	// unchecked is true if the results could not be checked.
	unchecked bool
}

// figure returns a figure of the workload with the units of spec.Figures: durations in nanoseconds,
// shares as fractions of 1. Not every workload has each figure.
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

// otherClocks reports whether the times of a training job are unknown, because its ranks have other
// clocks.
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

// captured returns the recording that packet checks read: the recording of the file's first
// capture, or nil if that did not start.
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
