package spec

// training returns a file with the job of a model.
func training(model string) string {
	return head + "steps:\n  - training: {name: t, model: {hidden: 64, sequence: 32, tflops: 1, " + model +
		"}}\n"
}

// job returns a file with a training job of other settings.
func job(keys string) string {
	return head + "steps: [{training: {name: t, trace: a.cm, " + keys + "}}]\n"
}

// trainingBytes returns a file with a job and a collective, and a check of the bytes of one of
// them.
func trainingBytes(name, formula string) string {
	return training("layers: 4") +
		"  - workload: {name: ar, kind: all-reduce, size: 4KB}\n  - capture: {at: [all], file: a.pcapng}\n" +
		"checks: [{packets: {bytes-per-rank: {workload: " + name + ", formula: " + formula +
		", tolerance: 1%}}}]\n"
}

// messagesFile returns a file with messages. messagesBytes returns a check of their bytes.
func messagesFile(keys string) string {
	return head + "steps: [{messages: {name: m, " + keys + "}}, {capture: {at: [all], file: a.pcapng}}]\n"
}

func messagesBytes(formula string) string {
	return "checks: [{packets: {bytes-per-rank: {workload: m, formula: " + formula + ", tolerance: 1%}}}]\n"
}

// wrongJobFiles is as wrongFiles, for training jobs and messages.
var wrongJobFiles = []struct {
	name, text string
	what, want string
}{
	{"training without a job", head + "steps: [{" + here + "training: {name: t}}]\n",
		"steps[0].training does nothing", "want exactly one of model, trace"},
	{"stages that do not divide layers", training("layers: 6, pp: " + here + "4"),
		"pp 4 does not divide the layers, 6", "want a divisor"},
	{"tensor parallelism that does not divide heads", training("layers: 4, heads: 6, tp: " + here + "4"),
		"tp 4 does not divide the heads, 6", "want a divisor"},
	{"experts on ranks that there are not", training("layers: 4, dp: 2, experts: 8, ep: " + here + "4"),
		"ep 4 does not divide dp, 2", "want a divisor"},
	{"batch that does not divide", training("layers: 4, dp: 2, micro-batch: 4, global-batch: " + here + "12"),
		"a global batch of 12 with dp 2 and micro-batches of 4", "want a multiple of 8"},
	{"sequence parallelism alone", training("layers: 4, sp: " + here + "true"),
		"sequence parallelism without tensor parallelism", "want tp of at least 2"},
	{"ZeRO in a pipeline", training("layers: 4, pp: 2, zero: " + here + "3"),
		"zero 3 with a pipeline of 2 stages", "want zero of at most 1"},
	{"ZeRO stage that there is not", training("layers: 4, zero: " + here + "4"), "zero is 4", "want 0 to 3"},
	{"more experts than there are", training("layers: 4, experts: 4, top-k: " + here + "5"),
		"top-k is 5 and experts 4", "want at most 4"},
	{"model without a device", head + "steps:\n  - training: {name: t, " + here +
		"model: {layers: 4, hidden: 64, sequence: 32}}\n", `lacks the key "tflops"`, "add tflops"},
	{"ranks of another number", head + "steps:\n  - training: {name: t, " + here +
		"ranks: [0, 1, 2], model: {layers: 4, hidden: 64, sequence: 32, tflops: 1, dp: 2}}\n",
		"3 ranks for dp 2 * tp 1 * pp 1", "want 2"},
	{"rank twice", head + "steps:\n  - training: {name: t, ranks: [1, " + here +
		"1], model: {layers: 4, hidden: 64, sequence: 32, tflops: 1, dp: 2}}\n",
		"rank 1 is negative or named twice", "once"},
	{"placement of given ranks", head +
		"steps:\n  - training: {name: t, trace: a.cm, ranks: [0, 1], placement: " + here + "spread}\n",
		"placement and ranks are both set", "remove one"},
	{"world of a model", head + "steps:\n  - training: {name: t, world: " + here +
		"4, model: {layers: 4, hidden: 64, sequence: 32, tflops: 1}}\n", "world 4 with a model",
		"remove it"},
	{"wait for what is not in the background", training("layers: 4") + "  - wait: [" + here + "t]\n",
		`no background step above is named "t"`, "background: true"},
	{"bandwidth of a job", training("layers: 4") + "checks: [{workload: {name: t, " + here +
		"busbw: \">= 1 Mbit/s\"}}]\n", "busbw of t, which is a training job and not a collective",
		"judge iteration or exposed or utilisation"},
	{"settings of roce of a job over rd", job("transport: rd, " + here + "roce: {congestion: dcqcn}"),
		"the transport is rd", "want transport: roce"},
	{"keys of a job that encrypts nothing", job("transport: rd, rd: {" + here + "key-log: true}"),
		"without encryption", "want encrypt: true"},
	{"IP version of a job", job("ip: " + here + "5"), `ip "5" does not exist`, "want 4 or 6"},
	{"formula of a collective for a job", trainingBytes("t", here+"ring-all-reduce"),
		`formula "ring-all-reduce" of a training job`, "want training"},
	{"formula of a job for a collective", trainingBytes("ar", here+"training"),
		"formula training of ar, which is no training job", "want the formula of its algorithm"},
	{"messages of nothing", head + "steps: [{" + here + "messages: {name: m}}]\n",
		"steps[0].messages does nothing", "want exactly one of open, closed, cache, blocks"},
	{"messages of two kinds", messagesFile("open: {sizes: hadoop, load: 40%, count: 5}, " + here +
		"blocks: {servers: 1, count: 3}"), "open and blocks", "exactly one of"},
	{"attained of nothing asked", messagesFile("cache: {prefill: 1, requests: 2, per-second: 1, layers: 1, "+
		"layer-time: 1ms, layer-bytes: 1KiB}") + "checks: [{workload: {name: m, attained: " + here +
		"\">= 90%\"}}]\n", "attained of m, which has no slo", "add slo"},
	{"sizes that nobody published", messagesFile("open: {sizes: " + here + "websearch, load: 40%, count: 5}"),
		`sizes "websearch" does not exist`, `did you mean "web-search"?`},
	{"messages of sizes from two places",
		messagesFile("open: {sizes: hadoop, " + here + "file: a.txt, load: 40%, count: 5}"),
		"steps[0].messages.open has sizes and file", "exactly one of"},
	{"messages of no sizes", messagesFile(here + "open: {load: 40%, count: 5}"),
		"steps[0].messages.open does nothing", "want exactly one of sizes, file"},
	{"load of nothing", messagesFile("open: {sizes: hadoop, load: " + here + "0%, count: 5}"),
		"load is 0", "want a share such as 40%"},
	{"layers of nothing", messagesFile("cache: {prefill: 1, requests: 1, per-second: 1, layers: 1, " +
		"layer-time: 1ms, layer-bytes: " + here + "2GiB}"), "layer-bytes is 2GiB", "want 1B to 1GiB"},
	{"more reads than blocks", messagesFile("blocks: {servers: 1, count: 3, reads: " + here + "3/2}"),
		`ratio "3/2" cannot be read`, "want a share between"},
	{"closed loop of no sizes", messagesFile(here + "closed: {count: 5}"),
		"steps[0].messages.closed does nothing", "want exactly one of sizes, file"},
	{"closed loop of none", messagesFile("closed: {sizes: hadoop, count: 5, outstanding: " + here + "0}"),
		"outstanding is 0", "want 1 to 1024"},
	{"requests of nobody", messagesFile(here +
		"cache: {prefill: 1, requests: 1, layers: 1, layer-time: 1ms, layer-bytes: 1KB}"),
		"steps[0].messages.cache does nothing", "want exactly one of per-second, trace"},
	{"requests without a number", messagesFile(here +
		"cache: {prefill: 1, per-second: 1, layers: 1, layer-time: 1ms, layer-bytes: 1KB}"),
		"has neither requests nor trace", "add requests"},
	{"tokens of no trace", messagesFile(here +
		"cache: {prefill: 1, per-second: 1, requests: 1, tokens: 5, layers: 1, layer-time: 1ms, " +
		"layer-bytes: 1KB}"), "tokens or time-scale, and no trace", "remove them"},
	{"blocks of nothing", messagesFile("blocks: {servers: 1, count: 3, block: " + here + "0B}"),
		"block is 0B", "want 1B to 1GiB"},
	{"settings of rd of messages over tcp",
		messagesFile(here + "rd: {spray: pinned}, blocks: {servers: 1, count: 3}"), "the transport is tcp",
		"want transport: rd"},
	{"engines of messages", messagesFile("transport: rd, rd: {control: arbiter, engines: " + here +
		"2}, blocks: {servers: 1, count: 3}"), "control: arbiter with 2 engines", "want engines: 1"},
	{"timeout of messages", messagesFile("transport: roce, roce: {timeout: " + here +
		"9s}, blocks: {servers: 1, count: 3}"), "roce.timeout is 9s", "want 1ms to 2s"},
	{"messages that may get lost",
		messagesFile("transport: rd, rd: {" + here + "droppable: 2%}, blocks: {servers: 1, count: 3}"),
		"droppable bytes of blocks, which are stored whole", "take open, closed or cache"},
	{"IP version of messages", messagesFile("ip: " + here + "5, blocks: {servers: 1, count: 3}"),
		`ip "5" does not exist`, "want 4 or 6"},
	{"bandwidth of messages", messagesFile("blocks: {servers: 1, count: 3}") +
		"checks: [{workload: {name: m, " + here + "busbw: \">= 1 Mbit/s\"}}]\n",
		"busbw of m, which is a step of messages and not a collective", "judge p50 or p99"},
	{"formula of a collective for messages",
		messagesFile("blocks: {servers: 1, count: 3}") + messagesBytes(here+"all-to-all"),
		`formula "all-to-all" of a messages step`, "want messages"},
}
