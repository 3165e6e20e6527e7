package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

// faulted is a file with a ping of 8 packets over faults at the port to h1, and a check.
func faulted(faults, check string) string {
	return `
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {rate: 100mbit, delay: 50us}}
steps:
  - capture: {at: [all], file: run.pcapng}
` + faults + `
  - exec: {name: ping, nodes: [h0], command: [ping, "-4", -c, "8", -i, "0.05", h1]}
checks:
  - packets: {` + check + `}
`
}

// TestFaultsHitPacketsOfPrograms: ping sees the effects of the faults, the capture names them, and lossless
// passes.
func TestFaultsHitPacketsOfPrograms(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	o := options(t, faulted(`
  - fault: {name: lost, where: "h1--leaf1 b-to-a", match: "icmp.type == 8", drop: {nth: [2, 4]}}
  - fault: {name: late, where: h0, match: "icmp.type == 8", delay: {by: 30ms, nth: [1]}}
  - fault: {where: leaf1, match: "icmp.type == 0", duplicate: {nth: [2]}}
  - fault: {where: "leaf1:p0", match: "icmp.type == 0", corrupt: {at: 60B, nth: [4]}}
`, `lossless: {from: h0, to: h1}}
  - packets: {drops: {reason: fault, count: "== 2"}}
  - packets: {rule: {count: 'railbed.fault in {"lost", "late", "fault-3", "fault-4"}', is: "== 5"}`))
	r := runAll(t, t.Context(), o)
	want(t, r, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass)
	hits := map[string]uint64{}
	for _, f := range r.Faults {
		hits[f.Name] = f.Hit
	}
	for name, count := range map[string]uint64{"lost": 2, "late": 1, "fault-3": 1, "fault-4": 1} {
		if hits[name] != count {
			t.Errorf("fault %s hit %d packets, want %d", name, hits[name], count)
		}
	}
	logs, err := filepath.Glob(filepath.Join(o.Out, "logs", "h0", "*out*"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %v, %v", logs, err)
	}
	printed, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"6 received, +1 duplicates", "(DUP!)", "wrong data byte"} {
		if !strings.Contains(string(printed), text) {
			t.Errorf("ping does not say %q:\n%s", text, printed)
		}
	}
	for _, seq := range []string{"icmp_seq=2 ", "icmp_seq=4 "} {
		if strings.Contains(string(printed), seq) {
			t.Errorf("ping got an answer of %s", seq)
		}
	}
}

// kernelFaulted is the same at a router of the kernel, without a delay, which needs a module.
func kernelFaulted(faults, check string) string {
	return strings.NewReplacer("kind: soft", "kind: router", ", delay: 50us", "").
		Replace(faulted(faults, check))
}

// TestKernelFaultsAreRecorded: the capture has each packet that faults at kernel links and switches hit, and
// the checks believe it.
func TestKernelFaultsAreRecorded(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Ping)
	o := options(t, kernelFaulted(`
  - fault: {name: unsent, where: "h0:eth0", match: "icmp.type == 8", drop: {nth: [1]}}
  - fault: {name: lost, where: "h1--leaf1 b-to-a", match: "icmp.type == 8", drop: {nth: [2, 4]}}
  - fault: {name: copy, where: "leaf1:p0", match: "icmp.type == 0", duplicate: {nth: [2]}}
  - fault: {name: bad, where: "leaf1:p0", match: "icmp.type == 0", corrupt: {at: 60B, nth: [4]}}
`, `lossless: {from: h0, to: h1}}
  - packets: {lossless: {}}
  - packets: {conservation: "*"}
  - packets: {drops: {reason: fault, count: "== 3"}}
  - packets: {rule: {count: 'railbed.fault in {"lost", "unsent"} && railbed.verdict == "drop"', is: "== 3"}}
  - packets: {rule: {count: 'railbed.fault == "copy" && railbed.verdict == "duplicate"', is: "== 1"}}
  - packets: {rule: {count: 'railbed.fault == "bad" && railbed.verdict == "corrupt"', is: "== 1"}`))
	r := runAll(t, t.Context(), o)
	if r.Verdict == verdict.Unsupported {
		t.Skip(r.Reason)
	}
	want(t, r, verdict.Pass, slices.Repeat([]verdict.Verdict{verdict.Pass}, 7)...)
	for _, f := range r.Faults {
		if count := map[string]uint64{"unsent": 1, "lost": 2, "copy": 1, "bad": 1}[f.Name]; f.Hit != count {
			t.Errorf("fault %s hit %d packets, want %d", f.Name, f.Hit, count)
		}
	}
}

// TestKernelFaultsThatChangePackets: a router refuses the packet whose header a fault at the NIC breaks, and
// two faults change one packet.
func TestKernelFaultsThatChangePackets(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Ping)
	o := options(t, kernelFaulted(`
  - fault: {name: header, where: "h0:eth0", match: "icmp.type == 8", corrupt: {at: 22B, nth: [1]}}
  - fault: {name: bad, where: "h1--leaf1 b-to-a", match: "icmp.type == 8", corrupt: {at: 60B, nth: [2]}}
  - fault: {name: worse, where: "h1--leaf1 b-to-a", match: "icmp.type == 8", corrupt: {at: 62B, nth: [2]}}
  - fault: {name: marks, where: "leaf1:p0", match: "icmp.type == 0", mark: {nth: [1]}}
`, `lossless: {from: h0, to: h1}}
  - packets: {lossless: {}}
  - packets: {conservation: "*"}
  - packets: {marks: {at: leaf1, count: "== 1"}`))
	for i := range o.File.Steps {
		if exec := o.File.Steps[i].Exec; exec != nil {
			exec.Command = slices.Insert(exec.Command, 1, "-Q", "2") // ECN-capable
		}
	}
	r := runAll(t, t.Context(), o)
	if r.Verdict == verdict.Unsupported {
		t.Skip(r.Reason)
	}
	want(t, r, verdict.Pass, slices.Repeat([]verdict.Verdict{verdict.Pass}, 4)...)
	const says = "2 did not arrive as they left because a fault changed"
	if !strings.Contains(r.Checks[1].Summary, says) {
		t.Errorf("%+v, want %q", r.Checks[1], says)
	}
}

// TestFaultsWithoutATap: a recording of NICs lacks the packets that a fault at a switch drops. The fabric is
// not to blame for them.
func TestFaultsWithoutATap(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	o := options(t, strings.Replace(faulted(`
  - fault: {name: lost, where: "leaf1:p1", match: "icmp.type == 8", drop: {nth: [2, 4]}}
`, `lossless: {from: h0, to: h1}`), "at: [all]", "at: [nics]", 1))
	want(t, runAll(t, t.Context(), o), verdict.Inconclusive, verdict.Inconclusive)
}

// TestFaultThatHitsNothingProvesNothing: the run is inconclusive, whatever its checks say.
func TestFaultThatHitsNothingProvesNothing(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	r := runAll(t, t.Context(), options(t, faulted(`
  - fault: {name: idle, where: h0, match: "icmp.type == 8", drop: {nth: [9]}}
`, `lossless: {from: h0, to: h1}`)))
	carried(t, r)
	if r.Verdict != verdict.Inconclusive ||
		!strings.Contains(r.Reason, "fault idle at h0 hit no packet: 8 packets matched") {
		t.Errorf("%s: %q", r.Verdict, r.Reason)
	}
	if len(r.Checks) != 1 || r.Checks[0].Verdict != verdict.Pass {
		t.Errorf("checks %+v", r.Checks)
	}
}

// TestFaultEndsByItself: after its time it hits nothing, and the run waits for its end.
func TestFaultEndsByItself(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	r := runAll(t, t.Context(), options(t, faulted(`
  - fault: {name: brief, where: h0, match: "icmp.type == 8", duplicate: {}, for: 2s}
  - fault: {name: briefer, where: h1, match: "icmp.type == 0", duplicate: {}, for: 1ms}
  - sleep: 50ms
`, `drops: {at: switches, count: "== 0"}`)))
	carried(t, r)
	if r.Verdict != verdict.Inconclusive { // briefer hits nothing
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
	for _, f := range r.Faults {
		if hit := f.Name == "brief"; (f.Hit == 8) != hit || (f.Hit == 0) == hit {
			t.Errorf("%+v", f)
		}
	}
	for _, s := range r.Steps {
		if strings.HasPrefix(s.Name, "fault brief ") && (s.State != report.Passed || s.End-s.Start < 2) {
			t.Errorf("%+v", s)
		}
	}
}

// everyFault is a file with the faults that change, hold or misroute packets.
const everyFault = `
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}
  switch: {kind: soft}
  links: {default: {rate: 200mbit}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - fault: {name: short, where: h0, match: icmp.type == 8, rewrite: {field: ip.ttl, to: 1, nth: [2]}}
  - fault: {name: wrong, where: h0, match: icmp.type == 8, rewrite: {field: ip.id, to: 7,
      checksums: keep, nth: [4]}}
  - fault: {name: copy, where: h0, match: icmp.type == 8, mirror: {to: h3, nth: [1, 3]}}
  - fault: {name: swapped, where: h0, match: icmp.type == 8, reorder: {by: 1, nth: [5]}}
  - exec: {name: ping, nodes: [h0], command: [ping, "-4", -c6, "-i0.2", -W1, h2]}
  - fault: {name: astray, where: leaf1, match: udp, misroute: {to: h1--leaf1, flows: 50%}}
  - fault: {name: slow, where: h0, match: udp, limit: {rate: 4mbit}}
  - fault: {name: still, where: h0, match: udp, pause: {priorities: [0], quanta: 65535, nth: [1]}}
  - traffic: {name: load, from: [h0], to: [h2], flows: 16, rate: 5mbit, size: 1000B, for: 300ms}
  - sleep: 400ms
  - fault: {name: off, where: "spine*", reboot: true, for: 300ms}
  - traffic: {name: more, from: [h1], to: [h3], flows: 4, rate: 5mbit, size: 1000B, for: 200ms}
checks:
  - packets: {conservation: "*"}
  - packets: {lossless: {from: h0, to: h2}}
  - packets: {rule: {name: swapped, count: railbed.fault == "swapped" && railbed.reason == "fault", is: == 1}}
  - packets: {pauses: {count: ">= 1"}}
`

// TestFaultsThatChangePackets: programs see the effects of each fault, and lossless does not fail because of
// packets that the faults changed, held or misrouted.
func TestFaultsThatChangePackets(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	o := options(t, everyFault)
	r := runAll(t, t.Context(), o)
	want(t, r, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass)
	hits := map[string]report.Fault{}
	for _, f := range r.Faults {
		hits[f.Name] = f
	}
	for name, count := range map[string]uint64{"short": 1, "wrong": 1, "copy": 2, "swapped": 1, "still": 1} {
		if hits[name].Hit != count {
			t.Errorf("fault %s hit %d packets, want %d", name, hits[name].Hit, count)
		}
	}
	if f := hits["astray"]; f.Hit == 0 || f.Hit == f.Matched {
		t.Errorf("half of the flows are %d of %d packets", f.Hit, f.Matched)
	}
	for _, f := range r.Faults {
		if f.Late <= 0 || f.Late > r.Finished.Sub(r.Started).Seconds() {
			t.Errorf("fault %s was %v s late", f.Name, f.Late)
		}
	}
	if f := hits["off"]; f.Hit == 0 {
		t.Errorf("no packet was lost in the reboot: %+v", f)
	}
	printed := readOut(t, o, "logs/h0/ping.out")
	for _, text := range []string{"icmp_seq=2 Time to live exceeded", "6 packets transmitted, 4 received, "} {
		if !strings.Contains(printed, text) {
			t.Errorf("ping does not say %q:\n%s", text, printed)
		}
	}
}

// TestPartition: nodes of different sets do not reach each other, and nodes of one set do.
func TestPartition(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	r := runAll(t, t.Context(), options(t, `
fabric: {topology: single-switch, params: {hosts: 4}, switch: {kind: soft}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - fault: {name: parted, partition: [[h0, h1], ["h[2-3]"]], for: 3s}
  - exec: {name: within, nodes: [h0], command: [ping, -c1, -W1, h1]}
  - exec: {name: across4, nodes: [h0], command: [ping, "-4", -c1, "-W0.3", h2], expect: 1}
  - exec: {name: across6, nodes: [h3], command: [ping, "-6", -c1, "-W0.3", h1], expect: 1}
checks:
  - packets: {drops: {reason: fault, count: ">= 2"}}
  - packets: {lossless: {}}
`))
	want(t, r, verdict.Pass, verdict.Pass, verdict.Pass)
}

// reducing is a file with an all-reduce of three ranks, and a fault while it runs.
func reducing(transport, fault string) string {
	return `
fabric: {topology: single-switch, params: {hosts: 3}, switch: {kind: soft}, links: {default: {rate: 200mbit}}}
nodes: {default: {ranks: 1}}
steps:
  - workload:
      {name: ar, kind: all-reduce, algorithm: ring, transport: ` + transport + `, size: 1MiB, iterations: 40}
  - at: 700ms
    fault: ` + fault + `
checks:
  - workload: {name: ar, correct: true}
`
}

// TestFaultsOfPrograms: one rank of a node stops while others go on, and a program is killed by its name.
func TestFaultsOfPrograms(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	o := options(t, `
fabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: soft}, links: {default: {rate: 200mbit}}}
nodes: {default: {ranks: 2}}
steps:
  - exec: {name: long, nodes: ["*"], command: [sh, -c, "sleep 600; echo ended"], background: true}
  - sleep: 200ms
  - fault: {name: ended, where: h1, program: "sle*", crash: true}
  - fault: {name: still, rank: 2, hang: true, for: 600ms}
  - workload: {name: ar, kind: all-reduce, algorithm: ring, size: 1MiB, iterations: 20, background: true}
  - sleep: 700ms
  - fault: {name: later, rank: 3, hang: true, for: 500ms}
checks:
  - workload: {name: ar, correct: true}
`)
	r := runAll(t, t.Context(), o)
	carried(t, r)
	hits := map[string]uint64{}
	for _, f := range r.Faults {
		hits[f.Name] = f.Hit
	}
	// The sleep of h1 ended, and not that of h0. Rank 2 did not run when the fault began.
	if hits["ended"] != 1 || hits["still"] != 0 || hits["later"] != 1 {
		t.Errorf("hits %v", hits)
	}
	if !strings.Contains(r.Reason, "fault still found no program") || r.Checks[0].Verdict != verdict.Pass {
		t.Errorf("%s: %s, %+v", r.Verdict, r.Reason, r.Checks)
	}
	// Logs without a word are not kept.
	if printed := readOut(t, o, "logs/h1/long.out"); printed != "ended\n" ||
		exists(filepath.Join(o.Out, "logs/h0/long.out")) {
		t.Errorf("h1 printed %q", printed)
	}
}

// TestSlowNode: a program that wants a whole core gets a share of it while the fault lasts, and all of it
// afterwards.
func TestSlowNode(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Root, hosttest.Python)
	const burn = "python3 -c 'import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass\n" +
		"print(time.process_time())'"
	o := options(t, `
fabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: soft}}
steps:
  - fault: {name: slowed, where: h1, slow: {cpu: 0.1}, for: 1500ms}
  - exec: {name: busy, nodes: [h1], command: [sh, -c, "`+strings.ReplaceAll(burn, "\n", "\\n")+`"]}
  - sleep: 600ms
  - exec: {name: free, nodes: [h1], command: [sh, -c, "`+strings.ReplaceAll(burn, "\n", "\\n")+`"]}
`)
	r := runAll(t, t.Context(), o)
	carried(t, r)
	var busy, free float64
	if _, err := fmt.Sscan(readOut(t, o, "logs/h1/busy.out"), &busy); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(readOut(t, o, "logs/h1/free.out"), &free); err != nil {
		t.Fatal(err)
	}
	// A period of 100 ms has a quota of 10 ms. Elsewhere the host may be busy, so that only the ratio counts.
	if free < 0.6 {
		t.Skipf("cannot run here: idle cores: a program without limits had %.2f s of a second", free)
	}
	if busy > 0.25 || free < 2*busy {
		t.Errorf("%.2f s of processor time while slowed, %.2f s afterwards", busy, free)
	}
	if len(r.Faults) != 1 || r.Faults[0].Hit != 1 {
		t.Errorf("%+v", r.Faults)
	}
}

// TestLittleMemory: a program that has more memory than a fault leaves is killed, others go on, and programs
// have all memory again afterwards. A limit that no program reached proves nothing.
func TestLittleMemory(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Root, hosttest.Python)
	littleMemory(t, spec.Netns)
}

// TestLittleMemoryInAGuest: the programs of a virtual machine have little memory, and its kernel has all.
func TestLittleMemoryInAGuest(t *testing.T) {
	hosttest.Need(t, hosttest.VM, hosttest.Tap, hosttest.Python)
	littleMemory(t, spec.VM)
}

func littleMemory(t *testing.T, runtime string) {
	const takes = `python3, -c, "import os, time; a = b'x' * (96 << 20); open('/tmp/ready', 'w'); `
	r := runAll(t, t.Context(), options(t, `
fabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: router}, links: {default: {rate: 500kbit}}}
nodes: {h1: {runtime: `+runtime+`}}
steps:
  - exec: {name: large, nodes: [h1], command: [`+takes+`time.sleep(600)"], background: true}
  - exec: {name: ready, nodes: [h1], command: [sh, -c, 'until [ -e /tmp/ready ]; do sleep 0.05; done'],
      timeout: 2m}
  - fault: {name: tight, where: h1, memory: 48MiB, for: 500ms}
  - exec: {name: small, nodes: [h1], command: [python3, -c, "a = b'x' * (8 << 20)"]}
  - exec: {name: later, nodes: [h1], command: [sh, -c, 'until "$@"; do sleep 0.1; done', sh, `+takes+`"],
      timeout: 2m}
  - fault: {name: unfelt, where: h1, memory: 448MiB}
`))
	carried(t, r)
	faults := map[string]report.Fault{}
	for _, f := range r.Faults {
		faults[f.Name] = f
	}
	if f := faults["tight"]; f.Hit != 1 || len(f.Places) != 1 || f.Places[0].Killed == 0 {
		t.Errorf("%+v", f)
	}
	if f := faults["unfelt"]; f.Matched != 1 || f.Hit != 0 ||
		!strings.Contains(r.Reason, "fault unfelt at h1 took no memory: the programs never needed more") {
		t.Errorf("%s: %s, %+v", r.Verdict, r.Reason, f)
	}
}

// TestFullDisk: programs get ENOSPC while the fault lasts, in a /tmp with and without files, and room later.
// Other file systems and reading are not concerned, and a disk cannot be filled twice.
func TestFullDisk(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const grows = "while head -c 65536 /dev/zero >>/tmp/new; do sleep 0.02; done; echo full; ls /tmp; " +
		"until head -c 65536 /dev/zero >>/tmp/new; do sleep 0.02; done; echo room; echo >/dev/shm/done"
	o := options(t, `
fabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: soft}}
steps:
  - exec: {name: grow, nodes: [h1], command: [sh, -c, "`+grows+`"], background: true}
  - fault: {name: brief, where: h1, disk: full, for: 1s}
  - fault: {name: kept, where: h0, disk: full}
  - exec: {name: short, nodes: [h0], command: [sh, -c, "head -c 1 /dev/zero >/tmp/a"], expect: 1}
  - exec: {name: done, nodes: [h1], command: [sh, -c, "until [ -e /dev/shm/done ]; do sleep 0.05; done"],
      timeout: 1m}
  - fault: {name: twice, where: h0, disk: full}
`)
	r := runAll(t, t.Context(), o)
	if printed := readOut(t, o, "logs/h1/grow.out"); printed != "full\nnew\nroom\n" {
		t.Errorf("h1 printed %q", printed)
	}
	for _, log := range []string{"logs/h1/grow.err", "logs/h0/short.err"} {
		if printed := readOut(t, o, log); !strings.Contains(printed, "No space left on device") {
			t.Errorf("%s has %q", log, printed)
		}
	}
	for i, step := range r.Steps[1:] { // the first is ended when the last fails
		twice := i == len(r.Steps)-2
		refused := strings.Contains(step.Error, "another fault has filled it")
		if twice != refused || !twice && step.Error != "" {
			t.Errorf("%+v", step)
		}
	}
	if len(r.Faults) != 2 || r.Faults[0].Hit != 1 || r.Faults[1].Hit != 1 {
		t.Errorf("%+v", r.Faults)
	}
}

// TestHangEnds: ranks that stand still for a while go on, and the result is right.
func TestHangEnds(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	r := runAll(t, t.Context(), options(t, reducing("tcp", "{name: still, where: h1, hang: true, for: 1s}")))
	want(t, r, verdict.Pass, verdict.Pass)
	for _, w := range r.Workloads {
		if w.Name == "ar" && r.Steps[0].End-r.Steps[0].Start < 1 {
			t.Errorf("the workload took %.2f s", r.Steps[0].End-r.Steps[0].Start)
		}
	}
	if len(r.Faults) != 1 || r.Faults[0].Hit < 1 {
		t.Errorf("faults %+v", r.Faults)
	}
}

// TestFaultsThatProveNothing: a run with a fault that missed its packets is INCONCLUSIVE.
func TestFaultsThatProveNothing(t *testing.T) {
	for want, f := range map[string]report.Fault{
		"":                                       {Does: "drop", Matched: 3, Hit: 1},
		"hit no packet: 3 packets matched":       {Does: "drop", Matched: 3},
		"counted 2 times several packets as one": {Does: "drop", Matched: 3, Hit: 1, Joined: 2},
		"let it change all but 1 of its packets": {Does: "drop", Matched: 3, Hit: 2, Refused: 1},
	} {
		r := run{report: &report.Report{Faults: []report.Fault{f}}}
		if got := r.idleFault(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
}

// TestFaultBeforeTheTraffic: the reason says that the fault was over before the first packet, also if a check
// fails because of it.
func TestFaultBeforeTheTraffic(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	for checks, want := range map[string]verdict.Verdict{
		"": verdict.Inconclusive,
		"checks:\n  - packets: {drops: {reason: fault, count: '>= 1'}}\n": verdict.Fail,
	} {
		r := runAll(t, t.Context(), options(t, `
fabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: soft}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - fault: {name: early, where: h0--leaf1, drop: {share: 50%}, for: 10ms}
  - sleep: 1s # intervals of the links' time lines last longer on a busy machine
  - workload: {name: ar, kind: all-reduce, size: 4KiB}
`+checks))
		const hit, remedy = "fault early at h0--leaf1 hit no packet: 0 packets matched from ",
			"; start the fault by an event (when:)"
		if r.Verdict != want || !strings.Contains(r.Reason, hit) || !strings.HasSuffix(r.Reason, remedy) {
			t.Errorf("%s: %s", r.Verdict, r.Reason)
		}
		for _, c := range r.Checks {
			if len(c.Commands) > 0 {
				t.Errorf("%q shows nothing: no packet was dropped", c.Commands)
			}
		}
	}
}
