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
	"unicode"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/reporting"
	"railbed/scenarios/runner/outdir"
	"railbed/testkit/hosttest"
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
	r := &report.Report{Verdict: next, Reason: "because of " + string(next),
		Fidelity: &report.Fidelity{Verdict: report.Faithful}}
	if next == late {
		r.Verdict, r.Checks = fail, []report.Check{{Verdict: fail, Timed: true}}
	}
	return r, nil
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
	// late stands for a FAIL that rests on times only.
	late verdict.Verdict = "late"
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
		{"is late beside others", 2, 1, []verdict.Verdict{late, pass}, pass, 2, false},
		{"is late again alone", 2, 1, []verdict.Verdict{late, fail}, fail, 2, false},
		{"fails beside others", 2, 1, []verdict.Verdict{fail, pass}, fail, 2, true},
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
			if test.flaky && (!strings.HasPrefix(o.Reason, "flaky: ") ||
				!strings.HasSuffix(o.Reason, "1 FAIL: because of FAIL") &&
					!strings.HasSuffix(o.Reason, "1 PASS: because of FAIL")) {
				t.Errorf("reason %q", o.Reason)
			}
			if replaced := o.Verdict == pass && len(o.Runs) > test.repeat; replaced !=
				strings.HasPrefix(o.Note, "made again alone: run-1, made ") {
				t.Errorf("note %q of %s after %d runs", o.Note, o.Verdict, len(o.Runs))
			}
			for i, a := range o.Runs {
				if want := i < len(o.Runs)-1 && test.repeat == 1; a.Replaced != want ||
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
	r, _, _ := run(t, 2, 2, map[string][]verdict.Verdict{"a": {late, late, pass, pass}})
	if o := r.Cases[0]; o.Verdict != pass || len(o.Runs) != 4 || o.Flaky || !o.Runs[0].Replaced ||
		!o.Runs[1].Replaced {
		t.Errorf("%+v", o)
	}
}

// TestClaim: a directory with other files is refused, and one of an earlier suite is not.
func TestClaim(t *testing.T) {
	dir := t.TempDir()
	claim := func(dir string) error {
		out, err := Claim(dir)
		if err == nil {
			err = out.Close()
		}
		return err
	}
	if err := claim(filepath.Join(dir, "new")); err != nil {
		t.Error(err)
	}
	_, _, earlier := run(t, 1, 1, map[string][]verdict.Verdict{"a": {pass}})
	if err := claim(earlier); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, IndexFile), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := claim(dir); err == nil || !strings.Contains(err.Error(), "--out") {
		t.Errorf("a directory with another file: %v", err)
	}
}

// TestStrict: with --strict a scenario that this host cannot run is a failure, also for CI systems.
func TestStrict(t *testing.T) {
	for _, strict := range []bool{false, true} {
		h := &host{t: t, verdicts: map[string][]verdict.Verdict{"a": {pass}, "b": {unsupported}}}
		out := t.TempDir()
		r, err := Run(t.Context(), Options{Out: out, Strict: strict, Do: h.do, Prune: prune,
			Cases: []Case{{Name: "a", Path: "a"}, {Name: "b", Path: "b"}}})
		if err != nil {
			t.Fatal(err)
		}
		junit, err := os.ReadFile(filepath.Join(out, JUnitFile))
		if err != nil || bytes.Contains(junit, []byte("<skipped")) == strict ||
			bytes.Contains(junit, []byte("<failure")) != strict {
			t.Errorf("strict %t: %v: %s", strict, err, junit)
		}
		if want := map[bool]verdict.Verdict{false: pass, true: fail}[strict]; r.Verdict != want ||
			strict && !strings.Contains(r.Cases[1].Reason, "--strict allows no skips: because of") {
			t.Errorf("strict %t: %s, %q", strict, r.Verdict, r.Cases[1].Reason)
		}
	}
}

// TestHostileTexts: texts of files, cells and reports reach no file of a suite as control characters.
func TestHostileTexts(t *testing.T) {
	const hostile = "\x1b[2J\u009b31m\u202e<b>\x07"
	r := &Results{Format: Format, Verdict: fail, Worse: []string{hostile}, NotCompared: []string{hostile},
		PassedOver: []PassedOver{{Path: hostile, Reason: hostile}},
		Cases: []Outcome{{Case: Case{Name: hostile, Path: hostile}, Verdict: fail, Reason: hostile,
			Note: hostile,
			Runs: []Attempt{{Verdict: fail, Reason: hostile, Fidelity: hostile, Dir: "d"}}}},
		Matrices: []Matrix{{Name: "m", Cells: []Cell{{Name: hostile, Verdict: pass, NotCounted: hostile,
			Values: []spec.Setting{{Name: hostile, Value: hostile}}}},
			Numbers: []Number{{Quantity: reporting.Quantity{Section: hostile, Of: hostile, What: hostile,
				Unit: hostile}, Cells: []Summary{summarise([]float64{1, 2})}}},
			Compare: []Comparison{{Metric: hostile, Of: hostile, Cell: hostile, Beside: hostile,
				Reason: hostile,
				Where:  hostile, Verdict: fail}}}}}
	out, err := outdir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := r.write(out); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{ResultsFile, JUnitFile, IndexFile, "m/" + CSVFile, "m/" + MatrixFile} {
		text, err := out.ReadFile(name)
		if err != nil || len(text) == 0 {
			t.Fatalf("%s: %d bytes, %v", name, len(text), err)
		}
		if at := bytes.IndexFunc(text, func(r rune) bool {
			return r != '\n' && r != '\t' && !unicode.IsPrint(r)
		}); at >= 0 {
			t.Errorf("%s has the character %q", name, text[at:min(at+4, len(text))])
		}
		if strings.HasSuffix(name, ".html") && bytes.Contains(text, []byte("<b>")) {
			t.Errorf("%s has markup of a text", name)
		}
	}
	if again, err := Read(out.Name()); err != nil || again.Cases[0].Reason != hostile {
		t.Errorf("read again: %v", err)
	}
}

// TestPlantedLinks: links in a directory of results that another user planted lead nowhere.
func TestPlantedLinks(t *testing.T) {
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	for _, link := range []struct{ name, to string }{{IndexFile, victim}, {JUnitFile, victim},
		{ResultsFile + ".new", victim}, {"a", outside}} {
		out := t.TempDir()
		if err := errors.Join(os.WriteFile(victim, []byte("keep"), 0o600),
			os.Symlink(link.to, filepath.Join(out, link.name))); err != nil {
			t.Fatal(err)
		}
		_, err := Run(t.Context(), Options{Out: out, Prune: prune, Cases: []Case{{Name: "a", Path: "a.yaml"}},
			Do: func(ctx context.Context, c Case, repetition int, dir string) (*report.Report, error) {
				at, err := filepath.Rel(out, dir)
				if err != nil {
					return nil, err
				}
				d, err := outdir.Open(out)
				if err != nil {
					return nil, err
				}
				defer d.Close()
				below, err := d.Below(at) // as package runner does
				if err != nil {
					return nil, err
				}
				return &report.Report{Verdict: fail}, below.Close()
			}})
		if err != nil {
			t.Errorf("%s: %v", link.name, err)
		}
		text, err := os.ReadFile(victim)
		if names, _ := os.ReadDir(outside); err != nil || string(text) != "keep" || len(names) != 1 {
			t.Errorf("%s: the file outside has %q, %v; beside it are %v", link.name, text, err, names)
		}
	}
}

func TestLeastP(t *testing.T) {
	// Of 70 ways to order four and four values, two are the most extreme.
	if p := leastP(4, 4); p != 2./70 {
		t.Errorf("%v, want %v", p, 2./70)
	}
}
