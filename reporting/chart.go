package reporting

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// axis places values on a chart, in units of the chart's view box.
type axis struct {
	from, to   float64 // values
	left, size float64 // positions; a negative size is for an axis that rises
	log        bool
}

// place returns the position of a value.
func (a axis) place(v float64) float64 {
	from, to := a.from, a.to
	if a.log {
		from, to, v = math.Log(from), math.Log(to), math.Log(max(v, a.from))
	}
	if to <= from {
		return a.left
	}
	return a.left + (v-from)/(to-from)*a.size
}

// tick is a value with its label.
type tick struct {
	X    float64
	Text string
	Last bool // so far right that the text is placed to its left
}

// ticks returns 4 to 10 ticks, or on a logarithmic axis one at each power of ten.
func (a axis) ticks(text func(float64) string) (ticks []tick) {
	add := func(v float64) {
		x := a.place(v)
		ticks = append(ticks, tick{X: x, Text: text(v), Last: x > a.left+0.93*a.size})
	}
	if a.log {
		for v := math.Pow(10, math.Ceil(math.Log10(a.from)-1e-9)); v <= a.to*(1+1e-9); v *= 10 {
			add(v)
		}
		return ticks
	}
	step := tickStep(a.to - a.from)
	for v := max(a.from, math.Ceil(a.from/step-1e-9)*step); v <= a.to+step*1e-6; v += step {
		add(v)
	}
	return ticks
}

// frame is the part of a chart in which the ticks of its horizontal axis are.
type frame struct {
	Top, Foot float64
	Ticks     []tick
}

// tickStep returns 1, 2 or 5 times a power of ten, so that an axis of this length has 4 to 10 ticks.
func tickStep(length float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(length)))
	for _, factor := range []float64{0.1, 0.2, 0.5} {
		if length/(power*factor) <= 10 {
			return power * factor
		}
	}
	return power
}

// fit shortens a text of a font size to a width. No font is available, so the estimate is generous.
func fit(text string, size, width float64) string {
	letters := []rune(text)
	most := max(1, int(width/(0.62*size)))
	if len(letters) <= most {
		return text
	}
	return string(letters[:most-1]) + "…"
}

// fitAll shortens the texts of a chart to a width. Texts that differ only at their ends keep their ends.
func fitAll(texts []string, size, width float64) []string {
	cut, of := make([]string, len(texts)), map[string]string{}
	apart := true
	for i, text := range texts {
		cut[i] = fit(text, size, width)
		before, known := of[cut[i]]
		apart = apart && (!known || before == text)
		of[cut[i]] = text
	}
	if apart {
		return cut
	}
	for i, text := range texts {
		letters, room := []rune(text), len([]rune(fit(text, size, width)))
		if room < len(letters) {
			tail := room * 2 / 3
			cut[i] = string(letters[:room-1-tail]) + "…" + string(letters[len(letters)-tail:])
		}
	}
	return cut
}

// wrapAll divides each text of a chart into lines of a width, at its commas. It shortens parts that are too
// long for a line so that they differ where the texts do.
func wrapAll(texts []string, size, width float64) [][]string {
	var parts []string
	for _, text := range texts {
		for part := range strings.SplitAfterSeq(text, ", ") {
			parts = append(parts, strings.TrimSuffix(part, " "))
		}
	}
	parts = fitAll(parts, size, width)
	wrapped := make([][]string, len(texts))
	for i, text := range texts {
		n := strings.Count(text, ", ") + 1
		var lines []string
		for _, part := range parts[:n] {
			if last := len(lines) - 1; last >= 0 {
				if longer := lines[last] + " " + part; fit(longer, size, width) == longer {
					lines[last] = longer
					continue
				}
			}
			lines = append(lines, part)
		}
		wrapped[i], parts = lines, parts[n:]
	}
	return wrapped
}

// short formats a number without zeros at its end.
func short(text string) string {
	if _, err := strconv.ParseFloat(text, 64); err != nil || !strings.Contains(text, ".") {
		return text
	}
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// outline is the data of an SVG path.
type outline struct{ strings.Builder }

// to adds a command with its positions.
func (p *outline) to(command string, positions ...float64) {
	p.WriteString(command)
	for i, at := range positions {
		if i > 0 {
			p.WriteByte(' ')
		}
		p.WriteString(strings.TrimSuffix(fmt.Sprintf("%.1f", at), ".0"))
	}
}

// steps draws values, each over an interval, as a line of steps. closed is where its area ends below.
func steps(x, y axis, start, interval float64, values []uint64, closed bool) string {
	var p outline
	bottom := y.place(0)
	p.to("M", x.place(start), bottom)
	before := uint64(0)
	for i, v := range values {
		if v != before {
			p.to("H", x.place(start+float64(i)*interval))
			p.to("V", y.place(float64(v)))
		}
		before = v
	}
	p.to("H", x.place(start+float64(len(values))*interval))
	if closed {
		p.to("V", bottom)
		p.to("Z")
	}
	return p.String()
}

// dashes are the dash patterns of lines.
var dashes = []string{"none", "8 3", "2 3", "12 3 2 3", "5 5", "1 6"}
