package compare

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"golang.org/x/perf/benchmath"

	"railbed/capture/report"
	"railbed/reporting"
)

// Outcome is the result of the test of a difference.
type Outcome string

// Outcomes.
const (
	// Equal is the outcome if all values of both sides are the same.
	Equal Outcome = "equal"
	// OneSided is the outcome if only one side has the number.
	OneSided Outcome = "one side"
	// TooFew is the outcome if not even the greatest difference would be significant with so few runs.
	TooFew Outcome = "too few runs"
	// Insignificant is the outcome if the test finds no difference.
	Insignificant Outcome = "not significant"
	// Perhaps is the outcome if the test finds a difference, but so many tests may find such a
	// difference by chance.
	Perhaps Outcome = "perhaps"
	// The difference is significant among all tests. Differs is for numbers of which neither direction is
	// better.
	Better  Outcome = "better"
	Worse   Outcome = "worse"
	Differs Outcome = "differs"
)

// Number is a number that reports have, on both sides.
type Number struct {
	reporting.Number
	Base Sample `json:"base"`
	New  Sample `json:"new"`
	// Difference is the difference of the medians, New less Base. Ratio is New by Base, absent if Base is 0.
	// Both are absent if only one side has the number.
	Difference *float64 `json:"difference,omitempty"`
	Ratio      *float64 `json:"ratio,omitempty"`
	// P is the probability of values at least so different if both sides have one distribution. It is absent
	// without a test.
	P       *float64 `json:"p,omitempty"`
	Outcome Outcome  `json:"outcome"`
	// Needs is benchmath's message about the number of runs that the test needs, if there are too few.
	Needs string `json:"needs,omitempty"`
}

// Sample is the values of a side.
type Sample struct {
	// Values has a value for each run that has the number, in ascending order.
	Values []float64 `json:"values"`
	// ByRun has the same values by the index of their run.
	ByRun  map[int]float64 `json:"-"`
	Median float64         `json:"median"`
	// Low and High are the bounds of the median's confidence interval, absent with too few runs. Confidence
	// is the interval's own, at least 0.95.
	Low        *float64 `json:"low,omitempty"`
	High       *float64 `json:"high,omitempty"`
	Confidence float64  `json:"confidence,omitempty"`
	// Range is the interval as benchstat prints it, the greater distance from the median in percent.
	Range string `json:"range,omitempty"`
	// needs is benchmath's word on how many runs an interval needs, if there are too few.
	needs string
}

// confidence is the level of the medians' confidence intervals, as in benchstat.
const confidence = 0.95

// place identifies a number.
type place struct{ section, of, what string }

// gathered collects numbers.
type gathered struct {
	all []Number
	at  map[place]int
	// side, run and times are of the run that is read. times counts numbers of one name.
	side, run int
	times     map[place]int
}

// most bounds values, so that sums and differences of two are finite. JSON has no other numbers.
const most = 1e300

// add adds the value of a run. It leaves out what is no number.
func (g *gathered) add(n reporting.Number, value float64) {
	if math.IsNaN(value) || math.Abs(value) > most {
		return
	}
	key := place{n.Section, n.Of, n.What}
	g.times[key]++
	if g.times[key] > 1 {
		key.what += fmt.Sprintf(" (%d)", g.times[key])
		n.What, n.Size, n.Figure = key.what, 0, ""
	}
	i, known := g.at[key]
	if !known {
		i = len(g.all)
		g.at[key] = i
		g.all = append(g.all, Number{Number: n, Base: Sample{Values: []float64{}, ByRun: map[int]float64{}},
			New: Sample{Values: []float64{}, ByRun: map[int]float64{}}})
	}
	sample := [2]*Sample{&g.all[i].Base, &g.all[i].New}[g.side]
	sample.Values = append(sample.Values, value)
	sample.ByRun[g.run] = value
}

// Numbers returns the numbers of reports. Base has the values, one for each report that has the number, in
// ascending order.
func Numbers(reports []*report.Report) []Number {
	sides := [2]*side{{}, {}}
	for _, r := range reports {
		sides[0].runs = append(sides[0].runs, &run{report: r})
	}
	return numbers(sides, &benchmath.Thresholds{CompareAlpha: DefaultAlpha})
}

// numbers collects all numbers and compares them.
func numbers(sides [2]*side, thresholds *benchmath.Thresholds) []Number {
	g := &gathered{all: []Number{}, at: map[place]int{}}
	for i, s := range sides {
		g.side = i
		for k, one := range s.runs {
			g.run, g.times = k, map[place]int{}
			reporting.Numbers(one.report, g.add)
			g.recording(one.messages)
		}
	}
	slices.SortStableFunc(g.all, func(a, b Number) int {
		return slices.Index(reporting.Sections, a.Section) - slices.Index(reporting.Sections, b.Section)
	})
	tests := map[string]int{} // by section
	for i := range g.all {
		if g.all[i].compare(thresholds); g.all[i].P != nil {
			tests[g.all[i].Section]++
		}
	}
	for i := range g.all {
		n := &g.all[i]
		n.judge(strict(thresholds.CompareAlpha, len(tests), tests[n.Section]))
	}
	return g.all
}

// strict returns the thresholds for the numbers of a section. A test at alpha errs in a share alpha of the
// cases where nothing differs, so that some of many tests err. By Bonferroni's inequality the probability of
// any error is at most alpha if thresholds add up to alpha, however the numbers depend on each other. Each
// section has an equal part, so that a fabric with many links does not hide workloads.
func strict(alpha float64, sections, tests int) *benchmath.Thresholds {
	parts := max(sections, 1) * max(tests, 1)
	if parts == 1 {
		return &benchmath.Thresholds{CompareAlpha: alpha}
	}
	alpha /= float64(parts)
	unit := math.Pow(10, math.Floor(math.Log10(alpha))-1) // two digits are enough to read
	alpha, _ = strconv.ParseFloat(strconv.FormatFloat(math.Floor(alpha/unit)*unit, 'g', 2, 64), 64)
	return &benchmath.Thresholds{CompareAlpha: alpha}
}

// compare computes the fields that follow from the values.
func (n *Number) compare(thresholds *benchmath.Thresholds) {
	base, changed := n.Base.summarise(thresholds), n.New.summarise(thresholds)
	if base == nil || changed == nil {
		n.Outcome = OneSided
		return
	}
	difference := n.New.Median - n.Base.Median
	n.Difference = &difference
	if ratio := n.New.Median / n.Base.Median; !math.IsNaN(ratio) && !math.IsInf(ratio, 0) {
		n.Ratio = &ratio
	}
	if all := slices.Concat(n.Base.Values, n.New.Values); slices.Min(all) == slices.Max(all) {
		n.Outcome = Equal
		return
	}
	c := benchmath.AssumeNothing.Compare(base, changed)
	switch {
	case c.P > c.Alpha && len(c.Warnings) > 0:
		n.Outcome, n.Needs = TooFew, c.Warnings[0].Error()
		return
	case c.P > c.Alpha:
		n.Outcome = Insignificant
	default:
		n.Outcome = Perhaps
	}
	n.P = &c.P
}

// judge takes a difference that a test found as such if it is significant by the strict thresholds, too.
func (n *Number) judge(strict *benchmath.Thresholds) {
	if n.Outcome != Perhaps {
		return
	}
	c := benchmath.AssumeNothing.Compare(benchmath.NewSample(n.Base.Values, strict),
		benchmath.NewSample(n.New.Values, strict))
	switch {
	case c.P > c.Alpha:
		if len(c.Warnings) > 0 {
			n.Needs = c.Warnings[0].Error()
		}
	case n.Better == reporting.Neither || *n.Difference == 0:
		n.Outcome = Differs
	case (*n.Difference > 0) == (n.Better == reporting.More):
		n.Outcome = Better
	default:
		n.Outcome = Worse
	}
}

// summarise sets the median and its interval. It returns nil without values.
func (s *Sample) summarise(thresholds *benchmath.Thresholds) *benchmath.Sample {
	if len(s.Values) == 0 {
		return nil
	}
	sample := benchmath.NewSample(s.Values, thresholds)
	summary := benchmath.AssumeNothing.Summary(sample, confidence)
	s.Median = summary.Center
	if len(s.Values) > 1 {
		s.Range = summary.PctRangeString()
	}
	if len(summary.Warnings) > 0 {
		s.needs = summary.Warnings[0].Error()
	}
	if !math.IsInf(summary.Lo, 0) && !math.IsInf(summary.Hi, 0) {
		s.Low, s.High, s.Confidence = &summary.Lo, &summary.Hi, summary.Confidence
	}
	return sample
}
