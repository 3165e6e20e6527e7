package wire

import "encoding/binary"

// Layout of Gentle Flow Control after the Ethernet header: a MAC control frame with the extension
// opcode, fabric/softswitch/PROTOCOL.md. Offsets in bytes.
const (
	gfcIdentifier = 2
	gfcKind       = 5
	gfcEnable     = 7
	gfcValues     = 8

	GFCLen = gfcValues + 2*PFCPriorities // bytes from the opcode to the last value

	// OpcodeExtension is the MAC control opcode for extensions of an
	// organization: IEEE 802.3 annexes 31A and 31C.
	OpcodeExtension = 0xFFFE
)

// GFCIdentifier is the organization's identifier in the extension frames of GFC.
var GFCIdentifier = [3]byte{0x06, 'R', 'G'}

// GFCFields are the fields of a GFC frame.
type GFCFields struct {
	// Enable has bit n set if the frame has a value for priority n.
	Enable uint8
	// Share is set if values are shares of the line's rate, in units of 1/65,535. Otherwise values
	// are stages, and the rate is the line's rate / 2^stage.
	Share  bool
	Values [PFCPriorities]uint16
}

// GFC is a GFC frame after its Ethernet header.
type GFC []byte

// Valid reports whether the bytes are a GFC frame of a known kind.
func (g GFC) Valid() bool {
	return len(g) >= GFCLen && MACControl(g).Opcode() == OpcodeExtension &&
		[3]byte(g[gfcIdentifier:]) == GFCIdentifier && g[gfcKind] <= 1
}

// Enable has bit n set if the frame has a value for priority n.
func (g GFC) Enable() uint8 { return g[gfcEnable] }

// Share reports whether values are shares, not stages.
func (g GFC) Share() bool { return g[gfcKind] == 1 }

// Value is the stage of a priority, 0 to 7, or its share. A share is at least 1, so that no sender
// stops for good.
func (g GFC) Value(priority int) uint16 {
	value := binary.BigEndian.Uint16(g[gfcValues+2*(priority&7):])
	if value == 0 && g.Share() {
		return 1
	}
	return value
}

// Fields are all fields; the values of priorities that are not enabled are 0.
func (g GFC) Fields() GFCFields {
	f := GFCFields{Enable: g.Enable(), Share: g.Share()}
	for priority := range f.Values {
		if f.Enable>>priority&1 != 0 {
			f.Values[priority] = g.Value(priority)
		}
	}
	return f
}

// Encode writes the frame from the opcode on, GFCLen bytes. It writes values of priorities that are
// not enabled as 0.
func (g GFC) Encode(f *GFCFields) {
	g = g[:GFCLen]
	clear(g)
	binary.BigEndian.PutUint16(g[macControlOpcode:], OpcodeExtension)
	copy(g[gfcIdentifier:], GFCIdentifier[:])
	if f.Share {
		g[gfcKind] = 1
	}
	g[gfcEnable] = f.Enable
	for priority, value := range f.Values {
		if f.Enable>>priority&1 == 0 {
			value = 0
		}
		binary.BigEndian.PutUint16(g[gfcValues+2*priority:], value)
	}
}

// EncodeGFCFrame writes a whole GFC frame into the first EthernetMinLen bytes of
// frame, padded with zeros, and returns its length.
func EncodeGFCFrame(frame []byte, src MAC, f *GFCFields) int {
	GFC(controlBody(frame, src)).Encode(f)
	return EthernetMinLen
}
