package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

var wrongGuestFiles = []wrongFile{
	{"modules without a kernel", leafSpineFile("nodes:", "  default: {modules: [sch_netem]}",
		"  h0: {runtime: vm}"), []string{
		`f:6:13: modules need a kernel of the node's own, and node h1 uses the host's kernel; add runtime: vm, or remove modules`}},
	{"no module's name", leafSpineFile("nodes:", "  h0: {runtime: vm, modules: [sch_netem, ../x]}"), []string{
		`f:6:42: invalid module "../x"; want a name such as sch_netem`}},
	{"little memory", leafSpineFile("nodes:", `  "h[0-1]": {runtime: vm, memory: 64MiB}`), []string{
		`f:6:35: memory of h0 is 64MiB, too little for its kernel to boot; want at least 256MiB, or remove memory for the default 512MiB`}},
}

// TestGuests checks the host features that virtual machines need, at the first one. The modules of
// a node's own entry override the modules of the pattern.
func TestGuests(t *testing.T) {
	p, err := compileText(leafSpineFile("nodes:", `  "h[1-2]": {runtime: vm, modules: [a, b]}`,
		"  h2: {modules: [c], cpu: 2.5, memory: 300MiB}"))
	if err != nil {
		t.Fatal(err)
	}
	const reason, where = "node h1 is a virtual machine", "f:6:23"
	want := []Requirement{{QEMU, reason, where, false}, {VMKernel, reason, where, false}, {Tap, reason,
		where, false}}
	if diff := cmp.Diff(want, p.Requires); diff != "" {
		t.Error(diff)
	}
	guests := []Guest{{"h1", 1, DefaultGuestMemory, []string{"a", "b"}}, {"h2", 3, 300 << 20, []string{"c"}}}
	if diff := cmp.Diff(guests, p.Guests()); diff != "" {
		t.Error(diff)
	}
	for i, modules := range [][]string{nil, {"a", "b"}, {"c"}, nil} {
		if n := p.Nodes[i]; !cmp.Equal(n.Modules, modules) || (n.Runtime == "vm") != (i == 1 || i == 2) {
			t.Errorf("%s has runtime %s and modules %v", n.Name, n.Runtime, n.Modules)
		}
	}
}
