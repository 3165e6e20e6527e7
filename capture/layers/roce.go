package layers

import (
	"encoding/binary"
	"fmt"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/infiniband"
)

// ICRCState says what is known of the invariant CRC of a packet.
type ICRCState uint8

// States of an ICRC.
const (
	ICRCUnknown ICRCState = iota // the headers of IP and UDP, or the packet's end, are not there
	ICRCRight
	ICRCWrong
)

// String is the state in a word.
func (s ICRCState) String() string { return [...]string{"unknown", "right", "wrong"}[s] }

// RoCE is a packet of RoCEv2: its BTH, the headers that its opcode has, and the
// ICRC at its end. It reads what is not valid too, as far as it can be read. The
// payload is what the message carries, without padding and ICRC; a datagram to
// queue pair 1 is followed by a layer MAD.
type RoCE struct {
	golayers.BaseLayer
	infiniband.Fields
	// Version is that of the transport header, of which 0 is the only one.
	Version uint8
	// Valid says that the packet is all there and its lengths agree; the ICRC may be
	// wrong. Of others only the BTH was read, and the payload is all behind it.
	Valid bool
	ICRC  uint32
	// State is of the ICRC. A decoder of gopacket's own knows it; who decodes the layer
	// by itself has Verify.
	State ICRCState

	packet infiniband.Packet
}

// LayerType is LayerTypeRoCE.
func (r *RoCE) LayerType() gopacket.LayerType { return LayerTypeRoCE }

// CanDecode is LayerTypeRoCE.
func (r *RoCE) CanDecode() gopacket.LayerClass { return LayerTypeRoCE }

// NextLayerType is LayerTypeMAD for datagrams between the queue pairs that connect
// others, else none.
func (r *RoCE) NextLayerType() gopacket.LayerType {
	if r.Valid && r.BTH.DestQP == infiniband.GSI && r.BTH.Opcode.Has(infiniband.HasDETH) {
		return LayerTypeMAD
	}
	return gopacket.LayerTypeZero
}

// DecodeFromBytes reads the layer. It keeps data, which has to be all that the
// datagram carried: what a capture has cut off is not missed here. Without a whole
// BTH it is an error.
func (r *RoCE) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return r.read(data, false, df)
}

// read reads the layer; cut says that data is not all that the datagram carried.
func (r *RoCE) read(data []byte, cut bool, df gopacket.DecodeFeedback) error {
	bth := infiniband.BTH(data)
	if cut || !bth.Valid() {
		df.SetTruncated()
	}
	if !bth.Valid() {
		return fmt.Errorf("decode roce: %d bytes are no BTH", len(data))
	}
	*r = RoCE{Version: bth.Version(), packet: data}
	if r.Valid = !cut && r.packet.Valid(); !r.Valid {
		r.Fields = infiniband.Fields{BTH: bth.Fields()}
		r.BaseLayer = golayers.BaseLayer{Contents: data[:infiniband.BTHLen],
			Payload: data[infiniband.BTHLen:]}
		return nil
	}
	r.Fields, r.ICRC = r.packet.Fields(), r.packet.ICRC()
	r.BaseLayer = golayers.BaseLayer{Contents: data[:r.BTH.Opcode.HeaderLen()], Payload: r.packet.Payload()}
	return nil
}

// Verify compares the ICRC, given the headers of IP, without options or extensions,
// and UDP in front of the packet, as they were captured.
func (r *RoCE) Verify(ip, udp []byte) ICRCState {
	headers := append(append(make([]byte, 0, infiniband.HeadersIPv6), ip...), udp...)
	switch {
	case !r.Valid || len(headers) != infiniband.HeadersIPv4 && len(headers) != infiniband.HeadersIPv6:
		r.State = ICRCUnknown
	case r.packet.ICRCValid(headers):
		r.State = ICRCRight
	default:
		r.State = ICRCWrong
	}
	return r.State
}

// SerializeTo writes the packet around the payload, which b holds. The ICRC is the
// one of the layer: it is over headers that do not exist yet, and who has them
// writes it with Seal of infiniband.Packet.
func (r *RoCE) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	payload, o := len(b.Bytes()), r.BTH.Opcode
	if !o.Known() || r.Version != 0 || payload > 0 && !o.HasPayload() {
		return fmt.Errorf("write roce: %v of version %d with %d bytes", o, r.Version, payload)
	}
	header, whole := o.HeaderLen(), infiniband.Len(o, payload)
	if _, err := b.AppendBytes(whole - header - payload); err != nil {
		return err
	}
	if _, err := b.PrependBytes(header); err != nil {
		return err
	}
	p := infiniband.Packet(b.Bytes())
	p.Encode(&r.Fields, payload)
	binary.LittleEndian.PutUint32(p[whole-infiniband.ICRCLen:], r.ICRC)
	return nil
}

// decodeRoCE decodes a packet and looks at its ICRC where the layers before it are
// those that it is over.
func decodeRoCE(data []byte, p gopacket.PacketBuilder) error {
	r := new(RoCE)
	packet, _ := p.(gopacket.Packet)
	var udp *golayers.UDP
	if packet != nil {
		udp, _ = packet.TransportLayer().(*golayers.UDP)
	}
	if err := r.read(data, udp != nil && int(udp.Length) > len(udp.Contents)+len(data), p); err != nil {
		return err
	}
	if udp != nil && packet.NetworkLayer() != nil {
		r.Verify(packet.NetworkLayer().LayerContents(), udp.Contents)
	}
	p.AddLayer(r)
	if next := r.NextLayerType(); next != gopacket.LayerTypeZero {
		return p.NextDecoder(next)
	}
	return nil
}
