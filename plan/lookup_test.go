package plan

import (
	"strings"
	"testing"
)

func TestLinksAt(t *testing.T) {
	p := mustCompileText(t, leafSpineFile())
	for where, want := range map[string]string{
		"leaf1--spine2":                 "leaf1--spine2",
		"leaf1--spine2 b-to-a":          "leaf1--spine2 b-to-a",
		"spine2--leaf1":                 "leaf1--spine2",
		"spine2--leaf1 a-to-b":          "leaf1--spine2 b-to-a",
		"leaf1--spine* a-to-b":          "leaf1--spine1 a-to-b, leaf1--spine2 a-to-b",
		"spine1--* a-to-b":              "leaf1--spine1 b-to-a, leaf2--spine1 b-to-a",
		"spine[1-2]--leaf2":             "leaf2--spine1, leaf2--spine2",
		"*--spine2":                     "leaf1--spine2, leaf2--spine2",
		"leaf1-spine1":                  `no link is named "leaf1-spine1"; did you mean "leaf1--spine1"?`,
		"spine1--leaf3":                 "the links of spine1 are leaf1--spine1, leaf2--spine1",
		"spine2":                        "the links of spine2 are leaf1--spine2, leaf2--spine2",
		"q*--*":                         "a pattern that matches one",
		"leaf1--spine1 sideways":        `direction "sideways": want a-to-b or b-to-a`,
		"leaf1--spine1 a-to-b backward": `direction "a-to-b backward": want a-to-b or b-to-a`,
	} {
		var got []string
		places, err := p.LinksAt(where)
		for _, place := range places {
			got = append(got, place.Where())
		}
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", where, err, want)
			}
		} else if have := strings.Join(got, ", "); have != want {
			t.Errorf("%q: %s, want %s", where, have, want)
		}
	}
}

// TestHostsNameNICs checks the names of NICs in the hosts file, and which names are left out because another
// node or NIC could have them.
func TestHostsNameNICs(t *testing.T) {
	for file, want := range map[string]string{
		`topology: explicit, hosts: [h0, h1], switches: {s: {}, t: {}},
		connect: ["h0:rail1 -- s", "h0:rail2 -- t", "h1 -- s"]`: "h0 h1 s t h0-rail1 h0-rail2 h1-eth0",
		"topology: single-switch, params: {hosts: 2}, switch: {kind: bridge}": "h0 h1 h0-eth0 h1-eth0",
		// h0-eth0 is the node's; a-b-c could be two NICs, as could h0-X and h0-x.
		`topology: explicit, hosts: [h0, h0-eth0, a, a-b], switches: {s: {}},
		connect: ["h0:eth0 -- s", "h0-eth0:eth0 -- s", "a:b-c -- s", "a-b:c -- s", "h0:X -- s",
		"h0:x -- s"]`: "h0 h0-eth0 a a-b s h0-eth0-eth0",
	} {
		p := mustCompileText(t, "name: t\nfabric: {"+strings.ReplaceAll(file, "\n\t", " ")+"}\n")
		var got []string
		for _, h := range p.Hosts {
			if h.Addr.Is4() {
				got = append(got, h.Name)
			}
		}
		if strings.Join(got, " ") != want || len(p.Hosts) != 2*len(got) {
			t.Errorf("%s: %d lines, %s, want %s", file, len(p.Hosts), got, want)
		}
	}
}
