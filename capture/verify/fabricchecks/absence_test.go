package fabricchecks

import (
	"net/netip"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// starved sends 100 datagrams of 1,000 bytes from h0 and from h1 to h2 in 100 ms. Those of h1 arrive as far
// as arrives says.
func starved(t *testing.T, arrives func(n int) bool) *verifytest.Scene {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Sightings, s.Now, s.Step = nil, verifytest.Start, 500_000
	to := &s.Plan.Nodes[2]
	for n := range 200 {
		from := &s.Plan.Nodes[n%2]
		s.Send(from.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(from), 7000),
			Dst: netip.AddrPortFrom(verifytest.Loopback(to), 17000), Datagram: make([]byte, 958),
			Seq: uint32(n)})
		if id := s.IDs; n%2 == 1 && !arrives(n/2) {
			s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Tap != "h1:eth0" })
		}
	}
	s.Now += 1_000_000_000
	return s
}

// A pair of which nothing arrived, or only the first or the last frames, has a throughput, and it counts for
// fairness.
func TestThroughputOfStarvedPairs(t *testing.T) {
	none := func(int) bool { return false }
	from, fair := &spec.ThroughputCheck{From: "h[0-1]", To: "h2", Rate: ">= 4mbit"},
		&spec.ThroughputCheck{To: "h2", Fairness: ">= 95%"}
	verifytest.Judge(t, starved(t, none), NewThroughput(from, nil), fail,
		"throughput h1 > h2: 0 bit/s, none of 100 frames arrived, want >= 4mbit")
	verifytest.Judge(t, starved(t, none), NewThroughput(fair, nil), fail, "fairness: 50%, want >= 95%")
	verifytest.Judge(t, starved(t, none), NewThroughput(&spec.ThroughputCheck{From: "h1", Rate: ">= 4mbit"},
		nil), fail, "nothing arrived of 1 pair of nodes")
	verifytest.Judge(t, starved(t, none), NewThroughput(&spec.ThroughputCheck{Rate: "<= 9mbit"}, nil), pass,
		"2 pairs of nodes had 0 Mbit/s to 8 Mbit/s")
	// 10 of 100 frames within 10 ms are 9 frames in 99 ms, wherever they are.
	for name, arrives := range map[string]func(int) bool{
		"first": func(n int) bool { return n < 10 }, "last": func(n int) bool { return n >= 90 },
	} {
		s := starved(t, arrives)
		verifytest.Judge(t, s, NewThroughput(from, nil), fail,
			"throughput h1 > h2: 0.7273 Mbit/s, want >= 4mbit")
		if t.Failed() {
			t.Log(name)
		}
	}
	verifytest.Judge(t, starved(t, func(n int) bool { return n == 50 }), NewThroughput(from, nil), fail,
		"throughput h1 > h2: 0 Mbit/s")
}

// A pair is known by a step or by the workload if none of its packets was recorded where they leave.
func TestPairsOfStepsAndWorkloads(t *testing.T) {
	silent := func() *verifytest.Scene {
		s := starved(t, func(int) bool { return false })
		s.Remove(func(k verifytest.Sighting) bool { return k.Tap == "h1:eth0" })
		return s
	}
	of := func(from, to string) evidence.Send {
		return evidence.Send{Step: "traffic x", Pair: evidence.Pair{From: from, To: to}}
	}
	judge := func(s *verifytest.Scene, k evidence.Check, sends ...evidence.Send) evidence.Result {
		s.Sends = sends
		results, _ := s.Run(k)
		return results[0]
	}
	rate := func(w *evidence.Workload) evidence.Check {
		return NewThroughput(&spec.ThroughputCheck{From: "h[0-1]", Rate: ">= 4mbit"}, w)
	}
	verifytest.Wants(t, judge(silent(), rate(nil)), pass, "1 pair")
	verifytest.Wants(t, judge(silent(), rate(nil), of("h0", "h2"), of("h1", "h2")), fail,
		"h1 > h2: no frame left or arrived, although traffic x sends, want >= 4mbit")
	verifytest.Wants(t, judge(silent(), rate(nil), of("h3", "h2")), pass, "1 pair") // not selected
	// In a limited time, steps that were not active then tell nothing.
	during := func(k evidence.Check) evidence.Check { return between(0, 120_000_000, false, k) }
	at := func(begun, ended int64) evidence.Send {
		send := of("h1", "h2")
		send.Begun, send.Ended = verifytest.Start+begun, verifytest.Start+ended
		return send
	}
	for _, make := range []func() evidence.Check{
		func() evidence.Check { return rate(nil) },
		func() evidence.Check {
			return NewLatency(&spec.LatencyCheck{Per: spec.PerPair, P99: "<= 100ms"}, nil)
		},
	} {
		verifytest.Wants(t, judge(silent(), during(make()), at(0, 10)), unclear, "h1 > h2: no ")
		verifytest.Wants(t, judge(silent(), during(make()), of("h1", "h2")), unclear, "h1 > h2: no ")
		verifytest.Wants(t, judge(silent(), during(make()), at(130_000_000, 140_000_000)), pass, "")
	}
	latency := NewLatency(&spec.LatencyCheck{Per: spec.PerPair, P99: "<= 100ms"}, nil)
	verifytest.Wants(t, judge(silent(), latency, of("h1", "h2")), unclear,
		"h1 > h2: no packet left, although traffic x sends")

	w := &evidence.Workload{Name: "ar", Pattern: evidence.Pairs, Pairs: [][2]int{{0, 1}, {2, 1}}}
	for i, node := range []string{"h0", "h2", "h1"} {
		w.Ranks = append(w.Ranks, evidence.Rank{Rank: i, Node: node, NIC: "eth0", Expected: 1000})
	}
	if pairs := w.NodePairs(); len(pairs) != 2 || pairs[0].String() != "h0 > h2" ||
		pairs[1].String() != "h1 > h2" {
		t.Errorf("pairs %v", pairs)
	}
	w.Ranks[2].Expected = 0
	if pairs := w.NodePairs(); len(pairs) != 1 {
		t.Errorf("a rank that sends nothing has pairs: %v", pairs)
	}
}

// Without taps at the sources, a capture does not show which of them sent in vain.
func TestUnknownSenders(t *testing.T) {
	s := starved(t, func(int) bool { return false })
	s.Untapped["h0:eth0"], s.Untapped["h1:eth0"] = true, true
	for rate, want := range map[string]verdict.Verdict{">= 4mbit": unclear, "<= 9mbit": pass} {
		says := "1 pair"
		if want == unclear {
			says = "not recorded: 2 NICs of senders, such as h0:eth0"
		}
		k := NewThroughput(&spec.ThroughputCheck{From: "h[0-1]", To: "h2", Rate: rate}, nil)
		verifytest.Judge(t, s, k, want, says)
	}
}

// Lost packets take longer than any bound: half of all packets, or all of a pair.
func TestLatencyOfLostPackets(t *testing.T) {
	for _, c := range []struct {
		per, p50, p99 string
		arrives       func(n int) bool
		pass          bool
		says          string
	}{
		{"", "<= 100ms", "", func(int) bool { return false }, true, "100 packets took"},
		{"", "", "<= 100ms", func(int) bool { return false }, false,
			"p99: 100 of 200 packets took <= 100ms, the slowest"},
		{spec.PerPair, "<= 100ms", "", func(int) bool { return false }, false,
			"p50 of h1 > h2: 0 of 100 packets took <= 100ms; 100 did not arrive"},
		{spec.PerFlow, "<= 100ms", "", func(int) bool { return false }, false, "0 of 100 packets"},
		{spec.PerPair, "", "<= 100ms", func(n int) bool { return n%2 == 0 }, false,
			"p99 of h1 > h2: 50 of 100 packets took <= 100ms"},
		{spec.PerPair, "", "<= 100ms", func(n int) bool { return n != 50 }, true,
			"199 packets took"},
		{spec.PerPair, ">= 1us", "", func(int) bool { return false }, true, "another 100 did not arrive"},
	} {
		want := fail
		if c.pass {
			want = pass
		}
		verifytest.Judge(t, starved(t, c.arrives),
			NewLatency(&spec.LatencyCheck{Per: c.per, P50: c.p50, P99: c.p99}, nil), want, c.says)
	}
	// What a switch trims arrives with other bytes.
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Cut(10)
	s.Change(func(k verifytest.Sighting) bool { return k.ID >= 1<<32 },
		func(k *verifytest.Sighting) { k.ID -= 1 << 32 }) // soft switches give both one id
	verifytest.Judge(t, s, NewLatency(&spec.LatencyCheck{Max: "<= 100ms"}, nil), pass, "packets took")
	if results, _ := s.Run(NewLatency(&spec.LatencyCheck{Max: "<= 100ms"}, nil)); strings.Contains(
		results[0].Summary, "did not arrive") {
		t.Error(results[0].Summary)
	}
}
