package plan

// softFile returns a leaf-spine of soft switches. Lines after the switch start in line 6.
func softFile(settings string, lines ...string) string {
	return leafSpineFile(append([]string{"  switch: {kind: soft, " + settings + "}"}, lines...)...)
}

// wrongSoftFiles is as wrongFiles, for soft switches and settings that only they have.
var wrongSoftFiles = []wrongFile{
	{"soft among routers", leafSpineFile("  switch: {kind: router}", "  switches:",
		"    spine*: {kind: soft}"), []string{
		`f:7:20: switch spine1 is a soft switch and leaf1 a router; want one kind for all switches`}},
	{"bridge among soft", softFile("buffer: 4MB", "  switches:", "    leaf2: {kind: bridge}"), []string{
		`f:7:19: switch leaf2 is a bridge and leaf1 a soft switch; want one kind for all switches`}},
	{"two ways of forwarding", softFile("forwarding: l3", "  switches:", "    spine1: {forwarding: l2}"),
		[]string{
			`f:7:26: switch spine1 forwards by l2 and leaf1 by l3; want one forwarding for all switches`}},
	{"loop of layer 2", softFile("forwarding: l2"), []string{
		`f:5:36: switches that forward by l2 form a loop: leaf1 -- spine1 -- leaf2 -- spine2 -- leaf1; want forwarding: l3, or links that form a tree`}},
	{"two islands of layer 2", explicitFile("a -- s", "b -- t") + "  switch: {kind: soft, forwarding: l2}\n",
		[]string{`f:3:13: no path leads from node a to node b; want links that join all nodes`}},
	{"networks of layer 2 of two nodes each", explicitThree("a -- s", "a -- t", "b -- s", "b -- u", "c -- t",
		"c -- u") + "  switch: {kind: soft, forwarding: l2}\n", []string{
		`f:3:13: no bridged network has a NIC of every node; want links that join all nodes, or forwarding: l3`}},
	{"everything on a router", leafSpineFile("  switch:", "    kind: router", "    forwarding: l3",
		"    load-balance: flowlet", "    flowlet-gap: 1us", "    alpha: 1", "    scheduler: {strict: [7]}",
		"    priorities: {1: 1}", "    ecn: true", "    trim: false", "    pfc: true", "    gfc: {}",
		"    int: false", "    aggregation: true", "  memory: 1GiB",
		"nodes: {default: {nic-queue: 64KiB}}"), []string{
		`f:7:17: forwarding is only for soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove forwarding`,
		`f:8:19: load-balance is only for soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove load-balance`,
		`f:9:18: flowlet-gap is only for soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove flowlet-gap`,
		`f:10:12: alpha is only for soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove alpha`,
		`f:11:5: scheduler is only for soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove scheduler`,
		`f:12:5: priorities is only for soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove priorities`,
		`f:13:10: ecn is only for soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove ecn`,
		`f:14:11: trim is only for soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove trim`,
		`f:15:10: pfc is only for soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove pfc`,
		`f:16:5: gfc is only for soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove gfc`,
		`f:17:10: int is only for soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove int`,
		`f:18:18: aggregation is only for soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove aggregation`,
		`f:19:11: memory is only for fabrics of soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove memory`,
		`f:20:30: nic-queue is only for NICs at soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove nic-queue`}},
	{"pfc on one bridge", explicitFile("a -- s", "b -- s") +
		"  switch: {kind: bridge}\n  links: {default: {weight: 2}}\n", []string{
		`f:10:29: weight is only for equal-cost paths, and s has none; want kind: router, or remove weight`}},
	{"weight of layer 2", explicitFile("a -- s", "b -- s") +
		"  switch: {kind: soft, forwarding: l2}\n  links: {default: {weight: 2}}\n", []string{
		`f:10:29: weight is only for equal-cost paths, and s has none; want forwarding: l3, or remove weight`}},
	{"faults on links of routers",
		leafSpineFile("  switch: {kind: router}", "  links:",
			"    default: {jitter-kind: normal, drop-every: 3}", "    host:",
			"      a-to-b: {gilbert-elliott: {enter: 1%, leave: 1%}, drop-list: [1]}",
			"    fabric: {reorder: 1%, reorder-by: 1us, b-to-a: {overhead: 24B, flap: {every: 2s, for: 1s}}}",
			"steps:",
			"  - link: {where: h0--leaf1, set: {loss: 1%, drop-every: 3, bit-error-ratio: 1e-9}}"), []string{
			`f:7:28: jitter-kind is only for links of soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove jitter-kind`,
			`f:7:48: drop-every is only for links of soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove drop-every`,
			`f:9:16: gilbert-elliott is only for links of soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove gilbert-elliott`,
			`f:9:57: drop-list is only for links of soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove drop-list`,
			`f:10:23: reorder is only for links of soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove reorder`,
			`f:10:39: reorder-by is only for links of soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove reorder-by`,
			`f:10:63: overhead is only for links of soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove overhead`,
			`f:10:68: flap is only for links of soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove flap`,
			`f:12:58: drop-every is only for links of soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove drop-every`,
			`f:12:78: bit-error-ratio is only for links of soft switches, and leaf1 is a router; use a soft switch (kind: soft), or remove bit-error-ratio`}},
	{"fault at no port", softFile("alpha: 1", "steps:", "  - fault: {where: leaf9, drop: {}}"), []string{
		`f:7:20: no port is at "leaf9"; did you mean "leaf1"?`}},
	{"partition of nodes in two sets",
		softFile("alpha: 1", "steps:", "  - fault: {partition: [[h0, h1], ['h[1-3]'], [h9]]}"), []string{
			`f:7:35: h1 is in set 1, too; want each node in one set`,
			`f:7:48: "h9" is no node; want names of nodes, such as h0`}},
	{"crash of a switch", softFile("alpha: 1", "steps:", "  - fault: {where: leaf1, crash: true}"), []string{
		`f:7:20: "leaf1" is no node; want the name of a node or a pattern that matches one, such as "h0"`}},
	{"ranks of faults", softFile("alpha: 1", "nodes: {default: {ranks: 1}}", "steps:",
		"  - fault: {rank: 9, crash: true}", "  - fault: {where: h1, rank: 0, hang: true}"), []string{
		`f:8:19: there is no rank 9; want 0 to 3`, `f:9:30: rank 0 is on h0; remove where:, or name h0`}},
	{"limits of the wrong nodes", softFile("alpha: 1", "nodes: {h0: {runtime: docker, image: a}, "+
		"h1: {runtime: vm}, h2: {memory: 64MiB}, h3: {runtime: cni}}", "steps:",
		"  - fault: {where: h0, memory: 31MiB}", "  - fault: {where: 'h*', memory: 512MiB}",
		"  - fault: {where: 'h[0-1]', clock: {jump: -1s}}",
		"  - fault: {where: 'h*', disk: full}"), []string{
		`f:8:32: h0 is a container, whose first process needs 14MiB of its memory; want at least 32MiB`,
		`f:9:20: h3 has no programs of its own: its containers are of another runtime; want nodes of another runtime`,
		`f:9:34: h1 never has more than 512MiB; want less`,
		`f:9:34: h2 never has more than 64MiB; want less`,
		`f:10:20: h0 has the host's wall clock, as time namespaces shift only monotonic clocks; want nodes with runtime: vm`,
		`f:11:20: h0 is a container, whose files are its engine's; want nodes of another runtime`,
		`f:11:20: h3 has no programs of its own: its containers are of another runtime; want nodes of another runtime`}},
	{"targets of faults", softFile("alpha: 1", "steps:", "  - fault: {where: leaf1, mirror: {to: leaf2}}",
		"  - fault: {where: leaf1, misroute: {to: leaf2--spine1}}",
		"  - fault: {where: switches, misroute: {to: leaf1--spine1}}",
		"  - fault: {where: h0, reboot: true, for: 1s}"), []string{
		`f:7:40: no node is named "leaf2"; want a node such as h0`,
		`f:8:42: "leaf2--spine1" is no port and no link of the fault's switch; want a port such as leaf1:p0`,
		`f:9:45: the fault acts at leaf1 and at leaf2; want ports of one switch as where`,
		`f:10:32: h0 is a node, and switches reboot; want a switch or a glob of switches, such as leaf1`}},
	{"ends of probes", softFile("int: true", "steps:", "  - probe: {name: p, from: h0:eth0, to: h1:eth9}",
		"  - probe: {name: q, from: h9, to: 'h*'}"), []string{
		`f:7:41: node h1 has no NIC "eth9"; its NICs are eth0`,
		`f:8:28: no node is named "h9"; did you mean "h0"?`,
		`f:8:36: no node is named "h*"; want a node such as h0`}},
	{"probe to the node's other NIC", softFile("int: true", "steps:",
		"  - probe: {name: p, from: h0:eth0, to: h0:eth1}"), []string{
		`f:7:41: probes from h0 to itself; name another node`}},
	{"fault at routers",
		leafSpineFile("  switch: {kind: router}", "steps:", "  - fault: {where: all, drop: {}}",
			"  - fault: {where: all, delay: {by: 1ms}}", "  - fault: {where: all, mark: {flows: 10%}}",
			"  - fault: {where: leaf1, reboot: true, for: 1s}"), []string{
			`f:8:25: delay needs soft switches; take fabric: {switch: {kind: soft}}, or one of drop, duplicate, ` +
				`corrupt, truncate, mark, partition, reboot`,
			`f:9:39: a share of flows needs soft switches; take share:, or fabric: {switch: {kind: soft}}`}},
	{"jitter above the delay of a soft switch",
		softFile("alpha: 1", "  links:", "    host: {jitter: 1us, jitter-kind: normal}",
			"    fabric: {jitter: 1us, jitter-kind: exponential}"), []string{
			`f:7:20: jitter is 1us and delay 0s; want a delay at least as long as the jitter: no packet arrives before it was sent`}},
	{"bypass at a router",
		leafSpineFile("  switch: {kind: router}", "nodes: {h1: {nic-path: bypass}}"), []string{
			`f:6:24: nic-path is only for NICs at soft switches, and leaf1 is a router; use a soft switch ` +
				`(kind: soft), or remove nic-path`}},
	{"mirror at a router",
		leafSpineFile("  switch: {kind: router}", "nodes: {h1: {nic-mirror: true}}"), []string{
			`f:6:26: nic-mirror is only for NICs at soft switches, and leaf1 is a router; use a soft switch ` +
				`(kind: soft), or remove nic-mirror`}},
	{"mirror of the kernel's path",
		softFile("alpha: 1", "nodes: {h1: {nic-path: kernel, nic-mirror: true}}"), []string{
			`f:6:44: node h1 has nic-path: kernel, so tcpdump sees all packets at its NICs; want nic-path: ` +
				`bypass, or remove nic-mirror`}},
	{"mirror in a dual-ToR fabric", "name: t\nfabric:\n  topology: hpn\n" +
		"  params: {segments: 1, servers: 2, rails: 1, aggs: 1}\n  switch: {kind: soft}\n" +
		"nodes: {h1: {nic-mirror: true}}\n", []string{
		`f:6:26: node h1 has nic-path: kernel, so tcpdump sees all packets at its NICs; want nic-path: ` +
			`bypass, or remove nic-mirror`}},
	{"mirror with the name of a NIC", "name: t\nfabric:\n  topology: explicit\n  switches: {s: {}}\n" +
		"  switch: {kind: soft}\n  hosts: [a]\n  connect: [\"a:mirror0 -- s:p1\"]\n" +
		"nodes: {a: {nic-mirror: true}}\n", []string{
		`f:8:25: node a has a NIC mirror0, and nic-mirror makes an interface with this name; want another ` +
			`name for the NIC, or remove nic-mirror`}},
	{"bypass of a guest's kernel",
		softFile("alpha: 1", "nodes: {h1: {runtime: vm, nic-path: bypass}}"), []string{
			`f:6:37: node h1 has runtime: vm, and only nodes that share this host's memory can bypass ` +
				`their kernel; want runtime: netns or docker, or remove nic-path`}},
	{"queue of a NIC below a frame",
		softFile("alpha: 1", "  links: {default: {mtu: 9000}}", "nodes: {h1: {nic-queue: 9KB}}"), []string{
			`f:7:25: nic-queue is 9KB; want at least 9018B, one frame of mtu 9000`}},
	{"buffer below a frame", softFile("buffer: 1KB"), []string{
		`f:5:32: buffer of leaf1 is 1KB; want at least 1518B, which leaves room for one frame`}},
	{"buffer below what pfc needs", softFile("buffer: 64KiB, pfc: {xoff: 20KB, xon: 10KB, headroom: 10KB}"),
		[]string{
			`f:5:32: buffer of leaf1 is 64KiB, and its lossless priorities need 120KB; want at least 121518B, which leaves room for one frame`}},
	{"default buffer below what pfc needs",
		softFile("pfc: {priorities: [0, 1, 2, 3]}", "  links: {default: {delay: 1ms}}"), []string{
			`f:5:3: buffer of leaf1 is 2MB, and its lossless priorities need 8171936B; want at least 8173454B, which leaves room for one frame`}},
	{"weight of a priority that is strict by default", softFile("scheduler: {weights: {0: 1, 7: 2}}"),
		[]string{
			`f:5:55: priority 7 of leaf1 is strict and has a weight; remove it, or take 7 out of strict`}},
	{"weight of a priority that another entry makes strict",
		softFile("scheduler: {weights: {6: 2}}", "  switches: {leaf1: {scheduler: {strict: [6]}}}"), []string{
			`f:5:49: priority 6 of leaf1 is strict and has a weight; remove it, or take 6 out of strict`}},
	{"kmax of another entry", softFile("ecn: {kmin: 100KB}", "  switches: {spine1: {ecn: {kmax: 50KB}}}"),
		[]string{
			`f:6:35: kmin of spine1 is 100KB and kmax 50KB; want kmin at most kmax`}},
	{"kmin above the default kmax", softFile("ecn: {kmin: 200KB}"), []string{
		`f:5:36: kmin of leaf1 is 200KB and kmax 160KB; want kmin at most kmax`}},
	{"persistent target above the default target", softFile("ecn: {kind: ecn-sharp, persistent-target: 1ms}"),
		[]string{
			`f:5:66: persistent-target of leaf1 is 1ms and target 200us; want at most the target: ecn-sharp marks every packet above it`}},
	{"target without a kind", softFile("ecn: {target: 100us}"), []string{
		`f:5:38: target is only for ecn-sharp, and ecn of leaf1 is red; add kind: ecn-sharp`}},
	{"DSCP of trimmed packets", softFile("trim: {dscp: 8}"), []string{
		`f:5:37: trimmed packets of leaf1 have dscp 8 of priority 1, and queue: 7; want a dscp of priority 7, because the next switch queues by dscp`}},
	{"queue of trimmed packets", softFile("trim: {queue: 6}"), []string{
		`f:5:38: trimmed packets of leaf1 have dscp 59 of priority 7, and queue: 6; want a dscp of priority 6, because the next switch queues by dscp`}},
	{"trimmed into themselves", softFile("trim: {priorities: [4, 7]}"), []string{
		`f:5:31: priority 7 of leaf1 is trimmed and is the queue of trimmed packets; want other priorities`}},
	{"lossless and trimmed", softFile("pfc: true, trim: {priorities: [3]}"), []string{
		`f:5:42: priority 3 of leaf1 is lossless by pfc and trimmed; want other priorities for one of them`}},
	{"two kinds of lossless", softFile("pfc: true, gfc: true"), []string{
		`f:5:40: priority 3 of leaf1 has pfc and gfc; want other priorities for one of them, or pfc: false`}},
	{"xon above the computed xoff", softFile("pfc: {xoff: 2KB}", "  switches: {leaf1: {pfc: {xon: 3KB}}}"),
		[]string{
			`f:6:33: xon of leaf1:p0 is 3KB and xoff 2KB; want xon at most xoff`}},
	{"b1 above the bm of another entry",
		softFile("gfc: {b1: 30KB}", "  switches: {leaf1: {gfc: {bm: 20KB}}}"), []string{
			`f:6:32: b1 of leaf1:p0 is 30KB and bm 20KB; want b1 below bm`}},
	{"aggregation of layer 2", explicitFile("a -- s", "b -- s") +
		"  switch: {kind: soft, forwarding: l2, aggregation: true}\n", []string{
		`f:9:53: aggregation needs an address of the switch, and s forwards by l2; want forwarding: l3, or aggregation: false`}},
}
