package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"railbed/capture/report"
	"railbed/internal/hosttest"
	"railbed/internal/verdict"
	"railbed/plan/spec"
)

// visibleDir returns a temporary directory that nodes see. The directories of t.TempDir are in /tmp, of which
// nodes have their own.
func visibleDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "railbed-workdir-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func writeProgram(t *testing.T, path, script string) {
	t.Helper()
	mustWrite(t, path, "#!/bin/sh\n"+script+"\n")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestCommandsRunWhereTheFileLies: a program beside the file is found as ./server, whatever the directory of
// the user.
func TestCommandsRunWhereTheFileLies(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	dir := visibleDir(t)
	writeProgram(t, filepath.Join(dir, "server"), "pwd; cat data")
	mustWrite(t, filepath.Join(dir, "data"), "beside\n")
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(dir, "below", "data"), "deeper\n")
	path := filepath.Join(dir, "test.yaml")
	mustWrite(t, path, "name: replaced\n"+strings.TrimPrefix(twoHosts, "\n")+`steps:
  - exec: {name: beside, nodes: [h0, h1], command: [./server]}
  - exec: {name: below, nodes: [h0], command: [../server], workdir: below}
  - exec: {name: root, nodes: [h0], command: [pwd], workdir: /}
  - exec: {name: own, nodes: [h0], command: [pwd], workdir: /tmp}
  - exec: {name: needed, nodes: [h0], command: [sh, -c, ./server && exit 3], expect: 3}
`)
	o := load(t, path)
	rep := runAll(t, t.Context(), o)
	if rep.Verdict != verdict.Pass {
		t.Fatalf("%s: %s", rep.Verdict, rep.Reason)
	}
	for name, want := range map[string]string{
		"h0/beside": dir + "\nbeside\n", "h1/beside": dir + "\nbeside\n",
		"h0/below": dir + "/below\ndeeper\n", "h0/root": "/\n", "h0/own": "/tmp\n",
		"h0/needed": dir + "\nbeside\n",
	} {
		if text := readOut(t, o, "logs/"+name+".out"); text != want {
			t.Errorf("%s printed %q, want %q", name, text, want)
		}
	}
}

// TestWrongDirectories: an error names the path that was sought, whatever exit code the file expects.
func TestWrongDirectories(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	dir := visibleDir(t)
	mustWrite(t, filepath.Join(dir, "file"), "")
	for step, want := range map[string]string{
		"command: [pwd], workdir: missing": "workdir missing: start pwd in h0: " + dir +
			"/missing: no such directory in the node (a node has its own /tmp",
		"command: [pwd], workdir: file":            "no such directory in the node: it is a file",
		"command: [./absent]":                      "no file " + dir + "/absent",
		"command: [./absent], expect: 1":           "no file " + dir + "/absent",
		"command: [below/absent], workdir: /usr":   "no file /usr/below/absent",
		"command: [./absent], background: true":    "no file " + dir + "/absent",
		"command: [pwd], workdir: " + t.TempDir():  "a node has its own /tmp, /run and /dev/shm",
		"command: [./file]":                        dir + "/file is not an executable file",
		"command: [sh, -c, ./absent], expect: 127": "",
	} {
		path := filepath.Join(dir, "test.yaml")
		mustWrite(t, path, "name: replaced\n"+strings.TrimPrefix(twoHosts, "\n")+
			"steps:\n  - exec: {name: a, nodes: [h0], "+step+"}\n  - sleep: 100ms\n")
		got := runAll(t, t.Context(), load(t, path)).Steps[0]
		if want == "" && got.State != report.Passed ||
			want != "" && (got.State != report.Failed || !strings.Contains(got.Error, want)) {
			t.Errorf("%s: %+v, want %q", step, got, want)
		}
	}
}

// TestCommandsOfHiddenFolders: a node has its own /tmp, so the commands of a file there run in /. The run
// prints a note for each node, and the error of a missing program has the directory.
func TestCommandsOfHiddenFolders(t *testing.T) {
	o := options(t, twoHosts+"steps:\n  - exec: {name: a, nodes: [h0, h1], command: [pwd]}\n"+
		"  - exec: {name: b, nodes: [h0], command: [./server]}\n")
	if !strings.HasPrefix(o.Path, "/tmp/") {
		t.Skipf("temporary files are in %s, which nodes see", o.Path)
	}
	writeProgram(t, filepath.Join(filepath.Dir(o.Path), "server"), "exit 0")
	var notes []string
	var mu sync.Mutex
	o.Progress = func(u Update) {
		mu.Lock()
		defer mu.Unlock()
		notes = append(notes, u.Line)
	}
	steps := runAll(t, t.Context(), o).Steps
	for _, node := range []string{"h0", "h1"} {
		note := fmt.Sprintf("%s does not see %s, so its commands run in /", node, filepath.Dir(o.Path))
		if strings.Count(strings.Join(notes, "\n"), note) != 1 {
			t.Errorf("notes %q, want one with %q", notes, note)
		}
	}
	text := readOut(t, o, "logs/h0/a.out")
	if text != "/\n" {
		t.Errorf("the command ran in %q, want /", text)
	}
	if steps[1].State != report.Failed || !strings.Contains(steps[1].Error, "no file /server") ||
		!strings.Contains(steps[1].Error, "h0 does not see "+filepath.Dir(o.Path)) {
		t.Errorf("%+v", steps[1])
	}
}

// TestValidateFindsPrograms: validate looks for the programs on the host, and warns at the key.
func TestValidateFindsPrograms(t *testing.T) {
	dir := visibleDir(t)
	path := filepath.Join(dir, "test.yaml")
	validate := func(step string) spec.Problems {
		mustWrite(t, path, "name: a\n"+strings.TrimPrefix(twoHosts, "\n")+
			"steps:\n  - exec: {nodes: [h0], "+step+"}\n")
		warnings, err := Validate(load(t, path))
		if err != nil {
			t.Errorf("%s: %v", step, err)
		}
		return warnings
	}
	writeProgram(t, filepath.Join(dir, "server"), "exit 0")
	for _, step := range []string{"command: [./server]", "command: [ping]",
		"command: [server], workdir: /usr", "command: [/tmp/made]", "command: [x/made], workdir: /tmp"} {
		if warnings := validate(step); len(warnings) > 0 {
			t.Errorf("%s: %v, want none", step, warnings)
		}
	}
	for step, want := range map[string]string{
		"command: [./absent]":              "test.yaml:7:35: " + dir + "/absent does not exist",
		"command: [pwd], workdir: missing": dir + "/missing does not exist, or is not a directory",
		"command: [pwd], workdir: server":  dir + "/server does not exist, or is not a directory",
	} {
		if warnings := validate(step); len(warnings) != 1 || !strings.Contains(warnings.Error(), want) {
			t.Errorf("%s: %v, want %q", step, warnings, want)
		}
	}
	hidden := options(t, twoHosts+"steps:\n  - exec: {nodes: [h0], command: [./server]}\n")
	if !strings.HasPrefix(hidden.Path, "/tmp/") {
		return
	}
	if warnings, err := Validate(hidden); err != nil || len(warnings) != 1 ||
		!strings.Contains(warnings.Error(), "look for ./server in /") {
		t.Errorf("%v, %v; want a warning of /tmp", warnings, err)
	}
}
