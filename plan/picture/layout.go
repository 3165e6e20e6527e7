package picture

import (
	"cmp"
	"math"
	"slices"

	"railbed/internal/svg"
)

// Sizes in SVG user units, which are pixels at the natural size.
const (
	margin       = 28.0
	switchHeight = 38.0
	serverHeight = 34.0
	nicSize      = 7.0
	nicStep      = 11.0
	cellWidth    = 38.0
	cellHeight   = 19.0
	headHeight   = 42.0 // head of a box of several servers, above the cells
	boxGap       = 14.0
	groupGap     = 16.0 // extra gap between servers with different wiring
	nameSize     = 12.5 // font size of names
	noteSize     = 10.0 // font size of notes
	labelWidth   = 62.0 // least width of boxes, if lines have labels
	labelGap     = 108.0
)

// measure sets the width and height of a box.
func (b *box) measure() {
	needed := max(svg.Width(b.name, nameSize), svg.Width(b.note, noteSize)) + 16
	switch {
	case b.members != nil:
		rows := (len(b.members) + b.columns - 1) / b.columns
		b.w = max(needed, float64(b.columns)*cellWidth+12, float64(b.nics)*nicStep+12)
		b.h = headHeight + 4 + float64(rows)*cellHeight
	case b.tier == serverTier:
		b.w = max(needed, 44, float64(b.nics)*nicStep+8)
		b.h = serverHeight
	default:
		b.w = max(needed, 68)
		b.h = switchHeight
	}
}

// columns returns the number of servers in a row of a box. The box is square, or narrower if many
// boxes are side by side on a page.
func columns(members, boxes int) int {
	const page = 1500
	square := int(math.Ceil(math.Sqrt(float64(members))))
	fitting := int((page/float64(boxes) - boxGap - 12) / cellWidth)
	return max(2, min(square, fitting))
}

// layout sets the position of every box and returns the total size. The top of the top row is at 0.
func (s *scene) layout() (width, height float64) {
	for i := range s.boxes {
		s.boxes[i].measure()
		if s.labelled {
			s.boxes[i].w = max(s.boxes[i].w, labelWidth)
		}
	}
	if s.grid {
		s.layoutGrid()
	} else {
		s.layoutTiers()
	}
	left, right, bottom := math.Inf(1), math.Inf(-1), 0.0
	for i := range s.boxes {
		b := &s.boxes[i]
		left, right, bottom = min(left, b.x), max(right, b.x+b.w), max(bottom, b.y+b.h)
	}
	for i := range s.boxes {
		s.boxes[i].x -= left
	}
	return right - left, bottom
}

// layoutTiers puts servers in a row, and each tier above the boxes to which it is wired.
func (s *scene) layoutTiers() {
	tiers := map[int][]int{}
	top := 0
	for i, b := range s.boxes {
		tiers[b.tier] = append(tiers[b.tier], i)
		top = max(top, b.tier)
	}
	for _, row := range tiers {
		if s.steps(row) > 1 {
			s.even(row)
		}
	}
	width := s.layoutServers(tiers[serverTier], s.side(tiers[0])/float64(s.steps(tiers[0])))
	for tier := 0; tier <= top; tier++ {
		width = max(width, s.layoutTier(tiers[tier], width))
	}
	y := 0.0
	for tier := top; tier >= serverTier; tier-- {
		if tier >= 0 {
			y += s.bow(tiers[tier])
		}
		y += s.stagger(tiers[tier], y) + s.gapBelow(tier)
	}
}

// even gives the boxes of a staggered tier one width. Boxes of the same row are some positions
// apart and then do not touch.
func (s *scene) even(row []int) {
	widest := 0.0
	for _, i := range row {
		widest = max(widest, s.boxes[i].w)
	}
	for _, i := range row {
		s.boxes[i].w = widest
	}
}

// side returns the width of boxes side by side.
func (s *scene) side(row []int) float64 {
	width := 0.0
	for _, i := range row {
		width += s.boxes[i].w + boxGap
	}
	return width
}

// steps returns the number of rows over which a tier is staggered so that it fits a page.
func (s *scene) steps(row []int) int {
	const page, most = 2000, 4
	return max(1, min(int(math.Ceil(s.side(row)/page)), most))
}

// stagger sets the tops of a tier's boxes, which are in order from left to right, and returns the
// height of the tier.
func (s *scene) stagger(row []int, top float64) float64 {
	const between = 16.0
	steps, height := s.steps(row), 0.0
	for _, i := range row {
		height = max(height, s.boxes[i].h)
	}
	for n, i := range row {
		s.boxes[i].y = top + float64(n%steps)*(height+between)
	}
	return float64(steps)*(height+between) - between
}

// gapBelow returns the room below a tier. It is larger if the tier's lines lead far to the side.
func (s *scene) gapBelow(tier int) float64 {
	widest := 0.0
	for _, l := range s.lines {
		if s.boxes[l.b].tier == tier {
			widest = max(widest, math.Abs(s.boxes[l.a].middle()-s.boxes[l.b].middle()))
		}
	}
	least := 72.0
	if s.labelled {
		least = labelGap
	}
	return min(max(least, 0.16*widest), 230)
}

// layoutServers puts the servers side by side, in the order of the scene. Sets with different
// wiring have a larger gap. The row is at least as wide as the row above it needs.
func (s *scene) layoutServers(servers []int, least float64) float64 {
	steps := float64(s.steps(servers))
	extra := max(0, least-s.side(servers)/steps) / float64(max(1, len(servers)))
	x := 0.0
	before := ""
	for n, i := range servers {
		b := &s.boxes[i]
		if b.members == nil {
			here := wiring(s.plan.Node(b.name))
			if n > 0 && here != before {
				x += groupGap / steps
			}
			before = here
		}
		b.x = x + extra/2
		x += (b.w+boxGap)/steps + extra
	}
	return x
}

// layoutTier puts each switch above the middle of the boxes below to which it is wired, as near as
// the other switches allow. It returns the width of the row.
func (s *scene) layoutTier(row []int, below float64) float64 {
	wanted := map[int]float64{}
	for _, i := range row {
		sum, n := 0.0, 0.0
		for _, l := range s.lines {
			if l.b == i && s.boxes[l.a].tier < s.boxes[i].tier {
				sum, n = sum+s.boxes[l.a].middle()*float64(len(l.links)), n+float64(len(l.links))
			}
		}
		wanted[i] = below / 2
		if n > 0 {
			wanted[i] = sum / n
		}
	}
	slices.SortStableFunc(row, func(a, b int) int {
		// Positions within a hundredth are equal, because sums of floats differ a little.
		return cmp.Or(cmp.Compare(math.Round(wanted[a]*100), math.Round(wanted[b]*100)), a-b)
	})
	spread := min(0.8*below/float64(max(1, len(row))), 240)
	offset := make([]float64, len(row)) // of each middle from the first middle
	for n := 1; n < len(row); n++ {
		apart := (s.boxes[row[n-1]].w+s.boxes[row[n]].w)/2 + boxGap
		offset[n] = offset[n-1] + max(apart/float64(s.steps(row)), spread)
	}
	targets := make([]float64, len(row))
	for n, i := range row {
		targets[n] = wanted[i] - offset[n]
	}
	middles := monotone(targets)
	for n, i := range row {
		s.boxes[i].x = middles[n] + offset[n] - s.boxes[i].w/2
	}
	if len(row) == 0 {
		return 0
	}
	last := &s.boxes[row[len(row)-1]]
	return last.x + last.w - s.boxes[row[0]].x
}

// monotone returns the nondecreasing sequence with the least squared distance from the values, by
// pooling adjacent violators (Ayer et al., 1955). After the least distances between boxes are
// subtracted, it places a row without overlaps.
func monotone(values []float64) []float64 {
	type pool struct {
		sum float64
		n   int
	}
	var pools []pool
	for _, v := range values {
		pools = append(pools, pool{v, 1})
		for len(pools) > 1 {
			a, b := pools[len(pools)-2], pools[len(pools)-1]
			if a.sum/float64(a.n) <= b.sum/float64(b.n) {
				break
			}
			pools = append(pools[:len(pools)-2], pool{a.sum + b.sum, a.n + b.n})
		}
	}
	var result []float64
	for _, p := range pools {
		for range p.n {
			result = append(result, p.sum/float64(p.n))
		}
	}
	return result
}

// bow returns the height of the arcs above a row whose switches are wired to each other.
func (s *scene) bow(row []int) float64 {
	highest := 0.0
	for _, l := range s.lines {
		if slices.Contains(row, l.a) && slices.Contains(row, l.b) {
			highest = max(highest, arcHeight(math.Abs(s.boxes[l.a].middle()-s.boxes[l.b].middle())))
		}
	}
	return highest
}

// arcHeight returns the height of an arc between two positions of one row.
func arcHeight(distance float64) float64 { return 16 + 0.12*distance }

// layoutGrid puts the switches of a torus on a grid, x to the right and y down, with one grid for
// each z. The servers are below their switch.
func (s *scene) layoutGrid() {
	servers := map[int][]int{}
	for _, l := range s.lines {
		if s.boxes[l.a].tier == serverTier && !slices.Contains(servers[l.b], l.a) {
			servers[l.b] = append(servers[l.b], l.a)
		}
	}
	var cellW, cellH float64
	columns := 0
	for i := range s.boxes {
		if b := &s.boxes[i]; b.tier != serverTier {
			w, h := s.hang(b, servers[i], false)
			cellW, cellH = max(cellW, w), max(cellH, h)
			columns = max(columns, b.at[0]+1)
		}
	}
	cellW, cellH = cellW+62, cellH+58
	for i := range s.boxes {
		b := &s.boxes[i]
		if b.tier == serverTier {
			continue
		}
		at := append(slices.Clone(b.at), 0, 0)
		b.x = float64(at[0])*cellW + float64(at[2])*(float64(columns)*cellW+46)
		b.y = arcHeight(0) + 26 + float64(at[1])*cellH
		s.hang(b, servers[i], true)
	}
}

// hang puts a switch's servers below it in rows of two, to the right of its downward links, and
// returns the total size.
func (s *scene) hang(sw *box, servers []int, place bool) (width, height float64) {
	const indent, drop = 26.0, 18.0
	width, height = sw.w, sw.h
	x, y := indent, sw.h+drop
	for n, i := range servers {
		b := &s.boxes[i]
		if n > 0 && n%2 == 0 {
			x, y = indent, y+b.h+8
		}
		if place {
			b.x, b.y = sw.x+x, sw.y+y
		}
		x += b.w + 8
		width, height = max(width, x-8), max(height, y+b.h)
	}
	return width, height
}
