package layers

import (
	"encoding/binary"
	"fmt"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/wire"
)

// rdCheck is the offset of a reliable datagram's check.
const rdCheck = 22

// RD is a reliable datagram, as specified in transports/rd/PROTOCOL.md. A block of telemetry before
// it is a layer of its own. RD decodes invalid datagrams too, as far as possible. The payload is
// everything after the decoded header.
type RD struct {
	golayers.BaseLayer
	Version uint8
	wire.RDBase
	Check uint16
	// Valid is set if the check and the lengths are right. For an encrypted datagram it refers to
	// the base header alone.
	Valid bool
	// Whole is set if the datagram is not encrypted and the type's header is complete, so that its
	// fields below were decoded. The fields are zero without Whole or Readable.
	Whole bool
	// Trimmed is set if payload of an RDData is missing. Either a switch trimmed it, or the capture
	// cut it off, as the UDP length shows.
	Trimmed bool
	// Sealed is set if the datagram is encrypted and its security header is complete.
	Sealed   bool
	Security wire.RDSecurity
	// Readable is set if an encrypted datagram has its type's header complete and in clear. The tag
	// only authenticates this header, and its fields were decoded.
	Readable bool

	Data   wire.RDDataFields
	Skip   wire.RDSkipFields
	Ack    wire.RDAckFields
	Bitmap []uint64 // of an RDAck, see AckWord of wire.RD
	Echoes []wire.RDEcho
	Nack   wire.RDNackFields
	// ProbeTimestamp is in ns of the sender's clock, modulo 2^32.
	ProbeTimestamp uint32
	Reject         wire.RDRejectFields
}

// LayerType returns LayerTypeRD.
func (r *RD) LayerType() gopacket.LayerType { return LayerTypeRD }

// CanDecode returns LayerTypeRD.
func (r *RD) CanDecode() gopacket.LayerClass { return LayerTypeRD }

// NextLayerType returns LayerTypeZero: the payload is a part of a message.
func (r *RD) NextLayerType() gopacket.LayerType { return gopacket.LayerTypeZero }

// DecodeFromBytes decodes the layer; a block of telemetry must have been removed. It keeps data,
// and reuses Bitmap and Echoes. If data is shorter than the header says, because it was trimmed or
// cut off by the capture, the layer is marked as truncated. Without a whole base header it returns
// an error.
func (r *RD) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	b := wire.RD(data)
	if !b.HasBase() {
		if len(data) < wire.RDBaseLen {
			df.SetTruncated()
		}
		return fmt.Errorf("decode rd: %d bytes, want at least the %d of the base", len(data), wire.RDBaseLen)
	}
	*r = RD{
		Version: b.Version(),
		RDBase:  b.Base(),
		Check:   binary.BigEndian.Uint16(data[rdCheck:]),
		Valid:   b.Valid(),
		Bitmap:  r.Bitmap[:0], Echoes: r.Echoes[:0],
	}
	header := wire.RDBaseLen
	if known := wire.RDHeaderLen(r.Type); r.Version == wire.RDVersion && known > 0 &&
		r.Flags&wire.RDEncrypted == 0 {
		if len(b) >= known {
			header, r.Whole = r.fields(b, known)
		}
		if !r.Whole {
			df.SetTruncated()
		}
	}
	r.Trimmed = r.Whole && r.Type == wire.RDData && b.Trimmed()
	if r.Version == wire.RDVersion && wire.RDHeaderLen(r.Type) > 0 && b.Sealed() {
		header = r.sealed(b)
	}
	if r.Trimmed {
		df.SetTruncated()
	}
	r.BaseLayer = golayers.BaseLayer{Contents: data[:header], Payload: data[header:]}
	return nil
}

// sealed decodes the readable part of an encrypted datagram, and returns the length of the base
// header and the security header.
func (r *RD) sealed(b wire.RD) (header int) {
	r.Trimmed = b.SealedTrimmed()
	if r.Sealed = len(b) >= wire.RDSealedLeast; !r.Sealed {
		return wire.RDBaseLen
	}
	r.Security = b.Security()
	body := len(b) - wire.RDSealedLeast
	if !r.Trimmed {
		body = max(body-wire.RDTagLen, 0)
	}
	readable := b[wire.RDSealedLeast:][:min(4*int(r.Security.Readable), body)]
	if known := wire.RDHeaderLen(r.Type); len(readable) >= known-wire.RDBaseLen {
		plain := append(append(make(wire.RD, 0, wire.RDBaseLen+len(readable)), b[:wire.RDBaseLen]...),
			readable...)
		_, r.Readable = r.fields(plain, known)
	}
	return wire.RDSealedLeast
}

// fields decodes the type's header after the base header, and returns the length of the header. It
// decodes nothing of an acknowledgement whose lists are incomplete.
func (r *RD) fields(b wire.RD, header int) (int, bool) {
	switch r.Type {
	case wire.RDData:
		r.Data = b.Data()
	case wire.RDSkip:
		r.Skip = b.Skip()
	case wire.RDAck:
		ack := b.Ack()
		header = wire.RDAckBytes(int(ack.Words), int(ack.Echoes))
		if ack.Words > wire.RDMaxWords || ack.Echoes > wire.RDMaxEchoes || len(b) < header {
			return wire.RDBaseLen, false
		}
		r.Ack = ack
		for i := range int(ack.Words) {
			r.Bitmap = append(r.Bitmap, b.AckWord(i))
		}
		for i := range int(ack.Echoes) {
			r.Echoes = append(r.Echoes, b.AckEcho(i))
		}
	case wire.RDNack:
		r.Nack = b.Nack()
	case wire.RDProbe:
		r.ProbeTimestamp = b.ProbeTimestamp()
	case wire.RDReject:
		r.Reject = b.Reject()
	}
	return header, true
}

// Came returns the PSNs after the first missing packet that an RDAck reports as received.
func (r *RD) Came() []uint32 {
	var psns []uint32
	for n := uint32(1); n <= uint32(64*len(r.Bitmap)); n++ {
		if word, bit := wire.RDAckBit(n); r.Bitmap[word]&bit != 0 {
			psns = append(psns, r.PSN+n)
		}
	}
	return psns
}

// SumValid reports whether the payload of an RDData is complete and matches its checksum.
func (r *RD) SumValid() bool {
	return r.Whole && r.Type == wire.RDData && len(r.Payload) == int(r.Length) &&
		wire.RDSum(r.Payload) == r.Data.Sum
}

// SerializeTo writes the header in front of the payload, which b holds: for an RDData at most
// Length bytes, otherwise none. It computes the check, and Data.Sum too if the options ask for
// checksums. It returns an error for a datagram of another version and for an encrypted datagram.
func (r *RD) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	payload, header := b.Bytes(), wire.RDHeaderLen(r.Type)
	switch {
	case r.Version != wire.RDVersion || header == 0 || r.Flags&wire.RDEncrypted != 0:
		return fmt.Errorf("write rd: version %d, type %d, flags %#02x: want version %d, a known type, and "+
			"no encryption", r.Version, r.Type, r.Flags, wire.RDVersion)
	case r.Type == wire.RDData && len(payload) > int(r.Length),
		r.Type != wire.RDData && len(payload)+int(r.Length) > 0:
		return fmt.Errorf("write rd: %d bytes of payload after a %v of length %d, want at most that",
			len(payload), r.Type, r.Length)
	case len(r.Bitmap) > wire.RDMaxWords || len(r.Echoes) > wire.RDMaxEchoes:
		return fmt.Errorf("write rd: acknowledgement of %d words and %d echoes, want at most %d and %d",
			len(r.Bitmap), len(r.Echoes), wire.RDMaxWords, wire.RDMaxEchoes)
	case r.Type == wire.RDAck:
		header = wire.RDAckBytes(len(r.Bitmap), len(r.Echoes))
	}
	data := r.Data
	if opts.ComputeChecksums {
		data.Sum = wire.RDSum(payload)
	}
	bytes, err := b.PrependBytes(header)
	if err != nil {
		return err
	}
	switch d := wire.RD(bytes); r.Type {
	case wire.RDData:
		d.EncodeData(r.RDBase, &data)
	case wire.RDSkip:
		d.EncodeSkip(r.RDBase, &r.Skip)
	case wire.RDAck:
		d.EncodeAck(r.RDBase, &r.Ack, r.Bitmap, r.Echoes)
	case wire.RDNack:
		d.EncodeNack(r.RDBase, &r.Nack)
	case wire.RDProbe:
		d.EncodeProbe(r.RDBase, r.ProbeTimestamp)
	case wire.RDReject:
		d.EncodeReject(r.RDBase, &r.Reject)
	case wire.RDClose:
		d.EncodeClose(r.RDBase)
	}
	return nil
}

// decodeRD decodes the payload of a UDP datagram to a port of reliable datagrams. That is either
// the datagram, or a block of telemetry, which names the next layer. Their first bits differ.
func decodeRD(data []byte, p gopacket.PacketBuilder) error {
	if len(data) > 0 && data[0] < 0x80 {
		return LayerTypeINT.Decode(data, p)
	}
	return decoder(func() decodingLayer { return new(RD) }).Decode(data, p)
}
