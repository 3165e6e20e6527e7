package runner

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
)

// schemaLine makes editors complete and check a file, so many folders below the
// root.
func schemaLine(depth int) string {
	return "# yaml-language-server: $schema=" + strings.Repeat("../", depth) +
		"plan/spec/railbed.schema.json\n"
}

// TestLibrary runs the files of the library and checks that each does what it says. A machine that
// is too busy for a scenario's rates makes the verdict OVERLOADED, or INCONCLUSIVE if its captures
// lost packets. The cause is then the machine and not the file, and a test that runs beside others
// cannot require more.
//
// A failure is not allowed if the emulation more or less kept up: soft switches that see packets
// tens of milliseconds late have other queues than the file's.
func TestLibrary(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	for i, path := range libraryFiles(t) {
		if !hosttest.Sampled(t, i) {
			continue
		}
		if slices.ContainsFunc(load(t, path).File.Steps, runsRailbed) {
			continue // this program is not the railbed command; package cli runs these
		}
		t.Run(strings.TrimPrefix(path, "../"), func(t *testing.T) { keepsItsWord(t, load(t, path)) })
	}
}

// libraryFiles returns the paths of the files that TestLibrary runs.
func libraryFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../*.yaml")
	for _, folder := range []string{"roce", "collectives", "training", "stacks", "messages"} {
		if more, _ := filepath.Glob("../" + folder + "/*.yaml"); err == nil {
			files = append(files, more...)
		}
	}
	if err != nil || len(files) < 5 {
		t.Fatalf("%d scenario files, %v", len(files), err)
	}
	files = append(files, "../faults/nth-loss.yaml", "../faults/stale-replay.yaml")
	slices.Sort(files)
	return files
}

// TestLibraryControls proves the controls of all files of the library, and runs the files with them. A file
// that passes without its treatment has no check that proves the treatment.
func TestLibraryControls(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	row := 0
	for _, path := range libraryFiles(t) {
		file, err := spec.LoadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, control := range file.Controls {
			o := without(t, path, control)
			if row++; !hosttest.Sampled(t, row-1) {
				continue
			}
			t.Run(strings.TrimPrefix(path, "../")+"/"+control.String(), func(t *testing.T) {
				needStacks(t, o.File)
				r := runAll(t, t.Context(), o)
				carried(t, r)
				byCheck := slices.ContainsFunc(r.Checks, func(c report.Check) bool {
					return c.Verdict == r.Verdict
				})
				if r.Verdict != verdict.Fail && r.Verdict != verdict.Inconclusive || !byCheck {
					t.Errorf("%s: %s; want %s by a check", r.Verdict, r.Reason, verdict.Fail)
				}
			})
		}
	}
}

// without makes the options of a file without its treatment.
func without(t *testing.T, path string, control spec.Control) Options {
	t.Helper()
	file, err := spec.LoadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range control.Settings() {
		if err := file.Set(value); err != nil {
			t.Fatal(err)
		}
	}
	bed, err := file.Decode(&file.Cells[0])
	if err != nil {
		t.Fatal(err)
	}
	return optionsOf(t, bed, path)
}

// faultCells has the cell of each matrix of faults that TestFaultLibrary runs, and the program that it needs.
var faultCells = map[string]struct {
	fault string
	needs hosttest.Feature
}{
	"etcd.yaml":  {"partition", hosttest.Etcd},
	"mpi.yaml":   {"crash", hosttest.OpenMPI},
	"rdma.yaml":  {"corruption", hosttest.Testbed},
	"redis.yaml": {"crash", hosttest.Redis},
}

// TestFaultLibrary proves all cells of the files with a matrix of faults, and runs a cell of each of them.
func TestFaultLibrary(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Root)
	hosttest.Long(t)
	for i, name := range slices.Sorted(maps.Keys(faultCells)) {
		if !hosttest.Sampled(t, i) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			one, path := faultCells[name], "../faults/"+name
			hosttest.Need(t, one.needs)
			file, err := spec.LoadFile(path)
			if err != nil || len(file.Cells) != 6 {
				t.Fatalf("%s: want 6 cells: %v", path, err)
			}
			for i := range file.Cells {
				cell := &file.Cells[i]
				if bed, err := file.Decode(cell); err != nil {
					t.Error(err)
				} else if o := optionsOf(t, bed, path); cell.String() == "fault="+one.fault {
					keepsItsWord(t, o)
				}
			}
		})
	}
}

// keepsItsWord runs a file of the library.
func keepsItsWord(t *testing.T, o Options) {
	path := o.Path
	text, err := os.ReadFile(path)
	if first := schemaLine(strings.Count(path, "/")); err != nil || !strings.HasPrefix(string(text), first) {
		t.Errorf("the first line is not %s(%v)", first, err)
	}
	needGuests(t, o.Plan)
	needStacks(t, o.File)
	r := runAll(t, t.Context(), o)
	busy := r.Fidelity != nil && r.Fidelity.Verdict != report.Faithful
	switch {
	case r.Verdict == verdict.Pass:
	case tooBusy(r) && slices.ContainsFunc(r.Checks, failed) &&
		!slices.ContainsFunc(r.Checks, failedForGood):
		t.Skip("cannot run here: the machine is too busy")
	case busy && (r.Verdict == verdict.Overloaded || r.Verdict == verdict.Inconclusive):
		t.Logf("%s on this busy machine: %s", r.Verdict, r.Reason)
	default:
		want(t, r, verdict.Pass)
	}
	for _, c := range r.Checks {
		if failed(c) {
			t.Errorf("%s: %s", c.Name, c.Summary)
		}
	}
}

func runsRailbed(s spec.Step) bool { return s.Exec != nil && s.Exec.Command[0] == supervisor.Command }

// needGuests skips a scenario that the host cannot run: the library's all run
// without, but for virtual machines and what runs in them.
func needGuests(t *testing.T, p *plan.Plan) {
	t.Helper()
	for _, need := range p.Requires {
		switch need.Feature {
		case plan.QEMU, plan.VMKernel:
			hosttest.Need(t, hosttest.Root, hosttest.VM) // an ordinary user's guests are the same
		case plan.Tap:
			hosttest.Need(t, hosttest.Tap)
		case "perftest":
			hosttest.Need(t, hosttest.Perftest)
		case spec.FRR:
			hosttest.Need(t, hosttest.Root, hosttest.FRR)
		}
	}
}

// stackFeatures maps the kind of a stack in files to the feature that tests of it need.
var stackFeatures = map[string]hosttest.Feature{
	spec.OpenMPI: hosttest.OpenMPI, spec.MPICH: hosttest.MPICH, spec.UCX: hosttest.UCX,
	spec.Libfabric: hosttest.Libfabric,
	spec.IPerf3:    hosttest.IPerf3, spec.Redis: hosttest.Redis, spec.PyTorch: hosttest.PyTorch,
	spec.Perftest: hosttest.Perftest,
}

// needStacks skips a scenario of a stack that the host lacks.
func needStacks(t *testing.T, file *spec.Testbed) {
	t.Helper()
	for _, step := range file.Steps {
		if step.Stack == nil {
			continue
		}
		feature, known := stackFeatures[step.Stack.Kind]
		if !known {
			t.Fatalf("no feature for stacks of kind %s", step.Stack.Kind)
		}
		hosttest.Need(t, feature)
		if slices.Contains([]string{spec.OpenMPI, spec.MPICH, spec.Libfabric}, step.Stack.Kind) {
			// Their ranks never sleep, and an ordinary user's switches go after them.
			hosttest.Need(t, hosttest.Root)
		}
	}
}

func failed(c report.Check) bool {
	return c.Verdict == verdict.Fail ||
		c.Verdict == verdict.Overloaded && strings.Contains(c.Summary, "this proves nothing")
}

// failedForGood is a failure that no overload excuses: what these look at hangs on
// no time.
func failedForGood(c report.Check) bool {
	return failed(c) && slices.ContainsFunc([]string{"bytes-per-rank ", "rank-nic ", "rail-local ",
		"conservation ", "that every rd message"}, func(kind string) bool {
		return strings.HasPrefix(c.Name, kind)
	})
}
