package verify

import (
	"strings"
	"testing"

	"railbed/internal/verdict"
)

// TestRailLocal judges a ring over two leaves, which is not rail-local. It then judges the packets
// that remain without those that passed a spine.
func TestRailLocal(t *testing.T) {
	passed := func(k sighting) bool { // a link between switches
		return strings.HasPrefix(k.tap, "spine") ||
			strings.HasPrefix(k.tap, "leaf") && !strings.HasSuffix(k.tap, "p0") &&
				!strings.HasSuffix(k.tap, "p1")
	}
	for name, test := range map[string]struct {
		change func(*scene)
		want   verdict.Verdict
		says   string
	}{
		"over the spines": {func(*scene) {}, fail, "rank 1 (h1:eth0) sent"},
		"on the rail":     {func(s *scene) { s.remove(passed) }, pass, ""},
		"one packet": {func(s *scene) {
			one := true
			s.remove(func(k sighting) bool {
				if passed(k) && one && isData(k) {
					one = false
					return false
				}
				return passed(k)
			})
		}, fail, "sent 1 packets that passed leaf"},
		"one that was dropped there": {func(s *scene) {
			one := true
			s.remove(func(k sighting) bool {
				if passed(k) && one && isData(k) {
					one = false
					return false
				}
				return passed(k)
			})
			s.change(passed, func(k *sighting) { k.comment = "railbed verdict=drop reason=tail depth=1" })
		}, fail, "sent 1 packets that passed leaf"},
		"a tap between switches lost some": {func(s *scene) {
			s.remove(passed)
			s.drops["leaf1:p2"] = 1
		}, unclear, "tap leaf1:p2 lost 1 packets"},
		"no tap at a NIC": {func(s *scene) {
			s.remove(func(k sighting) bool { return passed(k) || strings.HasPrefix(k.tap, "h2:") })
		}, unclear, "rank 2 (h2:eth0): sent no packet"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.ring(4)
			test.change(s)
			results, _ := s.run(newRailLocal(s.workload))
			if r := results[0]; r.Verdict != test.want ||
				!strings.Contains(strings.Join(r.Details, "\n"), test.says) {
				t.Errorf("%v, want %v with %q: %s %v", r.Verdict, test.want, test.says, r.Summary, r.Details)
			}
		})
	}
}
