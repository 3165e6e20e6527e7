package layers

import (
	"fmt"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/wire"
)

// MACControl is a MAC control frame without its Ethernet header: priority flow control (802.1Qbb),
// classic pause (802.3x), gentle flow control as specified in fabric/softswitch/PROTOCOL.md, or an
// opcode unknown here. Padding belongs to no layer.
type MACControl struct {
	golayers.BaseLayer
	Opcode uint16
	// PauseQuanta is the duration of a classic pause, in units of 512 bit times.
	PauseQuanta uint16
	// PFC holds the fields of a PFC frame.
	PFC wire.PFCFields
	// Identifier is the organization's identifier in an extension frame. GFC holds the fields of a
	// frame whose identifier is wire.GFCIdentifier.
	Identifier [3]byte
	GFC        wire.GFCFields
}

// LayerType returns LayerTypeMACControl.
func (m *MACControl) LayerType() gopacket.LayerType { return LayerTypeMACControl }

// CanDecode returns LayerTypeMACControl.
func (m *MACControl) CanDecode() gopacket.LayerClass { return LayerTypeMACControl }

// NextLayerType returns LayerTypeZero.
func (m *MACControl) NextLayerType() gopacket.LayerType { return gopacket.LayerTypeZero }

// DecodeFromBytes decodes the layer. It keeps data.
func (m *MACControl) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	frame := wire.MACControl(data)
	if !frame.Valid() {
		df.SetTruncated()
		return fmt.Errorf("decode MAC control: %d bytes are too few", len(data))
	}
	*m = MACControl{Opcode: frame.Opcode()}
	length := 2
	switch m.Opcode {
	case wire.OpcodePause:
		m.PauseQuanta = frame.PauseQuanta()
		length = 4
	case wire.OpcodePFC:
		pfc := wire.PFC(data)
		m.PFC.Enable = pfc.Enable()
		for priority := range m.PFC.Quanta {
			m.PFC.Quanta[priority] = pfc.Quanta(priority)
		}
		length = wire.PFCLen
	case wire.OpcodeExtension:
		length += copy(m.Identifier[:], data[2:])
		if gfc := wire.GFC(data); gfc.Valid() {
			m.GFC = gfc.Fields()
			length = wire.GFCLen
		}
	}
	m.BaseLayer = golayers.BaseLayer{Contents: data[:length]}
	return nil
}

// SerializeTo writes the fields of a PFC, pause or GFC frame, without padding.
func (m *MACControl) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	length := wire.PFCLen
	switch m.Opcode {
	case wire.OpcodePause:
		length = 4
	case wire.OpcodeExtension:
		length = wire.GFCLen
		if m.Identifier != wire.GFCIdentifier {
			return fmt.Errorf("write MAC control: extension %x, want %x", m.Identifier, wire.GFCIdentifier)
		}
	}
	bytes, err := b.PrependBytes(length)
	if err != nil {
		return err
	}
	switch m.Opcode {
	case wire.OpcodePFC:
		wire.PFC(bytes).Encode(&m.PFC)
	case wire.OpcodePause:
		copy(bytes, []byte{0, wire.OpcodePause, byte(m.PauseQuanta >> 8), byte(m.PauseQuanta)})
	case wire.OpcodeExtension:
		wire.GFC(bytes).Encode(&m.GFC)
	default:
		return fmt.Errorf("write MAC control: opcode %#04x, want a pause, PFC or extension", m.Opcode)
	}
	return nil
}
