package runner

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"railbed/capture/report"
	"railbed/fabric/softswitch"
	"railbed/internal/verdict"
	"railbed/testbed"
	"railbed/testkit/hosttest"
)

// crowd is three hosts that send to one: at priority 3, which is lossless, and at
// priority 4, whose packets are marked and trimmed.
const crowd = `
fabric:
  topology: single-switch
  params: {hosts: 4}
  switch: {kind: soft, buffer: 200KB, pfc: {priorities: [3]}, trim: true, ecn: {kmin: 5KB, kmax: 20KB}}
  links: {default: {rate: 30mbit}}
steps:
  - capture: {at: [all], file: run.pcapng, events: all}
  - traffic: {name: lossless, from: ["h[1-3]"], to: [h0], rate: 20mbit, for: 600ms, dscp: 24, background: true}
  - traffic: {name: lossy, from: ["h[1-3]"], to: [h0], rate: 18mbit, for: 600ms, dscp: 35, ecn: true}
  - sleep: 300ms
checks:
  - packets: {conservation: "*"}
  - packets: {lossless: {priority: 3}}
  - packets: {marks: {at: "leaf1:p0", count: ">= 1"}}
  - packets: {trims: {}}
  - packets: {pauses: {count: ">= 1"}}
`

// TestWiresharkShowsWhatSwitchesDid reads a recording with tshark: what was
// queued, marked, trimmed, paused and dropped, with reason and depth, and PFC as
// IEEE 802.1Qbb.
func TestWiresharkShowsWhatSwitchesDid(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Testbed, hosttest.Tshark)
	o := options(t, crowd)
	r := runAll(t, t.Context(), o)
	for _, c := range r.Checks {
		if c.Verdict == verdict.Fail && r.Fidelity.Verdict == report.Faithful {
			t.Errorf("%s: %s %q", c.Name, c.Summary, c.Details)
		}
	}
	if len(r.Captures) == 0 || r.Captures[0].Dropped() > 0 {
		t.Skipf("cannot run here: the machine is too busy, %+v", r.Captures)
	}
	out, err := exec.Command("tshark", "-r", filepath.Join(o.Out, "run.pcapng"), "-T", "fields", "-E",
		"separator=|",
		"-e", "frame.comment", "-e", "frame.interface_name", "-e", "ip.dsfield.dscp", "-e", "ip.dsfield.ecn",
		"-e", "macc.opcode", "-e", "macc.cbfc.enbv", "-e", "macc.cbfc.pause_time.c3").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for line := range strings.Lines(string(out)) {
		field := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		comment, late, _ := strings.Cut(field[0], " late=")
		if len(field) != 7 || comment == "" || late == "" {
			continue
		}
		what, depth, _ := strings.Cut(comment, " depth=")
		seen[what]++
		right := true
		switch what {
		case "railbed verdict=mark reason=red":
			right = field[1] == "leaf1:p0" && field[3] == "3" && len(depth) >= 4 // above kmin
		case "railbed verdict=trim reason=tail":
			right = field[1] == "leaf1:p0" && field[2] == "59" && len(depth) >= 4
		case "railbed verdict=pause reason=pfc":
			right = field[4] == "0x0101" && field[5] == "0x0008" && field[6] == "65535" &&
				(depth != "0" || field[1][0] == 'h')
		case "railbed verdict=resume reason=pfc":
			right = field[4] == "0x0101" && field[5] == "0x0008" && field[6] == "0"
		case "railbed verdict=drop reason=nic-overrun":
			right = strings.HasPrefix(field[1], "h") && len(depth) >= 5 // a queue of 256 KiB is full
		}
		if !right {
			t.Fatalf("tshark shows %q", line)
		}
	}
	// A busy host may hold the senders up until no queue is full: the recording then shows no drops, as the
	// switches' counters do.
	for what, want := range map[string]uint64{
		"railbed verdict=mark reason=red":         countedAt(r, "red", marksOf),
		"railbed verdict=trim reason=tail":        countedAt(r, "tail", trimsOf),
		"railbed verdict=drop reason=nic-overrun": countedAt(r, "nic-overrun", dropsOf),
	} {
		if uint64(seen[what]) != want || want == 0 && r.Fidelity.Verdict == report.Faithful {
			t.Errorf("%d packets say %q, the switches counted %d; there are %v", seen[what], what, want, seen)
		}
	}
	for _, what := range []string{
		"railbed verdict=pause reason=pfc", "railbed verdict=resume reason=pfc", "railbed verdict=enqueue",
		"railbed verdict=dequeue", "railbed verdict=enqueue reason=red",
	} {
		if seen[what] == 0 {
			t.Errorf("no packet says %q; there are %v", what, seen)
		}
	}
}

type byReason = map[string][8]uint64

func dropsOf(l *report.LinkRate) byReason { return l.Drops }
func marksOf(l *report.LinkRate) byReason { return l.Marks }
func trimsOf(l *report.LinkRate) byReason { return l.Trims }

// countedAt returns how many packets all ports counted for a reason.
func countedAt(r *report.Report, reason string, of func(*report.LinkRate) byReason) uint64 {
	n := uint64(0)
	for i := range r.Fidelity.Links {
		for _, packets := range of(&r.Fidelity.Links[i])[reason] {
			n += packets
		}
	}
	return n
}

// TestInspectShowsQueuesThatMove asks a testbed under load, again and again, how
// long its queues are.
func TestInspectShowsQueuesThatMove(t *testing.T) {
	o := options(t, strings.NewReplacer(", events: all", "", "for: 600ms", "for: 3s").Replace(crowd))
	depths, paused := map[int64]bool{}, 0
	var once sync.Once
	var watching sync.WaitGroup
	o.Progress = func(u Update) {
		if strings.HasPrefix(u.Phase, "[3/4]") {
			once.Do(func() {
				watching.Go(func() {
					watchQueues(t, o.Plan.Name, func(p *softswitch.PortState) {
						if p.Port == "leaf1:p0" {
							depths[p.Waiting()] = true
						}
						if strings.HasPrefix(p.Port, "h") && p.Paused[3] {
							paused++
						}
					})
				})
			})
		}
	}
	runAll(t, t.Context(), o)
	watching.Wait()
	longest := int64(0)
	for depth := range depths {
		longest = max(longest, depth)
	}
	if len(depths) < 3 || longest < 10_000 || paused == 0 {
		t.Errorf("the queue of leaf1:p0 was seen at %v bytes, NICs were seen paused %d times; want queues "+
			"that move", depths, paused)
	}
}

// watchQueues hands out the ports of soft switches until the testbed is gone.
func watchQueues(t *testing.T, name string, see func(*softswitch.PortState)) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tb, err := testbed.Open(ctx, name)
	if err != nil {
		t.Error(err)
		return
	}
	defer tb.Close()
	for {
		state, err := tb.Inspect(ctx)
		if err != nil {
			return // it is over
		}
		for _, link := range state.Links {
			for _, port := range []*softswitch.PortState{link.A.Soft, link.B.Soft} {
				if port != nil {
					see(port)
				}
			}
		}
	}
}
