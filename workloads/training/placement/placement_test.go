package placement

import (
	"slices"
	"strings"
	"testing"

	"railbed/plan/spec"
	"railbed/testkit/plantest"
)

const leafSpine = "name: t\nfabric: {topology: leaf-spine, params: {leaves: 3, spines: 1, hosts-per-leaf: " +
	"4}}\n"

// Ranks 0 to 3, 4 to 7 and 8 to 11 are at one leaf each.
func TestChoose(t *testing.T) {
	rails := "name: t\nfabric: {topology: rail-optimized, params: {servers: 4, rails: 2, spines: 1}}\n" +
		"nodes: {default: {ranks: 2}}\n"
	for _, c := range []struct {
		name, file, policy string
		count              int
		taken, want        []int
	}{
		{"packed fills a leaf", leafSpine, spec.PlacementPacked, 4, nil, []int{0, 1, 2, 3}},
		{"packed goes where it fits", leafSpine, spec.PlacementPacked, 4, []int{1}, []int{4, 5, 6, 7}},
		{"packed leaves the least over", leafSpine, spec.PlacementPacked, 2, []int{4, 5}, []int{6, 7}},
		{"packed on two leaves", leafSpine, spec.PlacementPacked, 6, []int{0, 8}, []int{4, 5, 6, 7, 1, 2}},
		{"spread", leafSpine, spec.PlacementSpread, 4, nil, []int{0, 4, 8, 1}},
		{"spread around others", leafSpine, spec.PlacementSpread, 4, []int{0, 4, 8, 1}, []int{2, 5, 9, 3}},
		{"where nobody is", leafSpine, spec.PlacementNonIdleAware, 2, []int{0, 1}, []int{4, 5}},
		{"where few are", leafSpine, spec.PlacementNonIdleAware, 2, []int{0, 1, 4, 8, 9}, []int{5, 6}},
		{"packed by server", rails, spec.PlacementPacked, 4, nil, []int{0, 1, 2, 3}},
		{"a rank of each server", rails, spec.PlacementSpread, 4, nil, []int{0, 2, 4, 6}},
		{"by rail", rails, spec.PlacementRailAware, 4, nil, []int{0, 2, 4, 6}},
		{"by the other rail", rails, spec.PlacementRailAware, 4, []int{0}, []int{1, 3, 5, 7}},
	} {
		taken := map[int]string{}
		for _, rank := range c.taken {
			taken[rank] = "other"
		}
		got, err := Choose(plantest.Compile(t, c.file), c.policy, c.count, taken)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

func TestChooseRefuses(t *testing.T) {
	p := plantest.Compile(t, leafSpine)
	if _, err := Choose(p, spec.PlacementSpread, 12, map[int]string{3: "a"}); err == nil ||
		!strings.Contains(err.Error(), "the testbed has 12, of which other jobs use 1") {
		t.Errorf("%v", err)
	}
	if _, err := Choose(p, "anywhere", 2, nil); err == nil {
		t.Error("an unknown policy is taken")
	}
}
