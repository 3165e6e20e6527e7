package verify

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/capture/report"
	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// Times of the scene, in nanoseconds from its start: a fault came into force between the first two, and
// ended between the others.
const begun, inForce, ending, ended = 100_000_000, 110_000_000, 190_000_000, 200_000_000

// limitedScene sends a frame of 1,000 bytes each millisecond from h0 to h2, for 300 ms. Those that leave in
// the time of the fault have the TTL 9, and are the only frames that h1 sends to h2, too.
func limitedScene(t *testing.T) *verifytest.Scene {
	return limited(verifytest.SoftScene(t, verifytest.SoftFile))
}

// limited replaces the packets of a scene.
func limited(s *verifytest.Scene) *verifytest.Scene {
	s.Sightings, s.Now, s.Step = nil, verifytest.Start, 1_000_000
	to, number := &s.Plan.Nodes[2], uint32(0)
	send := func(node int, ttl uint8) {
		from := &s.Plan.Nodes[node]
		number++
		s.Send(from.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(from), 7000),
			Dst: netip.AddrPortFrom(verifytest.Loopback(to), 17000), TTL: ttl,
			Datagram: binary.BigEndian.AppendUint32(make([]byte, 954), number)})
	}
	for s.Now < verifytest.Start+300_000_000 {
		if now := s.Now + s.Step - verifytest.Start; now >= inForce && now < ending {
			send(0, 9)
			send(1, 9)
		} else {
			send(0, 64)
		}
	}
	s.Now += 1_000_000_000
	return s
}

// TestLimits: a check that is limited in time judges the packets in that time only. The throughputs are by
// hand: in the fault, each of two senders sends 1,000 bytes in 2 ms. Outside, one sends 1,000 bytes in 1 ms.
func TestLimits(t *testing.T) {
	s := limitedScene(t)
	active := []evidence.Active{{Begun: verifytest.Start + begun, From: verifytest.Start + inForce,
		To: verifytest.Start + ending, Ended: verifytest.Start + ended}}
	late := []evidence.Active{{Begun: verifytest.Start + 9e12, From: verifytest.Start + 9e12,
		To: math.MaxInt64, Ended: math.MaxInt64}}
	for _, c := range []struct {
		check  string
		active []evidence.Active
		never  string
		want   verdict.Verdict
		says   string
	}{
		{`rule: {never: "ip.ttl > 30", at: h0}`, active, "", verdict.Fail, ""},
		{`rule: {never: "ip.ttl > 30", at: h0}, during: f`, active, "", verdict.Pass, "rule never"},
		{`rule: {never: "ip.ttl > 30", at: h0}, outside: f`, active, "", verdict.Fail, "outside f"},
		{`rule: {never: "ip.ttl < 30", at: h0}, outside: f`, active, "", verdict.Pass, ""},
		{`rule: {never: "ip.ttl < 30", at: h0}, during: f`, active, "", verdict.Fail, "during f"},
		{`rule: {never: "ip.ttl > 30", at: h0}, during: f`, nil, "it never came into force",
			verdict.Inconclusive, "during f: it never came into force"},
		{`rule: {never: "ip.ttl == 77", at: h0}, outside: f`, nil, "it never came into force",
			verdict.Inconclusive, "outside f: it never came into force"},
		{`rule: {never: "ip.ttl == 77", at: h0}, during: f`, late, "", verdict.Inconclusive,
			"no packet was recorded during f"},
		{`rule: {count: "ip.ttl == 9", at: h0, is: ">= 1"}, outside: f`, active, "", verdict.Fail, ""},
		{`throughput: {from: h0, rate: "<= 4.01mbit"}, during: f`, active, "", verdict.Pass, "had 4 Mbit"},
		{`throughput: {from: h0, rate: ">= 4.01mbit"}, during: f`, active, "", verdict.Fail, "had 4 Mbit"},
		{`throughput: {from: h0, rate: ">= 7.99mbit"}, outside: f`, active, "", verdict.Pass, "had 8 Mbit"},
		{`throughput: {from: h0, rate: ">= 8.01mbit"}, outside: f`, active, "", verdict.Fail, "had 8 Mbit"},
		{`latency: {max: "<= 1s"}, during: f`, active, "", verdict.Pass, "packets took"},
		{`latency: {max: "<= 1ns"}, during: f`, active, "", verdict.Fail, ""},
	} {
		asked, _, err := spec.ParsePacketsCheck("x", "{"+c.check+"}")
		if err != nil {
			t.Fatal(err)
		}
		check, err := New(asked, Sources{Active: func(name string) ([]evidence.Active, string, error) {
			if name != "f" {
				t.Errorf("the times of %q are asked for", name)
			}
			return c.active, c.never, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		results, _ := s.Run(check)
		text := verifytest.Text(results[0])
		if results[0].Verdict != c.want || !strings.Contains(text, c.says) {
			t.Errorf("%s: got %s\nwant %s with %q", c.check, text, c.want, c.says)
		}
		if limited := strings.Contains(c.check, ": f"); Timed(asked) != limited {
			t.Errorf("%s: timed %v", c.check, Timed(asked))
		}
	}
	asked, _, err := spec.ParsePacketsCheck("x", "{rule: {never: ip}, during: f}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(asked, Sources{}); err == nil ||
		!strings.Contains(err.Error(), "name the directory of a run") {
		t.Errorf("without the times of a run: %v", err)
	}
}

// TestLimitOfFollowing: of a rule with after, the packet that must follow may come after the time.
func TestLimitOfFollowing(t *testing.T) {
	s := limitedScene(t)
	last := evidence.Active{Begun: verifytest.Start + begun, From: verifytest.Start + inForce,
		To: verifytest.Start + inForce + 1, Ended: verifytest.Start + ended}
	for within, want := range map[string]verdict.Verdict{"5ms": verdict.Pass, "1us": verdict.Fail} {
		asked, _, err := spec.ParsePacketsCheck("x",
			"{rule: {after: ip.ttl == 9, expect: ip.ttl == 9, within: "+within+", at: h0}, during: f}")
		if err != nil {
			t.Fatal(err)
		}
		check, err := New(asked, Sources{Active: func(string) ([]evidence.Active, string, error) {
			return []evidence.Active{last}, "", nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if results, _ := s.Run(check); results[0].Verdict != want || results[0].Measured["packets"] != 1 {
			t.Errorf("within %s: got %s\nwant %s of one packet", within, verifytest.Text(results[0]), want)
		}
	}
}

func TestActiveIn(t *testing.T) {
	began := time.Unix(1e9, 0)
	r := &report.Report{Began: began, Dilation: 2, Steps: []report.Step{
		{Name: "fault f h0", Called: "f", State: report.Passed, Start: 1, End: 3,
			Active: []report.Active{{Begun: 1, From: 1.5, To: 2, Ended: 3}}},
		{Name: "fault f h1", Called: "f", State: report.Passed,
			Active: []report.Active{{Begun: 5, From: 5.5}}},
		{Name: "fault g h0", Called: "g", State: report.Skipped},
		{Name: "fault k h0", Called: "k", State: report.Failed, Start: 1, End: 2},
		{Name: "workload ar", Called: "ar", State: report.Passed, Start: 1, End: 2.5},
	}}
	at := func(seconds float64) int64 { return began.UnixNano() + int64(seconds*2e9) }
	for name, want := range map[string][]evidence.Active{
		"f": {{Begun: at(1), From: at(1.5), To: at(2), Ended: at(3)},
			{Begun: at(5), From: at(5.5), To: math.MaxInt64, Ended: math.MaxInt64}},
		"ar": {{Begun: at(1), From: at(1), To: at(2.5), Ended: at(2.5)}},
		"g":  nil, "k": nil,
	} {
		got, never, err := ActiveIn(r, name)
		if err != nil || len(got) != len(want) || (never != "") != (want == nil) {
			t.Fatalf("%s: %v, %q, %v, want %v", name, got, never, err, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", name, got[i], want[i])
			}
		}
	}
	from, to := SentIn(r, "")
	if from != at(1) || to != at(2.5) {
		t.Errorf("sent from %d to %d", from, to)
	}
	r.Steps = append(r.Steps, report.Step{Name: "traffic x", Called: "x", State: report.Failed, Start: 0.5,
		End: 2}, report.Step{Name: "exec e", State: report.Passed, Start: 0.1, End: 9},
		report.Step{Name: "stack s", State: report.Skipped, Start: 0, End: 9})
	if from, to = SentIn(r, ""); from != at(0.5) || to != at(2.5) {
		t.Errorf("sent from %d to %d", from, to)
	}
	if from, to = SentIn(r, "ar"); from != at(1) || to != at(2.5) {
		t.Errorf("ar sent from %d to %d", from, to)
	}
	if from, to = SentIn(r, "x"); from != 0 || to != 0 { // no workload
		t.Errorf("x sent from %d to %d", from, to)
	}
	if from, to = SentIn(&report.Report{Steps: r.Steps}, ""); from != 0 || to != 0 {
		t.Errorf("sent from %d to %d of a run without a time", from, to)
	}
	if _, _, err := ActiveIn(r, "h"); err == nil || !strings.Contains(err.Error(), "it has ar, f, g, k, x") {
		t.Errorf("%v, want the names of the run", err)
	}
}

// TestLimitable: a check that can be limited in time selects its packets by itself, unless each of its
// packets counts alone. Other checks cannot be limited.
func TestLimitable(t *testing.T) {
	alone := []string{"marks", "queue-depth", "link-bytes"}
	sources := Sources{
		Traffic:  func(string) (Workload, error) { return Workload{}, nil },
		Crossing: func(string) (Crossing, error) { return Crossing{}, nil },
	}
	limitable := 0
	for _, k := range kinds {
		asked, _, err := spec.ParsePacketsCheck("x", "{"+k.Key+": "+k.Example+", during: f}")
		if err != nil {
			if !strings.Contains(err.Error(), "which is about the whole capture") {
				t.Errorf("%s: %v", k.Key, err)
			}
			continue
		}
		limitable++
		check, err := k.Make(asked, sources)
		if err != nil {
			t.Fatal(err)
		}
		if _, is := check.(evidence.Limiter); is == slices.Contains(alone, k.Key) {
			t.Errorf("%s has limited:\"time\" in PacketsCheck, and its Limiter is %v: want a method Limit, "+
				"or the key in alone if each packet counts alone", k.Key, is)
		}
	}
	if limitable != 8 {
		t.Errorf("%d kinds of checks can be limited in time: list them at PacketsCheck.During and in "+
			"docs/how-to/rules.md, and count them here", limitable)
	}
}
