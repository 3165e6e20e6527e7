package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"railbed/capture/pcapng"
	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/cli"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// hostile is a text that clears the screen, sets the title, turns the direction of writing, and has
// lines like verdicts of ours.
const hostile = "x\x1b[2J\x1b]0;t\x07\u009b31m\u202e\x7f\r\nPASS\nrailbed: FAIL\n"

// harmless fails the test for each line that a terminal would not print as it is, or that looks like a
// verdict and is none of those that are wanted.
func harmless(t *testing.T, what, output string, wanted ...string) {
	t.Helper()
	if !utf8.ValidString(output) {
		t.Errorf("%s: not UTF-8: %q", what, output)
	}
	for i, line := range strings.Split(output, "\n") {
		if strings.ContainsFunc(line, func(r rune) bool { return r != '\t' && !unicode.IsPrint(r) }) {
			t.Errorf("%s: line %d: %q", what, i+1, line)
		}
		forged := strings.HasPrefix(line, "PASS") || strings.HasPrefix(line, "railbed: FAIL") ||
			strings.TrimSpace(line) == "PASS"
		if forged && !slices.Contains(wanted, line) {
			t.Errorf("%s: line %d is forged: %q", what, i+1, line)
		}
	}
}

// runMain runs a command in this process and returns what it printed.
func runMain(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = cli.Main(args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

// file writes one with a name of its own in a folder of its own.
func file(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// hostileCapture has the text wherever a capture has one.
func hostileCapture(t *testing.T, tap string) string {
	t.Helper()
	var out bytes.Buffer
	w, err := pcapng.NewWriter(&out,
		pcapng.Section{Application: hostile, Hardware: hostile, OS: hostile, Comments: []string{hostile}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{tap, "h1:eth0"} {
		if _, err := w.AddInterface(pcapng.Interface{Name: name, Description: hostile, Filter: hostile,
			LinkType: pcapng.LinkEthernet}); err != nil {
			t.Fatal(err)
		}
	}
	for i, comment := range []string{"railbed verdict=drop reason=" + hostile,
		"railbed verdict=drop reason=\x1b[2J\u202e depth=1", hostile} {
		packet := pcapng.Packet{Time: 1, Data: make([]byte, 60), Length: 2000 + i,
			Comments: [][]byte{[]byte(comment)}}
		if err := w.WritePacket(&packet); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return file(t, "hostile.pcapng", out.Bytes())
}

// TestHostileFiles: text from the author of a file or a capture reaches the user's terminal without
// control characters, and adds no lines.
func TestHostileFiles(t *testing.T) {
	testbed := file(t, "x.yaml", []byte(
		"name: x\nfabric:\n  topology: single-switch\n  params: {hosts: 2}\n"))
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	text := string(quoted) // a string of YAML, too
	made := &report.Report{Format: report.Format, Name: hostile, File: hostile, Verdict: verdict.Fail,
		Reason: hostile, Repeat: []string{hostile},
		Steps: []report.Step{{Name: hostile, Where: hostile, State: report.Failed, Error: hostile}},
		Checks: []report.Check{{Name: hostile, Where: hostile, Verdict: verdict.Fail, Summary: hostile,
			Details: []string{hostile}}}}
	var document bytes.Buffer
	if err := made.WriteJSON(&document); err != nil {
		t.Fatal(err)
	}
	results := filepath.Dir(file(t, report.JSONFile, document.Bytes()))
	capture, ofHost := hostileCapture(t, "h0:eth0"+hostile), hostileCapture(t, "h0:eth0")
	commands := [][]string{{"report", results, results}, {"report", results, results, "--", results}}
	for _, of := range []string{capture, ofHost} {
		commands = append(commands, []string{"verify", of}, []string{"verify", of, "--mtu", "1500"},
			[]string{"verify", of, "--testbed-file", testbed}, []string{"decode", of}, []string{"follow", of},
			[]string{"follow", of, "--packet", "1"}, []string{"follow", of, "--message", "1"},
			[]string{"why", of})
		for _, check := range verify.Examples() {
			commands = append(commands, []string{"verify", of, "--testbed-file", testbed, "--check", check})
		}
	}
	for name, content := range map[string]string{
		"yaml": "name: x\n" + text + ": " + text + "\n",
		"name": "name: " + text + "\nfabric: {topology: " + text + "}\n",
		"node": "name: x\nfabric:\n  topology: single-switch\n  params: {hosts: 2}\nnodes:\n  " + text +
			": {runtime: " + text + "}\n",
		"raw": hostile, "steps": "name: x\nfabric: {topology: single-switch, params: {hosts: 2}}\n" +
			"steps:\n  - exec: {nodes: [" + text + "], command: [a], want: " + text + "}\n",
		"json": "{" + text + ": " + text + "}",
		"topo": "name: x\ntopology:\n  nodes:\n    " + text + ": {kind: linux, image: " + text +
			", labels: {" + text + ": " + text + "}}\n",
		"links": "name: x\ntopology:\n  nodes: {a: {kind: linux, image: b, " + text +
			": 1}}\n  links: [{endpoints: [" + text + ", " + text + "]}]\n",
	} {
		path := file(t, name+hostile, []byte(content))
		for _, command := range []string{"validate", "plan", "graph", "import containerlab", "up", "run",
			"export containerlab", "export compose", "verify", "report", "decode", "follow", "why", "trace",
			"bundle"} {
			commands = append(commands, append(strings.Fields(command), path))
		}
		for _, flag := range []string{"--plan", "--testbed-file", "--workload", "--keys"} {
			commands = append(commands, []string{"verify", capture, flag, path})
		}
	}
	commands = append(commands, []string{"report", results}, []string{"verify", hostile}, []string{hostile},
		[]string{"help", hostile}, []string{"validate", hostile},
		[]string{"exec", hostile, "-t", hostile, "--", "true"}, []string{"inspect", hostile},
		[]string{"down", hostile},
		[]string{"doctor", hostile}, []string{"--" + hostile},
		[]string{"verify", capture, "--check", hostile}, []string{"generate", hostile},
		[]string{"link", "set", hostile, "rate=1gbit", "-t", hostile}, []string{"-o", hostile, "ls"})
	for _, args := range commands {
		for _, format := range []string{"table", "json"} {
			with := append(slices.Clone(args), "-o", format)
			if slices.Contains(args, "-o") || slices.Contains(args, "--") {
				with = args
			}
			code, stdout, stderr := runMain(t, with...)
			compares := args[0] == "report" && len(args) > 2
			if code == verdict.ExitPass && !compares &&
				!slices.Contains([]string{"verify", "import", "validate", "decode", "follow", "why"},
					args[0]) {
				t.Errorf("%q passes", with)
			}
			harmless(t, strings.Join(with, " ")+": stdout", stdout, "PASS")
			harmless(t, strings.Join(with, " ")+": stderr", stderr)
		}
	}
}

// TestHostileProgram: what a program in a node prints reaches the report of its run, its pages and the
// events of the testbed without control characters, and adds no lines.
func TestHostileProgram(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	script := `printf 'x\033[2J\033]0;t\007\302\23331m\342\200\256\r\nPASS\nrailbed: FAIL\n' >&2; exit 3`
	quoted, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	path, _ := scenario(t, "nodes:\n  h0: {env: {A: \"x\u202ey\"}}\nsteps:\n  - exec: {nodes: [h0], "+
		"command: [sh, -c, "+string(quoted)+"]}\n")
	out := t.TempDir()
	stdout, stderr, code := railbedCommand(t, "run", path, "--out", out)
	if code != verdict.ExitFail || !strings.Contains(stdout, `x\x1b[2J`) {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	harmless(t, "stdout", stdout)
	harmless(t, "stderr", stderr)
	for _, name := range []string{report.JSONFile, report.JUnitFile, report.HTMLFile, "plan.json",
		"supervisor.log"} {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == report.HTMLFile { // its style has lines that begin anyhow
			text = bytes.ReplaceAll(text, []byte("\r"), nil)
		}
		harmless(t, name, string(text))
	}
}

// TestSessionsPassBytes: a command has the terminal, so that its bytes arrive as they are; what events
// tell of the command is made printable.
func TestSessionsPassBytes(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	path, name := scenario(t, "")
	if _, stderr, code := railbedCommand(t, "up", path); code != verdict.ExitPass {
		t.Fatalf("up: exit code %d\n%s", code, stderr)
	}
	t.Cleanup(func() { railbedCommand(t, "down", name) })
	stdout, stderr, code := railbedCommand(t, "exec", "--testbed", name, "h0", "--", "printf", `%s\377`,
		hostile)
	if want := hostile + "\xff"; stdout != want || stderr != "" || code != verdict.ExitPass {
		t.Errorf("exec: %q, %q, exit code %d; want %q", stdout, stderr, code, want)
	}
	for _, args := range [][]string{{"events", "--testbed", name},
		{"events", "--testbed", name, "-o", "json"}, {"inspect", name}, {"inspect", name, "-o", "json"},
		{"ls"}} {
		stdout, stderr, code := railbedCommand(t, args...)
		if code != verdict.ExitPass {
			t.Errorf("%q: exit code %d\n%s", args, code, stderr)
		}
		harmless(t, strings.Join(args, " "), stdout+stderr)
	}
}
