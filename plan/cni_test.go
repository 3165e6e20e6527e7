package plan

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var wrongCNIFiles = []wrongFile{
	{"kernel switches", "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: " +
		"router}}\nnodes: {h1: {runtime: cni}}\n", []string{
		`f:3:23: node h1 has runtime: cni, whose port is a file descriptor, which kernel switches cannot use; use soft switches (kind: soft)`}},
	{"what is of programs", leafSpineFile("nodes:",
		`  "h[0-1]": {runtime: cni, ranks: 2, cpu: 1, memory: 1GiB, env: {A: b}, rdma: rxe}`), []string{
		`f:6:35: ranks applies only to programs that Railbed starts, and it starts none in h0 (runtime: cni); remove ranks`,
		`f:6:43: cpu applies only to programs that Railbed starts, and it starts none in h0 (runtime: cni); remove cpu`,
		`f:6:54: memory applies only to programs that Railbed starts, and it starts none in h0 (runtime: cni); remove memory`,
		`f:6:60: env applies only to programs that Railbed starts, and it starts none in h0 (runtime: cni); remove env`,
		`f:6:79: rdma applies only to programs that Railbed starts, and it starts none in h0 (runtime: cni); remove rdma`}},
	{"beside the fabric", leafSpineFile("addressing: {management4: 10.129.0.0/24}",
		"nodes: {h0: {management: {}}}"), []string{
		`f:5:27: addressing.management4 10.129.0.0/24 overlaps addressing.links4 10.128.0.0/10; give each pool addresses of its own`}},
	{"management of a container, and ports twice",
		leafSpineFile("nodes:", "  h0: {runtime: cni, management: {}}",
			`  "h[1-2]": {management: {publish: ["80:80"]}}`), []string{
			`f:6:22: node h0 has runtime: cni, and only nodes that Railbed makes can have management; want runtime: netns, docker or vm, or remove management`,
			`f:7:37: port 80/tcp is published for h1 already; want another port of the host`}},
	{"ports that are none", leafSpineFile(
		`nodes: {h0: {management: {publish: ["80", "0:80", "1:2/sctp", "70000:1"]}}}`), []string{
		`f:5:37: "80" publishes no port; want HOST:NODE, or HOST:NODE/udp, with ports from 1 to 65535`,
		`f:5:43: "0:80" publishes no port; want HOST:NODE, or HOST:NODE/udp, with ports from 1 to 65535`,
		`f:5:51: "1:2/sctp" publishes no port; want HOST:NODE, or HOST:NODE/udp, with ports from 1 to 65535`,
		`f:5:63: "70000:1" publishes no port; want HOST:NODE, or HOST:NODE/udp, with ports from 1 to 65535`}},
	{"name servers that are none",
		leafSpineFile(`nodes: {h0: {management: {dns: [here, 192.0.2.1, 192.0.2.2, "2001:db8::1", "fe80::1%eth0"]}}}`), []string{
			`f:5:33: invalid name server "here"; want an address such as 192.0.2.53`,
			`f:5:61: 5 name servers; want at most 3`,
			`f:5:76: invalid name server "fe80::1%eth0"; want an address such as 192.0.2.53`}},
	{"no room beside the fabric", leafSpineFile("addressing: {management4: 192.0.2.0/30}",
		"nodes: {default: {management: {}}}"), []string{
		`f:5:27: 192.0.2.0/30 has no management address left for node h0; want a shorter prefix`}},
	{"small IPv6 beside the fabric",
		leafSpineFile(`addressing: {management6: "fd00:b::/120"}`, "nodes: {default: {management: {}}}"),
		[]string{
			`f:5:27: fd00:b::/120 is too small for the management network; want a prefix of at most 112 bits`}},
	{"IPv6 beside the fabric that is the fabric's",
		leafSpineFile(`addressing: {management6: "fd00:a1::/96"}`, "nodes: {h0: {management: {}}}"), []string{
			`f:5:27: addressing.management6 fd00:a1::/96 overlaps addressing.loopbacks6 fd00:a1::/64; give each pool addresses of its own`}},
	{"steps in containers", leafSpineFile("nodes: {h3: {runtime: cni}}", "steps:",
		"  - exec: {nodes: [h0, h3], command: [ls]}",
		"  - traffic: {name: t, from: [h0], to: [\"h*\"], size: 1KB, rate: 1mbit, for: 1s}"), []string{
		`f:7:24: h3 has runtime: cni, so Railbed starts no programs in it; name nodes of other runtimes, or start the program with the container's own runtime`,
		`f:8:41: h3 has runtime: cni, so Railbed starts no programs in it; name nodes of other runtimes, or start the program with the container's own runtime`}},
}

// A container has no ranks, even if the file sets ranks for all nodes. Its routes cover all
// addresses of NICs and ports, and no more than necessary.
func TestCNINodes(t *testing.T) {
	p, err := compileText(leafSpineFile("nodes:", "  default: {ranks: 2, cpu: 1}", "  h1: {runtime: cni}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range p.Ranks {
		if r.Node == "h1" {
			t.Errorf("rank %d is in a container", r.Rank)
		}
	}
	if len(p.Ranks) != 6 || len(p.CNINodes()) != 1 || p.CNINodes()[0].Name != "h1" {
		t.Errorf("%d ranks, containers %v", len(p.Ranks), p.CNINodes())
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.128.0.0/28"), netip.MustParsePrefix("fd00:a2::/124")}
	if diff := cmp.Diff(want, p.Cover(),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	for _, n := range p.Nodes {
		for _, nic := range n.NICs {
			for _, a := range nic.Addrs {
				if !slices.ContainsFunc(p.Cover(), func(c netip.Prefix) bool {
					return c.Contains(a.Addr())
				}) {
					t.Errorf("%s is not covered", a)
				}
			}
		}
	}
}
