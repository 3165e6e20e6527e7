package spec

// fault returns a file with a fault.
func fault(keys string) string { return head + "steps: [{fault: {where: all, " + keys + "}}]\n" }

// wrongFaultFiles is as wrongFiles, for faults.
var wrongFaultFiles = []struct {
	name, text string
	what, want string
}{
	{"fault without a place", head + "steps: [{" + here + "fault: {drop: {}}}]\n", `lacks the key "where"`,
		"add where"},
	{"fault that does nothing", head + "steps: [{" + here + "fault: {where: all}}]\n",
		"steps[0].fault does nothing", "exactly one of drop, delay, duplicate"},
	{"fault with two actions", fault("drop: {}, " + here + "mark: {}"), "has drop and mark",
		"want exactly one of them"},
	{"fault misspelt", fault(here + "drp: {}"), `unknown key "drp"`, `did you mean "drop"?`},
	{"name of a fault", fault("name: " + here + "Fault 1, drop: {}"), `invalid name "Fault 1"`, "at most 24"},
	{"two faults of a name", head + "steps: [{fault: {name: a, where: all, drop: {}}}, " +
		"{fault: {name: " + here + "a, where: all, drop: {}}}]\n", `another fault is named "a"`,
		"a name of its own"},
	{"place of a fault with a wrong direction", head + "steps: [{fault: {where: " + here +
		`"h0--leaf1 both", drop: {}}}]` + "\n", `invalid place "h0--leaf1 both"`, `" a-to-b"`},
	{"packet 0", fault("drop: {nth: [" + here + "0]}"), "packet 0", "count packets from 1"},
	{"packets out of order", fault("drop: {nth: [5, " + here + "4]}"), "packet 4 after packet 5",
		"in ascending order"},
	{"two picks", fault("drop: {nth: [1], " + here + "every: 2}"), "has nth and every",
		"at most one of nth, every, share and flows"},
	{"every packet of none", fault("drop: {every: " + here + "0}"), "every is 0", "want at least 1"},
	{"share above all", fault("drop: {share: " + here + "101%}"), "101%", "100%"},
	{"delay of nothing", fault("delay: {by: " + here + "0s}"), "by is empty", "write a duration"},
	{"delay without its time", fault(here + "delay: {every: 2}"), `lacks the key "by"`, "add by"},
	{"delay too long", fault("delay: {by: " + here + "61s}"), "1m1s", "at most 60s"},
	{"bits without a place", fault("corrupt: {bits: " + here + "3}"), "bits without a place", "add at:"},
	{"bits beyond a byte", fault("corrupt: {at: 40B, bits: " + here + "256}"), "bits is 256", "1 to 255"},
	{"truncation into the Ethernet header", fault("truncate: {to: " + here + "13B}"), "a frame of 13B",
		"at least 14B"},
	{"partition with a place",
		head + "steps: [{fault: {where: " + here + "all, partition: [[h0], [h1]]}}]\n",
		"a partition with a place", "remove where"},
	{"partition of one set", head + "steps: [{fault: {" + here + "partition: [[h0, h1]]}}]\n",
		"1 set of nodes", "at least two"},
	{"partition of a link", head + "steps: [{fault: {partition: [[h0], [" + here + "h1--leaf1.]]}}]\n",
		"invalid node", "want"},
	{"crash of packets", head + "steps: [{fault: {where: h0, match: " + here + "tcp, crash: true}}]\n",
		"a fault of a whole node or switch with a match", "remove match:"},
	{"hang of a direction", head + "steps: [{fault: {where: " + here + "h0--leaf1 a-to-b, hang: true}}]\n",
		"has a direction", "the name of a node"},
	{"truncation beyond every frame", fault("truncate: {to: " + here + "18446744073709551615B}"),
		"truncate.to is", "at most 65535B"},
	{"corruption beyond every frame", fault("corrupt: {at: " + here + "9223372036854775808B}"),
		"corrupt.at is", "at most 65535B"},
	{"flows above all", fault("drop: {flows: " + here + "101%}"), "101%", "100%"},
	{"reorder by none", fault("reorder: {by: " + here + "0}"), "by is 0", "want 1 to 1000"},
	{"reorder too late", fault("reorder: {by: 1, within: " + here + "61s}"), "1m1s", "at most 60s"},
	{"rewrite without a value", fault(here + "rewrite: {field: ip.ttl}"), `lacks the key "to"`, "add to"},
	{"rewrite with other checksums", fault("rewrite: {field: ip.ttl, to: 1, checksums: " + here + "wrong}"),
		`checksums "wrong" does not exist`, "want update or keep"},
	{"limit to nothing", fault("limit: {rate: " + here + "0bit}"), "rate is empty", "such as 1gbit"},
	{"trim to a part of Ethernet", fault("trim: {size: " + here + "9B}"), "a frame of 9B", "at least 14B"},
	{"mirror to a link", fault(`mirror: {to: ` + here + `"a b"}`), "invalid name", "NODE:NIC"},
	{"misroute to nothing", fault("misroute: {to: " + here + `"?"}`), "invalid name", "SWITCH:PORT"},
	{"pause of no priority", fault("pause: {" + here + "priorities: []}"), "priorities is empty",
		"at least one entry"},
	{"pause of priority 8", fault("pause: {priorities: [" + here + "8]}"), "8", "0 to 7"},
	{"reboot for ever", head + "steps: [{" + here + "fault: {where: leaf1, reboot: true}}]\n",
		"a reboot without for", "add for:"},
	{"reboot of packets", head + "steps: [{fault: {where: leaf1, match: " + here +
		"tcp, reboot: true, for: 1s}}]\n", "a fault of a whole node or switch with a match", "remove match:"},
	{"program of packets", fault("program: " + here + "sshd, drop: {}"), "only crash and hang",
		"remove program:"},
	{"rank of a reboot", head + "steps: [{fault: {where: leaf1, rank: " + here +
		"1, reboot: true, for: 1s}}]\n",
		"only crash and hang", "remove rank:"},
	{"program by a broken pattern", head + "steps: [{fault: {where: h0, program: " + here +
		"\"[\", crash: true}}]\n",
		"invalid pattern", "redis-*"},
	{"rank below 0", head + "steps: [{fault: {rank: " + here + "-1, crash: true}}]\n",
		"rank is the number -1", "from 0"},
	{"fault for no time", fault("drop: {}, for: " + here + "0s"), "for is 0", "such as 200ms"},
}
