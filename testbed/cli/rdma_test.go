package cli_test

import (
	"strings"
	"testing"

	"railbed/testbed/doctor"
	"railbed/testbed/plan"
	"railbed/testbed/verdict"
)

// TestRDMAOfTheHost: the plan says what a NIC's RDMA device is, and up says what
// brings it where the host's kernel has it not.
func TestRDMAOfTheHost(t *testing.T) {
	file := writeFile(t, smallFile+"nodes: {h1: {rdma: rxe}}\n")
	printed := must(t, "plan", file).stdout
	for _, want := range []string{"RDMA DEVICE", "  h1    eth0  rxe       1024\n", "needs rdma-rxe: node h1 has rdma: rxe and the host's kernel (" + file + ":3:20)"} {
		if !strings.Contains(printed, want) {
			t.Errorf("plan lacks %q:\n%s", want, printed)
		}
	}
	if doctor.Has(t.Context(), plan.RDMARXE) == nil {
		t.Skip("cannot run here: the host's kernel has it")
	}
	code, _, errs := railbed("", "up", file)
	if code != verdict.ExitUnsupported || !strings.Contains(errs, "rdma-rxe") || !strings.Contains(errs, "runtime: vm") || !strings.Contains(errs, file+":3:20") {
		t.Errorf("code %d, %s", code, errs)
	}
}
