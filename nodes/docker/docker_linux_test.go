package docker

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"railbed/internal/reexec"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/nodes"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/dockertest"
	"railbed/testkit/nodestest"
)

var _ = hosttest.MarkPackage(hosttest.AsNobody)

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
	"pwd", "true", "grep", "id", "uniq",
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

// TestPodman is the same suite with Podman's service, which changes limits from version 5.1.
func TestPodman(t *testing.T) {
	dockertest.StartPodman(t)
	r := newRuntime(t)
	base := spec.Container{RootFS: dockertest.Root(t, programs...)}
	nodestest.Run(t, func(t *testing.T, name string) nodes.Node {
		return makeNode(t, r, name, base)
	}, nodestest.Options{Few: true, NoProgram: r.program.dir == ""})
	node, err := tryNode(t, r, plan.Node{Name: "l", Container: &base, CPU: 0.5, Memory: 128 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, node)
	now, err := node.(*container).group(t.Context(), groupRead)
	if err != nil || now.CPU != "50000 100000" || now.Memory != 128<<20 {
		t.Errorf("limits %+v, %v", now, err)
	}
	little := units.Bytes(64 << 20)
	_, squeezed := node.(nodes.MemoryLimiter).Squeeze(&little)
	for name, err := range map[string]error{"cpu": node.(nodes.CPULimiter).SetCPU(0.1), "memory": squeezed} {
		if err == nil {
			continue
		}
		if !errors.Is(err, verdict.ErrUnsupported) ||
			!strings.HasSuffix(err.Error(), "use Docker, or Podman from 5.1") {
			t.Errorf("%s: %v", name, err)
		}
		const different = "cd /proc; cat 1/oom_score_adj self/oom_score_adj | uniq | wc -l"
		if got := said(t, node, different); got != "1" {
			t.Error("programs are killed first, without a limit")
		}
	}
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
