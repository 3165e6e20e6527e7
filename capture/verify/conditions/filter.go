package conditions

import (
	"encoding/binary"
	"strings"

	"railbed/capture/filter"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// IP protocols.
const (
	protoTCP = 6
	protoUDP = 17
)

// pfcFrames matches all frames of priority flow control.
var pfcFrames = func() []filter.Pattern {
	frame := make([]byte, 60) // the minimum Ethernet frame, without the FCS
	known := make([]byte, len(frame))
	copy(frame, []byte{0x01, 0x80, 0xc2, 0, 0, 1})
	binary.BigEndian.PutUint16(frame[wire.EthernetLen-2:], wire.EtherTypeMACControl)
	binary.BigEndian.PutUint16(frame[wire.EthernetLen:], wire.OpcodePFC)
	for _, at := range []int{0, 1, 2, 3, 4, 5, 12, 13, 14, 15} {
		known[at] = 0xff
	}
	return []filter.Pattern{{Bytes: frame, Known: known}}
}()

// Packets are packets that a check needs.
type Packets struct {
	what     string
	patterns []filter.Pattern
	// transport is the transport that some step must use, or "".
	transport string
	// beside is set if the check needs all packets to judge them.
	beside bool
}

// Packets that checks need.
var (
	PFC  = Packets{what: "PFC frames", patterns: pfcFrames, beside: true} // and how ports react to them
	RD   = Packets{what: "reliable datagrams", patterns: filter.Transport(protoUDP, 0, 0), transport: "rd"}
	RoCE = Packets{what: "packets of RoCEv2", patterns: filter.Transport(protoUDP, 0, 0), transport: "roce"}
)

// filtering is the filter of a step's capture, or "".
type filtering struct {
	step   int
	filter string
}

// need has the packets that a check needs.
type need struct {
	path, what string
	some, all  []filter.Pattern // packets of which a filter must accept some, and all; nil is every packet
	judged     bool             // filters of some ports are judged
	reported   bool             // a problem is reported
}

// needOf returns the packets that a check needs.
func (l *Prover) needOf(path string, p *spec.PacketsCheck, packets Packets) *need {
	if packets.what == "" {
		packets = l.carrying(p.Work())
	}
	n := &need{path: path, what: packets.what, some: packets.patterns}
	if !packets.beside {
		n.all = n.some
	}
	return n
}

// carrying returns the packets of the transport of a workload.
func (l *Prover) carrying(workload string) Packets {
	transport := ""
	for _, step := range l.Carriers() {
		if workload != "" && step.Name == workload {
			transport = step.Transport
		}
	}
	switch transport {
	case "":
		return Packets{what: "packets"}
	case "tcp":
		return Packets{what: "packets of TCP", patterns: filter.Transport(protoTCP, 0, 0)}
	}
	return Packets{what: "datagrams", patterns: filter.Transport(protoUDP, 0, 0)}
}

// filtered checks that the filters at captured ports accept the packets that a check needs there. It reports
// a check once.
func (l *Prover) filtered(ports []*Port) {
	n := l.need
	if n == nil || n.reported {
		return
	}
	some := false                 // a port records some of the packets
	var none, partly *Port        // the first that records none of them, or only some
	known := map[string][2]bool{} // by filter: whether it accepts none, and all
	for _, p := range ports {
		if !p.Captured {
			continue
		}
		n.judged = true
		text := p.filter()
		is, seen := known[text]
		if !seen && text == "" {
			is = [2]bool{false, true}
		} else if !seen {
			is = [2]bool{filter.Covers("not ("+text+")", n.some), filter.Covers(text, n.all)}
		}
		known[text] = is
		some = some || !is[0]
		if is[0] && none == nil {
			none = p
		}
		if !is[1] && partly == nil {
			partly = p
		}
	}
	switch {
	case none != nil && !some:
		l.Never(n.path, "remove the filter, or let it accept them",
			"%s needs %s, and the filter at %s accepts none", key(n.path), n.what, l.filters(none))
	case partly != nil:
		l.Hardly(n.path, "remove the filter", "%s needs more packets than the filter at %s accepts",
			key(n.path), l.filters(partly))
	default:
		return
	}
	n.reported = true
}

// filteredAnywhere judges the filters of all ports, unless those of some ports are judged.
func (l *Prover) filteredAnywhere() {
	if !l.need.judged {
		l.filtered(l.Ports)
	}
}

// filter returns an expression for the packets that the captures at a port record, or "" if these are all
// packets.
func (p *Port) filter() string {
	var all []string
	for _, f := range p.filters {
		if f.filter == "" {
			return ""
		}
		all = append(all, "("+f.filter+")")
	}
	return strings.Join(all, " or ")
}

// filters returns the positions of the filters at a port.
func (l *Prover) filters(p *Port) string {
	var all []string
	for _, f := range p.filters {
		all = append(all, l.whereOf(f.step, "filter"))
	}
	return strings.Join(all, " or ")
}
