package spec

import "strings"

// soft and line are files with one setting of all switches and of all links.
func soft(settings string) string {
	return "name: a\nfabric:\n  topology: explicit\n  switch: {kind: soft, " + settings + "}\n"
}

func line(settings string) string {
	return "name: a\nfabric:\n  topology: explicit\n  links:\n    default: {" + settings + "}\n"
}

// judged is a file with a check of packets.
const judged = head + "steps: [{capture: {at: [all], file: a.pcapng}}]\nchecks: [{packets: {"

// wrongSoftFiles are as wrongFiles, about soft switches and their links.
var wrongSoftFiles = []struct {
	name, text string
	what, want string
}{
	{"forwarding", soft("forwarding: " + here + "l4"), `fabric.switch.forwarding "l4" does not exist`, "want l3 or l2"},
	{"load balance", soft("load-balance: " + here + "ecmp"), `fabric.switch.load-balance "ecmp" does not exist`, "flow, polarised, flowlet"},
	{"load balance misspelt", soft("load-balance: " + here + "polarized"), `"polarized" does not exist`, `did you mean "polarised"?`},
	{"flowlet gap of nothing", soft("flowlet-gap: " + here + "0s"), "a flowlet-gap of no time", "such as 50us"},
	{"flowlet gap for ever", soft("flowlet-gap: " + here + "2m"), "fabric.switch.flowlet-gap is 2m0s", "at most 1m0s"},
	{"flowlet gap without flowlets", soft("load-balance: spray, flowlet-gap: " + here + "50us"), "a flowlet-gap with load-balance: spray", "want load-balance: flowlet"},
	{"alpha of nothing", soft("alpha: " + here + "0"), `factor "0" cannot be read`, "want a number above 0"},
	{"alpha in percent", soft("alpha: " + here + "50%"), `factor "50%" cannot be read`, "as in 0.5, 8 or 1/3"},
	{"alpha too large", soft("alpha: " + here + "2000"), "fabric.switch.alpha is 2000", "at most 1024"},
	{"alpha as a list", soft("alpha: " + here + "[1]"), "fabric.switch.alpha is a list", "write a number such as 0.5"},
	{"DSCP too large", soft("priorities: {" + here + "64: 1}"), `"64" is no DSCP`, "want 0 to 63"},
	{"DSCP by name", soft("priorities: {" + here + "EF: 5}"), `"EF" is no DSCP`, "want 0 to 63"},
	{"DSCP in hexadecimal", soft("priorities: {" + here + "0x2e: 5}"), `"0x2e" is no DSCP`, "want 0 to 63"},
	{"priority of a DSCP", soft("priorities: {46: " + here + "8}"), "8 is no priority", "want 0 to 7"},
	{"priority in text", soft("priorities: {46: " + here + "high}"), `priorities["46"] is the text "high"`, "a whole number"},
	{"strict priority", soft("scheduler: {strict: [7, " + here + "8]}"), "8 is no priority", "want 0 to 7"},
	{"strict priority twice", soft("scheduler: {strict: [7, 6, " + here + "7]}"), "priority 7 stands twice", "remove one"},
	{"weight of no priority", soft("scheduler: {weights: {" + here + "9: 1}}"), `"9" is no priority`, "want 0 to 7"},
	{"weight of nothing", soft("scheduler: {weights: {0: " + here + "0}}"), "weight 0", "want 1 to 1000"},
	{"weight of a strict priority", soft("scheduler: {strict: [6], weights: {6: " + here + "2}}"), "priority 6 is strict and has a weight", "remove one of them"},
	{"unknown key in ecn", soft("ecn: {" + here + "kmn: 40KB}"), `unknown key "kmn" in fabric.switch.ecn`, `did you mean "kmin"?`},
	{"ecn as text", soft("ecn: " + here + "red"), `fabric.switch.ecn is the text "red"`, "write true, false or a mapping with keys such as kind, kmin"},
	{"ecn kind", soft("ecn: {kind: " + here + "codel}"), `ecn.kind "codel" does not exist`, "want red or ecn-sharp"},
	{"kmin above kmax", soft("ecn: {kmin: " + here + "200KB, kmax: 100KB}"), "kmin is 200KB and kmax 100KB", "kmin at most kmax"},
	{"kmin of nothing", soft("ecn: {kmin: " + here + "0B}"), "a kmin of no bytes", "such as 40KB"},
	{"kmax of nothing", soft("ecn: {kmax: " + here + "0B}"), "a kmax of no bytes", "such as 160KB"},
	{"pmax of nothing", soft("ecn: {pmax: " + here + "0%}"), "a pmax of nothing", "or ecn: false"},
	{"pmax above one", soft("ecn: {pmax: " + here + "120%}"), `ratio "120%" cannot be read`, "between 0% and 100%"},
	{"target of nothing", soft("ecn: {kind: ecn-sharp, target: " + here + "0us}"), "a time of nothing", "such as 100us"},
	{"interval of nothing", soft("ecn: {kind: ecn-sharp, interval: " + here + "0us}"), "a time of nothing", "such as 100us"},
	{"persistent target above the target", soft("ecn: {kind: ecn-sharp, target: 10us, persistent-target: " + here + "20us}"), "persistent-target is 20us and target 10us", "at most the target"},
	{"kmin with ecn-sharp", soft("ecn: {kind: ecn-sharp, kmin: " + here + "40KB}"), "kmin with kind: ecn-sharp", "remove it"},
	{"target with red", soft("ecn: {kind: red, target: " + here + "40us}"), "target with kind: red", "remove it"},
	{"no priority is marked", soft("ecn: {" + here + "priorities: []}"), "fabric.switch.ecn.priorities is empty", "or false in place of the mapping"},
	{"trim to nothing", soft("trim: {size: " + here + "20B}"), "fabric.switch.trim.size is 20B", "want 64B to 1KiB"},
	{"trim to a packet", soft("trim: {size: " + here + "4KB}"), "fabric.switch.trim.size is 4KB", "want 64B to 1KiB"},
	{"trim DSCP", soft("trim: {dscp: " + here + "64}"), "fabric.switch.trim.dscp is 64", "want 0 to 63"},
	{"trim queue", soft("trim: {queue: " + here + "8}"), "fabric.switch.trim.queue is 8", "want 0 to 7"},
	{"trimmed priority", soft("trim: {priorities: [" + here + "8]}"), "8 is no priority", "want 0 to 7"},
	{"xon above xoff", soft("pfc: {xoff: 20KB, xon: " + here + "30KB}"), "xon is 30KB and xoff 20KB", "xon at most xoff"},
	{"xoff too large", soft("pfc: {xoff: " + here + "5GiB}"), "fabric.switch.pfc.xoff is 5GiB", "at most 4GiB"},
	{"headroom without a unit", soft("pfc: {headroom: " + here + "1000}"), `size "1000" cannot be read`, "as in 40KB"},
	{"quanta", soft("pfc: {quanta: " + here + "65536}"), "fabric.switch.pfc.quanta is 65536", "want 1 to 65535"},
	{"lossless priority twice", soft("pfc: {priorities: [3, " + here + "3]}"), "priority 3 stands twice", "remove one"},
	{"pfc as a number", soft("pfc: " + here + "3"), "fabric.switch.pfc is the number 3", "write true, false or a mapping"},
	{"gfc kind", soft("gfc: {kind: " + here + "credit}"), `gfc.kind "credit" does not exist`, "want buffer or time"},
	{"b1 above bm", soft("gfc: {b1: " + here + "30KB, bm: 20KB}"), "b1 is 30KB and bm 20KB", "b1 below bm"},
	{"stages of time", soft("gfc: {kind: time, stages: " + here + "4}"), "stages with kind: time", "kind: buffer"},
	{"period of buffer", soft("gfc: {kind: buffer, period: " + here + "4us}"), "a period with kind: buffer", "kind: time"},
	{"no stages", soft("gfc: {stages: " + here + "0}"), "fabric.switch.gfc.stages is 0", "want 1 to 40"},
	{"period of nothing", soft("gfc: {kind: time, period: " + here + "0s}"), "a period of no time", "such as 50us"},
	{"int as a number", soft("int: " + here + "1"), "fabric.switch.int is the number 1", "write true or false"},
	{"no slots", soft("aggregation: {slots: " + here + "0}"), "fabric.switch.aggregation.slots is 0", "want 1 to 65536"},
	{"elements of a jumbo slot", soft("aggregation: {elements: " + here + "4096}"), "fabric.switch.aggregation.elements is 4096", "want 1 to 2048"},
	{"slot without a timeout", soft("aggregation: {timeout: " + here + "0s}"), "a timeout of no time", "such as 1s"},
	{"memory of nothing", "name: a\nfabric: {topology: explicit, memory: " + here + "0B}\n", "fabric.memory is 0B", "want 1MiB to 64GiB"},
	{"queue of a NIC", head + "nodes: {default: {nic-queue: " + here + "0B}}\n", "a NIC's queue of no bytes", "such as 256KiB"},
	{"in an override", "name: a\nfabric: {topology: explicit, switches: {\"s*\": {pfc: {priorities: [" + here + "9]}}}}\n", "9 is no priority", "want 0 to 7"},

	{"weight of a link", line("weight: " + here + "0"), `fabric.links["default"].weight is 0`, "want 1 to 256"},
	{"jitter kind", line("jitter-kind: " + here + "gaussian"), `jitter-kind "gaussian" does not exist`, "uniform or normal or exponential"},
	{"bursts that never begin", line("gilbert-elliott: {enter: " + here + "0%, leave: 1%}"), "an enter of nothing", "or gilbert-elliott: false"},
	{"bursts that never end", line("gilbert-elliott: {enter: 1%, leave: " + here + "0%}"), "a leave of nothing", "such as 20%"},
	{"bursts of no length", line(here + "gilbert-elliott: {enter: 1%}"), `gilbert-elliott lacks the key "leave"`, "a share such as 0.1%"},
	{"bursts of no beginning", line(here + "gilbert-elliott: {leave: 1%}"), `gilbert-elliott lacks the key "enter"`, "a share such as 0.1%"},
	{"bursts that lose nothing", line("gilbert-elliott: {enter: 1%, leave: 2%, loss: " + here + "0%}"), "a bad state that loses nothing", "for 100%"},
	{"a good state that is the bad one", line("gilbert-elliott: {enter: 1%, leave: 2%, loss: 10%, loss-good: " + here + "20%}"), "loss-good is 20% and loss 10%", "to lose less"},
	{"bursts as a share", line("gilbert-elliott: " + here + "1%"), `gilbert-elliott is the text "1%"`, "write true, false or a mapping with keys such as enter"},
	{"drop every fraction", line("drop-every: " + here + "1.5"), "drop-every is the number 1.5", "a whole number"},
	{"packet 0", line("drop-list: [1, " + here + "0]"), "0 is no packet of a flow", "want 1 to 2147483647"},
	{"packet twice", line("drop-list: [5, 6, " + here + "5]"), "packet of a flow 5 stands twice", "remove one"},
	{"packets as text", line("drop-list: " + here + "5"), "drop-list is the number 5", "write a list"},
	{"too many packets", line(here + "drop-list: [" + strings.TrimSuffix(numbered("%d, ", 5000), ", ") + "]"), "a drop-list of 5000 packets", "at most 4096"},
	{"reorder by nothing", line("reorder: 1%, reorder-by: " + here + "0s"), "a reorder-by of no time", "or reorder: 0%"},
	{"overhead of a tunnel of tunnels", line("overhead: " + here + "1KB"), "overhead is 1KB", "Ethernet's is 24B"},
	{"flap of nothing", line("flap: {every: 1s, for: " + here + "0s}"), "flap.for is empty", "a duration such as 10us"},
	{"flap that stays", line("flap: {every: 1s, for: " + here + "1s}"), "down for 1s of every 1s", "state: down"},
	{"flap without a period", line(here + "flap: {for: 1s}"), `flap lacks the key "every"`, "a duration such as 10us"},
	{"one direction", line("b-to-a: {flap: {every: " + here + "48h, for: 1s}}"), "flap.every is 48h0m0s", "at most 24h0m0s"},
	{"traffic to nobody", head + "steps: [{" + here + "traffic: {name: t, from: [h0], for: 1s}}]\n", "steps[0].traffic does nothing", "to, shift, pause"},
	{"traffic for no time", head + "steps: [{traffic: {name: t, from: [h0], to: [h1], for: " + here + "0s}}]\n", "steps[0].traffic.for is empty", "a duration such as 10us"},
	{"traffic without room", head + "steps: [{traffic: {name: t, from: [h0], to: [h1], for: 1s, size: " + here + "40B}}]\n", "traffic.size is 40B", "want 58B to"},
	{"traffic of two kinds", head + "steps: [{traffic: {name: t, from: [h0], to: [h1], " + here + "shift: 1, for: 1s}}]\n", "has to and shift", "exactly one of them"},
	{"pauses with a DSCP", head + "steps: [{traffic: {name: t, from: [h0], pause: {priorities: [3]}, for: 1s, " + here + "dscp: 4}}]\n", "dscp is of datagrams", "remove it"},
	{"pause of no queue", head + "steps: [{traffic: {name: t, from: [h0], pause: {priorities: [" + here + "8]}, for: 1s}}]\n", "8 is no priority", "want 0 to 7"},
	{"events of some kind", head + "steps: [{capture: {at: [all], file: a.pcapng, events: " + here + "drops}}]\n", `events "drops" does not exist`, "none or all"},
	{"bound without a number", judged + "drops: {count: " + here + "some}}}]\n", `drops.count "some" is no comparison`, `as in ">= 1"`},
	{"bound of another kind", judged + "marks: {share: " + here + "\">= 10KB\"}}}]\n", `marks.share ">= 10KB" is no comparison`, `as in ">= 10%"`},
	{"marks of nothing", judged + here + "marks: {at: leaf1}}}]\n", "marks checks nothing", "add share"},
	{"no sentence that is known", judged + "that: " + here + "every rd message is placed}}]\n", `"every rd message is placed" does not exist`, "want every rd message is placed exactly once or no rd packet is sent again without need"},
	{"a rule of RoCEv2 with a time", judged + "roce: {rule: psn, within: " + here + "1ms}}}]\n", "rule psn has no time", "remove it"},
	{"a rule of RoCEv2 that counts nothing", judged + "roce: {rule: acks, again: " + here + "\"== 0\"}}}]\n", "rule acks counts nothing that is sent again", "judge rule psn"},
	{"how much was sent again", judged + "roce: {rule: psn, again: " + here + "none}}}]\n", "is no comparison", `as in ">= 1"`},
	{"no rule of RoCEv2", judged + "roce: {rule: " + here + "crc}}}]\n", `rule "crc" does not exist`, "icrc"},
	{"two checks in one", judged + "deadlock: none, " + here + "trims: {}}}]\n", "has deadlock and trims", "exactly one of them"},
	{"polarised and even", judged + "path-spread: {switch: leaf1, polarised: true, min-share: " + here + "10%}}}]\n", "a least share of what is to be polarised", "remove one"},
	{"in a step", head + "steps: [{link: {where: a--b, set: {drop-list: [" + here + "0]}}}]\n", "0 is no packet of a flow", "want 1 to 2147483647"},
}
