package proof

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

var _ = hosttest.MarkPackage(hosttest.AsNobody)

// file is a leaf-spine of switches with settings; its steps begin in line 4 and its check
// stands in the last line, from column 13 on.
func file(settings, check string, steps ...string) string {
	return "name: t\nfabric: {topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: 2}, " +
		"switch: {" + settings + "}, links: {default: {mtu: 1500}}}\nsteps:\n- " +
		strings.Join(steps, "\n- ") + "\nchecks:\n- packets: {" + check + "}\n"
}

const (
	all     = "capture: {at: [all], file: a.pcapng}"
	nics    = "capture: {at: [nics], file: a.pcapng}"
	atH1    = "capture: {at: [h1], file: a.pcapng}"
	toH1    = "throughput: {to: h1, rate: '>= 1mbit'}"
	nics2   = "capture: {at: [nics], file: b.pcapng}"
	leaf1   = "capture: {at: [leaf1], file: a.pcapng}"
	whole   = "capture: {at: [all], file: a.pcapng, snaplen: 1600B}"
	onlyUDP = "capture: {at: [all], file: a.pcapng, filter: udp}"
	// Each of these two records what the other does not.
	tcpAtNICs   = "capture: {at: [nics], file: a.pcapng, filter: tcp}"
	udpAtSpines = "capture: {at: ['spine*'], file: b.pcapng, filter: udp}"

	sends   = "traffic: {name: x, from: [h0], to: [h1], for: 1s}"
	urgent  = "traffic: {name: x, from: [h0], to: [h1], for: 1s, dscp: 24}" // priority 3
	overTCP = "workload: {name: w, kind: all-reduce, size: 64KiB}"
	overRD  = "workload: {name: w, kind: all-reduce, size: 64KiB, transport: rd}"
	roce    = "workload: {name: w, kind: all-reduce, size: 64KiB, transport: roce}"
	dcqcn   = "workload: {name: w, kind: all-reduce, size: 64KiB, transport: roce, roce: {congestion: dcqcn}}"
	quic    = "workload: {name: w, kind: all-reduce, size: 64KiB, transport: quic}"
	program = "exec: {nodes: [h0], command: [true]}"
	sealed  = "workload: {name: w, kind: all-reduce, size: 64KiB, transport: rd, rd: {encrypt: true}}"
	opened  = "workload: {name: w, kind: all-reduce, size: 64KiB, transport: rd, rd: {encrypt: true, " +
		"key-log: true}}"
)

// lossy is file with a setting of the direction from leaf1 to spine2.
func lossy(settings, link, check string) string {
	links := "{mtu: 1500}, leaf1--spine2: {a-to-b: {" + link + "}}"
	return strings.Replace(file(settings, check, all, sends), "{mtu: 1500}", links, 1)
}

func look(t *testing.T, text string) (never, hardly string) {
	t.Helper()
	testbed, err := spec.Decode("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(testbed)
	if err != nil {
		t.Fatal(err)
	}
	n, h := Look(testbed, p)
	return n.Error(), h.Error()
}

// TestLook has for each rule a file that breaks it; what it should say is the beginning of
// the one line.
func TestLook(t *testing.T) {
	const soft = "kind: soft"
	for name, c := range map[string]struct{ text, never, hardly string }{
		"icrc under a short snap length": {file(soft, "roce: {rule: icrc}", all, roce),
			"f:7:26: an ICRC covers whole packets: those of w have up to 1098B, and the capture at f:4:3 " +
				"keeps 576B of each; want snaplen: 1098B there", ""},
		"a throughput without the senders' NICs": {file(soft, toH1, atH1, program),
			"f:7:13: throughput needs the NICs of all senders to know who sent in vain, and the capture at " +
				"f:4:13 lacks 3 of them; want at: [nics] there, or add h0:eth0, h2:eth0, h3:eth0", ""},
		"a fairness without a sender's NIC": {file(soft,
			"throughput: {from: h0, to: h1, fairness: '>= 90%'}", atH1, program),
			"f:7:13: throughput needs the NICs of all senders", ""},
		"a throughput of a traffic step": {file(soft, toH1, atH1, sends), "", ""},
		"a greatest throughput": {file(soft, "throughput: {to: h1, rate: '<= 1mbit'}", atH1,
			program), "", ""},
		"a throughput without receivers": {file(soft, "throughput: {to: h0, rate: '<= 1mbit'}", atH1,
			program), "f:7:13: throughput needs ports, and the capture at f:4:13 has none of them", ""},
		"a throughput of several captures": {file(soft, toH1, atH1, nics2, program),
			"", ""},
		"lossless in several captures": {file(soft, "lossless: {from: h0, to: h1}", atH1,
			"capture: {at: [h0], file: b.pcapng}", sends), "", ""},
		"several captures without a port": {file(soft, "lossless: {from: h0, to: h2}", atH1,
			"capture: {at: [h0], file: b.pcapng}", sends), "",
			"f:8:13: lossless needs 2 ports, and the capture at f:4:13 lacks 1 of them"},
		"an icrc in the second capture": {file(soft, "roce: {rule: icrc}", all,
			"capture: {at: [all], file: b.pcapng, snaplen: 1600B}", roce), "", ""},
		"icrc of what may be short": {file(soft, "roce: {rule: icrc}", all,
			"training: {name: w, model: {layers: 2, hidden: 64, sequence: 32, tflops: 1, dp: 4}, "+
				"transport: roce}"), "", "f:7:26: an ICRC covers whole packets"},
		"icrc of a program": {file(soft, "roce: {rule: icrc}", all, program), "",
			"f:7:26: an ICRC covers whole packets, and the capture at f:4:3 keeps 576B"},
		"bytes over quic": {file(soft, "bytes-per-rank: w", all, quic),
			"f:7:29: packets of w do not show which bytes are payload, because QUIC encrypts them; want " +
				"transport: tcp, rd or roce there, or the check rank-nic", ""},
		"NICs over quic":        {file(soft, "rank-nic: w", all, quic), "", ""},
		"icrc of whole packets": {file(soft, "roce: {rule: icrc}", whole, roce), "", ""},
		"dcqcn without marks": {file(soft, "deadlock: none", all, dcqcn),
			"f:5:90: dcqcn needs marks, and no switch marks RoCEv2 packets (DSCP 26); want " +
				"fabric: {switch: {ecn: true}}", ""},
		"dcqcn on routers": {file("kind: router", "conservation: '*'", all, dcqcn),
			"f:5:90: dcqcn needs marks", ""},
		"dcqcn with other marks": {file(soft+", ecn: {priorities: [0]}", "deadlock: none", all,
			dcqcn), "f:5:90: dcqcn needs marks", ""},
		"dcqcn with marks": {file(soft+", ecn: true", "roce: {rule: cnp}", whole, dcqcn), "",
			""},
		"dcqcn beside programs": {file(soft, "deadlock: none", all, dcqcn, program), "",
			"f:5:90: dcqcn needs marks"},
		"cnp without dcqcn": {file(soft+", ecn: true", "roce: {rule: cnp}", whole, roce),
			"f:7:26: no step with transport: roce reacts to marks; want roce: {congestion: dcqcn}", ""},
		"roce of nobody": {file(soft, "roce: {rule: psn}", all, overTCP),
			"f:7:13: no step sends over roce; want a step with transport: roce", ""},
		"roce of a program": {file(soft, "roce: {rule: psn}", all, program), "", ""},
		"marks that nobody makes": {file(soft, "marks: {count: '>= 1'}", all, sends),
			"f:7:28: no selected port can mark a packet; want fabric: {switch: {ecn: true}}", ""},
		"marks of a spine": {file(soft+", ecn: true", "marks: {at: spine1, count: '>= 1'}", all,
			sends), "", ""},
		"a share that nobody marks": {file("kind: router", "marks: {share: '>= 1%'}", all, sends),
			"f:7:28: no switch can mark a packet", ""},
		"no marks": {file(soft, "marks: {count: '== 0'}", all, sends), "", ""},
		"trims without trimming": {file(soft, "trims: {}", all, sends),
			"f:7:13: no selected port can trim a packet; want fabric: {switch: {trim: true}}", ""},
		"trims with trimming": {file(soft+", trim: true", "trims: {}", all, overRD), "", ""},
		"pauses without pfc": {file(soft, "pauses: {at: leaf1, count: '>= 1'}", all, sends),
			"f:7:13: no selected port can request a pause; want fabric: {switch: {pfc: true}}", ""},
		"pauses for a time": {file("kind: soft", "pauses: {paused: '>= 1ms'}", all, sends),
			"f:7:13: no selected port can request a pause", ""},
		"pauses of a host": {file(soft, "pauses: {at: h0, count: '>= 1'}", all,
			"traffic: {name: x, from: [h0], pause: {priorities: [3]}, for: 1s}"), "", ""},
		"an order of what cannot": {file(soft+", pfc: true", "pauses: {order: [leaf1, h1]}", all,
			urgent), "f:7:37: h1 cannot request a pause", ""},
		"no pauses": {file(soft, "pauses: {count: '== 0'}", all, sends), "", ""},
		"pauses behind a filter": {file(soft+", pfc: true", "pauses: {count: '== 0'}", onlyUDP,
			urgent), "f:7:13: pauses needs PFC frames, and the filter at f:4:48 accepts none", ""},
		"pauses behind a port": {file(soft+", pfc: true", "deadlock: none",
			"capture: {at: [all], file: a.pcapng, filter: udp port 7}", urgent),
			"f:7:23: deadlock needs PFC frames", ""},
		"pauses in a filter": {file(soft+", pfc: true", "deadlock: none",
			"capture: {at: [all], file: a.pcapng, filter: 'udp or ether[12:2] = 0x8808'}", urgent), "",
			"f:7:23: deadlock needs more packets than the filter at f:4:48 accepts"},
		"no pauses of bridges": {file("kind: bridge", "pauses: {count: '== 0'}", all, sends),
			"f:7:13: pauses needs soft switches, and the testbed has none", ""},
		"no trims of routers": {file("kind: router", "trims: {count: '== 0'}", all, sends),
			"f:7:13: trims needs soft switches, and the testbed has none", ""},
		"records of routers": {file("kind: router", "rule: {never: 'railbed.depth > 7'}", all, sends),
			"f:7:13: the rule reads records of switches, and the testbed has neither soft switches nor", ""},
		"records of faults at routers": {file("kind: router", "rule: {never: 'railbed.fault == \"f\"'}", all,
			"fault: {name: f, where: leaf1, drop: {nth: [1]}}", sends), "", ""},
		"packets of routers": {file("kind: router", "rule: {never: tcp}", all, sends), "", ""},
		"a rule behind a filter": {file(soft, "rule: {never: tcp}", onlyUDP, sends), "",
			"f:7:13: rule needs more packets than the filter at f:4:48 accepts"},
		"a rule at ports without a tap": {file(soft, "rule: {never: tcp, at: leaf1}",
			"capture: {at: [nics], file: a.pcapng}", sends),
			"f:7:13: rule needs ports, and the capture at f:4:13 has none of them", ""},
		"link-bytes without a tap": {file(soft, "link-bytes: {link: 'leaf1--spine*', is: '<= 1KB'}",
			"capture: {at: [nics], file: a.pcapng}", sends), "f:7:13: link-bytes needs ports", ""},
		"no deadlock of routers": {file("kind: router", "deadlock: none", all, sends),
			"f:7:23: deadlock needs soft switches, and the testbed has none", ""},
		"a deadlock without pfc": {file(soft, "deadlock: some", all, sends),
			"f:7:23: no switch pauses another", ""},
		"a workload behind a filter": {file(soft, "rank-nic: w", onlyUDP, overTCP),
			"f:7:23: rank-nic needs packets of TCP, and the filter at f:4:48 accepts none", ""},
		"datagrams behind the filter of NICs": {file(soft, "rank-nic: w", tcpAtNICs, udpAtSpines, overRD),
			"f:8:23: rank-nic needs datagrams, and the filter at f:4:49 accepts none", ""},
		"datagrams in the filter of NICs": {file(soft, "rank-nic: w",
			strings.Replace(udpAtSpines, "spine*", "nics", 1),
			strings.Replace(tcpAtNICs, "nics", "spine*", 1),
			overRD), "", ""},
		"datagrams in one of two filters": {file(soft, "rank-nic: w", tcpAtNICs,
			strings.Replace(udpAtSpines, "spine*", "nics", 1), overRD), "", ""},
		"datagrams in no filter": {file(soft, "rank-nic: w", tcpAtNICs,
			"capture: {at: [nics], file: b.pcapng, filter: icmp}", overRD),
			"f:8:23: rank-nic needs datagrams, and the filter at f:4:49 or f:5:49 accepts none", ""},
		"a workload in a filter": {file(soft, "rank-nic: w", onlyUDP, overRD), "", ""},
		"drops behind a filter": {file(soft, "drops: {count: '== 0'}", onlyUDP, sends), "",
			"f:7:13: drops needs more packets than the filter at f:4:48 accepts"},
		"taps elsewhere": {file(soft, "drops: {at: leaf2, count: '== 0'}", leaf1, sends),
			"f:7:13: drops needs ports, and the capture at f:4:13 has none of them; want at: [all] there, " +
				"or leaf2:p0", ""},
		"a part of the taps": {file(soft, "drops: {at: 'leaf*', count: '== 0'}", leaf1, sends),
			"", "f:7:13: drops needs 8 ports, and the capture at f:4:13 lacks 4 of them"},
		"enough taps for one": {file(soft, "drops: {at: 'leaf*', count: '>= 1'}", leaf1, sends),
			"", ""},
		"drops for no reason": {file(soft, "drops: {reason: nth, count: '>= 1'}", all, sends),
			"f:7:29: no selected port can drop a packet for reason nth", ""},
		"drops for a later reason": {file(soft, "drops: {reason: nth, count: '>= 1'}", all,
			"link: {where: h0--leaf1, set: {drop-every: 3}}"), "", ""},
		"queues of NICs": {file(soft, "queue-depth: {max: '<= 1KB'}", nics, sends),
			"f:7:13: queue-depth needs ports, and the capture at f:4:13 has none of them", ""},
		"queues at NICs": {file(soft, "queue-depth: {at: 'h*', max: '<= 1KB'}", all, sends),
			"f:7:31: NICs do not record their send queues; want ports of switches", ""},
		"queues of routers": {file("kind: router", "queue-depth: {max: '<= 1KB'}", all, sends),
			"f:7:13: queue-depth needs soft switches, and the testbed has none", ""},
		"lossless from a switch": {file(soft, "lossless: {}", leaf1, sends),
			"f:7:13: lossless needs ports, and the capture at f:4:13 has none of them", ""},
		"conservation of NICs": {file(soft, "conservation: '*'", nics, sends),
			"f:7:27: conservation needs ports, and", ""},
		"spread without a choice": {file("kind: bridge", "path-spread: {switch: 'leaf*'}", all, sends),
			`f:7:35: no switch "leaf*" has equal-cost paths`, ""},
		"a sentence of rd over tcp": {file(soft, "that: every rd message is placed exactly once", all,
			overTCP), "f:7:19: no step sends over rd", ""},
		"a rule of encrypted fields": {file(soft, `rule: {never: "tcp || rd.data.total == 0"}`, whole,
			sealed), "", "f:7:13: all reliable datagrams are encrypted, and no step writes keys"},
		"a rule of encrypted fields, cut": {file(soft, `rule: {sum: rd.data.total, is: "<= 1"}`, all,
			opened), "", "f:7:13: encrypted datagrams must be captured whole"},
		"a rule of the base": {file(soft, `rule: {never: "rd.type == 9"}`, whole, sealed), "", ""},
		"encrypted without keys": {file(soft, "that: every rd message is placed exactly once", whole,
			sealed), "f:7:19: all reliable datagrams are encrypted, and no step writes keys", ""},
		"encrypted and cut": {file(soft, "that: every rd message is placed exactly once", all,
			opened), "f:7:19: encrypted datagrams must be captured whole, and the capture at f:4:3 keeps " +
			"576B of each; want snaplen: 1514B there", ""},
		"encrypted with keys": {file(soft, "that: every rd message is placed exactly once", whole,
			opened), "", ""},
		"lossless over a loss": {lossy(soft, "loss: 1%", "lossless: {}"), "",
			"f:7:13: leaf1--spine2 loses packets that leaf1:p3 sends, because of its settings; want a link " +
				"that loses nothing"},
		"lossless over a kernel's loss": {lossy("kind: router", "loss: 1%", "lossless: {}"), "",
			"f:7:13: leaf1--spine2 loses packets"},
		"lossless over bursts": {lossy(soft, "gilbert-elliott: {enter: 1%, leave: 10%}",
			"lossless: {}"), "", "f:7:13: leaf1--spine2 loses packets"},
		"lossless over a list": {lossy(soft, "drop-list: [3]", "lossless: {}"), "",
			"f:7:13: leaf1--spine2 loses packets"},
		"lossless over bit errors": {lossy(soft, "bit-error-ratio: 1e-9", "lossless: {}"), "",
			"f:7:13: leaf1--spine2 loses packets"},
		"drops of no bit errors": {lossy(soft, "loss: 1%", "drops: {reason: bit-error, count: '>= 1'}"),
			"f:7:29: no selected port can drop a packet for reason bit-error", ""},
		"lossless over a flap": {lossy(soft, "flap: {every: 100ms, for: 10ms}", "lossless: {}"), "",
			"f:7:13: leaf1--spine2 loses packets"},
		"lossless beside a loss": {lossy(soft, "loss: 1%", "lossless: {from: h0}"), "", ""},
		"lossless over a later loss": {file(soft, "lossless: {to: h3}", all, sends,
			"link: {where: 'h3--*', set: {loss: 1%}, for: 1s}"), "",
			"f:8:13: h3--leaf2 loses packets that leaf2:p1 sends"},
		"lossless from elsewhere": {file(soft, "lossless: {from: h1, to: h0}", all, sends,
			"link: {where: 'h3--*', set: {loss: 1%}}"), "", ""},
		"lossless after a loss": {file(soft, "lossless: {}",
			"link: {where: 'h3--*', set: {loss: 1%}}", "link: {where: 'h3--*', set: {loss: 0%}}", all, sends),
			"", ""},
		"lossless over a cut": {file(soft, "lossless: {}", all, sends,
			"link: {where: 'h3--* a-to-b', state: down}"), "",
			"f:8:13: h3--leaf2 loses packets that h3:eth0 sends"},
		"lossless around a link": {file(soft, "lossless: {}", all, sends,
			"link: {where: leaf1--spine1, state: down}"), "", ""},
		"no drops of a loss": {lossy(soft, "loss: 1%", "drops: {at: switches, count: '== 0'}"),
			"", "f:7:42: leaf1--spine2 loses packets"},
		"no drops at others": {lossy(soft, "loss: 1%", "drops: {at: 'spine*', count: '== 0'}"),
			"", ""},
		"no drops for others": {lossy(soft, "loss: 1%", "drops: {reason: tail, count: '== 0'}"),
			"", ""},
		"few drops of a loss": {lossy(soft, "loss: 1%", "drops: {count: '<= 100'}"), "", ""},
		"drops of no cut link": {file(soft, "drops: {reason: link-down, count: '>= 1'}", all,
			sends), "",
			"f:7:29: no step takes down a link of the selected ports; want a step with link: {state: down}"},
		"drops of another cut link": {file(soft, "drops: {at: leaf2, reason: link-down, count: '>= 1'}",
			all, sends, "link: {where: h0--leaf1, state: down}"), "",
			"f:8:40: no step takes down a link of the selected ports"},
		"drops of a cut link": {file(soft, "drops: {reason: link-down, count: '>= 1'}", all, sends,
			"link: {where: h0--leaf1, state: down}"), "", ""},
		"drops of a flap": {lossy(soft, "flap: {every: 100ms, for: 10ms}",
			"drops: {at: leaf1, reason: link-down, count: '>= 1'}"), "", ""},
		"drops of a cut direction": {file(soft, "drops: {at: h0, reason: loss, count: '>= 1'}", all,
			sends, "link: {where: h0--leaf1 a-to-b, state: down}"), "", ""},
		"drops of the other direction": {file(soft, "drops: {at: h0, reason: loss, count: '>= 1'}", all,
			sends, "link: {where: h0--leaf1 b-to-a, state: down}"),
			"f:8:37: no selected port can drop a packet for reason loss", ""},
		"reasons of routers": {lossy("kind: router", "loss: 1%",
			"drops: {reason: loss, count: '>= 1'}"),
			"f:7:13: kernel queues count drops without reasons and flows", ""},
		"drops of routers": {lossy("kind: router", "loss: 1%", "drops: {count: '>= 1'}"), "",
			""},
		"order over a reordering link": {lossy(soft, "reorder: 1%", "reordering: {share: '== 0%'}"), "",
			"f:7:33: leaf1--spine2 reorders packets that leaf1:p3 sends"},
		"order that nothing breaks": {file(soft, "reordering: {share: '>= 1%'}", all, sends), "",
			"f:7:33: all packets of a flow take one path"},
		"order of a spray": {file(soft+", load-balance: spray", "reordering: {share: '>= 1%'}",
			all, sends), "", ""},
		"order of a reordering link": {lossy(soft, "reorder: 1%", "reordering: {share: '>= 1%'}"), "",
			""},
		"an outage of no datagrams": {file(soft, "outage: {longest: '<= 1s'}", all, overTCP),
			"f:7:13: outage judges datagrams, and no step sends any", ""},
		"an outage of datagrams": {file(soft, "outage: {longest: '<= 1s'}", all, overRD), "", ""},
		"nothing again over a loss": {file(soft, "roce: {rule: psn, again: '== 0'}", all, roce,
			"link: {where: 'h3--*', set: {drop-every: 9}}"), "",
			"f:8:38: h3--leaf2 loses packets that h3:eth0 sends"},
		"a capture behind": {file(soft, "rank-nic: w", overTCP, all),
			"f:7:23: workload w of step 1 has ended before the capture at f:5:3 begins", ""},
		"a capture in the middle": {file(soft, "rank-nic: w",
			"workload: {name: w, kind: all-reduce, size: 64KiB, background: true}", all), "",
			"f:7:23: workload w begins before the capture at f:5:3"},
	} {
		t.Run(name, func(t *testing.T) {
			text := c.text
			if strings.Contains(text, "kind: bridge") {
				text = strings.Replace(text, "spines: 2", "spines: 1", 1)
			}
			never, hardly := look(t, text)
			for _, one := range []struct{ what, got, want string }{{"never", never, c.never},
				{"hardly", hardly, c.hardly}} {
				if (one.want == "") != (one.got == "") || !strings.HasPrefix(one.got, one.want) ||
					strings.Contains(one.got, "\n") {
					t.Errorf("%s:\n%s\nwant\n%s", one.what, one.got, one.want)
				}
			}
		})
	}
}

// TestLibraryCanBeProved checks that no file of the library has a check that can never pass, or
// will probably not pass.
func TestLibraryCanBeProved(t *testing.T) {
	files, _ := filepath.Glob("../../*.yaml")
	more, _ := filepath.Glob("../../*/*.yaml")
	if len(files) < 20 || len(more) < 20 {
		t.Fatalf("found %d and %d files", len(files), len(more))
	}
	for _, name := range slices.Concat(files, more) {
		file, err := spec.LoadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range file.Cells {
			testbed, err := file.Decode(&file.Cells[i])
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.Compile(testbed)
			if err != nil {
				t.Fatal(err)
			}
			if never, hardly := Look(testbed, p); len(never)+len(hardly) > 0 {
				t.Errorf("%s: %s:\n%v\n%v", name, &file.Cells[i], never, hardly)
			}
		}
	}
}

// TestRingsAcrossRails has a warning for each ring that leaves the rails of its ranks, and none for
// any other.
func TestRingsAcrossRails(t *testing.T) {
	const rails = "{topology: rail-optimized, params: {servers: 3, rails: 2, spines: 1}}"
	// Two servers with a NIC on each of two switches, and one with both NICs on the second.
	const mixed = "{topology: explicit, hosts: [a, b, c], switches: {s: {}, t: {}, up: {}}, connect: " +
		"[a -- s, a -- t, b -- s, b -- t, c -- t, c -- t, s -- up, t -- up]}"
	const single = "{topology: single-switch, params: {hosts: 3}}"
	const leaves = "{topology: leaf-spine, params: {leaves: 2, spines: 1, hosts-per-leaf: 2}}"
	const apart = "{topology: rail-optimized, params: {servers: 3, rails: 2}}"
	const hpn = "{topology: hpn, params: {segments: 2, servers: 2, rails: 2, aggs: 1}}"
	const hierarchical = "; want algorithm: hierarchical, which stays on rails, or auto"
	for name, c := range map[string]struct{ fabric, ranks, workload, want string }{
		"default": {rails, "2", "kind: all-reduce, size: 1MiB",
			"f:5:3: the ring of w crosses rails in 3 of 6 hops: rank 1 on h0:eth1 sends to rank 2 on " +
				"h1:eth0, though rank 3 is on leaf2" + hierarchical},
		"ring": {rails, "2", "kind: all-gather, algorithm: ring, size: 1MiB",
			"f:5:52: the ring of w crosses rails in 3 of 6 hops"},
		"broadcast": {rails, "2", "kind: broadcast, size: 1MiB", "f:5:3: the ring of w crosses rails in 3 " +
			"of 6 hops: rank 1 on h0:eth1 sends to rank 2 on h1:eth0, though rank 3 is on leaf2; want " +
			"ranks: in an order so that neighbours share a node or a switch"},
		"auto of a broadcast": {rails, "2", "kind: broadcast, algorithm: auto, size: 1MiB",
			"f:5:51: the ring"},
		"auto of short broadcast": {rails, "2", "kind: broadcast, algorithm: auto, size: 1KiB", ""},
		"auto with channels": {rails, "2", "kind: all-reduce, algorithm: auto, channels: 2, size: 1MiB",
			"f:5:52: the ring of w crosses rails in 3 of 6 hops"},
		"auto":                     {rails, "2", "kind: all-reduce, algorithm: auto, size: 1MiB", ""},
		"hierarchical":             {rails, "2", "kind: all-reduce, algorithm: hierarchical, size: 1MiB", ""},
		"direct":                   {rails, "2", "kind: all-to-all, size: 1MiB", ""},
		"one rank for each server": {rails, "1", "kind: all-reduce, size: 1MiB", ""},
		"one server":               {rails, "2", "kind: all-reduce, ranks: [0, 1], size: 1MiB", ""},
		"one rail":                 {rails, "2", "kind: all-reduce, ranks: [0, 2, 4], size: 1MiB", ""},
		// Along one rail, within the last server, back along the other rail, within the first.
		"in order":             {rails, "2", "kind: all-reduce, ranks: [0, 2, 4, 5, 3, 1], size: 1MiB", ""},
		"two ranks that cross": {rails, "2", "kind: all-reduce, ranks: [0, 3], size: 1MiB", ""},
		"unequal": {rails, "2", "kind: all-reduce, ranks: [0, 1, 2, 3, 4], size: 1MiB",
			"f:5:3: the ring of w crosses rails in 1 of 5 hops: rank 1 on h0:eth1 sends to rank 2 on " +
				"h1:eth0, though rank 3 is on leaf2; want ranks: in an order"},
		"rails that are apart": {apart, "2", "kind: all-reduce, algorithm: hierarchical, size: 1MiB", ""},
		"sharing a switch":     {single, "2", "kind: all-reduce, size: 1MiB", ""},
		"sharing a NIC":        {leaves, "2", "kind: all-reduce, size: 1MiB", ""},
		"planes":               {hpn, "1", "kind: all-reduce, size: 1MiB", ""},
		"rails of two planes": {hpn, "2", "kind: all-reduce, size: 1MiB",
			"f:5:3: the ring of w crosses rails in 2 of 8 hops: rank 1 on h0:eth2 sends to rank 2 on " +
				"h1:eth0, though rank 3 is on tor-s1r2a" + hierarchical},
		"three servers, of which one has one rail": {mixed, "2", "kind: all-reduce, size: 1MiB",
			"f:5:3: the ring of w crosses rails in 2 of 6 hops: rank 1 on a:eth1 sends to rank 2 on " +
				"b:eth0, though rank 3 is on t; want ranks: in an order"},
	} {
		text := "name: t\nfabric: " + c.fabric + "\nnodes: {default: {ranks: " + c.ranks + "}}\nsteps:\n" +
			"- workload: {name: w, " + c.workload + "}\n"
		never, hardly := look(t, text)
		if never != "" || !strings.HasPrefix(hardly, c.want) || (hardly != "") != (c.want != "") {
			t.Errorf("%s: %q, %q\nwant %q", name, never, hardly, c.want)
		}
	}
}
