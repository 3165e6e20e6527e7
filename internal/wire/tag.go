package wire

import "encoding/binary"

// Layout of a tag, IEEE 802.1Q, 9.3: offsets in bytes.
const (
	tagTPID = 0
	tagTCI  = 2
)

// Tag is an 802.1Q tag and the data after it, from its tag protocol identifier on. In a frame with
// one tag it begins 12 bytes after the frame's start.
type Tag []byte

// TagFields are the fields of a tag. TPID 0 means EtherTypeVLAN.
type TagFields struct {
	TPID         uint16
	Priority     uint8 // PCP, 0 to 7
	DropEligible bool
	VLAN         uint16 // 0 to 4095; 0 is a priority tag
}

// IsTag reports whether an EtherType announces a tag.
func IsTag(etherType uint16) bool { return etherType == EtherTypeVLAN || etherType == EtherTypeQinQ }

// Valid reports whether the bytes hold a tag and the type after it.
func (t Tag) Valid() bool { return len(t) >= TagLen+2 && IsTag(t.TPID()) }

// TPID is the tag protocol identifier, one of the EtherTypes for tags.
func (t Tag) TPID() uint16 { return binary.BigEndian.Uint16(t[tagTPID:]) }

// TCI is the tag control information: priority, drop eligibility, VLAN.
func (t Tag) TCI() uint16 { return binary.BigEndian.Uint16(t[tagTCI:]) }

// Priority is the priority code point, 0 to 7.
func (t Tag) Priority() uint8 { return t[tagTCI] >> 5 }

// SetPriority writes the priority code point.
func (t Tag) SetPriority(priority uint8) { t[tagTCI] = t[tagTCI]&0x1F | priority<<5 }

// DropEligible is the drop eligible indicator.
func (t Tag) DropEligible() bool { return t[tagTCI]&0x10 != 0 }

// VLAN is the VLAN identifier, 0 to 4095.
func (t Tag) VLAN() uint16 { return t.TCI() & 0x0FFF }

// EtherType is the type after the tag, which may announce another tag.
func (t Tag) EtherType() uint16 { return binary.BigEndian.Uint16(t[TagLen:]) }

// Encode writes the tag, but not the type after it.
func (t Tag) Encode(f *TagFields) {
	tpid, tci := f.TPID, uint16(f.Priority&7)<<13|f.VLAN&0x0FFF
	if tpid == 0 {
		tpid = EtherTypeVLAN
	}
	if f.DropEligible {
		tci |= 0x1000
	}
	binary.BigEndian.PutUint16(t[tagTPID:], tpid)
	binary.BigEndian.PutUint16(t[tagTCI:], tci)
}
