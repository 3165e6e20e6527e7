package wire

import (
	"testing"
)

// What is written is read back, and a changed bit is seen.
func TestRDRoundTrip(t *testing.T) {
	base := RDBase{Flags: RDImm | RDAckRequest, Source: 3, Destination: 15, Tag: 0x01020304,
		Life: 0x1112131415161718, PSN: 0x21222324}
	data := RDDataFields{Key: 1, Offset: 2, Message: 3, Total: 4, Position: 5, Imm: 6, Timestamp: 7, Sum: 8}
	ack := RDAckFields{Limit: 1, Timestamp: 2, Delay: 3, Duplicates: 4, Received: 5, Words: 2, Echoes: 1,
		Room: 6}
	words, echo := []uint64{1 << 63, 3}, RDEcho{Path: 0xF801, Packets: 9, Marked: 4}
	nack := RDNackFields{Reason: RDBounds, Path: 0xF802, Message: 9, Detail: 1 << 40}
	skip := RDSkipFields{Count: 1, Message: 2, Total: 3, Imm: 4, Timestamp: 5, Bytes: 6, Position: 7}
	reject := RDRejectFields{Reason: RDRejectLife, Least: 1, Most: 2, Meant: 7, To: 1 << 50}
	packets := map[RDType]RD{
		RDData:  make(RD, RDDataLen+100),
		RDSkip:  make(RD, RDSkipLen),
		RDAck:   make(RD, RDAckBytes(2, 1)),
		RDNack:  make(RD, RDNackLen),
		RDProbe: make(RD, RDProbeLen), RDReject: make(RD, RDRejectLen), RDClose: make(RD, RDBaseLen),
	}
	withLength := base
	withLength.Length = 100
	packets[RDData].EncodeData(withLength, &data)
	packets[RDSkip].EncodeSkip(base, &skip)
	packets[RDAck].EncodeAck(base, &ack, words, []RDEcho{echo})
	packets[RDNack].EncodeNack(base, &nack)
	packets[RDProbe].EncodeProbe(base, 77)
	packets[RDReject].EncodeReject(base, &reject)
	packets[RDClose].EncodeClose(base)
	if len(packets) != RDTypes-1 {
		t.Fatalf("%d types, want %d", len(packets), RDTypes-1)
	}
	for kind, p := range packets {
		want := base
		want.Type = kind
		if kind == RDData {
			want.Length = 100
		}
		if !p.Valid() || p.Base() != want {
			t.Errorf("%v: %+v (valid %v), want %+v", kind, p.Base(), p.Valid(), want)
		}
		for bit := range 8 * min(len(p), RDDataLen) {
			p[bit/8] ^= 1 << (bit % 8)
			if p.Valid() {
				t.Errorf("%v: valid with bit %d changed", kind, bit)
			}
			p[bit/8] ^= 1 << (bit % 8)
		}
		for n := range p {
			if p[:n:n].Valid() != (kind == RDData && n >= RDDataLen) {
				t.Errorf("%v: the first %d bytes: valid %v", kind, n, p[:n].Valid())
			}
		}
	}
	if got := packets[RDData].Data(); got != data || packets[RDData].Trimmed() ||
		!packets[RDData][:163].Trimmed() {
		t.Errorf("data %+v, trimmed %v", got, packets[RDData].Trimmed())
	}
	if got := packets[RDAck].Ack(); got != ack || packets[RDAck].AckWord(0) != words[0] ||
		packets[RDAck].AckWord(1) != words[1] || packets[RDAck].AckEcho(0) != echo {
		t.Errorf("acknowledgement %+v", got)
	}
	if packets[RDNack].Nack() != nack || packets[RDSkip].Skip() != skip ||
		packets[RDReject].Reject() != reject || packets[RDProbe].ProbeTimestamp() != 77 {
		t.Error("nack, skip, reject or probe differ")
	}
}

func TestRDAckBit(t *testing.T) {
	for n, want := range map[uint32]struct {
		word int
		bit  uint64
	}{1: {0, 1 << 63}, 64: {0, 1}, 65: {1, 1 << 63}, 1024: {15, 1}} {
		if word, bit := RDAckBit(n); word != want.word || bit != want.bit {
			t.Errorf("packet %d: word %d bit %#x, want %d %#x", n, word, bit, want.word, want.bit)
		}
	}
}
