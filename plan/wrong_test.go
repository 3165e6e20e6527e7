package plan

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"railbed/plan/spec"
)

// compileText decodes and compiles a file called f.
func compileText(text string) (*Plan, error) {
	testbed, err := spec.Decode("f", []byte(text))
	if err != nil {
		return nil, err
	}
	return Compile(testbed)
}

// explicitFile returns a file with two nodes on a switch. Its lines of connect start in line 7.
func explicitFile(connect ...string) string {
	return "name: t\nfabric:\n  topology: explicit\n  hosts: [a, b]\n  switches: {s: {}, t: {}}\n  " +
		"connect:\n    - " + strings.Join(connect, "\n    - ") + "\n"
}

// explicitThree is explicitFile with the nodes a, b and c, and the switches s, t and u.
func explicitThree(connect ...string) string {
	more := strings.NewReplacer("[a, b]", "[a, b, c]", "t: {}}", "t: {}, u: {}}")
	return more.Replace(explicitFile(connect...))
}

// leafSpineFile returns a small leaf-spine. The given lines start in line 5.
func leafSpineFile(lines ...string) string {
	return "name: t\nfabric:\n  topology: leaf-spine\n  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}\n" +
		strings.Join(lines, "\n") + "\n"
}

type wrongFile struct {
	name, text string
	want       []string // all problems
}

var wrongFiles = []wrongFile{
	{"RDMA without a device", leafSpineFile("nodes: {h0: {runtime: vm, rdma: rxe}}", "steps:",
		"  - stack: {name: p, kind: perftest}"), []string{
		"f:7:28: perftest in h1, which has no RDMA device; want nodes: {default: {runtime: vm, rdma: " +
			"rxe}}, or railbed rdma as a command, which needs no device"}},
	{"missing parameters", "name: t\nfabric:\n  topology: leaf-spine\n  params: {leaves: 2}\n", []string{
		`f:4:3: leaf-spine needs the parameter "spines", spine switches; want a whole number from 1 to 256`,
		`f:4:3: leaf-spine needs the parameter "hosts-per-leaf", hosts on each leaf; want a whole number from 1 to 1024`}},
	{"no parameters at all", "name: t\nfabric:\n  topology: fat-tree\n", []string{
		`f:3:13: fat-tree needs the parameter "k", ports of each switch; want an even number from 2 to 24`}},
	{"odd fat tree", "name: t\nfabric:\n  topology: fat-tree\n  params: {k: 5}\n", []string{
		`f:4:15: fat-tree: k is 5; want an even number from 2 to 24`}},
	{"parameter out of range", "name: t\nfabric:\n  topology: single-switch\n  params:\n    hosts: 0\n",
		[]string{
			`f:5:12: single-switch: hosts is 0; want a whole number from 1 to 4096`}},
	{"misspelt parameter", "name: t\nfabric:\n  topology: torus\n  params: {x: 3, host-per-switch: 2}\n",
		[]string{
			`f:4:18: torus has no parameter "host-per-switch"; did you mean "hosts-per-switch"?`}},
	{"too many of everything", "name: t\nfabric:\n  topology: leaf-spine\n  params: {leaves: 1024, spines: " +
		"256, hosts-per-leaf: 1024}\n", []string{
		`f:4:20: leaf-spine with these parameters has 1048576 hosts, 1280 switches and 1310720 links; want at most 4096 hosts, 1024 switches and 131072 links`}},
	{"unknown topology", "name: t\nfabric:\n  topology: leafspine\n  params: {}\n", []string{
		`f:3:13: fabric.topology "leafspine" does not exist; did you mean "leaf-spine"?`}},
	{"a link step against the link",
		linkFile("delay: 5us, jitter: 3us") +
			"steps:\n  - link: {where: h0--leaf1, set: {jitter: 5s}}\n  - link: {where: h1--leaf1 b-to-a, " +
			"set: {delay: 1us}}\n", []string{
			`f:8:44: jitter is 5s and delay 5us on h0--leaf1; want a delay at least as long as the jitter: no packet arrives before it was sent`,
			`f:9:37: jitter is 3us and delay 1us on h1--leaf1; want a delay at least as long as the jitter: no packet arrives before it was sent`}},
	{"NICs of a generated node", leafSpineFile("nodes:", "  default: {ranks: 2}", "  h1: {nics: 2}"),
		[]string{
			`f:7:14: node h1 has 2 NICs and 1 link; want nics: 1, the number of its links`}},
	{"more NICs than links", explicitFile("a -- s", "b -- s", "s -- t") + "nodes:\n  a: {nics: 3}\n",
		[]string{
			`f:11:13: node a has 3 NICs and 1 link; want nics: 1, the number of its links, or more entries of fabric.connect`}},
	{"node without a link", explicitFile("a -- s", "s -- t"), []string{
		`f:4:14: node b has no link; want an entry of fabric.connect such as "b -- SWITCH"`}},
	{"dangling link", explicitFile("a -- s", "b -- x1"), []string{
		`f:8:7: link "b -- x1": there is no node or switch "x1"; want a name from hosts or switches`}},
	{"misspelt end", strings.ReplaceAll(explicitFile("a -- s", "b -- spime1"), "t: {}", "spine1: {}"),
		[]string{
			`f:8:7: link "b -- spime1": there is no node or switch "spime1"; did you mean "spine1"?`}},
	{"port used twice", explicitFile("a:eth0 -- s", `"b -- s:p7"`, `"a:eth1 -- s:p7"`), []string{
		`f:9:7: port s:p7 is already used by "b -- s:p7"; want one link for each port`}},
	{"link to itself", explicitFile("a -- s", "b -- s", "t -- t"), []string{
		`f:9:7: link "t -- t" joins t to itself; want two different ends`}},
	{"link between nodes", explicitFile("a -- b"), []string{
		`f:7:7: link "a -- b" joins two nodes; want a switch at one end: put one between them`}},
	{"link with one end", explicitFile("a"), []string{
		`f:7:7: link "a" does not name two ends; want "a -- b" or "a:eth0 -- b:p1"`}},
	{"link with three ends", explicitFile("a -- s -- b"), []string{
		`f:7:7: link "a -- s -- b" does not name two ends; want "a -- b" or "a:eth0 -- b:p1"`}},
	{"long interface name", explicitFile("a:ethernet12345678 -- s", "b -- s"), []string{
		`f:7:7: link "a:ethernet12345678 -- s": "ethernet12345678" cannot be an interface name; it has 16 characters, want at most 15`}},
	{"interface name with a path", explicitFile("a:../eth0 -- s", "b -- s"), []string{
		`f:7:7: link "a:../eth0 -- s": "../eth0" cannot be an interface name; want letters and digits, and . _ - after the first character`}},
	{"reserved interface name", explicitFile("a:lo -- s", "b -- s"), []string{
		`f:7:7: link "a:lo -- s": "lo" cannot be an interface name; want another name than all, br0, default, lo`}},
	{"duplicate node", strings.Replace(explicitFile("a -- s"), "[a, b]", "[a, a]", 1), []string{
		`f:4:14: host "a" is named twice; give each host a name of its own`}},
	{"node named as a switch", strings.Replace(explicitFile("a -- s"), "[a, b]", "[a, s]", 1), []string{
		`f:4:14: "s" is a host and a switch; give each a name of its own`}},
	{"reserved node name", strings.Replace(explicitFile("a -- s"), "[a, b]", "[a, localhost]", 1), []string{
		`f:4:14: name "localhost" is reserved; want another name than all, default, fabric, host, localhost, nics, switches`}},
	{"name that splits link names", strings.Replace(explicitFile("a -- s"), "t: {}", "t--u: {}", 1), []string{
		`f:5:21: name "t--u" cannot be a host name; want at most 24 characters of a-z, 0-9 and single "-", the first a letter and the last not "-"`}},
	{"a workload without hosts", "name: t\nfabric:\n  topology: explicit\n  switches: {s: {}, u: {}}\n  " +
		"connect: [s -- u]\n" +
		"steps:\n- capture: {at: [all], file: a.pcapng}\n- workload: {name: w, kind: all-reduce, size: " +
		"1KiB}\n" +
		"- traffic: {name: x, from: ['*'], shift: 1, for: 1s}\n", []string{
		`f:8:3: a step of workload in a fabric without hosts; want hosts: [a] and connect: ["a -- SWITCH"]`,
		`f:9:3: a step of traffic in a fabric without hosts; want hosts: [a] and connect: ["a -- SWITCH"]`}},
	{"a fabric of two networks", "name: t\nfabric:\n  topology: explicit\n  hosts: [client, nat, server]\n" +
		"  switches: {in: {}, out: {}}\n  connect: [client -- in, nat -- in, nat -- out, server -- out]\n",
		[]string{
			`f:3:13: no path leads from node client to node server: node nat joins their switches, and nodes do not forward; want a link between switches such as in -- out, or a switch in place of nat`}},
	{"no hosts", "name: t\nfabric:\n  topology: explicit\n", []string{
		`f:2:1: topology explicit has no hosts and no switches; want hosts: [a, b], switches: {s: {}} and connect: ["a -- s", "b -- s"]`}},
	{"unknown node", leafSpineFile("nodes:", "  h11: {ranks: 2}"), []string{
		`f:6:3: "h11" is no node; did you mean "h1"?`}},
	{"node pattern without a match", leafSpineFile("nodes:", `  "g*": {ranks: 2}`), []string{
		`f:6:3: "g*" is no node; want the name of a node or a pattern that matches one, such as "h0"`}},
	{"unknown switch", leafSpineFile("  switches:", "    laef1: {buffer: 1MiB}"), []string{
		`f:6:5: "laef1" is no switch; did you mean "leaf1"?`}},
	{"link with its ends reversed", leafSpineFile("  links:", "    spine1--leaf1: {rate: 2gbit}"), []string{
		`f:6:5: "spine1--leaf1" is no link; did you mean "leaf1--spine1"? The end nearer to the servers comes first`}},
	{"link pattern without a match", leafSpineFile("  links:", `    "leaf3--*": {rate: 2gbit}`), []string{
		`f:6:5: "leaf3--*" is no link; want the name of a link or a pattern that matches one, such as "h0--leaf1"`}},
	{"loop of bridges", leafSpineFile("  switch: {kind: bridge}"), []string{
		`f:5:18: bridges form a loop: leaf1 -- spine1 -- leaf2 -- spine2 -- leaf1; want kind: router, or links that form a tree`}},
	{"parallel links of bridges", explicitFile("a -- s", "b -- t", "s -- t", "s -- t") +
		"  switch: {kind: bridge}\n", []string{
		`f:11:18: bridges form a loop: s -- t -- s; want kind: router, or links that form a tree`}},
	{"bridge with too many ports",
		"name: t\nfabric:\n  topology: single-switch\n  params: {hosts: 1024}\n  switch: {kind: bridge}\n",
		[]string{
			`f:5:18: bridge leaf1 has 1024 ports; want kind: router, or at most 1023 ports on each switch`}},
	{"bridge among routers", leafSpineFile("  switch: {kind: router}", "  switches:", `    "spine*":`,
		"      kind: bridge"), []string{
		`f:8:13: switch spine1 is a bridge and leaf1 a router; want one kind for all switches`}},
	{"MTUs in one bridged network",
		"name: t\nfabric:\n  topology: single-switch\n  params: {hosts: 2}\n  switch: {kind: bridge}\n  " +
			"links:\n    h1--leaf1: {mtu: 9000}\n", []string{
			`f:7:22: link h1--leaf1 has mtu 9000 and h0--leaf1 has 1500, in one bridged network; want one MTU for all links: a bridge silently drops packets that are too long`}},
	{"narrow link on the way", leafSpineFile("  links:", "    default: {mtu: 9000}",
		"    leaf2--spine1: {mtu: 4200}"), []string{
		`f:7:26: link leaf2--spine1 has mtu 4200, and packets of h2--leaf2 with mtu 9000 cross it; want at least 9000 on every link of the path`}},
	{"narrow link two links away",
		"name: t\nfabric:\n  topology: fat-tree\n  params: {k: 2}\n  links:\n    default: {mtu: 9000}\n    " +
			"host: {mtu: 4200}\n    h0--leaf1: {mtu: 9000}\n    agg1--core1: {mtu: 8000}\n", []string{
			`f:9:24: link agg1--core1 has mtu 8000, and packets of h0--leaf1 with mtu 9000 cross it; want at least 9000 on every link of the path`}},
	{"wide host links over a default fabric",
		"name: t\nfabric:\n  topology: leaf-spine\n  params: {leaves: 2, spines: 1, hosts-per-leaf: 1}\n  " +
			"links:\n    host: {mtu: 9000}\n", []string{
			`f:6:17: link leaf2--spine1 has mtu 1500, and packets of h1--leaf2 with mtu 9000 cross it; want at least 9000 on every link of the path`}},
	{"more nodes than loopbacks", leafSpineFile("addressing: {loopbacks4: 10.0.0.0/29}"), []string{
		`f:5:26: 10.0.0.0/29 has 8 addresses, and 4 nodes and 4 switches need 16, counted in aligned blocks; want a prefix of /28 or shorter`}},
	{"more links than subnets", leafSpineFile("addressing:", "  links4: 10.1.0.0/29", "  links6: fd00::/125"),
		[]string{
			`f:6:11: 10.1.0.0/29 has 8 addresses, and 4 nodes and 4 switches need 16, counted in aligned blocks; want a prefix of /28 or shorter`,
			`f:7:11: fd00::/125 has 8 addresses, and 4 nodes and 4 switches need 16, counted in aligned blocks; want a prefix of /124 or shorter`}},
	{"overlapping pools", leafSpineFile("addressing: {loopbacks4: 10.128.0.0/16}"), []string{
		`f:5:26: addressing.loopbacks4 10.128.0.0/16 overlaps addressing.links4 10.128.0.0/10; give each pool addresses of its own`}},
	{"two islands", explicitFile("a -- s", "b -- t"), []string{
		`f:3:13: no path leads from node a to node b; want links that join all nodes`}},
	{"two bridged islands", explicitFile("a -- s", "b -- t") + "  switch: {kind: bridge}\n", []string{
		`f:3:13: no path leads from node a to node b; want links that join all nodes`}},
	{"a node between bridges", explicitThree("a -- s", "b -- s", "b -- t", "c -- t", "t -- u") +
		"  switch: {kind: bridge}\n", []string{
		`f:3:13: no path leads from node a to node c: node b joins their switches, and nodes do not forward; want a link between switches such as s -- t, or a switch in place of b`}},
	{"bridges of two nodes each", explicitThree("a -- s", "a -- t", "b -- s", "b -- u", "c -- t", "c -- u") +
		"  switch: {kind: bridge}\n", []string{
		`f:3:13: no bridged network has a NIC of every node; want links that join all nodes, or kind: router`}},
	{"ring over rails that are apart",
		"name: t\nfabric:\n  topology: rail-optimized\n  params: {servers: 2, rails: 2}\nnodes:\n  " +
			"default: {ranks: 2}\nsteps:\n  - workload: {name: w, kind: all-reduce, size: 4KiB}\n", []string{
			`f:8:5: rank 1 on h0:eth1 sends to rank 2 on h1:eth0, and no path joins these NICs; want a fabric that joins them (spines above rails), or one rank for each node`}},
	{"auto, which is a ring for short buffers, over rails that are apart",
		"name: t\nfabric:\n  topology: rail-optimized\n  params: {servers: 2, rails: 2}\nnodes:\n  " +
			"default: {ranks: 2}\nsteps:\n" +
			"  - workload: {name: v, kind: all-reduce, algorithm: auto, size: 1MiB}\n" +
			"  - workload: {name: w, kind: all-reduce, algorithm: auto, sizes: {from: 1KiB, to: 1MiB}}\n" +
			"  - workload: {name: x, kind: all-gather, algorithm: hierarchical, size: 1KiB}\n", []string{
			`f:9:5: rank 1 on h0:eth1 sends to rank 2 on h1:eth0, and no path joins these NICs; want a fabric that joins them (spines above rails), or one rank for each node`}},
	{"ranks that there are not", "name: t\nfabric: {topology: single-switch, params: {hosts: 3}}\nsteps:\n" +
		"  - workload: {name: w, kind: all-reduce, size: 4KiB, ranks: [0, 3]}\n" +
		"  - training: {name: t, trace: good.cm, ranks: [0, 4]}\n" +
		"  - messages: {name: m, ranks: [5, 1], open: {count: 1, load: 10%, sizes: web-search}}\n", []string{
		`f:4:66: rank 3 of a testbed with 3 ranks; want 0 to 2, or more ranks: of nodes`,
		`f:5:52: rank 4 of a testbed with 3 ranks; want 0 to 2, or more ranks: of nodes`,
		`f:6:33: rank 5 of a testbed with 3 ranks; want 0 to 2, or more ranks: of nodes`}},
	{"workload of one of the ranks", "name: t\nfabric: {topology: single-switch, params: {hosts: 3}}\n" +
		"steps:\n" +
		"  - workload: {name: w, kind: reduce, ranks: [1], size: 4KiB}\n" +
		"  - workload: {name: v, kind: reduce, ranks: [1, 2], root: 2, size: 4KiB}\n", []string{
		`f:4:39: the workload has 1 rank; want at least 2`,
		`f:5:60: root is rank 2 of 2 ranks; want 0 to 1`}},
	{"root that is no rank", "name: t\nfabric:\n  topology: single-switch\n  params: {hosts: 3}\nsteps:\n  " +
		"- workload: {name: w, kind: reduce, root: 3, size: 4KiB}\n", []string{
		`f:6:45: root is rank 3 of 3 ranks; want 0 to 2`}},
	{"workload of one rank", "name: t\nfabric:\n  topology: single-switch\n  params: {hosts: 1}\nsteps:\n  " +
		"- workload: {name: w, kind: all-reduce, size: 4KiB}\n", []string{
		`f:6:5: the testbed has 1 rank; want at least 2 ranks: more nodes, or ranks: 2 for a node`}},
	{"queue below a frame", leafSpineFile("  links:", "    default: {mtu: 9000}",
		"    host: {b-to-a: {queue: 4KiB}}"), []string{
		`f:7:28: queue is 4KiB; want at least 9014B, one frame of mtu 9000`}},
	{"jitter above the delay", leafSpineFile("  links:", "    default: {delay: 1us}",
		"    fabric: {jitter: 10us}"), []string{
		`f:7:22: jitter is 10us and delay 1us; want a delay at least as long as the jitter: no packet arrives before it was sent`}},
	{"rate of nothing", leafSpineFile("  links:", "    fabric: {rate: 0gbit}"), []string{
		`f:6:20: fabric.links["fabric"].rate is 0bit; want 1kbit to 1600gbit`}},
	{"unknown taps", leafSpineFile("steps:",
		"  - capture: {at: [all, h9, 'leaf1:p9', 'x*'], file: a.pcapng}"), []string{
		`f:6:25: "h9" is no tap; did you mean "h0"?`,
		`f:6:29: "leaf1:p9" is no tap; did you mean "leaf1:p0"?`,
		`f:6:41: "x*" is no tap; want "all", "nics", "switches", node:port, a node or a switch; the switches are leaf1, leaf2, spine1, spine2`}},
	{"taps that match only words for taps",
		leafSpineFile("steps:", "  - capture: {at: ['n*', 'a??'], file: a.pcapng}"), []string{
			`f:6:20: "n*" is no tap; want "all", "nics", "switches", node:port, a node or a switch; the switches are leaf1, leaf2, spine1, spine2`,
			`f:6:26: "a??" is no tap; want "all", "nics", "switches", node:port, a node or a switch; the switches are leaf1, leaf2, spine1, spine2`}},
	{"words of checks", leafSpineFile("steps:", "  - capture: {at: [all], file: a.pcapng}", "checks:",
		"  - packets: {marks: {at: leaf9, from: x, to: 'y*', share: '>= 1%'}}",
		"  - packets: {drops: {at: 'leaf1:q*', from: leaf1, count: '== 0'}}",
		"  - packets: {lossless: {from: h9, to: spine1}}", "  - packets: {trims: {at: nosuch}}",
		"  - packets: {pauses: {at: 'n*', count: '== 0', order: ['leaf1:p0', 'leaf9:*']}}",
		"  - packets: {reordering: {to: h9, share: '<= 1%'}}",
		"  - packets: {outage: {from: h9, longest: '<= 1s'}}",
		"  - packets: {queue-depth: {at: 'a*', max: '<= 1KB'}}"), []string{
		`f:8:27: "leaf9" is no tap; did you mean "leaf1"?`,
		`f:8:40: "x" is no node; want the name of a node or a pattern that matches one, such as "h0"`,
		`f:8:47: "y*" is no node; want the name of a node or a pattern that matches one, such as "h0"`,
		`f:9:27: "leaf1:q*" is no tap; want node:port, such as "h0:eth0"`,
		`f:9:45: "leaf1" is no node; want the name of a node or a pattern that matches one, such as "h0"`,
		`f:10:32: "h9" is no node; did you mean "h0"?`,
		`f:10:40: "spine1" is no node; want the name of a node or a pattern that matches one, such as "h0"`,
		`f:11:27: "nosuch" is no tap; want "all", "nics", "switches", node:port, a node or a switch; the switches are leaf1, leaf2, spine1, spine2`,
		`f:12:28: "n*" is no tap; want "all", "nics", "switches", node:port, a node or a switch; the switches are leaf1, leaf2, spine1, spine2`,
		`f:12:69: "leaf9:*" is no tap; want node:port, such as "h0:eth0"`,
		`f:13:32: "h9" is no node; did you mean "h0"?`,
		`f:14:30: "h9" is no node; did you mean "h0"?`,
		`f:15:33: "a*" is no tap; want "all", "nics", "switches", node:port, a node or a switch; the switches are leaf1, leaf2, spine1, spine2`}},
	{"command on no node", leafSpineFile("steps:", "  - exec: {nodes: [h0, h44], command: [true]}"), []string{
		`f:6:24: "h44" is no node; want the name of a node or a pattern that matches one, such as "h0"`}},
	{"command in a switch", leafSpineFile("steps:", "  - exec: {nodes: ['leaf*'], command: [true]}",
		"  - exec: {nodes: [h0], command: [true], ends: [bgpd]}"), []string{
		`f:6:20: "leaf*" is a switch without daemons, in which no programs run; name nodes, or set fabric: {switch: {kind: router}, routing: {daemon: frr}}`,
		`f:7:20: "h0" is no router with daemons to end; name routers of fabric: {routing: {daemon: frr}}, or remove ends`}},
	{"daemon that is not there", leafSpineFile("  switch: {kind: router}", "  routing: {daemon: frr}",
		"steps:", "  - exec: {nodes: [leaf1], command: [true], ends: [zebra, bfdd]}"), []string{
		`f:8:59: routers have no bfdd; want zebra or bgpd; bfdd runs with fabric: {routing: {bfd: 100ms}}`}},
	{"change of no link", leafSpineFile("steps:", "  - link: {where: leaf1--spine3, state: down}"), []string{
		`f:6:19: "leaf1--spine3" is no link; did you mean "leaf1--spine1"?`}},
	{"checks of no switch", leafSpineFile("steps:", "  - capture: {at: [all], file: a.pcapng}", "checks:",
		"  - packets: {conservation: tor1}", "  - packets: {path-spread: {switch: leaf9}}"), []string{
		`f:8:29: "tor1" is no switch; want the name of a switch or a pattern that matches one, such as "leaf1"`,
		`f:9:37: "leaf9" is no switch; did you mean "leaf1"?`}},
	{"dilation", leafSpineFile("  switch: {kind: router}", "dilation: 2"),
		[]string{`f:6:11: dilation is 2, and the kernel's links and switches keep real time; use soft switches (kind: soft), or take dilation: 1, divide the links' rates by this factor and multiply their delays by it`}},
}

// TestWrongFiles requires every problem of a file, with its position and text.
func TestWrongFiles(t *testing.T) {
	for _, c := range slices.Concat(wrongFiles, wrongSoftFiles, wrongGuestFiles, wrongContainerFiles,
		wrongCNIFiles) {
		t.Run(c.name, func(t *testing.T) {
			_, err := compileText(c.text)
			var problems spec.Problems
			if !errors.As(err, &problems) {
				t.Fatalf("got %v, want problems", err)
			}
			if got, want := err.Error(), strings.Join(c.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}
