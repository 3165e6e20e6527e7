package follow_test

import (
	"strings"
	"testing"
	"time"

	golayers "github.com/google/gopacket/layers"

	"railbed/capture/follow"
	"railbed/capture/report"
	"railbed/internal/wire"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// TestWhyNamesNICsThatProgramsTakeDown: a program in h1 takes h1's NIC down. Packets to h1 end at the switch
// without a record of a drop.
func TestWhyNamesNICsThatProgramsTakeDown(t *testing.T) {
	act := func(step, node string, from, to int64) report.Report {
		at := func(us int64) time.Time { return time.Unix(0, verifytest.Start+us*1000) }
		return report.Report{Acts: []report.Act{{Kind: report.NICDownKind, NIC: node + ":eth0", Step: step,
			Nodes: []string{node}, Links: []string{node + "--leaf1"}, From: at(from), To: at(to)}}}
	}
	const unknown = "recover at leaf1:p"
	for what, test := range map[string]struct {
		told  report.Report
		lost  string // taps that do not see the lost packets
		first string
	}{
		"receiver": {act("exec flap", "h1", 500_000, 700_000), "leaf1:p1 h1:eth0",
			`recover at h1--leaf1: h1:eth0 was down: a program in h1 took it down, by the step "exec flap"`},
		"no step": {act("", "h1", 500_000, 700_000), "leaf1:p1 h1:eth0",
			"recover at h1--leaf1: h1:eth0 was down: a program in h1 took it down"},
		"at the link": {act("", "h1", 500_000, 700_000), "h1:eth0",
			"recover at h1--leaf1: h1:eth0 was down: a program in h1 took it down"},
		"later":   {act("", "h1", 800_000, 900_000), "leaf1:p1 h1:eth0", unknown},
		"nothing": {report.Report{}, "leaf1:p1 h1:eth0", unknown},
	} {
		s := pair(t)
		s.Plan = plantest.Compile(t, strings.Replace(softPair, "{kind: soft, pfc: {priorities: [3]}}",
			"{kind: router}", 1))
		for i := range uint32(20) {
			id := pass(s, false, unhindered(int64(i)*50_000), write(i), true)
			if i != 11 && i != 12 {
				continue
			}
			s.Remove(func(k verifytest.Sighting) bool {
				return k.ID == id && strings.Contains(test.lost, k.Tap)
			})
		}
		s.Change(func(verifytest.Sighting) bool { return true },
			func(k *verifytest.Sighting) { k.Comment = "" })
		r := readRun(t, s, test.told)
		wantFirst(t, texts(t, r, "h0"), test.first)
		answer := r.Why(r.Select(follow.Selection{From: "h0"}))[0]
		if c := answer.Causes[0]; c.Unfinished != 2 || answer.Unfinished != 2 {
			t.Errorf("%s: %d of %d messages did not arrive because of %q, want 2 of 2", what, c.Unfinished,
				answer.Unfinished, c.What)
		}
	}
}

// TestWhyNamesFaultsThatMark: a fault, or a port with a full queue, marks packets, and the sender slows down.
func TestWhyNamesFaultsThatMark(t *testing.T) {
	for by, first := range map[string]string{
		"fault": "host at h0: the sender sent nothing of the message; congestion control slowed it down " +
			"after 20 acknowledgements with ECE: fault f1 marked 20 packets\n",
		"both": "host at h0: the sender sent nothing of the message; congestion control slowed it down " +
			"after 20 acknowledgements with ECE: leaf1:p1 marked 19 packets with 9KB in its queue\n",
	} {
		s := pair(t)
		at := int64(0)
		for i := range uint32(40) {
			slow := i >= 20
			id := pass(s, false, unhindered(at), golayers.TCP{Seq: 1 + i*2*946, ACK: true}, true)
			if slow {
				marks := func(k *verifytest.Sighting) { k.Frame[15] |= byte(wire.CE) }
				if by == "fault" || i == 30 {
					hit(s, id, "h0:eth0", "mark")
				} else {
					marks = func(k *verifytest.Sighting) {
						k.Frame[15] |= byte(wire.CE)
						k.Comment = "railbed verdict=mark reason=red depth=9000 late=0ns"
					}
				}
				s.Change(func(k verifytest.Sighting) bool { return k.ID == id && k.Tap == "leaf1:p1" }, marks)
				at += 10_000
			}
			pass(s, false, unhindered(at+80), golayers.TCP{Seq: 947 + i*2*946, ACK: true, PSH: true}, true)
			pass(s, true, unhindered(at+1000), golayers.TCP{Seq: 1, ACK: true, Ack: 1 + (i+1)*2*946,
				ECE: slow, Window: 65535}, false)
			at += 5_000
		}
		answer, texts := causes(t, s)
		wantFirst(t, texts, first)
		if injected := answer.Causes[0].Injected; injected != (by == "fault") {
			t.Errorf("marks by %s: injected %t", by, injected)
		}
	}
}
