package cli

import (
	"fmt"
	"time"

	"railbed/capture/bundle"
	"railbed/capture/report"
	"railbed/capture/trace"
)

// ranksTracer makes slices of the operations, tasks and steps that ranks report.
type ranksTracer struct {
	dilation float64
	steps    []trace.Step
}

// stepsOfRanks returns the operations of the report's charts and the tasks of training jobs at each rank,
// with the steps of the ranks' algorithms.
func stepsOfRanks(run *bundle.Run) []trace.Step {
	if run.Report == nil {
		return nil
	}
	r := ranksTracer{dilation: float64(max(run.Report.Dilation, 1))}
	for i := range run.Report.Activities {
		if a := &run.Report.Activities[i]; !a.Began.IsZero() {
			r.operation(a)
		}
	}
	for i := range run.Report.Trainings {
		if t := &run.Report.Trainings[i]; !t.Began.IsZero() {
			r.iteration(t)
		}
	}
	return r.steps
}

// add adds a slice of a rank. Times are in seconds from the begin.
func (r *ranksTracer) add(node, track, name string, began time.Time, start, end float64) {
	real := func(seconds float64) int64 { return began.UnixNano() + int64(seconds*1e9*r.dilation) }
	r.steps = append(r.steps, trace.Step{Node: node, Rank: track, Name: name, From: real(start),
		To: real(end)})
}

// operation adds an operation.
func (r *ranksTracer) operation(a *report.Activity) {
	for _, lane := range a.Lanes {
		if lane.Rank == nil || lane.Node == "" {
			continue
		}
		track := fmt.Sprintf("rank %d", *lane.Rank)
		for _, s := range lane.Spans {
			if s.Of == report.OperationSpan {
				r.add(lane.Node, track, a.Step+": "+a.What, a.Began, s.Start, s.End)
			}
		}
		r.algorithm(lane.Node, track, a.Began, lane.Steps)
	}
}

// algorithm adds the steps of a rank's algorithm.
func (r *ranksTracer) algorithm(node, track string, began time.Time, parts []report.RankSteps) {
	for i := range parts {
		for _, s := range parts[i].Timed() {
			r.add(node, track, s.Name, began, s.Start, s.End)
		}
	}
}

// iteration adds the last iteration of a training job. Computations and the exchanges of each kind of group
// have tracks of their own.
func (r *ranksTracer) iteration(t *report.Training) {
	for i, bars := range t.Bars[:min(len(t.Bars), len(t.PerRank))] {
		at := &t.PerRank[i]
		for _, b := range bars {
			track := fmt.Sprintf("rank %d, %s", at.Rank, b.Group)
			r.add(at.Node, track, t.Name+": "+b.Name, t.Began, b.Start, b.End)
			r.algorithm(at.Node, track, t.Began, b.Steps)
		}
	}
}
