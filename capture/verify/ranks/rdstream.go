package ranks

import (
	"railbed/capture/verify/evidence"
	"railbed/internal/wire"
)

// rdKey names the packets from one engine to another. It holds the life and engine of the sender,
// and the address, engine and tag of the receiver. The tag is part of the key because a restarted
// receiver is a new receiver.
type rdKey struct {
	life                uint64
	to                  [16]byte
	tag                 uint32
	source, destination uint8
}

func rdKeyOf(p *evidence.Packet) rdKey {
	d := p.RD
	return rdKey{life: d.Life, to: p.Addresses.Dst, tag: d.Tag, source: d.Source, destination: d.Destination}
}

// maxRDSequences bounds the pairs of engines that a check follows.
const maxRDSequences = 1 << 15

// rdStream tells fresh payload from one engine to another apart from repeated payload. It uses the
// packets' numbers, as stream uses byte numbers for TCP.
type rdStream struct {
	seen, skipped   evidence.Serials
	fresh, repeated uint64 // bytes of payload
	empty           uint64 // fresh packets without payload
	left            uint64 // of the fresh bytes, those that a skip gave up
	// again counts fresh bytes that were seen only in a retransmission.
	again uint64
}

// data adds a packet that leaves its sender.
func (s *rdStream) data(d *evidence.RD) {
	if s.seen.Add(d.PSN) {
		s.repeated += uint64(d.Length)
		return
	}
	s.fresh += uint64(d.Length)
	if d.Length == 0 {
		s.empty++
	}
	if d.Flags&wire.RDRepeat != 0 {
		s.again += uint64(d.Length)
	}
}

// skip adds a skip that leaves its sender. If the skip gives up a part of a message that may have
// holes, its bytes count as given up, once.
func (s *rdStream) skip(d *evidence.RD) {
	if f := d.Bytes.Skip(); d.Flags&wire.RDDroppable != 0 && f.Count == 1 && !s.skipped.Add(d.PSN) {
		s.left += uint64(f.Bytes)
	}
}
