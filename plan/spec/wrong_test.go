package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The mark is at the position at which the problem must be reported. It is removed before the text
// is decoded.
const here = "§"

// fabric is the smallest valid fabric, on a line of its own. head makes a valid file of it.
const (
	fabric = "fabric: {topology: single-switch, params: {hosts: 4}}\n"
	head   = "name: a\n" + fabric
	docker = head + "nodes: {default: {runtime: docker, "
)

// sgdFile returns a file with a training by gradients.
func sgdFile(keys string) string {
	return head + "steps: [{workload: {name: s, kind: sgd, " + keys + "}}]\n"
}

// wrongFiles are files with exactly one problem each, with the position, the error and the correct
// form.
var wrongFiles = []struct {
	name, text string
	what, want string
}{
	// Keys.
	{"unknown key", head + here + "sed: 7\n", `unknown key "sed" in the file`, `did you mean "seed"?`},
	{"unknown key, nothing near", head + here + "frobnicate: 7\n", `unknown key "frobnicate"`,
		"want one of name, description, seed"},
	{"unknown key in an inlined struct",
		"name: a\nfabric:\n  topology: explicit\n  links:\n    default: {" + here + "dealy: 5us}\n",
		`unknown key "dealy" in fabric.links["default"]`, `did you mean "delay"?`},
	{"missing name", here + fabric, `the file lacks the key "name"`, "add name: text"},
	{"missing fabric", here + "name: a\n", `the file lacks the key "fabric"`,
		"a mapping with keys such as topology"},
	{"missing topology", "name: a\n" + here + "fabric: {params: {hosts: 4}}\n",
		`fabric lacks the key "topology"`, "add topology: one of explicit, single-switch"},
	{"missing size", head + "steps:\n  - " + here + "workload: {name: ar, kind: all-reduce}\n",
		`steps[0].workload lacks the key "size"`, "a size such as 40KB"},
	{"merge key", head + "nodes:\n  h0: &x {cpu: 1}\n  h1: {" + here + "<<: *x}\n",
		`merge key << in nodes["h1"]`, "merge keys are not read"},

	// Types.
	{"text for a mapping", "name: a\nfabric: " + here + "leaf-spine\n", `fabric is the text "leaf-spine"`,
		"write a mapping with keys such as topology"},
	{"text for a mapping that may be empty", head + "steps: [{capture: {at: [all], file: a.pcapng}}]\n" +
		"checks: [{packets: {lossless: " + here + "\"*\"}}]\n", `checks[0].packets.lossless is the text "*"`,
		"write a mapping with keys such as from, to, priority, or {} for all packets"},

	// Training jobs.

	// Training by gradients.
	{"size of a barrier", head + "steps: [{workload: {name: b, kind: barrier, " + here + "size: 4KB}}]\n",
		"size of barrier, which has no data", "remove it"},
	{"file of a barrier", head + "steps: [{workload: {name: b, kind: barrier, file: a.xml, algorithm: " +
		here + "msccl}}]\n", `barrier has no algorithm "msccl"`, "want dissemination"},
	{"moe of another kind", head + "steps: [{workload: {name: m, kind: all-to-all, size: 4KB, " + here +
		"moe: {experts: 4}}}]\n", "moe is a mixture of experts, and the kind is all-to-all",
		"want kind: moe"},
	{"moe without a mixture", head + "steps: [{workload: {name: m, kind: " + here + "moe}}]\n",
		"kind: moe without moe", "add moe: {experts: 16}"},
	{"size of a mixture", head + "steps: [{workload: {name: m, kind: moe, " + here +
		"size: 4KB, moe: {experts: 4}}}]\n", "size of moe", "remove it"},
	{"type of a mixture", head + "steps: [{workload: {name: m, kind: moe, " + here +
		"type: half, moe: {experts: 4}}}]\n", "a type of moe", "remove it"},
	{"tokens of half a block", head + "steps: [{workload: {name: m, kind: moe, moe: {experts: 4, hidden: " +
		here + "192}}}]\n", "hidden is 192", "want a multiple of 128"},
	{"more experts of a token than there are",
		head + "steps: [{workload: {name: m, kind: moe, moe: {experts: 4, top-k: " + here + "5}}}]\n",
		"top-k is 5 and experts 4", "want at most 4"},
	{"skew of a mixture", head + "steps: [{workload: {name: m, kind: moe, moe: {experts: 4, skew: " + here +
		"4.5}}}]\n", "skew is 4.5", "want at most 4"},
	{"transport of a switch that adds up",
		head + "steps: [{workload: {name: a, kind: all-reduce, algorithm: in-network, size: 4KB, " +
			"transport: " + here + "rd}}]\n", "transport: rd with algorithm: in-network", "remove it"},
	{"switch's transport of a ring",
		head + "steps: [{workload: {name: a, kind: all-reduce, size: 4KB, transport: " + here +
			"in-switch}}]\n", "transport: in-switch with algorithm: ring", "want algorithm: in-network"},
	{"switch of a ring", head + "steps: [{workload: {name: a, kind: all-reduce, size: 4KB, " + here +
		"switch: spine1}}]\n", "switch with algorithm: ring", "want algorithm: in-network, or remove it"},
	{"type of a switch", head + "steps: [{workload: {name: a, kind: all-reduce, algorithm: in-network, " +
		"size: 4KB, type: " + here + "double}}]\n", "type: double with algorithm: in-network, with which",
		"want one of float, bfloat16, half, int32"},
	{"product of a switch", head + "steps: [{workload: {name: a, kind: all-reduce, algorithm: in-network, " +
		"size: 4KB, op: " + here + "prod}}]\n", "op: prod with algorithm: in-network, with which no switch",
		"want one of sum, max, min, avg"},
	{"op of a sendrecv", head + "steps: [{workload: {name: a, kind: sendrecv, size: 4KB, " + here +
		"op: sum}}]\n", "an op of sendrecv", "remove it"},
	{"size of half a double", head + "steps: [{workload: {name: a, kind: sendrecv, type: double, size: " +
		here + "1004B}}]\n", "size is 1004B", "a multiple of 8B"},
	{"in-network all-gather", head + "steps: [{workload: {name: a, kind: all-gather, algorithm: " + here +
		"in-network, size: 4KB}}]\n", `all-gather has no algorithm "in-network"`, "want ring"},
	{"a choice for a barrier", head + "steps: [{workload: {name: a, kind: barrier, algorithm: " + here +
		"auto}}]\n", `barrier has no algorithm "auto"`, "want dissemination"},
	{"rates of a choice", head + "steps: [{workload: {name: a, kind: all-reduce, size: 4KB, algorithm: " +
		"auto, transport: rd, rd: {control: " + here + "offline}}}]\n",
		"control: offline with algorithm: auto", "want algorithm: ring"},
	{"channels of a barrier", head + "steps: [{workload: {name: a, kind: barrier, " + here +
		"channels: 2}}]\n", "barrier by dissemination has no channels", "remove it"},
	{"channels along rails", head +
		"steps: [{workload: {name: a, kind: all-gather, algorithm: hierarchical, size: 4KB, " + here +
		"channels: 2}}]\n", "all-gather by hierarchical has no channels",
		"remove it, or take algorithm: ring"},
	{"channels of a switch that adds up",
		head + "steps: [{workload: {name: a, kind: all-reduce, algorithm: in-network, size: 4KB, " + here +
			"channels: 2}}]\n", "all-reduce by in-network has no channels",
		"remove it, or take algorithm: ring or tree"},
	{"channels of phases with rates",
		head + "steps: [{workload: {name: a, kind: moe, algorithm: pairwise, moe: {experts: 16}, " +
			"transport: rd, rd: {control: offline}, " + here + "channels: 2}}]\n",
		"channels with computed rates", "remove channels"},
	{"channels of an arbiter", head +
		"steps: [{workload: {name: a, kind: all-reduce, size: 4KB, transport: rd, rd: {control: arbiter}, " +
		here + "channels: 2}}]\n", "channels with computed rates", "remove channels"},
	{"size of a network", sgdFile(here + "size: 4KB"), "size of sgd", "remove it"},
	{"warm-up of a network", sgdFile(here + "warmup: 1"), "a warm-up of sgd", "remove it"},
	{"type of a network", sgdFile(here + "type: half"), "a type of sgd", "remove it"},
	{"op of a network", sgdFile(here + "op: max"), "an op of sgd", "remove it"},
	{"layer of none", sgdFile("sgd: {hidden: [64, " + here + "0]}"), "layer width 0", "want 1 to 4096"},
	{"too many layers", sgdFile("sgd: {" + here + "hidden: [1, 1, 1, 1, 1, 1, 1, 1, 1]}"), "9 layers",
		"want at most 8"},
	{"momentum that grows", sgdFile("sgd: {momentum: " + here + "100%}"), "momentum is 100%",
		"want less than 100%"},
	{"share of whole gradients", sgdFile("sgd: {" + here + "keep: 1%}"), "keep of exchange: whole",
		"take exchange: top-k"},
	{"bits of top-k", sgdFile("sgd: {exchange: top-k, " + here + "bits: 4}"), "bits of exchange: top-k",
		"take exchange: quantised"},
	{"odd bits", sgdFile("sgd: {exchange: quantised, bits: " + here + "3}"), `bits "3" does not exist`,
		"want 2 or 4 or 8"},
	{"exchange", sgdFile("sgd: {exchange: " + here + "encrypt}"), `exchange "encrypt" does not exist`,
		`did you mean "encrypted"?`},
	{"losses of what is encrypted",
		sgdFile("transport: rd, rd: {" + here + "droppable: 2%}, sgd: {exchange: encrypted}"),
		"droppable partial sums of exchange: encrypted", "take exchange: whole"},
	{"algorithm of another collective", sgdFile("algorithm: " + here + "direct"),
		`all-reduce has no algorithm "direct"`, "want ring"},
	{"network of a collective", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, " + here +
		"sgd: {batch: 3}}}]\n", "the kind is all-reduce", "want kind: sgd"},
	{"loss of a collective", head +
		"steps: [{workload: {name: ar, kind: all-reduce, size: 4B}}]\nchecks: [{workload: {name: ar, " +
		here + "loss: \"<= 1\"}}]\n", "loss of ar, which is a collective and not kind: sgd", "judge busbw"},
	{"no loss", head + "steps: [{workload: {name: s, kind: sgd}}]\nchecks: [{workload: {name: s, loss: " +
		here + "small}}]\n", `loss "small" is no comparison`, "and a number"},
	{"beside nothing", head + "steps: [{workload: {name: s, kind: sgd}}, {workload: {name: u, kind: " +
		"sgd}}]\nchecks: [{workload: {name: s, " + here + "beside: {workload: u}}}]\n",
		"beside compares nothing", "add busbw"},

	// Messages.
	{"iteration of a collective", head +
		"steps: [{workload: {name: ar, kind: all-reduce, size: 4B}}]\nchecks: [{workload: {name: ar, " +
		here + "iteration: \"<= 1ms\"}}]\n", "iteration of ar, which is a collective and not a training job",
		"judge busbw"},
	{"times of a collective", head +
		"steps: [{workload: {name: ar, kind: all-reduce, size: 4B}}]\nchecks: [{workload: {name: ar, " +
		here + "p99: \"<= 1ms\"}}]\n", "p99 of ar, which is a collective and not a step of messages",
		"judge busbw"},
	{"formula of messages for a collective",
		head + "steps: [{workload: {name: m, kind: all-reduce, size: 4B}}, {capture: {at: [all], file: " +
			"a.pcapng}}]\n" + messagesBytes(here+"messages"),
		"formula messages of m, which is no messages step", "ring-all-reduce"},

	// Units.
	{"rate without a unit", "name: a\nfabric: {topology: explicit, links: {default: {rate: " + here +
		"1000}}}\n", `rate "1000" cannot be read`, "kbit, mbit, gbit"},
	{"rate in the wrong spelling",
		"name: a\nfabric: {topology: explicit, links: {default: {rate: " + here + "10Gbps}}}\n",
		`rate "10Gbps" cannot be read`, "as in 1gbit"},
	{"negative rate", "name: a\nfabric: {topology: explicit, links: {default: {rate: " + here + "-1gbit}}}\n",
		`rate "-1gbit" cannot be read`, "as in 1gbit"},
	{"size without a unit", head + "steps: [{workload: {name: ar, kind: all-reduce, size: " + here +
		"1048576}}]\n", `size "1048576" cannot be read`, "want a number with B, KB, MB"},
	{"duration without a unit", head + "steps: [{sleep: " + here + "5}]\n", `duration "5" cannot be read`,
		"as in 10us"},
	{"negative duration", head + "steps: [{at: " + here + "-1s, sleep: 1s}]\n",
		`duration "-1s" cannot be read`, "as in 10us"},
	{"share above 100%", "name: a\nfabric: {topology: explicit, links: {default: {loss: " + here +
		"101%}}}\n", `ratio "101%" cannot be read`, "between 0% and 100%"},
	{"negative share", "name: a\nfabric: {topology: explicit, links: {default: {loss: " + here + "-0.1%}}}\n",
		`ratio "-0.1%" cannot be read`, "between 0% and 100%"},

	// Ranges and words.
	{"seed 0", head + "seed: " + here + "0\n", "seed is 0", "want at least 1"},
	{"dilation", head + "dilation: " + here + "1001\n", "dilation is 1001", "want 1 to 1000"},
	{"undilated", head + "dilation: 2\naccept-undilated: [" + here + "rxe]\n",
		`unknown part "rxe" in accept-undilated`, "want tcp or quic or programs"},
	{"undilated twice", head + "dilation: 2\naccept-undilated: [tcp, " + here + "tcp]\n",
		`"tcp" is accepted twice`, "remove one"},
	{"undilated for nothing", head + "accept-undilated: [" + here + "tcp]\n",
		"accept-undilated without dilation", "remove it, or set a dilation above 1"},
	{"topology", "name: a\nfabric: {topology: " + here + "leafspine, params: {}}\n",
		`topology "leafspine" does not exist`, `did you mean "leaf-spine"?`},
	{"topology, nothing near", "name: a\nfabric: {topology: " + here + "jellyfish}\n",
		`topology "jellyfish" does not exist`, "want one of explicit, single-switch, leaf-spine"},
	{"switch kind", "name: a\nfabric: {topology: explicit, switch: {kind: " + here + "solid}}\n",
		`switch.kind "solid" does not exist`, "want soft or router or bridge"},
	{"runtime", head + "nodes: {default: {runtime: " + here + "dokcer}}\n", `runtime "dokcer" does not exist`,
		`did you mean "docker"?`},
	{"two contents of a container", docker + "image: a, rootfs: " + here + "b.tar}}\n",
		`rootfs and image are both set`, "want only one of image, build and rootfs"},
	{"image", docker + "image: " + here + "UPPER}}\n", `image "UPPER"`, "want a name such as debian:12"},
	{"pull", docker + "image: a, pull: " + here + "sometimes}}\n", `pull "sometimes" does not exist`,
		"want missing or never or always"},
	{"network of builds", docker + "build: a, build-network: " + here + "bridge}}\n",
		`build-network "bridge" does not exist`, "want none or default or host"},
	{"restart", docker + "image: a, restart: " + here + "sometimes}}\n", `restart "sometimes" does not exist`,
		"want no or on-failure or always"},
	{"idle with a command", docker + "image: a, idle: " + here + "true, command: [a]}}\n",
		`idle with entrypoint or command`, "remove idle"},
	{"no entry point", docker + "image: a, " + here + "entrypoint: []}}\n", `entrypoint names no program`,
		"or idle: true"},
	{"bind", docker + "image: a, binds: [" + here + "data]}}\n", `bind "data"`, `want "HOST:/CONTAINER"`},
	{"bind that is odd", docker + `image: a, binds: [` + here + `"a:/b:rx"]}}` + "\n", `bind "a:/b:rx"`,
		`"HOST:/CONTAINER:ro"`},
	{"capability", docker + "image: a, capabilities: [" + here + "NETADMIN]}}\n", `capability "NETADMIN"`,
		"such as NET_ADMIN"},
	{"device", docker + "image: a, devices: [" + here + "fuse]}}\n", `device "fuse"`, `want "/dev/NAME"`},
	{"ulimit", docker + "image: a, ulimits: {" + here + "nofiles: 1}}}\n", `ulimit "nofiles"`,
		`did you mean "nofile"?`},
	{"value of a ulimit", docker + "image: a, ulimits: {nofile: " + here + "many}}}\n",
		`ulimit nofile is "many"`, "want a number such as 1024"},
	{"limits the wrong way round", docker + "image: a, ulimits: {nofile: " + here + "\"10:9\"}}}\n",
		`ulimit nofile is 10:9`, "want 9:10"},
	{"health without a command", docker + "image: a, " + here + "health: {interval: 1s}}}\n",
		`lacks the key "command"`, "add command: a list"},
	{"health of nothing", docker + "image: a, health: {" + here + "command: []}}}\n",
		`health.command is empty`, "write"},
	{"size and sizes", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, " + here +
		"sizes: {from: 4B, to: 8B}}}]\n", `size and sizes`, "remove one of them"},
	{"sizes downwards", head + "steps: [{workload: {name: ar, kind: all-reduce, sizes: {from: 8B, to: " +
		here + "4B}}}]\n", `sizes.to is 4B and sizes.from 8B`, "want at least 8B"},
	{"sizes without an end", head + "steps: [{workload: {name: ar, kind: all-reduce, " + here +
		"sizes: {from: 8B}}}]\n", `lacks the key "to"`, "a size such as 40KB"},
	{"sizes of less than an element",
		head + "steps: [{workload: {name: ar, kind: all-reduce, sizes: {from: " + here + "2B, to: 8B}}}]\n",
		`sizes.from is 2B`, "want 4B to 64GiB"},
	{"sizes that stay", head + "steps: [{workload: {name: ar, kind: all-reduce, sizes: {from: 4B, to: 8B, " +
		"factor: " + here + "1}}}]\n", `factor is 1`, "want 2 to 1024"},
	{"droppable sums of sizes", head + "steps: [{workload: {name: ar, kind: all-reduce, " + here +
		"sizes: {from: 4B, to: 8B}, transport: rd, rd: {droppable: 2%}}}]\n", `sizes with droppable`,
		"want one size"},
	{"collective", head + "steps: [{workload: {name: ar, kind: " + here + "allgather, size: 4B}}]\n",
		`kind "allgather" does not exist`, `did you mean "all-gather"?`},
	{"algorithm", head + "steps: [{workload: {name: ar, kind: all-reduce, algorithm: " + here +
		"star, size: 4B}}]\n", `algorithm "star" does not exist`,
		"want one of ring, auto, tree, halving-doubling, recursive-doubling"},
	{"algorithm of another kind", head + "steps: [{workload: {name: ar, kind: all-to-all, algorithm: " +
		here + "ring, size: 4B}}]\n", `all-to-all has no algorithm "ring"`,
		"want direct or pairwise or msccl"},
	{"algorithm of all-reduce", head + "steps: [{workload: {name: ar, kind: all-gather, algorithm: " + here +
		"tree, size: 4B}}]\n", `all-gather has no algorithm "tree"`,
		"want ring or hypercube or auto or hierarchical or msccl"},
	{"hierarchical broadcast", head + "steps: [{workload: {name: ar, kind: broadcast, algorithm: " + here +
		"hierarchical, size: 4B}}]\n", `broadcast has no algorithm "hierarchical"`,
		"want ring or binomial or auto or msccl"},
	{"MSCCL without a file", head + "steps: [{workload: {name: ar, kind: all-reduce, algorithm: " + here +
		"msccl, size: 4B}}]\n", `algorithm: msccl without a file`, "want file: NAME.xml"},
	{"file of a ring", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, " + here +
		"file: a.xml}}]\n", `file with algorithm: ring`, "want algorithm: msccl"},
	{"rates of a file", head + "steps: [{workload: {name: ar, kind: all-to-all, algorithm: msccl, file: " +
		"a.xml, size: 4B, transport: rd, rd: {control: " + here + "offline}}}]\n",
		`control: offline with algorithm: msccl`, "want algorithm: ring"},
	{"skew of a file", head + "steps: [{workload: {name: ar, kind: all-to-all, algorithm: msccl, file: " +
		"a.xml, size: 4B, " + here + "skew: 1}}]\n", `all-to-all by msccl has no skew`,
		"algorithm: direct or pairwise"},
	{"droppable sums in trees", head +
		"steps: [{workload: {name: ar, kind: all-reduce, algorithm: tree, size: 4B, transport: rd, rd: {" +
		here + "droppable: 2%}}}]\n", `all-reduce by tree, which can drop none`, "algorithm: ring"},
	{"rates of a binomial tree", head +
		"steps: [{workload: {name: ar, kind: reduce, algorithm: binomial, size: 4B, transport: rd, rd: " +
		"{control: " + here + "offline}}}]\n", `control: offline with algorithm: binomial`,
		"want algorithm: ring"},
	{"skewed sums", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, " + here +
		"skew: 1}}]\n", `all-reduce by ring has no skew`, "take kind: all-to-all"},
	{"skew", head + "steps: [{workload: {name: ar, kind: all-to-all, size: 4B, skew: " + here + "5}}]\n",
		`skew is 5`, "want 0 to 4"},
	{"sums of nothing", head + "steps: [{workload: {name: ar, kind: all-to-all, size: 4B, transport: rd, " +
		"rd: {" + here + "droppable: 2%}}}]\n", `which can drop none`, "remove it"},
	{"transport", head + "steps: [{workload: {name: ar, kind: all-reduce, transport: " + here +
		"homa, size: 4B}}]\n", `transport "homa" does not exist`,
		"want one of tcp, rd, roce, quic, in-switch"},
	{"settings of rd over tcp", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, " + here +
		"rd: {engines: 2}}}]\n", `and the transport is tcp`, "want transport: rd, or remove it"},
	{"settings of roce over rd", head +
		"steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: rd, " + here +
		"roce: {repeat: selective}}}]\n", `and the transport is rd`, "want transport: roce, or remove it"},
	{"a way to repeat", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: roce, " +
		"roce: {repeat: " + here + "twice}}}]\n", `repeat "twice" does not exist`,
		"want go-back-n or selective"},
	{"a timeout of queue pairs that is too short",
		head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: roce, roce: {timeout: " +
			here + "100us}}}]\n", "steps[0].workload.roce.timeout is 100us", "want 1ms to 2s"},
	{"one that is too long", head +
		"steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: roce, roce: {timeout: " + here +
		"3s}}}]\n", "steps[0].workload.roce.timeout is 3s", "want 1ms to 2s"},
	{"a congestion control", head +
		"steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: roce, roce: {congestion: " +
		here + "hope}}}]\n", `congestion "hope" does not exist`, "want none or dcqcn"},
	{"rates that nobody keeps to",
		head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: rd, rd: " +
			"{control: nscc, " + here + "rates: r.json}}}]\n", `rates without control: offline`,
		"add it, or remove rates"},
	{"an arbiter of engines", head +
		"steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: rd, rd: {control: arbiter, " +
		"engines: " + here + "2}}}]\n", `control: arbiter with 2 engines`, "want engines: 1"},
	{"control", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: rd, rd: " +
		"{control: " + here + "hope}}}]\n", `control "hope" does not exist`,
		"want one of line, nscc, offline, arbiter, learned"},
	{"keys of nothing", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: rd, " +
		"rd: {" + here + "key-log: true}}}]\n", `without encryption`, "want encrypt: true"},
	{"readable headers of nothing",
		head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: rd, rd: {" + here +
			"readable-headers: true}}}]\n", `without encryption`, "want encrypt: true"},
	{"engines of rd", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: rd, rd: " +
		"{paths: 1, engines: " + here + "17}}}]\n", `engines is 17`, "want 1 to 16"},
	{"paths of rd", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: rd, rd: " +
		"{engines: 16, paths: " + here + "9}}}]\n", `all engines together have 144 paths`,
		"want at most 128"},
	{"spray of rd", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: rd, rd: " +
		"{spray: " + here + "random}}}]\n", `spray "random" does not exist`,
		"want one of oblivious, bitmap, reps"},
	{"weights without their spray",
		head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: rd, rd: {" + here +
			"weights: [1, 1]}}}]\n", `only one of weights`, "want both or neither"},
	{"too few weights", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: rd, " +
		"rd: {paths: 4, spray: weighted, " + here + "weights: [1, 1]}}}]\n", `2 weights of 4 paths`,
		"want one weight for each path"},
	{"weights of nothing", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: " +
		"rd, rd: {paths: 2, spray: weighted, " + here + "weights: [0, 0]}}}]\n", `all weights are 0`,
		"want at least one weight above 0"},
	{"too large a weight", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, transport: " +
		"rd, rd: {paths: 2, spray: weighted, weights: [1, " + here + "65537]}}}]\n", `weight is 65537`,
		"want 0 to 65536"},
	{"IP version", head + "steps: [{workload: {name: ar, kind: all-reduce, ip: " + here + "5, size: 4B}}]\n",
		`ip "5" does not exist`, "want 4 or 6"},
	{"no cause at a place", head + "steps: [{capture: {at: [all], file: a.pcapng}}]\nchecks: [{why: " +
		"{cause: " +
		here + "none, at: h0}}]\n",
		"no cause has no place and no order", "remove at and among"},
	{"causes without a capture", head + "checks: [{" + here + "why: {cause: none}}]\n",
		"a check of causes in a file without a capture", "add the step"},
	{"causes of an unknown workload", head + "steps: [{capture: {at: [all], file: a.pcapng}}]\nchecks: " +
		"[{why: " +
		"{cause: none, workload: " + here + "ar}}]\n",
		`workload "ar" does not exist`, "add a workload"},
	{"fidelity", head + "checks: [{fidelity: " + here + "overloaded}]\n",
		`fidelity "overloaded" does not exist`, "want faithful or degraded"},
	{"link state", head + "steps: [{link: {where: a--b, state: " + here + "off}}]\n",
		`state "off" does not exist`, "want up or down"},
	{"formula", head + "steps:\n  - capture: {at: [all], file: a.pcapng}\n  - workload: {name: ar, kind: " +
		"all-reduce, size: 4B}\n" +
		"checks: [{packets: {bytes-per-rank: {formula: " + here + "tree, tolerance: 1%}}}]\n",
		`formula "tree" does not exist`, "want one of ring-all-reduce, tree-all-reduce"},
	{"bytes of no workload", head + "steps:\n  - capture: {at: [all], file: a.pcapng}\n  - workload: " +
		"{name: ar, kind: all-reduce, size: 4B}\n" +
		"checks: [{packets: {bytes-per-rank: " + here + "ra}}]\n", `workload "ra" does not exist`, "ar"},
	{"bytes of a list", head + "steps:\n  - capture: {at: [all], file: a.pcapng}\n  - workload: " +
		"{name: ar, kind: all-reduce, size: 4B}\n" +
		"checks: [{packets: {bytes-per-rank: " + here + "[ar]}}]\n",
		"bytes-per-rank is a list", "write a name, or a mapping with keys such as workload"},
	{"formula of another kind", head +
		"steps:\n  - capture: {at: [all], file: a.pcapng}\n  - workload: {name: ar, kind: all-to-all, " +
		"size: 4B}\n" +
		"checks: [{packets: {bytes-per-rank: {formula: " + here + "ring-all-reduce, tolerance: 1%}}}]\n",
		`of a workload that is all-to-all`, "want all-to-all"},
	{"formula of another algorithm",
		head + "steps:\n  - capture: {at: [all], file: a.pcapng}\n  - workload: {name: ar, kind: " +
			"all-reduce, algorithm: halving-doubling, size: 4B}\n" +
			"checks: [{packets: {bytes-per-rank: {formula: " + here + "ring-all-reduce, tolerance: 1%}}}]\n",
		`of a workload that is all-reduce by halving-doubling`, "want halving-doubling-all-reduce"},
	{"formula of another kind than broadcast",
		head + "steps:\n  - capture: {at: [all], file: a.pcapng}\n  - workload: {name: ar, kind: " +
			"broadcast, size: 4B}\n" +
			"checks: [{packets: {bytes-per-rank: {formula: " + here + "ring-all-gather, tolerance: 1%}}}]\n",
		`of a workload that is broadcast by ring`, "want ring-broadcast"},
	{"formula of a file", head + "steps:\n  - capture: {at: [all], file: a.pcapng}\n  - workload: {name: " +
		"ar, kind: all-to-all, algorithm: msccl, file: a.xml, size: 4B}\n" +
		"checks: [{packets: {bytes-per-rank: {formula: " + here + "all-to-all, tolerance: 1%}}}]\n",
		`of a workload that is all-to-all by msccl`, "want msccl"},
	{"MTU", "name: a\nfabric: {topology: explicit, links: {default: {mtu: " + here + "100}}}\n", "mtu is 100",
		"want 1280 to 65535"},
	{"no NICs", head + "nodes: {h0: {nics: " + here + "0}}\n", "nics is 0", "want 1 to 64"},
	{"rate of nothing", "name: a\nfabric: {topology: explicit, links: {default: {rate: " + here +
		"0gbit}}}\n", "rate is 0bit", "want 1kbit to 1600gbit"},
	{"rate beyond ports", "name: a\nfabric: {topology: explicit, links: {default: {b-to-a: {rate: " + here +
		"100tbit}}}}\n", `b-to-a.rate is 100tbit`, "want 1kbit to 1600gbit"},
	{"delay", "name: a\nfabric: {topology: explicit, links: {default: {delay: " + here + "2h}}}\n",
		"delay is 2h0m0s", "at most 1m0s"},
	{"buffer of nothing", "name: a\nfabric: {topology: explicit, switch: {buffer: " + here + "0B}}\n",
		"buffer is 0B", "such as 256KiB"},
	{"memory", head + "nodes: {h0: {memory: " + here + "4KB}}\n", "memory is 4KB", "want at least 4MiB"},
	{"size of half a float", head + "steps: [{workload: {name: ar, kind: all-reduce, size: " + here +
		"1001B}}]\n", "size is 1001B", "a multiple of 4B"},
	{"size of half a half", head + "steps: [{workload: {name: ar, kind: all-reduce, type: half, size: " +
		here + "1001B}}]\n", "size is 1001B", "a multiple of 2B"},
	{"type", head + "steps: [{workload: {name: ar, kind: all-reduce, type: " + here + "quad, size: 4B}}]\n",
		`type "quad" does not exist`, "want one of int8, uint8, int32, uint32, int64, uint64, half, float, double, " +
			"bfloat16, fp8_e4m3, fp8_e5m2"},
	{"op", head + "steps: [{workload: {name: ar, kind: all-reduce, op: " + here + "xor, size: 4B}}]\n",
		`op "xor" does not exist`, "want one of sum, prod, max, min, avg"},
	{"op of a broadcast", head + "steps: [{workload: {name: ar, kind: broadcast, size: 4B, " + here +
		"op: sum}}]\n", "an op of broadcast", "remove it"},
	{"root of an all-reduce", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, " + here +
		"root: 1}}]\n", "a root of all-reduce", "take kind: broadcast or reduce"},
	{"droppable maximum", head + "steps: [{workload: {name: ar, kind: all-reduce, op: max, size: 4B, " +
		"transport: rd, rd: {" + here + "droppable: 2%}}}]\n", "that are not sums of float",
		"op: sum"},
	{"no iterations", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B, iterations: " + here +
		"0}}]\n", "iterations is 0", "want 1 to 1000000"},
	{"exit code", head + "steps: [{exec: {nodes: [h0], command: [ls], expect: " + here + "256}}]\n",
		"expect is 256", "want 0 to 255"},
	{"sleep of nothing", head + "steps: [{sleep: " + here + "0s}]\n", "sleep is 0", "such as 100ms"},

	// Names and paths.
	{"name in capitals", "name: " + here + "Lab\n" + fabric, `name "Lab"`,
		"want 1 to 24 characters of a-z, 0-9 and -"},
	{"name of 25", "name: " + here + strings.Repeat("a", 25) + "\n" + fabric,
		`name "aaaaaaaaaaaaaaaaaaaaaaaaa"`, "want 1 to 24"},
	{"path as a name", "name: " + here + "../../etc\n" + fabric, `name "../../etc"`,
		"want 1 to 24 characters of a-z"},
	{"option as a name", "name: " + here + "-rf\n" + fabric, `name "-rf"`, "the first not -"},
	{"empty name", "name: " + here + "\"\"\n" + fabric, "name is empty", "write text"},
	{"host name", "name: a\nfabric: {topology: explicit, hosts: [h0, " + here + "h_1]}\n", `host name "h_1"`,
		"want at most 24 characters of a-z, 0-9 and -, the first a letter"},
	{"path as a host", "name: a\nfabric: {topology: explicit, hosts: [" + here + "../h0]}\n",
		`host name "../h0"`, "want at most 24"},
	{"4097 hosts", "name: a\nfabric:\n  topology: explicit\n  " + here + "hosts: [" +
		strings.TrimSuffix(numbered("h%d, ", 4097), ", ") + "]\n", "4097 hosts", "want at most 4096"},
	{"4097 overrides", head + here + "nodes:\n" + numbered("  h%d: {}\n", 4097), "4097 entries in nodes",
		"want at most 4096"},
	{"duplicate host", "name: a\nfabric: {topology: explicit, hosts: [h0, h1, " + here + "h0]}\n",
		`host "h0" is named twice`, "a name of its own"},
	{"host and switch", "name: a\nfabric: {topology: explicit, hosts: [" + here +
		"s1], switches: {s1: {}}}\n", `"s1" is a host and a switch`, "a name of its own"},
	{"node name", head + "nodes: {" + here + "0h: {}}\n", `node "0h"`, "the first a letter"},
	{"node pattern", head + "nodes: {" + here + "\"h[0-\": {}}\n", `pattern "h[0-"`, `as in "h[0-3]"`},
	{"link name", "name: a\nfabric: {topology: explicit, links: {" + here + "leaf1-spine2: {}}}\n",
		`link "leaf1-spine2"`, `want a link such as "leaf1--spine2"`},
	{"capture file in a folder", head + "steps: [{capture: {at: [all], file: " + here + "../run.pcapng}}]\n",
		`capture file "../run.pcapng"`, "without folders that ends in .pcapng"},
	{"capture file elsewhere", head + "steps: [{capture: {at: [all], file: " + here + "/etc/run.pcapng}}]\n",
		`capture file "/etc/run.pcapng"`, "without folders"},
	{"capture file of another kind", head + "steps: [{capture: {at: [all], file: " + here + "run.pcap}}]\n",
		`capture file "run.pcap"`, "ends in .pcapng"},
	{"capture after nothing",
		head + "steps: [{capture: {at: [all], file: a.pcapng, after: " + here + "1s}}]\n",
		"after without stop", "add stop, or remove after"},
	{"capture of no time",
		head + "steps: [{capture: {at: [all], file: a.pcapng, last: " + here + "0s}}]\n",
		"last is 0", "want a duration such as 5s"},
	{"capture file twice", head + "steps:\n  - capture: {at: [all], file: a.pcapng}\n  - capture: {at: " +
		"[h0], file: " + here + "a.pcapng}\n", `capture file "a.pcapng" is written by steps[0].capture`,
		"a file of its own"},
	{"tap", head + "steps: [{capture: {at: [all, " + here + "H0], file: a.pcapng}}]\n", `tap "H0"`,
		`"all", "nics", "switches"`},
	{"tap port", head + "steps: [{capture: {at: [\"h0:eth0\", " + here + "\"h0:a/b\"], file: a.pcapng}}]\n",
		`port "a/b"`, "at most 15"},
	{"variable", head + "nodes: {h0: {env: {" + here + "A=B: 1}}}\n", `environment variable "A=B"`,
		"letters, digits and _"},
	{"sysctl of the host", head + "nodes: {h0: {sysctls: {" + here + "kernel.panic: 1}}}\n",
		`sysctl "kernel.panic"`, "such as net.ipv4.tcp_ecn"},
	{"sysctl path", head + "nodes: {h0: {sysctls: {" + here + "net/../kernel.panic: 1}}}\n",
		`sysctl "net/../kernel.panic"`, "the node's own network"},
	{"feature", head + "requires: [netem, " + here + "\"a b\"]\n", `feature "a b"`, "railbed doctor"},

	// Addresses.
	{"no prefix", head + "addressing: {links4: " + here + "10.0.0.1}\n",
		`addressing.links4 is "10.0.0.1"`, "want an IPv4 prefix such as 10.128.0.0/10"},
	{"wrong family", head + "addressing: {links6: " + here + "10.0.0.0/8}\n",
		`addressing.links6 is "10.0.0.0/8"`, "want an IPv6 prefix"},
	{"host bits", head + "addressing: {links4: " + here + "192.168.1.1/16}\n",
		"has host bits set", "want 192.168.0.0/16"},
	{"overlapping pools", head + "addressing: {loopbacks4: 10.0.0.0/9, links4: " + here + "10.64.0.0/10}\n",
		"links4 10.64.0.0/10 overlaps addressing.loopbacks4 10.0.0.0/9", "addresses of its own"},
	{"overlap with a default", head + "addressing: {loopbacks4: " + here + "10.128.0.0/16}\n",
		"loopbacks4 10.128.0.0/16 overlaps addressing.links4 10.128.0.0/10", "addresses of its own"},
	{"loopback of the host", head + "addressing: {links4: " + here + "127.0.0.0/8}\n",
		"addresses that hosts cannot have", "such as 10.128.0.0/10"},
	{"all addresses", head + "addressing: {links6: " + here + "\"::/0\"}\n",
		"addresses that hosts cannot have", "such as fd00:a2::/64"},

	// Structure.
	{"hosts of a generator", "name: a\nfabric: {topology: single-switch, " + here + "hosts: [h0]}\n",
		"topology single-switch makes its own hosts", "topology: explicit"},
	{"links of a generator", "name: a\nfabric: {topology: single-switch, " + here +
		"connect: [\"a -- b\"]}\n", "topology single-switch makes its own links", "topology: explicit"},
	{"hosts of dragonfly", "name: a\nfabric: {topology: dragonfly, " + here + "hosts: [h0]}\n",
		"topology dragonfly makes its own hosts", "topology: explicit"},
	{"parameters of explicit", "name: a\nfabric: {topology: explicit, " + here + "params: {k: 4}}\n",
		"topology explicit has no parameters", "remove params"},
	{"empty step", head + "steps: [" + here + "{}]\n", "steps[0] does nothing",
		"want exactly one of capture, workload"},
	{"stack of no kind", head + "steps:\n  - " + here + "stack: {name: a}\n",
		`steps[0].stack lacks the key "kind"`, "one of openmpi"},
	{"stack of an unknown kind", head + "steps:\n  - stack: {name: a, kind: " + here + "lam}\n",
		`steps[0].stack.kind "lam" does not exist`, "openmpi"},
	{"test that a stack lacks", head + "steps:\n  - stack: {name: a, kind: mpich, test: " + here + "bcast}\n",
		`mpich has no test "bcast"`, "want all-reduce or all-to-all"},
	{"test where there is one", head + "steps:\n  - stack: {name: a, kind: redis, test: " + here + "get}\n",
		`redis has no test "get"`, "remove it"},
	{"command of a stack without",
		head + "steps:\n  - stack: {name: a, kind: redis, " + here + "command: [ls]}\n",
		"redis takes no command", "exec"},
	{"command and test", head + "steps:\n  - stack: {name: a, kind: mpich, command: [ls], " + here +
		"test: all-reduce}\n", "test and command", "remove one"},
	{"sends of a test", head + "steps:\n  - stack: {name: a, kind: mpich, " + here + "sends: 1KiB}\n",
		"sends without command", "remove it"},
	{"iterations of a stack without",
		head + "steps:\n  - stack: {name: a, kind: iperf3, " + here + "iterations: 3}\n",
		"iperf3 takes no iterations", "remove it"},
	{"stack beside a later one", head + "steps:\n  - stack: {name: a, kind: redis, beside: " + here +
		"b}\n  - stack: {name: b, kind: redis}\n", `no earlier run of redis is named "b"`, "earlier"},
	{"stack beside another kind", head +
		"steps:\n  - stack: {name: b, kind: iperf3}\n  - stack: {name: a, kind: redis, beside: " + here +
		"b}\n", `no earlier run of redis`, "of this kind"},
	{"crossed of no stack", head +
		"steps:\n  - capture: {at: [all], file: a.pcapng}\n  - stack: {name: mpi, kind: mpich}\nchecks:\n  " +
		"- packets: {crossed: " + here + "mpj}\n", `stack "mpj" does not exist`, `did you mean "mpi"?`},
	{"two in one step", head + "steps:\n  - sleep: 1s\n    " + here + "exec: {nodes: [h0], command: [ls]}\n",
		"steps[0] has sleep and exec", "want exactly one"},
	{"two in one check", head + "checks:\n  - fidelity: faithful\n    " + here + "fidelty: faithful\n",
		`unknown key "fidelty"`, `did you mean "fidelity"?`},
	{"empty packets check", head + "steps: [{capture: {at: [all], file: a.pcapng}}]\nchecks: [{" + here +
		"packets: {}}]\n", "checks[0].packets does nothing", "want exactly one of bytes-per-rank"},
	{"empty workload check", head +
		"steps: [{workload: {name: ar, kind: all-reduce, size: 4B}}]\nchecks: [{" + here +
		"workload: {name: ar}}]\n", "checks[0].workload checks nothing", "add correct: true"},
	{"unknown workload", head + "steps: [{workload: {name: ring, kind: all-reduce, size: 4B}}]\nchecks: " +
		"[{workload: {name: " + here + "rong, correct: true}}]\n", `workload "rong" does not exist`,
		`did you mean "ring"?`},
	{"beside an unknown workload",
		head + "steps: [{workload: {name: ring, kind: all-reduce, size: 4B}}]\nchecks: [{workload: {name: " +
			"ring, beside: {workload: " + here + "rong, busbw: \">= 90%\"}}}]\n",
		`workload "rong" does not exist`, `did you mean "ring"?`},
	{"beside itself", head + "steps: [{workload: {name: ring, kind: all-reduce, size: 4B}}]\nchecks: " +
		"[{workload: {name: ring, beside: {workload: " + here + "ring, busbw: \">= 90%\"}}}]\n",
		"a workload compared with itself", "name another workload"},
	{"beside without percent", head +
		"steps: [{workload: {name: a, kind: all-reduce, size: 4B}}, {workload: {name: b, kind: all-reduce, " +
		"size: 4B}}]\nchecks: [{workload: {name: a, beside: {workload: b, busbw: " + here +
		"\">= 0.9\"}}}]\n", "is no comparison", `as in ">= 90%"`},
	{"depth of nothing", head + "steps:\n  - capture: {at: [all], file: a.pcapng}\n  - workload: {name: " +
		"ring, kind: all-reduce, size: 4B}\n" +
		"checks: [{packets: {queue-depth: {max: \"<= 9KB\", workload: " + here + "rong}}}]\n",
		`workload "rong" does not exist`, `did you mean "ring"?`},
	{"trims of nothing", head + "steps:\n  - capture: {at: [all], file: a.pcapng}\n  - workload: {name: " +
		"ring, kind: all-reduce, size: 4B}\n" +
		"checks: [{packets: {trims: {workload: " + here + "rong}}}]\n", `workload "rong" does not exist`,
		`did you mean "ring"?`},
	{"no workload", head + "checks: [{workload: {name: " + here + "ar, correct: true}}]\n",
		`workload "ar" does not exist`, "add a workload to the steps"},
	{"workload twice", head + "steps:\n  - workload: {name: ar, kind: all-reduce, size: 4B}\n  - workload: " +
		"{name: " + here + "ar, kind: all-reduce, size: 8B}\n", `name "ar" is taken by steps[0].workload`,
		"a name of its own"},
	{"check of one of two workloads",
		head + "steps:\n  - capture: {at: [all], file: a.pcapng}\n  - workload: {name: ar, kind: " +
			"all-reduce, size: 4B}\n  - workload: {name: br, kind: all-reduce, size: 8B}\n" +
			"checks: [{packets: {" + here + "bytes-per-rank: {formula: ring-all-reduce, tolerance: 1%}}}]\n",
		"the file has 2 workloads", "add workload:"},
	{"partial sums of a ring", head +
		"steps: [{capture: {at: [all], file: r.pcapng}}, {workload: {name: ar, kind: all-reduce, size: " +
		"4B}}]\nchecks: [{packets: {partial-sums: " + here + "ar}}]\n",
		"no switch adds up the partial sums of ar",
		"want the name of a workload with algorithm: in-network"},
	{"packets without a capture", head +
		"steps: [{workload: {name: ar, kind: all-reduce, size: 4B}}]\nchecks: [{" + here +
		"packets: {rank-nic: ar}}]\n", "a file without a capture", "add the step - capture:"},
	{"comparison", head + "steps: [{workload: {name: ar, kind: all-reduce, size: 4B}}]\nchecks: " +
		"[{workload: {name: ar, busbw: " + here + "600 Mbit/s}}]\n", `comparison "600 Mbit/s"`,
		"want >=, >, <= or <"},
	{"comparison in other units", head +
		"steps: [{workload: {name: ar, kind: all-reduce, size: 4B}}]\nchecks: [{workload: {name: ar, busbw: " + here + "\">= 600 mbps\"}}]\n", `comparison ">= 600 mbps"`, "MB/s or GB/s"},
	{"steps out of order", head + "steps:\n  - {at: 2s, sleep: 1s}\n  - {at: " + here + "1s, sleep: 1s}\n",
		"steps[1].at is 1s, before the step above at 2s", "in the order of their times"},
	{"link step without a change", head + "steps: [{" + here + "link: {where: a--b}}]\n",
		"steps[0].link changes nothing", "add state: up or down"},
	{"link step without a link", head + "steps: [{link: {where: " + here + "a--b sideways, state: down}}]\n",
		`link "a--b sideways"`, `" a-to-b" or " b-to-a"`},
	{"up for a while", head + "steps: [{link: {where: a--b, state: up, for: " + here + "1s}}]\n",
		"for: 1s with state: up", "state: down or set"},
	{"empty command", head + "steps: [{exec: {nodes: [h0], command: [" + here + "\"\"]}}]\n",
		"an empty command", "want a program"},
	{"no command", head + "steps: [{exec: {nodes: [h0], " + here + "command: []}}]\n", "command is empty",
		"at least one entry"},
	{"NUL in a command", head + "steps: [{exec: {nodes: [h0], command: [" + here + "\"a\\0b\"]}}]\n",
		"a NUL byte in the command", "remove it"},

	// YAML itself.
	{"empty file", here, "the file is empty", "write name: and fabric:"},
	{"second document", head + here + "---\nname: b\n", "a second document starts here",
		"one file is one testbed"},
	{"pattern that looks like an alias", head + "steps: [{exec: {nodes: [" + here + "*], command: [ls]}}]\n",
		"an alias or anchor without a name", "quote text that starts with *"},
	{"deep nesting", "name: a\nfabric: " + strings.Repeat("[", 64) + here + "[]" + strings.Repeat("]", 64) +
		"\n", "too many levels of nesting", "at most 64"},
}

// numbered repeats a text with each number from 0.
func numbered(format string, count int) string {
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, format, i)
	}
	return text.String()
}

func TestWrongFiles(t *testing.T) {
	for _, file := range slices.Concat(wrongFiles, wrongSoftFiles, wrongJobFiles, wrongFaultFiles,
		wrongTimelineFiles, wrongMatrixFiles) {
		t.Run(file.name, func(t *testing.T) {
			before, after, marked := strings.Cut(file.text, here)
			if !marked {
				t.Fatal("the text has no mark")
			}
			line := strings.Count(before, "\n") + 1
			column := len([]rune(before[strings.LastIndex(before, "\n")+1:])) + 1
			err := decodeAll(before + after)
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatalf("want Problems, got %v", err)
			}
			if len(problems) != 1 {
				t.Fatalf("want one problem, got\n%v", err)
			}
			p := problems[0]
			if p.File != "f.yaml" || p.Line != line || p.Column != column {
				t.Errorf("want f.yaml:%d:%d, got %v", line, column, p)
			}
			if !strings.Contains(p.What, file.what) || !strings.Contains(p.Want, file.want) {
				t.Errorf("want %q; %q\ngot  %q; %q", file.what, file.want, p.What, p.Want)
			}
			if text := p.Error(); strings.Contains(text, "\n") || !strings.HasPrefix(text, "f.yaml:") {
				t.Errorf("the problem prints as %q", text)
			}
		})
	}
}

func TestEveryProblemAtOnce(t *testing.T) {
	_, err := Decode("f.yaml", []byte(
		"name: Bad\nfabric: {topology: ring}\nsteps: [{sleep: 5}, {}]\nsed: 1\n"))
	const want = `f.yaml:1:7: invalid name "Bad"; want 1 to 24 characters of a-z, 0-9 and -, the first not -
f.yaml:2:20: fabric.topology "ring" does not exist; want one of explicit, single-switch, leaf-spine, fat-tree, rail-optimized, hpn, torus, dragonfly
f.yaml:3:17: duration "5" cannot be read; want a number with ns, us, ms, s, m or h, as in 10us
f.yaml:3:21: steps[1] does nothing; want exactly one of capture, workload, training, messages, traffic, probe, stack, exec, link, fault, wait, sleep
f.yaml:4:1: unknown key "sed" in the file; did you mean "seed"?`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
