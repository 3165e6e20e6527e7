package reporting

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"

	"railbed/internal/svg"
)

// frame is the part of a chart in which the ticks of its horizontal axis are.
type frame struct {
	Top, Foot float64
	Ticks     []svg.Tick
}

// drawn returns a chart as an element, by the template of its kind.
func drawn(kind, label string, chart any) (template.HTML, error) {
	var element strings.Builder
	if err := page.ExecuteTemplate(&element, kind, chart); err != nil {
		return "", fmt.Errorf("draw %s: %w", label, err)
	}
	return template.HTML(element.String()), nil
}

// fitAll shortens the texts of a chart to a width. Texts that differ only at their ends keep their ends.
func fitAll(texts []string, size, width float64) []string {
	cut, of := make([]string, len(texts)), map[string]string{}
	apart := true
	for i, text := range texts {
		cut[i] = svg.Fit(text, size, width)
		before, known := of[cut[i]]
		apart = apart && (!known || before == text)
		of[cut[i]] = text
	}
	if apart {
		return cut
	}
	for i, text := range texts {
		letters, room := []rune(text), len([]rune(svg.Fit(text, size, width)))
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
				if longer := lines[last] + " " + part; svg.Fit(longer, size, width) == longer {
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

// steps draws values, each over an interval, as a line of steps. closed is where its area ends below.
func steps(x, y svg.Axis, start, interval float64, values []uint64, closed bool) string {
	bottom := y.Place(0)
	p := svg.MoveTo(x.Place(start), bottom)
	before := uint64(0)
	for i, v := range values {
		if v != before {
			p.To("H", x.Place(start+float64(i)*interval)).To("V", y.Place(float64(v)))
		}
		before = v
	}
	p.To("H", x.Place(start+float64(len(values))*interval))
	if closed {
		p.To("V", bottom).To("Z")
	}
	return p.String()
}

// dashes are the dash patterns of lines.
var dashes = []string{"none", "8 3", "2 3", "12 3 2 3", "5 5", "1 6"}
