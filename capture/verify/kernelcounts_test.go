package verify

import (
	"math/rand/v2"
	"slices"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/testkit/verifytest"
)

// kernelSpecimens are runs in which the counts of kernel switches, and not the recording, show the losses.
var kernelSpecimens = map[string]func(*testing.T, bool) (*verifytest.Scene, func() evidence.Check){
	"drops, by a router's stack": specimen(`drops: {count: "== 0"}`, routers, func(s *verifytest.Scene) {
		harm(s, lose)
		harm(s, lose)
		s.Lost = map[string]uint64{"leaf1": 2}
	}),
	"drops, by a kernel queue": specimen(`drops: {count: "== 0"}`, routers, func(s *verifytest.Scene) {
		harm(s, lose)
		s.Queues["leaf1:p0"] = 1
	}),
}

func routers(t *testing.T) *verifytest.Scene { return kernelScene(t, "router", 0) }

// countless are the alterations that take away what the kernel's interfaces, queues and stacks counted.
var countless = []sabotage{
	{name: "other drops uncounted",
		amount: "the counts of drops by interfaces and by the stacks of kernel switches are missing",
		do: func(_ *tape, o *evidence.Options, _ *rand.Rand) {
			o.Lost, o.Interrupted = nil, nil
		}},
	{name: "no drops counted",
		amount: "all counts of drops by kernel switches are missing, those of queues included",
		do: func(_ *tape, o *evidence.Options, _ *rand.Rand) {
			o.Drops, o.Lost, o.Interrupted = nil, nil, nil
		}},
}

// furtherSpecimens names the specimens that are beside those of everyCheck.
func furtherSpecimens() (names []string) {
	for _, all := range []map[string]func(*testing.T, bool) (*verifytest.Scene, func() evidence.Check){
		starvedSpecimens, kernelSpecimens, fidelitySpecimens, onewaySpecimens, limitedSpecimens} {
		for name := range all {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
