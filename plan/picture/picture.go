// Package picture draws a plan: as an SVG for people, and as the text that
// Graphviz and Mermaid draw.
//
// The SVG is one file without script or outside reference. It has the tiers as
// rows with the servers at the bottom, a colour for each rail, plane or pod, a
// width for each rate, and what a pointer rests on explains itself. Many servers
// behind the same switches become one box.
package picture

import (
	"fmt"
	"io"
	"strings"

	"railbed/plan"
)

// Formats are the names that Draw knows.
var Formats = []string{"dot", "mermaid", "svg"}

// Draw writes the picture of a plan.
func Draw(w io.Writer, p *plan.Plan, format string) error {
	var text string
	switch format {
	case "dot":
		text = dot(p)
	case "mermaid":
		text = mermaid(p)
	case "svg":
		text = svg(p)
	default:
		return fmt.Errorf("draw %s: format %q does not exist, want %s", p.Name, format,
			strings.Join(Formats, ", "))
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("draw %s: %w", p.Name, err)
	}
	return nil
}
