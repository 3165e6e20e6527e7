package runner

import (
	"errors"

	"railbed/internal/element"
	"railbed/plan"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/workloads/collective/msccl"
	"railbed/workloads/training/moe"
	"railbed/workloads/worker"
)

// ErrAlgorithm is the error of a workload whose algorithm does not fit the testbed, or whose
// algorithm file is invalid.
var ErrAlgorithm = errors.New("algorithm of a workload")

// algorithm proves that the step's algorithm fits the testbed, and reads the schedule of algorithm:
// msccl. It reports whether the step has rates.
func (p *preparation) algorithm(c *collectiveStep) (sends bool) {
	var err error
	at, w := "algorithm", c.spec
	switch w.Algorithm {
	case schedule.Direct, schedule.Pairwise:
		if w.Kind == spec.KindMoE {
			at, err = "moe", moe.ConfigOf(w.MoE, len(c.plan.Ranks), p.o.Plan.Seed).Check()
		}
	case schedule.Hierarchical:
		_, err = schedule.MakeHierarchical(schedule.Kind(w.Collective()), plan.Rails(c.plan.Ranks))
	case schedule.MSCCL:
		at = "file"
		c.schedule, err = readAlgorithm(p.o, w, c.plan.Ranks)
	}
	p.wrong(ErrAlgorithm, c.at+"."+at, err)
	return err == nil || at != "moe"
}

func readAlgorithm(o *Options, w *spec.Workload, ranks []plan.Rank) (*schedule.Schedule, error) {
	name, text, err := o.read("file", w.File)
	if err != nil {
		return nil, err
	}
	s, err := msccl.Read(name, text, w.Root)
	if err != nil {
		return nil, err
	}
	all, err := sizes(w, len(ranks))
	if err != nil {
		return nil, err
	}
	return s, worker.Job{Kind: w.Collective(), Type: element.Type(w.Type), Root: w.Root, Ranks: ranks,
		Sweep: &worker.Sweep{Sizes: all}, Schedule: s}.CheckSchedule()
}

// inPlaceToo reports whether a workload of several sizes also measures each size in place.
func inPlaceToo(w *spec.Workload, algorithm *schedule.Schedule) bool {
	return schedule.Kind(w.Kind).HasInPlace() && (algorithm == nil || !algorithm.OutOfPlace)
}
