package streams

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
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
	h := Header{Op: transports.OpWriteImm, Imm: 0x01020304, Length: 0x00050607, Key: 0x08090a0b0c0d0e0f,
		Offset: 0x1011121314151617}
	unsignaled := h
	unsignaled.Unsignaled = true
	for _, test := range []struct {
		format Format
		Header
		back Header
		want string
	}{
		{FormatTCP, h, h, "02000000" + "01020304" + "00050607" + "00000000"},
		{FormatTCP, unsignaled, unsignaled, "02010000" + "01020304" + "00050607" + "00000000"},
		{FormatQUIC, h, h, "02000000" + "01020304" + "00000000" + "00050607"},
		{FormatQUIC, unsignaled, h, "02000000" + "01020304" + "00000000" + "00050607"},
	} {
		want := unhex(t, test.want+"08090a0b0c0d0e0f"+"1011121314151617")
		if got := test.format.Encode(test.Header); !bytes.Equal(got[:], want) {
			t.Errorf("header is % x, want % x", got, want)
		}
		if back, err := test.format.Decode((*[HeaderLen]byte)(want)); err != nil || back != test.back {
			t.Errorf("decoded %+v, %v", back, err)
		}
	}
}

func TestBadHeaders(t *testing.T) {
	const zero = "00000000000000000000000000000000"
	for name, test := range map[string]struct {
		format Format
		start  string // the half of the header before the key
		want   string
	}{
		"operation 0":        {FormatTCP, zero, "operation 0"},
		"operation 3":        {FormatTCP, "03" + zero[2:], "operation 3"},
		"reserved":           {FormatTCP, "01000001" + zero[8:], "reserved"},
		"flags":              {FormatTCP, "01020000" + zero[8:], "reserved"},
		"reserved end":       {FormatTCP, "010000000000000000000000" + "00000001", "reserved"},
		"too long":           {FormatTCP, "0100000000000000" + "4000000100000000", "limit"},
		"operation 0, quic":  {FormatQUIC, zero, "operation 0"},
		"operation 3, quic":  {FormatQUIC, "03" + zero[2:], "operation 3"},
		"reserved, quic":     {FormatQUIC, "01000001" + zero[8:], "reserved"},
		"flags, quic":        {FormatQUIC, "01010000" + zero[8:], "reserved"},
		"too long, quic":     {FormatQUIC, "0100000000000000" + "0000000040000001", "limit"},
		"far too long, quic": {FormatQUIC, "0100000000000000" + "0000000100000001", "reserved"},
	} {
		raw := (*[HeaderLen]byte)(unhex(t, test.start+zero))
		if h, err := test.format.Decode(raw); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: decoded %+v, %v, want %s", name, h, err, test.want)
		}
	}
}

func TestReplyBytes(t *testing.T) {
	r := Reply{Code: 3, Number: 5, Detail: 0x1122334455667788}
	want := unhex(t, "0300000000000000"+"0000000000000005"+"1122334455667788")
	if got := r.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("reply is % x, want % x", got, want)
	}
	if back := DecodeReply((*[ReplyLen]byte)(want)); back != r {
		t.Errorf("decoded %+v", back)
	}
}

func TestAddressBytes(t *testing.T) {
	const id = "0000000000000000" + "0000000000000007"
	a := Address{At: netip.MustParseAddrPort("10.1.2.3:18600"), ID: string(unhex(t, id))}
	want := unhex(t, "04"+"0a010203"+"48a8"+id)
	if got := a.Encode(); !bytes.Equal(got, want) {
		t.Errorf("address is % x, want % x", got, want)
	}
	six := Address{At: netip.MustParseAddrPort("[fd00::1]:18601"), ID: strings.Repeat("\x01", 32)}
	for _, a := range []Address{a, six} {
		if back, err := decodeAddress(a.Encode(), len(a.ID), "tcp"); err != nil || back != a {
			t.Errorf("%v decoded as %v, %v", a.At, back.At, err)
		}
		if back, err := decodeAddress(a.Encode(), len(a.ID)+1, "tcp"); err == nil {
			t.Errorf("%v with an id that is too short decoded as %v", a.At, back.At)
		}
	}
	for name, bad := range map[string]netip.AddrPort{
		"port 0":      netip.MustParseAddrPort("10.0.0.1:0"),
		"unspecified": netip.MustParseAddrPort("0.0.0.0:1"),
		"multicast":   netip.MustParseAddrPort("[ff02::1]:1"),
	} {
		if _, err := decodeAddress(Address{At: bad, ID: "id"}.Encode(), 2, "tcp"); err == nil ||
			!strings.Contains(err.Error(), "is not the address of a tcp endpoint") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzAddress(f *testing.F) {
	id := strings.Repeat("i", 16)
	f.Add(Address{At: netip.MustParseAddrPort("10.1.2.3:18600"), ID: id}.Encode())
	f.Add(Address{At: netip.MustParseAddrPort("[fd00::1]:18600"), ID: id}.Encode())
	f.Add([]byte{16, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if a, err := decodeAddress(raw, len(id), "tcp"); err == nil && !bytes.Equal(a.Encode(), raw) {
			t.Errorf("% x decodes to %v, which encodes to % x", raw, a, a.Encode())
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(make([]byte, HeaderLen))
	f.Add(append([]byte{2}, make([]byte, HeaderLen-1)...))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) < HeaderLen {
			return
		}
		for _, format := range []Format{FormatTCP, FormatQUIC} {
			h, err := format.Decode((*[HeaderLen]byte)(raw))
			if err != nil {
				continue
			}
			if back := format.Encode(h); !bytes.Equal(back[:], raw[:HeaderLen]) {
				t.Errorf("% x decodes to %+v, which encodes to % x", raw[:HeaderLen], h, back)
			}
		}
	})
}
