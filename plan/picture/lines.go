package picture

import (
	"cmp"
	"math"
	"slices"

	"railbed/internal/svg"
	"railbed/plan/spec"
)

// point is a position in the drawing.
type point struct{ x, y float64 }

// curve is a cubic Bezier curve: its beginning, two control points and its end.
type curve [4]point

func straight(from, to point) curve { return curve{from, from, to, to} }

// at returns the point at 0 to 1 of the curve.
func (c curve) at(t float64) point {
	s := 1 - t
	mix := func(a, b, c, e float64) float64 { return s*s*s*a + 3*s*s*t*b + 3*s*t*t*c + t*t*t*e }
	return point{mix(c[0].x, c[1].x, c[2].x, c[3].x), mix(c[0].y, c[1].y, c[2].y, c[3].y)}
}

func (c curve) String() string {
	return svg.MoveTo(c[0].x, c[0].y).To("C", c[1].x, c[1].y, c[2].x, c[2].y, c[3].x, c[3].y).String()
}

// maxHandles is the largest number of lines for which each line gets a wide invisible copy for the
// pointer. More lines are so dense that the copies cover each other.
const maxHandles = 600

// paths draws all lines, below the boxes.
func (d *drawing) paths() {
	from, to := d.ends()
	var paths []curve
	for i := range d.lines {
		l := &d.lines[i]
		path := d.path(l, from[i], to[i])
		if d.uses != nil {
			d.used(l, path)
			paths = append(paths, path)
			continue
		}
		d.open("links", l.links, l.title)
		if len(d.lines) <= maxHandles {
			d.Line("h", 0, path.String())
		}
		// A line for many servers is wider than a line for one, but not in proportion to their
		// number.
		width := l.width
		if len(l.links) > 1 {
			width += 1.2
		}
		d.Line("l "+class(l.colour), width, path.String())
		d.Printf("</g>\n")
	}
	d.useLabels(paths)
}

// ends spreads the lines' ends over the edges of their boxes, in the order of the boxes at the
// other ends, so that lines do not cross at the box.
func (d *drawing) ends() (from, to []point) {
	from, to = make([]point, len(d.lines)), make([]point, len(d.lines))
	type hold struct {
		line  int
		above bool // the line leaves by the top edge
		far   *box
	}
	holds := make([][]hold, len(d.boxes))
	for i, l := range d.lines {
		a, b := &d.boxes[l.a], &d.boxes[l.b]
		holds[l.a] = append(holds[l.a], hold{i, b.tier > a.tier, b})
		holds[l.b] = append(holds[l.b], hold{i, a.tier > b.tier, a})
	}
	for i := range d.boxes {
		for _, above := range []bool{true, false} {
			var edge []hold
			for _, h := range holds[i] {
				if h.above == above {
					edge = append(edge, h)
				}
			}
			slices.SortStableFunc(edge, func(a, b hold) int {
				return cmp.Compare(a.far.middle(), b.far.middle())
			})
			for n, h := range edge {
				at := d.boxes[i].edge(n, len(edge), above)
				if d.boxes[i].tier == serverTier {
					at = d.boxes[i].nicPlace(d.lines[h.line].nic)
				}
				if d.lines[h.line].a == i {
					from[h.line] = at
				} else {
					to[h.line] = at
				}
			}
		}
	}
	return from, to
}

// edge returns the n-th of count positions on the top or bottom edge of a switch.
func (b *box) edge(n, count int, top bool) point {
	step := min(10, (b.w-14)/float64(max(1, count)))
	at := point{b.middle() + (float64(n)-float64(count-1)/2)*step, b.y + b.h}
	if top {
		at.y = b.y
	}
	return at
}

// nicPlace returns the middle of a NIC's top edge.
func (b *box) nicPlace(nic int) point {
	return point{b.middle() + (float64(nic)-float64(b.nics-1)/2)*nicStep, b.y - nicSize/2}
}

// path returns the path of a line.
func (d *drawing) path(l *line, from, to point) curve {
	a, b := &d.boxes[l.a], &d.boxes[l.b]
	switch {
	case d.grid && l.class == spec.FabricLink:
		return gridPath(a, b)
	case d.grid:
		// The server is below its switch, to the right of the downward links.
		down := a.nicPlace(l.nic)
		return straight(down, point{down.x, b.y + b.h})
	case a.tier == b.tier:
		height := arcHeight(math.Abs(a.middle()-b.middle())) * 4 / 3
		return curve{{a.middle(), a.y}, {a.middle(), a.y - height}, {b.middle(), b.y - height},
			{b.middle(), b.y}}
	}
	// Lines leave and arrive vertically, so lines of one box stay apart near it.
	bend := (from.y - to.y) * 0.28
	return curve{from, {from.x, from.y - bend}, {to.x, to.y + bend}, to}
}

// gridPath returns the path between two switches of a torus. Neighbours have a straight line, the
// ends of a dimension an arc over the row or beside the column, and planes a slanted curve.
func gridPath(a, b *box) curve {
	const inset, side = 14.0, 26.0
	dimension, apart := 0, 0
	for i := range a.at {
		if a.at[i] != b.at[i] {
			dimension, apart = i, b.at[i]-a.at[i]
		}
	}
	mid := func(b *box) float64 { return b.y + b.h/2 }
	switch {
	case dimension == 0 && apart == 1:
		return straight(point{a.x + a.w, mid(a)}, point{b.x, mid(a)})
	case dimension == 0:
		return curve{{a.x + a.w - inset, a.y}, {a.x + a.w + 2*side, a.y - side}, {b.x - 2*side, b.y - side},
			{b.x + inset, b.y}}
	case dimension == 1 && apart == 1:
		return straight(point{a.x + inset, a.y + a.h}, point{a.x + inset, b.y})
	case dimension == 1:
		return curve{{a.x, mid(a) + 8}, {a.x - side, a.y + 2*side}, {b.x - side, b.y - side},
			{b.x, mid(b) - 8}}
	}
	// The arc is between the switch and the servers below it.
	height := 10 + 3*float64(apart)
	return curve{{a.x + a.w - inset, a.y + a.h}, {a.x + a.w + side, a.y + a.h + height},
		{b.x - side, b.y + b.h + height}, {b.x + inset, b.y + b.h}}
}
