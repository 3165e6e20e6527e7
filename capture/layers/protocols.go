package layers

import (
	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// The layer types of this package, for gopacket. Importing the package registers them with
// gopacket's own decoders: MAC control by its EtherType, which gopacket v1.1.19 does not know, the
// others by their UDP ports.
var (
	LayerTypeMACControl = gopacket.RegisterLayerType(1610, gopacket.LayerTypeMetadata{
		Name: "MACControl", Decoder: decoder(func() decodingLayer { return new(MACControl) }),
	})
	LayerTypeINT = gopacket.RegisterLayerType(1611, gopacket.LayerTypeMetadata{
		Name: "INT", Decoder: decoder(func() decodingLayer { return new(INT) }),
	})
	LayerTypeAggregation = gopacket.RegisterLayerType(1612, gopacket.LayerTypeMetadata{
		Name: "Aggregation", Decoder: decoder(func() decodingLayer { return new(Aggregation) }),
	})
	LayerTypeRD = gopacket.RegisterLayerType(1613,
		gopacket.LayerTypeMetadata{Name: "RD", Decoder: gopacket.DecodeFunc(decodeRD)})
	LayerTypeRoCE = gopacket.RegisterLayerType(1614,
		gopacket.LayerTypeMetadata{Name: "RoCE", Decoder: gopacket.DecodeFunc(decodeRoCE)})
	LayerTypeMAD = gopacket.RegisterLayerType(1615, gopacket.LayerTypeMetadata{
		Name: "MAD", Decoder: decoder(func() decodingLayer { return new(MAD) }),
	})
)

func init() {
	golayers.EthernetTypeMetadata[wire.EtherTypeMACControl] = golayers.EnumMetadata{
		DecodeWith: LayerTypeMACControl, Name: "MACControl", LayerType: LayerTypeMACControl,
	}
	golayers.RegisterUDPPortLayerType(wire.PortINT, LayerTypeINT)
	golayers.RegisterUDPPortLayerType(wire.PortAggregation, LayerTypeAggregation)
	golayers.RegisterUDPPortLayerType(infiniband.Port, LayerTypeRoCE)
	for port := range wire.PortsRD {
		golayers.RegisterUDPPortLayerType(golayers.UDPPort(wire.PortRD+port), LayerTypeRD)
	}
}

// decodingLayer is a layer that decodes itself and can be part of a packet.
type decodingLayer interface {
	gopacket.Layer
	gopacket.DecodingLayer
}

// decoder returns a decoder that makes a layer with empty, decodes it and continues with the next
// layer.
func decoder(empty func() decodingLayer) gopacket.Decoder {
	return gopacket.DecodeFunc(func(data []byte, p gopacket.PacketBuilder) error {
		layer := empty()
		if err := layer.DecodeFromBytes(data, p); err != nil {
			return err
		}
		p.AddLayer(layer)
		next := layer.NextLayerType()
		if next == gopacket.LayerTypeZero {
			return nil
		}
		return p.NextDecoder(next)
	})
}
