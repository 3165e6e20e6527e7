package ranks

import (
	"testing"

	"railbed/internal/units"
	"railbed/testkit/verifytest"
)

// What a link doubles behind a NIC, and what a bridge that does not know an address sends to
// all, is no rank's fault.
func TestRankNICOfLinks(t *testing.T) {
	for _, known := range []bool{true, false} {
		s := verifytest.NewScene(t)
		s.Ring(4)
		link := s.Plan.Link(s.Plan.Nodes[0].NICs[0].Link)
		if known {
			link.AToB.Duplicate = units.Ratio{Num: 1, Den: 100}
		}
		id := s.Packet("h0:eth0", true)
		twin := s.Of(id, "leaf1:p0", false)
		twin.ID, twin.Time = 1<<40, twin.Time+10
		s.Insert(twin)
		twin.Tap, twin.Foreign = "h2:eth0", known
		s.Insert(twin)
		results, _ := s.Run(NewRankNIC(s.Workload))
		if known {
			verifytest.Wants(t, results[0], pass, "0 passed elsewhere")
		} else {
			verifytest.Wants(t, results[0], fail, "received 1 packet at h2:eth0")
			verifytest.Wants(t, results[0], fail,
				"1 packet reached its switch and were not seen to leave its NIC")
		}
	}
}
