package picture

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"railbed/plan/spec"
)

// point is a position in the drawing.
type point struct{ x, y float64 }

// maxHandles is the largest number of lines for which each line gets a wide invisible copy for the
// pointer. More lines are so dense that the copies cover each other.
const maxHandles = 600

// paths draws all lines, below the boxes.
func (d *drawing) paths() {
	from, to := d.ends()
	var paths []string
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
			d.printf(`<path class="h" d="%s"/>`, path)
		}
		// A line for many servers is wider than a line for one, but not in proportion to their
		// number.
		width := l.width
		if len(l.links) > 1 {
			width += 1.2
		}
		d.printf(`<path class="l %s" stroke-width="%s" d="%s"/></g>`+"\n", class(l.colour),
			num(width), path)
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

// path returns the path data of a line.
func (d *drawing) path(l *line, from, to point) string {
	a, b := &d.boxes[l.a], &d.boxes[l.b]
	switch {
	case d.grid && l.class == spec.FabricLink:
		return gridPath(a, b)
	case d.grid:
		// The server is below its switch, to the right of the downward links.
		down := a.nicPlace(l.nic)
		return fmt.Sprintf("M%s %sV%s", num(down.x), num(down.y), num(b.y+b.h))
	case a.tier == b.tier:
		height := arcHeight(math.Abs(a.middle()-b.middle())) * 4 / 3
		return fmt.Sprintf("M%s %sC%s %s %s %s %s %s", num(a.middle()), num(a.y), num(a.middle()),
			num(a.y-height),
			num(b.middle()), num(b.y-height), num(b.middle()), num(b.y))
	}
	// Lines leave and arrive vertically, so lines of one box stay apart near it.
	bend := (from.y - to.y) * 0.28
	return fmt.Sprintf("M%s %sC%s %s %s %s %s %s", num(from.x), num(from.y), num(from.x), num(from.y-bend),
		num(to.x), num(to.y+bend), num(to.x), num(to.y))
}

// gridPath returns the path between two switches of a torus. Neighbours have a straight line, the
// ends of a dimension an arc over the row or beside the column, and planes a slanted curve.
func gridPath(a, b *box) string {
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
		return fmt.Sprintf("M%s %sH%s", num(a.x+a.w), num(mid(a)), num(b.x))
	case dimension == 0:
		return fmt.Sprintf("M%s %sC%s %s %s %s %s %s", num(a.x+a.w-inset), num(a.y), num(a.x+a.w+2*side),
			num(a.y-side),
			num(b.x-2*side), num(b.y-side), num(b.x+inset), num(b.y))
	case dimension == 1 && apart == 1:
		return fmt.Sprintf("M%s %sV%s", num(a.x+inset), num(a.y+a.h), num(b.y))
	case dimension == 1:
		return fmt.Sprintf("M%s %sC%s %s %s %s %s %s", num(a.x), num(mid(a)+8), num(a.x-side),
			num(a.y+2*side),
			num(b.x-side), num(b.y-side), num(b.x), num(mid(b)-8))
	}
	// The arc is between the switch and the servers below it.
	height := 10 + 3*float64(apart)
	return fmt.Sprintf("M%s %sC%s %s %s %s %s %s", num(a.x+a.w-inset), num(a.y+a.h), num(a.x+a.w+side),
		num(a.y+a.h+height),
		num(b.x-side), num(b.y+b.h+height), num(b.x+inset), num(b.y+b.h))
}
