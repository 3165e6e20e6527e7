package wire

import (
	"bytes"
	"testing"

	"railbed/testkit/protocoltest"
)

// The lives of transports/rd/PROTOCOL.md's examples.
const (
	lifeA uint64 = 0x0123456789ABCDEF
	lifeB uint64 = 0xFEDCBA9876543210
)

// rdExamples are the examples of transports/rd/PROTOCOL.md, in the words that
// stand around them: what each is read as, and written from.
var rdExamples = []struct {
	name string
	base RDBase
	same func(t *testing.T, b RD)
	make func(b RD, base RDBase)
}{
	{
		"data", RDBase{RDData, RDRepeat | RDImm | RDAckRequest, 0x11, 3, uint32(lifeB & 0xFFFFFFFF), lifeA, 5,
			16},
		func(t *testing.T, b RD) {
			equal(t, "fields", b.Data(), exampleData)
			equal(t, "sum", RDSum(b.Payload()), exampleData.Sum)
			equal(t, "trimmed", b.Trimmed(), false)
		},
		func(b RD, base RDBase) {
			for i := range 16 {
				b[RDDataLen+i] = uint8(0xA0 + i)
			}
			b.EncodeData(base, &exampleData)
		},
	},
	{
		"skip", RDBase{RDSkip, RDImm | RDDroppable | RDAckRequest, 0x11, 3, uint32(lifeB & 0xFFFFFFFF), lifeA,
			0xFFFFFFFE, 0},
		func(t *testing.T, b RD) { equal(t, "fields", b.Skip(), exampleSkip) },
		func(b RD, base RDBase) { b.EncodeSkip(base, &exampleSkip) },
	},
	{
		"ack", RDBase{RDAck, 0, 3, 0x11, uint32(lifeA & 0xFFFFFFFF), lifeB, 0xFFFFFFFE, 0},
		func(t *testing.T, b RD) {
			equal(t, "fields", b.Ack(), exampleAck)
			var came []uint32
			for n := uint32(1); n <= 128; n++ {
				if word, bit := RDAckBit(n); b.AckWord(word)&bit != 0 {
					came = append(came, b.Base().PSN+n)
				}
			}
			if len(came) != 4 || [4]uint32(came) != [4]uint32{0xFFFFFFFF, 1, 62, 64} {
				t.Errorf("%d came", came)
			}
			equal(t, "echo", b.AckEcho(0), exampleEchoes[0])
			equal(t, "echo", b.AckEcho(1), exampleEchoes[1])
		},
		func(b RD, base RDBase) {
			b.EncodeAck(base, &exampleAck, []uint64{0xA000000000000001, 0x4000000000000000}, exampleEchoes)
		},
	},
	{
		"nack", RDBase{RDNack, 0, 3, 0x11, uint32(lifeA & 0xFFFFFFFF), lifeB, 5, 0},
		func(t *testing.T, b RD) { equal(t, "fields", b.Nack(), exampleNack) },
		func(b RD, base RDBase) { b.EncodeNack(base, &exampleNack) },
	},
	{
		"probe", RDBase{RDProbe, RDAckRequest, 0x11, 3, uint32(lifeB & 0xFFFFFFFF), lifeA, 9, 0},
		func(t *testing.T, b RD) { equal(t, "timestamp", b.ProbeTimestamp(), 123_500_000) },
		func(b RD, base RDBase) { b.EncodeProbe(base, 123_500_000) },
	},
	{
		"reject", RDBase{RDReject, 0, 3, 0x11, uint32(lifeA & 0xFFFFFFFF), lifeB, 0, 0},
		func(t *testing.T, b RD) { equal(t, "fields", b.Reject(), exampleReject) },
		func(b RD, base RDBase) { b.EncodeReject(base, &exampleReject) },
	},
	{
		"close", RDBase{RDClose, 0, 0x11, 3, uint32(lifeB & 0xFFFFFFFF), lifeA, 9, 0},
		func(*testing.T, RD) {},
		func(b RD, base RDBase) { b.EncodeClose(base) },
	},
}

var (
	exampleData = RDDataFields{
		Key:       0x1122334455667788,
		Offset:    65536,
		Message:   3,
		Total:     12304,
		Position:  12288,
		Imm:       0xCAFE0001,
		Timestamp: 123_456_789,
		Sum:       0xDC43A2F8,
	}
	exampleSkip = RDSkipFields{Count: 1, Message: 7, Total: 65536, Imm: 0xCAFE0002, Timestamp: 123_460_000,
		Bytes: 4000, Position: 8000}
	exampleAck = RDAckFields{Limit: 1022, Timestamp: 123_456_789, Delay: 2500, Duplicates: 2,
		Received: 1 << 20, Words: 2, Echoes: 2, Room: 256}
	exampleEchoes = []RDEcho{{Path: 63489, Packets: 12, Marked: 3}, {Path: 64000, Packets: 255}}
	exampleNack   = RDNackFields{Reason: RDBounds, Path: 63489, Message: 3, Detail: 70000}
	exampleReject = RDRejectFields{Reason: RDRejectLife, Least: 1, Most: 1, Meant: 0x5EEDB00C, To: lifeA}
)

func TestRDExamples(t *testing.T) {
	if len(rdExamples) != RDTypes-1 {
		t.Fatalf("%d examples, want one of each of the %d types", len(rdExamples), RDTypes-1)
	}
	for _, example := range rdExamples {
		t.Run(example.name, func(t *testing.T) {
			b := RD(protocoltest.Example(t, "rd-"+example.name))
			equal(t, "valid", b.Valid(), true)
			equal(t, "base", b.Base(), example.base)
			example.same(t, b)
			made := make(RD, len(b))
			example.make(made, example.base)
			if !bytes.Equal(made, b) {
				t.Errorf("encoded % x, want % x", []byte(made), []byte(b))
			}
		})
	}
}

// RFC 3720 and others give the CRC-32C of the nine digits.
func TestRDSum(t *testing.T) {
	equal(t, "sum", RDSum([]byte("123456789")), 0xE3069283)
	equal(t, "sum of nothing", RDSum(nil), 0)
}

// The invalid datagrams of transports/rd/PROTOCOL.md, 2.10, each with a check that is correct for
// its type's header.
func TestRDInvalid(t *testing.T) {
	resealed := func(name string, change func(RD) RD, header int) RD {
		b := change(RD(protocoltest.Example(t, "rd-"+name)))
		if header <= len(b) {
			b.seal(header)
		}
		return b
	}
	set := func(at int, value byte) func(RD) RD {
		return func(b RD) RD { b[at] = value; return b }
	}
	longer := func(b RD) RD { return append(b, 0) }
	shorter := func(b RD) RD { return b[:len(b)-1] }
	for _, test := range []struct {
		why, name string
		change    func(RD) RD
		header    int
		valid     bool
	}{
		{"nothing", "data", set(0, 0x91), RDDataLen, true},
		{"first bit", "data", set(0, 0x11), RDDataLen, false},
		{"version 2", "data", set(0, 0xA1), RDDataLen, false},
		{"type 0", "data", set(0, 0x90), RDDataLen, false},
		{"type 8", "data", set(0, 0x98), RDDataLen, false},
		{"unknown flags", "data", set(1, 0x07), RDDataLen, true},
		{"the last port", "data", set(3, 255), RDDataLen, true},
		{"a byte behind the payload", "data", longer, RDDataLen, false},
		{"a trimmed payload", "data", shorter, RDDataLen, true},
		{"no payload", "data", func(b RD) RD { return b[:RDDataLen] }, RDDataLen, true},
		{"a trimmed header", "data", func(b RD) RD { return b[:RDDataLen-1] }, RDDataLen - 1, false},
		{"length of a skip", "skip", set(rdLength+1, 1), RDSkipLen, false},
		{"a longer skip", "skip", longer, RDSkipLen, false},
		{"a shorter skip", "skip", shorter, RDSkipLen - 1, false},
		{"a word more than there is", "ack", set(rdAckWords, 3), RDAckBytes(2, 2), false},
		{"an echo less than there is", "ack", set(rdAckEchoes, 1), RDAckBytes(2, 2), false},
		{"more room", "ack", set(rdAckRoom, 1), RDAckBytes(2, 2), true},
		{"the lists outside of the check", "ack", set(rdAckRoom, 1), RDAckLen, false},
		{"what is 0", "probe", set(rdProbeTimestamp+7, 1), RDProbeLen, true},
		{"an unknown reason", "nack", set(rdNackReason, 99), RDNackLen, true},
		{"a longer probe", "probe", longer, RDProbeLen, false},
		{"a shorter reject", "reject", shorter, RDRejectLen - 1, false},
		{"a longer close", "close", longer, RDBaseLen, false},
		{"encrypted", "close", func(b RD) RD {
			b[rdFlags] |= RDEncrypted
			return append(b, 1, 2, 3)
		}, RDBaseLen, true},
		{"encrypted, with a check over more", "data", set(rdFlags, RDEncrypted), RDDataLen, false},
		{"encrypted, of no type", "close", func(b RD) RD {
			b[rdVersionType], b[rdFlags] = 0x98, RDEncrypted
			return b
		}, RDBaseLen, false},
	} {
		if b := resealed(test.name, test.change, test.header); b.Valid() != test.valid {
			t.Errorf("%s: valid is %v", test.why, b.Valid())
		}
	}
	for _, ack := range []struct {
		words, echoes int
		valid         bool
	}{{RDMaxWords, RDMaxEchoes, true}, {RDMaxWords + 1, 0, false}, {0, RDMaxEchoes + 1, false}} {
		b := make(RD, RDAckBytes(ack.words, ack.echoes))
		b.EncodeAck(RDBase{}, &RDAckFields{}, make([]uint64, ack.words), make([]RDEcho, ack.echoes))
		equal(t, "valid", b.Valid(), ack.valid)
	}
}
