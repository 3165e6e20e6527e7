package layers

import (
	"fmt"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/infiniband"
)

// MAD is a management datagram. For a communication management message, the field that its
// attribute names is set. All other message fields are nil.
type MAD struct {
	golayers.BaseLayer
	infiniband.MADFields

	REQ  *infiniband.REQFields
	REP  *infiniband.REPFields
	RTU  *infiniband.RTUFields
	REJ  *infiniband.REJFields
	MRA  *infiniband.MRAFields
	DREQ *infiniband.DREQFields
	DREP *infiniband.DREPFields
}

// LayerType returns LayerTypeMAD.
func (m *MAD) LayerType() gopacket.LayerType { return LayerTypeMAD }

// CanDecode returns LayerTypeMAD.
func (m *MAD) CanDecode() gopacket.LayerClass { return LayerTypeMAD }

// NextLayerType returns LayerTypeZero.
func (m *MAD) NextLayerType() gopacket.LayerType { return gopacket.LayerTypeZero }

// DecodeFromBytes decodes the layer. It keeps data, all of which becomes its contents.
func (m *MAD) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	d := infiniband.MAD(data)
	if !d.Valid() {
		if len(data) < infiniband.MADLen {
			df.SetTruncated()
		}
		return fmt.Errorf("decode MAD: %d bytes, want %d of base version 1", len(data), infiniband.MADLen)
	}
	*m = MAD{BaseLayer: golayers.BaseLayer{Contents: data}, MADFields: d.Fields()}
	if !d.IsCM() {
		return nil
	}
	switch b := d.CM(); m.Attribute {
	case infiniband.AttributeREQ:
		m.REQ = read(infiniband.REQ(b).Fields)
	case infiniband.AttributeREP:
		m.REP = read(infiniband.REP(b).Fields)
	case infiniband.AttributeRTU:
		m.RTU = read(infiniband.RTU(b).Fields)
	case infiniband.AttributeREJ:
		m.REJ = read(infiniband.REJ(b).Fields)
	case infiniband.AttributeMRA:
		m.MRA = read(infiniband.MRA(b).Fields)
	case infiniband.AttributeDREQ:
		m.DREQ = read(infiniband.DREQ(b).Fields)
	case infiniband.AttributeDREP:
		m.DREP = read(infiniband.DREP(b).Fields)
	}
	return nil
}

func read[F any](fields func() F) *F {
	f := fields()
	return &f
}

// SerializeTo writes a communication management message. b must be empty.
func (m *MAD) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	if n := len(b.Bytes()); n > 0 {
		return fmt.Errorf("write MAD: %d bytes of payload, want none", n)
	}
	bytes, err := b.PrependBytes(infiniband.MADLen)
	if err != nil {
		return err
	}
	d := infiniband.MAD(bytes)
	d.EncodeCM(m.Attribute, m.Transaction)
	switch body := d.CM(); {
	case m.Attribute == infiniband.AttributeREQ && m.REQ != nil:
		infiniband.REQ(body).Encode(m.REQ)
	case m.Attribute == infiniband.AttributeREP && m.REP != nil:
		infiniband.REP(body).Encode(m.REP)
	case m.Attribute == infiniband.AttributeRTU && m.RTU != nil:
		infiniband.RTU(body).Encode(m.RTU)
	case m.Attribute == infiniband.AttributeREJ && m.REJ != nil:
		infiniband.REJ(body).Encode(m.REJ)
	case m.Attribute == infiniband.AttributeMRA && m.MRA != nil:
		infiniband.MRA(body).Encode(m.MRA)
	case m.Attribute == infiniband.AttributeDREQ && m.DREQ != nil:
		infiniband.DREQ(body).Encode(m.DREQ)
	case m.Attribute == infiniband.AttributeDREP && m.DREP != nil:
		infiniband.DREP(body).Encode(m.DREP)
	default:
		return fmt.Errorf("write MAD: no fields for attribute %v, want the fields of its message",
			m.Attribute)
	}
	return nil
}
