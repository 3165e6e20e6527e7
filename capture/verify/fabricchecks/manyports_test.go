package fabricchecks

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// TestManyPorts judges a layer 2 soft switch with more ports than a word has bits. The check must
// distinguish ports however far apart their numbers are. A flooded packet must not count as leaving
// twice.
func TestManyPorts(t *testing.T) {
	const ports = 300
	all := make([]int, ports)
	for i := range all {
		all[i] = i
	}
	for name, c := range map[string]struct {
		in   int
		out  []int // ports by which a frame leaves
		want verdict.Verdict
	}{
		"forwards by the port 64 further":        {0, []int{64}, pass},
		"forwards by the port 256 further":       {40, []int{296}, pass},
		"floods to ports 64 apart":               {1, []int{0, 64, 128, 192, 256}, pass},
		"floods":                                 {0, all[1:], pass},
		"floods from the middle":                 {150, slices.Concat(all[:150], all[151:]), pass},
		"sends twice by a high port":             {0, []int{150, 150}, fail},
		"sends twice by the last port":           {0, append(slices.Clone(all[1:]), 299), fail},
		"sends back by a high port":              {150, []int{150}, fail},
		"floods and back":                        {0, all, fail},
		"floods and back by a high port":         {299, all, fail},
		"floods and back by the port it came by": {64, []int{0, 128, 64}, fail},
		"swallows":                               {150, nil, fail},
	} {
		t.Run(name, func(t *testing.T) {
			s := verifytest.NewScene(t)
			s.Plan = plantest.Compile(t, fmt.Sprintf(
				"name: b\nfabric:\n  topology: single-switch\n  params: {hosts: %d}\n  switch: {kind: "+
					"soft, forwarding: l2}\n", ports))
			sw := s.Plan.Switches[0].Name
			from, to := s.Plan.Nodes[0].NICs[0], s.Plan.Nodes[1].NICs[0]
			frame := s.Frame(verifytest.TCP{Src: netip.MustParseAddrPort("10.0.0.1:1"),
				Dst: netip.MustParseAddrPort("10.0.0.2:1")}, 64, from.MAC, to.MAC)
			at := func(id uint64, time int64, port int, out bool) {
				s.Insert(verifytest.Sighting{Tap: fmt.Sprintf("%s:p%d", sw, port), Out: out, Time: time,
					ID: id, Frame: frame, Length: len(frame)})
			}
			at(1, verifytest.Start, 0, false) // an ordinary one, so that something crosses
			at(1, verifytest.Start+10, 1, true)
			at(2, verifytest.Start+50_000_000, c.in, false)
			for i, port := range c.out {
				at(2, verifytest.Start+50_000_100+int64(i), port, true)
			}
			s.Now = verifytest.Start + 200_000_000
			results, _ := s.Run(NewConservation("*"))
			if results[0].Verdict != c.want {
				t.Errorf("want %s: %v", c.want, results[0])
			}
			if got, want := results[0].Measured["forwarded"], 2.0; c.want == pass && got != want {
				t.Errorf("%v packets were forwarded, want %v: %v", got, want, results[0])
			}
		})
	}
}
