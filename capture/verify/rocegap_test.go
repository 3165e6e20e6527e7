package verify

import (
	"testing"

	"railbed/internal/infiniband"
	"railbed/internal/verdict"
	"railbed/plan/spec"
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
		{true, pass, "11 answers of 1 queue pairs"},
		{false, unclear, "READs were missing before it was known how many PSNs they take"},
	} {
		q := newRoCEScene(t, 4)
		q.read(10)
		if c.known {
			q.read(700)
		}
		first := q.psn
		q.ask(infiniband.ReadRequest, first, 0, length(600)) // three PSNs
		q.lose()
		q.ask(infiniband.ReadRequest, first.Add(3), 0, length(500)) // two
		q.lose()
		q.ask(infiniband.ReadRequest, first.Add(5), 0, length(10))
		q.nak(first)
		for _, bytes := range []uint32{600, 500, 10} {
			q.read(bytes)
		}
		results, _ := q.run(rules(t, spec.RoCERuleAcks, spec.RoCERuleWrites)...)
		wants(t, results[0], c.want, c.says)
		wants(t, results[1], pass, "READs")
	}
}

// A capture that states the loss of a packet gives no FAIL, whichever packet was lost.
func TestRoCELostByTheCapture(t *testing.T) {
	for _, tap := range []string{"h0:eth0", "h2:eth0"} {
		count := 1
		for lost := 0; lost < count; lost++ {
			q := newRoCEScene(t, 4)
			q.healthy()
			count = 0
			q.remove(func(k sighting) bool {
				if k.tap == tap {
					count++
				}
				return k.tap == tap && count == lost+1
			})
			q.drops[tap] = 1
			results, _ := q.run(rules(t, roceRules...)...)
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
		q := newRoCEScene(t, 4)
		q.connect(7)
		first := q.psn
		q.next(infiniband.WriteOnly, 100)
		q.lose()
		q.next(infiniband.WriteOnly, 100)
		q.nak(first)
		q.ask(infiniband.WriteOnly, first, 100)
		q.ask(infiniband.WriteOnly, first.Add(1), 100)
		q.ack(first.Add(1), 2)
		q.next(infiniband.WriteOnly, 100)
		want, says := pass, "3 answers of 1 queue pairs acknowledge 3 PSNs"
		if miscounted {
			q.msn++
			want, says = fail, "do not count the messages"
		}
		q.ack(q.psn.Add(-1), 1)
		results, _ := q.run(rules(t, spec.RoCERuleAcks)...)
		wants(t, results[0], want, says)
	}
}
