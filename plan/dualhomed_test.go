package plan

import (
	"fmt"
	"testing"

	"railbed/plan/spec"
)

// TestRanksFollowRails: in a dual-ToR fabric the ranks of a node take its rails in turn. Both NICs of a rail
// reach the address of its ranks, which use the kernel's path. With nic-path: bypass a rank has the first NIC
// of its rail alone.
func TestRanksFollowRails(t *testing.T) {
	for _, test := range []struct {
		rails int
		path  string
		want  []string // NICs, and whether the rank bypasses the kernel
	}{
		{1, "", []string{"eth0+eth1 false", "eth0+eth1 false", "eth0+eth1 false"}},
		{2, "", []string{"eth0+eth1 false", "eth2+eth3 false", "eth0+eth1 false"}},
		{2, "kernel", []string{"eth0+eth1 false", "eth2+eth3 false", "eth0+eth1 false"}},
		{2, "bypass", []string{"eth0+ true", "eth2+ true", "eth0+ true"}},
	} {
		file := generated("hpn", "segments=2", "servers=2", fmt.Sprintf("rails=%d", test.rails), "aggs=1")
		node := spec.Node{Ranks: 3, NICPath: test.path}
		file.Nodes = spec.Ordered[spec.Node]{{Key: spec.DefaultKey, Value: node}}
		file.Fabric.Switch.Kind = spec.Soft
		p := mustCompile(t, file)
		checkInvariants(t, p) // the addresses
		for i, r := range p.Ranks {
			if got := fmt.Sprintf("%s+%s %t", r.NIC, r.SecondNIC, r.Bypass); got != test.want[i%3] {
				t.Errorf("%d rails, nic-path %q: rank %d has %s, want %s", test.rails, test.path, i, got,
					test.want[i%3])
			}
		}
	}
}
