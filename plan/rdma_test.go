package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"railbed/plan/spec"
)

// TestRDMA checks that each NIC has a device that fits the NIC's MTU. It checks the modules that a
// guest needs in addition to the file's, and the requirements of a node without its own kernel.
func TestRDMA(t *testing.T) {
	p, err := compileText(leafSpineFile("  links: {default: {mtu: 4200}, h1--*: {mtu: 1500}, h2--*: {mtu: "+
		"4175}}", "nodes:", "  default: {rdma: rxe}",
		`  "h[0-1]": {runtime: vm, modules: [sch_netem, rdma_ucm]}`, "  h3: {rdma: none}"))
	if err != nil {
		t.Fatal(err)
	}
	devices := p.RDMADevices()
	if len(devices) != 3 {
		t.Fatalf("%+v, want three devices", devices)
	}
	shared := devices[2].Name // in the host's kernel
	if !strings.HasPrefix(shared, "rxe_eth0_") || len(shared) != len("rxe_eth0_01234567") {
		t.Errorf("the device of h2 is %q", shared)
	}
	want := []NodeRDMA{
		{RDMADevice{spec.RXE, "rxe_eth0", 4096}, "h0", "eth0"},
		{RDMADevice{spec.RXE, "rxe_eth0", 1024}, "h1", "eth0"},
		{RDMADevice{spec.RXE, shared, 2048}, "h2", "eth0"},
	}
	if diff := cmp.Diff(want, devices); diff != "" {
		t.Error(diff)
	}
	for i, modules := range [][]string{{"sch_netem", "rdma_ucm", "rdma_rxe"},
		{"sch_netem", "rdma_ucm", "rdma_rxe"}, nil, nil} {
		if n := p.Nodes[i]; !cmp.Equal(n.Modules, modules) || (n.RDMA == spec.RXE) != (i < 3) {
			t.Errorf("%s has RDMA %q and modules %v", n.Name, n.RDMA, n.Modules)
		}
	}
	const reason, where = "node h2 has rdma: rxe and the host's kernel", "f:7:19"
	if last := p.Requires[len(p.Requires)-1]; last != (Requirement{RDMARXE, reason, where, false}) ||
		len(p.Requires) != 4 {
		t.Errorf("requires %+v", p.Requires)
	}
	other, err := compileText(
		strings.Replace(leafSpineFile("nodes:", "  default: {rdma: rxe}"), "name: ", "name: other-", 1))
	if err != nil {
		t.Fatal(err)
	}
	if again := other.RDMADevices()[2].Name; again == shared {
		t.Errorf("two testbeds have a device %s in one kernel", shared)
	}
}
