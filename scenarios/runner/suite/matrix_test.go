package suite

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

// matrixFile is a file with a matrix of two axes and two repetitions, and the comparisons of a test.
func matrixFile(t *testing.T, compare string) *spec.File {
	t.Helper()
	return repeatedFile(t, 2, "compare:\n"+compare)
}

// repeatedFile is the file with other repetitions, and with further keys.
func repeatedFile(t *testing.T, repeat int, keys string) *spec.File {
	t.Helper()
	f, err := spec.Parse("a.yaml", fmt.Appendf(nil, "name: a\nfabric: {topology: single-switch}\n"+
		"description: ${transport} ${loss}\nmatrix: {transport: [tcp, rd], loss: [0, 1%%], repeat: %d}\n%s",
		repeat, keys))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// lab makes the runs of a matrix.
type lab struct {
	t    *testing.T
	file *spec.File
	// busbw and verdict of a run. A verdict of "" is PASS.
	busbw   func(cell string, repetition int) float64
	verdict func(cell string, repetition int) verdict.Verdict
	// degraded reports whether a run is degraded.
	degraded func(cell string, repetition int) bool
	// overloaded reports whether the emulation of the n-th run of a cell is overloaded although it passes.
	overloaded func(cell string, n int) bool
	times      map[string]int // runs of each cell

	mu      sync.Mutex
	made    []string // the runs
	running map[string]bool
	beside  bool // cells ran beside each other
}

// options returns the options of a suite of the matrix.
func (l *lab) options(out string) Options {
	o := Options{Out: out, Prune: prune, Do: l.do, Files: map[string]*spec.File{"a": l.file}}
	for _, c := range l.file.Cells {
		o.Cases = append(o.Cases, Case{Name: "a/" + c.String(), Path: "a.yaml", Matrix: "a", Cell: c.Values,
			Repeat: l.file.Repeat, Content: "1"})
	}
	return o
}

func (l *lab) do(_ context.Context, c Case, repetition int, out string) (*report.Report, error) {
	l.mu.Lock()
	if l.running == nil {
		l.running = map[string]bool{}
	}
	l.beside = l.beside || l.running[c.Matrix]
	l.running[c.Matrix] = true
	l.made = append(l.made, fmt.Sprintf("%s %d", c.Name, repetition))
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.running[c.Matrix] = false
		l.mu.Unlock()
	}()
	cell := spec.Cell{Values: c.Cell}.String()
	r := &report.Report{Format: report.Format, Verdict: pass, Reason: "because", Started: time.Now(),
		Seed: uint64(100 + repetition)}
	if l.verdict != nil {
		if v := l.verdict(cell, repetition); v != "" {
			r.Verdict = v
		}
	}
	l.mu.Lock()
	if l.times == nil {
		l.times = map[string]int{}
	}
	l.times[cell]++
	n := l.times[cell]
	l.mu.Unlock()
	r.Fidelity = &report.Fidelity{Verdict: report.Faithful}
	if l.overloaded != nil && l.overloaded(cell, n) {
		r.Fidelity.Verdict = report.Overloaded
	} else if l.degraded != nil && l.degraded(cell, repetition) {
		r.Fidelity.Verdict = report.Degraded
	}
	r.Workloads = []report.Workload{{Name: "ar", BusBW: l.busbw(cell, repetition),
		Wrong: uint64(strings.Count(cell, "1%"))},
		{Name: "other", BusBW: 1}}
	r.Stacks = []report.Stack{}
	var text bytes.Buffer
	return r, errors.Join(r.WriteJSON(&text), os.MkdirAll(out, 0o755),
		os.WriteFile(filepath.Join(out, report.JSONFile), text.Bytes(), 0o644))
}

// byCell returns busbw 10 for tcp and 30 for rd without loss, and with loss 2 and 28. Repetitions differ.
func byCell(cell string, repetition int) float64 {
	return map[string]float64{"transport=tcp, loss=0": 10, "transport=rd, loss=0": 30,
		"transport=tcp, loss=1%": 2, "transport=rd, loss=1%": 28}[cell] + float64(repetition) - 1.5
}

func (l *lab) run(o Options) *Results {
	l.t.Helper()
	r, err := Run(l.t.Context(), o)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// TestPartOfMatrix: comparisons with cells that the suite does not have are counted.
func TestPartOfMatrix(t *testing.T) {
	l := &lab{t: t, busbw: byCell, file: matrixFile(t,
		"  - {metric: busbw, of: ar, cells: {loss: 1%}, beside: {loss: 0}, ratio: '>= 90%'}\n")}
	o := l.options(t.TempDir())
	o.Cases = o.Cases[1:]
	if m := l.run(o).Matrices[0]; len(m.Compare) != 1 || m.Left != 1 ||
		m.Compare[0].Cell != "transport=rd, loss=1%" {
		t.Errorf("%+v", m.Compare)
	}
}

// TestMatrixFiles: the files of a matrix have the numbers of all cells, and the seeds of all runs.
func TestMatrixFiles(t *testing.T) {
	l := &lab{t: t, busbw: byCell, file: matrixFile(t,
		"  - {metric: busbw, of: ar, cells: {loss: 1%}, beside: {loss: 0}, ratio: '>= 90%'}\n")}
	dir := t.TempDir()
	r := l.run(l.options(dir))
	if seeds := r.Matrices[0].Cells[3].Seeds; !slices.Equal(seeds, []uint64{101, 102}) {
		t.Errorf("seeds %v", seeds)
	}
	text, err := os.ReadFile(filepath.Join(dir, "a", CSVFile))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, row := range rows {
		got[strings.Join(row[:5], " ")] = row[5:]
	}
	for key, want := range map[string]string{
		"transport loss section of number": "unit runs median low high p25 p75 min max cv",
		"rd 1% workloads ar busbw": "bit/s 2 224000000000   220000000000 228000000000 220000000000 " +
			"228000000000 0.0252538",
	} {
		row := got[key]
		if len(row) > 0 {
			row[len(row)-1] = fmt.Sprintf("%.9s", row[len(row)-1])
		}
		if strings.Join(row, " ") != want {
			t.Errorf("%s is %q, want %q", key, row, want)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "a", MatrixFile))
	if err != nil {
		t.Fatal(err)
	}
	for want, there := range map[string]bool{"ar busbw in Gbit/s": true, "other busbw": false,
		`<svg class="chart `: true, "transport=rd, loss=1%": true, `href="../index.html"`: true,
		`href="matrix.csv"`: true,
		"101 102":           true, "in 2 pairs of runs, want &gt;= 90%": true,
		"transport=rd, loss=1%: median 224.0 of 2 runs, 220.0 to 228.0": true} {
		if bytes.Contains(page, []byte(want)) != there {
			t.Errorf("the page has %q: %t, want %t", want, !there, there)
		}
	}
	for name, want := range map[string]string{IndexFile: `href="./a/matrix.html"`,
		JUnitFile: `name="ar busbw of transport=tcp, loss=1% beside transport=tcp, loss=0"`} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil ||
			!bytes.Contains(text, []byte(want)) {
			t.Errorf("%s lacks %s: %v", name, want, err)
		}
	}
	if name := "./a%3Fb%25/c:d"; link("a?b%/c:d") != name {
		t.Errorf("link %s, want %s", link("a?b%/c:d"), name)
	}
}

// TestCellsTakeTurns: cells of one matrix do not run beside each other, and another file runs meanwhile.
func TestCellsTakeTurns(t *testing.T) {
	l := &lab{t: t, busbw: byCell, file: matrixFile(t,
		"  - {metric: wrong elements, of: ar, cells: {loss: 1%}, beside: {loss: 0}, ratio: '>= 0%'}\n")}
	o := l.options(t.TempDir())
	o.Jobs = 3
	o.Cases = append(o.Cases, Case{Name: "z", Path: "z.yaml"})
	began := make(chan bool)
	o.Do = func(ctx context.Context, c Case, repetition int, out string) (*report.Report, error) {
		if c.Name == "z" {
			close(began)
			return &report.Report{Verdict: pass}, nil
		}
		select { // a cell ends only after the other file has begun
		case <-began:
		case <-time.After(hosttest.Bound):
			t.Error("the other file does not begin")
		}
		return l.do(ctx, c, repetition, out)
	}
	o.Prune = func(string, ...string) error { return nil }
	if r := l.run(o); l.beside || len(l.made) != 8 || r.Verdict != pass {
		t.Errorf("%s, beside each other: %t, %v", r.Verdict, l.beside, l.made)
	}
}

// TestResume: a suite goes on where an earlier one was interrupted, in the same directory.
func TestResume(t *testing.T) {
	const checks = "  - {metric: busbw, of: ar, cells: {loss: 1%}, beside: {loss: 0}, ratio: '>= 10%'}\n"
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	l := &lab{t: t, busbw: byCell, file: matrixFile(t, checks)}
	l.verdict = func(cell string, repetition int) verdict.Verdict {
		switch {
		case cell == "transport=tcp, loss=0" && repetition == 1:
			return fail
		case cell == "transport=rd, loss=0" && repetition == 2:
			cancel()
			return verdict.Aborted
		}
		return ""
	}
	if r, err := Run(ctx, l.options(dir)); err != nil || r.Verdict != verdict.Aborted || len(l.made) != 6 {
		t.Fatalf("%v, %v, %v", r.Verdict, err, l.made)
	}
	earlier, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.made, l.verdict = nil, nil
	o := l.options(dir)
	o.Earlier = earlier
	o.Cases[1].Content = "2" // the cell's settings changed
	o.Cases[1].Repeat = 1
	r := l.run(o)
	want := []string{"a/transport=tcp, loss=1% 1", "a/transport=rd, loss=0 2", "a/transport=tcp, loss=0 2"}
	if !slices.Equal(l.made, want) {
		t.Errorf("made %v, want %v", l.made, want)
	}
	var dirs []string
	for _, a := range r.Cases[2].Runs {
		dirs = append(dirs, fmt.Sprint(a.Dir, a.Earlier))
	}
	if r.Cases[0].Verdict != fail || r.Verdict != fail || !r.Cases[0].Runs[0].Earlier ||
		!slices.Equal(dirs, []string{"a/transport=rd, loss=0/run-1true",
			"a/transport=rd, loss=0/run-2false"}) {
		t.Errorf("%+v, runs %v", r.Cases[0], dirs)
	}
	if n := r.Matrices[0].Cells[2].Runs; n != 2 {
		t.Errorf("%d runs have numbers, want 2", n)
	}
}

// TestResumeAfterCrash: the results are written after each run.
func TestResumeAfterCrash(t *testing.T) {
	dir := t.TempDir()
	l := &lab{t: t, busbw: byCell, file: matrixFile(t,
		"  - {metric: busbw, of: ar, cells: {loss: 1%}, beside: {loss: 0}, ratio: '>= 10%'}\n")}
	var during []int
	o := l.options(dir)
	o.Do = func(ctx context.Context, c Case, repetition int, out string) (*report.Report, error) {
		count := 0
		if r, err := Read(dir); err == nil {
			for _, o := range r.Cases {
				count += len(o.Runs)
			}
			if r.Verdict != verdict.Aborted {
				t.Errorf("the verdict is %s before the end", r.Verdict)
			}
		}
		during = append(during, count)
		return l.do(ctx, c, repetition, out)
	}
	l.run(o)
	if want := []int{0, 1, 2, 3, 4, 5, 6, 7}; !slices.Equal(during, want) {
		t.Errorf("runs in %s during the suite: %v, want %v", ResultsFile, during, want)
	}
}

// TestSeedsDiffer: runs of a cell with different verdicts are not flaky, since their seeds differ.
func TestSeedsDiffer(t *testing.T) {
	l := &lab{t: t, busbw: byCell, file: matrixFile(t,
		"  - {metric: busbw, of: ar, cells: {loss: 1%}, beside: {loss: 0}, ratio: '>= 10%'}\n"),
		verdict: func(_ string, repetition int) verdict.Verdict {
			if repetition == 2 {
				return fail
			}
			return ""
		}}
	o := l.run(l.options(t.TempDir())).Cases[0]
	if o.Flaky || o.Reason != "1 FAIL, 1 PASS: seed 102: because" {
		t.Errorf("flaky: %t, %q", o.Flaky, o.Reason)
	}
}

func TestSummary(t *testing.T) {
	s := summarise([]float64{1, 2, 4, 8, 16, 32})
	// Type 8: the quantile p of n values is at p (n + 1/3) + 1/3.
	if s.Median != 6 || math.Abs(s.P25-(1+11./12)) > 1e-9 || s.Least != 1 || s.Most != 32 ||
		math.Abs(*s.Variation-math.Sqrt(140.7)/10.5) > 1e-9 {
		t.Errorf("%+v, variation %v", s, *s.Variation)
	}
	if s := summarise([]float64{1, 2, 3, 4}); s.Low != nil || s.Variation == nil {
		t.Errorf("4 values: %+v", s)
	}
	if s := summarise([]float64{5}); s.Low != nil || s.Variation != nil || s.P25 != 5 {
		t.Errorf("one value: %+v", s)
	}
	if s := summarise(nil); s.Runs != 0 {
		t.Errorf("no value: %+v", s)
	}
}

// TestBootstrap compares with the exact distribution of the median of resamples. The median of an odd
// number n of draws is at most the k-th value if more than half of the draws are, each with probability
// k/n.
func TestBootstrap(t *testing.T) {
	for _, n := range []int{5, 9, 25, 99} {
		atMost := func(k int) (p float64) {
			share := float64(k) / float64(n)
			ways := 1.0 // n over j
			for j := range n + 1 {
				if 2*j > n {
					p += ways * math.Pow(share, float64(j)) * math.Pow(1-share, float64(n-j))
				}
				ways *= float64(n-j) / float64(j+1)
			}
			return p
		}
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(i + 1)
		}
		low, high := bootstrap(values)
		// 10,000 resamples give shares of 2.5 % within 0.6 % (four standard deviations).
		if below, above := atMost(int(low)-1), atMost(int(low)); below > 0.031 || above < 0.019 {
			t.Errorf("%d values: shares %.4f and %.4f around the low bound %v, want 0.025", n, below, above,
				low)
		}
		if below, above := atMost(int(high)-1), atMost(int(high)); below > 0.981 || above < 0.969 {
			t.Errorf("%d values: shares %.4f and %.4f around the high bound %v, want 0.975", n, below, above,
				high)
		}
	}
}

// TestOverloadedCells: numbers of a run with an overloaded emulation do not count, although its verdict is
// PASS. The run is made again alone, and all pages say what does not count.
func TestOverloadedCells(t *testing.T) {
	const once, always = "transport=rd, loss=0", "transport=tcp, loss=0"
	l := &lab{t: t, file: matrixFile(t, "  - {metric: busbw, of: ar, cells: {transport: rd, loss: 0}, "+
		"beside: {transport: tcp}, ratio: \">= 100%\"}\n"), busbw: byCell, overloaded: func(cell string,
		n int) bool {
		return cell == always || cell == once && n == 1
	}}
	out := t.TempDir()
	r := l.run(l.options(out))
	m := r.Matrices[0]
	for i := range m.Cells {
		c := &m.Cells[i]
		runs, not := 2, ""
		switch c.Name {
		case once:
			not = "1 made again"
		case always:
			runs, not = 0, "4 made again, 2 overloaded"
		}
		if c.Runs != runs || c.NotCounted != not || len(c.Seeds) != runs ||
			m.Numbers[0].Cells[i].Runs != runs {
			t.Errorf("%s: %d runs count, not %q; want %d and %q", c.Name, c.Runs, c.NotCounted, runs, not)
		}
	}
	if c := m.Compare[0]; c.Verdict != verdict.Inconclusive || !strings.Contains(c.Reason, "2 overloaded") {
		t.Errorf("%s: %s", c.Verdict, c.Reason)
	}
	for _, name := range []string{ResultsFile, filepath.Join("a", MatrixFile)} {
		if text, err := os.ReadFile(filepath.Join(out, name)); err != nil ||
			!bytes.Contains(text, []byte("4 made again, 2 overloaded")) {
			t.Errorf("%s does not say which runs do not count: %v", name, err)
		}
	}
	if note := r.Cases[slices.IndexFunc(r.Cases, func(o Outcome) bool {
		return strings.HasSuffix(o.Name, once)
	})].Note; !strings.Contains(note, "run-1, made alone, was PASS") {
		t.Errorf("note %q", note)
	}
}
