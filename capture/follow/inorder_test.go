package follow_test

import (
	"strings"
	"testing"

	"railbed/capture/follow"
	"railbed/internal/infiniband"
	"railbed/testkit/verifytest"
)

// TestPlacedInOrder: a WRITE of four packets is complete when its last packet was accepted. Of its packets
// the second is lost, or comes late. With go-back-N the receiver discards the packets that came before the
// second. With selective repeat it keeps them, and the sender does not send them again.
func TestPlacedInOrder(t *testing.T) {
	for _, test := range []struct {
		name      string
		send      func(q *verifytest.QP)
		last      int // the number of the last message's packet, from 0, that completes it
		discarded int // packets
	}{
		{"in order", (*verifytest.QP).Write, 3, 0},
		{"go-back-N", (*verifytest.QP).GoBack, 6, 2},
		{"go-back-N behind a READ", func(q *verifytest.QP) { q.Read(700); q.GoBack() }, 6, 2},
		{"overtaken", func(q *verifytest.QP) {
			q.Next(infiniband.WriteFirst, verifytest.MTU, verifytest.Length(1000))
			late := q.IDs + 1
			q.Next(infiniband.WriteMiddle, verifytest.MTU)
			q.Next(infiniband.WriteMiddle, verifytest.MTU)
			q.Next(infiniband.WriteLast, 1000-3*verifytest.MTU)
			q.Change(func(k verifytest.Sighting) bool { return k.ID == late && !k.Out },
				func(k *verifytest.Sighting) { k.Time += 3 * q.Step })
			q.NAK(q.PSN.Add(-3))
			q.Ask(infiniband.WriteMiddle, q.PSN.Add(-2), verifytest.MTU)
			q.Ask(infiniband.WriteLast, q.PSN.Add(-1), 1000-3*verifytest.MTU)
		}, 5, 2},
		{"selective repeat", func(q *verifytest.QP) {
			first := q.PSN
			q.Next(infiniband.WriteFirst, verifytest.MTU, verifytest.Length(1000))
			q.Next(infiniband.WriteMiddle, verifytest.MTU)
			q.Lose()
			q.Next(infiniband.WriteMiddle, verifytest.MTU)
			q.Next(infiniband.WriteLast, 1000-3*verifytest.MTU)
			q.Ask(infiniband.WriteMiddle, first.Add(1), verifytest.MTU)
			q.Write()
		}, 4, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			q := verifytest.NewQP(t, 4)
			q.Write()
			test.send(q)
			r := read(t, q.Scene)
			m := 1
			for i := range r.Messages {
				if r.Messages[i].Again > 0 {
					m = i
				}
			}
			life := r.MessageLife(m, true)
			want := r.Packets[r.Messages[m].Packets[test.last]].Arrived
			if placed := r.Messages[m].Placed; placed == 0 || placed != want {
				t.Errorf("complete at %d, want %d", placed, want)
			}
			if life.Took.Nanoseconds() != life.Account.Total() {
				t.Errorf("took %v, and its parts %v", life.Took, life.Account)
			}
			discarded := 0
			for _, l := range life.Lives {
				if strings.Contains(l.Outcome, "discarded") {
					discarded++
				}
			}
			if discarded != test.discarded {
				t.Errorf("%d packets were discarded, want %d: %+v", discarded, test.discarded, life.Lives)
			}
		})
	}
}

// TestWhyOfTheMessageBehind: a loss in one message makes the receiver discard the next message.
func TestWhyOfTheMessageBehind(t *testing.T) {
	q := verifytest.NewQP(t, 4)
	for range 40 {
		q.Next(infiniband.WriteOnly, 100)
		q.Ack(q.PSN.Add(-1), 1)
	}
	q.Next(infiniband.WriteOnly, 100)
	q.Lose()
	q.Next(infiniband.WriteOnly, 100)
	q.Now += 1_000_000
	q.NAK(q.PSN.Add(-2))
	q.Ask(infiniband.WriteOnly, q.PSN.Add(-2), 100)
	q.Ask(infiniband.WriteOnly, q.PSN.Add(-1), 100)
	r := read(t, q.Scene)
	answers := r.Why(r.Select(follow.Selection{From: "h0"}))
	if len(answers) != 1 {
		t.Fatalf("answers %+v", answers)
	}
	for _, c := range answers[0].Causes {
		if c.Part == "recover" && c.Messages == 2 && c.Where[0] == "h0:eth0" &&
			strings.HasPrefix(c.What, "packets were sent and not seen again") &&
			strings.HasSuffix(c.What, "; for message 41, h2 took 1.02ms to ask for missing packets, and h0 "+
				"17us to send them again") {
			return
		}
	}
	t.Errorf("the loss is no cause of both messages: %+v", answers[0].Causes)
}
