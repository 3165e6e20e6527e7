package fabricchecks

import (
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
)

// Ethernet's header and a VLAN tag are not part of the MTU.
const (
	etherHeader = 14
	tagHeader   = 4
)

// mtu checks that no frame is longer than the MTU of its link. A frame is then one packet as on a
// wire, and not a burst that an offload would segment later. The MTU is the plan's for the tap's
// link, or else the one given to NewMTU.
type mtu struct {
	other   int
	capture *evidence.Capture
	links   evidence.Slots[*mtuLink] // by tap
	judged  uint64
	largest int
}

// mtuLink is the MTU of a tap's link, 0 if it is unknown, and the longer packets there.
type mtuLink struct {
	limit   int
	tooLong uint64
	longest int
}

// NewMTU makes the check. other is the MTU of taps that the plan does not contain. 0 leaves these
// taps out.
func NewMTU(other int) evidence.Check { return &mtu{other: other} }

// Begin implements Check.
func (m *mtu) Begin(c *evidence.Capture) { m.capture = c }

func (m *mtu) link(index int) *mtuLink {
	tap, of := m.capture.Taps[index], &mtuLink{limit: m.other}
	if port, _ := m.capture.Interface(tap.Node, tap.Port); port != nil {
		of.limit = port.MTU
		if link := m.capture.Plan.Link(port.Link); link != nil && link.MTU > 0 {
			of.limit = link.MTU
		}
	}
	return of
}

// Packet implements Check.
func (m *mtu) Packet(p *evidence.Packet) {
	link := m.links.Made(p.Tap.Index, m.link)
	if link.limit == 0 {
		return
	}
	m.judged++
	size := p.Length - etherHeader - p.Tags*tagHeader
	m.largest = max(m.largest, size)
	if size > link.limit {
		link.tooLong++
		link.longest = max(link.longest, size)
	}
}

// Result implements Check.
func (m *mtu) Result() evidence.Result {
	r := evidence.Result{Name: "mtu", Measured: map[string]float64{"packets": float64(m.judged),
		"largest": float64(m.largest)}}
	var f evidence.Finding
	total := uint64(0)
	for i, link := range m.links {
		if link.tooLong > 0 {
			total += link.tooLong
			f.Wrong = append(f.Wrong,
				plural.Text("%s: %d packets over the MTU of %d, the longest of %d bytes",
					m.capture.Taps[i].Name, link.tooLong, link.limit, link.longest))
		}
	}
	if m.judged == 0 {
		f.Unclear = append(f.Unclear, "no packet on a link of known MTU")
	}
	r.Measured["too-long"] = float64(total)
	r.Summary = plural.Text("%d of %d packets were longer than their link's MTU; the longest had %d bytes",
		total, m.judged, m.largest)
	m.capture.Conclude(&r, evidence.Need{Ports: m.capture.Recorded(), AnyOrder: true}, f)
	return r
}
