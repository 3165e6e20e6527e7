package verify

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"railbed/capture/pcapng"
	"railbed/capture/verify/evidence"
	"railbed/capture/verify/fabricchecks"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// Times of several recordings, in percent of the packets.
const (
	overlapFrom = 40
	overlapTo   = 60
	gapFrom     = 40
	gapTo       = 60
)

// severals replace the recording by several, which a verdict rests on together.
var severals = []sabotage{
	{name: "recorded twice", harmless: true,
		amount: "two recordings have all packets of all taps",
		split: func(c *tape, _ *rand.Rand) []*tape {
			return []*tape{c.part(nil, 0, 100), c.part(nil, 0, 100)}
		}},
	{name: "recordings of different taps", harmless: true,
		amount: "two recordings, each tap is in one of them at random",
		split: func(c *tape, random *rand.Rand) []*tape {
			first := c.chooseTaps(random)
			return []*tape{c.part(first, 0, 100), c.part(not(first), 0, 100)}
		}},
	{name: "recordings of different times", harmless: true,
		amount: fmt.Sprintf("two recordings have the first %d %% and the last %d %% of the packets",
			overlapTo, 100-overlapFrom),
		split: func(c *tape, _ *rand.Rand) []*tape {
			return []*tape{c.part(nil, overlapFrom, 100), c.part(nil, 0, overlapTo)}
		}},
	{name: "recordings with a gap between them",
		amount: fmt.Sprintf("as before, but with the first %d %% and the last %d %%", gapFrom, 100-gapTo),
		split: func(c *tape, _ *rand.Rand) []*tape {
			return []*tape{c.part(nil, 0, gapFrom), c.part(nil, gapTo, 100)}
		}},
	{name: "a second recording that lost packets", harmless: true,
		amount: fmt.Sprintf("one recording is whole, and the other one lost and counted each packet with a "+
			"probability of 1/%d", loseOneIn),
		split: func(c *tape, random *rand.Rand) []*tape {
			lossy := c.part(nil, 0, 100)
			lossy.only(func(p *pcapng.Packet) bool {
				lose := random.IntN(loseOneIn) == 0
				if lose {
					lossy.counts[p.Interface].Dropped++
					lossy.counts[p.Interface].Delivered--
				}
				return !lose
			}, false)
			lossy.count()
			return []*tape{lossy, c.part(nil, 0, 100)}
		}},
	{name: "recordings that lost packets", counted: true,
		amount: "two recordings of all taps, each as the second one before",
		split: func(c *tape, random *rand.Rand) []*tape {
			parts := []*tape{c.part(nil, 0, 100), c.part(nil, 0, 100)}
			for _, part := range parts {
				part.only(func(p *pcapng.Packet) bool {
					lose := random.IntN(loseOneIn) == 0
					if lose {
						part.counts[p.Interface].Dropped++
						part.counts[p.Interface].Delivered--
					}
					return !lose
				}, false)
				part.count()
			}
			return parts
		}},
	{name: "a second recording of a part of the taps and times",
		amount: fmt.Sprintf("one recording lacks taps at random, and the other one has them for the last "+
			"%d %%", 100-gapTo),
		split: func(c *tape, random *rand.Rand) []*tape {
			first := c.chooseTaps(random)
			return []*tape{c.part(first, 0, 100), c.part(not(first), gapTo, 100)}
		}},
	{name: "a truncated second recording", harmless: true,
		amount: "one recording is whole, and the other one lacks its second half",
		split: func(c *tape, _ *rand.Rand) []*tape {
			short := c.part(nil, 0, 100)
			for i := range short.packets {
				short.cut += len(short.packets[i].Data) / 2
			}
			return []*tape{short, c.part(nil, 0, 100)}
		}},
}

func init() { sabotages = append(sabotages, severals...) }

// chooseTaps chooses some of the taps, at least one and not all.
func (c *tape) chooseTaps(random *rand.Rand) func(tap int) bool {
	chosen := random.Perm(len(c.interfaces))[:1+random.IntN(max(len(c.interfaces)-1, 1))]
	return func(tap int) bool { return slices.Contains(chosen, tap) }
}

func not(is func(int) bool) func(int) bool { return func(i int) bool { return !is(i) } }

// part returns a recording of some taps, or of all, for the time of some percent of the packets.
func (c *tape) part(taps func(int) bool, from, to int) *tape {
	first, last := int64(0), int64(0)
	n := len(c.packets)
	if from > 0 {
		first = c.packets[n*from/100].Time
	}
	if to < 100 {
		last = c.packets[n*to/100].Time
	}
	return c.between(taps, first, last)
}

// between returns a recording of some taps, or of all, for a time. 0 is the begin or the end of the
// recording.
func (c *tape) between(taps func(int) bool, first, last int64) *tape {
	d := c.clone()
	if taps != nil {
		for tap := len(d.interfaces) - 1; tap >= 0; tap-- {
			if !taps(tap) && len(d.interfaces) > 1 {
				d.without(tap)
			}
		}
	}
	d.only(func(p *pcapng.Packet) bool { return p.Time >= first && (last == 0 || p.Time <= last) }, false)
	for i := range d.counts {
		s := &d.counts[i]
		s.Start, s.End = cmp.Or(first, s.Start), cmp.Or(last, s.End)
		s.Delivered = 0
	}
	for i := range d.packets {
		d.counts[d.packets[i].Interface].Delivered++
	}
	for i := range d.counts {
		s := &d.counts[i]
		s.Accepted, s.Received = s.Delivered+s.Dropped, s.Delivered+s.Dropped
	}
	d.count()
	return d
}

// count makes the taps' counts of annotations agree with the packets.
func (c *tape) count() {
	notes := make([]pcapng.TapNote, len(c.interfaces))
	for i := range c.packets {
		for _, comment := range c.packets[i].Comments {
			if a, is := pcapng.ParseAnnotation(comment); is {
				notes[c.packets[i].Interface].Count(a.Verdict)
			}
		}
	}
	for i := range c.counts {
		s := &c.counts[i]
		s.Comments = slices.Clone(s.Comments)
		for k, comment := range s.Comments {
			if old, is := pcapng.ParseTapNote([]byte(comment)); is {
				note := notes[s.Interface]
				note.Limited, note.ClockStepped = old.Limited, old.ClockStepped
				s.Comments[k] = string(note.AppendTo(nil))
			}
		}
	}
}

// judgeTapes judges recordings as one.
func judgeTapes(t *testing.T, o evidence.Options, tapes []*tape, check evidence.Check) evidence.Result {
	t.Helper()
	var names []string
	var readers []io.Reader
	for i, c := range tapes {
		names = append(names, fmt.Sprintf("%c.pcapng", 'a'+i))
		readers = append(readers, bytes.NewReader(c.write(t)))
	}
	results, _, err := evidence.RunAll(t.Context(), names, readers, o, check)
	if err != nil {
		t.Fatal(err)
	}
	return results[0]
}

// TestViolationInTheSecondRecording has a packet that breaks a rule in a recording that is not the first, and
// does not have all that the check needs.
func TestViolationInTheSecondRecording(t *testing.T) {
	s, check := specimens["drops"](t, true)
	c := readTape(t, s.Write())
	at := slices.IndexFunc(c.packets, func(p pcapng.Packet) bool {
		return len(p.Comments) > 0 && bytes.Contains(p.Comments[0], []byte("verdict=drop"))
	})
	tap := c.packets[at].Interface
	there := func(i int) bool { return i == tap }
	with, without := c.part(there, 0, 100), c.part(not(there), 0, 100)
	for name, tapes := range map[string][]*tape{"last": {without, with}, "first": {with, without}} {
		if r := judgeTapes(t, s.Options(), tapes, check()); r.Verdict != fail {
			t.Errorf("%s: %v", name, r)
		}
	}
	if r := judgeTapes(t, s.Options(), []*tape{without, without}, check()); r.Verdict != unclear {
		t.Errorf("without the tap of the drop: %v", r)
	}
}

// TestGapsOfRecordings has times in which no recording had a tap. They matter only where the run or another
// tap of the check had packets.
func TestGapsOfRecordings(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	c := readTape(t, s.Write())
	all := c.part(nil, 0, 100)
	early := c.part(nil, 0, 100)
	early.packets = nil
	for i := range early.counts {
		k := &early.counts[i]
		k.Start, k.End = k.Start-int64(3*time.Second), k.Start-int64(2*time.Second)
		k.Received, k.Accepted, k.Delivered = 0, 0, 0
	}
	early.count()
	for _, test := range []struct {
		name  string
		tapes []*tape
		to    time.Duration // of the traffic, after its beginning; 0 is not known
		want  verdict.Verdict
	}{
		{"before the traffic", []*tape{early, all}, time.Millisecond, pass},
		{"before the first packet", []*tape{early, all}, 0, pass},
		{"in the traffic", []*tape{c.part(nil, 0, 40), c.part(nil, 60, 100)}, 0, unclear},
		{"after the last recording", []*tape{c.part(nil, 0, 40), c.part(nil, 40, 100)}, time.Hour, unclear},
		{"none", []*tape{c.part(nil, 0, 40), c.part(nil, 40, 100)}, 0, pass},
	} {
		o := s.Options()
		if test.to != 0 {
			o.From, o.To = c.packets[0].Time, c.packets[0].Time+int64(test.to)
		}
		for _, check := range []evidence.Check{fabricchecks.NewLossless(&spec.LosslessCheck{}),
			fabricchecks.NewDrops(&spec.DropsCheck{Count: "== 0"})} {
			if r := judgeTapes(t, o, test.tapes, check); r.Verdict != test.want {
				t.Errorf("%s: want %s: %v", test.name, test.want, r)
			}
		}
	}
}

// TestFiltersOfRecordings has recordings of a tap with different filters: each shows only what it accepts.
func TestFiltersOfRecordings(t *testing.T) {
	s, check := specimens["roce psn"](t, false)
	c := readTape(t, s.Write())
	filtered := func(text string, from, to int) *tape {
		d := c.part(nil, from, to)
		for i := range d.interfaces {
			d.interfaces[i].Filter = text
		}
		if text == "tcp" {
			d.only(func(*pcapng.Packet) bool { return false }, true)
			d.count()
		}
		return d
	}
	for _, test := range []struct {
		name  string
		tapes []*tape
		want  verdict.Verdict
	}{
		{"one accepts all", []*tape{filtered("tcp", 0, 100), filtered("udp", 0, 100)}, pass},
		{"in a part of the time", []*tape{filtered("udp", 0, 50), filtered("tcp", 50, 100)}, unclear},
		{"in another part", []*tape{filtered("tcp", 0, 50), filtered("udp", 50, 100)}, unclear},
		{"in both parts", []*tape{filtered("udp", 0, 60), filtered("", 50, 100)}, pass},
	} {
		o := s.Options()
		o.From, o.To = c.packets[0].Time, c.packets[len(c.packets)-1].Time
		if r := judgeTapes(t, o, test.tapes, check()); r.Verdict != test.want {
			t.Errorf("%s: want %s: %v", test.name, test.want, r)
		}
	}
}

// TestClocksOfOthers has recordings of another program. Latencies and outages are judged where packets in
// both directions show that the taps have one clock.
func TestClocksOfOthers(t *testing.T) {
	for _, test := range []struct {
		name    string
		both    bool          // packets go both ways
		ahead   time.Duration // of the receiver's clock
		railbed bool          // the recording is Railbed's
		want    verdict.Verdict
	}{
		{"one way", false, 0, false, unclear},
		{"one way, Railbed's", false, 0, true, pass},
		{"both ways", true, 0, false, pass},
		{"both ways, ahead by 3 ms", true, 3 * time.Millisecond, false, unclear},
		{"both ways, behind by 30 us", true, -30 * time.Microsecond, false, unclear},
	} {
		s := verifytest.SoftScene(t, verifytest.SoftFile)
		s.Sightings, s.Now, s.Step, s.Foreign = nil, verifytest.Start, 5_000_000, !test.railbed
		ends := []string{"h0", "h2"}
		addr := func(node string) netip.Addr { return verifytest.Loopback(s.Plan.Node(node)) }
		for i := range 60 {
			from, to := ends[0], ends[1]
			if test.both && i%2 > 0 {
				from, to = to, from
			}
			s.Send(from, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(addr(from), 7000),
				Dst: netip.AddrPortFrom(addr(to), 17000), Datagram: fmt.Appendf(nil, "%d", i)})
		}
		receiver := func(k verifytest.Sighting) bool { return k.Tap == "h2:eth0" }
		s.Change(receiver, func(k *verifytest.Sighting) { k.Time += int64(test.ahead) })
		s.Now += int64(time.Second)
		for _, check := range []evidence.Check{
			fabricchecks.NewLatency(&spec.LatencyCheck{From: "h0", Max: "<= 5ms"}, nil),
			fabricchecks.NewOutage(&spec.OutageCheck{From: "h0", Longest: "<= 20ms"}),
		} {
			if results, _ := s.Run(check); results[0].Verdict != test.want {
				t.Errorf("%s: want %s: %v", test.name, test.want, results[0])
			}
		}
	}
}
