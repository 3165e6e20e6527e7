package svg

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func number(v float64) string { return fmt.Sprintf("%g", v) }

func TestAxes(t *testing.T) {
	x := Axis{From: 1, To: 1000, Left: 100, Size: 300, Scale: Log}
	ticks := x.Ticks(number)
	if len(ticks) != 4 || ticks[1].At != 200 || ticks[1].Text != "10" || !ticks[3].Last {
		t.Errorf("ticks of 1 to 1000 are %+v", ticks)
	}
	ticks = Axis{To: 0.35, Size: 700}.Ticks(number)
	if len(ticks) != 8 || ticks[0].Text != "0" || ticks[2].At < 199 || ticks[2].At > 201 {
		t.Errorf("ticks of 0 to 0.35 are %+v", ticks)
	}
	y := Axis{From: 0.001, To: 0.999, Left: 300, Size: -200, Scale: LogOdds}
	for v, want := range map[float64]float64{0: 300, 0.001: 300, 0.5: 200, 0.999: 100} {
		if got := y.Place(v); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v is at %v, want %v", v, got, want)
		}
	}
}

// TestDecades: a logarithmic axis has round values.
func TestDecades(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      []float64
	}{{1e-6, 1e-5, []float64{1e-6, 2e-6, 5e-6, 1e-5}}, {3e-6, 0.5, []float64{1e-5, 1e-4, 1e-3, 1e-2, 1e-1}},
		{0.3, 0.4, []float64{0.3, 0.4}}} {
		got := decades(c.low, c.high)
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a/b-1) < 1e-9 }) {
			t.Errorf("from %v to %v: %v, want %v", c.low, c.high, got, c.want)
		}
	}
}

func TestFit(t *testing.T) {
	if got := Fit("sixteen letters!", 10, 62); got != "sixteen l…" {
		t.Errorf("%q does not fit", got)
	}
}

// TestLegend: a key without room goes to the next line. Its text is escaped.
func TestLegend(t *testing.T) {
	var out strings.Builder
	l := Legend{Drawing: Drawing{&out}, Left: 10, Right: 200, Y: 20}
	for _, text := range []string{"a & b", strings.Repeat("w", 20)} {
		l.LineKey(text, "c", 1.5)
	}
	want := `<path class="c" stroke-width="1.5" d="M10 16h26"/><text class="k" x="44" y="20">a &amp; b</text>
<path class="c" stroke-width="1.5" d="M10 36h26"/><text class="k" x="44" y="40">wwwwwwwwwwwwwwwwwwww</text>
`
	if out.String() != want {
		t.Errorf("drawn\n%s\nwant\n%s", out.String(), want)
	}
}
