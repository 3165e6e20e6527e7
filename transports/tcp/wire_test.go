package tcp

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"

	"railbed/transports"
)

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// The bytes are written out from the picture in wire.go.
func TestHeaderBytes(t *testing.T) {
	h := header{op: transports.OpWriteImm, imm: 0x01020304, length: 0x00050607, key: 0x08090a0b0c0d0e0f,
		offset: 0x1011121314151617}
	var got [headerLen]byte
	for i := range got {
		got[i] = 0xff // encode must leave nothing of an earlier header
	}
	h.encode(&got)
	want := unhex(t, "02000000"+"01020304"+"00050607"+"00000000"+"08090a0b0c0d0e0f"+"1011121314151617")
	if !bytes.Equal(got[:], want) {
		t.Errorf("header is % x, want % x", got, want)
	}
	back, err := decodeHeader(want)
	if err != nil || back != h {
		t.Errorf("decoded %+v, %v", back, err)
	}
	h.unsignaled, want[1] = true, 1
	if h.encode(&got); !bytes.Equal(got[:], want) {
		t.Errorf("header of an unsignaled message is % x, want % x", got, want)
	}
	if back, err := decodeHeader(want); err != nil || back != h {
		t.Errorf("decoded %+v, %v", back, err)
	}
	for name, bad := range map[string]string{
		"operation 0":  "00000000000000000000000000000000" + "00000000000000000000000000000000",
		"operation 3":  "03000000000000000000000000000000" + "00000000000000000000000000000000",
		"reserved":     "01000001000000000000000000000000" + "00000000000000000000000000000000",
		"flags":        "01020000000000000000000000000000" + "00000000000000000000000000000000",
		"reserved end": "01000000000000000000000000000001" + "00000000000000000000000000000000",
		"too long":     "01000000000000004000000100000000" + "00000000000000000000000000000000",
	} {
		if h, err := decodeHeader(unhex(t, bad)); err == nil {
			t.Errorf("%s: decoded %+v", name, h)
		}
	}
}

func TestReplyBytes(t *testing.T) {
	r := reply{code: replyBounds, number: 5, detail: 0x1122334455667788}
	want := unhex(t, "0300000000000000"+"0000000000000005"+"1122334455667788")
	if got := r.append(nil); !bytes.Equal(got, want) {
		t.Errorf("reply is % x, want % x", got, want)
	}
	if back := decodeReply((*[replyLen]byte)(want)); back != r {
		t.Errorf("decoded %+v", back)
	}
}

func TestAddressBytes(t *testing.T) {
	a := address{at: netip.MustParseAddrPort("10.1.2.3:18600"), id: endpointID{15: 7}}
	want := unhex(t, "04"+"0a010203"+"48a8"+"00000000000000000000000000000007")
	if got := a.encode(); !bytes.Equal(got, want) {
		t.Errorf("address is % x, want % x", got, want)
	}
	six := address{at: netip.MustParseAddrPort("[fd00::1]:18601"), id: endpointID{0: 1}}
	for _, a := range []address{a, six} {
		if back, err := decodeAddress(a.encode()); err != nil || back != a {
			t.Errorf("%v decoded as %v, %v", a.at, back.at, err)
		}
	}
	for name, bad := range map[string]netip.AddrPort{
		"port 0":      netip.MustParseAddrPort("10.0.0.1:0"),
		"unspecified": netip.MustParseAddrPort("0.0.0.0:1"),
		"multicast":   netip.MustParseAddrPort("[ff02::1]:1"),
	} {
		if _, err := decodeAddress(address{at: bad}.encode()); err == nil {
			t.Errorf("%s was taken as an address", name)
		}
	}
}

func FuzzAddress(f *testing.F) {
	f.Add(address{at: netip.MustParseAddrPort("10.1.2.3:18600")}.encode())
	f.Add(address{at: netip.MustParseAddrPort("[fd00::1]:18600")}.encode())
	f.Add([]byte{16, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if a, err := decodeAddress(raw); err == nil && !bytes.Equal(a.encode(), raw) {
			t.Errorf("% x decodes to %v, which encodes to % x", raw, a, a.encode())
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(make([]byte, headerLen))
	f.Add(append([]byte{2}, make([]byte, headerLen-1)...))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) < headerLen {
			return
		}
		h, err := decodeHeader(raw)
		if err != nil {
			return
		}
		var back [headerLen]byte
		if h.encode(&back); !bytes.Equal(back[:], raw[:headerLen]) {
			t.Errorf("% x decodes to %+v, which encodes to % x", raw[:headerLen], h, back)
		}
	})
}
