package softswitch

import (
	"railbed/fabric/clock"
	"railbed/fabric/softswitch/draw"
	"railbed/fabric/softswitch/packet"
)

// numbers counts what a node sends.
type numbers struct{ sent uint64 }

// Assign gives a packet its flow and its ordinal.
func (n *numbers) Assign(now clock.Time, one *packet.Packet) {
	n.sent++
	h := &one.Headers
	one.Flow = draw.Pair(draw.Pair(fold(h.Src), fold(h.Dst)), uint64(h.Protocol)<<16|uint64(h.DstPort))
	one.Ordinal = n.sent
}

func fold(a [16]byte) (sum uint64) {
	for i, b := range a {
		sum ^= uint64(b) << (8 * (i % 8))
	}
	return sum
}
