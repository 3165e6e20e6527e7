package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"railbed/testbed/cli"
	"railbed/testbed/hosttest"
)

// jsonCase is what a command prints with -o json.
type jsonCase struct {
	path string // of the command
	args []string
	// lines is set for streams: a document in each line.
	lines bool
	// exempt is why the command prints something else.
	exempt string
}

// TestJSON has every command print one JSON document on standard output. It
// fails for a command that the table does not have.
func TestJSON(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-json"
	dir := t.TempDir()
	file, out := writeFile(t, strings.Replace(twoHosts(name), "hosts: 2}", "hosts: 2}, switch: {kind: soft, int: true}", 1)), filepath.Join(dir, "out")
	scenario := writeFile(t, twoHosts(name+"-run")+"steps:\n  - capture: {at: [all], file: run.pcapng}\n")
	bad := writeFile(t, "name: x\n")
	cases := []jsonCase{
		{path: "version"},
		{path: "schema"},
		{path: "doctor", args: []string{"net-namespace", "netem"}},
		{path: "generate", args: []string{"torus"}},
		{path: "graph", args: []string{file, "--format", "dot"}},
		{path: "plan", args: []string{file}},
		{path: "validate", args: []string{file, bad}},
		{path: "ls"}, // with none, or with others
		{path: "down", args: []string{name, name + "-never"}},
		{path: "run", args: []string{scenario, "--out", out}},
		{path: "report", args: []string{out}},
		{path: "verify", args: []string{filepath.Join(out, "run.pcapng"), "--testbed-file", scenario}},
		{path: "up", args: []string{file}},
		{path: "up", args: []string{file}}, // again
		{path: "ls"},
		{path: "inspect", args: []string{name, "--verify"}},
		{path: "link show", args: []string{"-t", name}},
		{path: "link show", args: []string{"h0--leaf1", "-t", name}},
		{path: "link down", args: []string{"h0--leaf1", "-t", name}},
		{path: "link up", args: []string{"h0--leaf1", "-t", name}},
		{path: "link set", args: []string{"h0--leaf1", "-t", name, "--rate", "10mbit"}},
		{path: "probe", args: []string{"h0", "h1", "-t", name, "--count", "1"}},
		{path: "events", args: []string{"-t", name}, lines: true},
		{path: "gc", args: []string{"--dry-run"}},
		{path: "capture", exempt: "TestCaptureJSON"},
		{path: "exec", exempt: "its output is the program's"},
		{path: "shell", exempt: "its output is the shell's"},
		{path: "dissector", exempt: "a program of Wireshark's"},
		{path: "help", exempt: "for people"},
		{path: "completion bash", exempt: "a program of the shell's"},
		{path: "completion zsh", exempt: "a program of the shell's"},
		{path: "completion fish", exempt: "a program of the shell's"},
		{path: "completion powershell", exempt: "a program of the shell's"},
		{path: "down", args: []string{name}},
		{path: "down", args: []string{name}}, // of nothing
	}
	t.Cleanup(func() { must(t, "down", name) })
	known := cli.CommandPaths()
	for _, c := range cases {
		if !slices.Contains(known, c.path) {
			t.Errorf("there is no command %q", c.path)
		}
		if c.exempt != "" {
			continue
		}
		args := slices.Concat(strings.Fields(c.path), c.args, []string{"-o", "json"})
		got := do(t, args...)
		documents, err := decodeAll(got.stdout)
		if err != nil {
			t.Errorf("railbed %q: %v:\n%s%s", args, err, got.stdout, got.stderr)
		}
		if !c.lines && documents != 1 {
			t.Errorf("railbed %q: exit %d, %d documents, want 1:\n%s%s", args, got.code, documents, got.stdout, got.stderr)
		}
		if c.lines && (documents < 2 || documents != strings.Count(got.stdout, "\n")) {
			t.Errorf("railbed %q: %d documents in %d lines", args, documents, strings.Count(got.stdout, "\n"))
		}
	}
	for _, path := range known {
		if !slices.ContainsFunc(cases, func(c jsonCase) bool { return c.path == path }) {
			t.Errorf("no case for railbed %s -o json", path)
		}
	}
}

// decodeAll counts the JSON documents of a text.
func decodeAll(text string) (documents int, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	for {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return documents, err
		}
		documents++
	}
}

// TestCaptureJSON: the counts go where the packets do not.
func TestCaptureJSON(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-json-capture"
	must(t, "up", writeFile(t, twoHosts(name)))
	t.Cleanup(func() { must(t, "down", name) })
	for _, path := range []string{filepath.Join(t.TempDir(), "all.pcapng"), "-"} {
		recording := command("capture", "-t", name, "-w", path, "-o", "json")
		var stdout bytes.Buffer
		recording.Stdout = &stdout
		pipe, err := recording.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := recording.Start(); err != nil {
			t.Fatal(err)
		}
		begun := make([]byte, 256)
		n, err := pipe.Read(begun)
		if err != nil || !strings.HasPrefix(string(begun[:n]), "recording") {
			t.Fatalf("capture said %q, error %v", begun[:n], err)
		}
		if err := recording.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		stderr, err := io.ReadAll(pipe)
		if err := errors.Join(err, recording.Wait()); err != nil {
			t.Fatal(err)
		}
		text, want := stdout.String(), ""
		if path == "-" {
			text, want = string(stderr), stdout.String()
			if !strings.HasPrefix(want, "\x0a\x0d\x0d\x0a") {
				t.Errorf("standard output begins with %.8q, which is no pcapng", want)
			}
		} else if len(stderr) > 0 {
			t.Errorf("standard error: %q, want nothing after the first line", stderr)
		}
		var counts struct{ Taps []struct{ Tap string } }
		if err := json.Unmarshal([]byte(text), &counts); err != nil || len(counts.Taps) != 4 {
			t.Errorf("-w %s: counts %q, error %v", path, text, err)
		}
	}
}
