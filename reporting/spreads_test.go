package reporting

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestSpreads: each value is a point, in its place between the ticks.
func TestSpreads(t *testing.T) {
	text := func(v float64) string { return fmt.Sprintf("%gx", v) }
	drawn, err := DrawSpreads("busbw", []Spread{
		{Name: "a<b", Values: []float64{2, 4, 10}, P25: 3, Median: 4, P75: 8},
		{Name: "none"},
		{Name: "one", Values: []float64{5}, P25: 5, Median: 5, P75: 5}}, text)
	if err != nil {
		t.Fatal(err)
	}
	var points []float64
	for _, m := range regexp.MustCompile(`circle cx="([0-9.]+)"`).FindAllStringSubmatch(string(drawn), -1) {
		x, _ := strconv.ParseFloat(m[1], 64)
		points = append(points, x)
	}
	// The axis goes from 0 at 312 to 10 at 984.
	if got, want := fmt.Sprint(points), "[446.4 580.8 984 648]"; got != want {
		t.Errorf("points at %s, want %s", got, want)
	}
	for _, want := range []string{"a&lt;b: median 4x of 3 runs, 2x to 10x", "none: no value", ">no value<",
		">0x<", ">10x<", `rect x="513.6" y="-7" width="336.0"`, `class="median" x1="580.8"`} {
		if !strings.Contains(string(drawn), want) {
			t.Errorf("no %s in %s", want, drawn)
		}
	}
	for name, values := range map[string][]float64{"equal": {3, 3}, "zero": {0}, "negative": {-4, -2}} {
		drawn, err := DrawSpreads(name, []Spread{{Values: values, P25: values[0], Median: values[0],
			P75: values[0]}}, text)
		if err != nil || strings.Contains(string(drawn), "NaN") || strings.Contains(string(drawn), `x1="-`) {
			t.Errorf("%s: %v, %s", name, err, drawn)
		}
	}
	if drawn, err := DrawSpreads("nothing", []Spread{{Name: "none"}}, text); err != nil || drawn != "" {
		t.Errorf("without values: %q, %v", drawn, err)
	}
}
