package cli

import (
	"fmt"
	"time"

	"railbed/capture/bundle"
	"railbed/capture/follow"
	"railbed/capture/report"
	"railbed/internal/units"
)

// slowOperation is an operation of a collective, by the ranks' clocks, and the causes for which its messages
// were slow.
type slowOperation struct {
	Workload string `json:"workload"`
	What     string `json:"what"`
	// Start counts from the first record. Took is the operation's time, and Median the median of all
	// operations, in seconds.
	Start  time.Duration    `json:"start_ns"`
	Took   float64          `json:"took"`
	Median float64          `json:"median,omitempty"`
	Causes []operationCause `json:"causes"`
}

// operationCause is a cause with the step of its worst message, such as "step 3 of 14 of rank 2". The
// receiver was in this step when the message had arrived. Step is empty if there was no step, or several.
type operationCause struct {
	follow.Cause
	Step string `json:"step,omitempty"`
}

// slowOperations returns the slowest operations of a run's workloads.
func slowOperations(run *bundle.Run, r *follow.Recording, messages []int) (slow []slowOperation) {
	if run.Report == nil {
		return nil
	}
	for _, a := range judgedActivities(run.Report) {
		o := slowOperation{Workload: a.Step, What: a.What, Took: a.Took, Causes: []operationCause{}}
		for _, d := range run.Report.Distributions {
			if d.Step == a.Step && d.Source == report.RanksSource {
				o.Median = d.At(0.5)
			}
		}
		for i := range run.Report.Trainings {
			if t := &run.Report.Trainings[i]; t.Name == a.Step {
				o.Median = t.Median()
			}
		}
		began := a.Began.UnixNano()
		o.Start = r.Own(began - r.Start)
		var of []int
		for _, i := range messages {
			if r.Flows[r.Messages[i].Flow].Workload == a.Step {
				of = append(of, i)
			}
		}
		for _, answer := range r.WhyIn(of, began, began+int64(a.Took*1e9)*r.Dilation) {
			for _, c := range answer.Causes {
				m := &r.Messages[c.Worst-1]
				o.Causes = append(o.Causes, operationCause{c, stepAt(&a, r.Flows[m.Flow].ToRank,
					r.Own(m.Placed-began).Seconds())})
			}
		}
		if len(of) > 0 {
			slow = append(slow, o)
		}
	}
	return slow
}

// judgedActivities returns the slowest operation of each workload, and the last iteration of each training
// job: the report has the tasks of no other iteration.
func judgedActivities(r *report.Report) (all []report.Activity) {
	for _, a := range r.Activities {
		if a.Slowest && !a.Began.IsZero() {
			all = append(all, a)
		}
	}
	for i := range r.Trainings {
		if a := r.Trainings[i].Activity(); !a.Began.IsZero() && len(a.Lanes) > 0 {
			all = append(all, a)
		}
	}
	return all
}

// stepAt returns the only step in which a rank was at a time of an activity, or "".
func stepAt(a *report.Activity, rank int, at float64) (found string) {
	for _, lane := range a.Lanes {
		if lane.Rank == nil || *lane.Rank != rank {
			continue
		}
		for _, s := range lane.Timed() {
			if at <= s.Start || at > s.End {
				continue
			}
			if found != "" {
				return ""
			}
			found = fmt.Sprintf("%s of rank %d", s.Name, rank)
		}
	}
	return found
}

// operationCauses bounds the causes that are printed for an operation.
const operationCauses = 3

func (a *app) printOperation(o *slowOperation) {
	median := ""
	if o.Median > 0 {
		median = fmt.Sprintf(", the median %s", units.Took(time.Duration(o.Median*1e9)))
	}
	a.show("%s: %s began at %s and took %s%s", o.Workload, o.What, units.Took(o.Start),
		units.Took(time.Duration(o.Took*1e9)), median)
	for i, c := range o.Causes[:min(len(o.Causes), operationCauses)] {
		step := ""
		if c.Step != "" {
			step = " in " + c.Step
		}
		a.show("%3d. %s: %s; delayed most: message %d%s, by %s", i+1, shortened(c.Where), c.What, c.Worst,
			step, units.Took(c.Most))
	}
	if len(o.Causes) == 0 {
		a.show("     none of its messages was slow")
	}
}
