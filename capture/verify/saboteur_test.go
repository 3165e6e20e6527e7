package verify

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/capture/pcapng"
	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// tape is a capture file in parts, to be altered and written again.
type tape struct {
	section    pcapng.Section
	interfaces []pcapng.Interface
	packets    []pcapng.Packet
	counts     []pcapng.Statistics // by interface
	cut        int                 // bytes that are missing from the end
}

func readTape(t testing.TB, file []byte) *tape {
	t.Helper()
	reader, err := pcapng.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var c tape
	for {
		p, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		q := *p
		q.Data, q.Comments = bytes.Clone(p.Data), nil
		for _, comment := range p.Comments {
			q.Comments = append(q.Comments, bytes.Clone(comment))
		}
		c.packets = append(c.packets, q)
	}
	c.section, c.interfaces = reader.Section(), slices.Clone(reader.Interfaces())
	c.counts = slices.Clone(reader.Statistics())
	slices.SortFunc(c.counts, func(a, b pcapng.Statistics) int {
		return cmp.Compare(a.Interface, b.Interface)
	})
	return &c
}

func (c *tape) clone() *tape {
	d := *c
	d.interfaces, d.packets, d.counts = slices.Clone(c.interfaces), slices.Clone(c.packets),
		slices.Clone(c.counts)
	return &d
}

func (c *tape) write(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := pcapng.NewWriter(&out, c.section)
	for i := 0; err == nil && i < len(c.interfaces); i++ {
		_, err = w.AddInterface(c.interfaces[i])
	}
	for i := 0; err == nil && i < len(c.packets); i++ {
		err = w.WritePacket(&c.packets[i])
	}
	for i := 0; err == nil && i < len(c.counts); i++ {
		err = w.WriteStatistics(c.counts[i])
	}
	if err = errors.Join(err, w.Flush()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()[:out.Len()-c.cut]
}

// only keeps some packets. With counted, the file's counts are adjusted to the packets kept.
func (c *tape) only(keep func(*pcapng.Packet) bool, counted bool) {
	kept := c.packets[:0:0]
	for i := range c.packets {
		p := &c.packets[i]
		if keep(p) {
			kept = append(kept, *p)
		} else if counted {
			s := &c.counts[p.Interface]
			s.Received, s.Accepted, s.Delivered = s.Received-1, s.Accepted-1, s.Delivered-1
		}
	}
	c.packets = kept
}

// without removes a tap.
func (c *tape) without(tap int) {
	c.only(func(p *pcapng.Packet) bool { return p.Interface != tap }, false)
	c.interfaces, c.counts = slices.Delete(c.interfaces, tap, tap+1), slices.Delete(c.counts, tap, tap+1)
	for i := range c.packets {
		if c.packets[i].Interface > tap {
			c.packets[i].Interface--
		}
	}
	for i := range c.counts {
		if c.counts[i].Interface > tap {
			c.counts[i].Interface--
		}
	}
}

// span is the time of a part of the packets.
func (c *tape) span(from, to int) func(*pcapng.Packet) bool {
	n := len(c.packets)
	first, last := c.packets[n*from/100].Time, c.packets[min(n*to/100, n-1)].Time
	return func(p *pcapng.Packet) bool { return p.Time < first || p.Time > last }
}

// sabotage alters a recording of a run; the run itself stays as it was.
type sabotage struct {
	name string
	// amount says how much is altered, for the page.
	amount string
	do     func(c *tape, o *evidence.Options, random *rand.Rand)
	// split replaces the recording by several, if it is not nil.
	split func(c *tape, random *rand.Rand) []*tape
	// of selects the checks that it is for, by their names. Nil selects all.
	of func(check string) bool
	// harmless is set if the recording keeps all its evidence: verdicts stay.
	harmless bool
	// total is set if it removes evidence that every check needs.
	total bool
	// breaks is set if the altered recording is one of a broken run.
	breaks bool
	// counted is set if the recording then counts losses, which are among the limits of fidelity.
	counted bool
}

// The amounts of the sabotages.
const (
	exchanges     = 50                     // pairs of records
	exchangeReach = 39                     // largest distance of a pair, in records.
	cutPercent    = 40                     // of the packets, removed by each cut.
	cutMiddle     = 30                     // percent of the packets before the middle cut.
	truncateFrom  = 20                     // percent of the bytes of packets, at least, that are missing.
	truncateTo    = 80                     // percent that the missing bytes never reach.
	loseOneIn     = 10                     // packets.
	clockShift    = 300 * time.Millisecond // of the clock of one tap.
	clockNudge    = 50 * time.Millisecond  // as clockShift, about as long as a packet may be under way.
	snapLength    = 30                     // bytes of each packet that remain.
)

var (
	lossAmount   = fmt.Sprintf("each packet is removed with a probability of 1/%d", loseOneIn)
	shiftAmount  = fmt.Sprintf("by %d ms, one tap at random", clockShift.Milliseconds())
	nudgeAmount  = fmt.Sprintf("by %d ms, one tap at random", clockNudge.Milliseconds())
	othersAmount = fmt.Sprintf("by 2 to %d ms, one tap at random; the file is not Railbed's",
		clockNudge.Milliseconds())
	machineAmount = fmt.Sprintf("by 2 to %d ms, all NICs of one node with packets at random; the file is "+
		"not Railbed's", clockNudge.Milliseconds())
)

var sabotages = []sabotage{
	{name: "repeated record", harmless: true,
		amount: "one record at random is written twice",
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			i := random.IntN(len(c.packets))
			c.packets = slices.Insert(c.packets, i, c.packets[i])
		}},
	{name: "neighbours exchanged", harmless: true,
		amount: fmt.Sprintf("%d pairs of records, at most %d apart, change places", exchanges, exchangeReach),
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			for range exchanges {
				i, j := random.IntN(len(c.packets)), random.IntN(exchangeReach+1)
				j = min(i+j, len(c.packets)-1)
				c.packets[i], c.packets[j] = c.packets[j], c.packets[i]
			}
		}},
	{name: "tap missing",
		amount: "one tap at random is removed, with its packets and counts",
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			c.without(random.IntN(len(c.interfaces)))
		}},
	{name: "one tap left",
		amount: "the others are removed, with packets and counts",
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			for keep := random.IntN(len(c.interfaces)); len(c.interfaces) > 1; {
				if last := len(c.interfaces) - 1; last > keep {
					c.without(last)
				} else {
					c.without(0)
					keep--
				}
			}
		}},
	{name: "filtered",
		amount: "the taps have the filter `arp`: only ARP remains",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			for i := range c.interfaces {
				c.interfaces[i].Filter = "arp"
			}
			c.only(func(p *pcapng.Packet) bool {
				return len(p.Data) > 13 && p.Data[12] == 8 && p.Data[13] == 6
			}, true)
		}},
	{name: "beginning cut", total: true,
		amount: fmt.Sprintf("the first %d %% of the packets are removed; counts stay", cutPercent),
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.only(c.span(0, cutPercent), false)
		}},
	{name: "middle cut", total: true,
		amount: fmt.Sprintf("%d %% of the packets are removed, after the first %d %%; counts stay",
			cutPercent, cutMiddle),
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.only(c.span(cutMiddle, cutMiddle+cutPercent), false)
		}},
	{name: "end cut", total: true,
		amount: fmt.Sprintf("the last %d %% of the packets are removed; counts stay", cutPercent),
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.only(c.span(100-cutPercent, 100), false)
		}},
	{name: "file truncated", total: true,
		amount: fmt.Sprintf("the end is removed, %d to %d %% of the packets' bytes",
			truncateFrom, truncateTo-1),
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			size := 0
			for i := range c.packets {
				size += len(c.packets[i].Data)
			}
			c.cut = size / 100 * (truncateFrom + random.IntN(truncateTo-truncateFrom))
		}},
	{name: "counts missing", total: true,
		amount: "every tap loses its counts",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.counts = nil
		}},
	{name: "comments of packets removed",
		amount: "every packet loses its comments",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.strip()
		}},
	{name: "comments of packets and taps removed", total: true,
		amount: "every packet and tap loses them",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.strip()
			for i := range c.counts {
				c.counts[i].Comments = nil
			}
		}},
	{name: "all comments removed", total: true,
		amount: "the file, every packet and tap lose them",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.strip()
			c.section.Comments = nil
			for i := range c.counts {
				c.counts[i].Comments = nil
			}
		}},
	{name: "lost and counted", counted: true,
		amount: lossAmount,
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			c.only(func(p *pcapng.Packet) bool {
				lose := random.IntN(loseOneIn) == 0
				if lose {
					c.counts[p.Interface].Dropped++
					c.counts[p.Interface].Delivered--
				}
				return !lose
			}, false)
		}},
	{name: "lost without a count",
		amount: lossAmount,
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			c.only(func(*pcapng.Packet) bool { return random.IntN(loseOneIn) > 0 }, false)
		}},
	{name: "one record lost without a count",
		amount: "a record at random",
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			i := random.IntN(len(c.packets))
			c.packets = slices.Delete(c.packets, i, i+1)
		}},
	{name: "clock of a tap ahead",
		amount: shiftAmount,
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			c.shift(random, clockShift.Nanoseconds())
		}},
	{name: "clock of a tap behind",
		amount: shiftAmount,
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			c.shift(random, -clockShift.Nanoseconds())
		}},
	// Between two ends that both send, a shift shows in one direction as an arrival before the departure. If
	// packets go one way only, a shift by less than the plan's queues hold packets looks like a queue.
	{name: "clock of a tap slightly ahead", of: ofRoCE,
		amount: nudgeAmount + "; recordings of RoCEv2 only",
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			c.shift(random, clockNudge.Nanoseconds())
		}},
	{name: "clock of a tap slightly behind", of: ofRoCE,
		amount: nudgeAmount + "; recordings of RoCEv2 only",
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			c.shift(random, -clockNudge.Nanoseconds())
		}},
	// Nothing shows that the taps of other programs' recordings have one clock. All taps of a recording by
	// Railbed are on one machine, whose clock they share: so a small shift of one of them is not tried.
	{name: "others' recording, the clock of a tap ahead",
		amount: othersAmount,
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			c.section = pcapng.Section{Application: "mergecap"}
			c.shift(random, othersShift(random))
		}},
	{name: "others' recording, the clock of a tap behind",
		amount: othersAmount,
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			c.section = pcapng.Section{Application: "mergecap"}
			c.shift(random, -othersShift(random))
		}},
	{name: "others' recording, the clock of a machine ahead",
		amount: machineAmount,
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			c.section = pcapng.Section{Application: "mergecap"}
			c.shiftNode(random, othersShift(random))
		}},
	{name: "others' recording, the clock of a machine behind",
		amount: machineAmount,
		do: func(c *tape, _ *evidence.Options, random *rand.Rand) {
			c.section = pcapng.Section{Application: "mergecap"}
			c.shiftNode(random, -othersShift(random))
		}},
	{name: "another plan's", total: true,
		amount: "the file's comment has the digest of another plan",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			plan := strings.Repeat("0123", 16)
			c.section.Comments = []string{"railbed dilation=1 epoch=0ns plan=" + plan}
		}},
	{name: "began late", total: true,
		amount: fmt.Sprintf("no tap has or counts the first %d %% of the packets", cutPercent),
		do: func(c *tape, o *evidence.Options, _ *rand.Rand) {
			keep := c.span(0, cutPercent)
			c.only(keep, true)
			for i := range c.counts {
				c.counts[i].Start = c.packets[0].Time - 1
			}
			o.From = verifytest.Start
		}},
	{name: "snapped",
		amount: fmt.Sprintf("each packet ends after %d bytes at most", snapLength),
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			for i := range c.packets {
				p := &c.packets[i]
				p.Data = p.Data[:min(len(p.Data), snapLength)]
			}
			for i := range c.interfaces {
				c.interfaces[i].SnapLen = snapLength
			}
		}},
}

func init() { sabotages = slices.Concat(sabotages, hidings, countless) }

func ofRoCE(check string) bool { return strings.HasPrefix(check, "roce") }

// othersShift is the difference between the clocks of two machines.
func othersShift(random *rand.Rand) int64 {
	return int64(2*time.Millisecond) + random.Int64N(int64(clockNudge-2*time.Millisecond))
}

func (c *tape) strip() {
	for i := range c.packets {
		c.packets[i].Comments = nil
	}
}

func (c *tape) shift(random *rand.Rand, by int64) {
	tap := random.IntN(len(c.interfaces))
	c.shiftTaps(by, func(i int) bool { return i == tap })
}

// shiftNode shifts the clock of all NICs of a node that sends or receives packets.
func (c *tape) shiftNode(random *rand.Rand, by int64) {
	of := func(tap int) string {
		node, _ := spec.SplitPort(c.interfaces[tap].Name)
		return node
	}
	var nodes []string
	for i := range c.packets {
		tap := c.packets[i].Interface
		if node := of(tap); c.interfaces[tap].Hardware == pcapng.HardwareNIC &&
			!slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	node := nodes[random.IntN(len(nodes))]
	c.shiftTaps(by, func(i int) bool { return of(i) == node })
}

func (c *tape) shiftTaps(by int64, of func(tap int) bool) {
	for i := range c.packets {
		if of(c.packets[i].Interface) {
			c.packets[i].Time += by
		}
	}
	c.sort()
}

// TestSaboteur alters recordings of runs that pass a check and of runs that break it. Whatever the
// alteration, a broken run never passes, and a sound run never fails. No check passes a recording
// that lacks evidence which all checks need. An alteration that removes no evidence changes no
// verdict. Each check that files can ask for has both runs.
func TestSaboteur(t *testing.T) {
	seeds, every := uint64(3), 1
	if testing.Short() { // each check, and each alteration
		seeds, every = 1, 5
	}
	var untried []string
	matrix := map[string][]cell{}
	for k, name := range everySpecimen() {
		pair, there := specimens[name]
		if !there {
			untried = append(untried, name)
			continue
		}
		matrix[name] = make([]cell, len(sabotages))
		t.Run(name, func(t *testing.T) {
			for _, broken := range []bool{false, true} {
				s, check := pair(t, broken)
				original := readTape(t, s.Write())
				untouched := judgeTapes(t, s.Options(), []*tape{original}, check())
				if want := map[bool]verdict.Verdict{false: pass,
					true: brokenVerdict(name)}[broken]; untouched.Verdict != want {
					t.Fatalf("broken %t: want %s: %v", broken, want, untouched)
				}
				for i, how := range sabotages {
					if (i+k)%every != 0 || how.of != nil && !how.of(name) {
						continue
					}
					for seed := range seeds {
						tapes, o := []*tape{original.clone()}, s.Options()
						random := rand.New(rand.NewPCG(seed, uint64(i)))
						if how.do != nil {
							how.do(tapes[0], &o, random)
						}
						if how.split != nil {
							// Without known times, a late beginning of a recording does not show.
							all := tapes[0].packets
							o.From, o.To = all[0].Time, all[len(all)-1].Time
							tapes = how.split(tapes[0], random)
						}
						r := judgeTapes(t, o, tapes, check())
						matrix[name][i].add(broken, r.Verdict)
						broken := broken || how.breaks
						failed := r.Verdict == fail || r.Verdict == verdict.Overloaded && !how.counted
						switch {
						case how.harmless && r.Verdict != untouched.Verdict:
							t.Errorf("%s, broken %t, seed %d: want %s: %v", how.name, broken, seed,
								untouched.Verdict, r)
						case broken && r.Verdict == pass:
							t.Errorf("%s, seed %d: a broken run passes: %v", how.name, seed, r)
						case !broken && failed:
							t.Errorf("%s, seed %d: a sound run fails: %v", how.name, seed, r)
						case how.total && r.Verdict == pass:
							t.Errorf("%s, seed %d: passes without its evidence: %v", how.name, seed, r)
						}
					}
				}
			}
		})
	}
	if len(untried) > 0 {
		t.Errorf("no runs to sabotage for %q: want two in specimens_test.go", untried)
	}
	if testing.Short() {
		text, err := os.ReadFile(matrixFile)
		for _, name := range everySpecimen() {
			if !strings.Contains(string(text), "\n| "+name+" | ") {
				t.Errorf("%s has no row of %s (%v): %s", matrixFile, name, err, matrixFresh)
			}
		}
	}
	if testing.Short() || t.Failed() {
		return
	}
	page := matrixPage(matrix)
	if *update {
		if err := os.WriteFile(matrixFile, []byte(page), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(matrixFile); err != nil || string(text) != page {
		t.Errorf("%s is not what the test finds (%v): %s", matrixFile, err, matrixFresh)
	}
}

// cell holds the verdicts of a check on the sound and the broken run under one sabotage.
type cell [2]string

// add adds a verdict to the verdicts of other seeds.
func (c *cell) add(broken bool, v verdict.Verdict) {
	at := &c[0]
	if broken {
		at = &c[1]
	}
	if letter := map[verdict.Verdict]string{pass: "P", fail: "F", unclear: "i",
		verdict.Overloaded: "O"}[v]; !strings.Contains(*at,
		letter) {
		letters := append(strings.Split(*at, ""), letter)
		slices.Sort(letters)
		*at = strings.Join(letters, "")
	}
}

var update = flag.Bool("update", false, "write "+matrixFile)

const (
	matrixFile  = "SABOTAGE.md"
	matrixFresh = "go test -run TestSaboteur ./capture/verify -update writes it"
)

// matrixPage shows the verdicts of each check under each sabotage.
func matrixPage(matrix map[string][]cell) string {
	var b strings.Builder
	b.WriteString(matrixHead)
	for i, how := range sabotages {
		fmt.Fprintf(&b, "%d. %s: %s%s\n", i+1, how.name, how.amount,
			map[bool]string{true: " (takes no evidence away)"}[how.harmless]+
				map[bool]string{true: " (breaks the run)"}[how.breaks])
	}
	b.WriteString("\n| check |")
	for i := range sabotages {
		fmt.Fprintf(&b, " %d |", i+1)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(sabotages)) + "\n")
	for _, name := range everySpecimen() {
		fmt.Fprintf(&b, "| %s |", name)
		for _, c := range matrix[name] {
			text := c[0] + "/" + c[1]
			if c == (cell{}) {
				text = "-"
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteString("\n")
	}
	return b.String()
}

const matrixHead = `# Sabotaged recordings

This page is for readers who want to know how far a verdict of capture/verify can be trusted.
TestSaboteur writes it (go test -run TestSaboteur ./capture/verify -update).

Each check has a recording of a run that passes it and one of a run that breaks it. The test alters both
in the ways listed below, each with several seeds, and requires:

- A broken run never passes.
- A sound run never fails.
- A recording that lacks evidence which every check needs passes no check.
- An alteration that takes no evidence away changes no verdict.
- An alteration of the emulator's timing passes no check.

A cell shows the verdicts for the sound run and, after the slash, for the broken run: P is PASS, F is
FAIL, O is OVERLOADED, i is INCONCLUSIVE. Several letters are verdicts for different seeds: for example, it
matters which tap is missing. A - means that the alteration is for other checks only.

The rows of fidelity are recordings of runs whose file asks for a fault or another change. A run at which the
emulator itself sends above the rate of a link, or is late, is broken whatever the file asks for. A recording
that counts lost packets is OVERLOADED by the limits of fidelity, although the run is sound.

The list gives the amount of each alteration. The test's seed makes each choice at random.

`
