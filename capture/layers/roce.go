package layers

import (
	"encoding/binary"
	"fmt"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/infiniband"
)

// ICRCState is the result of checking a packet's invariant CRC.
type ICRCState uint8

// States of an ICRC.
const (
	ICRCUnknown ICRCState = iota // the IP and UDP headers, or the packet's end, are missing
	ICRCRight
	ICRCWrong
)

// String returns the state as a word.
func (s ICRCState) String() string { return [...]string{"unknown", "right", "wrong"}[s] }

// RoCE is a RoCEv2 packet: its BTH, the headers that its opcode has, and the ICRC at its end. It
// decodes invalid packets too, as far as possible. The payload is the message data, without padding
// and ICRC. A layer MAD follows a datagram to queue pair 1.
type RoCE struct {
	golayers.BaseLayer
	infiniband.Fields
	// Version is the transport header's version. Only 0 exists.
	Version uint8
	// Valid is set if the packet is complete and its lengths agree; the ICRC may be wrong. If it is
	// false, only the BTH was decoded, and the payload is everything after it.
	Valid bool
	ICRC  uint32
	// State is the state of the ICRC. gopacket's own decoders set it. A caller that decodes the
	// layer directly uses Verify.
	State ICRCState

	packet infiniband.Packet
}

// LayerType returns LayerTypeRoCE.
func (r *RoCE) LayerType() gopacket.LayerType { return LayerTypeRoCE }

// CanDecode returns LayerTypeRoCE.
func (r *RoCE) CanDecode() gopacket.LayerClass { return LayerTypeRoCE }

// NextLayerType returns LayerTypeMAD for a datagram to queue pair 1, which connects other queue
// pairs, and LayerTypeZero otherwise.
func (r *RoCE) NextLayerType() gopacket.LayerType {
	if r.Valid && r.BTH.DestQP == infiniband.GSI && r.BTH.Opcode.Has(infiniband.HasDETH) {
		return LayerTypeMAD
	}
	return gopacket.LayerTypeZero
}

// DecodeFromBytes decodes the layer. It keeps data, which must be the whole payload of the
// datagram: it does not detect that a capture has cut off bytes. It returns an error without a
// whole BTH.
func (r *RoCE) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return r.read(data, false, df)
}

// read decodes the layer. If cut is set, data is not the whole payload of the datagram.
func (r *RoCE) read(data []byte, cut bool, df gopacket.DecodeFeedback) error {
	bth := infiniband.BTH(data)
	if cut || !bth.Valid() {
		df.SetTruncated()
	}
	if !bth.Valid() {
		return fmt.Errorf("decode roce: %d bytes are too few for a BTH", len(data))
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

// Verify compares the ICRC. ip and udp are the headers in front of the packet as captured, the IP
// header without options or extensions.
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

// SerializeTo writes the packet around the payload, which b holds. It writes the ICRC of the layer.
// An ICRC covers headers that do not exist yet, so a caller that has them writes it with Seal of
// infiniband.Packet.
func (r *RoCE) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	payload, o := len(b.Bytes()), r.BTH.Opcode
	switch {
	case !o.Known():
		return fmt.Errorf("write roce: unknown %v", o)
	case r.Version != 0:
		return fmt.Errorf("write roce %v: BTH version is %d, want 0", o, r.Version)
	case payload > 0 && !o.HasPayload():
		return fmt.Errorf("write roce %v: payload has %d bytes, want 0", o, payload)
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

// decodeRoCE decodes a packet. It verifies the ICRC if the layers before the packet are those that
// an ICRC covers.
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
