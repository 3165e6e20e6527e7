package wire

import (
	"bytes"
	"testing"
)

func TestPFC(t *testing.T) {
	frame := sample(t, samplePFC)
	equal(t, "destination", Ethernet(frame).Dst(), MACControlAddress)
	equal(t, "type", Ethernet(frame).EtherType(), EtherTypeMACControl)
	b := frame[EthernetLen:]
	cut(t, PFC(b), PFCLen, PFC.Valid)
	cut(t, MACControl(b[:PFCLen]), PFCLen, func(m MACControl) bool {
		return m.Valid() && m.Opcode() == OpcodePFC
	})
	p := PFC(b)
	equal(t, "enable", p.Enable(), 0xff)
	want := [PFCPriorities]uint16{0x0807, 0x0605, 0x0403, 0x0201}
	for priority := range PFCPriorities {
		equal(t, "quanta", p.Quanta(priority), want[priority])
		equal(t, "enabled", p.Enabled(priority), true)
	}
	made := bytes.Repeat([]byte{0xee}, EthernetMinLen)
	n := EncodePFCFrame(made, MAC{0, 0, 0, 0, 0, 7}, &PFCFields{Enable: 0xff, Quanta: want})
	if n != EthernetMinLen || !bytes.Equal(made, frame[:n]) {
		t.Errorf("encoded % x", made)
	}
}

// Bit n of the vector's lower byte is priority n, IEEE 802.3 annex 31D; tshark
// shows the same for these bytes (capture/layers holds that).
func TestPFCOfOnePriority(t *testing.T) {
	b := make([]byte, PFCLen)
	PFC(b).Encode(&PFCFields{Enable: 1 << 3, Quanta: [8]uint16{0: 9, 3: 0xffff}})
	if want := sample(t, "0101 0008 0000 0000 0000 ffff 0000 0000 0000 0000"); !bytes.Equal(b, want) {
		t.Errorf("encoded % x, want % x", b, want)
	}
	for priority := range PFCPriorities {
		equal(t, "enabled", PFC(b).Enabled(priority), priority == 3)
	}
}

// A pause frame as Wikipedia shows it ("Ethernet flow control", Pause frame):
// opcode 0x0001, then the time.
func TestPause(t *testing.T) {
	b := sample(t, "0001 ffff")
	cut(t, MACControl(b), 4, MACControl.Valid)
	equal(t, "opcode", MACControl(b).Opcode(), OpcodePause)
	equal(t, "quanta", MACControl(b).PauseQuanta(), 0xffff)
	equal(t, "PFC", PFC(append(b, make([]byte, 20)...)).Valid(), false)
	equal(t, "other opcode", MACControl(sample(t, "0002")).Valid(), true)
}
