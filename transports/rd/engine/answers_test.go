package engine

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"railbed/internal/wire"
	"railbed/transports"
)

// TestAnswers checks the answers of section 5.1 to hosts that are not peers: each packet has one
// answer, or none, and the answer goes to the packet's source.
func TestAnswers(t *testing.T) {
	const elsewhere = "10.99.0.7"
	reject := func(why wire.RDRejection) string { return fmt.Sprintf("REJECT %v", why) }
	version := func(b wire.RD, n byte) wire.RD {
		b[0] = 0x80 | n<<4 | b[0]&0xF // and its check is wrong now, as it may be of another version
		return b
	}
	for name, c := range map[string]struct {
		packet func(x *attackCase) wire.RD
		want   string
	}{
		"nothing":     {func(*attackCase) wire.RD { return nil }, ""},
		"half a base": {func(x *attackCase) wire.RD { return x.probe(nil)[:23] }, ""},
		"telemetry": {func(x *attackCase) wire.RD {
			b := x.probe(nil)
			b[0] &= 0x7F
			return b
		}, ""},
		"version 2": {func(x *attackCase) wire.RD {
			return version(x.probe(nil), 2)
		}, reject(wire.RDRejectVersion)},
		"version 0": {func(x *attackCase) wire.RD {
			return version(x.probe(nil), 0)
		}, reject(wire.RDRejectVersion)},
		"version 7, a base": {func(x *attackCase) wire.RD {
			return version(x.probe(nil), 7)[:wire.RDBaseLen]
		}, reject(wire.RDRejectVersion)},
		"version 2, a REJECT": {func(x *attackCase) wire.RD { return version(x.reject(), 2) }, ""},
		"version 2, a CLOSE":  {func(x *attackCase) wire.RD { return version(x.goodbye(nil), 2) }, ""},
		"a wrong check":       {func(x *attackCase) wire.RD { b := x.probe(nil); b[22]++; return b }, ""},
		"a type that is none": {func(x *attackCase) wire.RD { b := x.probe(nil); b[0] |= 0xF; return b }, ""},
		// its check reaches too far
		"encrypted": {func(x *attackCase) wire.RD {
			return x.probe(func(b *wire.RDBase) { b.Flags = wire.RDEncrypted })
		}, ""},
		"encrypted, its check right": {func(x *attackCase) wire.RD {
			b := append(x.probe(nil)[:wire.RDBaseLen:wire.RDBaseLen], make([]byte, 40)...)
			b.EncodeSecurity(&wire.RDSecurity{})
			return b
		}, reject(wire.RDRejectSecurity)},
		"another life of ours": {func(x *attackCase) wire.RD {
			return x.probe(func(b *wire.RDBase) { b.Tag++ })
		}, reject(wire.RDRejectLife)},
		"for another engine": {func(x *attackCase) wire.RD {
			return x.probe(func(b *wire.RDBase) { b.Destination++ })
		}, reject(wire.RDRejectLife)},
		"a stranger": {func(x *attackCase) wire.RD {
			return x.probe(func(b *wire.RDBase) { b.Life++ })
		}, reject(wire.RDRejectStranger)},
		"a stranger's CLOSE": {func(x *attackCase) wire.RD {
			return x.goodbye(func(b *wire.RDBase) { b.Life++ })
		}, ""},
		"an engine it has not": {func(x *attackCase) wire.RD {
			return x.probe(func(b *wire.RDBase) { b.Source++ })
		}, ""},
		"a REJECT": {func(x *attackCase) wire.RD { return x.reject() }, ""},
		"one who has failed": {func(x *attackCase) wire.RD {
			x.b.Fail(0, transports.ErrPeerFailed)
			return x.probe(nil)
		}, "CLOSE"},
		"CLOSE of who failed": {func(x *attackCase) wire.RD {
			x.b.Fail(0, transports.ErrPeerFailed)
			return x.goodbye(nil)
		}, ""},
		"a PROBE": {func(x *attackCase) wire.RD { return x.probe(nil) }, "ACK"},
		"a PROBE, unused flags": {func(x *attackCase) wire.RD {
			return x.probe(func(b *wire.RDBase) { b.Flags = 7 })
		}, "ACK"},
	} {
		w := newWorld(t, 1)
		x := &attackCase{}
		x.a, x.b = w.pair()
		packet := c.packet(x)
		x.b.Receive(x.b.clock(), Arrival{Data: bytes.Clone(packet), From: netip.MustParseAddr(elsewhere)})
		got := ""
		var p Packet
		for x.b.Next(x.b.clock(), &p) {
			answer := wire.RD(p.Header)
			base := answer.Base()
			if got += answer.Type().String(); !answer.Valid() || !p.Control || base.Life != x.b.life {
				t.Errorf("%s: answered with %x", name, p.Header)
			}
			asked := wire.RD(packet).Base()
			switch base.Type {
			case wire.RDReject:
				f := answer.Reject()
				got += " " + f.Reason.String()
				if p.Peer != -1 || p.To != netip.MustParseAddr(elsewhere) || p.Port != asked.Source ||
					base.Destination != asked.Source ||
					f.Least != 1 || f.Most != 1 || f.Meant != asked.Tag || f.To != asked.Life ||
					base.PSN != 0 || base.Tag != uint32(asked.Life) {
					t.Errorf("%s: answered with %+v, %+v to %v, %d", name, base, f, p.To, p.Port)
				}
			case wire.RDClose:
				if base.PSN != uint32(firstPSN(x.a.life)) || p.Peer != 0 {
					t.Errorf("%s: answered with %+v", name, base)
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: answered with %q, want %q", name, got, c.want)
		}
	}
}

// probe is one of a's for b, changed.
func (x *attackCase) probe(change func(*wire.RDBase)) wire.RD {
	base := x.base(x.a, x.b, uint32(firstPSN(x.a.life)))
	if change != nil {
		change(&base)
	}
	b := make(wire.RD, wire.RDProbeLen)
	b.EncodeProbe(base, 5)
	return b
}

// goodbye is a CLOSE.
func (x *attackCase) goodbye(change func(*wire.RDBase)) wire.RD {
	base := x.base(x.a, x.b, uint32(firstPSN(x.b.life)))
	if change != nil {
		change(&base)
	}
	b := make(wire.RD, wire.RDBaseLen)
	b.EncodeClose(base)
	return b
}

func (x *attackCase) reject() wire.RD {
	b := make(wire.RD, wire.RDRejectLen)
	b.EncodeReject(x.base(x.a, x.b, 0), &wire.RDRejectFields{Reason: wire.RDRejectLife, Meant: 5, To: 6})
	return b
}
