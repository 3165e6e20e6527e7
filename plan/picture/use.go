package picture

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"railbed/internal/svg"
	"railbed/plan"
)

// Use is the traffic of one direction of a link.
type Use struct {
	// Share is the used part of the link's rate, and Peak the greatest share of a short time, 0 to 1.
	Share, Peak  float64
	Drops, Marks uint64
}

// Uses are the uses of links by name, and by direction: a-to-b, then b-to-a.
type Uses map[string][2]Use

// DrawUse writes an SVG of a plan for a page of HTML, with the use of each link. A link has a line for each
// direction, whose width and shade show its share. A line of several links shows the busiest. The element's
// styles apply to itself alone.
func DrawUse(w io.Writer, p *plan.Plan, uses Uses) error {
	if _, err := io.WriteString(w, drawSVG(p, uses)); err != nil {
		return fmt.Errorf("draw %s: %w", p.Name, err)
	}
	return nil
}

// useStyle is the style sheet of uses, besides style: u1 to u4 are shades, v a label and x a sign.
const useStyle = `.u{fill:none;stroke:#2f6db5}.u1{stroke-opacity:.4}.u2{stroke-opacity:.6}.u3{stroke-opacity:.8}
.u4{stroke:#173f73}.v{font-size:9.5px;stroke:var(--card,#fff);stroke-width:3;paint-order:stroke}
.x{fill:none;stroke:#b3261e;stroke-width:1.8}.w{fill:none;stroke:#a9b4c0;stroke-width:1}
.bg{fill:var(--card,#fff)}g:hover>.u,g:focus>.u{stroke:#d9822b;stroke-opacity:1}g:focus{outline:none}
@media (prefers-color-scheme:dark){.u{stroke:#5c95d6}.u4{stroke:#b9d7fb}
.x{stroke:#ff9d95}.w{stroke:#4a5767}}
`

// of returns the use of a line in both directions: the greatest shares of its links, and the sums of
// counters.
func (u Uses) of(l *line) (both [2]Use) {
	for _, name := range l.links {
		use := u[name]
		for i := range both {
			b := &both[i]
			b.Share, b.Peak = max(b.Share, use[i].Share), max(b.Peak, use[i].Peak)
			b.Drops, b.Marks = b.Drops+use[i].Drops, b.Marks+use[i].Marks
		}
	}
	return both
}

// arrows are the signs of the directions: towards the top of the picture, and towards the servers.
var arrows = [2]string{"↑", "↓"}

// words describes the use of a line.
func words(both [2]Use, several bool) (lines []string) {
	for i, u := range both {
		text := fmt.Sprintf("%s used %.0f%%, at most %.0f%%", arrows[i], 100*u.Share, 100*u.Peak)
		if several {
			text += " (the busiest)"
		}
		if u.Drops > 0 {
			text += fmt.Sprintf(", %d dropped", u.Drops)
		}
		if u.Marks > 0 {
			text += fmt.Sprintf(", %d marked", u.Marks)
		}
		lines = append(lines, text)
	}
	return lines
}

// short returns the label of a line.
func short(both [2]Use) string {
	var parts []string
	for i, u := range both {
		if u.Share >= 0.005 {
			parts = append(parts, fmt.Sprintf("%s%.0f%%", arrows[i], 100*u.Share))
		}
	}
	if drops := both[0].Drops + both[1].Drops; drops > 0 {
		parts = append(parts, fmt.Sprintf("×%d", drops))
	}
	if marks := both[0].Marks + both[1].Marks; marks > 0 {
		parts = append(parts, fmt.Sprintf("△%d", marks))
	}
	return strings.Join(parts, " ")
}

// useWidth is the width of the line of a share, and useShade its class.
func useWidth(share float64) float64 { return 1 + 3.5*share }

func useShade(share float64) string { return fmt.Sprintf("u%d", min(4, 1+int(share*4))) }

// used draws the two directions of a line on a path, the way up at the left, or above.
func (d *drawing) used(l *line, path curve) {
	both := d.uses.of(l)
	text := strings.Join(append([]string{l.title}, words(both, len(l.links) > 1)...), "\n")
	d.Printf(`<g tabindex="0" role="img" aria-label="%[1]s"><title>%[1]s</title>`, svg.Escape(text))
	d.Line("w", 0, path.String())
	d.Line("h", 0, path.String())
	across := point{path[3].x - path[0].x, path[3].y - path[0].y}
	for i, u := range both {
		if u.Share < 0.005 {
			continue
		}
		width := useWidth(u.Share)
		shift := width/2 + 0.3
		if i == 0 {
			shift = -shift
		}
		by := point{x: shift}
		if math.Abs(across.x) > 2*math.Abs(across.y) {
			by = point{y: shift}
		}
		d.Printf(`<path class="u %s" style="fill:none" stroke-width="%s" `+
			`transform="translate(%s %s)" d="%s"/>`, useShade(u.Share), svg.Number(width),
			svg.Number(by.x), svg.Number(by.y), path)
	}
	d.Printf("</g>\n")
}

// rect is a part of the picture.
type rect struct{ left, top, right, bottom float64 }

func (r rect) meets(o rect) bool {
	return r.left < o.right && o.left < r.right && r.top < o.bottom && o.top < r.bottom
}

// fewLines is the greatest number of lines that all have labels. Among more, lines of little use have none.
const fewLines = 24

// useLabels writes the labels of lines where there is room, those of the busiest lines first. A line without
// room for its label has a cross if it dropped packets.
func (d *drawing) useLabels(paths []curve) {
	const height = 12
	var taken []rect
	for i := range d.boxes {
		b := &d.boxes[i]
		taken = append(taken, rect{b.x, b.y - nicSize, b.x + b.w, b.y + b.h})
	}
	order := make([]int, len(paths))
	weight := func(i int) float64 {
		both := d.uses.of(&d.lines[i])
		w := max(both[0].Share, both[1].Share)
		if both[0].Drops+both[1].Drops > 0 {
			w++
		}
		return w
	}
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weight(b), weight(a)) })
	for _, i := range order {
		both := d.uses.of(&d.lines[i])
		text := short(both)
		if text == "" || len(paths) > fewLines && weight(i) < 0.05 {
			continue
		}
		half := svg.Width(text, 9.5)/2 + 5
		placed := false
		for _, t := range []float64{0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.13, 0.87} {
			at := paths[i].at(t)
			r := rect{at.x - half, at.y - height/2, at.x + half, at.y + height/2}
			if placed = !slices.ContainsFunc(taken, r.meets); placed {
				taken = append(taken, r)
				d.Printf(`<text class="v" text-anchor="middle" x="%s" y="%s">%s</text>`+"\n",
					svg.Number(at.x), svg.Number(at.y+3.4), svg.Escape(text))
				break
			}
		}
		if at := paths[i].at(0.5); !placed && both[0].Drops+both[1].Drops > 0 {
			d.Line("x", 0, svg.MoveTo(at.x-3, at.y-3).To("l", 6, 6).To("m", 0, -6).To("l", -6, 6).String())
		}
	}
}

// useKeys draws the keys of uses.
func useKeys(l *svg.Legend) {
	for _, share := range []float64{0.1, 0.4, 0.7, 1} {
		l.LineKey(fmt.Sprintf("%.0f%% of the rate", share*100), "u "+useShade(share), useWidth(share))
	}
	for _, sign := range [][2]string{{"↑↓", "up: left line; down: right line"}, {"×", "packets dropped"},
		{"△", "packets marked"}} {
		l.Key(sign[1], func(x, y float64) {
			l.Printf(`<text class="k" text-anchor="end" x="%s" y="%s">%s</text>`, svg.Number(x+26),
				svg.Number(y+4), sign[0])
		})
	}
}
