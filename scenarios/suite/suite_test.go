package suite

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"railbed/capture/report"
	"railbed/internal/hosttest"
	"railbed/internal/verdict"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// host makes the runs of a suite as a host would whose verdicts are given, in turn for each case.
type host struct {
	t        *testing.T
	mu       sync.Mutex
	verdicts map[string][]verdict.Verdict
	running  int
	most     int
	want     int      // runs at a time that the first of them wait for
	beside   []string // cases that ran beside others, for each run
}

func (h *host) do(_ context.Context, c Case, _ int, out string) (*report.Report, error) {
	h.mu.Lock()
	h.running++
	h.most = max(h.most, h.running)
	if h.running > 1 {
		h.beside = append(h.beside, c.Name)
	}
	next := h.verdicts[c.Name][0]
	if len(h.verdicts[c.Name]) > 1 {
		h.verdicts[c.Name] = h.verdicts[c.Name][1:]
	}
	h.mu.Unlock()
	hosttest.Until(h.t, "runs at a time", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.most >= h.want
	})
	h.mu.Lock()
	h.running--
	h.mu.Unlock()
	if next == "" {
		return nil, errors.New(c.Path + ":1:1: a mistake")
	}
	for _, name := range []string{report.JSONFile, "run.pcapng"} {
		if err := os.MkdirAll(out, 0o755); err != nil {
			h.t.Error(err)
		}
		if err := os.WriteFile(filepath.Join(out, name), nil, 0o644); err != nil {
			h.t.Error(err)
		}
	}
	return &report.Report{Verdict: next, Reason: "because of " + string(next),
		Fidelity: &report.Fidelity{Verdict: report.Faithful}}, nil
}

// run runs cases with the given verdicts, in the order of their names.
func run(t *testing.T, jobs, repeat int, verdicts map[string][]verdict.Verdict) (*Results, *host, string) {
	t.Helper()
	h := &host{t: t, verdicts: verdicts, want: min(jobs, len(verdicts))}
	o := Options{Jobs: jobs, Repeat: repeat, Out: t.TempDir(), Do: h.do, Prune: prune}
	for name := range verdicts {
		o.Cases = append(o.Cases, Case{Name: name, Path: name + ".yaml"})
	}
	slices.SortFunc(o.Cases, func(a, b Case) int { return strings.Compare(a.Name, b.Name) })
	ended := 0
	o.Progress = func(u Update) {
		if u.Ended != nil {
			if ended++; u.Done != ended || u.Total != len(o.Cases) {
				t.Errorf("%s is case %d of %d, want %d", u.Ended.Name, u.Done, u.Total, ended)
			}
		}
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if ended != len(o.Cases) {
		t.Errorf("%d cases ended, want %d", ended, len(o.Cases))
	}
	return r, h, o.Out
}

// prune removes the files of a run.
func prune(dir string, keep ...string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if !slices.Contains(keep, entry.Name()) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, entry.Name())))
		}
	}
	return err
}

const (
	pass        = verdict.Pass
	fail        = verdict.Fail
	overloaded  = verdict.Overloaded
	unsupported = verdict.Unsupported
)

// TestVerdicts has the verdicts of a host's runs in turn, and those that count.
func TestVerdicts(t *testing.T) {
	for _, test := range []struct {
		name         string
		jobs, repeat int
		made         []verdict.Verdict
		want         verdict.Verdict
		runs         int
		flaky        bool
	}{
		{"passes", 1, 1, []verdict.Verdict{pass}, pass, 1, false},
		{"fails alone", 1, 1, []verdict.Verdict{fail, pass}, fail, 1, false},
		{"fails beside others", 2, 1, []verdict.Verdict{fail, pass}, pass, 2, false},
		{"fails again alone", 2, 1, []verdict.Verdict{fail, fail}, fail, 2, false},
		{"is overloaded once", 1, 1, []verdict.Verdict{overloaded, pass}, pass, 2, false},
		{"is overloaded twice", 2, 1, []verdict.Verdict{overloaded, overloaded, pass}, pass, 3, false},
		{"is always overloaded", 2, 1, []verdict.Verdict{overloaded}, overloaded, 3, false},
		{"is not supported", 2, 1, []verdict.Verdict{unsupported}, unsupported, 1, false},
		{"is flaky", 1, 3, []verdict.Verdict{pass, fail, pass}, fail, 3, true},
		{"is steady", 1, 3, []verdict.Verdict{pass}, pass, 3, false},
		{"has a mistake", 2, 1, []verdict.Verdict{""}, fail, 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, _, _ := run(t, test.jobs, test.repeat, map[string][]verdict.Verdict{"a": test.made})
			o := r.Cases[0]
			if o.Verdict != test.want || len(o.Runs) != test.runs || o.Flaky != test.flaky ||
				r.Verdict != test.want || o.NotRun {
				t.Errorf("%+v, want %s after %d runs", o, test.want, test.runs)
			}
			if want := "flaky: 2 PASS, 1 FAIL: because of FAIL"; test.flaky && o.Reason != want {
				t.Errorf("reason %q, want %q", o.Reason, want)
			}
			for i, a := range o.Runs {
				if want := i < len(o.Runs)-1 && !test.flaky && test.repeat == 1; a.Replaced != want ||
					i > 0 && test.repeat == 1 && !a.Alone {
					t.Errorf("run %d: %+v", i+1, a)
				}
			}
		})
	}
}

// TestSideBySide: as many runs at a time as there are jobs, and those that are made again are alone.
func TestSideBySide(t *testing.T) {
	verdicts := map[string][]verdict.Verdict{}
	for i := range 12 {
		verdicts[fmt.Sprintf("case-%02d", i)] = []verdict.Verdict{pass}
	}
	verdicts["case-03"] = []verdict.Verdict{overloaded, overloaded, pass}
	r, h, _ := run(t, 4, 1, verdicts)
	if h.most != 4 || r.Verdict != pass {
		t.Errorf("%d runs at a time, %s, want 4", h.most, r.Verdict)
	}
	others := slices.DeleteFunc(h.beside, func(name string) bool { return name != "case-03" })
	if times := len(others); times > 1 {
		t.Errorf("%d runs of the overloaded case were beside others, want the first at most", times)
	}
}

// TestFiles: of runs that pass, the report is kept. The results can be read again, and list every case.
func TestFiles(t *testing.T) {
	r, _, dir := run(t, 1, 1, map[string][]verdict.Verdict{"a/good": {pass}, "a/bad": {fail},
		"other": {unsupported}, "<b>": {pass}})
	for name, want := range map[string]bool{"a/good/run-1/report.json": true,
		"a/good/run-1/run.pcapng": false, "a/bad/run-1/report.json": true, "a/bad/run-1/run.pcapng": true,
		"other/run-1/run.pcapng": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", name, err == nil, want)
		}
	}
	again, err := Read(dir)
	if err != nil || again.Verdict != fail || len(again.Cases) != 4 || !again.Started.Equal(r.Started) {
		t.Errorf("%+v, %v", again, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, JUnitFile))
	if err != nil {
		t.Fatal(err)
	}
	var suites struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
	}
	if err := xml.Unmarshal(text, &suites); err != nil || suites.Tests != 4 || suites.Failures != 1 ||
		suites.Skipped != 1 || !bytes.Contains(text, []byte(`classname="railbed.a" name="bad"`)) {
		t.Errorf("%+v, %v:\n%s", suites, err, text)
	}
	page, err := os.ReadFile(filepath.Join(dir, IndexFile))
	if err != nil {
		t.Fatal(err)
	}
	for want, there := range map[string]bool{"a/bad/run-1/report.html": true,
		"a/good/run-1/report.html": false,
		"&lt;b&gt;":                true, "<b>": false, "because of FAIL": true} {
		if bytes.Contains(page, []byte(want)) != there {
			t.Errorf("the page has %q: %t, want %t", want, !there, there)
		}
	}
	if _, err := Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "railbed test") {
		t.Errorf("an empty directory: %v", err)
	}
}

// TestInterrupted: cases that did not run are ABORTED, and say so.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := &host{t: t, verdicts: map[string][]verdict.Verdict{"a": {pass}, "b": {pass}, "c": {pass}}}
	r, err := Run(ctx, Options{Out: t.TempDir(), Prune: prune,
		Cases: []Case{{Name: "a"}, {Name: "b"}, {Name: "c"}},
		Do: func(ctx context.Context, c Case, n int, out string) (*report.Report, error) {
			cancel()
			return h.do(ctx, c, n, out)
		}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != verdict.Aborted || r.Cases[0].Verdict != pass || !r.Cases[2].NotRun ||
		r.Cases[2].Reason != "not run: the suite was interrupted" {
		t.Errorf("%+v", r)
	}
}

// TestEachRepetitionAgain: each run that failed beside others is made again.
func TestEachRepetitionAgain(t *testing.T) {
	r, _, _ := run(t, 2, 2, map[string][]verdict.Verdict{"a": {fail, fail, pass, pass}})
	if o := r.Cases[0]; o.Verdict != pass || len(o.Runs) != 4 || o.Flaky || !o.Runs[0].Replaced ||
		!o.Runs[1].Replaced {
		t.Errorf("%+v", o)
	}
}

// TestClaim: a directory with other files is refused, and one of an earlier suite is not.
func TestClaim(t *testing.T) {
	dir := t.TempDir()
	if err := Claim(filepath.Join(dir, "new")); err != nil {
		t.Error(err)
	}
	_, _, earlier := run(t, 1, 1, map[string][]verdict.Verdict{"a": {pass}})
	if err := Claim(earlier); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, IndexFile), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Claim(dir); err == nil || !strings.Contains(err.Error(), "--out") {
		t.Errorf("a directory with another file: %v", err)
	}
}

func TestLeastP(t *testing.T) {
	// Of 70 ways to order four and four values, two are the most extreme.
	if p := leastP(4, 4); p != 2./70 {
		t.Errorf("%v, want %v", p, 2./70)
	}
}
