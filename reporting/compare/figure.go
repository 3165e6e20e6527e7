package compare

import (
	"fmt"
	"html/template"
	"strings"

	"railbed/capture/follow"
	"railbed/capture/report"
	"railbed/reporting"
)

// Bounds of the pictures on a page. The JSON document has all curves.
const (
	figuresShown = 8
	curvesShown  = 12 // of a side
)

// figure is a picture of the distributions of one kind of messages.
type figure struct {
	Title, Description string
	Chart              template.HTML
	Parts              []partBar
	// More is the number of curves that are left out.
	More int
}

// partBar is the mean time of a message in a part, on both sides. The widths are shares of the longest bar.
type partBar struct {
	Part                string
	Base, New           string
	BaseWidth, NewWidth float64
}

func newFigure(c *Curves, numbers []Number) (f figure, err error) {
	f.Title = c.Title()
	f.numbers(numbers)
	var sides [2][]report.Distribution
	for i, curves := range [2][]Curve{c.Base, c.New} {
		f.More += max(0, len(curves)-curvesShown)
		for _, curve := range curves[:min(len(curves), curvesShown)] {
			sides[i] = append(sides[i], report.Distribution{Step: []string{"base: ", "new: "}[i] + curve.Run,
				Times: curve.Seconds, Shares: c.Probabilities})
		}
	}
	f.Chart, err = reporting.DrawShares(f.Title+". "+f.Description, sides)
	return f, err
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
