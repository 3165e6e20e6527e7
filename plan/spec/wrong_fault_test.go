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
		"at most one of nth, every and share"},
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
		"a crash or hang with a match", "remove match:"},
	{"hang of a direction", head + "steps: [{fault: {where: " + here + "h0--leaf1 a-to-b, hang: true}}]\n",
		"is no node", "the name of a node"},
	{"truncation beyond every frame", fault("truncate: {to: " + here + "18446744073709551615B}"),
		"truncate.to is", "at most 65535B"},
	{"corruption beyond every frame", fault("corrupt: {at: " + here + "9223372036854775808B}"),
		"corrupt.at is", "at most 65535B"},
	{"fault for no time", fault("drop: {}, for: " + here + "0s"), "for is 0", "such as 200ms"},
}
