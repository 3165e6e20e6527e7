package fabric

import (
	"context"
	"strings"
	"testing"

	"railbed/testbed/hosttest"
	"railbed/testbed/plan/plantest"
)

// Soft switches that do not start are an error that says why, and leave nothing
// in the namespaces.
func TestSoftSwitchesThatDoNotStart(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	p := plantest.Compile(t, "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: soft}}\n")
	ns := namespaces(t, p)
	good := p.Switches[0].Soft.Buffer
	p.Switches[0].Soft.Buffer = 0
	f, err := Build(context.Background(), p, ns, Options{})
	if err == nil || !strings.Contains(err.Error(), "make buffer of leaf1") {
		t.Fatalf("built %v, %v; want the switch's reason", f, err)
	}
	p.Switches[0].Soft.Buffer = good
	if f, err = Build(context.Background(), p, ns, Options{}); err != nil {
		t.Fatalf("the namespaces are not as they were: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
