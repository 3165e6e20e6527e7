package wire

import (
	"bytes"
	"testing"
)

// The tag of the frames of vlan.cap.gz, Wireshark's SampleCaptures: VLAN 32,
// priority 0, IPv4. The second one is made from the layout in IEEE 802.1Q, 9.6:
// priority 5, drop eligible, VLAN 0x123.
func TestTag(t *testing.T) {
	b := sample(t, "8100 0020 0800")
	cut(t, Tag(b), 6, Tag.Valid)
	equal(t, "VLAN", Tag(b).VLAN(), 32)
	equal(t, "priority", Tag(b).Priority(), 0)
	equal(t, "drop eligible", Tag(b).DropEligible(), false)
	equal(t, "type", Tag(b).EtherType(), EtherTypeIPv4)
	equal(t, "other type", Tag(sample(t, "0800 0020 0800")).Valid(), false)

	b = sample(t, "88a8 b123 8100")
	equal(t, "priority", Tag(b).Priority(), 5)
	equal(t, "drop eligible", Tag(b).DropEligible(), true)
	equal(t, "VLAN", Tag(b).VLAN(), 0x123)
	made := sample(t, "0000 0000 8100")
	Tag(made).Encode(&TagFields{TPID: EtherTypeQinQ, Priority: 5, DropEligible: true, VLAN: 0x123})
	if !bytes.Equal(made, b) {
		t.Errorf("encoded % x", made)
	}
	Tag(made).SetPriority(2)
	if want := sample(t, "88a8 5123 8100"); !bytes.Equal(made, want) {
		t.Errorf("with priority 2 % x", made)
	}
	Tag(made).Encode(&TagFields{VLAN: 32})
	equal(t, "default", Tag(made).TPID(), EtherTypeVLAN)
}
