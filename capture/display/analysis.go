package display

import (
	"net/netip"
	"strings"

	"railbed/capture/pcapng"
	"railbed/capture/tcpanalysis"
	"railbed/internal/wire"
)

// analysisPrefix begins the names of the fields that depend on the segments before.
const analysisPrefix = "tcp.analysis."

// analysis has the state of TCP connections, by the number of the interface of the tap.
type analysis struct {
	taps map[int]*tcpanalysis.Analyzer
	// finding is about the packet's segment, which is at a place in the packet. known is false if the packet
	// has none, or its connection was left out.
	finding tcpanalysis.Finding
	at      int
	known   bool
}

// Analyse makes p keep the state of TCP connections, for the fields below tcp.analysis. It must see each
// record of a capture once, in order. Without Analyse these fields are not known.
func (p *Packet) Analyse() {
	if p.analysis == nil {
		p.analysis = &analysis{taps: map[int]*tcpanalysis.Analyzer{}}
	}
}

// Analyses reports whether the filter has a field below tcp.analysis.
func (f *Filter) Analyses() bool {
	for _, of := range f.fields {
		if of.Analyses() {
			return true
		}
	}
	return false
}

// Analyses reports whether the field is one below tcp.analysis.
func (f *Field) Analyses() bool { return strings.HasPrefix(f.Name, analysisPrefix) }

// AddSegment adds the packet's segment to the state of its connection, after Analyse. Records of packets that
// do not pass their tap are left out.
func (p *Packet) AddSegment() {
	a := p.analysis
	if a == nil {
		return
	}
	a.known = false
	if p.annotated && p.Raw.Flags&pcapng.DirectionMask == 0 {
		return
	}
	var source, destination netip.Addr
	for _, l := range p.layers {
		switch l.Header {
		case IPv4Header:
			source, destination = p.address(l.At+12, 4), p.address(l.At+16, 4)
		case IPv6Header:
			source, destination = p.address(l.At+8, 16), p.address(l.At+24, 16)
		case ICMPHeader, ICMPv6Header: // it quotes a segment
			return
		case TCPHeader:
			tap := a.taps[p.Raw.Interface]
			if tap == nil {
				tap = &tcpanalysis.Analyzer{}
				a.taps[p.Raw.Interface] = tap
			}
			h := wire.TCP(p.captured(l.At, l.End))
			h = h[:min(len(h), max(wire.TCPMinLen, h.HeaderLength()))]
			full := tap.Full()
			a.finding = tap.Add(tcpanalysis.Segment{Time: p.Raw.Time, Source: source,
				Destination: destination, Header: h, Payload: max(l.End-l.At-h.HeaderLength(), 0)})
			a.at, a.known = l.At, !full && !tap.Full()
			return
		}
	}
}

func (p *Packet) address(at, size int) netip.Addr {
	address, _ := netip.AddrFromSlice(p.Raw.Data[at : at+size])
	return address
}

// found returns the analysis of the segment in a layer, and whether it is known.
func (p *Packet) found(l Layer) (f tcpanalysis.Finding, known bool) {
	if !p.recorded(p.analysis != nil && p.analysis.known && p.analysis.at == l.At) {
		return f, false
	}
	return p.analysis.finding, true
}

// analysed are the fields below tcp.analysis.
func analysed() (all []computedField) {
	for i, name := range tcpanalysis.Names {
		flag := tcpanalysis.Flags(1) << i
		all = append(all, computedField{analysisPrefix + name, Boolean, TCPHeader,
			func(p *Packet, l Layer) (value, bool) {
				f, known := p.found(l)
				return number(1), known && f.Flags&flag != 0
			}})
	}
	return append(all, computedField{analysisPrefix + "duplicate_ack_num", Unsigned, TCPHeader,
		func(p *Packet, l Layer) (value, bool) {
			f, known := p.found(l)
			return number(f.Duplicate), known && f.Flags&tcpanalysis.DuplicateAck != 0
		}})
}
