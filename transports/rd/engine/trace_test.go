package engine

import (
	"flag"

	"railbed/internal/clock"
	"railbed/internal/wire"
)

var traceFrom = flag.Duration("show", 0, "print the packets from this moment on")

// trace prints a packet.
func (w *world) trace(from, to *testNode, b wire.RD) {
	if *traceFrom == 0 || w.now < clock.Time(*traceFrom) {
		return
	}
	base := b.Base()
	if b.Sealed() {
		w.Logf("%d %v -> %v %v psn %d, sealed %+v", w.now, from, to, base.Type, base.PSN, b.Security())
		return
	}
	switch base.Type {
	case wire.RDData:
		f := b.Data()
		w.Logf("%d %v -> %v %v %#x psn %d message %d position %d+%d of %d", w.now, from, to, base.Type,
			base.Flags, base.PSN, f.Message, f.Position, base.Length, f.Total)
	case wire.RDAck:
		w.Logf("%d %v -> %v %v psn %d %+v", w.now, from, to, base.Type, base.PSN, b.Ack())
	case wire.RDNack:
		w.Logf("%d %v -> %v %v psn %d %+v", w.now, from, to, base.Type, base.PSN, b.Nack())
	case wire.RDSkip:
		w.Logf("%d %v -> %v %v psn %d %+v", w.now, from, to, base.Type, base.PSN, b.Skip())
	default:
		w.Logf("%d %v -> %v %v psn %d", w.now, from, to, base.Type, base.PSN)
	}
}
