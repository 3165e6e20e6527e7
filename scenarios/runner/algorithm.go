package runner

import (
	"errors"
	"fmt"

	"railbed/internal/element"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/workloads/collective/msccl"
	"railbed/workloads/worker"
)

// ErrAlgorithm is the error of a workload whose algorithm does not fit the testbed, or whose
// algorithm file is invalid.
var ErrAlgorithm = errors.New("algorithm of a workload")

// workloadAlgorithms returns the schedules of the workloads with algorithm: msccl, by step, read
// from their files and proved.
func workloadAlgorithms(o *Options) (map[int]*schedule.Schedule, error) {
	found, wrong := make(map[int]*schedule.Schedule), &findings{o: o}
	for i, step := range o.File.Steps {
		w := step.Workload
		if w == nil {
			continue
		}
		var err error
		at := "algorithm"
		switch w.Algorithm {
		case spec.Direct, spec.Pairwise:
			if w.Kind == spec.KindMoE {
				at, err = "moe", w.MoE.Config(len(o.Plan.Ranks), o.Plan.Seed).Check()
			}
		case spec.Hierarchical:
			_, err = schedule.Hierarchical(schedule.Kind(w.Collective()), worker.Rails(o.Plan.Ranks))
		case spec.MSCCL:
			at = "file"
			found[i], err = readAlgorithm(o, w)
		}
		wrong.wrong(ErrAlgorithm, fmt.Sprintf("steps[%d].workload.%s", i, at), err)
	}
	return found, wrong.err()
}

func readAlgorithm(o *Options, w *spec.Workload) (*schedule.Schedule, error) {
	name, text, err := o.read("file", w.File)
	if err != nil {
		return nil, err
	}
	s, err := msccl.Read(name, text, w.Root)
	if err != nil {
		return nil, err
	}
	all, err := sizes(w, len(o.Plan.Ranks))
	if err != nil {
		return nil, err
	}
	return s, worker.Job{Kind: w.Collective(), Type: element.Type(w.Type), Root: w.Root, Ranks: o.Plan.Ranks,
		Sweep: &worker.Sweep{Sizes: all}, Schedule: s}.CheckSchedule()
}

// inPlaceToo reports whether a workload of several sizes also measures each size in place.
func inPlaceToo(w *spec.Workload, algorithm *schedule.Schedule) bool {
	return w.Kind != spec.AllToAll && w.Kind != spec.Barrier && w.Kind != spec.KindMoE &&
		(algorithm == nil || !algorithm.OutOfPlace)
}
