package infiniband

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"
)

// The messages of a connection by rdma_cm and of its end, by the tables of IBTA,
// chapter 12: each field's bytes are where the document has them.
func TestConnectionMessages(t *testing.T) {
	gid := func(last byte) (g [16]byte) { return [16]byte{10: 0xFF, 11: 0xFF, 12: 10, 15: last} }
	req := REQFields{
		LocalComm:     0x01020304,
		Service:       TCPService + 18515,
		CAGUID:        0x1112131415161718,
		QKey:          0x21222324,
		QPN:           0x313233,
		Resources:     0x41,
		Depth:         0x42,
		RemoteTimeout: 20,
		Transport:     1,
		FlowControl:   true,
		PSN:           0x515253,
		LocalTimeout:  19,
		Retries:       7,
		PKey:          PKey,
		MTU:           3,
		RNRRetries:    6,
		MaxRetries:    15,
		SRQ:           true,
		Primary: Path{LocalLID: 0x6162, RemoteLID: 0x6364, LocalGID: gid(1), RemoteGID: gid(2),
			FlowLabel: 0x71727, PacketRate: 0x3A, TrafficClass: 0x74, HopLimit: 0x75,
			ServiceLevel: 9, SubnetLocal: true, AckTimeout: 18},
		Private: [REQPrivate]byte{0: 0x81, REQPrivate - 1: 0x8F},
	}
	m := MAD(bytes.Repeat([]byte{0xA5}, MADLen))
	m.EncodeCM(AttributeREQ, 0x9192939495969798)
	REQ(m.CM()).Encode(&req)
	want := slab(MADLen, map[int]string{
		0: "01 07 02 03", 8: "9192939495969798", 16: "0010",
		24 + 0: "01020304", 24 + 8: "0000000001064853", 24 + 16: "1112131415161718", 24 + 28: "21222324",
		24 + 32: "313233 41",
		24 + 39: "42", 24 + 43: "a3", 24 + 44: "515253 9f", 24 + 48: "ffff", 24 + 50: "36 f8",
		24 + 52: "6162 6364 00000000000000000000ffff0a000001 00000000000000000000ffff0a000002 7172703a 74 " +
			"75 98 90",
		24 + 140: "81", 24 + 231: "8f",
	}, t)
	if !bytes.Equal(m, want) {
		t.Errorf("REQ is\n% x, want\n% x", []byte(m), want)
	}
	if !m.Valid() || !m.IsCM() || m.Attribute().String() != "REQ" || REQ(m.CM()).Fields() != req {
		t.Errorf("read %+v\n%+v", m.Fields(), REQ(m.CM()).Fields())
	}

	rep := REPFields{
		LocalComm:   0x01020304,
		RemoteComm:  0x05060708,
		QKey:        0x11121314,
		QPN:         0x212223,
		PSN:         0x313233,
		Resources:   0x41,
		Depth:       0x42,
		AckDelay:    15,
		Failover:    2,
		FlowControl: true,
		RNRRetries:  5,
		SRQ:         true,
		CAGUID:      0x5152535455565758,
		Private:     [REPPrivate]byte{0: 0x61, REPPrivate - 1: 0x6F},
	}
	same(t, REP(make([]byte, CMLen)), &rep, map[int]string{
		0: "01020304 05060708 11121314 212223", 20: "313233 00 41 42 7d b0 5152535455565758 61", 231: "6f",
	})
	comm := Comm{Local: 0x01020304, Remote: 0x05060708}
	const both = "01020304 05060708"
	same(t, RTU(make([]byte, CMLen)), &RTUFields{comm, [RTUPrivate]byte{0: 0x11, RTUPrivate - 1: 0x1F}},
		map[int]string{0: both + "11", 231: "1f"})
	same(t, REJ(make([]byte, CMLen)),
		&REJFields{comm, AboutREP, 72, RejectConsumer, [REJInfo]byte{0: 0x21, REJInfo - 1: 0x2F},
			[REJPrivate]byte{0: 0x31, REJPrivate - 1: 0x3F}},
		map[int]string{0: both + "40 90 001c 21", 83: "2f 31", 231: "3f"})
	same(t, MRA(make([]byte, CMLen)),
		&MRAFields{comm, AboutOther, 21, [MRAPrivate]byte{0: 0x11, MRAPrivate - 1: 0x1F}},
		map[int]string{0: both + "80 a8 11", 231: "1f"})
	same(t, DREQ(make([]byte, CMLen)),
		&DREQFields{comm, 0x212223, [DREQPrivate]byte{0: 0x11, DREQPrivate - 1: 0x1F}},
		map[int]string{0: both + "212223 00 11", 231: "1f"})
	same(t, DREP(make([]byte, CMLen)), &DREPFields{comm, [DREPPrivate]byte{0: 0x11, DREPPrivate - 1: 0x1F}},
		map[int]string{0: both + "11", 231: "1f"})
}

// slab is bytes of which some are given, by where they are, and all others 0.
func slab(length int, parts map[int]string, t *testing.T) []byte {
	t.Helper()
	b := make([]byte, length)
	for at, text := range parts {
		copy(b[at:], unhex(t, text))
	}
	return b
}

// message is a message of communication management with fields of its own.
type message[F any] interface {
	~[]byte
	Valid() bool
	Fields() F
	Encode(*F)
}

// same writes fields, compares the bytes with the parts, and reads the fields again.
func same[M message[F], F comparable](t *testing.T, m M, f *F, parts map[int]string) {
	t.Helper()
	m.Encode(f)
	if want := slab(CMLen, parts, t); !bytes.Equal(m, want) {
		t.Errorf("%T is\n% x, want\n% x", m, []byte(m), want)
	}
	if got := m.Fields(); !m.Valid() || m[:CMLen-1].Valid() || got != *f {
		t.Errorf("%T read as\n%+v, want\n%+v", m, got, *f)
	}
}

// roundTrip reads any bytes as a message, writes the fields, and reads them again. Both readings
// must be the same.
func roundTrip[M message[F], F comparable](t *testing.T, m M) {
	t.Helper()
	if !m.Valid() {
		return
	}
	f := m.Fields()
	again := M(make([]byte, CMLen))
	again.Encode(&f)
	if got := again.Fields(); got != f {
		t.Fatalf("%T: wrote %+v and read %+v", m, f, got)
	}
}

// roundTrips is roundTrip for each message.
func roundTrips(t *testing.T, b []byte) {
	roundTrip(t, REQ(b))
	roundTrip(t, REP(b))
	roundTrip(t, RTU(b))
	roundTrip(t, REJ(b))
	roundTrip(t, MRA(b))
	roundTrip(t, DREQ(b))
	roundTrip(t, DREP(b))
}

// Each field is read from the bits that are written for it, for any values of the others.
func TestConnectionMessagesWithAnyBits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, CMLen)
	for range 200 {
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		roundTrips(t, b)
	}
}

// The private data of a REQ by rdma_cm: struct cma_hdr of Linux.
func TestIPService(t *testing.T) {
	f := IPServiceFields{Version: 4, Port: 0xC001, Source: [16]byte{12: 10, 15: 1},
		Destination: [16]byte{12: 10, 15: 2}}
	s := make(IPService, IPServiceLen)
	s.Encode(&f)
	want := unhex(t, "00 40 c001 000000000000000000000000 0a000001 000000000000000000000000 0a000002")
	if !bytes.Equal(s, want) {
		t.Errorf("% x, want % x", []byte(s), want)
	}
	if !s.Valid() || s.Fields() != f || s[:35].Valid() {
		t.Errorf("read %+v", s.Fields())
	}
	s[1] = 0x50
	if s.Valid() {
		t.Error("version 5 of IP is valid")
	}
}

func TestMADsOfOthers(t *testing.T) {
	m := make(MAD, MADLen)
	m.EncodeCM(AttributeDREP, 7)
	want := MADFields{Class: 7, ClassVersion: 2, Method: 3, Transaction: 7, Attribute: AttributeDREP}
	if got := m.Fields(); !reflect.DeepEqual(got, want) || m.Attribute().String() != "DREP" ||
		Attribute(0x17).String() != "unknown" {
		t.Errorf("read %+v", got)
	}
	m[1] = 3 // subnet administration
	if !m.Valid() || m.IsCM() || m[:MADLen-1].Valid() {
		t.Error("another class is taken for communication management")
	}
	for at, value := range map[int]byte{0: 2, 2: 1, 3: 0x83} { // versions, and a method that answers
		m.EncodeCM(AttributeDREP, 7)
		if m[at] = value; m.Valid() && m.IsCM() {
			t.Errorf("with %d in byte %d it is taken for communication management", value, at)
		}
	}
}
