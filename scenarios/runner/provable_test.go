package runner

import (
	"fmt"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestWhatCannotBeProvedDoesNotPass runs files and compares the findings of Provable for each check
// with the verdict. A check in never must not be PASS, and a check in hardly must be INCONCLUSIVE.
// A check without a finding must pass here.
func TestWhatCannotBeProvedDoesNotPass(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	for name, c := range map[string]struct {
		settings, capture, workload string
		never, hardly, passes       []string
	}{
		"abilities": {"kind: soft", "at: [all]", "transport: roce", []string{
			"roce: {rule: icrc}", "roce: {rule: cnp}", "trims: {}", "marks: {count: '>= 1'}",
			"pauses: {count: '>= 1'}", "queue-depth: {at: 'h*', max: '<= 1MB'}",
			"that: every rd message is placed exactly once", "drops: {reason: nth, count: '>= 1'}",
		}, nil, []string{"rank-nic: w"}},
		"a filter": {"kind: soft, pfc: true", "at: [all], filter: udp", "transport: tcp", []string{
			"pauses: {count: '== 0'}", "deadlock: none", "rank-nic: w",
			"bytes-per-rank: {workload: w, formula: ring-all-reduce, tolerance: 2%}",
		}, []string{"drops: {count: '== 0'}"}, nil},
		"taps": {"kind: soft", "at: [nics]", "transport: tcp", []string{
			"conservation: '*'", "path-spread: {switch: 'leaf*'}", "queue-depth: {max: '<= 1MB'}",
			"deadlock: none", "rail-local: w",
		}, []string{"drops: {count: '== 0'}"}, []string{"lossless: {}", "rank-nic: w"}},
		"routers": {"kind: router", "at: [all]", "transport: tcp", []string{
			"pauses: {count: '== 0'}", "trims: {count: '== 0'}", "deadlock: none",
			"queue-depth: {max: '<= 1MB'}",
		}, nil, []string{"drops: {count: '== 0'}", "rank-nic: w"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := "fabric: {topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: 2}, " +
				"switch: {" + c.settings + "}, links: {default: {rate: 50mbit}}}\n" +
				"steps:\n- capture: {" + c.capture +
				", file: a.pcapng}\n- workload: {name: w, kind: all-reduce, size: 64KiB, " + c.workload +
				"}\nchecks:\n"
			line := strings.Count(text, "\n") + 1 // behind the name
			said := map[int]string{}
			for what, checks := range map[string][]string{"never": c.never, "hardly": c.hardly,
				"passes": c.passes} {
				for _, check := range checks {
					text += "- packets: {" + check + "}\n"
					line++
					said[line] = what
				}
			}
			o := options(t, text)
			never, hardly := Provable(o)
			found := map[int]string{}
			for _, p := range hardly {
				found[p.Line] = "hardly"
			}
			for _, p := range never {
				found[p.Line] = "never"
			}
			r := runAll(t, t.Context(), o)
			for i, check := range r.Checks {
				line := len(strings.Split(text, "\n")) - len(r.Checks) + i + 1
				if want := said[line]; found[line] != strings.TrimPrefix(want, "passes") ||
					!strings.HasSuffix(check.Where, fmt.Sprintf(":%d:3", line)) {
					t.Errorf("%s at %s: Provable says %q, want %q", check.Name, check.Where, found[line],
						want)
				}
				switch v := check.Verdict; {
				case found[line] == "never" && v == verdict.Pass,
					found[line] == "hardly" && v != verdict.Inconclusive,
					found[line] == "" && v != verdict.Pass && v != verdict.Overloaded:
					t.Errorf("%s at %s is %s, and Provable says %q", check.Name, check.Where, v, found[line])
				}
			}
		})
	}
}
