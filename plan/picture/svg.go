package picture

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"

	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
)

// colours are the colours of groups: Tableau's ten colours without grey. They can be told apart on
// white and on near-black.
var colours = [palette]string{"#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#d4a72c",
	"#ff9da7", "#9c755f"}

// style is the style sheet of every picture. Classes of boxes are n for the name, o for the note
// and b for the frame. s is a server, p a NIC and l a line. h is the wide invisible line for the
// pointer. c0 to c8 and cn are colours.
const style = `text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.bg{fill:#fff}.t{fill:#16202b;font-size:17px;font-weight:600}.k{fill:#475569;font-size:12px}
.n{fill:#16202b;font-size:12.5px;font-weight:600;text-anchor:middle}.o{fill:#5b6878;font-size:10px;text-anchor:middle}
.m{fill:#16202b;font-size:10px;text-anchor:middle}
.b{fill-opacity:.14;stroke-width:1.4}.s{fill:#f4f6f9;stroke:#94a3b8;stroke-width:1.1}.e{fill:#fff;stroke:#cbd5e1}
.pod{fill-opacity:.05;stroke-opacity:.35;stroke-dasharray:4 4}
path.l{fill:none;stroke-opacity:.72}.h{fill:none;stroke:#000;stroke-opacity:0;stroke-width:9;pointer-events:stroke}
g:hover>.l{stroke-opacity:1;stroke-width:5}
.cn{stroke:#8090a4;fill:#8090a4}
`

// dark overrides style if the user's system has a dark theme.
const dark = `@media (prefers-color-scheme:dark){.bg{fill:#10161d}.t,.n,.m{fill:#e6edf3}.k,.o{fill:#9fb0c3}
.b{fill-opacity:.24}.s{fill:#1b2530;stroke:#5b6b7d}.e{fill:#10161d;stroke:#3a4755}path.l{stroke-opacity:.8}}
`

// Style returns the style sheet of pictures.
func Style() string { return styleWith("") }

// styleWith returns the style sheet with more rules at its end.
func styleWith(more string) string {
	var out strings.Builder
	out.WriteString(style)
	for i, c := range colours {
		fmt.Fprintf(&out, ".c%d{stroke:%s;fill:%s}", i, c, c)
	}
	out.WriteString("\n" + dark + more)
	return out.String()
}

// drawing collects the elements of one SVG.
type drawing struct {
	strings.Builder
	*scene
	uses Uses // nil for a drawing without
	// inline reports whether the SVG is part of a page with a style sheet of its own, see Inline.
	inline bool
}

// svg draws a plan. With uses the drawing is a part of a page, and its styles apply to it alone.
func svg(p *plan.Plan, uses Uses) string {
	d := &drawing{scene: newScene(p, true), uses: uses}
	d.labelled = uses != nil
	return d.whole()
}

// whole draws the scene.
func (d *drawing) whole() string {
	width, height := d.layout()
	legend := d.legend(max(width, minWidth))
	total := max(width, minWidth) + 2*margin
	role := `xmlns="http://www.w3.org/2000/svg" role="img"`
	if d.uses != nil {
		// Scaled further down, the names could not be read.
		role = fmt.Sprintf(`class="fabric" role="group" aria-label="%s" style="min-width:%spx"`,
			escape("Fabric of "+d.plan.Name+", with the use of its links"), num(0.65*total))
	}
	d.printf(`<svg %s viewBox="0 0 %s %s" width="%s" height="%s">`+"\n", role,
		num(total), num(legend.height+height+margin), num(total), num(legend.height+height+margin))
	d.head()
	d.WriteString(legend.text)
	d.printf(`<g transform="translate(%s %s)">`+"\n", num((total-width)/2), num(legend.height))
	d.pods()
	d.paths()
	for i := range d.boxes {
		d.box(&d.boxes[i])
	}
	d.WriteString("</g>\n</svg>\n")
	return d.String()
}

// head writes the title and the styles.
func (d *drawing) head() {
	if d.uses == nil {
		d.printf("<title>%s</title>\n", escape("Fabric of "+d.plan.Name))
	}
	switch {
	case d.inline:
	case d.uses != nil:
		d.printf("<style>\n.fabric{%s}\n</style>\n", styleWith(useStyle))
	default:
		d.printf("<style>\n%s</style>\n<rect class=\"bg\" width=\"100%%\" height=\"100%%\"/>\n", Style())
	}
}

// minWidth leaves room for the title and the legend of small fabrics.
const minWidth = 560.0

// open opens the group of a box or a line. Inline, its data attribute has the names for which it stands.
func (d *drawing) open(attribute string, names []string, title string) {
	if d.inline {
		d.printf(`<g data-%s="%s">`, attribute, escape(strings.Join(names, " ")))
	} else {
		d.WriteString("<g>")
	}
	d.printf("<title>%s</title>", escape(title))
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(d, format, args...) }

// num formats a length with at most one decimal.
func num(f float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0")
}

// escape makes text safe within elements and attributes.
func escape(text string) string {
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(text)) // a Builder never fails
	return escaped.String()
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

// legend holds the title, the rates and the groups, with the height of all.
type legend struct {
	text   string
	height float64
}

func (d *drawing) legend(width float64) legend {
	var out strings.Builder
	p := d.plan
	x, y := margin, 24.0
	if !d.inline && d.uses == nil { // pages have a title of their own
		name := []rune(p.Name)
		for textWidth(string(name), 17) > width {
			name = name[:len(name)-1]
		}
		fmt.Fprintf(&out, `<text class="t" x="%s" y="36">%s</text>`+"\n", num(margin), escape(string(name)))
		fmt.Fprintf(&out, `<text class="k" x="%s" y="56">%s</text>`+"\n", num(margin),
			plural.Text("%d servers, %d switches, %d links", len(p.Nodes), len(p.Switches), len(p.Links)))
		y = 80
	}
	key := func(text string, sample func(x, y float64) string) {
		w := 34 + textWidth(text, 12) + 18
		if x+w > width+margin && x > margin {
			x, y = margin, y+20
		}
		fmt.Fprintf(&out, `%s<text class="k" x="%s" y="%s">%s</text>`+"\n", sample(x, y-4), num(x+34), num(y),
			escape(text))
		x += w
	}
	rates := d.rates()
	if d.uses != nil {
		rates = nil
		useKeys(key)
	}
	for _, r := range rates {
		key(r.text, func(x, y float64) string {
			return fmt.Sprintf(`<path class="l cn" stroke-width="%s" d="M%s %sh26"/>`, num(r.width), num(x),
				num(y))
		})
	}
	names := d.groups
	if d.grid {
		names = []string{"along x", "along y", "along z"}[:len(d.boxes[0].at)]
	}
	if len(names) <= 2*palette {
		for i, name := range names {
			key(name, func(x, y float64) string {
				return fmt.Sprintf(`<rect class="b %s" x="%s" y="%s" width="26" height="11" rx="3"/>`,
					class(i), num(x), num(y-5.5))
			})
		}
	}
	return legend{out.String(), y + 34}
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
	slices.SortStableFunc(keys, func(a, b rateKey) int {
		switch {
		case a.width > b.width:
			return -1
		case a.width < b.width:
			return 1
		}
		return 0
	})
	for i := range keys {
		noun := "links"
		if count[keys[i].text] == 1 {
			noun = "link"
		}
		keys[i].text = fmt.Sprintf("%s (%d %s)", keys[i].text, count[keys[i].text], noun)
	}
	return keys[:min(len(keys), maxRates)]
}

// pods draws a frame around each group of several switches, unless the frames would overlap, as
// frames of planes do.
func (d *drawing) pods() {
	type frame struct{ left, top, right, bottom float64 }
	frames := make([]frame, len(d.groups))
	members := make([]int, len(d.groups))
	for i := range frames {
		frames[i] = frame{math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)}
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
		d.printf(`<rect class="pod %s" x="%s" y="%s" width="%s" height="%s" rx="10"/>`+"\n", class(i%palette),
			num(f.left-pad), num(f.top-pad), num(f.right-f.left+2*pad), num(f.bottom-f.top+2*pad))
	}
}
