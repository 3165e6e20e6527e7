package runner

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"railbed/plan"
	"railbed/plan/spec"
)

// textFields collects the fields of files that hold text or free keys, as Type.key, but for
// those with an enumeration in the schema.
func textFields(found map[string]bool, seen map[reflect.Type]bool, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return
	}
	seen[t] = true
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "-" {
			continue
		}
		if key == "" || options == "inline" { // a part of the mapping, or an entry of one with free keys
			textFields(found, seen, f.Type)
			continue
		}
		leaf := f.Type
		free := func() bool {
			return leaf.Kind() == reflect.Map || strings.HasPrefix(leaf.Name(), "Ordered[")
		}
		for !free() && (leaf.Kind() == reflect.Pointer || leaf.Kind() == reflect.Slice) {
			leaf = leaf.Elem()
		}
		if free() || leaf.Kind() == reflect.String && !strings.Contains(f.Tag.Get("jsonschema"), "enum=") {
			found[t.Name()+"."+key] = true
		}
		textFields(found, seen, f.Type)
	}
}

// freeText are the fields whose text nothing in a file or on a plan can refute, and why.
var freeText = map[string]string{
	"WhyCheck.cause":       "a part of the words of a cause",
	"WhyCheck.at":          "a pattern of ports, links and nodes; the check names the places that it found",
	"Testbed.requires":     "features, and programs that a host may lack; a misspelt feature is refused",
	"Testbed.description":  "for people",
	"Rule.name":            "for people",
	"Fault.name":           "for people and captures",
	"Fault.program":        "a program of the node",
	"Exec.command":         "a program of the node",
	"Exec.workdir":         "a directory that a step may make",
	"Stack.command":        "a program of the node",
	"Health.command":       "a program of the container",
	"Container.entrypoint": "a program of the image",
	"Container.command":    "arguments of a program of the image",
	"Container.build":      "a folder that may be made before the run",
	"Container.rootfs":     "an archive that may be made before the run",
	"Node.modules":         "modules of the guest's kernel",
}

// wrongWords has for each other field a file in which it has a wrong word, marked by nosuch.
var wrongWords = func() map[string]string {
	const fabric = "fabric: {topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: 2}}\n"
	const head = "name: t\n" + fabric
	const soft = "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: soft}}\n"
	part := func(inFabric string) string {
		return "name: t\nfabric: {topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: 2}, " +
			inFabric + "}\n"
	}
	node := func(settings string) string { return head + "nodes: {default: {" + settings + "}}\n" }
	docker := func(settings string) string { return node("runtime: docker, image: a, " + settings) }
	steps := func(steps string) string { return head + "steps: [" + steps + "]\n" }
	probes := func(keys string) string {
		return part("switch: {kind: soft, int: true}") + "steps: [{probe: {" + keys + "}}]\n"
	}
	work := "{capture: {at: [all], file: a.pcapng}}, {workload: {name: w, kind: all-reduce, size: 4KiB}}, " +
		"{workload: {name: v, kind: all-reduce, size: 4KiB}}"
	workload := func(keys string) string {
		return steps(work) + "checks: [{workload: {name: w, " + keys + "}}]\n"
	}
	packets := func(check string) string { return steps(work) + "checks: [{packets: {" + check + "}}]\n" }
	words := map[string]string{
		"Testbed.name":             "name: no such\n" + fabric,
		"Testbed.accept-undilated": "dilation: 2\naccept-undilated: [nosuch]\n" + head,
		"Testbed.nodes":            head + "nodes: {nosuch: {cpu: 1}}\n",
		"Addressing.loopbacks4":    head + "addressing: {loopbacks4: nosuch}\n",
		"Addressing.loopbacks6":    head + "addressing: {loopbacks6: nosuch}\n",
		"Addressing.links4":        head + "addressing: {links4: nosuch}\n",
		"Addressing.links6":        head + "addressing: {links6: nosuch}\n",
		"Addressing.management4":   head + "addressing: {management4: nosuch}\n",
		"Addressing.management6":   head + "addressing: {management6: nosuch}\n",
		"Fabric.params":            "name: t\nfabric: {topology: leaf-spine, params: {nosuch: 2}}\n",
		"Fabric.switches":          part("switches: {nosuch: {buffer: 1MB}}"),
		"Fabric.links":             part("links: {nosuch--leaf1: {mtu: 1500}}"),
		"Fabric.hosts":             "name: t\nfabric: {topology: explicit, hosts: [no such]}\n",
		"Fabric.connect": "name: t\nfabric: {topology: explicit, hosts: [a, b], connect: [a -- " +
			"nosuch]}\n",
		"Switch.priorities": part("switch: {priorities: {nosuch: 1}}"),
		"Scheduler.weights": part("switch: {scheduler: {weights: {nosuch: 1}}}"),
		"Node.env":          node("env: {no such: a}"), "Node.sysctls": node("sysctls: {nosuch: 1}"),
		"Management.dns":     node("management: {dns: [nosuch]}"),
		"Management.publish": node("management: {publish: [nosuch]}"),
		"Container.image":    node("runtime: docker, image: no such"),
		"Container.binds":    docker("binds: [nosuch]"), "Container.devices": docker("devices: [nosuch]"),
		"Container.capabilities": docker("capabilities: [nosuch]"),
		"Container.ulimits":      docker("ulimits: {nosuch: 1}"),
		"Capture.at":             steps("{capture: {at: [nosuch], file: a.pcapng}}"),
		"Capture.file":           steps("{capture: {at: [all], file: nosuch}}"),
		"Capture.filter":         steps("{capture: {at: [all], file: a.pcapng, filter: nosuch}}"),
		"Capture.start":          steps("{capture: {at: [all], file: a.pcapng, start: [nosuch]}}"),
		"Capture.stop":           steps("{capture: {at: [all], file: a.pcapng, stop: [nosuch]}}"),
		"Workload.name":          steps("{workload: {name: no such, kind: all-reduce, size: 4KiB}}"),
		"Training.name":          steps("{training: {name: no such, trace: a.cm}}"),
		"Messages.name":          steps("{messages: {name: no such, blocks: {servers: 1, count: 3}}}"),
		"Traffic.name":           steps("{traffic: {name: no such, from: [h0], to: [h1], for: 1s}}"),
		"Stack.name":             steps("{stack: {name: no such, kind: iperf3}}"),
		"Exec.name":              steps("{exec: {name: no such, nodes: [h0], command: [a]}}"),
		"Workload.switch": steps(
			"{workload: {name: w, kind: all-reduce, algorithm: in-network, switch: nosuch, size: 4KiB}}"),
		"Workload.file": steps(
			"{workload: {name: w, kind: all-reduce, algorithm: msccl, file: nosuch, size: 4KiB}}"),
		"Training.trace":  steps("{training: {name: t, trace: nosuch.cm}}"),
		"Training.groups": steps("{training: {name: t, trace: a.0.et, groups: nosuch.json}}"),
		"Sizing.file":     steps("{messages: {name: m, closed: {file: nosuch, count: 3}}}"),
		"CacheMessages.trace": steps("{messages: {name: m, cache: {prefill: 1, trace: nosuch, layers: 1, " +
			"layer-time: 1ms, layer-bytes: 1KB}}}"),
		"RD.rates": steps("{workload: {name: w, kind: all-reduce, size: 4KiB, transport: rd, " +
			"rd: {control: offline, rates: nosuch}}}"),
		"Traffic.from":  steps("{traffic: {name: x, from: [nosuch], to: [h1], for: 1s}}"),
		"Traffic.to":    steps("{traffic: {name: x, from: [h0], to: [nosuch], for: 1s}}"),
		"Probe.name":    probes("name: no such, from: h0, to: h1"),
		"Probe.from":    probes("name: p, from: nosuch, to: h1"),
		"Probe.to":      probes("name: p, from: h0, to: nosuch"),
		"Probe.arrived": probes("name: p, from: h0, to: h1, arrived: nosuch"),
		"Probe.paths":   probes("name: p, from: h0, to: h1, paths: nosuch"),
		"Probe.queue":   probes("name: p, from: h0, to: h1, queue: nosuch"),
		"Stack.nodes":   steps("{stack: {name: s, kind: iperf3, nodes: [nosuch]}}"),
		"Stack.test":    steps("{stack: {name: s, kind: ucx, test: nosuch}}"),
		"Stack.beside":  steps("{stack: {name: s, kind: ucx, beside: nosuch}}"),
		"Exec.nodes":    steps("{exec: {nodes: [nosuch], command: [a]}}"),
		"Exec.ends": part("switch: {kind: router}, routing: {daemon: frr}") +
			"steps: [{exec: {nodes: [leaf1], command: [a], ends: [nosuch]}}]\n",
		"LinkChange.where":   steps("{link: {where: nosuch--leaf1, state: down}}"),
		"Fault.where":        soft + "steps: [{fault: {where: nosuch, drop: {}}}]\n",
		"Fault.partition":    soft + "steps: [{fault: {partition: [[h0], [nosuch]]}}]\n",
		"FaultMirror.to":     soft + "steps: [{fault: {where: all, mirror: {to: nosuch}}}]\n",
		"FaultMisroute.to":   soft + "steps: [{fault: {where: leaf1, misroute: {to: nosuch}}}]\n",
		"FaultRewrite.field": soft + "steps: [{fault: {where: all, rewrite: {field: nosuch, to: 1}}}]\n",
		"FaultRewrite.to":    soft + "steps: [{fault: {where: all, rewrite: {field: ip.ttl, to: nosuch}}}]\n",
		"Step.when":          soft + "steps: [{when: nosuch == 1, sleep: 1s}]\n",
		"Step.after":         soft + "steps: [{after: [nosuch], sleep: 1s}]\n",
		"Fault.match":        soft + "steps: [{fault: {where: all, match: nosuch == 1, drop: {}}}]\n",
		"Step.wait":          steps("{wait: [nosuch]}"),
		"WorkloadCheck.name": steps(work) + "checks: [{workload: {name: nosuch, correct: true}}]\n",
		"WhyCheck.workload":  steps(work) + "checks: [{why: {cause: none, workload: nosuch}}]\n",
		"Beside.workload":    workload("beside: {workload: nosuch, busbw: '>= 1%'}"),
		"BytesPerRank.workload": packets("bytes-per-rank: {workload: nosuch, formula: ring-all-reduce, " +
			"tolerance: 1%}"), "PacingCheck.workload": packets("pacing: {workload: nosuch}"),
		"TrimsCheck.workload":       packets("trims: {workload: nosuch}"),
		"QueueDepthCheck.workload":  packets("queue-depth: {workload: nosuch, max: '<= 1KB'}"),
		"PacketsCheck.rank-nic":     packets("rank-nic: nosuch"),
		"PacketsCheck.crossed":      packets("crossed: nosuch"),
		"PacketsCheck.rail-local":   packets("rail-local: nosuch"),
		"PacketsCheck.partial-sums": packets("partial-sums: nosuch"),
		"PacketsCheck.during":       packets("rule: {never: ip}, during: nosuch"),
		"PacketsCheck.outside":      packets("rule: {never: ip}, outside: nosuch"),
		"PacketsCheck.conservation": packets("conservation: nosuch"),
		"PathSpread.switch":         packets("path-spread: {switch: nosuch}"),
		"MarksCheck.at":             packets("marks: {at: nosuch, count: '>= 1'}"),
		"MarksCheck.from":           packets("marks: {from: nosuch, count: '>= 1'}"),
		"MarksCheck.to":             packets("marks: {to: nosuch, count: '>= 1'}"),
		"DropsCheck.at":             packets("drops: {at: nosuch, count: '>= 1'}"),
		"DropsCheck.from":           packets("drops: {from: nosuch, count: '>= 1'}"),
		"DropsCheck.to":             packets("drops: {to: nosuch, count: '>= 1'}"),
		"LosslessCheck.from":        packets("lossless: {from: nosuch}"),
		"LosslessCheck.to":          packets("lossless: {to: nosuch}"),
		"TrimsCheck.at":             packets("trims: {at: nosuch}"),
		"PausesCheck.at":            packets("pauses: {at: nosuch, count: '== 0'}"),
		"PausesCheck.order":         packets("pauses: {order: [nosuch]}"),
		"QueueDepthCheck.at":        packets("queue-depth: {at: nosuch, max: '<= 1KB'}"),
		"ReorderingCheck.from":      packets("reordering: {from: nosuch, share: '<= 1%'}"),
		"ReorderingCheck.to":        packets("reordering: {to: nosuch, share: '<= 1%'}"),
		"OutageCheck.from":          packets("outage: {from: nosuch, longest: '<= 1s'}"),
		"OutageCheck.to":            packets("outage: {to: nosuch, longest: '<= 1s'}"),
		"MarksCheck.share":          packets("marks: {share: nosuch}"),
		"MarksCheck.count":          packets("marks: {count: nosuch}"),
		"DropsCheck.count":          packets("drops: {count: nosuch}"),
		"TrimsCheck.count":          packets("trims: {count: nosuch}"),
		"PausesCheck.count":         packets("pauses: {count: nosuch}"),
		"PausesCheck.paused":        packets("pauses: {paused: nosuch}"),
		"ReorderingCheck.share":     packets("reordering: {share: nosuch}"),
		"OutageCheck.longest":       packets("outage: {longest: nosuch}"),
		"ThroughputCheck.from":      packets("throughput: {from: nosuch, rate: '>= 1mbit'}"),
		"ThroughputCheck.to":        packets("throughput: {to: nosuch, rate: '>= 1mbit'}"),
		"ThroughputCheck.workload":  packets("throughput: {workload: nosuch, rate: '>= 1mbit'}"),
		"ThroughputCheck.rate":      packets("throughput: {rate: nosuch}"),
		"ThroughputCheck.fairness":  packets("throughput: {fairness: nosuch}"),
		"Rule.never":                packets("rule: {never: nosuch}"),
		"Rule.always":               packets("rule: {always: nosuch}"),
		"Rule.count":                packets("rule: {count: nosuch, is: '<= 1'}"),
		"Rule.share":                packets("rule: {share: nosuch, is: '<= 1%'}"),
		"Rule.after":                packets("rule: {after: nosuch, expect: ip, within: 1s}"),
		"Rule.in-order":             packets("rule: {in-order: nosuch}"),
		"Rule.sum":                  packets("rule: {sum: nosuch, is: '<= 1'}"),
		"Rule.where":                packets("rule: {always: ip, where: nosuch}"),
		"Rule.expect":               packets("rule: {after: ip, expect: nosuch, within: 1s}"),
		"Rule.same": packets("rule: {after: ip, expect: ip, within: 1s, " +
			"same: [ip.src=nosuch]}"),
		"Rule.at":                 packets("rule: {never: ip, at: nosuch}"),
		"Rule.is":                 packets("rule: {count: ip, is: nosuch}"),
		"Rule.workload":           packets("rule: {never: ip, workload: nosuch}"),
		"LatencyCheck.from":       packets("latency: {from: nosuch, max: '<= 1s'}"),
		"LatencyCheck.to":         packets("latency: {to: nosuch, max: '<= 1s'}"),
		"LatencyCheck.workload":   packets("latency: {workload: nosuch, max: '<= 1s'}"),
		"LatencyCheck.p50":        packets("latency: {p50: nosuch}"),
		"LatencyCheck.p99":        packets("latency: {p99: nosuch}"),
		"LatencyCheck.p999":       packets("latency: {p999: nosuch}"),
		"LatencyCheck.max":        packets("latency: {max: nosuch}"),
		"LinkBytesCheck.link":     packets("link-bytes: {link: nosuch--leaf1, is: '<= 1KB'}"),
		"LinkBytesCheck.workload": packets("link-bytes: {workload: nosuch, is: '<= 1KB'}"),
		"LinkBytesCheck.is":       packets("link-bytes: {is: nosuch}"),
		"FlowsCheck.at":           packets("flows: {at: nosuch, count: '>= 1'}"),
		"FlowsCheck.from":         packets("flows: {from: nosuch, count: '>= 1'}"),
		"FlowsCheck.to":           packets("flows: {to: nosuch, count: '>= 1'}"),
		"FlowsCheck.workload":     packets("flows: {workload: nosuch, count: '>= 1'}"),
		"FlowsCheck.count":        packets("flows: {count: nosuch}"),
		"RoCECheck.again":         packets("roce: {rule: psn, again: nosuch}"),
		"QueueDepthCheck.max":     packets("queue-depth: {max: nosuch}"),
		"QueueDepthCheck.p99":     packets("queue-depth: {p99: nosuch}"),
	}
	for _, f := range spec.Figures {
		words["WorkloadCheck."+f.Name] = workload(f.Name + ": nosuch")
		if f.Beside != nil {
			words["Beside."+f.Name] = workload("beside: {workload: v, " + f.Name + ": nosuch}")
		}
	}
	return words
}()

// TestEveryWordMeansSomething holds that each text of a file is of an enumeration of the
// schema, is looked up before a run, or is on the list of free ones.
func TestEveryWordMeansSomething(t *testing.T) {
	fields := map[string]bool{}
	textFields(fields, map[reflect.Type]bool{}, reflect.TypeFor[spec.Testbed]())
	if len(fields) < 80 {
		t.Fatalf("found %d fields", len(fields))
	}
	for field := range fields {
		_, wrong := wrongWords[field]
		if _, free := freeText[field]; free == wrong {
			t.Errorf("%s is text without an enumeration: want it in freeText with the reason, or in "+
				"wrongWords with a file that is refused", field)
		}
	}
	for field, text := range wrongWords {
		if !fields[field] {
			t.Errorf("there is no field %s", field)
		}
		if !slices.ContainsFunc([]string{"nosuch", "no such"}, func(word string) bool {
			return strings.Contains(text, word)
		}) {
			t.Errorf("%s: the file has no wrong word", field)
		}
		err := validate(text)
		if err == nil {
			t.Errorf("%s: no error for a wrong word; a key of a check has a tag names, or a unit of "+
				"spec.boundOf\n%s", field, text)
		} else if message := err.Error(); !strings.Contains(message, "nosuch") &&
			!strings.Contains(message, "no such") || !strings.HasPrefix(message, "f:") {
			t.Errorf("%s: want a problem that names the word, got\n%s", field, message)
		}
	}
	for field := range freeText {
		if !fields[field] {
			t.Errorf("there is no field %s", field)
		}
	}
}

// validate does what "railbed validate" does.
func validate(text string) error {
	testbed, err := spec.Decode("f", []byte(text))
	if err != nil {
		return err
	}
	p, err := plan.Compile(testbed)
	if err != nil {
		return err
	}
	_, err = Validate(Options{File: testbed, Plan: p, Path: "f"})
	return err
}
