package forward

import (
	"railbed/fabric/softswitch/draw"
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
)

// failure is the reason why a packet is not forwarded, and the ICMP error for its sender.
type failure struct {
	reason       Reason
	type4, code4 uint8
	type6, code6 uint8
}

// The codes are the same as Linux's. ICMPv4 has no separate code for "no neighbour has the
// address", so it uses the code for an unreachable host.
var (
	noRoute = failure{NoRoute, wire.ICMPv4Unreachable, wire.ICMPv4NetUnreachable, wire.ICMPv6Unreachable,
		wire.ICMPv6NoRoute}
	noNeighbor = failure{NoRoute, wire.ICMPv4Unreachable, wire.ICMPv4HostUnreachable, wire.ICMPv6Unreachable,
		wire.ICMPv6AddressUnreachable}
	ttlExceeded = failure{TTLExceeded, wire.ICMPv4TimeExceeded, wire.ICMPv4TTLExceeded,
		wire.ICMPv6TimeExceeded, wire.ICMPv6HopLimitExceeded}
	tooBig = failure{TooBig, wire.ICMPv4Unreachable, wire.ICMPv4FragNeeded, wire.ICMPv6PacketTooBig, 0}
	noPort = failure{Consumed, wire.ICMPv4Unreachable, wire.ICMPv4PortUnreachable,
		wire.ICMPv6Unreachable, wire.ICMPv6PortUnreachable}
	noProtocol = failure{Consumed, wire.ICMPv4Unreachable, protocolUnreachable4, parameterProblem6,
		unrecognizedNextHeader6}
)

// Codes that no other package uses: RFC 792, and RFC 4443, 3.4.
const (
	protocolUnreachable4    = 2
	parameterProblem6       = 4
	unrecognizedNextHeader6 = 1
	nextHeaderOffset        = 6 // in the IPv6 header
)

const (
	// ttl is Linux's default, which nodes also have (RFC 1700's successor at IANA).
	ttl = 64
	// quoted4 is the length of the part of the causing packet that an ICMPv4 error contains. It is
	// as much as fits into 576 bytes (RFC 1812, 4.3.2.3).
	//
	// For ICMPv6, quoted6 is as much as fits into the smallest MTU of IPv6, 1,280 bytes (RFC 4443,
	// 2.4(c)).
	quoted4 = 576 - wire.IPv4MinLen - wire.ICMPLen
	quoted6 = 1280 - wire.IPv6Len - wire.ICMPLen
	// networkControl is the DSCP of ICMPv4 errors, precedence 6: RFC 1812, 4.3.2.5. Linux leaves
	// the DSCP of ICMPv6 errors at 0, and so do we.
	networkControl = 48
	// redirect6 is the only ICMPv6 message that is no error and about which no error is sent: RFC
	// 4443, 2.4(e.2).
	redirect6 = 137
)

// fail drops a packet and sends an error to its sender if that is allowed. Rest is the 4 bytes
// after the message's checksum.
func (r *router) fail(now clock.Time, one *packet.Packet, why failure, rest int) Decision {
	refused := Decision{Reason: why.reason}
	h := &one.Headers
	if !mayComplain(one) {
		return refused
	}
	v4 := h.Has(wire.IsIPv4)
	back := r.lookup(&h.Src, v4).usable()
	if back == nil || back.kind != routed || !r.answers.take(now, 1) {
		return refused
	}
	src := back.src
	if why.reason == Consumed { // the packet was sent to this address, so the answer comes from it
		src = h.Dst
	}
	quote := one.Data[h.L3:h.End]
	message := wire.ICMPFields{Type: why.type4, Code: why.code4, Rest: uint32(rest)}
	header := wire.EthernetLen + wire.IPv4MinLen
	if v4 {
		quote = quote[:min(len(quote), quoted4)]
	} else {
		quote = quote[:min(len(quote), quoted6)]
		message.Type, message.Code = why.type6, why.code6
		header = wire.EthernetLen + wire.IPv6Len
	}
	reply := r.get(one, header+wire.ICMPLen+len(quote))
	if reply == nil {
		return refused
	}
	copy(reply.Data[header+wire.ICMPLen:], quote)
	if v4 {
		wire.ICMPv4(reply.Data[header:]).Encode(&message)
		r.header4(reply, wire.ProtocolICMPv4, src, h.Src, networkControl)
	} else {
		wire.ICMPv6(reply.Data[header:]).Encode(&message, src, h.Src)
		r.header6(reply, wire.ProtocolICMPv6, src, h.Src, 0)
	}
	return r.answer(now, reply, back, why.reason)
}

// mayComplain reports whether an error about the packet may be sent: RFC 1812, 4.3.2.7, and RFC
// 4443, 2.4(e). Packets to or from groups were already excluded.
func mayComplain(one *packet.Packet) bool {
	h := &one.Headers
	if h.Has(wire.LaterFragment) || h.Verdict == wire.BadExtension {
		return false // the packet after the extension headers might be an error
	}
	isICMP := h.Has(wire.IsIPv4) && h.Protocol == wire.ProtocolICMPv4 ||
		h.Has(wire.IsIPv6) && h.Protocol == wire.ProtocolICMPv6
	if !isICMP {
		return true
	}
	if h.Verdict == wire.ShortTransport {
		return false
	}
	if h.Has(wire.IsIPv4) {
		return !wire.ICMPv4(one.Data[h.L4:h.End]).IsError()
	}
	message := wire.ICMPv6(one.Data[h.L4:h.End])
	return !message.IsError() && message.Type() != redirect6
}

// deliver handles a packet to one of the router's own addresses.
func (r *router) deliver(now clock.Time, one *packet.Packet, ingress int) Decision {
	h := &one.Headers
	switch {
	case h.Verdict != wire.WellFormed:
		return Decision{Reason: Malformed}
	case h.Has(wire.Fragment):
		return Decision{Reason: Consumed} // there is no reassembly
	case h.Protocol == wire.ProtocolUDP:
		if !rightUDP(one) {
			return Decision{Reason: Malformed}
		}
		return r.fail(now, one, noPort, 0)
	case h.Has(wire.IsIPv4) && h.Protocol == wire.ProtocolICMPv4:
		return r.icmp4(now, one)
	case h.Has(wire.IsIPv6) && h.Protocol == wire.ProtocolICMPv6:
		return r.icmp6(now, one, ingress)
	case h.Protocol == wire.ProtocolTCP:
		return r.reset(now, one)
	case h.Has(wire.IsIPv4):
		return r.fail(now, one, noProtocol, 0)
	case !h.Has(wire.HasOptions) && h.Protocol != wire.ProtocolNone:
		return r.fail(now, one, noProtocol, nextHeaderOffset)
	}
	return Decision{Reason: Consumed}
}

// rightUDP reports whether a datagram's checksum is right. It may be missing in IPv4, but not in
// IPv6 (RFC 8200, 8.1).
func rightUDP(one *packet.Packet) bool {
	h := &one.Headers
	datagram := wire.UDP(one.Data[h.L4:h.End])
	if h.Has(wire.IsIPv4) {
		return datagram.Checksum() == 0 ||
			datagram.ChecksumValid(wire.PseudoIPv4([4]byte(h.Src[12:]), [4]byte(h.Dst[12:]), wire.ProtocolUDP,
				int(datagram.Length())))
	}
	return datagram.Checksum() != 0 &&
		datagram.ChecksumValid(wire.PseudoIPv6(h.Src, h.Dst, wire.ProtocolUDP, int(datagram.Length())))
}

func (r *router) icmp4(now clock.Time, one *packet.Packet) Decision {
	h := &one.Headers
	request := wire.ICMPv4(one.Data[h.L4:h.End])
	if !request.ChecksumValid() {
		return Decision{Reason: Malformed}
	}
	back := r.lookup(&h.Src, true).usable()
	if request.Type() != wire.ICMPv4Echo || request.Code() != 0 || back == nil || back.kind != routed {
		return Decision{Reason: Consumed}
	}
	const header = wire.EthernetLen + wire.IPv4MinLen
	reply := r.get(one, header+len(request))
	if reply == nil {
		return Decision{Reason: Consumed}
	}
	copy(reply.Data[header:], request)
	wire.ICMPv4(reply.Data[header:]).MakeReply()
	r.header4(reply, wire.ProtocolICMPv4, h.Dst, h.Src, h.DSCP)
	return r.answer(now, reply, back, Consumed)
}

func (r *router) icmp6(now clock.Time, one *packet.Packet, ingress int) Decision {
	h := &one.Headers
	request := wire.ICMPv6(one.Data[h.L4:h.End])
	if !request.ChecksumValid(h.Src, h.Dst) {
		return Decision{Reason: Malformed}
	}
	if request.Type() == wire.ICMPv6NeighborSolicitation {
		return r.solicited(one, ingress)
	}
	back := r.lookup(&h.Src, false).usable()
	if request.Type() != wire.ICMPv6Echo || request.Code() != 0 || back == nil || back.kind != routed {
		return Decision{Reason: Consumed}
	}
	const header = wire.EthernetLen + wire.IPv6Len
	reply := r.get(one, header+len(request))
	if reply == nil {
		return Decision{Reason: Consumed}
	}
	copy(reply.Data[header:], request)
	wire.ICMPv6(reply.Data[header:]).Encode(&wire.ICMPFields{
		Type: wire.ICMPv6EchoReply, Rest: wire.EchoRest(request.ID(), request.Seq()),
	}, h.Dst, h.Src)
	r.header6(reply, wire.ProtocolICMPv6, h.Dst, h.Src, h.DSCP)
	return r.answer(now, reply, back, Consumed)
}

// get returns a frame for an answer to a packet, or nil.
func (r *router) get(to *packet.Packet, length int) *packet.Packet {
	if length > r.pool.Cell() {
		return nil
	}
	reply := r.pool.Get()
	if reply == nil {
		return nil
	}
	reply.Data = reply.Data[:length]
	reply.Length = length
	reply.Flow, reply.Ordinal = draw.Pair(r.replySeed, to.Flow), to.Ordinal
	return reply
}

// header4 writes the headers before an IPv4 payload that is already there. As in Linux, resets have
// the don't-fragment bit.
func (r *router) header4(reply *packet.Packet, protocol uint8, src, dst [16]byte, dscp uint8) {
	wire.Ethernet(reply.Data).SetEtherType(wire.EtherTypeIPv4)
	r.ipID++
	wire.IPv4(reply.Data[wire.EthernetLen:]).Encode(&wire.IPv4Fields{
		DSCP: dscp, TotalLength: uint16(len(reply.Data) - wire.EthernetLen), ID: r.ipID,
		TTL:          ttl,
		Protocol:     protocol,
		DontFragment: protocol == wire.ProtocolTCP,
		Src:          [4]byte(src[12:]),
		Dst:          [4]byte(dst[12:]),
	})
}

// header6 is header4 for IPv6.
func (r *router) header6(reply *packet.Packet, protocol uint8, src, dst [16]byte, dscp uint8) {
	wire.Ethernet(reply.Data).SetEtherType(wire.EtherTypeIPv6)
	wire.IPv6(reply.Data[wire.EthernetLen:]).Encode(&wire.IPv6Fields{
		DSCP: dscp, PayloadLength: uint16(len(reply.Data) - wire.EthernetLen - wire.IPv6Len),
		NextHeader: protocol, HopLimit: ttl, Src: src, Dst: dst,
	})
}

// answer sends a reply on its way.
func (r *router) answer(now clock.Time, reply *packet.Packet, back *entry, why Reason) Decision {
	reply.Parse()
	to := r.balance.choose(now, back.group, reply)
	if len(reply.Data)-wire.EthernetLen > r.ports[to.port].mtu {
		r.pool.Put(reply)
		return Decision{Reason: TooBig}
	}
	r.address(reply, to)
	return Decision{Action: Reply, Reason: why, Port: to.port, Reply: reply}
}
