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

	"railbed/testbed/spec"
	"railbed/testbed/verdict"
	"railbed/transports/infiniband"
	"railbed/transports/wire"
)

// roceMTU is the path MTU of the tests.
const roceMTU = 256

// roceQP is a queue pair that asks, and the one that answers it. Both behave but for
// what a test makes them do.
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
	return &roceQP{scene: s, asker: 0, answerer: 2, to: 0x11, back: 0x12, psn: 0xFFFFF3, msn: 0xFFFFFE, port: 0xC001}
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
		src: addrPort(ranks[from], q.port), dst: addrPort(ranks[to], infiniband.Port), datagram: p, tos: uint8(ecn),
	})
}

// ask sends a request with a PSN, edited.
func (q *roceQP) ask(o infiniband.Opcode, psn infiniband.PSN, payload int, edit ...func(*infiniband.Fields)) {
	f := infiniband.Fields{BTH: infiniband.BTHFields{Opcode: o, DestQP: q.to, PSN: psn, AckReq: o.Ends()}, RETH: infiniband.RETHFields{VA: 4096, RKey: 7, Length: uint32(payload)}}
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
	f := infiniband.Fields{BTH: infiniband.BTHFields{Opcode: o, DestQP: q.back, PSN: psn}, AETH: infiniband.AETHFields{Syndrome: syndrome, MSN: q.msn & 0xFFFFFF}}
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

func length(n uint32) func(*infiniband.Fields) {
	return func(f *infiniband.Fields) { f.RETH.Length = n }
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
	n := readPSNs(bytes, roceMTU)
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

// dumped is what checks say of what tcpdump would have written at a tap: a pcap with
// neither directions nor names.
func (q *roceQP) dumped(tap string, checks ...Check) []Result {
	slices.SortStableFunc(q.sightings, func(a, b sighting) int { return int(a.time - b.time) })
	var out bytes.Buffer
	w := pcapgo.NewWriterNanos(&out)
	err := w.WriteFileHeader(65535, golayers.LinkTypeEthernet)
	for _, k := range q.sightings {
		if err == nil && k.tap == tap {
			err = w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, k.time), CaptureLength: len(k.frame), Length: len(k.frame)}, k.frame)
		}
	}
	if err != nil {
		q.t.Fatal(err)
	}
	results, _, err := Run(q.t.Context(), &out, nil, checks...)
	if err != nil {
		q.t.Fatal(err)
	}
	return results
}

// rules are the checks, by their names in files.
func rules(t testing.TB, names ...string) (checks []Check) {
	t.Helper()
	for _, name := range names {
		check, err := newRoCE(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		checks = append(checks, check)
	}
	return checks
}

var roceRules = []string{spec.RoCERuleICRC, spec.RoCERulePSN, spec.RoCERuleAcks, spec.RoCERuleWrites, spec.RoCERuleGoBack, spec.RoCERuleCNP, spec.RoCERuleRate}

// A run in which all is well passes what it has something for, over both versions of
// IP, whole fabrics and single taps; rdma_rxe sends no CNP, which is not applicable.
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
				if r.Verdict != want || want == unclear && !strings.Contains(strings.Join(r.Details, "\n"), "NOT-APPLICABLE") {
					t.Errorf("IPv%d at %q: want %s: %v", family, at, want, r)
				}
			}
			if m := results[2].Measured; m["answers"] != 11 || m["coalesced"] == 0 || m["naks"] != 1 {
				t.Errorf("IPv%d at %q: %v", family, at, results[2].Measured)
			}
			if m := results[1].Measured; at != "h2:eth0" && (m["again"] != 3 || m["sent"] != 21) {
				t.Errorf("IPv%d at %q: %v", family, at, m)
			}
			if m := results[4].Measured; m["rounds"] != 1 {
				t.Errorf("IPv%d at %q: %v", family, at, m)
			}
		}
	}
}

// roceMutations are runs with one fault each, behind a healthy one.
var roceMutations = []struct {
	name   string
	mutate func(*roceQP)
	rule   string
	want   verdict.Verdict
	says   string
}{
	{"a bit of a payload changed on the way", func(q *roceQP) {
		q.change(func(k sighting) bool { return k.tap == "h2:eth0" && k.id == q.ids-1 }, flip(70))
	}, spec.RoCERuleICRC, fail, "wrong ICRC at other taps"},
	{"a sender that makes a wrong ICRC", func(q *roceQP) {
		q.change(func(k sighting) bool { return k.id == 3 }, flip(-1))
	}, spec.RoCERuleICRC, fail, "left a NIC with a wrong ICRC"},
	{"a router that changes the TTL, DSCP and ECN", func(q *roceQP) {
		q.change(func(k sighting) bool { return k.tap == "h2:eth0" }, func(k *sighting) {
			k.frame = bytes.Clone(k.frame)
			ip := wire.IPv4(k.frame[14:])
			ip.RewriteTOS(0xFF)
			ip.DecrementTTL()
		})
	}, spec.RoCERuleICRC, pass, "right and 0 wrong"},
	{"an opcode that nobody knows", func(q *roceQP) {
		q.change(func(k sighting) bool { return k.id == 1 }, func(k *sighting) { k.frame = bytes.Clone(k.frame); k.frame[42] = 0x7F })
	}, spec.RoCERuleICRC, fail, "are none"},
	{"a capture that is too short", func(q *roceQP) { q.snap = 100 }, spec.RoCERuleICRC, unclear, "NOT-APPLICABLE"},

	{"a PSN that is left out", func(q *roceQP) { q.psn++; q.write() }, spec.RoCERulePSN, fail, "PSNs left out"},
	{"a PSN that is sent late", func(q *roceQP) {
		q.ask(infiniband.WriteOnly, q.psn.Add(1), 10)
		q.ask(infiniband.WriteOnly, q.psn, 10)
	}, spec.RoCERulePSN, fail, "PSNs left out"},
	{"another length under the same PSN", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 40)
		q.ask(infiniband.WriteOnly, q.psn.Add(-1), 44)
	}, spec.RoCERulePSN, fail, "sent again as something else"},
	{"another opcode under the same PSN", func(q *roceQP) {
		q.next(infiniband.SendOnly, 40)
		q.ask(infiniband.SendOnlyImm, q.psn.Add(-1), 40)
	}, spec.RoCERulePSN, fail, "sent again as something else"},
	{"another RETH under the same PSN", func(q *roceQP) {
		q.next(infiniband.WriteFirst, roceMTU, length(600))
		q.ask(infiniband.WriteFirst, q.psn.Add(-1), roceMTU, length(700))
	}, spec.RoCERulePSN, fail, "sent again as something else"},
	{"a READ that is asked for again in part", func(q *roceQP) {
		q.ask(infiniband.ReadRequest, q.psn, 0, length(700))
		q.ask(infiniband.ReadRequest, q.psn.Add(1), 0, length(700-roceMTU))
		q.psn = q.psn.Add(3)
		q.next(infiniband.WriteOnly, 4)
	}, spec.RoCERulePSN, pass, "4 of them again"},
	{"a READ that takes too many PSNs", func(q *roceQP) {
		q.ask(infiniband.ReadRequest, q.psn, 0, length(700))
		q.psn = q.psn.Add(4)
		q.next(infiniband.WriteOnly, 4)
	}, spec.RoCERulePSN, fail, "PSNs left out"},
	{"the queue pair's next life", func(q *roceQP) { q.psn = q.psn.Add(1 << 20); q.write() }, spec.RoCERulePSN, unclear, "PSN from elsewhere"},

	{"an acknowledgement of what was never sent", func(q *roceQP) { q.ack(q.psn, 0) }, spec.RoCERuleAcks, fail, "acknowledge what had not come"},
	{"an acknowledgement of what got lost", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.lose()
		q.ack(q.psn.Add(-1), 1)
	}, spec.RoCERuleAcks, fail, "acknowledge what had not come"},
	{"an acknowledgement of what was damaged", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 80)
		q.change(func(k sighting) bool { return k.tap == "h2:eth0" && k.id == q.ids }, flip(90))
		q.ack(q.psn.Add(-1), 1)
	}, spec.RoCERuleAcks, fail, "acknowledge what had not come"},
	{"an acknowledgement over a gap", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.lose()
		q.next(infiniband.WriteOnly, 8)
		q.ack(q.psn.Add(-1), 1)
	}, spec.RoCERuleAcks, fail, "acknowledge what had not come"},
	{"a NAK with nothing behind it", func(q *roceQP) { q.nak(q.psn) }, spec.RoCERuleAcks, fail, "with nothing behind them"},
	{"a NAK that is behind what is missing", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.lose()
		q.next(infiniband.WriteOnly, 8)
		q.nak(q.psn.Add(-1))
	}, spec.RoCERuleAcks, fail, "acknowledge what had not come"},
	{"a message that is counted twice", func(q *roceQP) { q.write(); q.ack(q.psn.Add(-1), 2) }, spec.RoCERuleAcks, fail, "do not count the messages"},
	{"a message that is not counted", func(q *roceQP) { q.write(); q.ack(q.psn.Add(-1), 0) }, spec.RoCERuleAcks, fail, "do not count the messages"},
	{"a READ that is not counted", func(q *roceQP) {
		q.msn--
		q.read(300)
		q.next(infiniband.WriteOnly, 4)
		q.ack(q.psn.Add(-1), 1)
	}, spec.RoCERuleAcks, fail, "do not count the messages"},
	{"a duplicate that is acknowledged again", func(q *roceQP) {
		q.ask(infiniband.WriteLast, q.psn.Add(-1), 1000-3*roceMTU)
		q.ack(q.psn.Add(-1), 0)
	}, spec.RoCERuleAcks, pass, "answers"},
	{"a request that is never acknowledged", func(q *roceQP) { q.next(infiniband.WriteOnly, 8); q.now += int64(time.Second) }, spec.RoCERuleAcks, fail, "got none"},
	{"a request at the end", func(q *roceQP) { q.next(infiniband.WriteOnly, 8) }, spec.RoCERuleAcks, pass, "answers"},
	{"a request that does not ask", func(q *roceQP) {
		q.next(infiniband.WriteFirst, roceMTU, length(1000))
		q.now += int64(time.Second)
	}, spec.RoCERuleAcks, pass, "answers"},
	{"a request that is refused", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.reply(infiniband.Acknowledge, q.psn.Add(-1), infiniband.NakAccess, 0)
		q.now += int64(time.Second)
	}, spec.RoCERuleAcks, pass, "2 NAKs"},
	{"an answer to nobody", func(q *roceQP) { q.back = 0x77; q.ack(q.psn.Add(-1), 0) }, spec.RoCERuleAcks, unclear, "whose they are"},

	{"a WRITE that is shorter than its RETH", func(q *roceQP) { q.next(infiniband.WriteOnly, 100, length(101)) }, spec.RoCERuleWrites, fail, "its RETH says 101"},
	{"a WRITE of two packets that is longer", func(q *roceQP) {
		q.next(infiniband.WriteFirst, roceMTU, length(511))
		q.next(infiniband.WriteLast, roceMTU)
	}, spec.RoCERuleWrites, fail, "carries 512 bytes, its RETH says 511"},
	{"a MIDDLE that is too short", func(q *roceQP) {
		q.next(infiniband.WriteFirst, roceMTU, length(600))
		q.next(infiniband.WriteMiddle, 128)
		q.next(infiniband.WriteLast, 600-128-roceMTU)
	}, spec.RoCERuleWrites, fail, "which is no path MTU"},
	{"a FIRST of another path MTU", func(q *roceQP) {
		q.next(infiniband.WriteFirst, 512, length(600))
		q.next(infiniband.WriteLast, 88)
	}, spec.RoCERuleWrites, fail, "where others carry 256"},
	{"an ONLY that is too long", func(q *roceQP) { q.next(infiniband.SendOnly, 300) }, spec.RoCERuleWrites, fail, "more than the path MTU, 256"},
	{"a LAST of no bytes", func(q *roceQP) {
		q.next(infiniband.WriteFirst, roceMTU, length(roceMTU))
		q.next(infiniband.WriteLast, 0)
	}, spec.RoCERuleWrites, fail, "at least one is due"},
	{"a MIDDLE without a FIRST", func(q *roceQP) { q.next(infiniband.WriteMiddle, roceMTU) }, spec.RoCERuleWrites, fail, "out of the order"},
	{"a FIRST within a message", func(q *roceQP) {
		q.next(infiniband.WriteFirst, roceMTU, length(600))
		q.next(infiniband.WriteFirst, roceMTU, length(600))
	}, spec.RoCERuleWrites, fail, "out of the order"},
	{"a SEND within a WRITE", func(q *roceQP) {
		q.next(infiniband.WriteFirst, roceMTU, length(600))
		q.next(infiniband.SendLast, 600-roceMTU)
	}, spec.RoCERuleWrites, fail, "out of the order"},
	{"a READ within a WRITE", func(q *roceQP) { q.next(infiniband.WriteFirst, roceMTU, length(600)); q.read(100) }, spec.RoCERuleWrites, fail, "out of the order"},
	{"a RETH of more than 2^31 bytes", func(q *roceQP) { q.next(infiniband.WriteOnly, 4, length(1<<31+1)) }, spec.RoCERuleWrites, fail, "announce more than 2^31"},
	{"padding that is not zeros", func(q *roceQP) {
		q.next(infiniband.SendOnly, 5)
		q.change(func(k sighting) bool { return k.id == q.ids }, flip(42+12+6))
	}, spec.RoCERuleWrites, fail, "padding that is not zeros"},
	{"a message of no bytes", func(q *roceQP) { q.next(infiniband.WriteOnly, 0) }, spec.RoCERuleWrites, pass, "WRITEs"},

	{"a NAK that is not heeded", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.next(infiniband.WriteOnly, 8)
		q.nak(q.psn.Add(-2))
		q.next(infiniband.WriteOnly, 8)
		q.now += int64(time.Second)
	}, spec.RoCERuleGoBack, fail, "was not heeded"},
	{"a NAK at the end", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.next(infiniband.WriteOnly, 8)
		q.nak(q.psn.Add(-2))
	}, spec.RoCERuleGoBack, pass, "2 NAKs"},
	{"going back to behind what is missing", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.next(infiniband.WriteOnly, 8)
		q.next(infiniband.WriteOnly, 8)
		q.nak(q.psn.Add(-3))
		q.ask(infiniband.WriteOnly, q.psn.Add(-2), 8)
	}, spec.RoCERuleGoBack, fail, "behind the first that was missing"},
	{"selective repeat", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.next(infiniband.WriteOnly, 8)
		q.next(infiniband.WriteOnly, 8)
		q.nak(q.psn.Add(-3))
		q.ask(infiniband.WriteOnly, q.psn.Add(-3), 8)
		q.next(infiniband.WriteOnly, 8)
	}, spec.RoCERuleGoBack, fail, "left out of what was sent again"},
	{"a timeout", func(q *roceQP) {
		q.write()
		q.ask(infiniband.WriteFirst, q.psn.Add(-4), roceMTU, length(1000))
		q.ask(infiniband.WriteMiddle, q.psn.Add(-3), roceMTU)
		q.ack(q.psn.Add(-2), 0) // late: what it acknowledges may be left out
		q.ask(infiniband.WriteLast, q.psn.Add(-1), 1000-3*roceMTU)
		q.next(infiniband.WriteOnly, 8)
	}, spec.RoCERuleGoBack, pass, "in 2 rounds"},
}

// flip changes a bit of a byte of a frame, from its end where it is negative.
func flip(at int) func(*sighting) {
	return func(k *sighting) {
		k.frame = bytes.Clone(k.frame)
		k.frame[(at+len(k.frame))%len(k.frame)] ^= 0x20
	}
}

// wants compares a result with a verdict, and with words of a line.
func (r Result) wants(t *testing.T, want verdict.Verdict, says string) {
	t.Helper()
	if said := strings.Join(append(r.Details, r.Summary), "\n"); r.Verdict != want || !strings.Contains(said, says) {
		t.Errorf("want %s and %q: %v", want, says, r)
	}
}

func TestRoCEAgainstMutations(t *testing.T) {
	for _, m := range roceMutations {
		t.Run(m.name, func(t *testing.T) {
			q := newRoCEScene(t, 4)
			q.healthy()
			m.mutate(q)
			results, _ := q.run(rules(t, m.rule)...)
			results[0].wants(t, m.want, m.says)
		})
	}
}
