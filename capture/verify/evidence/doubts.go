package evidence

import (
	"railbed/capture/display"
	"railbed/internal/plural"
)

// Doubts counts packets of which a filter or a field cannot tell, since a value may be there that the record
// does not show. A check adds its lines to Finding.Unseen, which takes the proof from claims about packets
// that were not seen.
type Doubts struct {
	of   map[display.Unseen]*doubted // by a single reason
	last int                         // the number of the last packet, of which a check may ask several times
}

// doubted are the packets with one reason.
type doubted struct {
	count   uint64
	first   int
	carrier string // of the first packet
	keys    bool   // there are keys
}

// Add counts a packet if there are reasons, and reports whether there are.
func (d *Doubts) Add(p *Packet, reasons display.Unseen) bool {
	if reasons == 0 {
		return false
	}
	if d.of == nil {
		d.of = map[display.Unseen]*doubted{}
	}
	again := d.last == p.Number
	d.last = p.Number
	reasons.Each(func(reason display.Unseen) {
		of := d.of[reason]
		if of == nil {
			of = &doubted{first: p.Number, carrier: p.Display().Carrier(),
				keys: p.capture.keys != nil}
			d.of[reason] = of
		} else if again {
			return
		}
		of.count++
	})
	return true
}

// hides says what a reason does to packets.
var hides = map[display.Unseen]string{
	display.CutOff:       "were cut off before a field that the rule reads",
	display.Fragmented:   "are fragments without a field that the rule reads",
	display.Encrypted:    "are encrypted, with a field that the rule reads",
	display.Encapsulated: "may carry other packets with a field that the rule reads",
	display.Unrecorded:   "were recorded without a field that the rule reads",
}

// Lines returns, for each reason, a line with the number of its packets.
func (d *Doubts) Lines() (lines []string) {
	for reason := display.Unseen(1); reason != 0; reason <<= 1 {
		of := d.of[reason]
		if of == nil {
			continue
		}
		line := plural.Text("%d packets, of which frame %d is the first, %s", of.count, of.first,
			hides[reason])
		switch {
		case reason == display.Encapsulated:
			line += "; not decoded: " + of.carrier
		case reason == display.Encrypted && of.carrier != "":
			line += "; not decrypted: " + of.carrier
		case reason == display.Encrypted && !of.keys:
			line += "; rd: {key-log: true} writes the keys"
		}
		lines = append(lines, line)
	}
	return lines
}
