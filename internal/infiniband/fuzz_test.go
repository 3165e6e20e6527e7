package infiniband

import (
	"bytes"
	"testing"
)

// FuzzPacket gives any bytes as the UDP payload. What is valid is read without a
// panic and, written again, the same but for reserved bits and padding.
func FuzzPacket(f *testing.F) {
	for _, v := range vectors(f) {
		_, p := split(unhex(f, v.Bytes))
		f.Add([]byte(p))
	}
	headers := make([]byte, HeadersIPv4)
	f.Fuzz(func(t *testing.T, b []byte) {
		p := Packet(b[:len(b):len(b)])
		if !p.Valid() {
			return
		}
		fields := p.Fields()
		payload := p.Payload()
		again := make(Packet, Len(p.Opcode(), len(payload)))
		again.Encode(&fields, len(payload))
		copy(again.Payload(), payload)
		again.Seal(headers)
		if !again.Valid() || !again.ICRCValid(headers) || !bytes.Equal(again.Payload(), payload) {
			t.Fatalf("wrote % x from % x", []byte(again), b)
		}
		if got := again.Fields(); got != fields {
			t.Fatalf("wrote %+v, read %+v", fields, got)
		}
		p.ICRCValid(headers)
		if o := p.Opcode(); o.Request() && o.Response() || o.Starts() && o.Ends() && o.HeaderLen() == 0 ||
			o.String() == "" {
			t.Fatalf("%v", o)
		}
	})
}

// FuzzMAD gives any bytes as a management datagram, and as each of the messages.
func FuzzMAD(f *testing.F) {
	for a := AttributeREQ; a <= AttributeDREP; a++ {
		m := make(MAD, MADLen)
		m.EncodeCM(a, 1)
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := MAD(b[:len(b):len(b)])
		if !m.Valid() {
			return
		}
		m.Fields()
		m.IsCM()
		b = m.CM()
		roundTrips(t, b)
		if s := IPService(REQ(b)[reqPrivate:]); s.Valid() {
			fields := s.Fields()
			var again [IPServiceLen]byte
			IPService(again[:]).Encode(&fields)
			if IPService(again[:]).Fields() != fields {
				t.Fatalf("wrote %+v", fields)
			}
		}
	})
}
