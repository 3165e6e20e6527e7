package follow

import (
	"bufio"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"railbed/plan/topology"
)

// Sizes of a diagram, in pixels.
const (
	diagramLeft   = 96 // for the times
	diagramTop    = 116
	diagramColumn = 150
	diagramHeight = 900
	diagramMargin = 40
	diagramGap    = 44
)

// diagramStyle is the style sheet of diagrams. Class w is a wait in a queue, and z a pause. Class f is a
// packet, g a packet that was sent again, and x a lost packet. Class c brought the last missing byte.
const diagramStyle = `text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
text{font-size:12px;fill:#16202b}.bg{fill:#fff}.t{font-size:17px;font-weight:600}.k{fill:#475569}
.n{font-weight:600;text-anchor:middle}.y{fill:#5b6878;text-anchor:end}.r{stroke:#e2e8f0}.v{stroke:#94a3b8}
path,circle{fill:none;stroke-width:1.3}
.f{stroke:#4e79a7;stroke-opacity:.75}.g{stroke:#f28e2b;stroke-width:1.8}
.x{stroke:#c4122f;stroke-width:1.8}.c{stroke:#16202b;stroke-width:2.6}
.w{stroke:#d4a72c;stroke-width:5;stroke-opacity:.55}.z{stroke:#c4122f;stroke-width:5;stroke-opacity:.5}
g:hover path{stroke-width:4}
@media (prefers-color-scheme:dark){.bg{fill:#10161d}text{fill:#e6edf3}.k,.y{fill:#9fb0c3}.r{stroke:#26323f}
.v{stroke:#5b6b7d}.f{stroke:#7aa6d6}.c{stroke:#e6edf3}.x,.z{stroke:#ff6b7d}}
`

// diagram draws the packets of a message between the nodes and switches that they cross. Time goes down.
type diagram struct {
	*bufio.Writer
	r       *Recording
	message *Message
	columns []string
	// stretches are the times in which there are packets, and the gaps between them.
	stretches []stretch
}

// stretch is a time that is drawn at one scale, from y on. A gap is drawn short.
type stretch struct {
	span
	y, height float64
	gap       bool
}

// Diagram writes a time-sequence diagram of a message as SVG.
func (r *Recording) Diagram(to io.Writer, message int) error {
	m := &r.Messages[message]
	d := &diagram{Writer: bufio.NewWriter(to), r: r, message: m, columns: r.columns(m)}
	d.stretch()
	width := diagramLeft + diagramColumn*max(len(d.columns), 5)
	height := diagramTop + diagramHeight + diagramMargin
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 %d %d" width="%d" height="%d">`+"\n",
		width, height, width, height)
	l := r.MessageLife(message, false)
	title := fmt.Sprintf("Message %d: %s from %s to %s", l.Message, l.Protocol, cmp.Or(l.From, l.Source),
		cmp.Or(l.To, l.Destination))
	d.printf("<title>%s</title>\n<style>\n%s</style>\n", escape(title), diagramStyle)
	d.printf(`<rect class="bg" width="100%%" height="100%%"/>` + "\n")
	d.printf(`<text class="t" x="20" y="32">%s</text>`+"\n", escape(title))
	d.legend(&l)
	d.axes()
	for _, p := range m.Packets {
		d.packet(int(p))
	}
	d.printf("</svg>\n")
	return d.Flush()
}

func (d *diagram) printf(format string, args ...any) { fmt.Fprintf(d, format, args...) }

func escape(text string) string {
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(text)) // a Builder never fails
	return escaped.String()
}

// columns returns the nodes and switches that a message crosses, by their place on the way.
func (r *Recording) columns(m *Message) (names []string) {
	places, counts := map[string]float64{}, map[string]float64{}
	for _, p := range m.Packets {
		place, before := -1.0, ""
		for _, s := range r.Sights(int(p)) {
			node := r.Taps[s.Tap].Node
			if node != before {
				place, before = place+1, node
				places[node] += place
				counts[node]++
			}
		}
	}
	for name := range places {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(places[a]/counts[a], places[b]/counts[b]), topology.CompareNames(a, b))
	})
	if from := r.Flows[m.Flow].From; slices.Contains(names, from) { // also where its packets get lost early
		names = append([]string{from}, slices.DeleteFunc(names, func(n string) bool { return n == from })...)
	}
	if to := r.Flows[m.Flow].To; slices.Contains(names, to) {
		names = append(slices.DeleteFunc(names, func(n string) bool { return n == to }), to)
	}
	return names
}

func (d *diagram) legend(l *MessageLife) {
	took := "not all of it arrived"
	if l.Took > 0 {
		took = "took " + l.Took.Round(time.Microsecond).String()
	}
	d.printf(`<text class="k" x="20" y="54">%d bytes in %d packets, %d sent again; %s</text>`+"\n", l.Bytes,
		l.Packets,
		l.Again, took)
	x := 20
	for _, key := range []struct{ class, text string }{{"f", "packet"}, {"g", "sent again"}, {"x", "lost"},
		{"c", "brought the last byte"}, {"w", "waits in a queue"}, {"z", "is paused"}} {
		d.printf(`<path class="%s" d="M%d 72h24"/><text class="k" x="%d" y="76">%s</text>`+"\n", key.class,
			x, x+30, key.text)
		x += 54 + 7*len(key.text)
	}
}

// stretch cuts the time of the message at gaps of more than a twelfth without any packet.
func (d *diagram) stretch() {
	var times []int64
	for _, p := range d.message.Packets {
		for _, s := range d.r.Sights(int(p)) {
			times = append(times, s.Time, s.Due)
		}
	}
	slices.Sort(times)
	from, end := times[0], max(times[len(times)-1], times[0]+1)
	cut := span{from: from, to: from}
	idle := int64(0)
	for _, at := range append(times, end) {
		if at-cut.to > (end-from)/12 {
			idle += at - cut.to
			d.stretches = append(d.stretches, stretch{span: cut}, stretch{span: span{cut.to, at}, gap: true})
			cut.from = at
		}
		cut.to = at
	}
	d.stretches = append(d.stretches, stretch{span: cut})
	y := float64(diagramTop)
	scale := (diagramHeight - diagramGap*float64(len(d.stretches)/2)) / float64(max(end-from-idle, 1))
	for i := range d.stretches {
		s := &d.stretches[i]
		if s.y, s.height = y, float64(s.to-s.from)*scale; s.gap {
			s.height = diagramGap
		}
		y += s.height
	}
}

// axes draws a line for each column, lines for round times, and the lengths of gaps.
func (d *diagram) axes() {
	for i, name := range d.columns {
		x := d.x(i)
		d.printf(`<text class="n" x="%.0f" y="%d">%s</text><path class="v" d="M%.0f %dv%d"/>`+"\n", x,
			diagramTop-12,
			escape(name), x, diagramTop, diagramHeight)
	}
	var drawn int64
	for _, s := range d.stretches {
		if !s.gap {
			drawn += s.to - s.from
		}
	}
	own := float64(max(d.r.Own(drawn), 1))
	step := math.Pow(10, math.Floor(math.Log10(own/8+1)))
	for _, factor := range []float64{2, 2.5, 2} { // 1, 2, 5, 10
		if own/step <= 12 {
			break
		}
		step *= factor
	}
	right := diagramLeft + diagramColumn*len(d.columns)
	for _, s := range d.stretches {
		if s.gap {
			d.printf(`<rect class="bg" x="%d" y="%.1f" width="%d" height="%.1f"/><text class="k" x="%d" y="%.1f">%s `+
				"without a packet</text>\n", diagramLeft-8, s.y+3, right-diagramLeft, s.height-6,
				diagramLeft, s.y+s.height/2+4,
				d.r.Own(s.to-s.from).Round(time.Microsecond))
			continue
		}
		from, to := float64(d.r.Own(s.from-d.message.Start)), float64(d.r.Own(s.to-d.message.Start))
		for at := math.Ceil(from/step) * step; at <= to; at += step {
			y := d.y(d.message.Start + int64(at)*d.r.Dilation)
			d.printf(`<path class="r" d="M%d %.1fH%d"/><text class="y" x="%d" y="%.1f">%s</text>`+"\n",
				diagramLeft-8, y,
				right, diagramLeft-14, y+4, time.Duration(at))
		}
	}
}

func (d *diagram) x(column int) float64 { return diagramLeft + diagramColumn*(float64(column)+.5) }

func (d *diagram) y(at int64) float64 {
	for _, s := range d.stretches {
		if at <= s.to {
			return s.y + max(float64(at-s.from), 0)/float64(max(s.to-s.from, 1))*s.height
		}
	}
	return diagramTop + diagramHeight
}

// packet draws a packet: slopes over links, and thick lines where it waits.
func (d *diagram) packet(packet int) {
	p := &d.r.Packets[packet]
	l := d.r.PacketLife(packet)
	hops := d.r.Hops(packet)
	class := "f"
	switch {
	case packet == d.message.Critical:
		class = "c"
	case p.Arrived == 0:
		class = "x"
	case d.again(packet):
		class = "g"
	}
	d.printf("<g><title>record %d, psn %d, bytes %d to %d: %s after %s</title>\n", l.Record, l.PSN,
		l.Position,
		l.Position+l.Bytes, escape(l.Outcome), l.Took)
	var way strings.Builder
	for i, h := range hops {
		from, to := d.x(d.column(h.From)), d.x(d.column(h.To))
		waited := h.From.Due + h.Account[Queue] + h.Account[Pause]
		if h.Account[Queue]+h.Account[Pause] > 0 {
			kind := "w"
			if h.Account[Pause] > h.Account[Queue] {
				kind = "z"
			}
			d.printf(`<path class="%s" d="M%.1f %.1fV%.1f"/>`+"\n", kind, from, d.y(h.From.Due), d.y(waited))
		}
		if i == 0 {
			fmt.Fprintf(&way, "M%.1f %.1f", from, d.y(h.From.Due))
		}
		fmt.Fprintf(&way, "L%.1f %.1fL%.1f %.1f", from, d.y(waited), to, d.y(h.To.Due))
		if h.Link {
			d.printf(`<circle class="%s" cx="%.1f" cy="%.1f" r="2"/>`+"\n", class, to, d.y(h.To.Due))
		}
	}
	if way.Len() > 0 {
		d.printf(`<path class="%s" d="%s"/>`+"\n", class, way.String())
	}
	if p.Arrived == 0 {
		last := d.r.sights[p.last]
		d.printf(`<path class="x" d="M%.1f %.1fl10 10m0 -10l-10 10"/>`+"\n", d.x(d.column(last))-5,
			d.y(last.Due)-5)
	}
	d.printf("</g>\n")
}

// again reports whether bytes of the packet were sent before.
func (d *diagram) again(packet int) bool {
	for _, p := range d.message.Packets {
		if int(p) == packet {
			return false
		}
		if d.r.Packets[p].bytes.from == d.r.Packets[packet].bytes.from {
			return true
		}
	}
	return false
}

func (d *diagram) column(s Sight) int { return max(slices.Index(d.columns, d.r.Taps[s.Tap].Node), 0) }
