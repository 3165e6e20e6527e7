package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
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

// TestStacksOfHiddenFolders: MPI programs of a file that nodes do not see run in /. The run prints a note,
// and the error of a missing program has the reason. Beside a file that nodes see there is neither.
func TestStacksOfHiddenFolders(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.OpenMPI)
	const steps = "nodes: {default: {ranks: 1}}\nsteps:\n" +
		"  - stack: {name: where, kind: openmpi, command: [pwd], timeout: 60s}\n" +
		"  - stack: {name: beside, kind: openmpi, command: [./program], timeout: 60s}\n"
	for _, hidden := range []bool{true, false} {
		o := options(t, twoHosts+steps)
		if !strings.HasPrefix(o.Path, "/tmp/") {
			t.Skipf("temporary files are in %s, which nodes see", o.Path)
		}
		if !hidden {
			dir := visibleDir(t)
			path := filepath.Join(dir, "test.yaml")
			mustWrite(t, path, "name: replaced\n"+strings.TrimPrefix(twoHosts, "\n")+steps)
			o = load(t, path)
		}
		dir := filepath.Dir(o.Path)
		writeProgram(t, filepath.Join(dir, "program"), "exit 0")
		warnings, err := Validate(o)
		if warned := len(warnings) > 0; err != nil || warned != hidden || warned &&
			!strings.Contains(warnings.Error(), "nodes do not see "+dir) {
			t.Errorf("hidden: %v: warnings %v, %v", hidden, warnings, err)
		}
		var notes strings.Builder
		var mu sync.Mutex
		o.Progress = func(u Update) {
			mu.Lock()
			defer mu.Unlock()
			notes.WriteString(u.Line + "\n")
		}
		ran := runAll(t, t.Context(), o).Steps
		where, want := readOut(t, o, "logs/h0/where.out"), dir+"\n" // the launcher has all outputs
		if hidden {
			want = "/\n"
		}
		if strings.Count(where, want) != 2 || strings.ReplaceAll(where, want, "") != "" {
			t.Errorf("hidden: %v: the programs ran in %q, want two times %q", hidden, where, want)
		}
		note := fmt.Sprintf("note: h0 does not see %s, so the programs of stack where run in / (a node has "+
			"its own", dir)
		if noted := strings.Count(notes.String(), note) == 1; noted != hidden {
			t.Errorf("hidden: %v: notes %q, want %q: %v", hidden, notes.String(), note, hidden)
		}
		reason := "the programs ran in /, because h0 does not see " + dir
		if failed := ran[1].State == report.Failed; failed != hidden ||
			strings.Contains(ran[1].Error, reason) != hidden {
			t.Errorf("hidden: %v: %+v", hidden, ran[1])
		}
	}
}

// TestFolderOfErrors: a node that cannot start a command is no node that does not see the folder.
func TestFolderOfErrors(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	path := filepath.Join(visibleDir(t), "test.yaml")
	mustWrite(t, path, "name: replaced\n"+strings.TrimPrefix(twoHosts, "\n"))
	o := load(t, path)
	tb := upFor(t, o.Plan)
	var notes int
	s := &session{plan: o.Plan, testbed: tb, path: path, progress: func(Update) { notes++ }}
	names := []string{"h0", "h1"}
	folder, hidden, err := s.folderOf(t.Context(), "x", names)
	if folder != filepath.Dir(path) || hidden != "" || err != nil {
		t.Errorf("%q, %q, %v; want the file's folder", folder, hidden, err)
	}
	cause := errors.New("the run ended")
	ended, end := context.WithCancelCause(t.Context())
	end(cause)
	if folder, hidden, err = s.folderOf(ended, "x", names); folder+hidden != "" || !errors.Is(err, cause) {
		t.Errorf("%q, %q, %v; want %v", folder, hidden, err, cause)
	}
	folder, hidden, err = s.folderOf(t.Context(), "x", []string{"h9"})
	if folder+hidden != "" || err == nil || !strings.Contains(err.Error(), "h9") ||
		!strings.Contains(err.Error(), filepath.Dir(path)) {
		t.Errorf("%q, %q, %v; want an error with node and folder", folder, hidden, err)
	}
	if notes != 0 {
		t.Errorf("%d notes, want none", notes)
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
