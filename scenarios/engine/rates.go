package engine

import (
	"errors"
	"fmt"
	"os"
	"time"

	"railbed/testbed/plan/rates"
	"railbed/testbed/spec"
	"railbed/workloads/worker"
)

// ErrRates says that a file of rates that a workload names cannot be used.
var ErrRates = errors.New("rates of a workload")

// workloadRates are the rates of the workloads with control: offline, by step: read from
// their files, or computed.
func workloadRates(o *Options) (map[int]*rates.File, error) {
	found := make(map[int]*rates.File)
	for i, step := range o.File.Steps {
		w := step.Workload
		if w == nil || w.RD == nil || w.RD.Control != spec.ControlOffline {
			continue
		}
		var file *rates.File
		var err error
		if w.RD.Rates == "" {
			file, err = rates.Compute(o.Plan, pattern(w))
		} else {
			file, err = readRates(o, w.RD.Rates)
		}
		if err != nil {
			at := fmt.Sprintf("steps[%d].workload.rd.control", i)
			return nil, fmt.Errorf("%v: %w: %w", o.File.Source.Pos(at), ErrRates, err)
		}
		if w.Algorithm == worker.Direct && len(file.Phases) > 1 {
			at := fmt.Sprintf("steps[%d].workload.algorithm", i)
			return nil, fmt.Errorf("%v: %w: %d phases, and %s has one: want algorithm: %s", o.File.Source.Pos(at), ErrRates, len(file.Phases), worker.Direct, worker.Pairwise)
		}
		found[i] = file
	}
	return found, nil
}

// roundTrip is the longest of a workload over rd without other traffic, 0 where
// the workers are to measure it.
func (s *session) roundTrip(w *spec.Workload) time.Duration {
	if w.RD == nil {
		return 0
	}
	trip, err := rates.RoundTrip(s.plan, pattern(w))
	if err != nil {
		return 0
	}
	return trip
}

// pattern is what a workload sends, to whom.
func pattern(w *spec.Workload) rates.Options {
	o := rates.Options{Pattern: rates.Ring}
	switch w.Algorithm {
	case spec.Ring:
	case spec.Tree, spec.HalvingDoubling:
		o.Pattern = w.Algorithm
	default: // no two ranks that might not send to each other
		o.Pattern = rates.AllToAll
		if w.Algorithm == worker.Pairwise {
			o.Method = rates.ConflictFree
		}
	}
	if w.Family == "6" {
		o.Family = 6
	}
	return o
}

func readRates(o *Options, name string) (*rates.File, error) {
	name = besideFile(o, name)
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	file, err := rates.Read(name, text)
	if err == nil && file.Ranks != len(o.Plan.Ranks) {
		err = fmt.Errorf("%s is for %d ranks, and this testbed has %d", name, file.Ranks, len(o.Plan.Ranks))
	}
	return file, err
}
