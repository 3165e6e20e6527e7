package plan

import (
	"net/netip"
	"testing"
)

// A subnet is drawn by FNV-1a of the name. The hash of "a" is e40c292c, and of "b" e70c2de5, by its
// authors.
func TestDrawnSubnets(t *testing.T) {
	pool := netip.MustParsePrefix("172.24.0.0/14")
	for name, want := range map[string]string{"a": "172.25.44.0/24", "b": "172.25.229.0/24"} {
		got := DrawManagement(name, 0)
		if got.String() != want || !pool.Contains(got.Addr()) || got != got.Masked() {
			t.Errorf("%s draws %s, want %s", name, got, want)
		}
	}
	seen := map[netip.Prefix]bool{}
	for turn := range 1 << 10 {
		seen[DrawManagement("a", turn)] = true
	}
	if len(seen) != 1<<10 {
		t.Errorf("%d subnets in as many turns as there are", len(seen))
	}
}

// A node with internet reaches it through the management network, and all of the fabric's addresses
// through the fabric.
func TestInternet(t *testing.T) {
	p, err := compileText(leafSpineFile("nodes:", "  default: {management: {}}",
		"  h1: {management: {internet: true, publish: [\"53:53/udp\"]}}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range p.Nodes {
		own := n.Name == "h1"
		ways := map[string]bool{}
		for _, r := range n.Routes {
			if r.Table == 0 {
				ways[r.Dst.String()] = true
			}
		}
		if ways["0.0.0.0/0"] == own || ways["10.128.0.0/10"] != own || !ways["::/0"] ||
			n.Management.Internet != own {
			t.Errorf("%s has the ways %v", n.Name, ways)
		}
	}
	for what, want := range map[string]string{"subnet": "f:6:13", "internet": "f:7:31", "53/udp": "f:7:47"} {
		if got := p.Management.Where[what]; got != want {
			t.Errorf("%s is asked for at %s, want %s", what, got, want)
		}
	}
}
