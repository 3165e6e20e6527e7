package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/capture/bundle"
	"railbed/capture/report"
	"railbed/reporting"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

var began = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

// withTime is a run of one workload whose time is in microseconds.
func withTime(us float64) *report.Report {
	return &report.Report{Format: report.Format, Workloads: []report.Workload{{Name: "ar", Time: us}}}
}

// write writes reports as directories of results, and returns their names. Each gets a time of its own.
func write(t *testing.T, reports ...*report.Report) (names []string) {
	t.Helper()
	dir := t.TempDir()
	for i, r := range reports {
		if r.Started.IsZero() {
			began = began.Add(time.Second)
			r.Started = began
		}
		name := filepath.Join(dir, fmt.Sprintf("run%d", i))
		var text bytes.Buffer
		if err := errors.Join(r.WriteJSON(&text), os.Mkdir(name, 0o755),
			os.WriteFile(filepath.Join(name, report.JSONFile), text.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

func runs(t *testing.T, base, changed []string, o Options) *Comparison {
	t.Helper()
	c, err := Runs(t.Context(), base, changed, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// find returns a number.
func find(t *testing.T, c *Comparison, section, what string) *Number {
	t.Helper()
	i := slices.IndexFunc(c.Numbers, func(n Number) bool { return n.Section == section && n.What == what })
	if i < 0 {
		t.Fatalf("no %s of %s in %+v", what, section, c.Numbers)
	}
	return &c.Numbers[i]
}

// sidesOf makes sides of runs whose times are given.
func sidesOf(times ...[]float64) (sides [2]*side) {
	for i := range sides {
		sides[i] = &side{}
		for _, us := range times[i] {
			sides[i].runs = append(sides[i].runs, &run{report: withTime(us)})
		}
	}
	return sides
}

// TestSignificance compares with published numbers. Mann and Whitney (1947, table I) have the distribution of
// U. For 4 and 4 runs without overlap P(U = 0) is 1/70. For 6 and 6 runs P(U <= 5) is 0.021 and P(U <= 11) is
// 0.155. The test has two sides.
func TestSignificance(t *testing.T) {
	for _, c := range []struct {
		name      string
		base, new []float64
		alpha     float64
		p         float64
		want      Outcome
		needs     string
	}{
		{"one run each", []float64{1}, []float64{9}, 0.05, 0, TooFew, ">= 4 samples"},
		{"three runs each", []float64{1, 2, 3}, []float64{7, 8, 9}, 0.05, 0, TooFew, ">= 4 samples"},
		{"four runs, apart", []float64{1, 2, 3, 4}, []float64{6, 7, 8, 9}, 0.05, 2. / 70, Worse, ""},
		{"four runs, the other way", []float64{6, 7, 8, 9}, []float64{1, 2, 3, 4}, 0.05, 2. / 70, Better, ""},
		{"four runs, a strict test", []float64{1, 2, 3, 4}, []float64{6, 7, 8, 9}, 0.01, 0, TooFew,
			">= 5 samples"},
		{"U is 5", []float64{1, 2, 3, 4, 7, 9}, []float64{5, 6, 8, 10, 11, 12}, 0.05, 0.0411, Worse, ""},
		{"U is 11", []float64{1, 7, 8, 9, 10, 11}, []float64{2, 3, 4, 5, 6, 12}, 0.05, 0.3095, Insignificant,
			""},
		{"all the same", []float64{5, 5, 5, 5}, []float64{5, 5, 5, 5}, 0.05, 0, Equal, ""},
		{"one against many", []float64{1}, []float64{2, 3, 4, 5, 6}, 0.05, 1. / 3, Insignificant, ""},
		{"none", []float64{1}, nil, 0.05, 0, OneSided, ""},
	} {
		n := find(t, compare(sidesOf(c.base, c.new), Options{Alpha: c.alpha}), reporting.WorkloadSection,
			"time")
		got := 0.0
		if n.P != nil {
			got = *n.P
		}
		if n.Outcome != c.want || math.Abs(got-c.p) > 5e-5 || !strings.Contains(n.Needs, c.needs) ||
			(c.needs == "") != (n.Needs == "") {
			t.Errorf("%s: %q, p %v, needs %q; want %q, p %v, needs %q", c.name, n.Outcome, got, n.Needs,
				c.want, c.p, c.needs)
		}
	}
}

// TestMedians: the interval from the least to the greatest of six values has the median with probability
// 1 - 2/2^6. Five values have no interval of 95 %.
func TestMedians(t *testing.T) {
	n := find(t, compare(sidesOf([]float64{9e6, 1e6, 3e6, 4e6, 2e6, 7e6}, []float64{1e6, 2e6, 3e6, 4e6, 5e6}),
		Options{Alpha: 0.05}), reporting.WorkloadSection, "time")
	if b := n.Base; b.Median != 3.5 || b.Low == nil || *b.Low != 1 || *b.High != 9 ||
		b.Confidence != 1-2./64 {
		t.Errorf("six values: %+v", b)
	}
	if b := n.New; b.Median != 3 || b.Low != nil || b.Range != "∞" {
		t.Errorf("five values: %+v", b)
	}
	if *n.Difference != -0.5 || math.Abs(*n.Ratio-3/3.5) > 1e-12 {
		t.Errorf("difference %v, ratio %v", *n.Difference, *n.Ratio)
	}
}

// TestSameRunsAreRarelyCalledDifferent draws both sides from one distribution, 20 numbers for each run. A
// test at 0.05 errs in up to 5 % of the cases, and so does the judgement of a whole comparison.
func TestSameRunsAreRarelyCalledDifferent(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	const cases, numbers = 500, 20
	found, wrong := 0, 0
	for range cases {
		var sides [2]*side
		for i := range sides {
			sides[i] = &side{}
			for range 8 {
				r := &report.Report{}
				for k := range numbers {
					r.Trainings = append(r.Trainings, report.Training{Name: string('a' + rune(k)),
						Iterations: []float64{math.Exp(draw.NormFloat64())}})
				}
				sides[i].runs = append(sides[i].runs, &run{report: r})
			}
		}
		c := compare(sides, Options{Alpha: 0.05})
		if found += c.Significant; c.Tests != numbers {
			t.Fatalf("%d tests, want %d", c.Tests, numbers)
		}
		if c.Different > 0 {
			wrong++
		}
	}
	// Four standard deviations above 5 % are 5.9 % and 8.9 %.
	if share := float64(found) / cases / numbers; share > 0.059 || share < 0.03 {
		t.Errorf("%.1f%% of the tests find a difference, want up to 5%%", share*100)
	}
	if share := float64(wrong) / cases; share > 0.089 {
		t.Errorf("%.1f%% of the comparisons call a number different, want up to 5%%", share*100)
	}
}

// TestManyTestsNeedMoreRuns: of three numbers one differs. Four runs of each side may be apart by chance in
// one of three tests, and five may not: their least p is 0.0079, from the same table as above.
func TestManyTestsNeedMoreRuns(t *testing.T) {
	for runs, want := range map[int]Outcome{4: Perhaps, 5: Worse} {
		var sides [2]*side
		for i := range sides {
			sides[i] = &side{}
			for k := range runs {
				r := withTime(float64(100*i + k))
				r.Workloads[0].AlgBW, r.Workloads[0].BusBW = float64(2*k+i), float64(2*k+i)
				sides[i].runs = append(sides[i].runs, &run{report: r})
			}
		}
		c := compare(sides, Options{Alpha: 0.05})
		n := find(t, c, reporting.WorkloadSection, "time")
		if n.Outcome != want || c.Tests != 3 || (want == Perhaps) != (c.Different == 0) ||
			(want == Perhaps) != strings.HasPrefix(n.Needs, "need >= 5 samples") {
			t.Errorf("%d runs: %+v, want %s; %d tests", runs, n, want, c.Tests)
		}
	}
}

// TestQuantiles takes nearest ranks, counted by hand.
func TestQuantiles(t *testing.T) {
	for _, c := range []struct {
		n    int
		p    float64
		rank time.Duration
	}{{10, 0.1, 1}, {10, 0.5, 5}, {10, 0.9, 9}, {10, 0.99, 10}, {10, 1, 10}, {10, 0.001, 1}, {30, 0.1, 3},
		{1000, 0.999, 999}, {1001, 0.999, 1000}, {1, 0.5, 1}, {3, 0.5, 2}} {
		var sorted []time.Duration
		for i := range c.n {
			sorted = append(sorted, time.Duration(i+1))
		}
		if got := quantile(sorted, c.p); got != c.rank {
			t.Errorf("quantile %v of %d has rank %d, want %d", c.p, c.n, got, c.rank)
		}
	}
}

// TestBadRuns: each bad run is an error with a remedy.
func TestBadRuns(t *testing.T) {
	good := write(t, withTime(1), withTime(2))
	dir := t.TempDir()
	var zipped bytes.Buffer
	if _, err := bundle.Write(t.Context(), &zipped, good[0], nil); err != nil {
		t.Fatal(err)
	}
	broken, archive := filepath.Join(dir, "broken"), filepath.Join(dir, "first.zip")
	if err := errors.Join(os.Mkdir(broken, 0o755), os.WriteFile(filepath.Join(broken, report.JSONFile),
		[]byte(`{"format": "railbed-report/1", "verdict": `), 0o644),
		os.WriteFile(archive, zipped.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		base, new []string
		want      []string
	}{
		{good[:1], []string{filepath.Join(dir, "none")}, []string{"none: no such file"}},
		{good[:1], []string{dir}, []string{dir + " has no report.json: want a directory of results"}},
		{good[:1], []string{broken}, []string{broken + ": report.json: read report: unexpected EOF"}},
		{good[:1], good[:1], []string{"run0 is the same run as ", "want each run once"}},
		{good, []string{archive}, []string{"first.zip is the same run as " + good[0]}},
		{[]string{broken}, []string{dir}, []string{"unexpected EOF", "has no report.json"}},
	} {
		_, err := Runs(t.Context(), c.base, c.new, Options{})
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v -- %v: %v, want %q", c.base, c.new, err, want)
			}
		}
	}
	if c := runs(t, []string{archive}, good[1:], Options{}); find(t, c, reporting.WorkloadSection,
		"time").Base.Median != 1e-6 {
		t.Errorf("a bundle gives %+v", c.Numbers)
	}
}

// TestPlans: a change of a plan is listed, and a run whose plan differs from its side's plan is noted.
func TestPlans(t *testing.T) {
	const file = "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, links: {default: {rate: " +
		"1gbit}}}\n"
	names := write(t, withTime(1), withTime(2), withTime(3), withTime(4))
	for i, text := range []string{file, file, strings.Replace(file, "1gbit", "2gbit", 1)} {
		var plan bytes.Buffer
		if err := errors.Join(plantest.Compile(t, text).WriteJSON(&plan),
			os.WriteFile(filepath.Join(names[i], bundle.PlanFile), plan.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	const change = "rate 1gbit, now 2gbit"
	if c := runs(t, names[:1], names[1:2], Options{}); len(c.Plan) != 0 || !c.PlanCompared {
		t.Errorf("equal plans: %q, %v", c.Plan, c.PlanCompared)
	}
	if c := runs(t, names[:1], names[2:3], Options{}); len(c.Plan) != 1 || !strings.HasSuffix(c.Plan[0],
		change) {
		t.Errorf("another rate: %q", c.Plan)
	}
	c := runs(t, []string{names[0], names[2]}, names[3:], Options{})
	if notes := strings.Join(c.Notes, "\n"); c.PlanCompared ||
		!strings.Contains(notes, "run2 has another plan than the runs before it: link") ||
		!strings.Contains(notes, "run3 has no plan.json: its plan is not compared") {
		t.Errorf("notes %q", c.Notes)
	}
}

// TestDocumentIsJSON: numbers that JSON does not have are left out.
func TestDocumentIsJSON(t *testing.T) {
	c := compare(sidesOf([]float64{0, math.NaN()}, []float64{1e308, math.Inf(1)}), Options{Alpha: 0.05})
	if n := find(t, c, reporting.WorkloadSection, "time"); n.Ratio != nil {
		t.Errorf("something by nothing is %v", *n.Ratio)
	}
	for _, pair := range [][]float64{{1e-308}, {1e300}, {-1e300}, {0}} {
		c := compare(sidesOf(pair, []float64{1e306}), Options{Alpha: 0.05})
		if _, err := json.Marshal(c); err != nil {
			t.Errorf("%v: %v", pair, err)
		}
	}
}

// TestStrict: the thresholds of all tests add up to at most alpha, and rounding loses little of it.
func TestStrict(t *testing.T) {
	for sections := range 10 {
		for _, tests := range []int{0, 1, 3, 64, 1000, 77777} {
			const alpha = 0.05
			got := strict(alpha, sections, tests).CompareAlpha * float64(max(1, sections)*max(1, tests))
			if got > alpha*(1+1e-9) || got < 0.9*alpha {
				t.Errorf("%d sections of %d tests: %v in all, want up to %v", sections, tests, got, alpha)
			}
		}
	}
}

// TestTextsHaveNoExponents: values of every size have four significant digits, and no exponent.
func TestTextsHaveNoExponents(t *testing.T) {
	for _, c := range []struct {
		value float64
		unit  string
		want  string
	}{{5.634e-6, "GB/s", "0.000005634 GB/s"}, {5.634e4, "GB/s", "56340 GB/s"},
		{45072, reporting.BitRate, "45.07 kbit/s"}, {0.25, "", "0.25"},
		{1e9, "", "1000000000"}, {0.00001, "/s", "0.00001000/s"}} {
		if got := Text(c.value, c.unit); got != c.want {
			t.Errorf("%v %s: %q, want %q", c.value, c.unit, got, c.want)
		}
	}
}
