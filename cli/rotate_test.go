package cli_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"railbed/capture/keep"
	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// rotatedRun writes the results of a run whose recording is in several files, and returns the directory and
// the number of files. The recording has the drop of a packet in a later file.
func rotatedRun(t *testing.T) (dir string, files int) {
	t.Helper()
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	const dropped = 380
	seen := 0
	s.Change(func(k verifytest.Sighting) bool { return k.ID == dropped }, func(k *verifytest.Sighting) {
		if seen++; seen == 3 { // the switch sends it
			k.Comment = "railbed verdict=drop reason=tail depth=40320 late=0ns"
		}
	})
	seen = 0
	s.Remove(func(k verifytest.Sighting) bool {
		if k.ID == dropped {
			seen++
		}
		return k.ID == dropped && seen > 3
	})
	dir = t.TempDir()
	kept, err := keep.Copy(bytes.NewReader(s.Write()), func(number int) (io.WriteCloser, error) {
		return os.Create(filepath.Join(dir, spec.CapturePart("run.pcapng", number)))
	}, keep.Options{Rotate: 100 << 10})
	if err != nil {
		t.Fatal(err)
	}
	r := report.Report{Format: report.Format, Verdict: verdict.Pass, Captures: []report.Capture{
		{File: "run.pcapng", Files: kept.Files, Complete: true}}}
	for name, document := range map[string]any{report.JSONFile: r, "plan.json": s.Plan} {
		text, err := json.Marshal(document)
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, kept.Files
}

// cause has the fields of follow.Cause that name a record.
type cause struct {
	Record, Frame int
	File          string
}

// TestCommandsReadRotatedFiles gives commands a run whose recording is in several files. They read all of
// them, from the directory and from a bundle.
func TestCommandsReadRotatedFiles(t *testing.T) {
	dir, files := rotatedRun(t)
	archive := filepath.Join(t.TempDir(), "run.zip")
	if code, out, errs := railbed("", "bundle", dir, "--file", archive); code != 0 || errs != "" {
		t.Fatalf("code %d: %s%s", code, out, errs)
	}
	z, err := zip.OpenReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if len(z.File) != files+2 {
		t.Errorf("the bundle has %d files, want %d of the recording and 2 documents", len(z.File), files)
	}
	first := filepath.Join(dir, "run.pcapng")
	_, single, _ := railbed("", "decode", first, "-e", "frame.number", "-e", "railbed.verdict")
	lines := strings.Split(strings.TrimSuffix(single, "\n"), "\n")
	drop := slices.IndexFunc(lines, func(l string) bool { return strings.HasSuffix(l, "drop") }) + 1
	if drop < len(lines)/2 || lines[len(lines)-1] != fmt.Sprintf("%d\t", len(lines)) {
		t.Fatalf("%d records, the drop is %d: %s", len(lines), drop, lines[len(lines)-1])
	}
	for _, run := range []string{dir, archive} {
		_, all, errs := railbed("", "decode", run, "-e", "frame.number", "-e", "railbed.verdict")
		if all != single || errs != "" {
			t.Errorf("decode %s prints %d lines, want %d: %s", run, strings.Count(all, "\n"), len(lines),
				errs)
		}
		var why struct {
			Answers []struct{ Causes []cause }
		}
		_, out, errs := railbed("", "why", run, "-o", "json")
		if err := json.Unmarshal([]byte(out), &why); err != nil || errs != "" {
			t.Fatalf("%v: %s", err, errs)
		}
		causes := why.Answers[0].Causes
		for _, c := range causes {
			if c.File == "" || c.Frame == 0 {
				t.Errorf("%+v is in no file", c)
			}
		}
		i := slices.IndexFunc(causes, func(c cause) bool { return c.Record == drop })
		if i < 0 || causes[i].File == "run.pcapng" {
			t.Fatalf("%+v, want the drop of record %d in a later file", causes, drop)
		}
		cause := causes[i]
		_, there, _ := railbed("", "decode", filepath.Join(dir, cause.File), "-Y",
			fmt.Sprintf("frame.number == %d", cause.Frame), "-e", "railbed.verdict", "-e", "railbed.reason")
		if there != "drop\ttail\n" {
			t.Errorf("record %d of %s is %q", cause.Frame, cause.File, there)
		}
		want := fmt.Sprintf("Wireshark: %s, frame.number == %d\n", cause.File, cause.Frame)
		if _, out, _ := railbed("", "why", run); !strings.Contains(out, want) {
			t.Errorf("want %q in %s", want, out)
		}
	}
	// The run has the plan. All files of its recording are read, and the report is in the bundle, too.
	for _, run := range []string{dir, archive} {
		code, out, errs := railbed("", "verify", run, "--check", `drops: {reason: tail, count: "== 1"}`,
			"--check", `drops: {reason: tail, count: "== 0"}`)
		if code != verdict.Fail.ExitCode() || strings.Contains(out+errs, "missing") ||
			strings.Count(out, "1 packet was dropped") != 2 {
			t.Errorf("verify %s: code %d: %s%s", run, code, out, errs)
		}
		if code, out, errs := railbed("", "report", run); code != 0 || errs != "" ||
			!strings.Contains(out, "run.pcapng and ") {
			t.Errorf("report %s: code %d: %s%s", run, code, out, errs)
		}
	}
	code, out, errs := railbed("", "verify", first, "--plan", filepath.Join(dir, "plan.json"), "--check",
		`drops: {reason: tail, count: "== 1"}`)
	if code != 0 {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
}

// TestCommandsMissRotatedFiles removes files of the recording: no check passes, and commands say what is
// missing.
func TestCommandsMissRotatedFiles(t *testing.T) {
	dir, _ := rotatedRun(t)
	first, second := filepath.Join(dir, "run.pcapng"), filepath.Join(dir, "run-2.pcapng")
	if err := os.Remove(second); err != nil {
		t.Fatal(err)
	}
	const missing = "file 2 of the recording is missing"
	verify := func(name string) (code int, out, errs string) {
		return railbed("", "verify", name, "--plan", filepath.Join(dir, "plan.json"), "--check",
			`drops: {reason: tail, count: "== 1"}`)
	}
	if code, out, errs := verify(first); code != verdict.ExitInconclusive || !strings.Contains(out, missing) {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
	for _, args := range [][]string{{"follow", dir}, {"why", dir}, {"decode", dir},
		{"trace", dir, "--file", filepath.Join(t.TempDir(), "x.json")}} {
		want := fmt.Sprintf("railbed: warning: %s is not complete (%s): messages may seem unfinished\n", dir,
			missing)
		if args[0] == "decode" {
			want = fmt.Sprintf("railbed: warning: %s: %s\n", dir, missing)
		}
		if code, out, errs := railbed("", args...); code != 0 || errs != want {
			t.Errorf("%s: code %d: %s; want %s%s", args[0], code, errs, want, out)
		}
	}
	// A packet that is not seen again may be in the missing file.
	_, out, _ := railbed("", "why", dir)
	if strings.Contains(out, "lost on the link") || !strings.Contains(out, "not seen again") {
		t.Errorf("why: %s", out)
	}
	_, out, errs := railbed("", "bundle", dir, "--file", filepath.Join(t.TempDir(), "x.zip"))
	if !strings.Contains(errs, "has no run-2.pcapng, which the report names") {
		t.Errorf("%s%s", out, errs)
	}
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := verify(first); code != verdict.ExitUsage || !strings.Contains(errs, "no such file") ||
		!strings.Contains(errs, "want "+filepath.Join(dir, "run-3.pcapng")) {
		t.Errorf("code %d: %s", code, errs)
	}
	if code, _, errs := railbed("", "follow", dir); code != 0 ||
		!strings.Contains(errs, "reading began with file 3 of the recording, and not with file 1") {
		t.Errorf("code %d: %s", code, errs)
	}
}

// TestWrongRotation has the limits of the key rotate of files.
func TestWrongRotation(t *testing.T) {
	const limits = "want 64KiB to 1024GiB"
	for size, want := range map[string]string{"0B": limits, "1KiB": limits, "1025GiB": limits,
		"much": "--rotate: "} {
		code, _, errs := railbed("", "capture", "-w", "x.pcapng", "--rotate", size)
		if code != verdict.ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d: %s; want %s", size, code, errs, want)
		}
	}
}
