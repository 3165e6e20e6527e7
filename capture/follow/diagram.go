package follow

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"railbed/internal/svg"
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
	diagramEdge   = 20 // left of the title
)

// diagramStyle is the style sheet of diagrams, after svg.Style. Class y is a time, r the line of a time, and
// v the line of a node. Class w is a wait in a queue, and z a pause. Class f is a packet, g a packet that was
// sent again, and x a lost packet. Class c brought the last missing byte.
const diagramStyle = `.y{font-size:12px;fill:#5b6878;text-anchor:end}.r{stroke:#e2e8f0}.v{stroke:#94a3b8}
path,circle{fill:none;stroke-width:1.3}
.f{stroke:#4e79a7;stroke-opacity:.75}.g{stroke:#f28e2b;stroke-width:1.8}
.x{stroke:#c4122f;stroke-width:1.8}.c{stroke:#16202b;stroke-width:2.6}
.w{stroke:#d4a72c;stroke-width:5;stroke-opacity:.55}.z{stroke:#c4122f;stroke-width:5;stroke-opacity:.5}
g:hover path{stroke-width:4}
@media (prefers-color-scheme:dark){.y{fill:#9fb0c3}.r{stroke:#26323f}
.v{stroke:#5b6b7d}.f{stroke:#7aa6d6}.c{stroke:#e6edf3}.x,.z{stroke:#ff6b7d}}
`

// diagram draws the packets of a message between the nodes and switches that they cross. Time goes down.
type diagram struct {
	svg.Drawing
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
	buffer := bufio.NewWriter(to)
	d := &diagram{Drawing: svg.Drawing{Writer: buffer}, r: r, message: m, columns: r.columns(m)}
	d.stretch()
	width := float64(diagramLeft + diagramColumn*max(len(d.columns), 5))
	d.Open(svg.File, width, diagramTop+diagramHeight+diagramMargin)
	l := r.MessageLife(message, false)
	title := fmt.Sprintf("Message %d: %s from %s to %s", l.Message, l.Protocol, cmp.Or(l.From, l.Source),
		cmp.Or(l.To, l.Destination))
	d.Printf("<title>%s</title>\n", svg.Escape(title))
	d.Head(diagramStyle)
	d.Text("t", diagramEdge, 32, title)
	d.legend(&l, width)
	d.axes()
	for _, p := range m.Packets {
		d.packet(int(p))
	}
	d.Printf("</svg>\n")
	return buffer.Flush()
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

func (d *diagram) legend(l *MessageLife, width float64) {
	took := "not all of it arrived"
	if l.Took > 0 {
		took = "took " + l.Took.Round(time.Microsecond).String()
	}
	d.Text("k", diagramEdge, 54, fmt.Sprintf("%d bytes in %d packets, %d sent again; %s", l.Bytes, l.Packets,
		l.Again, took))
	keys := svg.Legend{Drawing: d.Drawing, Left: diagramEdge, Right: width, Y: 76}
	for _, key := range []struct{ class, text string }{{"f", "packet"}, {"g", "sent again"}, {"x", "lost"},
		{"c", "brought the last byte"}, {"w", "waits in a queue"}, {"z", "is paused"}} {
		keys.LineKey(key.text, key.class, 0)
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
		d.Text("n", x, diagramTop-12, name)
		d.Line("v", 0, svg.MoveTo(x, diagramTop).To("v", diagramHeight).String())
	}
	var drawn int64
	for _, s := range d.stretches {
		if !s.gap {
			drawn += s.to - s.from
		}
	}
	step := max(1, svg.Step(float64(max(d.r.Own(drawn), 1))))
	const left = diagramLeft - 8
	right := float64(diagramLeft + diagramColumn*len(d.columns))
	for _, s := range d.stretches {
		if s.gap {
			d.Rect("bg", left, s.y+3, right-diagramLeft, s.height-6, 0)
			d.Text("k", diagramLeft, s.y+s.height/2+4,
				d.r.Own(s.to-s.from).Round(time.Microsecond).String()+" without a packet")
			continue
		}
		from, to := float64(d.r.Own(s.from-d.message.Start)), float64(d.r.Own(s.to-d.message.Start))
		for at := math.Ceil(from/step) * step; at <= to; at += step {
			y := d.y(d.message.Start + int64(at)*d.r.Dilation)
			d.Line("r", 0, svg.MoveTo(left, y).To("H", right).String())
			d.Text("y", left-6, y+4, time.Duration(at).String())
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
	d.Printf("<g><title>record %d, psn %d, bytes %d to %d: %s after %s</title>\n", l.Record, l.PSN,
		l.Position, l.Position+l.Bytes, svg.Escape(l.Outcome), l.Took)
	var path svg.Path
	for i, h := range hops {
		from, to := d.x(d.column(h.From)), d.x(d.column(h.To))
		waited := h.From.Due + h.Account[Queue] + h.Account[Pause]
		if h.Account[Queue]+h.Account[Pause] > 0 {
			kind := "w"
			if h.Account[Pause] > h.Account[Queue] {
				kind = "z"
			}
			d.Line(kind, 0, svg.MoveTo(from, d.y(h.From.Due)).To("V", d.y(waited)).String())
		}
		if i == 0 {
			path.To("M", from, d.y(h.From.Due))
		}
		path.To("L", from, d.y(waited)).To("L", to, d.y(h.To.Due))
		if h.Link {
			d.Printf(`<circle class="%s" cx="%s" cy="%s" r="2"/>`, class, svg.Number(to),
				svg.Number(d.y(h.To.Due)))
		}
	}
	if path.Len() > 0 {
		d.Line(class, 0, path.String())
	}
	if p.Arrived == 0 {
		last := d.r.sights[p.last]
		d.Line("x", 0, svg.MoveTo(d.x(d.column(last))-5, d.y(last.Due)-5).To("l", 10, 10).
			To("m", 0, -10).To("l", -10, 10).String())
	}
	d.Printf("</g>\n")
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
