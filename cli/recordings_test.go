package cli_test

import (
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

// severalRun writes the results of a run with three recordings: of NICs, in several files; of switches; and
// of NICs again. whole is the directory of the same run with a single recording. A switch drops a packet.
func severalRun(t *testing.T) (several, whole string) {
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
	several, whole = t.TempDir(), t.TempDir()
	record := func(dir, name string, rotate int64, untapped func(node string) bool) report.Capture {
		s.Untapped = map[string]bool{}
		for _, k := range s.Sightings {
			node, _, _ := strings.Cut(k.Tap, ":")
			s.Untapped[k.Tap] = untapped(node)
		}
		kept, err := keep.Copy(bytes.NewReader(s.Write()), func(number int) (io.WriteCloser, error) {
			return os.Create(filepath.Join(dir, spec.CapturePart(name, number)))
		}, keep.Options{Rotate: rotate})
		if err != nil || rotate > 0 && kept.Files < 2 {
			t.Fatal(kept.Files, err)
		}
		return report.Capture{File: name, Files: kept.Files, Complete: true}
	}
	nic := func(node string) bool { return s.Plan.Node(node) != nil }
	write := func(dir string, captures ...report.Capture) {
		r := report.Report{Format: report.Format, Verdict: verdict.Pass, Captures: captures}
		for name, document := range map[string]any{report.JSONFile: r, "plan.json": s.Plan} {
			text, err := json.Marshal(document)
			if err := errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(whole, record(whole, "run.pcapng", 0, func(string) bool { return false }))
	write(several,
		record(several, "nics.pcapng", 64<<10, func(node string) bool { return !nic(node) }),
		record(several, "switches.pcapng", 0, nic),
		record(several, "again.pcapng", 0, func(node string) bool { return !nic(node) }))
	return several, whole
}

// TestCommandsReadAllRecordings gives commands a run with several recordings: they read the same packets as
// from a single recording, each once.
func TestCommandsReadAllRecordings(t *testing.T) {
	several, whole := severalRun(t)
	archive := filepath.Join(t.TempDir(), "run.zip")
	if code, out, errs := railbed("", "bundle", several, "--file", archive); code != 0 || errs != "" {
		t.Fatalf("code %d: %s%s", code, out, errs)
	}
	decode := func(run string, args ...string) []string {
		_, out, errs := railbed("", append([]string{"decode", run, "-e", "frame.time_epoch", "-e",
			"railbed.node", "-e", "railbed.port", "-e", "tcp.seq_raw", "-e", "railbed.verdict"}, args...)...)
		if errs != "" {
			t.Fatal(errs)
		}
		return strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	}
	want := decode(whole)
	for _, run := range []string{several, archive} {
		got := decode(run)
		inOrder := slices.IsSortedFunc(got, func(a, b string) int {
			return strings.Compare(a[:strings.Index(a, "\t")], b[:strings.Index(b, "\t")])
		})
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) || !inOrder {
			t.Errorf("decode %s prints %d lines, want %d; in order of time: %v", run, len(got), len(want),
				inOrder)
		}
	}
	// The recordings of NICs and of switches have the evidence together; that of the NICs has less.
	judge := func(name string, args ...string) (lines string) {
		var document struct {
			Checks []struct{ Name, Verdict, Summary string }
		}
		_, out, errs := railbed("", append([]string{"verify", name, "-o", "json", "--check",
			`drops: {count: ">= 1"}`, "--check", "conservation: \"*\"", "--check",
			"lossless: {}"}, args...)...)
		if err := json.Unmarshal([]byte(out), &document); err != nil || errs != "" {
			t.Fatalf("%s: %v: %s%s", name, err, out, errs)
		}
		for _, c := range document.Checks {
			lines += fmt.Sprintf("%s %s: %s\n", c.Name, c.Verdict, c.Summary)
		}
		return lines
	}
	wanted := judge(whole)
	for _, run := range []string{several, archive} {
		if got := judge(run); got != wanted || !strings.Contains(got, "drops PASS: 1 packet") {
			t.Errorf("verify %s:\n%s\nwant\n%s", run, got, wanted)
		}
	}
	if part := judge(filepath.Join(several, "nics.pcapng"), "--plan", filepath.Join(several,
		"plan.json")); strings.Contains(part, "PASS") {
		t.Errorf("verify of the NICs:\n%s", part)
	}
	nics := decode(several, "--capture", "nics.pcapng")
	if again := decode(several, "--capture", "again.pcapng"); !slices.Equal(nics, again) ||
		len(nics) >= len(want) {
		t.Errorf("%d packets at NICs, and %d in another recording of them", len(nics), len(again))
	}
	_, one, _ := railbed("", "follow", whole, "-o", "json")
	_, all, errs := railbed("", "follow", several, "-o", "json")
	if errs != "" || sums(t, one) != sums(t, all) {
		t.Errorf("follow: %s\n%s\nwant\n%s", errs, sums(t, all), sums(t, one))
	}
	for _, run := range []string{whole, several} {
		code, out, errs := railbed("", "trace", run, "-Y", "railbed.verdict == \"drop\"", "--file",
			filepath.Join(t.TempDir(), "x.json"))
		if code != 0 || errs != "" || !strings.Contains(out, ": 1 packet,") {
			t.Errorf("trace %s: code %d: %s%s", run, code, out, errs)
		}
	}
	type called struct {
		cause
		What string
	}
	var why struct {
		Answers []struct{ Causes []called }
	}
	_, out, errs := railbed("", "why", several, "-o", "json")
	if err := json.Unmarshal([]byte(out), &why); err != nil || errs != "" || len(why.Answers) == 0 {
		t.Fatalf("%v: %s", err, errs)
	}
	causes := why.Answers[0].Causes
	c := causes[max(0, slices.IndexFunc(causes, func(c called) bool {
		return c.What == "dropped packets: tail"
	}))]
	if c.File != "switches.pcapng" {
		t.Errorf("the drop is in %q: %s", c.File, out)
	}
	_, there, _ := railbed("", "decode", filepath.Join(several, c.File), "-Y",
		fmt.Sprintf("frame.number == %d", c.Frame), "-e", "railbed.verdict", "-e", "railbed.reason")
	_, merged, _ := railbed("", "decode", several, "-Y", fmt.Sprintf("frame.number == %d", c.Record),
		"-e", "railbed.verdict", "-e", "railbed.reason")
	if there != "drop\ttail\n" || merged != there {
		t.Errorf("record %d of %s is %q, and record %d of all %q", c.Frame, c.File, there, c.Record, merged)
	}
	// Without the switches' recording, the packet is not known to be dropped.
	_, out, _ = railbed("", "why", several, "--capture", "nics.pcapng")
	if strings.Contains(out, "dropped packets") || !strings.Contains(out, "--capture nics.pcapng --message") {
		t.Errorf("why of the NICs: %s", out)
	}
	for _, command := range []string{"follow", "why"} {
		code, out, errs := railbed("", command, whole, "--flow", "nosuchnode,h1")
		if code != verdict.ExitUsage || out != "" || !strings.Contains(errs, `no node "nosuchnode"`) {
			t.Errorf("%s: code %d: %s%s", command, code, out, errs)
		}
		code, out, errs = railbed("", command, whole, "--qp", "1")
		if code != 0 || out != "no recorded message matches --qp 1\n" || errs != "" {
			t.Errorf("%s: code %d: %s%s", command, code, out, errs)
		}
	}
	for _, command := range []string{"decode", "follow", "why", "trace"} {
		code, _, errs := railbed("", command, several, "--capture", "run.pcapng")
		if code != verdict.ExitUsage || !strings.Contains(errs,
			"no recording run.pcapng; want nics.pcapng, switches.pcapng, again.pcapng") {
			t.Errorf("%s: code %d: %s", command, code, errs)
		}
	}
}

// sums returns the sums of "railbed follow".
func sums(t *testing.T, text string) string {
	t.Helper()
	var told struct{ Sums json.RawMessage }
	if err := json.Unmarshal([]byte(text), &told); err != nil {
		t.Fatal(err)
	}
	return string(told.Sums)
}
