package quic

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
	want := unhex(t, "02000000"+"01020304"+"00000000"+"00050607"+"08090a0b0c0d0e0f"+"1011121314151617")
	if got := h.append(nil); !bytes.Equal(got, want) {
		t.Errorf("header is % x, want % x", got, want)
	}
	if back, err := decodeHeader((*[headerLen]byte)(want)); err != nil || back != h {
		t.Errorf("decoded %+v, %v", back, err)
	}
	for name, bad := range map[string]string{
		"operation 0": "00000000000000000000000000000000" + "00000000000000000000000000000000",
		"operation 3": "03000000000000000000000000000000" + "00000000000000000000000000000000",
		"reserved":    "01000001000000000000000000000000" + "00000000000000000000000000000000",
		"too long":    "01000000000000000000000040000001" + "00000000000000000000000000000000",
		"far too":     "01000000000000000000000100000001" + "00000000000000000000000000000000",
	} {
		if h, err := decodeHeader((*[headerLen]byte)(unhex(t, bad))); err == nil {
			t.Errorf("%s: decoded %+v", name, h)
		}
	}
}

func TestReplyBytes(t *testing.T) {
	r := reply{code: replyBounds, stream: 5, detail: 0x1122334455667788}
	want := unhex(t, "0500000000000000"+"0000000000000005"+"1122334455667788")
	if got := r.append(nil); !bytes.Equal(got, want) {
		t.Errorf("reply is % x, want % x", got, want)
	}
	if back := decodeReply((*[replyLen]byte)(want)); back != r {
		t.Errorf("decoded %+v", back)
	}
}

func TestAddressBytes(t *testing.T) {
	a := address{at: netip.MustParseAddrPort("10.1.2.3:18600"), id: identity{31: 7}}
	want := unhex(t, "04"+"0a010203"+"48a8"+
		"0000000000000000000000000000000000000000000000000000000000000007")
	if got := a.encode(); !bytes.Equal(got, want) {
		t.Errorf("address is % x, want % x", got, want)
	}
	six := address{at: netip.MustParseAddrPort("[fd00::1]:18601"), id: identity{0: 1}}
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
		h, err := decodeHeader((*[headerLen]byte)(raw))
		if err == nil && !bytes.Equal(h.append(nil), raw[:headerLen]) {
			t.Errorf("% x decodes to %+v, which encodes to % x", raw[:headerLen], h, h.append(nil))
		}
	})
}
