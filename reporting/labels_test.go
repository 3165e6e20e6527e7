package reporting

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLabelsStayApart: labels that are cut still tell the things apart.
func TestLabelsStayApart(t *testing.T) {
	long := "datacentre-leaf-switch-of-rack-"
	names := []string{long + "1:p1", long + "1:p2", long + "2:p1", "short"}
	cut := fitAll(names, 12, 150) // 20 letters
	if got := slices.Compact(slices.Sorted(slices.Values(cut))); len(got) != len(names) {
		t.Errorf("labels %q", cut)
	}
	for i, text := range cut {
		if n := len([]rune(text)); n > 20 {
			t.Errorf("%q has %d letters", text, n)
		}
		if i < 3 && !strings.HasSuffix(text, names[i][len(long):]) {
			t.Errorf("%q lacks the end of %q", text, names[i])
		}
	}
	// Labels that differ at their beginnings keep the beginnings, and equal names may look equal.
	rest, cutRest := strings.Repeat("x", 30), strings.Repeat("x", 18)+"…"
	want := []string{"a" + cutRest, "b" + cutRest, "b" + cutRest}
	if got := fitAll([]string{"a" + rest, "b" + rest, "b" + rest}, 12, 150); !slices.Equal(got, want) {
		t.Errorf("labels %q, want %q", got, want)
	}
}

// TestSpreadsWrapNames: a long name takes several lines and is not cut. The tooltip has the whole name. The
// row of the next name is below.
func TestSpreadsWrapNames(t *testing.T) {
	name := "congestion-control=dcqcn, load-balancing=flowlets, buffer=128KiB"
	one := []float64{1}
	drawn, err := DrawSpreads("busbw", []Spread{
		{Name: name, Whole: "transport=roce, " + name, Values: one, P25: 1, Median: 1, P75: 1},
		{Name: "b", Values: one, P25: 1, Median: 1, P75: 1}}, func(v float64) string { return fmt.Sprint(v) })
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">congestion-control=dcqcn,<", ">load-balancing=flowlets, buffer=128KiB<",
		"<title>transport=roce, " + name + ": median 1"} {
		if !strings.Contains(string(drawn), want) {
			t.Errorf("no %s in %s", want, drawn)
		}
	}
	var rows []string
	for _, m := range regexp.MustCompile(`translate\(0 ([0-9.]+)\)`).FindAllStringSubmatch(string(drawn), -1) {
		rows = append(rows, m[1])
	}
	// The first row has two lines and goes from 4 to 44, the second one to 70.
	if !slices.Equal(rows, []string{"24", "57"}) {
		t.Errorf("rows at %q", rows)
	}
}

// TestLines: the axis of sizes is logarithmic, and a size without a value is a gap.
func TestLines(t *testing.T) {
	value := func(v float64) *float64 { return &v }
	drawn, err := DrawLines("busbw", []uint64{1 << 10, 1 << 12, 1 << 20}, []Line{
		{Name: "tcp", Values: []*float64{value(0), value(50), value(100)}},
		{Name: "rd", Values: []*float64{value(25), nil, value(100)}},
		{Name: "not measured", Values: []*float64{nil, nil, nil}},
	}, func(v float64) string { return fmt.Sprintf("%.2f", v) })
	if err != nil {
		t.Fatal(err)
	}
	// The axis of sizes goes from 44 to 740, so that 4 KiB is a fifth of it from the left. The axis of values
	// goes from 240 at 0 to 10 at 100.
	for _, want := range []string{`d="M44 240L183.2 125L740 10"`, `d="M44 182.5M740 10"`,
		"<title>tcp, 4KiB: 50.00</title>", ">1KiB<", ">1MiB<", ">50<"} {
		if !strings.Contains(string(drawn), want) {
			t.Errorf("no %s in %s", want, drawn)
		}
	}
	if strings.Contains(string(drawn), "not measured") {
		t.Errorf("a line without values is drawn: %s", drawn)
	}
	drawn, err = DrawLines("nothing", []uint64{1}, []Line{{Name: "a", Values: []*float64{nil}}}, nil)
	if err != nil || drawn != "" {
		t.Errorf("without values: %q, %v", drawn, err)
	}
}
