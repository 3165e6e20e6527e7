package forward

import (
	"slices"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/wire"
)

// allNodes is ff02::1, and its group address on the link.
var (
	allNodes      = [16]byte{0: 0xff, 1: 0x02, 15: 1}
	allNodesGroup = wire.MAC{0x33, 0x33, 0, 0, 0, 1}
)

// arp answers a request for an IPv4 address of the router. Like Linux it answers for each of its
// addresses at every port.
func (r *router) arp(one *packet.Packet, ingress int) Decision {
	request := wire.ARP(one.Data[one.Headers.L3:])
	if one.Headers.Verdict != wire.WellFormed || !request.Valid() {
		return Decision{Reason: Malformed}
	}
	asker := request.SenderMAC()
	target := [16]byte{10: 0xff, 11: 0xff}
	ip := request.TargetIP()
	copy(target[12:], ip[:])
	e := r.lookup(&target, true)
	if request.Operation() != wire.ARPRequest || asker.IsMulticast() || e == nil || e.kind != local {
		return Decision{Reason: Consumed}
	}
	reply := r.get(one, wire.EthernetLen+wire.ARPLen)
	if reply == nil {
		return Decision{Reason: Consumed}
	}
	mac := r.ports[ingress].mac
	wire.Ethernet(reply.Data).Encode(&wire.EthernetFields{Dst: asker, Src: mac, EtherType: wire.EtherTypeARP})
	wire.ARP(reply.Data[wire.EthernetLen:]).Encode(&wire.ARPFields{
		Operation: wire.ARPReply,
		SenderMAC: mac,
		SenderIP:  ip,
		TargetMAC: asker,
		TargetIP:  request.SenderIP(),
	})
	reply.Parse()
	return Decision{Action: Reply, Reason: Consumed, Port: ingress, Reply: reply}
}

// onLink handles a packet that may not leave its link.
func (r *router) onLink(one *packet.Packet, ingress int) Decision {
	h := &one.Headers
	if h.Has(wire.IsIPv6) && h.Protocol == wire.ProtocolICMPv6 && h.Verdict == wire.WellFormed &&
		!h.Has(wire.Fragment) {
		message := wire.ICMPv6(one.Data[h.L4:h.End])
		if message.Type() == wire.ICMPv6NeighborSolicitation && message.ChecksumValid(h.Src, h.Dst) {
			return r.solicited(one, ingress)
		}
	}
	return Decision{Reason: Consumed}
}

// solicited answers a neighbour solicitation for an address of the port: RFC 4861, 7.1.1 and 7.2.4.
// Unlike ARP it only answers for the port's own addresses, as in Linux. The message's checksum was
// checked.
func (r *router) solicited(one *packet.Packet, ingress int) Decision {
	h := &one.Headers
	request := wire.ICMPv6(one.Data[h.L4:h.End])
	if !request.Valid() || h.TTL != 255 || request.Code() != 0 {
		return Decision{Reason: Malformed}
	}
	target := request.Target()
	if !slices.Contains(r.ports[ingress].v6, target) {
		return Decision{Reason: Consumed}
	}
	// A sender without an address is checking its new address for duplicates, so the answer goes to
	// all nodes.
	flags, dst, station := uint8(wire.NeighborRouter|wire.NeighborOverride), allNodes, allNodesGroup
	if h.Src != [16]byte{} {
		flags |= wire.NeighborSolicited
		dst = h.Src
		var told bool
		if station, told = request.LinkAddress(wire.SourceLinkAddress); !told {
			station = wire.Ethernet(one.Data).Src()
		}
		if station.IsMulticast() {
			return Decision{Reason: Malformed}
		}
	}
	const header = wire.EthernetLen + wire.IPv6Len
	reply := r.get(one, header+wire.NeighborLen+wire.LinkAddressLen)
	if reply == nil {
		return Decision{Reason: Consumed}
	}
	mac := r.ports[ingress].mac
	wire.ICMPv6(reply.Data[header:]).EncodeNeighbor(&wire.NeighborFields{
		Type:   wire.ICMPv6NeighborAdvertisement,
		Flags:  flags,
		Target: target,
		Link:   mac,
		Src:    target,
		Dst:    dst,
	})
	r.header6(reply, wire.ProtocolICMPv6, target, dst, 0)
	wire.IPv6(reply.Data[wire.EthernetLen:]).SetHopLimit(255)
	wire.Ethernet(reply.Data).Encode(
		&wire.EthernetFields{Dst: station, Src: mac, EtherType: wire.EtherTypeIPv6})
	reply.Parse()
	return Decision{Action: Reply, Reason: Consumed, Port: ingress, Reply: reply}
}
