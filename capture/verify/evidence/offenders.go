package evidence

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"railbed/capture/display"
	"railbed/capture/pcapng"
	"railbed/internal/plural"
)

// Bounds of the packets that are kept of a check: offenders with their neighbours, the packets before and
// after each of them, and the bytes of a packet.
const (
	offendersKept  = 100
	neighboursKept = 5
	bytesKept      = 4 << 10
	// heldMost bounds the packets that are kept with their neighbours before it is known whether they offend.
	heldMost = 256
)

// kept is a copy of a packet.
type kept struct {
	tap    *Tap
	number int
	packet pcapng.Packet
	pinned bool // an excerpt has it, so that its memory cannot be used again
}

// cutting is a packet with its neighbours at the same tap.
type cutting struct {
	of      *kept
	packets []*kept
	missing int // packets after it that have not come yet
}

// lane holds the last packets of a tap, and the cuttings that wait for the next ones.
type lane struct {
	recent [neighboursKept]*kept // a ring
	next   int
	open   []*cutting
}

// neighbourhood keeps the last packets of each tap, if any check asked for offenders.
type neighbourhood struct {
	on    bool
	lanes Slots[lane] // by tap
	now   *kept       // the packet that the checks look at, if a cutting has it
}

// keep copies a packet into k.
func (k *kept) keep(p *Packet) *kept {
	data, comments := k.packet.Data[:0], k.packet.Comments
	k.tap, k.number, k.packet = p.Tap, p.Number, *p.raw
	k.packet.Data = append(data, p.raw.Data[:min(len(p.raw.Data), bytesKept)]...)
	k.packet.Comments = comments[:0]
	for i, comment := range p.raw.Comments {
		var memory []byte
		if i < cap(comments) {
			memory = comments[:i+1][i][:0]
		}
		k.packet.Comments = append(k.packet.Comments, append(memory, comment...))
	}
	return k
}

// cut begins the cutting of the packet that the checks look at.
func (n *neighbourhood) cut(p *Packet) *cutting {
	if n.now == nil {
		n.now = new(kept).keep(p)
	}
	l, c := n.lanes.At(p.Tap.Index), &cutting{of: n.now, missing: neighboursKept}
	for i := range l.recent {
		if k := l.recent[(l.next+i)%neighboursKept]; k != nil {
			k.pinned = true
			c.packets = append(c.packets, k)
		}
	}
	c.packets = append(c.packets, n.now)
	l.open = append(l.open, c)
	return c
}

// pass takes a packet at which all checks have looked.
func (n *neighbourhood) pass(p *Packet) {
	if !n.on {
		return
	}
	l := n.lanes.At(p.Tap.Index)
	k := n.now
	if n.now = nil; k != nil {
		k.pinned = true
	} else if k = l.recent[l.next]; k == nil || k.pinned {
		k = new(kept).keep(p)
	} else {
		k.keep(p)
	}
	l.open = slices.DeleteFunc(l.open, func(c *cutting) bool {
		if c.of == k {
			return false
		}
		k.pinned = true
		c.packets = append(c.packets, k)
		c.missing--
		return c.missing == 0
	})
	l.recent[l.next] = k
	l.next = (l.next + 1) % neighboursKept
}

// Offenders collects the packets that break a check: the numbers of the first ones, and these packets with
// their neighbours at the same tap.
type Offenders struct {
	// Count is the number of offenders.
	Count uint64

	capture *Capture
	first   []Held
	held    int
}

// Held is a packet that may turn out to be an offender.
type Held struct {
	Number int // in the file, from 1
	Tap    *Tap
	cut    *cutting // nil beyond the bounds
}

// NewOffenders returns an empty collection. It is called in Begin.
func (c *Capture) NewOffenders() *Offenders {
	c.around.on = true
	return &Offenders{capture: c}
}

// Add adds the packet that the check looks at.
func (o *Offenders) Add(p *Packet) {
	h := Held{Number: p.Number, Tap: p.Tap}
	if len(o.first) < offendersKept {
		h.cut = o.capture.around.cut(p)
	}
	o.AddHeld(h)
}

// Hold keeps the packet that the check looks at until AddHeld or Release.
func (o *Offenders) Hold(p *Packet) Held {
	h := Held{Number: p.Number, Tap: p.Tap}
	if len(o.first) < offendersKept && o.held < heldMost {
		o.held++
		h.cut = o.capture.around.cut(p)
	}
	return h
}

// Release forgets a packet that is no offender.
func (o *Offenders) Release(h Held) {
	if h.cut != nil {
		o.held--
	}
}

// AddHeld adds a packet that was held.
func (o *Offenders) AddHeld(h Held) {
	o.Count++
	if len(o.first) < offendersKept {
		o.first = append(o.first, h)
	}
}

// Forget drops all offenders, for a check that holds in the end.
func (o *Offenders) Forget() { o.Count, o.first = 0, nil }

// described bounds the offenders that are described, each in a line. The others are listed by number.
const described = 8

// Lines describes the offenders for people.
func (o *Offenders) Lines() (lines []string) {
	p := display.Packet{Keys: o.capture.keys}
	for i, h := range o.first {
		if i == described {
			break
		}
		line := fmt.Sprintf("frame %d", h.Number)
		if h.Tap.Name != "" {
			line += " at " + h.Tap.Name
		}
		if h.cut != nil {
			p.Set(&h.cut.of.packet, &h.Tap.described, h.Number, o.capture.First)
			s := p.Summary()
			line += fmt.Sprintf(", %.6f s: %s > %s %s %d %s", s.Since.Seconds(), s.Source, s.Destination,
				s.Protocol, s.Length, s.Info)
			if s.Record != "" {
				line += " [" + s.Record + "]"
			}
		}
		lines = append(lines, line)
	}
	if len(o.first) <= described {
		return lines
	}
	line := "also frames"
	for i, h := range o.first[described:] {
		line += fmt.Sprint(map[bool]string{true: ",", false: ""}[i > 0], " ", h.Number)
	}
	if more := o.Count - uint64(len(o.first)); more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return append(lines, line)
}

// ExcerptApplication is the program that excerpts name as their writer. An excerpt is no recording of
// Railbed, which states its losses.
const ExcerptApplication = "railbed excerpt"

// First returns the number of the first offender in the file.
func (o *Offenders) First() int { return o.first[0].Number }

// Kept reports whether packets of offenders are kept.
func (o *Offenders) Kept() bool {
	return slices.ContainsFunc(o.first, func(h Held) bool { return h.cut != nil })
}

// WriteExcerpt writes the offenders that were kept and their neighbours, in the order of their times. A
// comment of each packet has its number in the whole capture.
func (o *Offenders) WriteExcerpt(w io.Writer, title string) error {
	all, offends := map[int]*kept{}, map[int]bool{}
	for _, h := range o.first {
		if h.cut != nil {
			offends[h.Number] = true
			for _, k := range h.cut.packets {
				all[k.number] = k
			}
		}
	}
	out, err := pcapng.NewWriter(w, pcapng.Section{Application: ExcerptApplication,
		Comments: []string{plural.Text("The check %q failed at %d packets. Of these, %d are here, with up "+
			"to %d packets of the same tap before and after.", title, o.Count, len(offends),
			neighboursKept)}})
	if err != nil {
		return err
	}
	packets := slices.SortedFunc(maps.Values(all), func(a, b *kept) int {
		return cmp.Or(cmp.Compare(a.packet.Time, b.packet.Time), cmp.Compare(a.number, b.number))
	})
	taps := map[int]int{}
	for _, k := range packets {
		if _, known := taps[k.tap.Index]; !known {
			if taps[k.tap.Index], err = out.AddInterface(k.tap.described); err != nil {
				return err
			}
		}
	}
	for _, k := range packets {
		p := k.packet
		what := "frame %d of the capture"
		if offends[k.number] {
			what += ", which breaks the check"
		}
		p.Interface, p.Comments = taps[k.tap.Index], append(slices.Clone(p.Comments),
			fmt.Appendf(nil, what, k.number))
		if err := out.WritePacket(&p); err != nil {
			return err
		}
	}
	return out.Flush()
}
