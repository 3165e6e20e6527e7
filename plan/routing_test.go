package plan

import (
	"strings"
	"testing"
)

// TestRouting checks the BGP neighbours, and that daemons must find only the routes to other
// switches.
func TestRouting(t *testing.T) {
	const routing = "  routing: {daemon: frr}"
	static, err := compileText(leafSpineFile("  switch: {kind: router}"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := compileText(leafSpineFile("  switch: {kind: router}", routing))
	if err != nil {
		t.Fatal(err)
	}
	asns := map[uint32]string{}
	for i := range p.Switches {
		sw := &p.Switches[i]
		if other := asns[sw.Routing.ASN]; other != "" || sw.Routing.ASN < 4200000000 ||
			sw.Routing.ASN > 4294967294 {
			t.Errorf("%s has the number %d, %s", sw.Name, sw.Routing.ASN, other)
		}
		asns[sw.Routing.ASN] = sw.Name
		if sw.Routes.Len() != static.Switches[i].Routes.Len() {
			t.Errorf("%s has %d routes, and %d without daemons", sw.Name, sw.Routes.Len(),
				static.Switches[i].Routes.Len())
		}
		learned := 0
		for r := range sw.Routes.All() {
			if static.Switches[i].Learned(r) {
				t.Errorf("%s learns %s without a daemon", sw.Name, r.Dst)
			}
			if sw.Learned(r) {
				learned++
			}
		}
		// A leaf has its own routes to its two nodes, of both families.
		if own := sw.Routes.Len() - learned; own != map[bool]int{true: 4}[strings.HasPrefix(sw.Name,
			"leaf")] {
			t.Errorf("%s has %d routes of its own", sw.Name, own)
		}
		// The networks are its own addresses and, for each of a leaf's nodes, the loopback and the
		// link.
		if got, want := len(sw.Routing.Networks),
			map[bool]int{true: 2 + 2*4, false: 2}[strings.HasPrefix(sw.Name, "leaf")]; got != want {
			t.Errorf("%s announces %v", sw.Name, sw.Routing.Networks)
		}
	}
	for i := range p.Switches {
		for _, peer := range p.Switches[i].Routing.Peers {
			if asns[peer.ASN] != peer.Switch {
				t.Errorf("%s calls %s %d", p.Switches[i].Name, peer.Switch, peer.ASN)
			}
		}
		if got := len(p.Switches[i].Routing.Peers); got != 2 {
			t.Errorf("%s has %d neighbours", p.Switches[i].Name, got)
		}
	}
	if feature := p.Requires[0].Feature; feature != "frr" {
		t.Errorf("requires %s", feature)
	}
	for _, test := range []struct{ lines, want string }{
		{routing, "f:5:3: routing daemons need kernel routers, and this fabric has none; want " +
			"switch: {kind: router}"},
		{"  switch: {kind: bridge}\n" + routing, "routing daemons need kernel routers"},
		{"  switch: {kind: router}\n" + routing + "\n  links: {leaf1--spine1: {weight: 2}}",
			"f:7:35: link leaf1--spine1 has weight 2, and frr finds the routes"},
		{"  switch: {kind: router}\n  routing: {daemon: frr, hold: 2s}",
			"fabric.routing.hold is 2s; want 3s to 65535s"},
		{"  switch: {kind: router}\n  routing: {daemon: frr, keepalive: 1500ms}", "want whole seconds"},
		{"  switch: {kind: router}\n  routing: {daemon: frr, keepalive: 2s}",
			"want a keepalive of at most a third of hold"},
		{"  switch: {kind: router}\n  routing: {daemon: frr, bfd: 10ms}",
			"want whole milliseconds from 50ms to 1m0s"},
	} {
		if _, err := compileText(leafSpineFile(test.lines)); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.lines, err, test.want)
		}
	}
}
