package verify

import (
	"bytes"
	"testing"
	"time"

	"railbed/internal/infiniband"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

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
		q.change(func(k sighting) bool { return k.id == 1 }, func(k *sighting) {
			k.frame = bytes.Clone(k.frame)
			k.frame[42] = 0x7F
		})
	}, spec.RoCERuleICRC, fail, "are none"},
	{"a capture that is too short", func(q *roceQP) { q.snap = 100 }, spec.RoCERuleICRC, unclear,
		"NOT-APPLICABLE"},

	{"a PSN that is left out", func(q *roceQP) {
		q.psn++
		q.write()
	}, spec.RoCERulePSN, fail, "PSNs left out"},
	{"a PSN that is sent late", func(q *roceQP) {
		q.ask(infiniband.WriteOnly, q.psn.Add(1), 10)
		q.ask(infiniband.WriteOnly, q.psn, 10)
	}, spec.RoCERulePSN, fail, "PSNs left out"},
	{"another length under the same PSN", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 40)
		q.ask(infiniband.WriteOnly, q.psn.Add(-1), 44)
	}, spec.RoCERulePSN, fail, "sent again as something else"},
	{"another length of a SEND under the same PSN", func(q *roceQP) {
		q.next(infiniband.SendOnly, 40)
		q.ask(infiniband.SendOnly, q.psn.Add(-1), 44)
	}, spec.RoCERulePSN, fail, "sent again as something else"},
	{"a READ of more under the same PSN", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(200))
		q.ask(infiniband.ReadRequest, q.psn.Add(-1), 0, length(201))
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
	{"the queue pair's next life", func(q *roceQP) {
		q.psn = q.psn.Add(1 << 20)
		q.write()
	}, spec.RoCERulePSN, unclear, "PSN from elsewhere"},

	{"an acknowledgement of what was never sent", func(q *roceQP) { q.ack(q.psn, 0) }, spec.RoCERuleAcks,
		fail, "acknowledge what had not come"},
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
	{"a NAK with nothing behind it", func(q *roceQP) { q.nak(q.psn) }, spec.RoCERuleAcks, fail,
		"with nothing behind them"},
	{"a NAK that is behind what is missing", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.lose()
		q.next(infiniband.WriteOnly, 8)
		q.nak(q.psn.Add(-1))
	}, spec.RoCERuleAcks, fail, "acknowledge what had not come"},
	{"a message that is counted twice", func(q *roceQP) {
		q.write()
		q.ack(q.psn.Add(-1), 2)
	}, spec.RoCERuleAcks, fail, "do not count the messages"},
	{"a message that is not counted", func(q *roceQP) {
		q.write()
		q.ack(q.psn.Add(-1), 0)
	}, spec.RoCERuleAcks, fail, "do not count the messages"},
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
	{"a request that is never acknowledged", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.now += int64(time.Second)
	}, spec.RoCERuleAcks, fail, "got none"},
	{"a request at the end", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
	}, spec.RoCERuleAcks, pass, "answers"},
	{"a request that does not ask", func(q *roceQP) {
		q.next(infiniband.WriteFirst, roceMTU, length(1000))
		q.now += int64(time.Second)
	}, spec.RoCERuleAcks, pass, "answers"},
	{"a request that is refused", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.reply(infiniband.Acknowledge, q.psn.Add(-1), infiniband.NakAccess, 0)
		q.now += int64(time.Second)
	}, spec.RoCERuleAcks, pass, "2 NAKs"},
	{"a selective NAK of what came early", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.lose()
		q.next(infiniband.WriteOnly, 8)
		q.keeps(-2, -1)
	}, spec.RoCERuleAcks, pass, "2 NAKs"},
	{"a selective NAK of what never came", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.lose()
		q.next(infiniband.WriteOnly, 8)
		q.keeps(-2, 0)
	}, spec.RoCERuleAcks, fail, "1 selective NAKs name a PSN that had not come"},
	{"a selective NAK of what was lost", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.lose()
		q.next(infiniband.WriteOnly, 8)
		q.keeps(-2, -2)
	}, spec.RoCERuleAcks, fail, "name a PSN that had not come"},
	{"a selective NAK of what was lost, too", func(q *roceQP) {
		for range 2 {
			q.next(infiniband.WriteOnly, 8)
			q.lose()
		}
		q.next(infiniband.WriteOnly, 8)
		q.keeps(-3, -2)
	}, spec.RoCERuleAcks, fail, "name a PSN that had not come"},
	{"a selective NAK of what it awaits", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.keeps(-1, -1)
	}, spec.RoCERuleAcks, fail, "name a PSN that had not come"},
	{"a selective NAK of what is over", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.keeps(-1, -2)
	}, spec.RoCERuleAcks, fail, "name a PSN that had not come"},
	{"a syndrome that nobody knows", func(q *roceQP) {
		q.msn += 1000
		q.reply(infiniband.Acknowledge, q.psn, infiniband.Nak|0x1E, 0)
	}, spec.RoCERuleAcks, pass, "1 answers have a syndrome that IBTA reserves"},
	{"an answer to nobody", func(q *roceQP) {
		q.back = 0x77
		q.ack(q.psn.Add(-1), 0)
	}, spec.RoCERuleAcks, unclear, "whose they are"},

	{"a WRITE that is shorter than its RETH", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 100, length(101))
	}, spec.RoCERuleWrites, fail, "its RETH says 101"},
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
	{"an ONLY that is too long", func(q *roceQP) {
		q.next(infiniband.SendOnly, 300)
	}, spec.RoCERuleWrites, fail, "more than the path MTU, 256"},
	{"a LAST of no bytes", func(q *roceQP) {
		q.next(infiniband.WriteFirst, roceMTU, length(roceMTU))
		q.next(infiniband.WriteLast, 0)
	}, spec.RoCERuleWrites, fail, "at least one is due"},
	{"a MIDDLE without a FIRST", func(q *roceQP) {
		q.next(infiniband.WriteMiddle, roceMTU)
	}, spec.RoCERuleWrites, fail, "out of the order"},
	{"a FIRST within a message", func(q *roceQP) {
		q.next(infiniband.WriteFirst, roceMTU, length(600))
		q.next(infiniband.WriteFirst, roceMTU, length(600))
	}, spec.RoCERuleWrites, fail, "out of the order"},
	{"a SEND within a WRITE", func(q *roceQP) {
		q.next(infiniband.WriteFirst, roceMTU, length(600))
		q.next(infiniband.SendLast, 600-roceMTU)
	}, spec.RoCERuleWrites, fail, "out of the order"},
	{"a READ within a WRITE", func(q *roceQP) {
		q.next(infiniband.WriteFirst, roceMTU, length(600))
		q.read(100)
	}, spec.RoCERuleWrites, fail, "out of the order"},
	{"a RETH of more than 2^31 bytes", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 4, length(1<<31+1))
	}, spec.RoCERuleWrites, fail, "announce more than 2^31"},
	{"padding that is not zeros", func(q *roceQP) {
		q.next(infiniband.SendOnly, 5)
		q.change(func(k sighting) bool { return k.id == q.ids }, flip(42+12+6))
	}, spec.RoCERuleWrites, fail, "padding that is not zeros"},
	{"a WRITE beyond the last address", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 100, address(1<<64-99))
	}, spec.RoCERuleWrites, fail, "1 WRITEs or READs go beyond the last address"},
	{"a WRITE up to the last address", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 100, address(1<<64-100))
	}, spec.RoCERuleWrites, pass, "WRITEs"},
	{"a READ beyond the last address", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(100), address(1<<64-99))
	}, spec.RoCERuleWrites, fail, "the READ of PSN"},
	{"a READ of more than 2^31 bytes", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(1<<31+1))
	}, spec.RoCERuleWrites, fail, "announce more than 2^31"},
	{"a READ whose answer is too short", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(200))
		q.part(infiniband.ReadResponseOnly, -1, 199)
	}, spec.RoCERuleWrites, fail, "carries 199 bytes, and the READ of PSN"},
	{"a READ whose answer is longer in its last part", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(300))
		q.part(infiniband.ReadResponseFirst, -1, roceMTU)
		q.part(infiniband.ReadResponseLast, 0, 48)
	}, spec.RoCERuleWrites, fail, "has 44 there"},
	{"a READ whose answer begins with no path MTU", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(300))
		q.part(infiniband.ReadResponseFirst, -1, 128)
	}, spec.RoCERuleWrites, fail, "carries 128 bytes, which is no path MTU"},
	{"a READ whose answer begins with another path MTU", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(700))
		q.part(infiniband.ReadResponseFirst, -1, 512)
	}, spec.RoCERuleWrites, fail, "carries 512 bytes, and the READ of PSN"},
	{"a READ whose answer does not end", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(2*roceMTU))
		q.part(infiniband.ReadResponseFirst, -1, roceMTU)
		q.part(infiniband.ReadResponseMiddle, 0, roceMTU)
	}, spec.RoCERuleWrites, fail, "is part 2 of 2 of the READ"},
	{"a READ whose answer begins twice", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(3*roceMTU))
		q.part(infiniband.ReadResponseFirst, -1, roceMTU)
		q.part(infiniband.ReadResponseFirst, 0, roceMTU)
	}, spec.RoCERuleWrites, fail, "is part 2 of 3 of the READ"},
	{"a READ whose answer seems to begin twice, and packets were missed", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(3*roceMTU))
		q.part(infiniband.ReadResponseFirst, -1, roceMTU)
		q.part(infiniband.ReadResponseFirst, 0, roceMTU)
		q.drops["h0:eth0"] = 1
	}, spec.RoCERuleWrites, unclear, "is part 2 of 3 of the READ"},
	{"a READ whose rest is asked for", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(700))
		q.part(infiniband.ReadResponseFirst, -1, roceMTU)
		q.ask(infiniband.ReadRequest, q.psn, 0, length(700-roceMTU), address(4096+roceMTU))
		q.part(infiniband.ReadResponseFirst, 0, roceMTU)
		q.part(infiniband.ReadResponseLast, 1, 700-2*roceMTU)
	}, spec.RoCERuleWrites, pass, "2 READs of 1400 bytes"},
	{"a READ of which other bytes are asked for", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(700))
		q.ask(infiniband.ReadRequest, q.psn, 0, length(700-roceMTU), address(4096))
	}, spec.RoCERuleWrites, fail, "1 READs were asked for again as other bytes"},
	{"a READ of which more bytes are asked for", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(700))
		q.ask(infiniband.ReadRequest, q.psn, 0, length(701-roceMTU), address(4096+roceMTU))
	}, spec.RoCERuleWrites, fail, "asked for again as other bytes"},
	{"a READ that is asked for again by another key", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(700))
		q.ask(infiniband.ReadRequest, q.psn.Add(-1), 0, length(700),
			func(f *infiniband.Fields) { f.RETH.RKey++ })
	}, spec.RoCERuleWrites, fail, "asked for again as other bytes"},
	{"data that answer a WRITE", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 100)
		q.part(infiniband.ReadResponseOnly, -1, 100)
	}, spec.RoCERuleWrites, fail, "answers RC_WRITE_ONLY"},
	{"a READ of which a part comes twice, and one never", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(2*roceMTU))
		q.part(infiniband.ReadResponseFirst, -1, roceMTU)
		q.part(infiniband.ReadResponseFirst, -1, roceMTU)
	}, spec.RoCERuleWrites, pass, "1 READs of 700 bytes were seen whole, 1 not"},
	{"a READ of which a part is lost", func(q *roceQP) {
		q.next(infiniband.ReadRequest, 0, length(700))
		q.part(infiniband.ReadResponseFirst, -1, roceMTU)
		q.part(infiniband.ReadResponseLast, 1, 700-2*roceMTU)
	}, spec.RoCERuleWrites, pass, "1 READs of 700 bytes were seen whole, 1 not"},
	{"a message of no bytes", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 0)
	}, spec.RoCERuleWrites, pass, "WRITEs"},

	{"a NAK that is not heeded", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.next(infiniband.WriteOnly, 8)
		q.nak(q.psn.Add(-2))
		q.next(infiniband.WriteOnly, 8)
		q.now += int64(time.Second)
	}, spec.RoCERuleGoBack, fail, "was not heeded"},
	{"a NAK that came damaged", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.next(infiniband.WriteOnly, 8)
		q.nak(q.psn.Add(-2))
		q.change(func(k sighting) bool { return k.tap == "h0:eth0" && k.id == q.ids }, flip(-5))
		q.now += int64(time.Second)
	}, spec.RoCERuleGoBack, pass, "by 1 NAKs"},
	{"a NAK at the end", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.next(infiniband.WriteOnly, 8)
		q.nak(q.psn.Add(-2))
	}, spec.RoCERuleGoBack, pass, "2 NAKs"},
	{"a NAK that an acknowledgement makes up for", func(q *roceQP) {
		q.next(infiniband.WriteOnly, 8)
		q.next(infiniband.WriteOnly, 8)
		q.nak(q.psn.Add(-2))
		q.ack(q.psn.Add(-1), 2)
		q.now += int64(time.Second)
	}, spec.RoCERuleGoBack, pass, "2 NAKs"},
	{"a PSN that was left out, and comes later", func(q *roceQP) {
		q.ask(infiniband.WriteOnly, q.psn.Add(1), 8)
		q.ask(infiniband.WriteOnly, q.psn, 8)
	}, spec.RoCERuleGoBack, pass, "4 of 18"},
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

func TestRoCEAgainstMutations(t *testing.T) {
	for _, m := range roceMutations {
		t.Run(m.name, func(t *testing.T) {
			q := newRoCEScene(t, 4)
			q.healthy()
			m.mutate(q)
			results, _ := q.run(rules(t, m.rule)...)
			wants(t, results[0], m.want, m.says)
		})
	}
}

// What has nothing to be judged by says so, with the count; and what the first answers
// leave open about numbers later ones narrow.
func TestRoCEWithLittle(t *testing.T) {
	const uc = infiniband.Opcode(infiniband.UC)
	for _, c := range []struct {
		name string
		run  func(*roceQP)
		rule string
		want verdict.Verdict
		says string
	}{
		{"no answer", func(q *roceQP) {
			q.next(infiniband.WriteOnly, 8)
		}, spec.RoCERuleAcks, unclear,
			"NOT-APPLICABLE: no answer of a reliable connection was seen; 1 requests were"},
		{"no reliable connection", func(q *roceQP) {
			q.next(infiniband.WriteOnly+uc, 8)
			q.wait(time.Second)
		}, spec.RoCERuleAcks, unclear,
			"NOT-APPLICABLE: no answer of a reliable connection was seen; 0 requests were"},
		{"no reliable connection, and a PSN again", func(q *roceQP) {
			q.next(infiniband.WriteOnly+uc, 8)
			q.ask(infiniband.WriteOnly+uc, q.psn.Add(-1), 8)
		}, spec.RoCERuleGoBack, unclear, "NOT-APPLICABLE: none of 0 queue pairs"},
		{"one of each", func(q *roceQP) {
			q.next(infiniband.WriteOnly+uc, 8)
			q.next(infiniband.WriteOnly+uc, 8)
		}, spec.RoCERuleWrites, pass, "2 WRITEs of 16 bytes"},
		{"one request", func(q *roceQP) {
			q.next(infiniband.WriteOnly, 8)
		}, spec.RoCERulePSN, unclear, "NOT-APPLICABLE: no queue pair sent two requests: 1 sent one"},
		{"half a message", func(q *roceQP) {
			q.next(infiniband.WriteMiddle, roceMTU)
			q.next(infiniband.WriteLast, 8)
		}, spec.RoCERuleWrites, unclear,
			"NOT-APPLICABLE: no WRITE, SEND or READ was seen whole; of 1 packets were missing"},
		{"a READ whose rest is asked for before its path MTU is known", func(q *roceQP) {
			q.next(infiniband.ReadRequest, 0, length(700))
			q.ask(infiniband.ReadRequest, q.psn, 0, length(700-roceMTU), address(4096+roceMTU))
			q.part(infiniband.ReadResponseFirst, 0, roceMTU)
			q.part(infiniband.ReadResponseLast, 1, 700-2*roceMTU)
		}, spec.RoCERuleWrites, pass, "1 READs of 444 bytes were seen whole, 1 not"},
		{"no packet", func(q *roceQP) {
			q.now += int64(time.Second)
		}, spec.RoCERuleICRC, unclear, "no packet of RoCEv2 was seen whole"},
		{"a number that goes on", three(1, 1), spec.RoCERuleAcks, pass, "3 answers"},
		{"a number that goes back", three(1, ^uint32(0)), spec.RoCERuleAcks, fail,
			"do not count the messages"},
		{"a number that leaps", three(2, 1), spec.RoCERuleAcks, fail, "do not count the messages"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := newRoCEScene(t, 4)
			c.run(q)
			results, _ := q.run(rules(t, c.rule)...)
			wants(t, results[0], c.want, c.says)
		})
	}
}

// three are messages that come at once and are acknowledged one by one, with numbers
// that far apart.
func three(second, third uint32) func(*roceQP) {
	return func(q *roceQP) {
		for range 3 {
			q.next(infiniband.WriteOnly, 8)
		}
		q.ack(q.psn.Add(-3), 1)
		q.ack(q.psn.Add(-2), second)
		q.ack(q.psn.Add(-1), third)
	}
}
