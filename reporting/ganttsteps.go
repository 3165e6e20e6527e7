package reporting

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"railbed/capture/report"
	"railbed/internal/plural"
	"railbed/internal/svg"
	"railbed/internal/units"
)

// stepsTitled is the greatest number of steps in a chart that have elements and titles of their own. Among
// more steps, the steps of a part of an algorithm are one element, which keeps the page small.
const stepsTitled = 480 // as many as of rings of 16 ranks

// endsOf returns the number of ends of steps in the activity.
func endsOf(a *report.Activity) (count int) {
	for i := range a.Lanes {
		for _, s := range a.Lanes[i].Steps {
			count += len(s.Ends)
		}
	}
	return count
}

// stepsNote is a sentence for people if the activity lacks steps.
func stepsNote(a *report.Activity) string {
	each, leftOut := 1, 0
	for i := range a.Lanes {
		leftOut = max(leftOut, a.Lanes[i].StepsLeftOut)
		for _, s := range a.Lanes[i].Steps {
			each = max(each, s.Each)
		}
	}
	var notes []string
	if each > 1 {
		notes = append(notes, plural.Text("Up to %d steps in succession are drawn as one.", each))
	}
	if leftOut > 0 {
		notes = append(notes, fmt.Sprintf("A rank has up to %s of the algorithm whose steps are not shown.",
			plural.Count(leftOut, "more parts")))
	}
	return strings.Join(notes, " ")
}

// stepBars draws the steps of a lane from a height on. Parts of the algorithm that ran side by side are below
// each other, in rows. titled gives each step an element and a title of its own.
func stepBars(l *report.Lane, x svg.Axis, y int, titled bool) (bars []ganttBar, rows int) {
	var free []float64 // by row, the time from which it is free
	for i := range l.Steps {
		s := &l.Steps[i]
		if len(s.Ends) == 0 {
			continue
		}
		row := slices.IndexFunc(free, func(from float64) bool { return from <= s.Start })
		if row < 0 {
			row, free = len(free), append(free, 0)
		}
		free[row] = s.Ends[len(s.Ends)-1]
		add := func(class, text string, start, end float64) {
			bars = append(bars, ganttBar{Class: class, X: x.Place(start), Y: y + row*ganttLane,
				Width: x.Place(end) - x.Place(start), Text: text + ": " + fromTo(start, end)})
		}
		if titled {
			for k, step := range s.Timed() {
				add([]string{ganttStep, ganttOdd}[k%2], step.Name, step.Start, step.End)
			}
			continue
		}
		add(ganttStep, longestOfRank(s), s.Start, free[row])
		bars = append(bars, ganttBar{Class: ganttOdd, Path: oddSteps(s, x, y+row*ganttLane)})
	}
	return bars, len(free)
}

// oddSteps is the path of every second step.
func oddSteps(s *report.RankSteps, x svg.Axis, y int) string {
	odd := dashedLine{x: x, y: y}
	for k := 1; k < len(s.Ends); k += 2 {
		odd.add(s.Ends[k-1], s.Ends[k])
	}
	return odd.String()
}

// stepWidth is the least mean width of a training job's steps that are drawn.
const stepWidth = 1.5

// stepsOfBar draws the steps of an exchange on its bar.
func stepsOfBar(b *report.TrainingBar, x svg.Axis, y int) (bars []ganttBar) {
	for i := range b.Steps {
		s := &b.Steps[i]
		n := len(s.Ends)
		if n > 1 && x.Place(s.Ends[n-1])-x.Place(s.Start) >= stepWidth*float64(n) {
			bars = append(bars, ganttBar{Class: ganttInside, Path: oddSteps(s, x, y)})
		}
	}
	return bars
}

// longestOfBar describes the longest step of an exchange that has several.
func longestOfBar(b *report.TrainingBar) (text string) {
	for i := range b.Steps {
		if s := &b.Steps[i]; len(s.Ends) > 1 {
			text += "; " + longestOfRank(s)
		}
	}
	return text
}

func fromTo(start, end float64) string { return units.Seconds(start) + " to " + units.Seconds(end) }

// dashedLine is the path of a dashed line in the middle of a row whose height is y. The width of the line
// makes the dashes bars. Their ends are rounded to whole units, which keeps the page small.
type dashedLine struct {
	svg.Path
	x  svg.Axis
	y  int
	at float64 // the end of the latest dash
}

// add adds a dash between two values.
func (d *dashedLine) add(from, to float64) {
	start, end := math.Round(d.x.Place(from)), math.Round(d.x.Place(to))
	if d.Len() == 0 {
		d.To("M", start, float64(d.y+(ganttLane-1)/2))
	} else {
		d.To("m", start-d.at, 0)
	}
	d.To("h", end-start)
	d.at = end
}

// longestOfRank describes the longest of the steps.
func longestOfRank(s *report.RankSteps) string {
	longest := slices.MaxFunc(s.Timed(), func(a, b report.TimedStep) int {
		return cmp.Compare(a.End-a.Start, b.End-b.Start)
	})
	return fmt.Sprintf("the longest is %s (%s); %s", longest.Name, fromTo(longest.Start, longest.End),
		plural.Count(s.Count, "steps"))
}
