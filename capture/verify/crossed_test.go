package verify

import (
	"strings"
	"testing"

	"railbed/testbed/verdict"
)

// The bytes of a run crossed its ranks' links, or the check says whose did not.
func TestCrossed(t *testing.T) {
	fromH1 := func(k sighting) bool { return k.tap == "h1:eth0" && k.out && isData(k) }
	for _, test := range []struct {
		name  string
		spoil func(*scene, *Crossing)
		want  verdict.Verdict
		says  string
	}{
		{"nothing", func(*scene, *Crossing) {}, pass, ""},
		{"a rank's bytes went another way", func(s *scene, _ *Crossing) {
			s.remove(fromH1)
		}, fail, "rank 1 (h1:eth0): 0 bytes of payload left"},
		{"one packet went another way", func(s *scene, _ *Crossing) {
			id := s.packet("h1:eth0", true)
			s.remove(func(k sighting) bool { return k.id == id })
		}, fail, "rank 1 (h1:eth0)"},
		{"one packet was sent twice in another one's place", func(s *scene, _ *Crossing) {
			id := s.packet("h1:eth0", true)
			again := s.of(id, "h1:eth0", true)
			gone := 0
			s.remove(func(k sighting) bool {
				if gone == 0 && fromH1(k) && k.id != id && k.length == again.length {
					gone++
					return true
				}
				return false
			})
			again.time++
			s.insert(again)
		}, fail, "rank 1 (h1:eth0)"},
		{"the rank's tap lost packets", func(s *scene, _ *Crossing) {
			s.remove(fromH1)
			s.drops["h1:eth0"] = 3
		}, unclear, "rank 1 (h1:eth0): 0 bytes"},
		{"the rank was told to use another NIC", func(_ *scene, c *Crossing) {
			c.Ranks[1].NIC = "eth1"
		}, fail, "h1:eth0: "},
		{"the bytes left after the run", func(_ *scene, c *Crossing) {
			c.To = start
		}, fail, "0 bytes of payload left"},
		{"the bytes left before the run", func(s *scene, c *Crossing) {
			c.From = s.now + 1
		}, fail, "0 bytes of payload left"},
		{"a NIC that nobody captured", func(s *scene, _ *Crossing) {
			s.untapped["h2:eth0"] = true
		}, unclear, "the NICs of 1 were not captured"},
		{"nobody knows how much", func(_ *scene, c *Crossing) {
			for i := range c.Ranks {
				c.Ranks[i].Sends = 0
			}
		}, unclear, "not known"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScene(t)
			s.ring(4)
			c := s.workload.Crossing()
			test.spoil(s, &c)
			results, _ := s.run(NewCrossed(c))
			if r := results[0]; r.Verdict != test.want || !strings.Contains(r.String(), test.says) {
				t.Errorf("want %s and %q, got %s", test.want, test.says, r)
			}
		})
	}
}
