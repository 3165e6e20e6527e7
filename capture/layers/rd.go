package layers

import (
	"encoding/binary"
	"fmt"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/wire"
)

// rdCheck is where the check of a reliable datagram stands.
const rdCheck = 22

// RD is a reliable datagram, as transports/rd/PROTOCOL.md has it; a block of
// telemetry that stands first is a layer of its own. It reads what is not valid
// too, as far as it can be read. The payload is what follows the header that was
// read.
type RD struct {
	golayers.BaseLayer
	Version uint8
	wire.RDBase
	Check uint16
	// Valid says that check and lengths are right; of an encrypted datagram,
	// that the base's are.
	Valid bool
	// Whole says that the header of the type is all there, and not encrypted, so
	// that its fields below were read; all others are zero.
	Whole bool
	// Trimmed says that payload of an RDData is missing: trimmed by a switch or,
	// where the UDP length has it, by the capture.
	Trimmed bool
	// Sealed says that the datagram is encrypted, and its security header there.
	Sealed   bool
	Security wire.RDSecurity
	// Readable says that the header of the type is all there and not encrypted,
	// though authenticated by a tag, so that its fields were read.
	Readable bool

	Data   wire.RDDataFields
	Skip   wire.RDSkipFields
	Ack    wire.RDAckFields
	Bitmap []uint64 // of an RDAck, see wire.RD's AckWord
	Echoes []wire.RDEcho
	Nack   wire.RDNackFields
	// ProbeTimestamp is in ns of the sender's clock, modulo 2^32.
	ProbeTimestamp uint32
	Reject         wire.RDRejectFields
}

// LayerType is LayerTypeRD.
func (r *RD) LayerType() gopacket.LayerType { return LayerTypeRD }

// CanDecode is LayerTypeRD.
func (r *RD) CanDecode() gopacket.LayerClass { return LayerTypeRD }

// NextLayerType is none: the payload is a piece of a message.
func (r *RD) NextLayerType() gopacket.LayerType { return gopacket.LayerTypeZero }

// DecodeFromBytes reads the layer behind a block of telemetry. It keeps data, and
// reuses Bitmap and Echoes. When less is there than the header says, trimmed or
// cut off by the capture, the layer is marked as truncated; without a whole base
// it is an error.
func (r *RD) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	b := wire.RD(data)
	if !b.HasBase() {
		if len(data) < wire.RDBaseLen {
			df.SetTruncated()
		}
		return fmt.Errorf("decode rd: %d bytes have no base", len(data))
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

// sealed reads what can be read of an encrypted datagram, and says how long base
// and security header are.
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

// fields reads what the type has behind the base, and says how long the header is;
// it reads nothing of an acknowledgement whose lists are not all there.
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

// Came are the packets behind the first missing one that an RDAck says have come.
func (r *RD) Came() []uint32 {
	var psns []uint32
	for n := uint32(1); n <= uint32(64*len(r.Bitmap)); n++ {
		if word, bit := wire.RDAckBit(n); r.Bitmap[word]&bit != 0 {
			psns = append(psns, r.PSN+n)
		}
	}
	return psns
}

// SumValid says that the payload of an RDData is all there and has its sum.
func (r *RD) SumValid() bool {
	return r.Whole && r.Type == wire.RDData && len(r.Payload) == int(r.Length) &&
		wire.RDSum(r.Payload) == r.Data.Sum
}

// SerializeTo writes the header in front of the payload, which b holds: of an
// RDData at most Length bytes, else none. The check is made, and Data.Sum too when
// the options ask for checksums. A datagram of another version or an encrypted
// one cannot be written.
func (r *RD) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	payload, header := b.Bytes(), wire.RDHeaderLen(r.Type)
	switch {
	case r.Version != wire.RDVersion || header == 0 || r.Flags&wire.RDEncrypted != 0:
		return fmt.Errorf("write rd: version %d, type %d, flags %#02x", r.Version, r.Type, r.Flags)
	case r.Type == wire.RDData && len(payload) > int(r.Length),
		r.Type != wire.RDData && len(payload)+int(r.Length) > 0:
		return fmt.Errorf("write rd: %d bytes behind a %v of length %d", len(payload), r.Type, r.Length)
	case len(r.Bitmap) > wire.RDMaxWords || len(r.Echoes) > wire.RDMaxEchoes:
		return fmt.Errorf("write rd: an acknowledgement of %d words and %d echoes", len(r.Bitmap),
			len(r.Echoes))
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

// decodeRD decodes what comes to a port of reliable datagrams: a block of
// telemetry, which names what follows, or the datagram. Their first bits differ.
func decodeRD(data []byte, p gopacket.PacketBuilder) error {
	if len(data) > 0 && data[0] < 0x80 {
		return LayerTypeINT.Decode(data, p)
	}
	return decoder(func() decodingLayer { return new(RD) }).Decode(data, p)
}
