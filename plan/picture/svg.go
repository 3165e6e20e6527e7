package picture

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"railbed/internal/plural"
	"railbed/internal/svg"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
)

// colours are the colours of groups: Tableau's ten colours without grey. They can be told apart on
// white and on near-black.
var colours = [palette]string{"#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#d4a72c",
	"#ff9da7", "#9c755f"}

// style is the style sheet of every picture, after svg.Style. Classes of boxes are n for the name, o for the
// note and b for the frame. s is a server, p a NIC and l a line. h is the wide invisible line for the
// pointer. c0 to c8 and cn are colours.
const style = `.o{fill:#5b6878;font-size:10px;text-anchor:middle}.m{font-size:10px;text-anchor:middle}
.b{fill-opacity:.14;stroke-width:1.4}.s{fill:#f4f6f9;stroke:#94a3b8;stroke-width:1.1}.e{fill:#fff;stroke:#cbd5e1}
.pod{fill-opacity:.05;stroke-opacity:.35;stroke-dasharray:4 4}
path.l{fill:none;stroke-opacity:.72}.h{fill:none;stroke:#000;stroke-opacity:0;stroke-width:9;pointer-events:stroke}
g:hover>.l{stroke-opacity:1;stroke-width:5}
.cn{stroke:#8090a4;fill:#8090a4}
`

// dark overrides style if the user's system has a dark theme.
const dark = `@media (prefers-color-scheme:dark){.o{fill:#9fb0c3}.b{fill-opacity:.24}.s{fill:#1b2530;stroke:#5b6b7d}.e{fill:#10161d;stroke:#3a4755}path.l{stroke-opacity:.8}}
`

// Style returns the style sheet of pictures.
func Style() string { return svg.Style + ownStyle() }

// ownStyle returns the rules after svg.Style.
func ownStyle() string {
	var out strings.Builder
	out.WriteString(style)
	for i, c := range colours {
		fmt.Fprintf(&out, ".c%d{stroke:%s;fill:%s}", i, c, c)
	}
	out.WriteString("\n" + dark)
	return out.String()
}

// drawing collects the elements of one SVG.
type drawing struct {
	svg.Drawing
	*scene
	uses Uses // nil for a drawing without
	// inline reports whether the SVG is part of a page with a style sheet of its own, see Inline.
	inline bool
}

// drawSVG draws a plan. With uses the drawing is a part of a page, and its styles apply to it alone.
func drawSVG(p *plan.Plan, uses Uses) string {
	d := &drawing{scene: newScene(p, true), uses: uses}
	d.labelled = uses != nil
	return d.whole()
}

// whole draws the scene.
func (d *drawing) whole() string {
	var out strings.Builder
	d.Drawing = svg.Drawing{Writer: &out}
	width, height := d.layout()
	legend, top := d.legend(max(width, minWidth))
	total := max(width, minWidth) + 2*margin
	role := svg.File
	if d.uses != nil {
		// Scaled further down, the names could not be read.
		role = fmt.Sprintf(`class="fabric" role="group" aria-label="%s" style="min-width:%spx"`,
			svg.Escape("Fabric of "+d.plan.Name+", with the use of its links"), svg.Number(0.65*total))
	}
	d.Open(role, total, top+height+margin)
	d.head()
	d.Printf("%s", legend)
	d.Printf(`<g transform="translate(%s %s)">`+"\n", svg.Number((total-width)/2), svg.Number(top))
	d.pods()
	d.paths()
	for i := range d.boxes {
		d.box(&d.boxes[i])
	}
	d.Printf("</g>\n</svg>\n")
	return out.String()
}

// head writes the title and the styles.
func (d *drawing) head() {
	if d.uses == nil {
		d.Printf("<title>%s</title>\n", svg.Escape("Fabric of "+d.plan.Name))
	}
	switch {
	case d.inline:
	case d.uses != nil:
		d.Printf("<style>\n.fabric{%s}\n</style>\n", Style()+useStyle)
	default:
		d.Head(ownStyle())
	}
}

// minWidth leaves room for the title and the legend of small fabrics.
const minWidth = 560.0

// open opens the group of a box or a line. Inline, its data attribute has the names for which it stands.
func (d *drawing) open(attribute string, names []string, title string) {
	if d.inline {
		d.Printf(`<g data-%s="%s">`, attribute, svg.Escape(strings.Join(names, " ")))
	} else {
		d.Printf("<g>")
	}
	d.Printf("<title>%s</title>", svg.Escape(title))
}

func class(colour int) string {
	if colour == neutral {
		return "cn"
	}
	return fmt.Sprintf("c%d", colour%palette)
}

// widthOf returns the width of a link's line: one more for each factor of four over 1 Gbit/s, so
// that 100 Mbit/s, 1, 10, 100 and 400 Gbit/s look different.
func widthOf(l *plan.Link) float64 {
	rate := min(l.AToB.Rate, l.BToA.Rate)
	return math.Round(min(max(1.5+math.Log(float64(rate)/float64(units.Rate(1e9)))/math.Log(4), 0.6),
		7)*10) / 10
}

// legend draws the title, the rates and the groups, and returns the height of all.
func (d *drawing) legend(width float64) (text string, height float64) {
	var out strings.Builder
	l := svg.Legend{Drawing: svg.Drawing{Writer: &out}, Left: margin, Right: width + margin, Y: 24}
	p := d.plan
	if !d.inline && d.uses == nil { // pages have a title of their own
		l.Text("t", margin, 36, svg.Fit(p.Name, 17, width))
		l.Text("k", margin, 56, plural.Text("%d servers, %d switches, %d links", len(p.Nodes),
			len(p.Switches), len(p.Links)))
		l.Printf("\n")
		l.Y = 80
	}
	if d.uses != nil {
		useKeys(&l)
	} else {
		for _, r := range d.rates() {
			l.LineKey(r.text, "l cn", r.width)
		}
	}
	names := d.groups
	if d.grid {
		names = []string{"along x", "along y", "along z"}[:len(d.boxes[0].at)]
	}
	if len(names) <= 2*palette {
		for i, name := range names {
			l.Key(name, func(x, y float64) { l.Rect("b "+class(i), x, y-5.5, 26, 11, 3) })
		}
	}
	return out.String(), l.Y + 34
}

// rateKey is an entry of the legend.
type rateKey struct {
	text  string
	width float64
}

// maxRates bounds the legend. Readers cannot compare more line widths by eye.
const maxRates = 8

// rates returns the distinct rates with the number of their links, the highest rate first.
func (d *drawing) rates() []rateKey {
	count := map[string]int{}
	var keys []rateKey
	for i := range d.plan.Links {
		l := &d.plan.Links[i]
		rate := rateOf(l)
		if count[rate] == 0 {
			keys = append(keys, rateKey{rate, widthOf(l)})
		}
		count[rate]++
	}
	slices.SortStableFunc(keys, func(a, b rateKey) int { return cmp.Compare(b.width, a.width) })
	for i := range keys {
		keys[i].text += " (" + plural.Count(count[keys[i].text], "links") + ")"
	}
	return keys[:min(len(keys), maxRates)]
}

// pods draws a frame around each group of several switches, unless the frames would overlap, as
// frames of planes do.
func (d *drawing) pods() {
	frames := make([]rect, len(d.groups))
	members := make([]int, len(d.groups))
	for i := range frames {
		frames[i] = rect{math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)}
	}
	grow := func(g int, b *box) {
		f := &frames[g]
		f.left, f.top = min(f.left, b.x), min(f.top, b.y)
		f.right, f.bottom = max(f.right, b.x+b.w), max(f.bottom, b.y+b.h)
	}
	for i := range d.boxes {
		if g := slices.Index(d.groups, d.boxes[i].note); g >= 0 && d.boxes[i].tier >= 0 {
			grow(g, &d.boxes[i])
			members[g]++
		}
	}
	for _, l := range d.lines {
		if g := slices.Index(d.groups, d.boxes[l.b].note); g >= 0 && l.class == spec.HostLink {
			grow(g, &d.boxes[l.a])
		}
	}
	const pad = 7.0
	for i, f := range frames {
		if members[i] < 2 {
			return
		}
		for _, other := range frames[:i] {
			if f.left < other.right+2*pad && other.left < f.right+2*pad {
				return
			}
		}
	}
	for i, f := range frames {
		d.Rect("pod "+class(i), f.left-pad, f.top-pad, f.right-f.left+2*pad, f.bottom-f.top+2*pad, 10)
	}
}
