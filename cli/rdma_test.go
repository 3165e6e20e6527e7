package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/testbed"
	"railbed/testbed/doctor"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/vmtest"
)

// TestRDMAOfTheHost: the plan says what a NIC's RDMA device is, and up says what
// brings it where the host's kernel has it not.
func TestRDMAOfTheHost(t *testing.T) {
	file := writeFile(t, smallFile+"nodes: {h1: {rdma: rxe}, h0: {runtime: vm}}\n")
	printed := must(t, "plan", file).stdout
	for _, want := range []string{"VIRTUAL MACHINE  PROCESSORS  MEMORY  MODULES\nh0                        " +
		"1  512MiB\n", "RDMA DEVICE", "  h1    eth0  rxe       1024\n",
		"needs rdma-rxe: node h1 has rdma: rxe and the host's kernel (" + file + ":3:20)"} {
		if !strings.Contains(printed, want) {
			t.Errorf("plan lacks %q:\n%s", want, printed)
		}
	}
	if doctor.Has(t.Context(), plan.RDMARXE) == nil {
		t.Skip("cannot run here: the host's kernel has it")
	}
	code, _, errs := railbed("", "up", file)
	if code != verdict.ExitUnsupported || !strings.Contains(errs, "rdma-rxe") ||
		!strings.Contains(errs, "runtime: vm") || !strings.Contains(errs, file+":3:20") {
		t.Errorf("code %d, %s", code, errs)
	}
}

// TestRunWithoutWhatItNeeds: scenarios of virtual machines, and of programs in them,
// say what to install on a host that has it not, and make nothing.
func TestRunWithoutWhatItNeeds(t *testing.T) {
	files, err := filepath.Glob("../scenarios/roce/rxe*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	folder := t.TempDir()
	for _, c := range []struct{ missing, remedy string }{{"perftest", "apt-get install perftest"},
		{"qemu", "apt-get install qemu-system-x86"}} {
		for _, file := range files {
			results := filepath.Join(t.TempDir(), "results")
			cmd := command("run", file, "--out", results)
			cmd.Env = []string{"PATH=" + folder}
			output, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != verdict.ExitUnsupported ||
				!strings.Contains(string(output), c.missing+": unsupported here") ||
				!strings.Contains(string(output), c.remedy) {
				t.Errorf("%s without %s: %v\n%s", file, c.missing, err, output)
			}
			if text, err := os.ReadFile(filepath.Join(results, "report.json")); err != nil ||
				!strings.Contains(string(text), `"UNSUPPORTED"`) {
				t.Errorf("%s without %s: report %.100s, %v", file, c.missing, text, err)
			}
		}
		if err := os.Symlink(os.Args[0], filepath.Join(folder, "ib_write_bw")); err != nil &&
			!errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
}

// TestRDMAPerNamespace uses rdma: rxe in nodes with the host's kernel, which is a guest's kernel
// here. A kernel with rdma_rxe per network namespace carries verbs between the nodes. For an older
// kernel doctor reports the missing feature.
func TestRDMAPerNamespace(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Root, hosttest.Verbs)
	if !vmtest.InGuest(t, vmtest.Options{Modules: []string{"veth", "sch_tbf", "overlay", "rdma_rxe",
		"rdma_ucm"}, Timeout: 5 * time.Minute}) {
		return
	}
	lacks := func(reason string) {
		t.Helper()
		found := do(t, "doctor", plan.RDMARXE, "-o", "json")
		if !strings.Contains(found.stdout, reason) || !strings.Contains(found.stdout, "runtime: vm") {
			t.Errorf("doctor prints, with code %d, and not %q\n%s", found.code, reason, found.stdout)
		}
	}
	mode := func(mode string) {
		t.Helper()
		if output, err := exec.Command("rdma", "system", "set", "netns", mode).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	mode("exclusive")
	lacks("netns exclusive")
	mode("shared")
	var major, minor int
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(release), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	if major < 7 || major == 7 && minor < 1 {
		lacks("Linux 7.1")
		return
	}
	const name = "cli-rdma"
	file := writeFile(t, "name: "+name+`
fabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: router}, links: {default: {rate: 2mbit}}}
nodes: {default: {rdma: rxe}}
`)
	must(t, "up", file)
	t.Cleanup(func() {
		must(t, "down", name)
		noTrace(t, name)
	})
	must(t, "inspect", "--verify", name)
	_, p, err := testbed.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	devices := p.RDMADevices()
	served := make(chan outcome)
	go func() {
		served <- do(t, "exec", "h1", "-t", name, "--", "ibv_rc_pingpong", "-d", devices[1].Name, "-g1",
			"-n20", "-c")
	}()
	must(t, "exec", "h1", "-t", name, "--", "sh", "-c",
		"until grep -q ':4853 .* 0A ' /proc/net/tcp; do sleep 0.1; done")
	said := must(t, "exec", "h0", "-t", name, "--", "ibv_rc_pingpong", "-d", devices[0].Name, "-g1", "-n20",
		"-c", "h1")
	if server := <-served; server.code != 0 || !strings.Contains(said.stdout, "20 iters in") {
		t.Errorf("%s%s%s", said.stdout, server.stdout, server.stderr)
	}
}

// TestRxeToOurs runs the scenario in which nodes run this program, too. A busy machine
// may be too slow for its rates, which is not the point.
func TestRxeToOurs(t *testing.T) {
	hosttest.Long(t)
	// an ordinary user's guests are the same
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.VM, hosttest.Tap, hosttest.Perftest)
	results := filepath.Join(t.TempDir(), "results")
	output, err := command("run", "../scenarios/roce/rxe-to-ours.yaml", "--out", results).CombinedOutput()
	text, wrong := os.ReadFile(filepath.Join(results, "report.json"))
	var r report.Report
	if wrong = errors.Join(wrong, json.Unmarshal(text, &r)); wrong != nil {
		t.Fatalf("%v, %v\n%s", wrong, err, output)
	}
	if r.Verdict != verdict.Pass && r.Verdict != verdict.Overloaded {
		t.Errorf("%s: %s\n%s", r.Verdict, r.Reason, output)
	}
	for _, c := range r.Checks {
		if c.Verdict != verdict.Pass {
			t.Errorf("%s: %s, %s", c.Name, c.Verdict, c.Summary)
		}
	}
	if len(r.Checks) != 5 {
		t.Errorf("%d checks, want 5", len(r.Checks))
	}
}
