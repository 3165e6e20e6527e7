package rocechecks

import (
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// rules are the checks, by their names in files.
func rules(t testing.TB, names ...string) (checks []evidence.Check) {
	t.Helper()
	for _, name := range names {
		check, err := New(&spec.RoCECheck{Rule: name})
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
			q := verifytest.NewQP(t, family)
			q.Healthy()
			q.Read(200) // of one PSN, whatever the path MTU
			q.Write()
			q.Ack(q.PSN.Add(-1), 1)
			var results []evidence.Result
			if at == "" {
				results, _ = q.Run(rules(t, roceRules...)...)
			} else {
				results = q.Dumped(at, rules(t, roceRules...)...)
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
		q := verifytest.NewQP(t, 4)
		q.Healthy()
		if c.lossy {
			q.Drops["h0:eth0"] = 1
		}
		check, err := New(&spec.RoCECheck{Rule: spec.RoCERulePSN, Again: c.again})
		if err != nil {
			t.Fatal(err)
		}
		results, _ := q.Run(check)
		says := "requests sent again: 3, want " + c.again
		if c.want == pass {
			says = "3 of them again"
		}
		verifytest.Wants(t, results[0], c.want, says)
	}
}
