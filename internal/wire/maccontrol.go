package wire

import "encoding/binary"

// Layout of a MAC control frame's payload: IEEE 802.3 clause 31, annex 31B for
// pause and annex 31D for PFC (802.1Qbb). Offsets in bytes.
const (
	macControlOpcode = 0
	pauseQuanta      = 2
	pfcEnable        = 2
	pfcQuanta        = 4

	pauseLen = 4  // bytes of opcode and quanta
	PFCLen   = 20 // bytes of opcode, class enable vector and 8 quanta

	// PFCPriorities is the number of priorities that can be paused separately.
	PFCPriorities = 8
	// PauseQuantumBits is the unit of pause times: the time of this many bits on the link.
	PauseQuantumBits = 512
	// MaxQuanta is the longest pause that one frame can request.
	MaxQuanta = 0xFFFF
)

// Opcodes of MAC control: IEEE 802.3 annex 31A.
const (
	OpcodePause = 0x0001
	OpcodePFC   = 0x0101
)

// MACControlAddress is the destination of pause and PFC frames: the station at the other end of the
// link.
var MACControlAddress = MAC{0x01, 0x80, 0xC2, 0x00, 0x00, 0x01}

// MACControl is a MAC control frame after its Ethernet header.
type MACControl []byte

// Valid reports whether the bytes hold an opcode and, for pause and PFC, all fields. Frames with
// other opcodes are valid and have no meaning here.
func (m MACControl) Valid() bool {
	if len(m) < pauseQuanta {
		return false
	}
	switch m.Opcode() {
	case OpcodePause:
		return len(m) >= pauseLen
	case OpcodePFC:
		return len(m) >= PFCLen
	}
	return true
}

// Opcode is OpcodePause, OpcodePFC or another value.
func (m MACControl) Opcode() uint16 { return binary.BigEndian.Uint16(m[macControlOpcode:]) }

// PauseQuanta is the pause time of a classic 802.3x pause frame, in quanta; 0
// ends the pause.
func (m MACControl) PauseQuanta() uint16 { return binary.BigEndian.Uint16(m[pauseQuanta:]) }

// PFC is a PFC frame after its Ethernet header. It is valid if MACControl is valid and the opcode
// is OpcodePFC.
type PFC []byte

// PFCFields are the fields of a PFC frame.
type PFCFields struct {
	// Enable has bit n set if the frame has a time for priority n.
	Enable uint8
	// Quanta are the pause times by priority; 0 ends a pause.
	Quanta [PFCPriorities]uint16
}

// Valid reports whether the bytes are a PFC frame.
func (p PFC) Valid() bool { return len(p) >= PFCLen && MACControl(p).Opcode() == OpcodePFC }

// Enable is the class enable vector: bit n is set if the frame has a time for priority n. The
// reserved upper byte is ignored.
func (p PFC) Enable() uint8 { return p[pfcEnable+1] }

// Enabled reports whether the frame has a time for a priority, 0 to 7.
func (p PFC) Enabled(priority int) bool { return p.Enable()>>(priority&7)&1 != 0 }

// Quanta is the time to pause a priority, 0 to 7, in units of 512 bit times; 0 ends its pause. It
// has no meaning unless the priority is enabled.
func (p PFC) Quanta(priority int) uint16 {
	return binary.BigEndian.Uint16(p[pfcQuanta+2*(priority&7):])
}

// Encode writes opcode, class enable vector and times. It writes times of priorities that are not
// enabled as 0.
func (p PFC) Encode(f *PFCFields) {
	_ = p[PFCLen-1]
	binary.BigEndian.PutUint16(p[macControlOpcode:], OpcodePFC)
	binary.BigEndian.PutUint16(p[pfcEnable:], uint16(f.Enable))
	for i, quanta := range f.Quanta {
		if f.Enable>>i&1 == 0 {
			quanta = 0
		}
		binary.BigEndian.PutUint16(p[pfcQuanta+2*i:], quanta)
	}
}

// EncodePFCFrame writes a whole PFC frame into the first EthernetMinLen bytes
// of frame, padded with zeros, and returns its length.
func EncodePFCFrame(frame []byte, src MAC, f *PFCFields) int {
	PFC(controlBody(frame, src)).Encode(f)
	return EthernetMinLen
}

// controlBody writes the Ethernet header of a MAC control frame of the minimum length and returns
// the rest of the frame, all zeros.
func controlBody(frame []byte, src MAC) []byte {
	Ethernet(frame).Encode(&EthernetFields{Dst: MACControlAddress, Src: src, EtherType: EtherTypeMACControl})
	body := frame[EthernetLen:EthernetMinLen]
	clear(body)
	return body
}
