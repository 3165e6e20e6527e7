package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"railbed/capture/follow"
	"railbed/reporting"
)

// Bounds of the pictures on a page. The JSON document has all curves.
const (
	figuresShown = 8
	curvesShown  = 12 // of a side
)

// Sizes of a figure, in units of its view box.
const (
	figureWidth, figureHeight = 720, 330
	plotLeft, plotRight       = 52, 708
	plotTop, plotBottom       = 12, 292
)

// figure is a picture of the distributions of one kind of messages. Times are on a logarithmic axis. Shares
// of the messages are on an axis of log odds, which stretches both ends.
type figure struct {
	Title, Description string
	Lines              []figureLine
	Levels, Ticks      []figureTick
	Parts              []partBar
	// More is the number of curves that are left out.
	More int
}

type figureLine struct{ Side, Run, Points string }

type figureTick struct {
	At   float64
	Text string
}

// partBar is the mean time of a message in a part, on both sides. The widths are shares of the longest bar.
type partBar struct {
	Part                string
	Base, New           string
	BaseWidth, NewWidth float64
}

// levels are the marks of the axis of shares.
var levels = []float64{0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999}

func newFigure(c *Curves, numbers []Number) figure {
	f := figure{Title: c.Title()}
	low, high := math.Inf(1), 0.0
	for _, curve := range slices.Concat(c.Base, c.New) {
		for _, t := range curve.Seconds {
			if t > 0 {
				low, high = min(low, t), max(high, t)
			}
		}
	}
	if high == 0 { // no message took any time
		return f
	}
	if high < low*1.01 {
		low, high = low/2, high*2
	}
	x := func(t float64) float64 {
		return plotLeft + math.Log(max(t, low)/low)/math.Log(high/low)*(plotRight-plotLeft)
	}
	y := func(p float64) float64 {
		most := logOdds(levels[len(levels)-1])
		return plotTop + (most-logOdds(p))/(2*most)*(plotBottom-plotTop)
	}
	for _, p := range levels {
		f.Levels = append(f.Levels, figureTick{y(p), fmt.Sprintf("%g%%", p*100)})
	}
	for _, t := range ticks(low, high) {
		f.Ticks = append(f.Ticks, figureTick{x(t), Text(t, reporting.Seconds)})
	}
	for _, side := range []struct {
		name   string
		curves []Curve
	}{{"base", c.Base}, {"new", c.New}} {
		for i, curve := range side.curves {
			if i == curvesShown {
				f.More += len(side.curves) - i
				break
			}
			var points strings.Builder
			for k, t := range curve.Seconds {
				fmt.Fprintf(&points, "%.1f,%.1f ", x(t), y(c.Probabilities[k]))
			}
			f.Lines = append(f.Lines, figureLine{side.name, curve.Run, points.String()})
		}
	}
	f.numbers(numbers)
	return f
}

func logOdds(p float64) float64 { return math.Log10(p / (1 - p)) }

// ticks returns the marks of a logarithmic axis: powers of ten, over few decades also 2 and 5 times these.
func ticks(low, high float64) (all []float64) {
	factors := []float64{1, 2, 5}
	if high > low*3e3 {
		factors = factors[:1]
	}
	for power := math.Floor(math.Log10(low)); power <= math.Log10(high); power++ {
		for _, factor := range factors {
			if t := factor * math.Pow(10, power); t >= low && t <= high {
				all = append(all, t)
			}
		}
	}
	if len(all) < 2 {
		return []float64{low, high}
	}
	return all
}

// numbers takes the description and the parts from the numbers of the same messages.
func (f *figure) numbers(numbers []Number) {
	var words []string
	longest := 0.0
	var parts []*Number
	for i := range numbers {
		n := &numbers[i]
		if n.Section != reporting.RecordingSection || n.Of != f.Title || n.Difference == nil {
			continue
		}
		if n.What == "p50" || n.What == "p99" {
			words = append(words, fmt.Sprintf("%s: base %s, new %s", n.What, Text(n.Base.Median, n.Unit),
				Text(n.New.Median, n.Unit)))
		}
		for part := range follow.Part(follow.Parts) {
			if n.What == partName(part) && (n.Base.Median != 0 || n.New.Median != 0) {
				parts = append(parts, n)
				longest = max(longest, n.Base.Median, n.New.Median)
			}
		}
	}
	f.Description = "Shares of messages by the time that they took at most. " + strings.Join(words, "; ")
	for _, n := range parts {
		f.Parts = append(f.Parts, partBar{Part: strings.TrimPrefix(n.What, meanIn),
			Base: Text(n.Base.Median, n.Unit), New: Text(n.New.Median, n.Unit),
			BaseWidth: 100 * max(n.Base.Median, 0) / longest, NewWidth: 100 * max(n.New.Median, 0) / longest})
	}
}
