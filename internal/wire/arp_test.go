package wire

import (
	"bytes"
	"testing"
)

func TestARP(t *testing.T) {
	b := sample(t, sampleARP)[EthernetLen:]
	cut(t, ARP(b), ARPLen, ARP.Valid)
	a := ARP(b)
	equal(t, "operation", a.Operation(), ARPRequest)
	equal(t, "sender", a.SenderMAC().String(), "00:07:0d:af:f4:54")
	equal(t, "sender", a.SenderIP(), [4]byte{24, 166, 172, 1})
	equal(t, "target", a.TargetMAC(), MAC{})
	equal(t, "target", a.TargetIP(), [4]byte{24, 166, 173, 159})
	made := make([]byte, ARPLen)
	ARP(made).Encode(&ARPFields{ARPRequest, a.SenderMAC(), MAC{}, a.SenderIP(), a.TargetIP()})
	if !bytes.Equal(made, b[:ARPLen]) {
		t.Errorf("encoded % x", made)
	}
	for i := range 6 { // another hardware, protocol or length
		other := bytes.Clone(b)
		other[i] ^= 1
		equal(t, "other kind", ARP(other).Valid(), false)
	}
}
