package ranks

import (
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/verifytest"
)

// TestRailLocal judges a ring over two leaves, which is not rail-local. It then judges the packets
// that remain without those that passed a spine.
func TestRailLocal(t *testing.T) {
	passed := func(k verifytest.Sighting) bool { // a link between switches
		return strings.HasPrefix(k.Tap, "spine") ||
			strings.HasPrefix(k.Tap, "leaf") && !strings.HasSuffix(k.Tap, "p0") &&
				!strings.HasSuffix(k.Tap, "p1")
	}
	for name, test := range map[string]struct {
		change func(*verifytest.Scene)
		want   verdict.Verdict
		says   string
	}{
		"over the spines": {func(*verifytest.Scene) {}, fail, "rank 1 (h1:eth0) sent"},
		"on the rail":     {func(s *verifytest.Scene) { s.Remove(passed) }, pass, ""},
		"one packet": {func(s *verifytest.Scene) {
			one := true
			s.Remove(func(k verifytest.Sighting) bool {
				if passed(k) && one && verifytest.IsData(k) {
					one = false
					return false
				}
				return passed(k)
			})
		}, fail, "sent 1 packet that passed leaf"},
		"one that was dropped there": {func(s *verifytest.Scene) {
			one := true
			s.Remove(func(k verifytest.Sighting) bool {
				if passed(k) && one && verifytest.IsData(k) {
					one = false
					return false
				}
				return passed(k)
			})
			s.Change(passed, func(k *verifytest.Sighting) {
				k.Comment = "railbed verdict=drop reason=tail depth=1"
			})
		}, fail, "sent 1 packet that passed leaf"},
		"a tap between switches lost some": {func(s *verifytest.Scene) {
			s.Remove(passed)
			s.Drops["leaf1:p2"] = 1
		}, unclear, "tap leaf1:p2 lost 1 packet"},
		"no tap at a NIC": {func(s *verifytest.Scene) {
			s.Remove(func(k verifytest.Sighting) bool { return passed(k) || strings.HasPrefix(k.Tap, "h2:") })
		}, unclear, "rank 2 (h2:eth0): sent no packet"},
	} {
		t.Run(name, func(t *testing.T) {
			s := verifytest.NewScene(t)
			s.Ring(4)
			test.change(s)
			results, _ := s.Run(NewRailLocal(s.Workload))
			if r := results[0]; r.Verdict != test.want ||
				!strings.Contains(strings.Join(r.Details, "\n"), test.says) {
				t.Errorf("%v, want %v with %q: %s %v", r.Verdict, test.want, test.says, r.Summary, r.Details)
			}
		})
	}
}
