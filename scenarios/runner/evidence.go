package runner

import (
	"io"
	"slices"
	"time"

	"railbed/capture/follow"
	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/clock"
	"railbed/internal/plural"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/transports/rd/privacy"
	"railbed/workloads/stacks"
	"railbed/workloads/worker"
)

// evidence is the data from which checks are judged.
type evidence struct {
	workloads []finished
	stacks    []stacks.Result
	prepared  []step        // of the file, in order
	steps     []report.Step // their records
	captures  recordings
	fidelity  *report.Fidelity
	// drops are the packets that the queues of kernel switches counted as dropped, by port.
	drops map[string]uint64
	// lost are the packets that kernel links and routers lost outside of queues, by port or switch.
	lost map[string]uint64
	// interrupted are the links that lost their carrier for a time.
	interrupted map[string]bool
	// harm counts the packets that faults hit, by port.
	harm map[string]verify.Harm
	// clock is the timeline's clock, or nil if the timeline did not run.
	clock *clock.Clock
	// keys decrypt packets, if the file asks for a key log. Otherwise keys is nil.
	keys *privacy.KeyLog
	// aborted is the reason why no check is judged, or nil.
	aborted error
	// recording has the packets and messages of the run's recording. It is nil if that was not followed.
	recording *follow.Recording
	// out is the directory of the results, as the user names it.
	out string
	// keep writes a file of the results. If it is nil, packets that break checks are not written.
	keep func(name string, write func(io.Writer) error) error
}

// finished is the result of a workload that ran to its end.
type finished struct {
	name string
	// wrong is the number of wrong elements or bytes over all operations.
	wrong uint64
	report.LeftOut
	// traffic describes which packets belong to the workload.
	traffic verify.Workload
	// spans are the ranks' times in some operations, and times the distributions of the workload's times.
	spans []timedSpans
	times []report.Distribution
	// began and ended are the times of the workload's timed operations, in real time, or zero.
	began, ended time.Time
	outcome
}

// timed sets when the workload's timed operations began and ended, in real time. Open-loop messages are sent
// at their own times, so their duration shows no bound.
func (f *finished) timed(r *worker.Result, action spec.Action) {
	if m, is := action.(*spec.Messages); is && m.Open != nil {
		return
	}
	for _, o := range r.Operations {
		if !o.Timed {
			continue
		}
		if f.began.IsZero() {
			f.began = o.Start
		}
		f.ended = o.Start.Add(o.Time * time.Duration(max(1, o.Count)))
	}
}

// outcome is the part of a result that depends on the kind of workload.
type outcome interface {
	// addTo adds the result to a report.
	addTo(r *report.Report)
	// Figure returns the figure with a key of spec.Figures, in the unit of the report. Not every workload has
	// each figure.
	Figure(key string) (value float64, there bool)
	// correctness returns the words of a check of the result.
	correctness() correctness
	// conduct returns the part of the result with observations of the ranks.
	conduct() *report.Conduct
}

// correctness is the words of a check of a workload's result.
type correctness struct {
	unit    string // elements or bytes.
	wrong   string // for a wrong result: a format, with %d for the number of units.
	right   string // for a right result.
	parts   string // partial sums or messages, which may be left out.
	without string // stands between right and the parts that were left out.
	unknown string // the reason why the result cannot be judged, or ""
}

// elements returns the words for elements of a number of ranks.
func elements(ranks int) correctness {
	return correctness{unit: "elements", wrong: "%d elements are wrong",
		right: plural.Text("every element of %d ranks is right", ranks), parts: "partial sums",
		without: " but for"}
}

// otherClocks reports whether the times of a workload are unknown, because its ranks have other
// clocks.
func otherClocks(f *finished) bool {
	if f == nil {
		return false
	}
	t, is := f.outcome.(trainingOutcome)
	return is && t.OtherClocks
}

func (e *evidence) workload(name string) *finished {
	for i := range e.workloads {
		if e.workloads[i].name == name {
			return &e.workloads[i]
		}
	}
	return nil
}

// recordings are the recordings of a run, from which packet checks are judged as from one.
type recordings []report.Capture

// complete reports whether there are recordings and all of them are complete.
func (r recordings) complete() bool {
	return len(r) > 0 && !slices.ContainsFunc(r, func(c report.Capture) bool { return !c.Complete })
}

// filtered reports whether a recording is of chosen packets.
func (r recordings) filtered() bool {
	return slices.ContainsFunc(r, func(c report.Capture) bool { return c.Filter != "" })
}

// packets returns the number of records in all recordings.
func (r recordings) packets() (n uint64) {
	for _, c := range r {
		n += c.Packets()
	}
	return n
}

// dropped returns the number of packets that the recordings lost.
func (r recordings) dropped() (n uint64) {
	for _, c := range r {
		n += c.Dropped()
	}
	return n
}

// names returns the files.
func (r recordings) names() (names []string) {
	for _, c := range r {
		names = append(names, c.File)
	}
	return names
}

// sends returns the flows of the traffic steps that ran.
func (e *evidence) sends(file *spec.Testbed, p *plan.Plan) (flows []verify.Send) {
	ran := e.ran(file)
	for _, step := range e.prepared {
		t, is := step.(*trafficStep)
		if is && t.index < len(e.steps) && slices.Contains([]report.State{report.Passed, report.Failed},
			e.steps[t.index].State) {
			record := &e.steps[t.index]
			for _, send := range t.sends(p) {
				if !ran.Began.IsZero() {
					send.Begun, send.Ended = ran.At(record.Start).UnixNano(), ran.At(record.End).UnixNano()
				}
				flows = append(flows, send)
			}
		}
	}
	return flows
}
