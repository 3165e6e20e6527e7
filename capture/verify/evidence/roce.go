package evidence

import (
	"railbed/capture/layers"
	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// RoCE is the RoCEv2 packet in a captured packet. Its lengths agree, but its ICRC may be wrong.
type RoCE struct {
	infiniband.Fields
	// Payload is the number of message bytes that the packet carries, regardless of the captured
	// length.
	Payload int
	// Bytes begin with the BTH. They end where the capture cut the packet off, and are valid until
	// the check returns.
	Bytes infiniband.Packet

	headers []byte // of IP and UDP, nil where the ICRC does not cover them
	Whole   bool
	icrc    layers.ICRCState
}

// RoCEFault is the reason why a packet to the port of RoCEv2 has no readable RoCEv2 packet.
type RoCEFault uint8

// Faults of packets of RoCEv2.
const (
	RoCESound   RoCEFault = iota
	RoCEDamaged           // its lengths do not agree, or its opcode is unknown
	RoCECut               // the capture, or a fragment, holds too little of it
)

// ICRC compares the packet's ICRC with the correct one, and remembers the result. The result is
// unknown where the capture cut the packet off, or IP has options.
func (r *RoCE) ICRC() layers.ICRCState {
	if r.icrc == layers.ICRCUnknown && r.Whole && r.headers != nil {
		r.icrc = layers.ICRCWrong
		if r.Bytes.ICRCValid(r.headers) {
			r.icrc = layers.ICRCRight
		}
	}
	return r.icrc
}

// transport reads a RoCEv2 packet. captured is the captured part of the UDP payload, and length the
// payload's length on the wire.
func (d *decoder) transport(captured []byte, length int) {
	p := &d.packet
	d.roce = RoCE{}
	if p.RoCEFault = d.roce.read(captured[:min(len(captured), length)], length); p.RoCEFault != RoCESound {
		return
	}
	p.RoCE = &d.roce
	switch b, _ := p.network(); {
	case p.IP == 4 && wire.IPv4(b).HeaderLength() == wire.IPv4MinLen:
		d.roce.headers = b[:infiniband.HeadersIPv4]
	case p.IP == 6 && wire.IPv6(b).NextHeader() == ProtoUDP:
		d.roce.headers = b[:infiniband.HeadersIPv6]
	}
}

func (r *RoCE) read(captured []byte, length int) RoCEFault {
	b := infiniband.Packet(captured)
	if !b.Begins(length) {
		if len(captured) < length &&
			(len(captured) < infiniband.BTHLen || len(captured) < b.Opcode().HeaderLen()) {
			return RoCECut
		}
		return RoCEDamaged
	}
	r.Fields, r.Bytes, r.Whole, r.Payload = b.Fields(), b, len(captured) == length, b.PayloadLen(length)
	return RoCESound
}
