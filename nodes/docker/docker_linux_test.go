package docker

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"railbed/internal/hosttest"
	"railbed/internal/hosttest/dockertest"
	"railbed/internal/reexec"
	"railbed/nodes"
	"railbed/nodes/nodestest"
	"railbed/plan"
	"railbed/plan/spec"
)

func TestMain(m *testing.M) {
	reexec.Run(reexec.Parts{Part: Main})
	if err := reexec.CloseInherited(3); err != nil {
		panic(err)
	}
	os.Exit(hosttest.Main(m))
}

// programs are the programs that the conformance suite runs in nodes.
var programs = []string{
	"sh", "hostname", "cat", "getent", "wc", "tr", "cut", "ls", "stat", "setsid", "readlink", "sleep", "tee",
	"pwd", "true", "grep", "id",
}

func TestDocker(t *testing.T) {
	engine := dockertest.Start(t)
	r := newRuntime(t)
	base := spec.Container{RootFS: dockertest.Root(t, programs...)}
	t.Run("Conformance", func(t *testing.T) {
		nodestest.Run(t, func(t *testing.T, name string) nodes.Node {
			return makeNode(t, r, name, base)
		}, nodestest.Options{Few: true, NoProgram: r.program.dir == ""})
	})
	t.Run("Settings", func(t *testing.T) { settingsHold(t, r, base) })
	t.Run("Dockerfile", func(t *testing.T) { builds(t, r, engine, base) })
	t.Run("Health", func(t *testing.T) { waitsForHealth(t, r, base) })
	t.Run("Refused", func(t *testing.T) { refused(t, r, engine, base) })
}

func newRuntime(t *testing.T) *Runtime {
	t.Helper()
	r, err := New(t.Context(), Options{RunDir: t.TempDir(), Base: "."})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// TestPodman is the same suite with Podman's service.
func TestPodman(t *testing.T) {
	dockertest.StartPodman(t)
	r := newRuntime(t)
	base := spec.Container{RootFS: dockertest.Root(t, programs...)}
	nodestest.Run(t, func(t *testing.T, name string) nodes.Node {
		return makeNode(t, r, name, base)
	}, nodestest.Options{Few: true, NoProgram: r.program.dir == ""})
}

// makeNode makes a node without NICs.
func makeNode(t *testing.T, r *Runtime, name string, c spec.Container) nodes.Node {
	t.Helper()
	node, err := tryNode(t, r, plan.Node{Name: name, Container: &c})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func tryNode(t *testing.T, r *Runtime, n plan.Node) (nodes.Node, error) {
	t.Helper()
	n.MachineID = fmt.Sprintf("%032x", int(n.Name[0]))
	config := nodes.Config{
		Testbed: "test", Hosts: []plan.HostEntry{{Addr: netip.MustParseAddr("10.0.0.1"), Name: "a"}},
		Node: n,
	}
	namespace, err := r.Open(t.Context(), config)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { namespace.Close() })
	config.Namespace = namespace
	return r.Create(t.Context(), config)
}
