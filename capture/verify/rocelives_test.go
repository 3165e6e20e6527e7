package verify

import (
	"testing"
	"time"

	"railbed/internal/infiniband"
	"railbed/internal/verdict"
	"railbed/plan/spec"
)

// again sends the last requests again, one packet each.
func (q *roceQP) again(o infiniband.Opcode, count, payload int) {
	for i := range count {
		q.ask(o, q.psn.Add(i-count), payload)
	}
}

// firstLost begins a connection whose first packet gets lost, and comes again.
func (q *roceQP) firstLost() {
	first := q.psn
	q.next(infiniband.WriteOnly, 100)
	q.lose()
	q.next(infiniband.WriteOnly, 100)
	q.nak(first)
	q.again(infiniband.WriteOnly, 2, 100)
	q.ack(q.psn.Add(-1), 2)
}

// A queue pair lives again, with another peer or the same one, and its numbers begin
// elsewhere: known by the messages that connect it.
func TestRoCENextLife(t *testing.T) {
	for _, c := range []struct {
		name  string
		ahead int // of the PSN
		run   func(*roceQP)
		rule  string
		want  verdict.Verdict
		says  string
	}{
		{"its first packet gets lost", 1 << 22, (*roceQP).firstLost, spec.RoCERuleAcks, pass, "2 NAKs"},
		{"its first packet gets lost, near the last PSN", 5000, (*roceQP).firstLost, spec.RoCERuleAcks, pass,
			"2 NAKs"},
		{"a message too many, near the last PSN", -5000, func(q *roceQP) {
			q.firstLost()
			q.next(infiniband.WriteOnly, 1)
			q.ack(q.psn.Add(-1), 2)
		}, spec.RoCERuleAcks, fail, "do not count the messages"},
		{"its PSNs begin near the last one", 5000, (*roceQP).firstLost, spec.RoCERulePSN, pass,
			"0 PSNs were left out"},
		{"its PSNs begin near the last one, and one is left out", 5000, func(q *roceQP) {
			q.write()
			q.psn++
			q.write()
		}, spec.RoCERulePSN, fail, "PSNs left out"},
		{"another path MTU", 5000, func(q *roceQP) {
			q.next(infiniband.WriteFirst, 1024, length(1500))
			q.next(infiniband.WriteLast, 476)
		}, spec.RoCERuleWrites, pass, "5 WRITEs"},
		{"another path MTU, which no message told", 1 << 22, nil, spec.RoCERuleWrites, unclear,
			"1 flows went on with a PSN from elsewhere"},
		{"an answer of the life before, with another number at its asker", -5000, func(q *roceQP) {
			q.back++
			q.connect(9)
			q.write()
			q.ack(q.psn.Add(-1), 1)
			q.back--
			q.ack(q.psn.Add(100), 0)
		}, spec.RoCERuleAcks, unclear, "1 answers cannot be told whose they are"},
		{"going back", 5000, (*roceQP).firstLost, spec.RoCERuleGoBack, pass, "2 NAKs"},
		{"the same messages again", 0, func(q *roceQP) {
			q.psn++
			q.write()
		}, spec.RoCERulePSN, fail, "PSNs left out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := newRoCEScene(t, 4)
			first := q.psn
			q.connect(7)
			q.healthy()
			comm := uint32(8)
			if c.ahead == 0 {
				comm = 7
				next := q.psn
				q.psn = first
				q.connect(comm)
				q.psn = next
			} else {
				q.psn, q.msn = q.psn.Add(c.ahead), 0
			}
			if c.run == nil {
				q.next(infiniband.WriteFirst, 1024, length(1500))
				q.next(infiniband.WriteLast, 476)
			} else {
				if c.ahead != 0 {
					q.connect(comm)
				}
				c.run(q)
			}
			results, _ := q.run(rules(t, c.rule)...)
			wants(t, results[0], c.want, c.says)
		})
	}
}

// TestRoCEAccusesNobody has what correct ends do, and what a capture may look like, that
// was taken for a fault once.
func TestRoCEAccusesNobody(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(*roceQP)
		rule string
		want verdict.Verdict
		says string
	}{
		{"two queue pairs with the same PSNs, and the first packet of one gets lost", func(q *roceQP) {
			other := *q
			other.to, other.back = 0x21, 0x22
			for i, one := range []*roceQP{q, &other} {
				if one.next(infiniband.WriteOnly, 100); i == 0 {
					one.lose()
				}
				one.next(infiniband.WriteOnly, 100)
			}
			q.nak(q.psn.Add(-2))
			other.ack(other.psn.Add(-1), 2)
			q.again(infiniband.WriteOnly, 2, 100)
			for range 6 {
				q.next(infiniband.WriteOnly, 100)
			}
			q.ack(q.psn.Add(-1), 8)
		}, spec.RoCERuleAcks, unclear, "of 1 queue pairs it is not known what answers them"},
		{"a READ of more PSNs than are remembered", func(q *roceQP) {
			q.connect(7)
			q.write()
			q.ack(q.psn.Add(-1), 1)
			const psns = maxRoCESent + 100
			q.ask(infiniband.ReadRequest, q.psn, 0, length(psns*roceMTU))
			q.msn++
			q.part(infiniband.ReadResponseFirst, 0, roceMTU)
			q.part(infiniband.ReadResponseMiddle, 1, roceMTU)
			q.part(infiniband.ReadResponseLast, psns-1, roceMTU)
			q.psn = q.psn.Add(psns)
			q.write()
			q.ack(q.psn.Add(-1), 1)
			q.write()
			q.ack(q.psn.Add(-1), 1)
		}, spec.RoCERuleAcks, pass, "6 answers"},
		{"a message too many behind such a READ", func(q *roceQP) {
			q.connect(7)
			q.write()
			q.ack(q.psn.Add(-1), 1)
			const psns = maxRoCESent + 100
			q.ask(infiniband.ReadRequest, q.psn, 0, length(psns*roceMTU))
			q.msn++
			q.part(infiniband.ReadResponseLast, psns-1, roceMTU)
			q.psn = q.psn.Add(psns)
			q.write()
			q.ack(q.psn.Add(-1), 2)
		}, spec.RoCERuleAcks, fail, "do not count the messages"},
		{"a READ before the path MTU is known, and what follows gets lost", func(q *roceQP) {
			q.connect(7)
			first := q.psn
			q.ask(infiniband.ReadRequest, first, 0, length(5*roceMTU-10))
			q.psn = first.Add(5)
			q.next(infiniband.WriteOnly, 100)
			q.lose()
			q.next(infiniband.WriteOnly, 100)
			q.msn++
			q.reply(infiniband.ReadResponseFirst, first, infiniband.AckUnlimited, roceMTU)
			for i := range 3 {
				q.reply(infiniband.ReadResponseMiddle, first.Add(i+1), infiniband.AckUnlimited, roceMTU)
			}
			q.reply(infiniband.ReadResponseLast, first.Add(4), infiniband.AckUnlimited, roceMTU-10)
			q.nak(q.psn.Add(-2))
			q.again(infiniband.WriteOnly, 2, 100)
			q.ack(q.psn.Add(-1), 2)
		}, spec.RoCERuleAcks, unclear, "of 1 queue pairs READs were missing"},
		{"what was thrown away behind a gap comes again and gets lost", func(q *roceQP) {
			q.healthy()
			q.next(infiniband.WriteOnly, 100)
			q.lose()
			q.next(infiniband.WriteOnly, 100)
			q.next(infiniband.WriteOnly, 100)
			q.nak(q.psn.Add(-3))
			q.ask(infiniband.WriteOnly, q.psn.Add(-3), 100)
			q.ack(q.psn.Add(-3), 1)
			for i := range 2 {
				q.ask(infiniband.WriteOnly, q.psn.Add(i-2), 100)
				q.lose()
			}
			q.wait(time.Second)
		}, spec.RoCERuleAcks, pass, "2 NAKs"},
		{"it comes again, and nobody answers", func(q *roceQP) {
			q.healthy()
			q.next(infiniband.WriteOnly, 100)
			q.lose()
			q.next(infiniband.WriteOnly, 100)
			q.nak(q.psn.Add(-2))
			q.ask(infiniband.WriteOnly, q.psn.Add(-2), 100)
			q.ack(q.psn.Add(-2), 1)
			q.ask(infiniband.WriteOnly, q.psn.Add(-1), 100)
			q.wait(time.Second)
		}, spec.RoCERuleAcks, fail, "asked for an acknowledgement and got none"},
		{"a connection ends with a request under way", func(q *roceQP) {
			q.connect(7)
			q.healthy()
			q.next(infiniband.WriteOnly, 100)
			q.disconnect(7)
			q.wait(time.Second)
		}, spec.RoCERuleAcks, pass, "9 answers"},
		{"a connection ends long after a request", func(q *roceQP) {
			q.connect(7)
			q.healthy()
			q.next(infiniband.WriteOnly, 100)
			q.wait(time.Second)
			q.disconnect(7)
		}, spec.RoCERuleAcks, fail, "asked for an acknowledgement and got none"},
		{"a connection ends with a NAK", func(q *roceQP) {
			q.connect(7)
			q.healthy()
			q.next(infiniband.WriteOnly, 8)
			q.next(infiniband.WriteOnly, 8)
			q.nak(q.psn.Add(-2))
			q.disconnect(7)
			q.wait(time.Second)
		}, spec.RoCERuleGoBack, pass, "2 NAKs"},
		{"an acknowledged request comes again twice", func(q *roceQP) {
			q.healthy()
			for range maxIgnored {
				q.wait(100 * time.Millisecond)
				q.again(infiniband.WriteOnly, 1, 100)
			}
			q.wait(time.Second)
		}, spec.RoCERuleAcks, pass, "answers"},
		{"an acknowledged request comes again and again", func(q *roceQP) {
			q.healthy()
			for range maxIgnored + 1 {
				q.wait(100 * time.Millisecond)
				q.again(infiniband.WriteOnly, 1, 100)
			}
			q.wait(time.Second)
		}, spec.RoCERuleAcks, fail, "came again 3 times"},
		{"it is answered in the end", func(q *roceQP) {
			q.healthy()
			for range 2 * maxIgnored {
				q.wait(100 * time.Millisecond)
				q.again(infiniband.WriteOnly, 1, 100)
			}
			q.ack(q.psn.Add(-1), 0)
			q.wait(time.Second)
		}, spec.RoCERuleAcks, pass, "answers"},
		{"another one accepts with the same number", func(q *roceQP) {
			other := *q
			other.to, other.back = 0x21, 0x22
			psn := q.psn
			q.psn -= 300
			q.connect(7)
			q.remove(func(k sighting) bool { return k.id == q.ids })
			q.accept(1, 7)
			q.psn = psn
			q.accept(q.answerer, 7)
			other.connect(8)
			q.write()
			other.write()
			q.ack(q.psn.Add(-1), 1)
			other.ack(other.psn.Add(-1), 1)
		}, spec.RoCERuleAcks, pass, "2 answers of 2 queue pairs"},
		{"a damaged message of who connects", func(q *roceQP) {
			q.psn = q.psn.Add(-300)
			q.connect(7)
			q.psn = q.psn.Add(300)
			q.change(func(k sighting) bool { return k.id == q.ids && k.tap == "h0:eth0" }, flip(-1))
			q.healthy()
		}, spec.RoCERuleAcks, pass, "answers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := newRoCEScene(t, 4)
			c.run(q)
			results, _ := q.run(rules(t, c.rule)...)
			wants(t, results[0], c.want, c.says)
		})
	}
}

// Packets that are missing because of a snap length, or at taps that are not at NICs, give no FAIL.
func TestRoCESeenInPart(t *testing.T) {
	for _, snap := range []int{54, 58, 68, 70, 90} {
		q := newRoCEScene(t, 4)
		q.healthy()
		q.healthy()
		q.snap = snap
		results, _ := q.run(rules(t, roceRules...)...)
		for _, r := range results {
			if r.Verdict == fail {
				t.Errorf("cut to %d bytes: %v", snap, r)
			}
		}
	}
	q := newRoCEScene(t, 4)
	q.healthy()
	q.healthy()
	q.snap = 68 // no RETH
	q.remove(func(k sighting) bool { return k.tap != "h2:eth0" })
	results, _ := q.run(rules(t, spec.RoCERuleAcks)...)
	wants(t, results[0], unclear, "answers acknowledge what had not come")
	count := 1
	for lost := 0; lost < count; lost++ {
		q := newRoCEScene(t, 4)
		q.healthy()
		q.ask(infiniband.ReadRequest, q.psn, 0, length(700))
		q.part(infiniband.ReadResponseFirst, 0, roceMTU)
		q.ask(infiniband.ReadRequest, q.psn.Add(1), 0, length(700-roceMTU), address(4096+roceMTU))
		q.part(infiniband.ReadResponseFirst, 1, roceMTU)
		q.part(infiniband.ReadResponseLast, 2, 700-2*roceMTU)
		count = 0
		q.remove(func(k sighting) bool {
			if k.tap == "h2:eth0" {
				count++
			}
			return k.tap == "h2:eth0" && count == lost+1
		})
		for _, r := range q.dumped("h2:eth0", rules(t, roceRules...)...) {
			if r.Verdict == fail {
				t.Errorf("packet %d was not written: %v", lost, r)
			}
		}
	}
	if count < 25 {
		t.Errorf("h2:eth0 saw %d packets", count)
	}
}
