package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// outcome is the result of a command line.
type outcome struct {
	code           int
	stdout, stderr string
}

// overloadedTries is how often a command that judges a run is tried on a host whose hypervisor takes the
// CPUs from it for a time.
const overloadedTries = 5

// do runs the railbed command in a process of its own. A run that is OVERLOADED is made again.
func do(t *testing.T, args ...string) (got outcome) {
	t.Helper()
	if args[0] == "run" || args[0] == "up" {
		hosttest.Long(t)
	}
	for range overloadedTries {
		if got = once(t, args...); got.code != verdict.ExitOverloaded || args[0] != "run" {
			break
		}
	}
	return got
}

func once(t *testing.T, args ...string) outcome {
	t.Helper()
	cmd := command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("railbed %q: %v", args, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// must fails the test unless the command line exits with 0.
func must(t *testing.T, args ...string) outcome {
	t.Helper()
	got := do(t, args...)
	if got.code != 0 {
		t.Fatalf("railbed %q: exit %d\n%s%s", args, got.code, got.stdout, got.stderr)
	}
	return got
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "testbed.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func twoHosts(name string) string {
	return fmt.Sprintf("name: %s\nfabric: {topology: single-switch, params: {hosts: 2}}\n", name)
}

// twoHostsOn is twoHosts on a switch of a kind.
func twoHostsOn(name, kind string) string {
	return strings.Replace(twoHosts(name), "hosts: 2}", "hosts: 2}, switch: {kind: "+kind+"}", 1)
}

// noTrace fails the test when the testbed left anything in file systems.
func noTrace(t *testing.T, name string) {
	t.Helper()
	dir, err := rundir.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left", dir.Path)
	}
	if names, _ := filepath.Glob("/run/netns/" + name + "-*"); len(names) > 0 {
		t.Errorf("names are left: %v", names)
	}
}

func TestUpExecDown(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	const name = "cli-up"
	file := writeFile(t, twoHosts(name))
	up := must(t, "up", file)
	t.Cleanup(func() {
		must(t, "down", name)
		noTrace(t, name)
	})
	if !strings.HasPrefix(up.stdout, name+": up in ") ||
		!strings.HasSuffix(up.stdout, ": 2 nodes, 1 switch, 2 links\n") {
		t.Errorf("up printed %q", up.stdout)
	}
	if ping := must(t, "exec", "h0", "-t", name, "--", "ping", "-c1", "h1"); !strings.Contains(ping.stdout,
		" 0% packet loss") {
		t.Errorf("ping printed %q", ping.stdout)
	}
	if got := do(t, "exec", "h0", "-t", name, "--", "sh", "-c",
		"echo out; echo err >&2; exit 7"); got != (outcome{7, "out\n", "err\n"}) {
		t.Errorf("exec: %+v, want exit 7 with both outputs apart", got)
	}
	if got := do(t, "exec", "h0", "-t", name, "--", "no-such-program"); got.code != 127 {
		t.Errorf("exec of nothing: exit %d, want 127", got.code)
	}
	if got := do(t, "exec", "h9", "-t", name, "--", "true"); got.code == 0 ||
		!strings.Contains(got.stderr, "h0, h1") {
		t.Errorf("exec in no node: exit %d, %q; want the nodes named", got.code, got.stderr)
	}
	if got := do(t, "exec", "leaf1", "-t", name, "--", "true"); got.code == 0 ||
		!strings.Contains(got.stderr, "leaf1 is a switch, and programs run in nodes, such as h0, h1") {
		t.Errorf("exec in a switch: exit %d, %q", got.code, got.stderr)
	}
	shellOfAScript(t, name)
	if again := must(t, "up", file); !strings.Contains(again.stdout, "up already, verified") {
		t.Errorf("second up printed %q", again.stdout)
	}
	other := writeFile(t, twoHosts(name)+"seed: 99\n")
	if got := do(t, "up", other); got.code != verdict.ExitUsage ||
		!strings.Contains(got.stderr, "another plan") ||
		!strings.Contains(got.stderr, "seed 1, want 99") ||
		!strings.Contains(got.stderr, "railbed down "+name) {
		t.Errorf("up of another plan: exit %d, %q", got.code, got.stderr)
	}
	three := writeFile(t, strings.Replace(twoHosts(name), "hosts: 2", "hosts: 3", 1))
	if got := do(t, "up", three); got.code != verdict.ExitUsage ||
		!strings.Contains(got.stderr, "node h2: added") ||
		!strings.Contains(got.stderr, "link h2--leaf1: added") {
		t.Errorf("up with another host: exit %d, %q", got.code, got.stderr)
	}
	must(t, "inspect", name, "--verify")
}

// shellOfAScript gives a shell commands on standard input that is no terminal. The shell runs them without a
// prompt, and ends with their exit code.
func shellOfAScript(t *testing.T, name string) {
	t.Helper()
	cmd := command("shell", "h0", "-t", name)
	cmd.Stdin = strings.NewReader("read line\nwords for read\necho $line from $RAILBED_NODE; exit 7\n" +
		"echo more\n")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	got := outcome{cmd.ProcessState.ExitCode(), string(out), stderr.String()}
	if got != (outcome{7, "words for read from h0\n", ""}) {
		t.Errorf("%v: %+v", err, got)
	}
}

// TestRemedies: errors of the command line name what would be right.
func TestRemedies(t *testing.T) {
	for line, want := range map[string]string{
		"exec h0 ping -c1 h7":           "put -- before the command that runs in the node: railbed exec NODE",
		"run --outt x f.yaml":           "unknown flag: --outt; did you mean --out?",
		"up --entirely-unknown":         "railbed up --help lists the flags",
		"valdate":                       "did you mean validate?",
		"generate leafspine":            `did you mean "leaf-spine"?`,
		"verify ../scenarios/ipv6.yaml": "railbed run ../scenarios/ipv6.yaml",
	} {
		got := do(t, strings.Fields(line)...)
		if got.code != verdict.ExitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: exit %d, %q, want %q", line, got.code, got.stderr, want)
		}
	}
}

func TestDownOfNothing(t *testing.T) {
	if got := do(t, "down", "cli-nothing"); got.code != 0 || got.stderr != "cli-nothing: not up\n" {
		t.Errorf("down of nothing: %+v", got)
	}
}

// TestWrongFileLeavesNothing and exits with 2, with a position.
func TestWrongFileLeavesNothing(t *testing.T) {
	file := writeFile(t, "name: cli-wrong\nfabric: {topology: leaf-spin}\n")
	for _, verb := range []string{"up", "run", "plan", "validate", "graph"} {
		got := do(t, verb, file)
		if got.code != verdict.ExitUsage || !strings.Contains(got.stderr+got.stdout, file+":2:20: ") {
			t.Errorf("%s: exit %d, %q; want exit 2 and line 2, column 20", verb, got.code, got.stderr)
		}
	}
	noTrace(t, "cli-wrong")
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"up"}, {"up", "a", "b"}, {"exec", "h0"}, {"link", "set"}, {"link", "sideways"}, {"no-such-verb"},
		{"help", "no-such-verb"}, {"help", "link", "sideways"}, {"help", "up", "x"},
		{"up", "--no-such-flag", "x"},
		{"ls", "-o", "xml"}, {"capture", "-t", "cli-nothing", "-w", "x"},
		{"exec", "h0", "-t", "cli-nothing", "--", "true"},
		{"up", "/no/such/file.yaml"}, {"up", "../scenarios/quickstart.yaml", "--name", "../x"},
	} {
		if got := do(t, args...); got.code != verdict.ExitUsage || got.stderr == "" {
			t.Errorf("railbed %q: exit %d, %q; want exit 2 and a reason", args, got.code, got.stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	for args, want := range map[string]string{"help": "Available Commands", "help up": "railbed up FILE",
		"help link down": "railbed link down LINK", "help help": "railbed help"} {
		if got := do(t, strings.Fields(args)...); got.code != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("railbed %s: exit %d, want %q in\n%s%s", args, got.code, want, got.stdout, got.stderr)
		}
	}
	if got := do(t, "help", "no-such-verb"); !strings.Contains(got.stderr,
		`unknown command "no-such-verb" of railbed`) {
		t.Errorf("help of nothing printed %q", got.stderr)
	}
}

// TestLsShowsWhoDoesNotAnswer lists a testbed that does not answer beside a testbed that does.
func TestLsShowsWhoDoesNotAnswer(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Testbed)
	const silent, well = "cli-silent", "cli-well"
	for _, name := range []string{silent, well} {
		must(t, "up", writeFile(t, twoHosts(name)))
		t.Cleanup(func() { must(t, "down", name) })
	}
	pid := supervisorOf(silent)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	got := must(t, "ls")
	row := regexp.MustCompile(`(?m)^cli-silent +- .*no answer`)
	if !row.MatchString(got.stdout) || !strings.Contains(got.stdout, "\n"+well+" ") ||
		!strings.Contains(got.stderr, silent) {
		t.Errorf("ls printed\n%s%s", got.stdout, got.stderr)
	}
	var all []struct{ Name, State, Error string }
	if err := json.Unmarshal([]byte(must(t, "ls", "-o", "json").stdout), &all); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, one := range all {
		states[one.Name] = one.State
		if (one.State == "no answer") != (one.Error != "") {
			t.Errorf("ls -o json: %+v", one)
		}
	}
	if states[silent] != "no answer" || states[well] != "up" {
		t.Errorf("ls -o json: %v", states)
	}
}

// TestUnsupported asks for a delay where there is no netem.
func TestUnsupported(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	if do(t, "doctor", "netem").code == 0 {
		t.Skip("cannot run here: the host has netem")
	}
	const name = "cli-netem"
	file := writeFile(t, fmt.Sprintf("name: %s\nfabric:\n  topology: single-switch\n  params: {hosts: 2}\n "+
		" links: {default: {delay: 5us}}\n  switch: {kind: router}\n", name))
	got := do(t, "up", file)
	if got.code != verdict.ExitUnsupported || !strings.Contains(got.stderr, "netem") ||
		!strings.Contains(got.stderr, file+":5:") {
		t.Errorf("up: exit %d, %q; want exit 3, the feature and the place", got.code, got.stderr)
	}
	noTrace(t, name)
}

// TestKilledTestbedIsSwept leaves a dead testbed to gc, beside a live one and
// names that are not Railbed's.
func TestKilledTestbedIsSwept(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Netns)
	for _, kind := range []string{"soft", "router"} {
		t.Run(kind, func(t *testing.T) { sweptOf(t, kind) })
	}
}

func sweptOf(t *testing.T, kind string) {
	dead, live := "cli-dead-"+kind, "cli-live-"+kind
	must(t, "up", writeFile(t, twoHostsOn(dead, kind)))
	must(t, "up", writeFile(t, twoHosts(live)))
	t.Cleanup(func() {
		must(t, "down", live)
		noTrace(t, live)
	})
	foreign := "/run/netns/" + dead + "-foreign"
	if err := os.Symlink("/proc/1/nowhere", foreign); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(foreign) })
	pid := supervisorOf(dead)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, "the end of the supervisor", func() bool { return !alive(pid) })
	dry := must(t, "gc", "--dry-run")
	if _, err := os.Lstat("/run/netns/" + dead + "-h0"); err != nil {
		t.Errorf("gc --dry-run removed something: %v", err)
	}
	swept := must(t, "gc")
	left := []string{"/run/netns/" + dead + "-h0", "/run/railbed/" + dead}
	if kind == "router" { // soft switches have no namespace
		left = append(left, "/run/netns/"+dead+"-leaf1")
	}
	for _, path := range left {
		if !strings.Contains(dry.stdout, "would remove "+path+"\n") ||
			!strings.Contains(swept.stdout, "removed "+path+"\n") {
			t.Errorf("gc does not name %s: %q and %q", path, dry.stdout, swept.stdout)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left", path)
		}
	}
	if _, err := os.Lstat(foreign); err != nil {
		t.Errorf("gc removed what is not Railbed's: %v", err)
	}
	if strings.Contains(swept.stdout, live) {
		t.Errorf("gc touched a live testbed: %q", swept.stdout)
	}
	must(t, "exec", "h0", "-t", live, "--", "true")
	if output, err := exec.Command("ip", "netns", "exec", live+"-h0", "true").CombinedOutput(); err != nil {
		t.Errorf("ip netns exec: %v: %s", err, output)
	}
}

// TestTakenNameStays brings a testbed up whose name for ip-netns is somebody
// else's already.
func TestTakenNameStays(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Netns)
	const name = "cli-taken"
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		t.Fatal(err)
	}
	taken := "/run/netns/" + name + "-h0"
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(taken) })
	must(t, "up", writeFile(t, twoHosts(name)))
	must(t, "exec", "h0", "-t", name, "--", "true")
	must(t, "down", name)
	if info, err := os.Lstat(taken); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the taken name: %v, error %v", info, err)
	}
}

func TestCaptureAndEvents(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping, hosttest.Tshark)
	const name = "cli-capture"
	must(t, "up", writeFile(t, twoHosts(name)))
	t.Cleanup(func() { must(t, "down", name) })
	path := filepath.Join(t.TempDir(), "all.pcapng")
	recording := command("capture", "-t", name, "-w", path, "--filter", "icmp")
	stderr, err := recording.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := recording.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 256)
	if n, err := stderr.Read(line); err != nil || !strings.HasPrefix(string(line[:n]), "recording") {
		t.Fatalf("capture said %q, error %v", line[:n], err)
	}
	must(t, "exec", "h0", "-t", name, "--", "ping", "-4", "-c3", "-i0.1", "h1")
	if err := recording.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := recording.Wait(); err != nil {
		t.Errorf("capture: %v", err)
	}
	output, err := exec.Command("tshark", "-r", path, "-T", "fields", "-e", "frame.interface_name", "-e",
		"icmp.type").Output()
	if err != nil {
		t.Fatal(err)
	}
	// Three requests and three replies, each at four taps.
	for _, want := range []string{"h0:eth0\t8\n", "h0:eth0\t0\n", "h1:eth0\t8\n", "leaf1:p0\t8\n",
		"leaf1:p1\t0\n"} {
		if got := strings.Count(string(output), want); got != 3 {
			t.Errorf("tshark shows %q %d times, want 3:\n%s", want, got, output)
		}
	}
	events := must(t, "events", "-t", name, "-o", "json")
	for _, kind := range []string{`"testbed.up"`, `"capture.start"`, `"capture.stop"`, `"process.exit"`} {
		if !strings.Contains(events.stdout, kind) {
			t.Errorf("no %s in %s", kind, events.stdout)
		}
	}
	for line := range strings.Lines(events.stdout) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not a line of JSON: %q", line)
		}
	}
}

// TestExecPassesSignalsOn: the first goes to the command, which answers it as
// it likes; the second ends it.
func TestExecPassesSignalsOn(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-signal"
	must(t, "up", writeFile(t, twoHosts(name)))
	t.Cleanup(func() { must(t, "down", name) })
	for _, test := range []struct {
		script  string
		signals int
		code    int
		output  string
	}{
		{`trap "echo got; exit 5" INT; echo ready; while :; do sleep 0.05; done`, 1, 5, "got\n"},
		{`trap "" INT; echo ready; while :; do sleep 0.05; done`, 2, 130, ""},
	} {
		cmd := command("exec", "h0", "-t", name, "--", "sh", "-c", test.script)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ready := make([]byte, len("ready\n"))
		if _, err := io.ReadFull(stdout, ready); err != nil {
			t.Fatal(err)
		}
		for range test.signals {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond) // two at once would be one
		}
		rest, err := io.ReadAll(stdout)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != test.code || string(rest) != test.output {
			t.Errorf("%q: exit %d, output %q; want %d and %q", test.script, code, rest, test.code,
				test.output)
		}
	}
}

// TestCaptureThatCannotStart leaves an earlier file as it is.
func TestCaptureThatCannotStart(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-evidence"
	must(t, "up", writeFile(t, twoHosts(name)))
	t.Cleanup(func() { must(t, "down", name) })
	path := filepath.Join(t.TempDir(), "evidence.pcapng")
	if err := os.WriteFile(path, []byte("evidence"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := do(t, "capture", "nosuchtap", "-t", name, "-w", path); got.code != verdict.ExitUsage {
		t.Errorf("exit %d, want 2: %s", got.code, got.stderr)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "evidence" {
		t.Errorf("the file holds %q, error %v", text, err)
	}
}
