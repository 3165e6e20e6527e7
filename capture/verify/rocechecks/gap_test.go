package rocechecks

import (
	"testing"

	"railbed/internal/infiniband"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// TestRoCEReadsInAGap: consecutive READs that were lost are sent again. On a connection whose path
// MTU is unknown, the ends of these READs are unknown too. Answers to requests that had not arrived
// then give no FAIL.
func TestRoCEReadsInAGap(t *testing.T) {
	for _, c := range []struct {
		known bool // the path MTU
		want  verdict.Verdict
		says  string
	}{
		{true, pass, "11 answers of 1 queue pair"},
		{false, unclear, "READs were missing before it was known how many PSNs they take"},
	} {
		q := verifytest.NewQP(t, 4)
		q.Read(10)
		if c.known {
			q.Read(700)
		}
		first := q.PSN
		q.Ask(infiniband.ReadRequest, first, 0, verifytest.Length(600)) // three PSNs
		q.Lose()
		q.Ask(infiniband.ReadRequest, first.Add(3), 0, verifytest.Length(500)) // two
		q.Lose()
		q.Ask(infiniband.ReadRequest, first.Add(5), 0, verifytest.Length(10))
		q.NAK(first)
		for _, bytes := range []uint32{600, 500, 10} {
			q.Read(bytes)
		}
		results, _ := q.Run(rules(t, spec.RoCERuleAcks, spec.RoCERuleWrites)...)
		verifytest.Wants(t, results[0], c.want, c.says)
		verifytest.Wants(t, results[1], pass, "READs")
	}
}

// A capture that states the loss of a packet gives no FAIL, whichever packet was lost.
func TestRoCELostByTheCapture(t *testing.T) {
	for _, tap := range []string{"h0:eth0", "h2:eth0"} {
		count := 1
		for lost := 0; lost < count; lost++ {
			q := verifytest.NewQP(t, 4)
			q.Healthy()
			count = 0
			q.Remove(func(k verifytest.Sighting) bool {
				if k.Tap == tap {
					count++
				}
				return k.Tap == tap && count == lost+1
			})
			q.Drops[tap] = 1
			results, _ := q.Run(rules(t, roceRules...)...)
			for _, r := range results {
				if r.Verdict == fail {
					t.Errorf("without packet %d at %s: %v", lost, tap, r)
				}
			}
		}
		if count < 20 {
			t.Errorf("%s saw %d packets", tap, count)
		}
	}
}

// TestRoCEFirstLost: the first packets of a connection got lost behind their NIC, and come
// again: by the messages that connected, what came first at the receiver was not the first.
func TestRoCEFirstLost(t *testing.T) {
	for _, miscounted := range []bool{false, true} {
		q := verifytest.NewQP(t, 4)
		q.Connect(7)
		first := q.PSN
		q.Next(infiniband.WriteOnly, 100)
		q.Lose()
		q.Next(infiniband.WriteOnly, 100)
		q.NAK(first)
		q.Ask(infiniband.WriteOnly, first, 100)
		q.Ask(infiniband.WriteOnly, first.Add(1), 100)
		q.Ack(first.Add(1), 2)
		q.Next(infiniband.WriteOnly, 100)
		want, says := pass, "3 answers of 1 queue pair acknowledged 3 PSNs"
		if miscounted {
			q.MSN++
			want, says = fail, "had a wrong message sequence number"
		}
		q.Ack(q.PSN.Add(-1), 1)
		results, _ := q.Run(rules(t, spec.RoCERuleAcks)...)
		verifytest.Wants(t, results[0], want, says)
	}
}
