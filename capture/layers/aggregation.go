package layers

import (
	"fmt"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/wire"
)

// Aggregation is a message of in-network aggregation, as specified in
// fabric/softswitch/PROTOCOL.md.
type Aggregation struct {
	golayers.BaseLayer
	wire.AggregationFields
}

// LayerType returns LayerTypeAggregation.
func (a *Aggregation) LayerType() gopacket.LayerType { return LayerTypeAggregation }

// CanDecode returns LayerTypeAggregation.
func (a *Aggregation) CanDecode() gopacket.LayerClass { return LayerTypeAggregation }

// NextLayerType returns LayerTypeZero: the elements are the message's payload.
func (a *Aggregation) NextLayerType() gopacket.LayerType { return gopacket.LayerTypeZero }

// DecodeFromBytes decodes the layer. It keeps data. If a capture has cut off elements, the layer is
// marked as truncated and its payload is shorter.
func (a *Aggregation) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	message := wire.Aggregation(data)
	if !message.ValidHeader() {
		if len(data) < wire.AggregationLen {
			df.SetTruncated()
		}
		return fmt.Errorf("decode aggregation: %d bytes are not a valid message", len(data))
	}
	fields := message.Fields()
	switch whole := wire.AggregationMessageLen(fields.Type, int(fields.Elements)); {
	case len(data) < whole:
		df.SetTruncated()
	case len(data) > whole:
		return fmt.Errorf("decode aggregation: %d bytes, want %d for %d elements", len(data), whole,
			fields.Elements)
	}
	*a = Aggregation{
		BaseLayer: golayers.BaseLayer{Contents: data[:wire.AggregationLen],
			Payload: data[wire.AggregationLen:]},
		AggregationFields: fields,
	}
	return nil
}

// SerializeTo writes the header in front of the elements, which b holds.
func (a *Aggregation) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	if have, want := len(b.Bytes()), a.Type.Size()*int(a.Elements); have != want {
		return fmt.Errorf("write aggregation: %d bytes of elements, want %d", have, want)
	}
	bytes, err := b.PrependBytes(wire.AggregationLen)
	if err != nil {
		return err
	}
	wire.Aggregation(bytes).Encode(&a.AggregationFields)
	return nil
}
