package spec

// wrongTimelineFiles is as wrongFiles, for when a step starts, and how often.
var wrongTimelineFiles = []struct {
	name, text string
	what, want string
}{
	{"two starts", head + "steps: [{at: 1s, " + here + "when: tcp, sleep: 1s}]\n", "has at and when",
		"one of at, when and after"},
	{"DSCP of QUIC", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 1KiB, transport: quic, " +
		here + "dscp: 5}}]\n", "a DSCP of transport quic", "remove dscp:"},
	{"beside a stack that may still run", head +
		"steps: [{stack: {name: a, kind: iperf3, background: true}}, " +
		"{stack: {name: b, kind: iperf3, beside: " + here + "a}}]\n", "no earlier run of iperf3",
		"without background"},
	{"after itself", head + "steps: [{after: [" + here + "ar], workload: {name: ar, kind: barrier}}]\n",
		`no step above that ends is named "ar"`, "an earlier step"},
	{"after a server", head + "steps: [{exec: {name: s, nodes: [h0], command: [a], background: true}}, " +
		"{after: [" + here + "s], sleep: 1s}]\n", `no step above that ends is named "s"`, "an earlier step"},
	{"a workload again and again", head + "steps: [{" + here +
		"every: 1s, workload: {name: ar, kind: barrier}}]\n",
		"every of a workload", "link, fault"},
	{"a change for ever", head + "steps: [{" + here + "every: 1s, link: {where: h0--*, state: down}}]\n",
		"every is 1s, and for is 0s", "shorter than every"},
	{"a change that overlaps", head + "steps: [{" + here +
		"every: 1s, fault: {where: h0, drop: {}, for: 1s}}]\n",
		"every is 1s, and for is 1s", "shorter than every"},
	{"times alone", head + "steps: [{" + here + "times: 3, sleep: 1s}]\n", "times without every",
		"add every:"},
	{"until alone", head + "steps: [{" + here + "until: 3s, sleep: 1s}]\n", "until without every",
		"add every:"},
	{"two ends", head + "steps: [{every: 1s, times: 2, " + here + "until: 3s, " +
		"exec: {nodes: [h0], command: [a]}}]\n", "has times and until", "at most one"},
	{"every 0", head + "steps: [{every: " + here + "0s, exec: {nodes: [h0], command: [a]}}]\n", "every is",
		"such as"},
	{"a pause that fails", head + "steps: [{" + here + "fails: true, sleep: 1s}]\n", "fails of a sleep",
		"exec has expect:"},
	{"retry of a pause", head + "steps: [{" + here + "retry: {times: 3}, sleep: 1s}]\n", "retry of a sleep",
		"take it for exec"},
	{"no retries", head + "steps: [{retry: {times: " + here + "0}, exec: {nodes: [h0], command: [a]}}]\n",
		"times is 0", "want 1 to 1000"},
	{"retry without a number", head + "steps: [{" + here +
		"retry: {every: 1s}, exec: {nodes: [h0], command: [a]}}]\n",
		"lacks the key", "times"},
}
