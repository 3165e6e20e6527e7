package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/reporting"
)

// Text formats a value with its unit in a few characters, with four significant digits and no exponent.
func Text(value float64, unit string) string {
	switch unit {
	case reporting.Seconds:
		return units.Took(time.Duration(math.Round(value * 1e9)))
	case reporting.BitRate:
		return units.BitRate(value)
	case reporting.Share:
		return strconv.FormatFloat(value*100, 'f', 1, 64) + "%"
	}
	text := strconv.FormatFloat(value, 'g', 4, 64)
	if value == math.Trunc(value) || math.Abs(value) >= 1e4 {
		text = strconv.FormatFloat(value, 'f', 0, 64)
	} else if strings.Contains(text, "e") {
		text = units.Digits(value)
	}
	if unit == "/s" {
		return text + unit
	}
	return strings.TrimSpace(text + " " + unit)
}

// Texts returns the cells of a side: the median and, for several runs, benchstat's range.
func (n *Number) Texts(s Sample) string {
	switch len(s.Values) {
	case 0:
		return "-"
	case 1:
		return Text(s.Median, n.Unit)
	}
	return Text(s.Median, n.Unit) + " ± " + s.Range
}

// Change returns the difference, without a claim that it is significant: "+12us +3.4%".
func (n *Number) Change() string {
	if n.Difference == nil {
		return "-"
	}
	if *n.Difference == 0 {
		return "0"
	}
	sign := "+"
	if *n.Difference < 0 {
		sign = "-"
	}
	if n.Unit == reporting.Share {
		return fmt.Sprintf("%+.1f points", *n.Difference*100)
	}
	text := sign + Text(math.Abs(*n.Difference), n.Unit)
	if n.Ratio != nil {
		text += " " + percent(*n.Ratio)
	}
	return text
}

// percent formats a ratio as a change. Ratios beyond 10 are clearer as such.
func percent(ratio float64) string {
	if ratio >= 10 {
		return "(x" + strconv.FormatFloat(ratio, 'f', 0, 64) + ")"
	}
	return fmt.Sprintf("(%+.1f%%)", (ratio-1)*100)
}

// Told returns the result of the test of the difference: "+3.4% worse", "~" if the difference is not
// significant.
func (n *Number) Told() string {
	switch n.Outcome {
	case Better, Worse, Differs, Perhaps:
		return n.Change() + " " + string(n.Outcome)
	case OneSided, Equal:
		return string(n.Outcome)
	}
	return "~"
}

// Test returns p and the numbers of runs, as benchstat prints them: "p=0.029 n=4".
func (n *Number) Test() string {
	runs := fmt.Sprintf("n=%d", len(n.Base.Values))
	if len(n.Base.Values) != len(n.New.Values) {
		runs += fmt.Sprintf("+%d", len(n.New.Values))
	}
	if n.P == nil {
		return runs
	}
	return fmt.Sprintf("p=%.3f %s", *n.P, runs)
}

// Words returns the words of a side: "PASS", or "PASS 3, FAIL 1" for runs that differ.
func Words(words []Word) string {
	if len(words) == 1 {
		return orNone(words[0].Word)
	}
	var all []string
	for _, w := range words {
		all = append(all, fmt.Sprintf("%s %d", orNone(w.Word), w.Runs))
	}
	return strings.Join(all, ", ")
}

func orNone(word string) string {
	if word == "" {
		return "-"
	}
	return word
}

// Sides returns the words of both sides.
func (f *Fact) Sides() [2][]Word { return [2][]Word{f.Base, f.New} }

// Title names what a fact is about.
func (f *Fact) Title() string { return strings.TrimSpace(f.Of + " " + f.What) }

// Several reports whether a side has several runs. With one run on each side nothing can be tested.
func (c *Comparison) Several() bool { return len(c.Base)+len(c.New) > 2 }

// Summary is the comparison in a line.
func (c *Comparison) Summary() string {
	plan := fmt.Sprintf("changes of the plan: %d", len(c.Plan))
	if !c.PlanCompared {
		plan = "plans are not compared"
	}
	verdict := "verdict " + Words(c.Verdicts[0].Base) // of the runs
	if !c.Verdicts[0].Same() {
		verdict += ", now " + Words(c.Verdicts[0].New)
	}
	if c.Tests == 0 {
		return plan + "; " + verdict + "; too few runs to test numbers"
	}
	outcomes := map[Outcome]int{}
	for i := range c.Numbers {
		outcomes[c.Numbers[i].Outcome]++
	}
	return plural.Text("%s; %s; of %d tested numbers %d are better, %d worse, %d differ, %d perhaps", plan,
		verdict,
		c.Tests, outcomes[Better], outcomes[Worse], outcomes[Differs], outcomes[Perhaps])
}

// rowsShown bounds the rows of a section that people read. The JSON document has all.
const rowsShown = 64

// Changes returns the changes of the plan for people, and how many are left out.
func (c *Comparison) Changes() (shown []string, more int) {
	shown = c.Plan[:min(len(c.Plan), rowsShown)]
	return shown, len(c.Plan) - len(shown)
}

// Section is a section of numbers for people.
type Section struct {
	Title   string
	Numbers []*Number
	// Equal is the number of numbers that are left out because all runs have the same value, and More the
	// number of others that are left out.
	Equal, More int
}

// Sections returns the numbers for people: those that differ, with a bound for each section. Significant
// differences come before others where there are too many.
func (c *Comparison) Sections() (all []Section) {
	for i := range c.Numbers {
		n := &c.Numbers[i]
		if len(all) == 0 || all[len(all)-1].Title != n.Section {
			all = append(all, Section{Title: n.Section})
		}
		s := &all[len(all)-1]
		if n.Outcome == Equal {
			s.Equal++
			continue
		}
		s.Numbers = append(s.Numbers, n)
	}
	for i := range all {
		s := &all[i]
		if s.More = len(s.Numbers) - rowsShown; s.More <= 0 {
			s.More = 0
			continue
		}
		slices.SortStableFunc(s.Numbers, func(a, b *Number) int { return cmp.Compare(a.rank(), b.rank()) })
		s.Numbers = s.Numbers[:rowsShown]
	}
	return all
}

// Significant reports whether the difference is significant among all tests.
func (n *Number) Significant() bool {
	return n.Outcome == Better || n.Outcome == Worse || n.Outcome == Differs
}

// rank orders numbers where there are too many.
func (n *Number) rank() int {
	switch {
	case n.Significant():
		return 0
	case n.Outcome == Perhaps:
		return 1
	}
	return 2
}

// Found reports whether the number's test found a difference.
func (n *Number) Found() bool { return n.rank() < 2 }

// Rest describes what a section leaves out, and how many runs it lacks, "" for nothing.
func (s *Section) Rest() string {
	var parts []string
	for _, n := range s.Numbers {
		if n.Outcome == Perhaps && n.Needs != "" {
			parts = append(parts, "perhaps: "+n.Needs)
			break
		}
	}
	if s.Equal > 0 {
		parts = append(parts, fmt.Sprintf("equal in all runs: %d more", s.Equal))
	}
	if s.More > 0 {
		parts = append(parts, fmt.Sprintf("not shown: %d more, which -o json has", s.More))
	}
	return strings.Join(parts, "; ")
}

// FactTable is facts for people.
type FactTable struct {
	Title string
	Facts []Fact
	More  int // facts that are left out
}

// FactTables returns the facts for people: the inputs that differ, and the verdicts of runs and their checks
// with other verdicts that differ. Facts that differ come first where there are too many.
func (c *Comparison) FactTables() []FactTable {
	tables := []FactTable{{Title: "what else differs", Facts: c.Facts}, {Title: "verdicts"}}
	for _, f := range c.Verdicts {
		if !f.Same() || f.Of == "" || strings.HasPrefix(f.Of, "check ") {
			tables[1].Facts = append(tables[1].Facts, f)
		}
	}
	for i := range tables {
		t := &tables[i]
		if t.More = max(0, len(t.Facts)-rowsShown); t.More > 0 {
			t.Facts = slices.SortedStableFunc(slices.Values(t.Facts), func(a, b Fact) int {
				return cmp.Compare(b.differs(), a.differs())
			})[:rowsShown]
		}
	}
	return tables
}

// differs returns 1 if the fact differs, else 0.
func (f *Fact) differs() int {
	if f.Same() {
		return 0
	}
	return 1
}
