package spec

// wrongTimelineFiles is as wrongFiles, for when a step starts, and how often.
var wrongTimelineFiles = []struct {
	name, text string
	what, want string
}{
	{"files of no size", head + "steps: [{capture: {at: [all], file: a.pcapng, rotate: " + here + "0B}}]\n",
		"rotate is 0B", "want 64KiB to 1024GiB"},
	{"files of a few bytes", head + "steps: [{capture: {at: [all], file: a.pcapng, rotate: " + here +
		"1KiB}}]\n", "rotate is 1KiB", "want 64KiB to 1024GiB"},
	{"files above the limit", head + "steps: [{capture: {at: [all], file: a.pcapng, rotate: " + here +
		"3GiB}}]\n", "ends at its limit of 2GiB", "a higher limit"},
	{"the file of a rotation before", head +
		"steps: [{capture: {at: [all], file: a.pcapng, rotate: 1MiB}}, " +
		"{capture: {at: [all], file: " + here + "a-3.pcapng}}]\n",
		`capture file "a-3.pcapng" is file 3 of steps[0].capture, which rotates`, "a file of its own"},
	{"the file of a rotation after", head + "steps: [{capture: {at: [all], file: " + here + "a-2.pcapng}}, " +
		"{capture: {at: [all], file: a.pcapng, rotate: 1MiB}}]\n",
		`capture file "a-2.pcapng" is file 2 of steps[1].capture, which rotates`, "a file of its own"},
	{"two starts", head + "steps: [{at: 1s, " + here + "when: tcp, sleep: 1s}]\n", "has at and when",
		"one of at, when and after"},
	{"DSCP of QUIC", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 1KiB, transport: quic, " +
		here + "dscp: 5}}]\n", "a DSCP of transport quic", "remove dscp:"},
	{"beside a stack that may still run", head +
		"steps: [{stack: {name: a, kind: iperf3, background: true}}, " +
		"{stack: {name: b, kind: iperf3, beside: " + here + "a}}]\n", "no earlier run of iperf3",
		"without background"},
	{"after itself", head + "steps: [{after: [" + here + "ar], workload: {name: ar, kind: barrier}}]\n",
		`no step above is named "ar"`, "an earlier step"},
	{"after no command", head + "steps: [{exec: {name: s, nodes: [h0], command: [a], background: true}}, " +
		"{after: [s, " + here + "t], sleep: 1s}]\n",
		`no step above is named "t"`, "an earlier step"},
	{"after a command without a name", head +
		"steps: [{exec: {nodes: [h0], command: [a], background: true}}, " +
		"{after: [" + here + `""], sleep: 1s}]` + "\n",
		`no step above is named ""`, "an earlier step"},
	{"wait for no command", head +
		"steps: [{exec: {name: s, nodes: [h0], command: [a], background: true}}, " +
		"{wait: [s, " + here + "t]}]\n",
		`no background step above is named "t"`, "or exec with background"},
	{"wait for a command in the foreground", head + "steps: [{exec: {name: s, nodes: [h0], command: [a]}}, " +
		"{wait: [" + here + "s]}]\n", `no background step above is named "s"`, "or exec with background"},
	{"wait for a command below", head + "steps: [{wait: [" + here +
		"s]}, {exec: {name: s, nodes: [h0], command: [a], background: true}}]\n",
		`no background step above is named "s"`, "or exec with background"},
	{"wait for a command without a name", head + "steps: [{exec: {nodes: [h0], command: [a], background: " +
		"true}}, {wait: [" + here + `""]}]` + "\n", `no background step above is named ""`, "exec with"},
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
