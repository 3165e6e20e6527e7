package worker

import (
	"slices"
	"strings"
	"testing"

	"railbed/internal/element"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/transports/aggregation"
)

// TestSwitchesComputeWhatFilesMayAsk holds that files accept exactly the types and operations of the
// client for in-network aggregation, and that a job refuses the others.
func TestSwitchesComputeWhatFilesMayAsk(t *testing.T) {
	for _, kind := range element.Types() {
		for _, op := range element.Ops() {
			does := slices.Contains(spec.InNetworkTypes, string(kind)) &&
				slices.Contains(spec.InNetworkOps, string(op))
			if got := aggregation.Computes(kind, op); got != does {
				t.Errorf("switches compute %s of %s: %v, and files accept it: %v", op, kind, got, does)
			}
			j := job(2, 4096)
			j.Algorithm, j.Type, j.Op = schedule.InNetwork, kind, op
			err := j.Check() // there is no tree either
			if strings.Contains(err.Error(), "a switch computes sum, max, min, avg of ") == does {
				t.Errorf("%s of %s: %v", op, kind, err)
			}
		}
	}
}

// TestHyperCubeNeedsAPowerOfTwo holds that the check of a job finds other numbers of ranks.
func TestHyperCubeNeedsAPowerOfTwo(t *testing.T) {
	for ranks := 1; ranks <= 9; ranks++ {
		j := job(ranks, 4096)
		j.Kind, j.Algorithm = spec.AllGather, schedule.HyperCube
		err := j.Check()
		if fits := slices.Contains([]int{1, 2, 4, 8}, ranks); fits != (err == nil) ||
			!fits && !strings.Contains(err.Error(), "want a power of two") {
			t.Errorf("%d ranks: %v", ranks, err)
		}
	}
}
