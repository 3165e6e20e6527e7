package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"railbed/testbed/spec"
	"railbed/workloads/collective/element"
	"railbed/workloads/collective/msccl"
	"railbed/workloads/collective/schedule"
	"railbed/workloads/worker"
)

// ErrAlgorithm says that a workload's algorithm is not for the testbed, or its file wrong.
var ErrAlgorithm = errors.New("algorithm of a workload")

// workloadAlgorithms are the schedules of the workloads with algorithm: msccl, by step,
// read from their files and proved.
func workloadAlgorithms(o *Options) (map[int]*schedule.Schedule, error) {
	found := make(map[int]*schedule.Schedule)
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
		if err != nil {
			return nil, fmt.Errorf("%v: %w: %w", o.File.Source.Pos(fmt.Sprintf("steps[%d].workload.%s", i, at)), ErrAlgorithm, err)
		}
	}
	return found, nil
}

func readAlgorithm(o *Options, w *spec.Workload) (*schedule.Schedule, error) {
	name := besideFile(o, w.File)
	text, err := os.ReadFile(name)
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
	return s, worker.Job{Kind: w.Collective(), Type: element.Type(w.Type), Root: w.Root, Ranks: o.Plan.Ranks, Sweep: &worker.Sweep{Sizes: all}, Schedule: s}.CheckSchedule()
}

// besideFile is a path that a file names, relative to it.
func besideFile(o *Options, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(o.Path), name)
}

// inPlaceToo says that a workload of several sizes measures each in place, too.
func inPlaceToo(w *spec.Workload, algorithm *schedule.Schedule) bool {
	return w.Kind != spec.AllToAll && w.Kind != spec.Barrier && w.Kind != spec.KindMoE && (algorithm == nil || !algorithm.OutOfPlace)
}
