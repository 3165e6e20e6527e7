package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"railbed/capture/display"
	"railbed/capture/follow"
	"railbed/capture/pcapng"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// summed has a rank far away, whose contributions come last, and a link that loses contributions and sums.
const summed = `
fabric:
  topology: single-switch
  params: {hosts: 4}
  switch: {kind: soft, aggregation: {slots: 16, elements: 256, timeout: 20s}}
  links:
    default: {rate: 200mbit, delay: 20us}
    "h1--leaf1": {loss: 5%}
    "h2--leaf1": {delay: 5ms}
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: sum, kind: all-reduce, algorithm: in-network, size: 64KiB, iterations: 2}
`

// TestTimesOfSumsAddUp follows the contributions to the sums of a switch. Each one's parts add up to its
// time, from the first record of the contribution at the NIC to the first record of the sum. These records
// are found by the fields of the packets alone.
func TestTimesOfSumsAddUp(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Testbed)
	o := options(t, summed)
	r := runAll(t, t.Context(), o)
	if r.Verdict != verdict.Pass && r.Verdict != verdict.Overloaded {
		want(t, r, verdict.Pass)
	}
	recording := recordingOf(t, o)
	shown := sumsOf(t, filepath.Join(o.Out, "run.pcapng"))
	var total follow.Account
	found := 0
	for i := range recording.Messages {
		m := &recording.Messages[i]
		f := &recording.Flows[m.Flow]
		if f.Protocol != "agg" {
			continue
		}
		found++
		one := contribution{f.From, m.Start, m.Placed}
		if shown[one]--; shown[one] < 0 || f.Workload != "sum" || f.To != "leaf1" ||
			m.Account.Total() != m.Placed-m.Start {
			t.Errorf("message %d of %s to %s, workload %q, of %d ns, is not in the recording; its parts "+
				"are %v",
				m.Number, f.From, f.To, f.Workload, m.Placed-m.Start, m.Account)
		}
		total.Add(&m.Account)
	}
	for one, times := range shown {
		if times > 0 || found == 0 {
			t.Errorf("%+v: %d times more in the recording", one, times)
		}
	}
	for _, part := range []follow.Part{follow.Recover, follow.Gather, follow.Serialise, follow.Propagate} {
		if total[part] <= 0 {
			t.Errorf("no contribution spent time on %v", part)
		}
	}
	answers := recording.Why(recording.Select(follow.Selection{Workload: "sum"}))
	named := map[string]bool{}
	for _, c := range answers[0].Causes {
		for _, at := range c.Where {
			named[c.Part+" "+at+" "+c.What] = true
		}
	}
	if answers[0].Unfinished != 0 || !named["gather h2 its contributions to sums came last"] {
		t.Errorf("%d unfinished, the causes are %v", answers[0].Unfinished, named)
	}
}

// contribution is a contribution of a node, with the times of its first record and of the first record of its
// sum. Packets that a program hands to the NIC together start at one time.
type contribution struct {
	node          string
	start, placed int64
}

// sumsOf counts the contributions.
func sumsOf(t *testing.T, path string) map[contribution]int {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in, err := pcapng.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	compile := func(text string) *display.Filter {
		f, err := display.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	const nic = `railbed.port == "eth0" && !(railbed.verdict == "drop")`
	sent := compile(nic + " && railbed_agg.kind == 1 && frame.packet_flags_direction == 2")
	came := compile(nic + " && railbed_agg.kind == 2 && frame.packet_flags_direction == 1")
	var key []*display.Field
	for _, name := range []string{"railbed.node", "railbed_agg.epoch", "railbed_agg.slot",
		"railbed_agg.round"} {
		key = append(key, display.FieldNamed(name))
	}
	begun, sums := map[string]*contribution{}, map[contribution]int{}
	for packets := display.NewDecoder(in); ; {
		p, err := packets.Next()
		if errors.Is(err, io.EOF) {
			for _, one := range begun {
				sums[*one]++
			}
			return sums
		}
		if err != nil {
			t.Fatal(err)
		}
		of := ""
		for _, field := range key {
			of += fmt.Sprint(field.Texts(p), " ")
		}
		switch one := begun[of]; {
		case sent.Match(p) && one == nil:
			begun[of] = &contribution{node: key[0].Texts(p)[0], start: p.Raw.Time}
		case came.Match(p) && one != nil && one.placed == 0:
			one.placed = p.Raw.Time
		}
	}
}
