package picture

import (
	"fmt"
	"strconv"
	"strings"

	"railbed/internal/svg"
	"railbed/plan"
)

// dot returns the whole plan in Graphviz's language, with one rank for each tier.
func dot(p *plan.Plan) string {
	var out strings.Builder
	fmt.Fprintf(&out, "graph %s {\n", quoted(p.Name))
	out.WriteString("  graph [rankdir=TB, ranksep=1.2, splines=line, fontname=\"sans-serif\"];\n")
	out.WriteString("  node [shape=box, style=\"rounded,filled\", fillcolor=white, " +
		"fontname=\"sans-serif\", fontsize=11];\n")
	out.WriteString("  edge [fontname=\"sans-serif\", fontsize=9];\n")
	s := newScene(p, false)
	top := 0
	for _, b := range s.boxes {
		top = max(top, b.tier)
	}
	for tier := top; tier >= serverTier; tier-- {
		out.WriteString("  { rank=same;\n")
		for _, b := range s.boxes {
			if b.tier != tier {
				continue
			}
			label := b.name
			if b.note != "" {
				label += "\n" + b.note
			}
			fmt.Fprintf(&out, "    %s [label=%s, color=%s, tooltip=%s];\n", quoted(b.name), quoted(label),
				quoted(ink(b.colour)), quoted(b.title))
		}
		out.WriteString("  }\n")
	}
	for _, l := range s.lines {
		// The upper end comes first, because Graphviz ranks from the top down.
		fmt.Fprintf(&out, "  %s -- %s [color=%s, penwidth=%s, tooltip=%s];\n", quoted(s.boxes[l.b].name),
			quoted(s.boxes[l.a].name),
			quoted(ink(l.colour)), svg.Number(l.width), quoted(l.title))
	}
	out.WriteString("}\n")
	return out.String()
}

// quoted returns a string of Graphviz, in which \n ends a line.
func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}

func ink(colour int) string {
	if colour == neutral {
		return "#8090a4"
	}
	return colours[colour%palette]
}

// mermaid returns a flowchart. Above manyNodes servers, those behind the same switches are one box,
// because Mermaid refuses more than 500 edges.
func mermaid(p *plan.Plan) string {
	var out strings.Builder
	out.WriteString("flowchart TB\n")
	s := newScene(p, true)
	for i, b := range s.boxes {
		label := b.name
		if b.note != "" {
			label += "<br/>" + b.note
		}
		shape := `["%s"]`
		if b.tier == serverTier {
			shape = `("%s")`
		}
		fmt.Fprintf(&out, "  n%d"+shape+"\n", i, strings.ReplaceAll(label, `"`, "#quot;"))
	}
	for _, l := range s.lines {
		label := l.rate
		if len(l.links) > 1 {
			label = strconv.Itoa(len(l.links)) + " x " + l.rate
		}
		fmt.Fprintf(&out, "  n%d ---|%s| n%d\n", l.b, label, l.a)
	}
	used := map[int][]string{}
	for i, b := range s.boxes {
		if b.colour != neutral {
			used[b.colour] = append(used[b.colour], fmt.Sprintf("n%d", i))
		}
	}
	for colour := range palette {
		if len(used[colour]) > 0 {
			fmt.Fprintf(&out, "  classDef c%d stroke:%s,stroke-width:2px\n  class %s c%d\n", colour,
				ink(colour), strings.Join(used[colour], ","), colour)
		}
	}
	return out.String()
}
