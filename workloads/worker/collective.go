package worker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"railbed/plan/perf"
	"railbed/plan/schedule"
	"railbed/plan/spec"
)

// Collective is a collective operation on the job's buffer.
type Collective struct{}

func (Collective) complete(*Job, reporter) {}

// check implements Work. It checks that the algorithm exists for the job's kind and can do what the
// job asks of it.
func (Collective) check(j *Job, problem reporter) {
	if j.Kind == spec.KindSGD || j.Kind == spec.KindMoE {
		problem("%s needs a work of its own", j.Kind)
	}
	j.checkAlgorithm(problem)
}

func (j *Job) checkAlgorithm(problem reporter) {
	if !known(j.Kind, j.Algorithm) {
		problem("%s by %s: no such algorithm, want %s", j.Kind, j.Algorithm,
			cmp.Or(strings.Join(spec.Algorithms(j.Kind), " or "), "another kind"))
	}
	switch j.Algorithm {
	case Hierarchical:
		if _, err := schedule.Hierarchical(schedule.Kind(j.Kind), Rails(j.Ranks)); err != nil {
			problem("%w", err)
		}
	case MSCCL:
		if err := j.CheckSchedule(); err != nil {
			problem("%w", err)
		} else if j.InPlace && j.Schedule.OutOfPlace {
			problem("%s in place, which is for out of place alone", j.Schedule.Algorithm)
		}
	}
	mayLose := j.Kind == AllReduce && j.Algorithm == Ring
	if j.Kind == AllToAll && j.Algorithm != MSCCL && j.InPlace || !mayLose && j.RD.MayDrop() {
		problem("%s by %s in place, or with bytes that may be left out: there is none", j.Kind, j.Algorithm)
	}
	if j.offline() && !spec.HasRates(j.Kind, j.Algorithm) {
		problem("control: offline of %s, of which there are no rates", j.Algorithm)
	}
}

// known reports whether a collective has such an algorithm.
func known(kind, algorithm string) bool {
	return slices.Contains(spec.Algorithms(kind), algorithm)
}

func (c Collective) of(*Job, int) rankWork { return c }

func (Collective) results(j *Job) Results {
	if j.Kind == Barrier {
		return barrier{}
	}
	return nil
}

// wanted implements Work.
func (Collective) wanted(_ *Job, c *workerConfig, w *Wanted) error {
	if c.Algorithm == InNetwork {
		for _, r := range c.rounds() {
			w.Switch += uint64(c.Sizes[r.size]) * uint64(r.before+r.count)
		}
		return nil
	}
	carriers, err := c.carriers()
	if err != nil {
		return err
	}
	for size, operations := range c.operations() {
		for channel, carrier := range carriers[size] {
			for rank := range c.Ranks {
				w.add(rank, channel, len(carriers[size]), carrier.Amounts(rank, operations))
			}
		}
	}
	return nil
}

func (Collective) measure(j *Job, row *perf.Row) bool {
	if schedule.Kind(j.Kind).Shares() { // as in nccl-tests
		row.Count /= len(j.Ranks)
	}
	return true
}

// run implements rankWork.
func (Collective) run(ctx context.Context, w *rank) error {
	return w.collective(ctx, func(p part, _ buffers) (part, error) { return p, nil })
}

// collective does the operations of a collective. wrap makes the part in operations of a size from
// the collective's own part and the rank's memory.
func (w *rank) collective(ctx context.Context, wrap func(part, buffers) (part, error)) error {
	c := &w.config
	switch {
	case !known(c.Kind, c.Algorithm):
		return fmt.Errorf("%s by %s is not something this worker does", c.Kind, c.Algorithm)
	case c.Algorithm == InNetwork:
		return w.aggregate(ctx, wrap)
	}
	return w.throughLanes(func() error { return w.exchange(ctx, wrap) })
}

// exchange exchanges memory handles and addresses with the other ranks and does the operations.
func (w *rank) exchange(ctx context.Context, wrap func(part, buffers) (part, error)) error {
	shapes, err := w.config.shapes()
	if err != nil {
		return err
	}
	memory := allocate(shapes)
	tables, err := w.meetInLanes(ctx, func(i int, l *lane) (*rendezvous, error) {
		handles, err := l.registerAll(memory[i])
		return &rendezvous{Input: handles.Input, Output: handles.Output, Work: handles.Work}, err
	})
	if err != nil {
		return err
	}
	var p part
	var views []buffers
	size := -1
	for _, r := range w.config.rounds() {
		if r.size != size {
			size, views = r.size, nil
			for i, of := range shapes[size] {
				views = append(views, memory[i].view(of))
			}
			if p, err = w.join(tables, views, w.config.Sizes[size]); err != nil {
				return err
			}
			if p, err = wrap(p, views[0]); err != nil {
				return err
			}
		}
		if err := w.round(ctx, p, views[0].output, &r); err != nil {
			return err
		}
	}
	return w.end(ctx)
}
