package roce

import (
	"fmt"
	"net/netip"

	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// incoming is memory for the packets that one call receives.
type incoming struct {
	list    []arrival
	headers [infiniband.HeadersIPv6]byte // of a packet that is cut here
}

// arrival is a received packet whose ICRC is right.
type arrival struct {
	from   netip.Addr
	packet infiniband.Packet
	marked bool // with congestion experienced
}

// receive reads the packets that are ready. The list and its packets are valid until the next call.
func (s *socket) receive() ([]arrival, error) {
	s.ring.free()
	s.in.list = s.in.list[:0]
	if s.full = false; s.nic != nil {
		if err := s.takeBypassing(); err != nil {
			return nil, fmt.Errorf("receive: %w", err)
		}
	}
	for s.ring.taken < batch {
		data, whole, err := s.ring.take()
		if err != nil {
			return nil, fmt.Errorf("receive: %w", err)
		}
		if data == nil {
			break
		}
		s.parse(data, whole)
	}
	return s.in.list, nil
}

// parse extracts the packet from received data, or several packets if whole: then the kernel has
// not cut the data, and it was on no wire yet.
func (s *socket) parse(data []byte, whole bool) {
	n := s.headersLen()
	if len(data) < n {
		return
	}
	var a arrival
	length := 0
	if s.addr.Is4() {
		h := wire.IPv4(data)
		// RoCE has no packets with options, and no fragments.
		if !h.Valid() || h.HeaderLength() != wire.IPv4MinLen || !h.ChecksumValid() {
			return
		}
		length = int(h.TotalLength())
		a.from, a.marked = netip.AddrFrom4(h.Src()), h.ECN() == wire.CE
	} else {
		h := wire.IPv6(data)
		if !h.Valid() {
			return
		}
		length = wire.IPv6Len + int(h.PayloadLength())
		a.from, a.marked = netip.AddrFrom16(h.Src()), h.ECN() == wire.CE
	}
	if length < n || n-wire.UDPLen+int(wire.UDP(data[n-wire.UDPLen:]).Length()) != length {
		return
	}
	headers, packet := data[:n], infiniband.Packet(data[n:length])
	one := len(data) <= s.out.size && packet.Valid()
	switch {
	case one && packet.ICRCValid(headers):
		s.arrived(a, packet)
	case whole && s.cut(a, headers, packet):
	case one, len(data) > s.out.size:
		s.badICRC.Add(1)
	}
}

// arrived adds a packet with a right ICRC to the list. It drops packets of another partition (IBTA
// 10.9.1.1; this end is a full member).
func (s *socket) arrived(a arrival, p infiniband.Packet) {
	if (p.BTH().PKey()^infiniband.PKey)&^fullMember == 0 {
		a.packet = p
		s.in.list = append(s.in.list, a)
	}
}

// cut splits uncut data into packets, and reports whether it is such data. The first packet has a
// path MTU of payload, as others of its message follow. Its ICRC shows which MTU.
func (s *socket) cut(a arrival, headers []byte, all infiniband.Packet) bool {
	if len(all) < infiniband.BTHLen || !all.Opcode().HasPayload() || all.Opcode().Ends() {
		return false
	}
	for code := uint8(5); code > 0; code-- {
		size := infiniband.Len(all.Opcode(), infiniband.MTU(code))
		if size >= len(all) || !all[:size].Valid() || !all[:size].ICRCValid(s.headersOf(headers, 0, size)) {
			continue
		}
		s.arrived(a, all[:size:size])
		for i := 1; i*size < len(all); i++ {
			p := all[i*size : min((i+1)*size, len(all)) : min((i+1)*size, len(all))]
			switch {
			case !p.Valid():
			case p.ICRCValid(s.headersOf(headers, i, len(p))):
				s.arrived(a, p)
			default:
				s.badICRC.Add(1)
			}
		}
		return true
	}
	return false
}

// headersOf returns the headers that the kernel gives to a packet of length bytes that it cuts, as
// far as the ICRC covers them: the identification counts up.
func (s *socket) headersOf(whole []byte, index, length int) []byte {
	h, id := s.in.headers[:len(whole)], uint16(0)
	if s.addr.Is4() {
		id = wire.IPv4(whole).ID() + uint16(index)
	}
	s.another(h, whole, id, length)
	return h
}
