package cli_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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

// TestRunWithoutWhatItNeeds: scenarios of virtual machines, and of programs in them,
// say what to install on a host that has it not, and make nothing.
func TestRunWithoutWhatItNeeds(t *testing.T) {
	files, err := filepath.Glob("../../scenarios/roce/rxe*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	folder := t.TempDir()
	for _, c := range []struct{ missing, remedy string }{{"perftest", "apt-get install perftest"}, {"qemu", "apt-get install qemu-system-x86"}} {
		for _, file := range files {
			results := filepath.Join(t.TempDir(), "results")
			cmd := command("run", file, "--out", results)
			cmd.Env = []string{"PATH=" + folder}
			output, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != verdict.ExitUnsupported || !strings.Contains(string(output), c.missing+": unsupported here") || !strings.Contains(string(output), c.remedy) {
				t.Errorf("%s without %s: %v\n%s", file, c.missing, err, output)
			}
			if text, err := os.ReadFile(filepath.Join(results, "report.json")); err != nil || !strings.Contains(string(text), `"UNSUPPORTED"`) {
				t.Errorf("%s without %s: report %.100s, %v", file, c.missing, text, err)
			}
		}
		if err := os.Symlink(os.Args[0], filepath.Join(folder, "ib_write_bw")); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
}
