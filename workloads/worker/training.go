package worker

import (
	"time"

	"railbed/internal/clock"
	"railbed/plan/perf"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
	"railbed/workloads/training"
)

// Training plays a training.Program. Its operations have sizes of their own.
type Training struct {
	Program *training.Program `json:"program"`
}

// trainingWork is a rank's part in a training.
type trainingWork Training

func (Training) complete(j *Job, _ reporter) { j.Kind = "training" }

// check implements Work. It checks that the program is for the job's ranks.
func (t Training) check(j *Job, problem reporter) {
	if t.Program == nil || len(t.Program.Tasks) != len(j.Ranks) || j.InPlace {
		problem("training: want a program for %d ranks, and no in-place operations", len(j.Ranks))
	}
}

func (t Training) of(_ *Job, rank int) rank.Work { return trainingWork{t.Program.Of(rank)} }

// wanted implements Work.
func (t Training) wanted(_ *Job, c *rank.Config, w *Wanted) error {
	for range c.Ranks {
		w.Groups = append(w.Groups, map[string]uint64{})
	}
	// Many operations differ only in their ranks.
	type same struct {
		kind, group string
		ranks       int
		bytes       uint64
		times       int
	}
	known := map[same][][]collective.Amount{} // by sender and receiver
	uses, iterations := t.Program.Uses(), operationsOf(c)[0]
	for i := range t.Program.Operations {
		o := &t.Program.Operations[i]
		key := same{string(o.Kind), o.Group, len(o.Ranks), o.Bytes, int(uses[i]) * iterations}
		if known[key] == nil {
			made, err := operationAlgorithm(o, c)
			if err != nil {
				return err
			}
			for place := range o.Ranks {
				known[key] = append(known[key], collective.Amounts(made, place, key.times))
			}
		}
		for place, rank := range o.Ranks {
			for to, amount := range known[key][place] {
				w.To[rank][o.Ranks[to]].Add(amount)
				w.Groups[rank][o.Group] += amount.Bytes
			}
		}
	}
	return nil
}

func (t Training) results(j *Job) Results {
	r := &Iterations{program: t.Program, dilation: clock.Dilation(j.Dilation)}
	for range j.Ranks {
		r.Groups = append(r.Groups, map[string]uint64{})
	}
	return r
}

func (Training) measure(*Job, *perf.Row) bool { return false }

// Iterations are the results of a training. Times are in the testbed's time.
type Iterations struct {
	All []Iteration
	// Spans are the times at which the tasks of each rank ran in the latest iteration.
	Spans [][]training.Span
	// Steps are the steps of the algorithms of these tasks. Began is when the iteration began.
	Steps [][][]rank.Steps
	Began time.Time
	// Groups holds the number of bytes that each rank sent in each of its groups.
	Groups []map[string]uint64

	program  *training.Program
	dilation clock.Dilation
}

// Iteration divides the ranks' time in an iteration.
type Iteration struct {
	Ranks []training.Times
	// ExposedBy divides each rank's exposed time by kind of group.
	ExposedBy []map[string]time.Duration
	// OtherClocks is set if ranks have other clocks than the coordinator. The times are then
	// meaningless.
	OtherClocks bool
}

// playerStep is a rank's result of an iteration.
type playerStep struct {
	Spans  []training.Span   `json:"spans"`  // of its tasks, after the iteration's start
	Steps  [][]rank.Steps    `json:"steps"`  // of its tasks
	Groups map[string]uint64 `json:"groups"` // bytes sent by group
}

// add implements Results. It divides the time of an iteration, which starts when the first rank
// begins.
func (r *Iterations) add(o *Operation, ranks []rank.Done, released, ended time.Time) error {
	steps, err := own[playerStep](ranks)
	if err != nil {
		return err
	}
	var made Iteration
	r.Spans, r.Steps = make([][]training.Span, len(ranks)), make([][][]rank.Steps, len(ranks))
	r.Began = o.Start
	for rank, step := range steps {
		made.OtherClocks = made.OtherClocks || !within(&ranks[rank], released, ended, clockMargin)
		late := r.dilation.Passed(time.Duration(ranks[rank].Start - o.Start.UnixNano()))
		for _, s := range step.Spans {
			r.Spans[rank] = append(r.Spans[rank], training.Span{Start: late + s.Start, End: late + s.End})
		}
		r.Steps[rank] = step.Steps
		for _, task := range step.Steps {
			for i := range task {
				after := func(d time.Duration) time.Duration { return late + r.dilation.Passed(d) }
				task[i].From = after(task[i].From)
				for k, end := range task[i].Ends {
					task[i].Ends[k] = after(end)
				}
			}
		}
		for group, bytes := range step.Groups {
			r.Groups[rank][group] += bytes
		}
	}
	o.Time, made.Ranks = r.program.Times(r.Spans)
	made.ExposedBy = r.program.ExposedBy(r.Spans)
	r.All = append(r.All, made)
	return nil
}
