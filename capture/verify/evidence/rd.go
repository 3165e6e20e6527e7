package evidence

import (
	"railbed/capture/display"
	"railbed/internal/wire"
)

// RD is the reliable datagram of a packet (transports/rd/PROTOCOL.md). It is valid: its checksum
// and its lengths are right.
type RD struct {
	wire.RDBase
	// Bytes begin with the datagram's base. They end where the capture cut the packet off, which
	// may be within the payload. They are valid until the check returns.
	Bytes wire.RD
	// Telemetry is the length in bytes of the telemetry block before the datagram, 0 without one.
	Telemetry int
	// Trimmed reports whether a switch trimmed payload, regardless of the captured length.
	Trimmed bool
	// Data is set for RDData that is not encrypted.
	Data wire.RDDataFields
}

// Clear reports whether the bytes behind the base can be read.
func (d *RD) Clear() bool { return d.Flags&wire.RDEncrypted == 0 }

// RDFault is the reason why a packet to a port of reliable datagrams has no readable datagram.
type RDFault uint8

// Faults of reliable datagrams.
const (
	RDSound   RDFault = iota
	RDDamaged         // it is invalid, or of another version
	RDCut             // the capture, or a fragment, holds too little of it
)

// datagram reads a reliable datagram. captured is the captured part of the UDP payload, and length
// the payload's length on the wire.
func (d *decoder) datagram(captured []byte, length int) {
	p := &d.packet
	captured = captured[:min(len(captured), length)]
	p.RDFault = p.rd.read(captured, length, &d.capture.dissected)
	switch p.RDFault {
	case RDSound:
		p.RD = &p.rd
	case RDDamaged:
		d.capture.RDDamaged++
	case RDCut:
		d.capture.RDCut++
	}
}

// read reads a datagram of a packet, which decrypts the datagram.
func (d *RD) read(captured []byte, length int, of *display.Packet) RDFault {
	missing := RDDamaged
	if len(captured) < length {
		missing = RDCut
	}
	if len(captured) > 0 && captured[0] < 0x80 {
		block := wire.INT(captured)
		if !block.Valid() {
			if len(captured) >= wire.INTLen && !block.Starts() {
				missing = RDDamaged
			}
			return missing
		}
		d.Telemetry = block.Len()
	}
	b := wire.RD(captured[d.Telemetry:])
	length -= d.Telemetry
	if !b.HasBase() {
		if len(b) >= wire.RDBaseLen {
			missing = RDDamaged
		}
		return missing
	}
	header := wire.RDHeaderLen(b.Type())
	encrypted := b.Flags()&wire.RDEncrypted != 0
	if whole := len(b) == length; !whole && b.Version() == wire.RDVersion && header > 0 && !encrypted &&
		(b.Type() != wire.RDData || len(b) < header) {
		return RDCut
	}
	if !b.Valid() {
		return RDDamaged
	}
	if encrypted && len(b) == length {
		if plain, opened := of.Open(b); opened {
			b, length, encrypted = plain, len(plain), false
		}
	}
	d.RDBase, d.Bytes = b.Base(), b
	if encrypted {
		d.Trimmed = d.Type == wire.RDData && length < header+wire.RDSealedLen+int(d.Length)
	}
	if d.Type == wire.RDData && !encrypted {
		if length > header+int(d.Length) {
			return RDDamaged
		}
		d.Data, d.Trimmed = b.Data(), length < header+int(d.Length)
	}
	return RDSound
}
