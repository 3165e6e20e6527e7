package verify

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"railbed/internal/infiniband"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// roceMTU is the path MTU of the tests.
const roceMTU = 256

// roceQP is a queue pair that sends requests, and the queue pair that answers them. Both follow the
// rules except where a test makes them deviate.
type roceQP struct {
	*scene
	asker, answerer int // ranks
	to, back        infiniband.QPN
	psn             infiniband.PSN // of the next request
	msn             uint32
	ecn             wire.ECN
	port            int
}

// newRoCEScene is a scene with a queue pair between two hosts of different leaves. Its
// PSNs wrap where healthy loses a packet.
func newRoCEScene(t testing.TB, family int) *roceQP {
	s := newScene(t)
	s.snap = 9000
	s.rdRanks(family)
	return &roceQP{scene: s, asker: 0, answerer: 2, to: 0x11, back: 0x12, psn: 0xFFFFF3, msn: 0xFFFFFE,
		port: 0xC001}
}

// carry sends a packet of one rank to another.
func (q *roceQP) carry(from, to int, f *infiniband.Fields, payload int, ecn wire.ECN) {
	if f.BTH.PKey == 0 {
		f.BTH.PKey = infiniband.PKey
	}
	p := make(infiniband.Packet, infiniband.Len(f.BTH.Opcode, payload))
	p.Encode(f, payload)
	for i := range p.Payload() {
		p.Payload()[i] = byte(i) ^ byte(f.BTH.PSN)
	}
	ranks := q.workload.Ranks
	q.send(ranks[from].Node, ranks[from].NIC, tcp{
		src:      addrPort(ranks[from], q.port),
		dst:      addrPort(ranks[to], infiniband.Port),
		datagram: p,
		tos:      uint8(ecn),
	})
}

// ask sends a request with a PSN, edited.
func (q *roceQP) ask(o infiniband.Opcode, psn infiniband.PSN, payload int, edit ...func(*infiniband.Fields)) {
	f := infiniband.Fields{BTH: infiniband.BTHFields{Opcode: o, DestQP: q.to, PSN: psn, AckReq: o.Ends()},
		RETH: infiniband.RETHFields{VA: 4096, RKey: 7, Length: uint32(payload)}}
	for _, e := range edit {
		e(&f)
	}
	q.carry(q.asker, q.answerer, &f, payload, q.ecn)
}

// next sends a request with the next PSN.
func (q *roceQP) next(o infiniband.Opcode, payload int, edit ...func(*infiniband.Fields)) {
	q.ask(o, q.psn, payload, edit...)
	q.psn = q.psn.Add(1)
}

// reply sends an answer.
func (q *roceQP) reply(o infiniband.Opcode, psn infiniband.PSN, syndrome infiniband.Syndrome, payload int) {
	f := infiniband.Fields{BTH: infiniband.BTHFields{Opcode: o, DestQP: q.back, PSN: psn},
		AETH: infiniband.AETHFields{Syndrome: syndrome, MSN: q.msn & 0xFFFFFF}}
	q.carry(q.answerer, q.asker, &f, payload, wire.NotECT)
}

// ack acknowledges up to a PSN that came, when so many messages more were completed.
func (q *roceQP) ack(psn infiniband.PSN, messages uint32) {
	q.msn += messages
	q.reply(infiniband.Acknowledge, psn, infiniband.AckUnlimited, 0)
}

func (q *roceQP) nak(psn infiniband.PSN) {
	q.reply(infiniband.Acknowledge, psn, infiniband.NakSequence, 0)
}

// keeps says, as our endpoint does with selective repeat, that one PSN is awaited and
// another kept; both by how far they are behind the next request's.
func (q *roceQP) keeps(awaited, kept int) {
	msn := q.msn
	q.msn = uint32(q.psn.Add(kept))
	q.reply(infiniband.Acknowledge, q.psn.Add(awaited), infiniband.NakSelective, 0)
	q.msn = msn
}

func length(n uint32) func(*infiniband.Fields) {
	return func(f *infiniband.Fields) { f.RETH.Length = n }
}

func address(va uint64) func(*infiniband.Fields) {
	return func(f *infiniband.Fields) { f.RETH.VA = va }
}

// part answers a READ with a packet, whose PSN is so far behind the next request's.
func (q *roceQP) part(o infiniband.Opcode, ahead, bytes int) {
	q.reply(o, q.psn.Add(ahead), infiniband.AckUnlimited, bytes)
}

// write sends a WRITE of 1,000 bytes, four packets.
func (q *roceQP) write() {
	q.next(infiniband.WriteFirst, roceMTU, length(1000))
	q.next(infiniband.WriteMiddle, roceMTU)
	q.next(infiniband.WriteMiddle, roceMTU)
	q.next(infiniband.WriteLast, 1000-3*roceMTU)
}

// lose makes the packet that was sent last get lost behind its NIC.
func (q *roceQP) lose() {
	left := false
	q.remove(func(k sighting) bool {
		if k.id != q.ids {
			return false
		}
		first := !left
		left = true
		return !first
	})
}

// healthy is a bit of everything, with a loss.
func (q *roceQP) healthy() {
	q.write()
	q.ack(q.psn.Add(-1), 1)
	q.next(infiniband.WriteOnly, 100)
	q.next(infiniband.WriteOnlyImm, 201)
	q.ack(q.psn.Add(-1), 2) // for both
	q.read(700)
	q.next(infiniband.FetchAdd, 0)
	q.msn++
	q.reply(infiniband.AtomicAcknowledge, q.psn.Add(-1), infiniband.AckUnlimited, 0)
	q.next(infiniband.SendOnlyImm, 3)
	q.ack(q.psn.Add(-1), 1)
	q.goBack()
}

// read asks for bytes and gets them, in packets of the path MTU.
func (q *roceQP) read(bytes uint32) {
	psn := q.psn
	q.ask(infiniband.ReadRequest, psn, 0, length(bytes))
	q.msn++
	n := max(1, (int(bytes)+roceMTU-1)/roceMTU)
	for i := range n {
		o := infiniband.ReadResponseMiddle
		switch {
		case n == 1:
			o = infiniband.ReadResponseOnly
		case i == 0:
			o = infiniband.ReadResponseFirst
		case i == n-1:
			o = infiniband.ReadResponseLast
		}
		q.reply(o, psn.Add(i), infiniband.AckUnlimited, min(roceMTU, int(bytes)-i*roceMTU))
	}
	q.psn = psn.Add(n)
}

// goBack loses the second packet of a WRITE, and sends it and those behind it again.
func (q *roceQP) goBack() {
	first := q.psn
	q.next(infiniband.WriteFirst, roceMTU, length(1000))
	q.next(infiniband.WriteMiddle, roceMTU)
	q.lose()
	q.next(infiniband.WriteMiddle, roceMTU)
	q.next(infiniband.WriteLast, 1000-3*roceMTU)
	q.nak(first.Add(1))
	q.ask(infiniband.WriteMiddle, first.Add(1), roceMTU)
	q.ask(infiniband.WriteMiddle, first.Add(2), roceMTU)
	q.ask(infiniband.WriteLast, first.Add(3), 1000-3*roceMTU)
	q.ack(first.Add(3), 1)
}

// seal makes the ICRC of a frame, and takes out the checksum of UDP, as rdma_rxe does.
func seal(frame []byte) {
	at := wire.EthernetLen + infiniband.HeadersIPv4
	if frame[wire.EthernetLen]>>4 == 6 {
		at = wire.EthernetLen + infiniband.HeadersIPv6
	}
	wire.UDP(frame[at-wire.UDPLen:]).SetChecksum(0)
	if p := infiniband.Packet(frame[at:]); p.Valid() {
		p.Seal(frame[wire.EthernetLen:at])
	}
}

// dumped returns the results of checks for a tcpdump recording at a tap: a pcap with neither
// directions nor names.
func (q *roceQP) dumped(tap string, checks ...Check) []Result {
	slices.SortStableFunc(q.sightings, func(a, b sighting) int { return int(a.time - b.time) })
	var out bytes.Buffer
	w := pcapgo.NewWriterNanos(&out)
	err := w.WriteFileHeader(65535, golayers.LinkTypeEthernet)
	for _, k := range q.sightings {
		if err == nil && k.tap == tap {
			err = w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, k.time),
				CaptureLength: len(k.frame), Length: len(k.frame)}, k.frame)
		}
	}
	if err != nil {
		q.t.Fatal(err)
	}
	results, _, err := Run(q.t.Context(), &out, Options{}, checks...)
	if err != nil {
		q.t.Fatal(err)
	}
	return results
}

// rules are the checks, by their names in files.
func rules(t testing.TB, names ...string) (checks []Check) {
	t.Helper()
	for _, name := range names {
		check, err := newRoCE(&spec.RoCECheck{Rule: name})
		if err != nil {
			t.Fatal(err)
		}
		checks = append(checks, check)
	}
	return checks
}

var roceRules = []string{spec.RoCERuleICRC, spec.RoCERulePSN, spec.RoCERuleAcks, spec.RoCERuleWrites,
	spec.RoCERuleGoBack, spec.RoCERuleCNP, spec.RoCERuleRate}

// A correct run passes every rule that applies to it, over both versions of IP, with whole fabrics
// and single taps. rdma_rxe sends no CNP, so the rule about CNPs is not applicable.
func TestRoCEHealthy(t *testing.T) {
	for _, family := range []int{4, 6} {
		for _, at := range []string{"", "h0:eth0", "h2:eth0"} {
			q := newRoCEScene(t, family)
			q.healthy()
			q.read(200) // of one PSN, whatever the path MTU
			q.write()
			q.ack(q.psn.Add(-1), 1)
			var results []Result
			if at == "" {
				results, _ = q.run(rules(t, roceRules...)...)
			} else {
				results = q.dumped(at, rules(t, roceRules...)...)
			}
			for i, r := range results {
				want := pass
				if roceRules[i] == spec.RoCERuleCNP || roceRules[i] == spec.RoCERuleRate {
					want = unclear
				}
				if r.Verdict != want || want == unclear &&
					!strings.Contains(strings.Join(r.Details, "\n"), "NOT-APPLICABLE") {
					t.Errorf("IPv%d at %q: want %s: %v", family, at, want, r)
				}
			}
			if m := results[2].Measured; m["answers"] != 11 || m["coalesced"] == 0 || m["naks"] != 1 {
				t.Errorf("IPv%d at %q: %v", family, at, results[2].Measured)
			}
			if m := results[1].Measured; at != "h2:eth0" && (m["again"] != 3 || m["sent"] != 21) {
				t.Errorf("IPv%d at %q: %v", family, at, m)
			}
			if m := results[3].Measured; m["reads"] != 2 || m["read-bytes"] != 900 {
				t.Errorf("IPv%d at %q: %v", family, at, m)
			}
			if m := results[4].Measured; m["rounds"] != 1 {
				t.Errorf("IPv%d at %q: %v", family, at, m)
			}
		}
	}
}

// What was sent again has a bound where a file has one, which a tap that lost packets
// makes unclear unless there was too much already.
func TestRoCEAgain(t *testing.T) {
	for _, c := range []struct {
		again string
		lossy bool
		want  verdict.Verdict
	}{{"== 3", false, pass}, {"== 0", false, fail}, {">= 4", false, fail}, {">= 4", true, unclear},
		{"== 0", true, fail}} {
		q := newRoCEScene(t, 4)
		q.healthy()
		if c.lossy {
			q.drops["h0:eth0"] = 1
		}
		check, err := newRoCE(&spec.RoCECheck{Rule: spec.RoCERulePSN, Again: c.again})
		if err != nil {
			t.Fatal(err)
		}
		results, _ := q.run(check)
		says := "requests sent again: 3, want " + c.again
		if c.want == pass {
			says = "3 of them again"
		}
		wants(t, results[0], c.want, says)
	}
}

// flip changes a bit of a byte of a frame, from its end where it is negative.
func flip(at int) func(*sighting) {
	return func(k *sighting) {
		k.frame = bytes.Clone(k.frame)
		k.frame[(at+len(k.frame))%len(k.frame)] ^= 0x20
	}
}

// wants compares a result with a verdict, and with words of a line.
func wants(t *testing.T, r Result, want verdict.Verdict, says string) {
	t.Helper()
	if said := strings.Join(append(r.Details, r.Summary), "\n"); r.Verdict != want ||
		!strings.Contains(said, says) {
		t.Errorf("want %s and %q: %v", want, says, r)
	}
}
