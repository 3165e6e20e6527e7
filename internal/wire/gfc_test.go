package wire

import (
	"bytes"
	"testing"

	"railbed/testkit/protocoltest"
)

// The example of PROTOCOL.md, in the words that stand around it.
func TestGFC(t *testing.T) {
	b := protocoltest.Example(t, "gentle-flow-control")
	if len(b) != GFCLen {
		t.Fatalf("the example has %d bytes", len(b))
	}
	cut(t, GFC(b), GFCLen, GFC.Valid)
	want := GFCFields{Enable: 1<<3 | 1<<4, Share: true, Values: [8]uint16{3: 0x8000, 4: 1}}
	equal(t, "fields", GFC(b).Fields(), want)
	made := bytes.Repeat([]byte{0xee}, EthernetMinLen)
	n := EncodeGFCFrame(made, MAC{2, 0, 0, 0, 0, 1}, &want)
	frame := append(sample(t, "0180c2000001 020000000001 8808"), b...)
	frame = append(frame, make([]byte, EthernetMinLen-len(frame))...)
	if n != EthernetMinLen || !bytes.Equal(made, frame) {
		t.Errorf("encoded % x, want % x", made, frame)
	}
	for at, value := range map[int]byte{0: 0xfe, 2: 0x02, 4: 'H', 5: 2} {
		spoilt := bytes.Clone(b)
		spoilt[at] = value
		if GFC(spoilt).Valid() {
			t.Errorf("byte %d is %#x, and it is valid", at, value)
		}
	}
}

// A share of 0 is read as 1, a stage of 0 as 0.
func TestGFCNeverStops(t *testing.T) {
	b := make([]byte, GFCLen)
	for _, share := range []bool{false, true} {
		GFC(b).Encode(&GFCFields{Enable: 0xff, Share: share})
		want := map[bool]uint16{false: 0, true: 1}[share]
		for priority := range PFCPriorities {
			equal(t, "value", GFC(b).Value(priority), want)
		}
	}
}
