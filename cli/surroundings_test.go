package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

const small = "name: cli-small\nfabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: soft}}\n"

// calibrated has links whose shapers Railbed calibrates.
const calibrated = `
name: cli-calibrated
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: bridge}
  links: {default: {rate: 10mbit}}
steps:
  - exec: {nodes: [h0], command: [ping, -c1, h1]}
`

// A command whose output is lost has not ended well, whatever it found.
func TestStandardOutputOnAFullDevice(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	dir := t.TempDir()
	file, capture, results := filepath.Join(dir, "small.yaml"), filepath.Join(dir, "results/run.pcapng"),
		filepath.Join(dir, "results")
	steps := "steps:\n- capture: {at: [all], file: run.pcapng}\n- exec: {nodes: [h0], command: [ping, -c1, " +
		"h1]}\n"
	if err := os.WriteFile(file, []byte(small+steps), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "run", file, "--out", results)
	for _, args := range [][]string{
		{"validate", file}, {"validate", "-o", "json", file}, {"plan", file}, {"plan", "-o", "json", file},
		{"graph", file}, {"schema"}, {"version"},
		{"generate", "torus"}, {"dissector"}, {"report", results}, {"report", "-o", "json", results},
		{"run", file, "--out", results},
		{"verify", capture, "--testbed-file", file, "--check", "lossless: {}"},
		{"verify", "-o", "json", capture, "--mtu", "1500"},
		{"ls", "-o", "json"}, {"export", "containerlab", file}, {"--help"}, {"help", "run"},
		{"doctor", "veth"}, {"completion", "bash"},
	} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		cmd := command(args...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &said
		_ = cmd.Run() // its code is judged
		full.Close()
		if code := cmd.ProcessState.ExitCode(); code != verdict.ExitFail ||
			!strings.Contains(said.String(), "no space left on device") {
			t.Errorf("%q > /dev/full: exit code %d, %q; want code %d and why", args, code, said.String(),
				verdict.ExitFail)
		}
	}
}

// What is no regular file is refused at once wherever a command takes a file, and what
// a shell hands over is read.
func TestFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "small.yaml"), filepath.Join(dir, "fifo")
	names := map[string]string{
		"algorithm": "- workload: {name: w, kind: all-reduce, algorithm: msccl, file: fifo, transport: " +
			"tcp, size: 1KiB}",
		"sizes": "- messages: {name: w, transport: tcp, open: {count: 1, load: 10%, file: fifo}}",
		"trace": "- messages: {name: w, transport: tcp, cache: {prefill: 1, trace: fifo, layers: 1, " +
			"layer-time: 1ms, layer-bytes: 1KiB}}",
		"rates": "- workload: {name: w, kind: all-reduce, algorithm: ring, transport: rd, size: 1KiB, " +
			"rd: {control: offline, rates: fifo}}",
		"training": "- training: {name: w, transport: tcp, trace: fifo.txt}",
	}
	mustWrite := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustWrite(file, small)
	for _, path := range []string{fifo, fifo + ".txt", filepath.Join(dir, "report.json")} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cases := [][]string{
		{"validate", fifo}, {"plan", fifo}, {"run", fifo}, {"up", fifo}, {"graph", fifo}, {"report", dir},
		{"verify", fifo, "--mtu", "1500"}, {"verify", file, "--plan", fifo},
		{"verify", file, "--testbed-file", fifo}, {"verify", file, "--mtu", "1500", "--keys", fifo},
		{"verify", file, "--testbed-file", file, "--workload", fifo}, {"import", "containerlab", fifo},
		{"export", "containerlab", fifo},
		{"export", "containerlab", file, "--out", fifo}, {"export", "compose", file, "--out", dir},
		{"verify", "/dev/zero", "--mtu", "1500"}, {"validate", "/dev/zero"}, {"verify", dir, "--mtu", "1500"},
	}
	for name, step := range names {
		path := filepath.Join(dir, name+".yaml")
		mustWrite(path, small+"steps:\n"+step+"\n")
		cases = append(cases, []string{"run", path, "--out", filepath.Join(dir, "out")})
	}
	for _, args := range cases {
		cmd := command(args...)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		text := said.String()
		if code := cmd.ProcessState.ExitCode(); code != verdict.ExitUsage ||
			!strings.Contains(text, "is a FIFO") && !strings.Contains(text, "is a device") &&
				!strings.Contains(text, "is a directory") {
			t.Errorf("%q: exit code %d, %q; want code %d and what the file is", args, code, text,
				verdict.ExitUsage)
		}
	}
}

// Process substitution and /dev/stdin are descriptors that the shell has opened.
func TestFilesThatAShellHandsOver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "small.yaml")
	if err := os.WriteFile(file, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`railbed validate <(cat "$FILE")`,
		`cat "$FILE" | railbed validate /dev/stdin`, `railbed validate /dev/stdin <"$FILE"`,
		`railbed validate - <"$FILE"`,
		`railbed graph --format dot <(cat "$FILE")`} {
		script := exec.Command("bash", "-c", `railbed() { (exec -a railbed "$SELF" "$@"); }; `+line)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		script.Env = append(os.Environ(), "SELF="+self, "FILE="+file)
		if output, err := script.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, output)
		}
	}
}

// inMounts runs a script in a mount namespace of its own, and again after an overloaded run (see do).
func inMounts(text string, env ...string) (got outcome) {
	for range overloadedTries {
		script := exec.Command("bash", "-c", text)
		script.Env = append(os.Environ(), env...)
		script.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		var stdout, stderr bytes.Buffer
		script.Stdout, script.Stderr = &stdout, &stderr
		_ = script.Run() // the code and the outputs are judged
		got = outcome{script.ProcessState.ExitCode(), stdout.String(), stderr.String()}
		if !strings.HasPrefix(got.stdout, "OVERLOADED: ") {
			break
		}
	}
	return got
}

// withCalibrations runs a scenario twice whose links need a measurement, and lists the files beside the
// stored calibrations.
const withCalibrations = `
mount --make-rprivate /
mount -t tmpfs tmpfs /var/cache
eval "$PREPARE" 2>/dev/null
for run in first second; do
	(exec -a railbed "$SELF" run "$FILE" --out "$DIR/$run" 2>&1) || echo "exit code $?"
	ls -A /var/cache/railbed
done
`

// A run whose measurements cannot be stored warns once and measures. It neither leaves nor uses a damaged
// file.
func TestCalibrationOnAFullDisk(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Root, hosttest.Testbed)
	const mount = "mkdir /var/cache/railbed; mount -t tmpfs -o size=64k tmpfs /var/cache/railbed; "
	for _, test := range []struct {
		name, prepare, warning string
		warnings               int
		leaves                 string
	}{
		{"full", mount + "cat /dev/zero > /var/cache/railbed/fill", "no space left on device", 2,
			"calibration.json.lock\nfill\n"},
		{"without room for the directory", "mount -o remount,nr_inodes=1 /var/cache",
			"no space left on device", 2, ""},
		{"read-only", mount + "mount -o remount,ro /var/cache/railbed", "read-only file system", 2, ""},
		{"truncated", mount + `printf '{"version": 2, "entries": [' > /var/cache/railbed/calibration.json`,
			"", 0, "calibration.json\ncalibration.json.lock\n"},
		{"a directory in the file's place", mount + "mkdir /var/cache/railbed/calibration.json",
			"file exists", 2, "calibration.json\ncalibration.json.lock\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, file := t.TempDir(), filepath.Join(t.TempDir(), "calibrated.yaml")
			if err := os.WriteFile(file, []byte(calibrated), 0o600); err != nil {
				t.Fatal(err)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			said := inMounts(withCalibrations, "DIR="+dir, "SELF="+self, "FILE="+file,
				"PREPARE="+test.prepare).stdout
			if strings.Contains(said, "exit code") || strings.Count(said, "PASS: ") != 2 ||
				strings.Count(said, "warning: store calibration: ") != test.warnings ||
				strings.Count(said, test.warning) < test.warnings || !strings.HasSuffix(said, test.leaves) ||
				strings.Contains(said, "\n.calibration") {
				t.Errorf("want PASS twice, %d warnings of %q and the files %q at the end; got\n%s",
					test.warnings, test.warning, test.leaves, said)
			}
		})
	}
}
