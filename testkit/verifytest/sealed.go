package verifytest

import (
	"railbed/internal/wire"
	"railbed/transports/rd/privacy"
)

// Sealing encrypts the reliable datagrams of a Scene.
type Sealing struct {
	Secret *privacy.Secret
	// Readable leaves the headers readable.
	Readable bool

	sealers map[privacy.Direction]*privacy.Sealer
}

// seal encrypts a datagram if the scene has a sealing.
func (s *Scene) seal(from, to int, d wire.RD) wire.RD {
	if s.Sealing == nil {
		return d
	}
	of := privacy.Direction{From: RDLife(from), To: RDLife(to), Source: d.Base().Source,
		Destination: d.Base().Destination}
	if s.Sealing.sealers == nil {
		s.Sealing.sealers = map[privacy.Direction]*privacy.Sealer{}
	}
	sealer := s.Sealing.sealers[of]
	if sealer == nil {
		sealer = privacy.NewSealer(s.Sealing.Secret, of, privacy.Limits{})
		s.Sealing.sealers[of] = sealer
	}
	header := len(d)
	if d.Type() == wire.RDData {
		header = wire.RDDataLen
	}
	sealed, err := sealer.Seal(make([]byte, len(d)+wire.RDSealedLen), d[:header], d[header:],
		s.Sealing.Readable, 0, 0)
	if err != nil {
		s.T.Fatal(err)
	}
	return sealed
}
