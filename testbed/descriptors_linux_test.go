package testbed

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/testkit/plantest"
)

// A thousand nodes fit into a limit of 20,000; what does not fit is refused with
// the numbers, before anything is made.
func TestDescriptorsAreBudgeted(t *testing.T) {
	of := func(leaves, hosts int) *plan.Plan {
		return plantest.Compile(t, fmt.Sprintf("name: t\nfabric: {topology: leaf-spine, params: {leaves: "+
			"%d, spines: 8, hosts-per-leaf: %d}}\n", leaves, hosts))
	}
	thousand := of(32, 32)
	if err := checkDescriptors(thousand, 20_000); err != nil {
		t.Error(err)
	}
	err := checkDescriptors(thousand, 4096)
	if !errors.Is(err, verdict.ErrUnsupported) || !strings.Contains(err.Error(), "1024 nodes take up to ") ||
		!strings.Contains(err.Error(), "the limit is 4096") {
		t.Errorf("a limit of 4096: %v", err)
	}
	if err := checkDescriptors(of(4, 4), 4096); err != nil {
		t.Error(err)
	}
	// Published ports have a quarter of the limit, and the rest is enough for all else.
	ports := plantest.Compile(t, "name: t\nfabric: {topology: single-switch, params: {hosts: 2}}\nnodes: "+
		"{h0: {management: {publish: [\"18080:80\"]}}}\n")
	enough := uint64(descriptorBudget(ports)) * 4 / 3
	if err := checkDescriptors(ports, enough); err != nil {
		t.Errorf("published ports with a limit of %d: %v", enough, err)
	}
	if err := checkDescriptors(ports, enough-4); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("take up to %d descriptors", enough)) {
		t.Errorf("published ports with a limit of %d: %v", enough-4, err)
	}
}
