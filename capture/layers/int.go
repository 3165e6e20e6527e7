package layers

import (
	"errors"
	"fmt"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/wire"
)

// INT is a block of in-band telemetry as specified in fabric/softswitch/PROTOCOL.md. It decodes
// every block of INT-MD v2.1 without source-only metadata. The block's next port defines the
// payload's format: for a probe, the payload is the bytes of a wire.INTProbe.
type INT struct {
	golayers.BaseLayer
	NextPort     golayers.UDPPort
	Discard      bool
	HopsExceeded bool
	MTUExceeded  bool
	Instructions uint16
	Remaining    uint8
	Domain       uint16
	// Hops are the hops' reports, in the order in which the packet passed the hops.
	Hops []wire.INTHop
}

// LayerType returns LayerTypeINT.
func (l *INT) LayerType() gopacket.LayerType { return LayerTypeINT }

// CanDecode returns LayerTypeINT.
func (l *INT) CanDecode() gopacket.LayerClass { return LayerTypeINT }

// NextLayerType returns the layer type of the next port.
func (l *INT) NextLayerType() gopacket.LayerType {
	if l.NextPort == wire.PortINT {
		return gopacket.LayerTypePayload // a block does not follow a block
	}
	return l.NextPort.LayerType()
}

// DecodeFromBytes decodes the layer. It keeps data and reuses Hops.
func (l *INT) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	block := wire.INT(data)
	if !block.Valid() {
		if len(data) < wire.INTLen || len(data) < block.Len() {
			df.SetTruncated()
		}
		return fmt.Errorf("decode INT: %d bytes are not a valid block", len(data))
	}
	*l = INT{
		BaseLayer:    golayers.BaseLayer{Contents: data[:block.Len()], Payload: block.Payload()},
		NextPort:     golayers.UDPPort(block.NextPort()),
		Discard:      block.Discard(),
		HopsExceeded: block.HopsExceeded(),
		MTUExceeded:  block.MTUExceeded(),
		Instructions: block.Instructions(),
		Remaining:    block.Remaining(),
		Domain:       block.Domain(),
		Hops:         l.Hops[:0],
	}
	for i := range block.Hops() {
		l.Hops = append(l.Hops, block.Hop(i))
	}
	return nil
}

// SerializeTo writes the block with room for the remaining hops.
func (l *INT) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	fields := wire.INTFields{
		Hops:         len(l.Hops) + int(l.Remaining),
		Instructions: l.Instructions,
		NextPort:     uint16(l.NextPort),
		Discard:      l.Discard,
	}
	length := wire.INTBlockLen(&fields)
	switch {
	case l.Domain != wire.INTDomain:
		return fmt.Errorf("write INT: domain %#04x is not %#04x", l.Domain, wire.INTDomain)
	case (length-wire.INTLen)/4 > wire.INTMaxWords:
		return fmt.Errorf("write INT: a block of %d bytes for %d hops is too long", length, fields.Hops)
	case l.HopsExceeded || l.MTUExceeded:
		return errors.New("write INT: HopsExceeded or MTUExceeded is set, want neither: only hops set them")
	}
	bytes, err := b.PrependBytes(length)
	if err != nil {
		return err
	}
	wire.INT(bytes).Encode(&fields)
	for i := range l.Hops {
		wire.INT(bytes).Push(&l.Hops[i])
	}
	return nil
}
