// Package picture draws a plan as an SVG for people, or as text that Graphviz and Mermaid draw.
//
// The SVG is a single file without scripts or external references. Tiers are rows, with the servers
// at the bottom. Each rail, plane or pod has a colour, and each rate a width. Elements have
// tooltips. Many servers behind the same switches become one box.
package picture

import (
	"fmt"
	"io"
	"strings"

	"railbed/plan"
)

// Formats are the formats that Draw supports.
var Formats = []string{"dot", "mermaid", "svg"}

// Draw writes the picture of a plan in a format.
func Draw(w io.Writer, p *plan.Plan, format string) error {
	var text string
	switch format {
	case "dot":
		text = dot(p)
	case "mermaid":
		text = mermaid(p)
	case "svg":
		text = drawSVG(p, nil)
	default:
		return fmt.Errorf("draw %s: format %q does not exist, want %s", p.Name, format,
			strings.Join(Formats, ", "))
	}
	return write(w, p, text)
}

// Inline writes the SVG for a page that shows the state of its links. Its style sheet is Style, so that the
// page needs no inline styles. Each line is a group with the attribute data-links, and each box a group with
// data-devices. Their values are the names for which the line or box stands, separated by spaces.
func Inline(w io.Writer, p *plan.Plan) error {
	return write(w, p, (&drawing{scene: newScene(p, true), inline: true}).whole())
}

func write(w io.Writer, p *plan.Plan, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("draw %s: %w", p.Name, err)
	}
	return nil
}
