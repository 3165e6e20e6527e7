package rocechecks

import (
	"bytes"
	"testing"
	"time"

	"railbed/internal/infiniband"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// roceMutations are runs with one fault each, behind a healthy one.
var roceMutations = []struct {
	name   string
	mutate func(*verifytest.QP)
	rule   string
	want   verdict.Verdict
	says   string
}{
	{"a bit of a payload changed on the way", func(q *verifytest.QP) {
		q.Change(func(k verifytest.Sighting) bool {
			return k.Tap == "h2:eth0" && k.ID == q.IDs-1
		}, verifytest.Flip(70))
	}, spec.RoCERuleICRC, fail, "wrong ICRC at other taps"},
	{"a sender that makes a wrong ICRC", func(q *verifytest.QP) {
		q.Change(func(k verifytest.Sighting) bool { return k.ID == 3 }, verifytest.Flip(-1))
	}, spec.RoCERuleICRC, fail, "left a NIC with a wrong ICRC"},
	{"a router that changes the TTL, DSCP and ECN", func(q *verifytest.QP) {
		q.Change(func(k verifytest.Sighting) bool {
			return k.Tap == "h2:eth0"
		}, func(k *verifytest.Sighting) {
			k.Frame = bytes.Clone(k.Frame)
			ip := wire.IPv4(k.Frame[14:])
			ip.RewriteTOS(0xFF)
			ip.DecrementTTL()
		})
	}, spec.RoCERuleICRC, pass, "a right ICRC and 0 a wrong one"},
	{"an unknown opcode", func(q *verifytest.QP) {
		q.Change(func(k verifytest.Sighting) bool { return k.ID == 1 }, func(k *verifytest.Sighting) {
			k.Frame = bytes.Clone(k.Frame)
			k.Frame[42] = 0x7F
		})
	}, spec.RoCERuleICRC, fail, "had the UDP port of RoCEv2 but not its format"},
	{"a capture that is too short", func(q *verifytest.QP) { q.Snap = 100 }, spec.RoCERuleICRC, unclear,
		"NOT-APPLICABLE"},

	{"a PSN that is left out", func(q *verifytest.QP) {
		q.PSN++
		q.Write()
	}, spec.RoCERulePSN, fail, "PSNs were left out between requests"},
	{"a PSN that is sent late", func(q *verifytest.QP) {
		q.Ask(infiniband.WriteOnly, q.PSN.Add(1), 10)
		q.Ask(infiniband.WriteOnly, q.PSN, 10)
	}, spec.RoCERulePSN, fail, "PSNs were left out between requests"},
	{"another length under the same PSN", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 40)
		q.Ask(infiniband.WriteOnly, q.PSN.Add(-1), 44)
	}, spec.RoCERulePSN, fail, "sent again with other contents"},
	{"another length of a SEND under the same PSN", func(q *verifytest.QP) {
		q.Next(infiniband.SendOnly, 40)
		q.Ask(infiniband.SendOnly, q.PSN.Add(-1), 44)
	}, spec.RoCERulePSN, fail, "sent again with other contents"},
	{"a READ of more under the same PSN", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(200))
		q.Ask(infiniband.ReadRequest, q.PSN.Add(-1), 0, verifytest.Length(201))
	}, spec.RoCERulePSN, fail, "sent again with other contents"},
	{"another opcode under the same PSN", func(q *verifytest.QP) {
		q.Next(infiniband.SendOnly, 40)
		q.Ask(infiniband.SendOnlyImm, q.PSN.Add(-1), 40)
	}, spec.RoCERulePSN, fail, "sent again with other contents"},
	{"another RETH under the same PSN", func(q *verifytest.QP) {
		q.Next(infiniband.WriteFirst, verifytest.MTU, verifytest.Length(600))
		q.Ask(infiniband.WriteFirst, q.PSN.Add(-1), verifytest.MTU, verifytest.Length(700))
	}, spec.RoCERulePSN, fail, "sent again with other contents"},
	{"a READ that is asked for again in part", func(q *verifytest.QP) {
		q.Ask(infiniband.ReadRequest, q.PSN, 0, verifytest.Length(700))
		q.Ask(infiniband.ReadRequest, q.PSN.Add(1), 0, verifytest.Length(700-verifytest.MTU))
		q.PSN = q.PSN.Add(3)
		q.Next(infiniband.WriteOnly, 4)
	}, spec.RoCERulePSN, pass, "4 of them again"},
	{"a READ that takes too many PSNs", func(q *verifytest.QP) {
		q.Ask(infiniband.ReadRequest, q.PSN, 0, verifytest.Length(700))
		q.PSN = q.PSN.Add(4)
		q.Next(infiniband.WriteOnly, 4)
	}, spec.RoCERulePSN, fail, "PSNs were left out between requests"},
	{"the queue pair's next life", func(q *verifytest.QP) {
		q.PSN = q.PSN.Add(1 << 20)
		q.Write()
	}, spec.RoCERulePSN, unclear, "an unrelated PSN"},

	{"an acknowledgement of what was never sent", func(q *verifytest.QP) {
		q.Ack(q.PSN, 0)
	}, spec.RoCERuleAcks,
		fail, "acknowledged PSNs that had not come"},
	{"an acknowledgement of a lost packet", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Lose()
		q.Ack(q.PSN.Add(-1), 1)
	}, spec.RoCERuleAcks, fail, "acknowledged PSNs that had not come"},
	{"an acknowledgement of what was damaged", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 80)
		q.Change(func(k verifytest.Sighting) bool {
			return k.Tap == "h2:eth0" && k.ID == q.IDs
		}, verifytest.Flip(90))
		q.Ack(q.PSN.Add(-1), 1)
	}, spec.RoCERuleAcks, fail, "acknowledged PSNs that had not come"},
	{"an acknowledgement over a gap", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Lose()
		q.Next(infiniband.WriteOnly, 8)
		q.Ack(q.PSN.Add(-1), 1)
	}, spec.RoCERuleAcks, fail, "acknowledged PSNs that had not come"},
	{"a NAK with nothing behind it", func(q *verifytest.QP) { q.NAK(q.PSN) }, spec.RoCERuleAcks, fail,
		"although no later request had come"},
	{"a NAK that is behind what is missing", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Lose()
		q.Next(infiniband.WriteOnly, 8)
		q.NAK(q.PSN.Add(-1))
	}, spec.RoCERuleAcks, fail, "acknowledged PSNs that had not come"},
	{"a message that is counted twice", func(q *verifytest.QP) {
		q.Write()
		q.Ack(q.PSN.Add(-1), 2)
	}, spec.RoCERuleAcks, fail, "had a wrong message sequence number"},
	{"a message that is not counted", func(q *verifytest.QP) {
		q.Write()
		q.Ack(q.PSN.Add(-1), 0)
	}, spec.RoCERuleAcks, fail, "had a wrong message sequence number"},
	{"a READ that is not counted", func(q *verifytest.QP) {
		q.MSN--
		q.Read(300)
		q.Next(infiniband.WriteOnly, 4)
		q.Ack(q.PSN.Add(-1), 1)
	}, spec.RoCERuleAcks, fail, "had a wrong message sequence number"},
	{"a duplicate that is acknowledged again", func(q *verifytest.QP) {
		q.Ask(infiniband.WriteLast, q.PSN.Add(-1), 1000-3*verifytest.MTU)
		q.Ack(q.PSN.Add(-1), 0)
	}, spec.RoCERuleAcks, pass, "answers"},
	{"a request that is never acknowledged", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Now += int64(time.Second)
	}, spec.RoCERuleAcks, fail, "got none"},
	{"a request at the end", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
	}, spec.RoCERuleAcks, pass, "answers"},
	{"a request that does not ask", func(q *verifytest.QP) {
		q.Next(infiniband.WriteFirst, verifytest.MTU, verifytest.Length(1000))
		q.Now += int64(time.Second)
	}, spec.RoCERuleAcks, pass, "answers"},
	{"a request that is refused", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Reply(infiniband.Acknowledge, q.PSN.Add(-1), infiniband.NakAccess, 0)
		q.Now += int64(time.Second)
	}, spec.RoCERuleAcks, pass, "2 NAKs"},
	{"a selective NAK of what came early", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Lose()
		q.Next(infiniband.WriteOnly, 8)
		q.Keeps(-2, -1)
	}, spec.RoCERuleAcks, pass, "2 NAKs"},
	{"a selective NAK of what never came", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Lose()
		q.Next(infiniband.WriteOnly, 8)
		q.Keeps(-2, 0)
	}, spec.RoCERuleAcks, fail, "1 NAK was selective and named a PSN that had not come"},
	{"a selective NAK of what was lost", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Lose()
		q.Next(infiniband.WriteOnly, 8)
		q.Keeps(-2, -2)
	}, spec.RoCERuleAcks, fail, "named a PSN that had not come"},
	{"a selective NAK of what was lost, too", func(q *verifytest.QP) {
		for range 2 {
			q.Next(infiniband.WriteOnly, 8)
			q.Lose()
		}
		q.Next(infiniband.WriteOnly, 8)
		q.Keeps(-3, -2)
	}, spec.RoCERuleAcks, fail, "named a PSN that had not come"},
	{"a selective NAK of what it awaits", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Keeps(-1, -1)
	}, spec.RoCERuleAcks, fail, "named a PSN that had not come"},
	{"a selective NAK of what is over", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Keeps(-1, -2)
	}, spec.RoCERuleAcks, fail, "named a PSN that had not come"},
	{"an unknown syndrome", func(q *verifytest.QP) {
		q.MSN += 1000
		q.Reply(infiniband.Acknowledge, q.PSN, infiniband.Nak|0x1E, 0)
	}, spec.RoCERuleAcks, pass, "1 answer has a syndrome that IBTA reserves"},
	{"an answer to nobody", func(q *verifytest.QP) {
		q.Back = 0x77
		q.Ack(q.PSN.Add(-1), 0)
	}, spec.RoCERuleAcks, unclear, "cannot be matched to a queue pair"},

	{"a WRITE that is shorter than its RETH", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 100, verifytest.Length(101))
	}, spec.RoCERuleWrites, fail, "its RETH says 101"},
	{"a WRITE of two packets that is longer", func(q *verifytest.QP) {
		q.Next(infiniband.WriteFirst, verifytest.MTU, verifytest.Length(511))
		q.Next(infiniband.WriteLast, verifytest.MTU)
	}, spec.RoCERuleWrites, fail, "carries 512 bytes, its RETH says 511"},
	{"a MIDDLE that is too short", func(q *verifytest.QP) {
		q.Next(infiniband.WriteFirst, verifytest.MTU, verifytest.Length(600))
		q.Next(infiniband.WriteMiddle, 128)
		q.Next(infiniband.WriteLast, 600-128-verifytest.MTU)
	}, spec.RoCERuleWrites, fail, "which is not a path MTU"},
	{"a FIRST of another path MTU", func(q *verifytest.QP) {
		q.Next(infiniband.WriteFirst, 512, verifytest.Length(600))
		q.Next(infiniband.WriteLast, 88)
	}, spec.RoCERuleWrites, fail, "where others carry 256"},
	{"an ONLY that is too long", func(q *verifytest.QP) {
		q.Next(infiniband.SendOnly, 300)
	}, spec.RoCERuleWrites, fail, "more than the path MTU, 256"},
	{"a LAST of no bytes", func(q *verifytest.QP) {
		q.Next(infiniband.WriteFirst, verifytest.MTU, verifytest.Length(verifytest.MTU))
		q.Next(infiniband.WriteLast, 0)
	}, spec.RoCERuleWrites, fail, "want at least 1"},
	{"a MIDDLE without a FIRST", func(q *verifytest.QP) {
		q.Next(infiniband.WriteMiddle, verifytest.MTU)
	}, spec.RoCERuleWrites, fail, "out of the order"},
	{"a FIRST within a message", func(q *verifytest.QP) {
		q.Next(infiniband.WriteFirst, verifytest.MTU, verifytest.Length(600))
		q.Next(infiniband.WriteFirst, verifytest.MTU, verifytest.Length(600))
	}, spec.RoCERuleWrites, fail, "out of the order"},
	{"a SEND within a WRITE", func(q *verifytest.QP) {
		q.Next(infiniband.WriteFirst, verifytest.MTU, verifytest.Length(600))
		q.Next(infiniband.SendLast, 600-verifytest.MTU)
	}, spec.RoCERuleWrites, fail, "out of the order"},
	{"a READ within a WRITE", func(q *verifytest.QP) {
		q.Next(infiniband.WriteFirst, verifytest.MTU, verifytest.Length(600))
		q.Read(100)
	}, spec.RoCERuleWrites, fail, "out of the order"},
	{"a RETH of more than 2^31 bytes", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 4, verifytest.Length(1<<31+1))
	}, spec.RoCERuleWrites, fail, "1 request announced more than 2^31"},
	{"padding that is not zeros", func(q *verifytest.QP) {
		q.Next(infiniband.SendOnly, 5)
		q.Change(func(k verifytest.Sighting) bool { return k.ID == q.IDs }, verifytest.Flip(42+12+6))
	}, spec.RoCERuleWrites, fail, "padding that is not zeros"},
	{"a WRITE beyond the last address", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 100, verifytest.Address(1<<64-99))
	}, spec.RoCERuleWrites, fail, "1 request went beyond the last address"},
	{"a WRITE up to the last address", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 100, verifytest.Address(1<<64-100))
	}, spec.RoCERuleWrites, pass, "WRITEs"},
	{"a READ beyond the last address", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(100), verifytest.Address(1<<64-99))
	}, spec.RoCERuleWrites, fail, "the READ of PSN"},
	{"a READ of more than 2^31 bytes", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(1<<31+1))
	}, spec.RoCERuleWrites, fail, "1 request announced more than 2^31"},
	{"a READ whose answer is too short", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(200))
		q.Part(infiniband.ReadResponseOnly, -1, 199)
	}, spec.RoCERuleWrites, fail, "carries 199 bytes, and the READ of PSN"},
	{"a READ whose answer is longer in its last part", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(300))
		q.Part(infiniband.ReadResponseFirst, -1, verifytest.MTU)
		q.Part(infiniband.ReadResponseLast, 0, 48)
	}, spec.RoCERuleWrites, fail, "has 44 there"},
	{"a READ whose answer begins with no path MTU", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(300))
		q.Part(infiniband.ReadResponseFirst, -1, 128)
	}, spec.RoCERuleWrites, fail, "carries 128 bytes, which is not a path MTU"},
	{"a READ whose answer begins with another path MTU", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(700))
		q.Part(infiniband.ReadResponseFirst, -1, 512)
	}, spec.RoCERuleWrites, fail, "carries 512 bytes, and the READ of PSN"},
	{"a READ whose answer does not end", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(2*verifytest.MTU))
		q.Part(infiniband.ReadResponseFirst, -1, verifytest.MTU)
		q.Part(infiniband.ReadResponseMiddle, 0, verifytest.MTU)
	}, spec.RoCERuleWrites, fail, "is part 2 of 2 of the READ"},
	{"a READ whose answer begins twice", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(3*verifytest.MTU))
		q.Part(infiniband.ReadResponseFirst, -1, verifytest.MTU)
		q.Part(infiniband.ReadResponseFirst, 0, verifytest.MTU)
	}, spec.RoCERuleWrites, fail, "is part 2 of 3 of the READ"},
	{"a READ whose answer seems to begin twice, and packets were missed", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(3*verifytest.MTU))
		q.Part(infiniband.ReadResponseFirst, -1, verifytest.MTU)
		q.Part(infiniband.ReadResponseFirst, 0, verifytest.MTU)
		q.Drops["h0:eth0"] = 1
	}, spec.RoCERuleWrites, unclear, "is part 2 of 3 of the READ"},
	{"a READ whose rest is asked for", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(700))
		q.Part(infiniband.ReadResponseFirst, -1, verifytest.MTU)
		q.Ask(infiniband.ReadRequest, q.PSN, 0, verifytest.Length(700-verifytest.MTU),
			verifytest.Address(4096+verifytest.MTU))
		q.Part(infiniband.ReadResponseFirst, 0, verifytest.MTU)
		q.Part(infiniband.ReadResponseLast, 1, 700-2*verifytest.MTU)
	}, spec.RoCERuleWrites, pass, "2 READs of 1400 bytes"},
	{"a READ of which other bytes are asked for", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(700))
		q.Ask(infiniband.ReadRequest, q.PSN, 0, verifytest.Length(700-verifytest.MTU),
			verifytest.Address(4096))
	}, spec.RoCERuleWrites, fail, "1 READ was repeated for bytes that the first copy had not asked for"},
	{"a READ of which more bytes are asked for", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(700))
		q.Ask(infiniband.ReadRequest, q.PSN, 0, verifytest.Length(701-verifytest.MTU),
			verifytest.Address(4096+verifytest.MTU))
	}, spec.RoCERuleWrites, fail, "repeated for bytes that the first copy had not asked for"},
	{"a READ that is asked for again by another key", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(700))
		q.Ask(infiniband.ReadRequest, q.PSN.Add(-1), 0, verifytest.Length(700),
			func(f *infiniband.Fields) { f.RETH.RKey++ })
	}, spec.RoCERuleWrites, fail, "repeated for bytes that the first copy had not asked for"},
	{"data that answer a WRITE", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 100)
		q.Part(infiniband.ReadResponseOnly, -1, 100)
	}, spec.RoCERuleWrites, fail, "answers RC_WRITE_ONLY"},
	{"a READ of which a part comes twice, and one never", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(2*verifytest.MTU))
		q.Part(infiniband.ReadResponseFirst, -1, verifytest.MTU)
		q.Part(infiniband.ReadResponseFirst, -1, verifytest.MTU)
	}, spec.RoCERuleWrites, pass, "1 READ of 700 bytes were seen whole, 1 not"},
	{"a READ of which a part is lost", func(q *verifytest.QP) {
		q.Next(infiniband.ReadRequest, 0, verifytest.Length(700))
		q.Part(infiniband.ReadResponseFirst, -1, verifytest.MTU)
		q.Part(infiniband.ReadResponseLast, 1, 700-2*verifytest.MTU)
	}, spec.RoCERuleWrites, pass, "1 READ of 700 bytes were seen whole, 1 not"},
	{"a message of no bytes", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 0)
	}, spec.RoCERuleWrites, pass, "WRITEs"},

	{"a NAK that is not heeded", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Next(infiniband.WriteOnly, 8)
		q.NAK(q.PSN.Add(-2))
		q.Next(infiniband.WriteOnly, 8)
		q.Now += int64(time.Second)
	}, spec.RoCERuleGoBack, fail, "caused no retransmission"},
	{"a NAK that came damaged", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Next(infiniband.WriteOnly, 8)
		q.NAK(q.PSN.Add(-2))
		q.Change(func(k verifytest.Sighting) bool {
			return k.Tap == "h0:eth0" && k.ID == q.IDs
		}, verifytest.Flip(-5))
		q.Now += int64(time.Second)
	}, spec.RoCERuleGoBack, pass, "by 1 NAK"},
	{"a NAK at the end", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Next(infiniband.WriteOnly, 8)
		q.NAK(q.PSN.Add(-2))
	}, spec.RoCERuleGoBack, pass, "2 NAKs"},
	{"a NAK that an acknowledgement makes up for", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Next(infiniband.WriteOnly, 8)
		q.NAK(q.PSN.Add(-2))
		q.Ack(q.PSN.Add(-1), 2)
		q.Now += int64(time.Second)
	}, spec.RoCERuleGoBack, pass, "2 NAKs"},
	{"a PSN that was left out, and comes later", func(q *verifytest.QP) {
		q.Ask(infiniband.WriteOnly, q.PSN.Add(1), 8)
		q.Ask(infiniband.WriteOnly, q.PSN, 8)
	}, spec.RoCERuleGoBack, pass, "4 of 18"},
	{"going back to behind what is missing", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Next(infiniband.WriteOnly, 8)
		q.Next(infiniband.WriteOnly, 8)
		q.NAK(q.PSN.Add(-3))
		q.Ask(infiniband.WriteOnly, q.PSN.Add(-2), 8)
	}, spec.RoCERuleGoBack, fail, "after the first missing one"},
	{"selective repeat", func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Next(infiniband.WriteOnly, 8)
		q.Next(infiniband.WriteOnly, 8)
		q.NAK(q.PSN.Add(-3))
		q.Ask(infiniband.WriteOnly, q.PSN.Add(-3), 8)
		q.Next(infiniband.WriteOnly, 8)
	}, spec.RoCERuleGoBack, fail, "left out of a retransmission"},
	{"a timeout", func(q *verifytest.QP) {
		q.Write()
		q.Ask(infiniband.WriteFirst, q.PSN.Add(-4), verifytest.MTU, verifytest.Length(1000))
		q.Ask(infiniband.WriteMiddle, q.PSN.Add(-3), verifytest.MTU)
		q.Ack(q.PSN.Add(-2), 0) // late: what it acknowledges may be left out
		q.Ask(infiniband.WriteLast, q.PSN.Add(-1), 1000-3*verifytest.MTU)
		q.Next(infiniband.WriteOnly, 8)
	}, spec.RoCERuleGoBack, pass, "in 2 rounds"},
}

func TestRoCEAgainstMutations(t *testing.T) {
	for _, m := range roceMutations {
		t.Run(m.name, func(t *testing.T) {
			q := verifytest.NewQP(t, 4)
			q.Healthy()
			m.mutate(q)
			results, _ := q.Run(rules(t, m.rule)...)
			verifytest.Wants(t, results[0], m.want, m.says)
		})
	}
}

// What has nothing to be judged by says so, with the count; and what the first answers
// leave open about numbers later ones narrow.
func TestRoCEWithLittle(t *testing.T) {
	const uc = infiniband.Opcode(infiniband.UC)
	for _, c := range []struct {
		name string
		run  func(*verifytest.QP)
		rule string
		want verdict.Verdict
		says string
	}{
		{"no answer", func(q *verifytest.QP) {
			q.Next(infiniband.WriteOnly, 8)
		}, spec.RoCERuleAcks, unclear,
			"NOT-APPLICABLE: no answer of a reliable connection was seen; 1 request was"},
		{"no reliable connection", func(q *verifytest.QP) {
			q.Next(infiniband.WriteOnly+uc, 8)
			q.Wait(time.Second)
		}, spec.RoCERuleAcks, unclear,
			"NOT-APPLICABLE: no answer of a reliable connection was seen; 0 requests were"},
		{"no reliable connection, and a PSN again", func(q *verifytest.QP) {
			q.Next(infiniband.WriteOnly+uc, 8)
			q.Ask(infiniband.WriteOnly+uc, q.PSN.Add(-1), 8)
		}, spec.RoCERuleGoBack, unclear, "NOT-APPLICABLE: none of 0 queue pairs"},
		{"one of each", func(q *verifytest.QP) {
			q.Next(infiniband.WriteOnly+uc, 8)
			q.Next(infiniband.WriteOnly+uc, 8)
		}, spec.RoCERuleWrites, pass, "2 WRITEs of 16 bytes"},
		{"one request", func(q *verifytest.QP) {
			q.Next(infiniband.WriteOnly, 8)
		}, spec.RoCERulePSN, unclear, "NOT-APPLICABLE: no queue pair sent two requests: 1 sent one"},
		{"half a message", func(q *verifytest.QP) {
			q.Next(infiniband.WriteMiddle, verifytest.MTU)
			q.Next(infiniband.WriteLast, 8)
		}, spec.RoCERuleWrites, unclear,
			"NOT-APPLICABLE: no WRITE, SEND or READ was seen whole; 1 had missing packets"},
		{"a READ whose rest is asked for before its path MTU is known", func(q *verifytest.QP) {
			q.Next(infiniband.ReadRequest, 0, verifytest.Length(700))
			q.Ask(infiniband.ReadRequest, q.PSN, 0, verifytest.Length(700-verifytest.MTU),
				verifytest.Address(4096+verifytest.MTU))
			q.Part(infiniband.ReadResponseFirst, 0, verifytest.MTU)
			q.Part(infiniband.ReadResponseLast, 1, 700-2*verifytest.MTU)
		}, spec.RoCERuleWrites, pass, "1 READ of 444 bytes were seen whole, 1 not"},
		{"no packet", func(q *verifytest.QP) {
			q.Now += int64(time.Second)
		}, spec.RoCERuleICRC, unclear, "no packet of RoCEv2 was seen whole"},
		{"a number that goes on", three(1, 1), spec.RoCERuleAcks, pass, "3 answers"},
		{"a number that goes back", three(1, ^uint32(0)), spec.RoCERuleAcks, fail,
			"had a wrong message sequence number"},
		{"a number that leaps", three(2, 1), spec.RoCERuleAcks, fail, "had a wrong message sequence number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := verifytest.NewQP(t, 4)
			c.run(q)
			results, _ := q.Run(rules(t, c.rule)...)
			verifytest.Wants(t, results[0], c.want, c.says)
		})
	}
}

// three are messages that come at once and are acknowledged one by one, with numbers
// that far apart.
func three(second, third uint32) func(*verifytest.QP) {
	return func(q *verifytest.QP) {
		for range 3 {
			q.Next(infiniband.WriteOnly, 8)
		}
		q.Ack(q.PSN.Add(-3), 1)
		q.Ack(q.PSN.Add(-2), second)
		q.Ack(q.PSN.Add(-1), third)
	}
}
