package testbed

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"railbed/testbed/plan"
	"railbed/testbed/plan/plantest"
	"railbed/testbed/verdict"
)

// A thousand nodes fit into a limit of 20,000; what does not fit is refused with
// the numbers, before anything is made.
func TestDescriptorsAreBudgeted(t *testing.T) {
	of := func(leaves, hosts int) *plan.Plan {
		return plantest.Compile(t, fmt.Sprintf("name: t\nfabric: {topology: leaf-spine, params: {leaves: %d, spines: 8, hosts-per-leaf: %d}}\n", leaves, hosts))
	}
	thousand := of(32, 32)
	if err := checkDescriptors(thousand, 20_000); err != nil {
		t.Error(err)
	}
	err := checkDescriptors(thousand, 4096)
	if !errors.Is(err, verdict.ErrUnsupported) || !strings.Contains(err.Error(), "1024 nodes take up to ") || !strings.Contains(err.Error(), "the limit is 4096") {
		t.Errorf("a limit of 4096: %v", err)
	}
	if err := checkDescriptors(of(4, 4), 4096); err != nil {
		t.Error(err)
	}
}
