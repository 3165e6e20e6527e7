package fabric

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"railbed/fabric/link"
	"railbed/fabric/softswitch/live"
	"railbed/internal/kernel"
	"railbed/internal/reexec"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// The tests measure rates and durations.
var _ = hosttest.MarkPackage(hosttest.Alone, hosttest.AsNobody)

func TestMain(m *testing.M) {
	reexec.Run(live.Parts())
	os.Exit(hosttest.MainInUserNS(m))
}

// calibration is one for all tests: measuring takes a second for each shape.
var calibration = sync.OnceValues(func() (*link.Calibration, error) {
	if kept := os.Getenv("RAILBED_TEST_CALIBRATION"); kept != "" {
		// for profiling: measure once for many runs
		return link.LoadCalibration(kept)
	}
	dir, err := os.MkdirTemp("", "fabric-test")
	if err != nil {
		return nil, err
	}
	return link.LoadCalibration(filepath.Join(dir, "calibration.json"))
})

func testCalibration(t testing.TB) *link.Calibration {
	t.Helper()
	c, err := calibration()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// leafSpine is a fabric whose links are slow enough for a busy machine to
// calibrate them at once.
func leafSpine(t testing.TB, leaves, spines, hosts int) *plan.Plan {
	t.Helper()
	return plantest.Compile(t, leafSpineFile(leaves, spines, hosts))
}

func leafSpineFile(leaves, spines, hosts int) string {
	return fmt.Sprintf("name: t\nfabric: {topology: leaf-spine, params: {leaves: %d, spines: %d, "+
		"hosts-per-leaf: %d}, switch: {kind: router}, links: {default: {rate: 100mbit}}}\n", leaves, spines,
		hosts)
}

// namespaces makes one namespace for each node and switch of a plan.
func namespaces(t testing.TB, p *plan.Plan) map[string]*kernel.Namespace {
	t.Helper()
	all := map[string]*kernel.Namespace{}
	add := func(name string) {
		ns, err := kernel.NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ns.Close() })
		all[name] = ns
	}
	for _, name := range Namespaces(p) {
		add(name)
	}
	return all
}

// build builds a plan and closes it when the test ends.
func build(t testing.TB, p *plan.Plan) (*Fabric, map[string]*kernel.Namespace) {
	t.Helper()
	ns := namespaces(t, p)
	f, err := Build(context.Background(), p, ns, Options{Calibration: testCalibration(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, ns
}

// in runs a command in a namespace and returns what it prints.
func in(t testing.TB, ns *kernel.Namespace, command ...string) (string, error) {
	t.Helper()
	var output []byte
	err := ns.Do(func() (err error) {
		output, err = exec.Command(command[0], command[1:]...).CombinedOutput()
		return err
	})
	return string(output), err
}
