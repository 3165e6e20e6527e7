package evidence

import (
	"encoding/binary"
	"net/netip"

	"railbed/internal/wire"
)

// DatagramKey identifies an IP packet by the fields that its fragments share (RFC 791, 3.2; RFC 8200, 4.5).
type DatagramKey struct {
	Addresses
	ID    uint32
	Proto uint8
}

// Piece is the part of an IP packet's payload that a packet carries: the bytes From up to To. Last reports
// whether it has the end of the payload. Src and Dst are the ports of UDP, which only the first piece has.
type Piece struct {
	Key      DatagramKey
	From, To int
	Last     bool
	Src, Dst uint16
}

const (
	fragmentLen     = 8 // of IPv6's fragment header
	moreFragmentsV6 = 1
)

// Piece returns the part of an IP packet that the packet carries, if the capture has its header.
func (p *Packet) Piece() (at Piece, known bool) {
	at.Key.Addresses, at.Key.Proto = p.Addresses, p.Proto
	header, _ := p.network()
	payload := 0
	switch {
	case p.IP == 4 && len(header) >= wire.IPv4MinLen:
		h := wire.IPv4(header)
		at.Key.ID = uint32(h.ID())
		at.From, at.Last = h.FragmentOffset(), !h.MoreFragments()
		payload = h.HeaderLength()
		at.To = at.From + int(h.TotalLength()) - payload
	case p.IP == 6 && p.Fragment && len(header) >= wire.IPv6Len+fragmentLen:
		f := header[wire.IPv6Len:]
		flags := binary.BigEndian.Uint16(f[2:])
		at.Key.ID = binary.BigEndian.Uint32(f[4:])
		at.From, at.Last = int(flags&^7), flags&moreFragmentsV6 == 0
		payload = wire.IPv6Len + fragmentLen
		at.To = at.From + int(wire.IPv6(header).PayloadLength()) - fragmentLen
	default:
		return at, false
	}
	if at.From == 0 && p.Proto == ProtoUDP && len(header) >= payload+wire.UDPLen {
		h := wire.UDP(header[payload:])
		at.Src, at.Dst = h.SrcPort(), h.DstPort()
	}
	return at, at.To > at.From
}

// Flow returns the addresses and ports of the datagram whose first piece a packet carries.
func (at *Piece) Flow(p *Packet) FlowAddr {
	return FlowAddr{netip.AddrPortFrom(p.Flow.Src.Addr(), at.Src),
		netip.AddrPortFrom(p.Flow.Dst.Addr(), at.Dst)}
}

// Splittable reports whether a router may fragment the packet for a link of an MTU: it is of IPv4, longer
// than the MTU, and does not forbid it.
func (p *Packet) Splittable(mtu int) bool {
	header, length := p.network()
	return p.IP == 4 && length > mtu && len(header) >= wire.IPv4MinLen && !wire.IPv4(header).DontFragment()
}

// SplitMTU returns the least MTU of the plan's links if routers of the kernel fragment longer packets. Soft
// switches and bridges drop them. It returns 0 if nothing fragments.
func (c *Capture) SplitMTU() (least int) {
	if c.Plan == nil {
		return 0
	}
	routes := false
	for i := range c.Plan.Switches {
		sw := &c.Plan.Switches[i]
		routes = routes || sw.Soft == nil && !sw.Bridged()
	}
	if !routes {
		return 0
	}
	for _, l := range c.Plan.Links {
		if least == 0 || l.MTU < least {
			least = l.MTU
		}
	}
	return least
}
