package worker

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/schedule"
)

// CheckSchedule returns an error if the job's schedule does not fit its kind, ranks and sizes.
func (j Job) CheckSchedule() error {
	s := j.Schedule
	if s == nil {
		return errors.New("algorithm msccl needs a schedule, which is missing")
	}
	if string(s.Kind) != j.Kind {
		return fmt.Errorf("%s is for %s, and the workload is %s", s.Algorithm, s.Kind, j.Kind)
	}
	if len(s.Ranks) != len(j.Ranks) {
		return fmt.Errorf("%s is for %d ranks, and the job has %d", s.Algorithm, len(s.Ranks), len(j.Ranks))
	}
	if s.Root != j.Root {
		return fmt.Errorf("%s has root %d, and the workload has root %d", s.Algorithm, s.Root, j.Root)
	}
	for _, size := range j.sizes() {
		if unit := units.Bytes(s.Chunks * cmp.Or(j.Type, element.Float32).Size()); s.Equal && size%unit != 0 {
			return fmt.Errorf("%s has %d chunks of equal length: size %v, want a multiple of %v", s.Algorithm,
				s.Chunks, size, unit)
		}
	}
	return nil
}

// Chosen returns the algorithm for people to read. For auto it lists the algorithm of each range of
// sizes.
func (j Job) Chosen() string {
	if j.Algorithm != schedule.Auto {
		return j.Algorithm
	}
	var text []string
	last, to := "", units.Bytes(0)
	add := func() {
		if last != "" {
			text = append(text, fmt.Sprintf("%s to %v", last, to))
		}
	}
	for _, size := range j.sizes() {
		one := plan.AlgorithmFor(j.Kind, j.Algorithm, j.Ranks, j.channels(), size)
		if one != last {
			add()
		}
		last, to = one, size
	}
	add()
	if len(text) == 1 {
		text[0] = last
	}
	return schedule.Auto + " (" + strings.Join(text, ", ") + ")"
}

// schedule returns the schedule of an algorithm: the job's own for msccl, else a new one.
func (c *collectiveConfig) schedule(algorithm string) (*schedule.Schedule, error) {
	switch algorithm {
	case schedule.Hierarchical:
		return schedule.MakeHierarchical(schedule.Kind(c.Kind), c.Rails)
	case schedule.MSCCL:
		if c.Schedule == nil {
			return nil, errors.New("algorithm msccl needs a schedule, which is missing")
		}
		return c.Schedule, nil
	}
	return schedule.Make(schedule.Kind(c.Kind), algorithm, c.Ranks, c.Root)
}

// unbound reports whether rank i must not bind its sockets to its NIC, because it has two, or because another
// rank of its node has another NIC. Packets that the kernel passes from one of the NICs to the other within
// the node arrive through neither. The rank's address and its node's routes still make its packets leave by
// its NIC.
func (j Job) unbound(i int) bool {
	if j.Ranks[i].SecondNIC != "" {
		return true
	}
	for _, r := range j.Ranks {
		if r.Node == j.Ranks[i].Node && r.NIC != j.Ranks[i].NIC {
			return true
		}
	}
	return false
}
