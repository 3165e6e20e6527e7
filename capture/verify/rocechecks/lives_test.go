package rocechecks

import (
	"testing"
	"time"

	"railbed/internal/infiniband"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// A queue pair lives again, with another peer or the same one, and its numbers begin
// elsewhere: known by the messages that connect it.
func TestRoCENextLife(t *testing.T) {
	for _, c := range []struct {
		name  string
		ahead int // of the PSN
		run   func(*verifytest.QP)
		rule  string
		want  verdict.Verdict
		says  string
	}{
		{"its first packet gets lost", 1 << 22, (*verifytest.QP).FirstLost, spec.RoCERuleAcks, pass,
			"2 NAKs"},
		{"its first packet gets lost, near the last PSN", 5000, (*verifytest.QP).FirstLost, spec.RoCERuleAcks,
			pass,
			"2 NAKs"},
		{"a message too many, near the last PSN", -5000, func(q *verifytest.QP) {
			q.FirstLost()
			q.Next(infiniband.WriteOnly, 1)
			q.Ack(q.PSN.Add(-1), 2)
		}, spec.RoCERuleAcks, fail, "had a wrong message sequence number"},
		{"its PSNs begin near the last one", 5000, (*verifytest.QP).FirstLost, spec.RoCERulePSN, pass,
			"0 PSNs were left out"},
		{"its PSNs begin near the last one, and one is left out", 5000, func(q *verifytest.QP) {
			q.Write()
			q.PSN++
			q.Write()
		}, spec.RoCERulePSN, fail, "PSNs were left out between requests"},
		{"another path MTU", 5000, func(q *verifytest.QP) {
			q.Next(infiniband.WriteFirst, 1024, verifytest.Length(1500))
			q.Next(infiniband.WriteLast, 476)
		}, spec.RoCERuleWrites, pass, "5 WRITEs"},
		{"another path MTU, which no message told", 1 << 22, nil, spec.RoCERuleWrites, unclear,
			"1 flow continued with an unrelated PSN"},
		{"an answer of the life before, with another number at its asker", -5000, func(q *verifytest.QP) {
			q.Back++
			q.Connect(9)
			q.Write()
			q.Ack(q.PSN.Add(-1), 1)
			q.Back--
			q.Ack(q.PSN.Add(100), 0)
		}, spec.RoCERuleAcks, unclear, "1 answer cannot be matched to a queue pair"},
		{"going back", 5000, (*verifytest.QP).FirstLost, spec.RoCERuleGoBack, pass, "2 NAKs"},
		{"the same messages again", 0, func(q *verifytest.QP) {
			q.PSN++
			q.Write()
		}, spec.RoCERulePSN, fail, "PSNs were left out between requests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := verifytest.NewQP(t, 4)
			first := q.PSN
			q.Connect(7)
			q.Healthy()
			comm := uint32(8)
			if c.ahead == 0 {
				comm = 7
				next := q.PSN
				q.PSN = first
				q.Connect(comm)
				q.PSN = next
			} else {
				q.PSN, q.MSN = q.PSN.Add(c.ahead), 0
			}
			if c.run == nil {
				q.Next(infiniband.WriteFirst, 1024, verifytest.Length(1500))
				q.Next(infiniband.WriteLast, 476)
			} else {
				if c.ahead != 0 {
					q.Connect(comm)
				}
				c.run(q)
			}
			results, _ := q.Run(rules(t, c.rule)...)
			verifytest.Wants(t, results[0], c.want, c.says)
		})
	}
}

// TestRoCEAccusesNobody has what correct ends do, and what a capture may look like, that
// was taken for a fault once.
func TestRoCEAccusesNobody(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(*verifytest.QP)
		rule string
		want verdict.Verdict
		says string
	}{
		{"two queue pairs with the same PSNs, and the first packet of one gets lost", func(q *verifytest.QP) {
			other := *q
			other.To, other.Back = 0x21, 0x22
			for i, one := range []*verifytest.QP{q, &other} {
				if one.Next(infiniband.WriteOnly, 100); i == 0 {
					one.Lose()
				}
				one.Next(infiniband.WriteOnly, 100)
			}
			q.NAK(q.PSN.Add(-2))
			other.Ack(other.PSN.Add(-1), 2)
			q.Again(infiniband.WriteOnly, 2, 100)
			for range 6 {
				q.Next(infiniband.WriteOnly, 100)
			}
			q.Ack(q.PSN.Add(-1), 8)
		}, spec.RoCERuleAcks, unclear, "for 1 queue pair it is not known which one answers"},
		{"a READ of more PSNs than are remembered", func(q *verifytest.QP) {
			q.Connect(7)
			q.Write()
			q.Ack(q.PSN.Add(-1), 1)
			const psns = maxSent + 100
			q.Ask(infiniband.ReadRequest, q.PSN, 0, verifytest.Length(psns*verifytest.MTU))
			q.MSN++
			q.Part(infiniband.ReadResponseFirst, 0, verifytest.MTU)
			q.Part(infiniband.ReadResponseMiddle, 1, verifytest.MTU)
			q.Part(infiniband.ReadResponseLast, psns-1, verifytest.MTU)
			q.PSN = q.PSN.Add(psns)
			q.Write()
			q.Ack(q.PSN.Add(-1), 1)
			q.Write()
			q.Ack(q.PSN.Add(-1), 1)
		}, spec.RoCERuleAcks, pass, "6 answers"},
		{"a message too many behind such a READ", func(q *verifytest.QP) {
			q.Connect(7)
			q.Write()
			q.Ack(q.PSN.Add(-1), 1)
			const psns = maxSent + 100
			q.Ask(infiniband.ReadRequest, q.PSN, 0, verifytest.Length(psns*verifytest.MTU))
			q.MSN++
			q.Part(infiniband.ReadResponseLast, psns-1, verifytest.MTU)
			q.PSN = q.PSN.Add(psns)
			q.Write()
			q.Ack(q.PSN.Add(-1), 2)
		}, spec.RoCERuleAcks, fail, "had a wrong message sequence number"},
		{"a READ before the path MTU is known, and what follows gets lost", func(q *verifytest.QP) {
			q.Connect(7)
			first := q.PSN
			q.Ask(infiniband.ReadRequest, first, 0, verifytest.Length(5*verifytest.MTU-10))
			q.PSN = first.Add(5)
			q.Next(infiniband.WriteOnly, 100)
			q.Lose()
			q.Next(infiniband.WriteOnly, 100)
			q.MSN++
			q.Reply(infiniband.ReadResponseFirst, first, infiniband.AckUnlimited, verifytest.MTU)
			for i := range 3 {
				q.Reply(infiniband.ReadResponseMiddle, first.Add(i+1), infiniband.AckUnlimited,
					verifytest.MTU)
			}
			q.Reply(infiniband.ReadResponseLast, first.Add(4), infiniband.AckUnlimited, verifytest.MTU-10)
			q.NAK(q.PSN.Add(-2))
			q.Again(infiniband.WriteOnly, 2, 100)
			q.Ack(q.PSN.Add(-1), 2)
		}, spec.RoCERuleAcks, unclear, "for 1 queue pair, READs were missing"},
		{"what was thrown away behind a gap comes again and gets lost", func(q *verifytest.QP) {
			q.Healthy()
			q.Next(infiniband.WriteOnly, 100)
			q.Lose()
			q.Next(infiniband.WriteOnly, 100)
			q.Next(infiniband.WriteOnly, 100)
			q.NAK(q.PSN.Add(-3))
			q.Ask(infiniband.WriteOnly, q.PSN.Add(-3), 100)
			q.Ack(q.PSN.Add(-3), 1)
			for i := range 2 {
				q.Ask(infiniband.WriteOnly, q.PSN.Add(i-2), 100)
				q.Lose()
			}
			q.Wait(time.Second)
		}, spec.RoCERuleAcks, pass, "2 NAKs"},
		{"it comes again, and nobody answers", func(q *verifytest.QP) {
			q.Healthy()
			q.Next(infiniband.WriteOnly, 100)
			q.Lose()
			q.Next(infiniband.WriteOnly, 100)
			q.NAK(q.PSN.Add(-2))
			q.Ask(infiniband.WriteOnly, q.PSN.Add(-2), 100)
			q.Ack(q.PSN.Add(-2), 1)
			q.Ask(infiniband.WriteOnly, q.PSN.Add(-1), 100)
			q.Wait(time.Second)
		}, spec.RoCERuleAcks, fail, "asked for an acknowledgement and got none"},
		{"a connection ends with a request under way", func(q *verifytest.QP) {
			q.Connect(7)
			q.Healthy()
			q.Next(infiniband.WriteOnly, 100)
			q.Disconnect(7)
			q.Wait(time.Second)
		}, spec.RoCERuleAcks, pass, "9 answers"},
		{"a connection ends long after a request", func(q *verifytest.QP) {
			q.Connect(7)
			q.Healthy()
			q.Next(infiniband.WriteOnly, 100)
			q.Wait(time.Second)
			q.Disconnect(7)
		}, spec.RoCERuleAcks, fail, "asked for an acknowledgement and got none"},
		{"a connection ends with a NAK", func(q *verifytest.QP) {
			q.Connect(7)
			q.Healthy()
			q.Next(infiniband.WriteOnly, 8)
			q.Next(infiniband.WriteOnly, 8)
			q.NAK(q.PSN.Add(-2))
			q.Disconnect(7)
			q.Wait(time.Second)
		}, spec.RoCERuleGoBack, pass, "2 NAKs"},
		{"an acknowledged request comes again twice", func(q *verifytest.QP) {
			q.Healthy()
			for range maxIgnored {
				q.Wait(100 * time.Millisecond)
				q.Again(infiniband.WriteOnly, 1, 100)
			}
			q.Wait(time.Second)
		}, spec.RoCERuleAcks, pass, "answers"},
		{"an acknowledged request comes again and again", func(q *verifytest.QP) {
			q.Healthy()
			for range maxIgnored + 1 {
				q.Wait(100 * time.Millisecond)
				q.Again(infiniband.WriteOnly, 1, 100)
			}
			q.Wait(time.Second)
		}, spec.RoCERuleAcks, fail, "came again 3 times"},
		{"it is answered in the end", func(q *verifytest.QP) {
			q.Healthy()
			for range 2 * maxIgnored {
				q.Wait(100 * time.Millisecond)
				q.Again(infiniband.WriteOnly, 1, 100)
			}
			q.Ack(q.PSN.Add(-1), 0)
			q.Wait(time.Second)
		}, spec.RoCERuleAcks, pass, "answers"},
		{"another one accepts with the same number", func(q *verifytest.QP) {
			other := *q
			other.To, other.Back = 0x21, 0x22
			psn := q.PSN
			q.PSN -= 300
			q.Connect(7)
			q.Remove(func(k verifytest.Sighting) bool { return k.ID == q.IDs })
			q.Accept(1, 7)
			q.PSN = psn
			q.Accept(q.Answerer, 7)
			other.Connect(8)
			q.Write()
			other.Write()
			q.Ack(q.PSN.Add(-1), 1)
			other.Ack(other.PSN.Add(-1), 1)
		}, spec.RoCERuleAcks, pass, "2 answers of 2 queue pairs"},
		{"a damaged message of who connects", func(q *verifytest.QP) {
			q.PSN = q.PSN.Add(-300)
			q.Connect(7)
			q.PSN = q.PSN.Add(300)
			q.Change(func(k verifytest.Sighting) bool {
				return k.ID == q.IDs && k.Tap == "h0:eth0"
			}, verifytest.Flip(-1))
			q.Healthy()
		}, spec.RoCERuleAcks, pass, "answers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := verifytest.NewQP(t, 4)
			c.run(q)
			results, _ := q.Run(rules(t, c.rule)...)
			verifytest.Wants(t, results[0], c.want, c.says)
		})
	}
}

// Packets that are missing because of a snap length, or at taps that are not at NICs, give no FAIL.
func TestRoCESeenInPart(t *testing.T) {
	for _, snap := range []int{54, 58, 68, 70, 90} {
		q := verifytest.NewQP(t, 4)
		q.Healthy()
		q.Healthy()
		q.Snap = snap
		results, _ := q.Run(rules(t, roceRules...)...)
		for _, r := range results {
			if r.Verdict == fail {
				t.Errorf("cut to %d bytes: %v", snap, r)
			}
		}
	}
	q := verifytest.NewQP(t, 4)
	q.Healthy()
	q.Healthy()
	q.Snap = 68 // no RETH
	q.Remove(func(k verifytest.Sighting) bool { return k.Tap != "h2:eth0" })
	results, _ := q.Run(rules(t, spec.RoCERuleAcks)...)
	verifytest.Wants(t, results[0], unclear, "answers acknowledged PSNs that had not come")
	count := 1
	for lost := 0; lost < count; lost++ {
		q := verifytest.NewQP(t, 4)
		q.Healthy()
		q.Ask(infiniband.ReadRequest, q.PSN, 0, verifytest.Length(700))
		q.Part(infiniband.ReadResponseFirst, 0, verifytest.MTU)
		q.Ask(infiniband.ReadRequest, q.PSN.Add(1), 0, verifytest.Length(700-verifytest.MTU),
			verifytest.Address(4096+verifytest.MTU))
		q.Part(infiniband.ReadResponseFirst, 1, verifytest.MTU)
		q.Part(infiniband.ReadResponseLast, 2, 700-2*verifytest.MTU)
		count = 0
		q.Remove(func(k verifytest.Sighting) bool {
			if k.Tap == "h2:eth0" {
				count++
			}
			return k.Tap == "h2:eth0" && count == lost+1
		})
		for _, r := range q.Dumped("h2:eth0", rules(t, roceRules...)...) {
			if r.Verdict == fail {
				t.Errorf("packet %d was not written: %v", lost, r)
			}
		}
	}
	if count < 25 {
		t.Errorf("h2:eth0 saw %d packets", count)
	}
}
