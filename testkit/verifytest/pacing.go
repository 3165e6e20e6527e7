package verifytest

import (
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports/rd/privacy"
)

// PacedPacket is a packet from rank 0 to rank 1. at is the time of its release, by its timestamp.
// took is the time from there to the tap.
type PacedPacket struct {
	At, Took time.Duration
	Engine   int
}

// PacedFrame is the length on the wire, in bytes, of the packets of TestPacing.
const PacedFrame = 1146

// Paced adds packets of 1,000 bytes at a rate. change may alter each packet, by its number.
func (s *Scene) Paced(packets int, rate float64, change func(n int, p *PacedPacket)) {
	s.PacedAs(packets, rate, nil, change)
}

// PacedAs is Paced with encrypted packets, if sealer is not nil.
func (s *Scene) PacedAs(packets int, rate float64, sealer *privacy.Sealer,
	change func(n int, p *PacedPacket)) {
	s.RDRanks(4)
	s.Step = 0
	for n := range packets {
		p := PacedPacket{At: time.Duration(float64(n) * PacedFrame * 8e9 / rate), Took: 30 * time.Microsecond}
		if change != nil {
			change(n, &p)
		}
		s.Now = Start + int64(p.At)
		base := s.Base(0, 1, p.Engine, uint32(n))
		base.Length = RDPayloadBytes
		d := make(wire.RD, wire.RDDataLen+RDPayloadBytes)
		d.EncodeData(base, &wire.RDDataFields{Key: 7, Total: 1 << 30, Timestamp: uint32(s.Now),
			Sum: wire.RDSum(d[wire.RDDataLen:])})
		s.Now += int64(p.Took)
		if sealer != nil {
			sealed, err := sealer.Seal(make([]byte, len(d)+wire.RDSealedLen), d[:wire.RDDataLen],
				d[wire.RDDataLen:], false, 0, clock.Time(n))
			if err != nil {
				s.T.Fatal(err)
			}
			d = sealed
		}
		s.RD(0, 1, 0, d)
	}
}
