package fabricchecks

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// between limits a check to a time of a scene, in nanoseconds from its start, or to the time outside of it.
func between(from, to int64, outside bool, k evidence.Check) evidence.Check {
	title := "during f"
	if outside {
		title = "outside f"
	}
	from, to = verifytest.Start+from, verifytest.Start+to
	return evidence.Limited(k, evidence.NewTimes(title, outside,
		[]evidence.Active{{Begun: from, From: from, To: to, Ended: to}}, ""))
}

// The packets that faults dropped at ports without a tap are counted for the whole run.
func TestDropsByFaultsInATime(t *testing.T) {
	for _, c := range []struct {
		count string
		times string
		want  verdict.Verdict
		says  string
	}{
		{"== 0", "", fail, "packets dropped: 50, want == 0"},
		{">= 1", "", pass, ""},
		{"== 0", "outside", unclear, "faults dropped another 50 packets"},
		{">= 1", "during", unclear, "faults dropped another 50 packets"},
		{"<= 60", "during", unclear, "faults dropped another 50 packets"},
	} {
		s := verifytest.NewScene(t)
		s.Ring(4)
		s.Harm = map[string]evidence.Harm{"leaf1:p0": {Dropped: 50}}
		k := NewDrops(&spec.DropsCheck{Reason: byFault, Count: c.count})
		if c.times != "" {
			k = between(1_000_000, 2_000_000, c.times == "outside", k)
		}
		verifytest.Judge(t, s, k, c.want, c.says)
	}
}

// A head that leaves a switch in the time may arrive after it.
func TestHeadsUnderWayAtTheEndOfATime(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Cut(s.Plan.Switch("leaf1").Soft.Trim.DSCP)
	var cuts []int64
	for _, k := range s.Sightings {
		if strings.Contains(k.Comment, "verdict=trim") {
			cuts = append(cuts, k.Time-verifytest.Start)
		}
	}
	trims := func(outside bool) evidence.Check {
		return between(cuts[50], cuts[99]+1, outside, NewTrims(&spec.TrimsCheck{Count: "== 50"}, nil))
	}
	last := uint64(0)
	for _, k := range s.Sightings {
		if k.Time == cuts[99]+verifytest.Start && k.Comment != "" {
			last = k.ID
		}
	}
	verifytest.Judge(t, s, trims(false), pass, "50 packets were trimmed; the heads of 50 arrived")
	verifytest.Judge(t, s, trims(true), fail, "packets trimmed: 150, want == 50")
	s.Remove(func(k verifytest.Sighting) bool { return k.ID == last && k.Tap == "h2:eth0" })
	verifytest.Judge(t, s, trims(false), fail, "1 head of trimmed packets were lost")
}

// A packet that leaves before a time may arrive in it, and may equal a packet in the time. Ids at the
// ports of kernel switches are guesses.
func TestLatencyOfEqualPacketsAroundATime(t *testing.T) {
	s := verifytest.NewScene(t)
	s.Plan = plantest.Compile(t, strings.Replace(verifytest.ClusterFile, "topology:",
		"switch: {kind: router}\n  topology:", 1))
	s.Step = 1_000_000
	from, to := &s.Plan.Nodes[0], &s.Plan.Nodes[2]
	for range 2 {
		s.IDs = 0
		s.Send(from.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(from), 7000),
			Dst: netip.AddrPortFrom(verifytest.Loopback(to), 17000), Datagram: make([]byte, 64)})
	}
	// The first arrives right after the second leaves, and the second 20 ms later.
	arrived := 0
	s.Change(func(k verifytest.Sighting) bool { return k.Tap == "h2:eth0" }, func(k *verifytest.Sighting) {
		arrived++
		k.Time = verifytest.Start + 2_100_000 + int64(arrived-1)*20_000_000
	})
	s.Change(func(k verifytest.Sighting) bool { return k.Time >= verifytest.Start+2_000_000 },
		func(k *verifytest.Sighting) { k.ID = 2 })
	s.Now += 1_000_000_000
	k := NewLatency(&spec.LatencyCheck{Max: "<= 5ms"}, nil)
	verifytest.Judge(t, s, between(1_500_000, 500_000_000, false, k), unclear,
		"1 packet arrived while equal ones were under way")
}

// A packet that is trimmed or changed on its way has no latency, and does not count as lost. It belongs to
// the time in which it left, and it may be trimmed or changed at another time. It excuses no other packet.
func TestLatencyOfChangedPacketsAroundATime(t *testing.T) {
	const changing, lost = 20, 25 // numbers of packets
	soft, router := verifytest.SoftFile, strings.Replace(verifytest.ClusterFile, "topology:",
		"switch: {kind: router}\n  topology:", 1)
	for _, c := range []struct {
		file, comment string
		record        bool // the packet as it was before, which does not pass the tap
	}{
		{soft, "railbed verdict=trim reason=tail depth=60000 late=0ns", false},
		{soft, "railbed verdict=corrupt reason=fault name=f", true},
		{soft, "railbed verdict=truncate reason=fault name=f", true},
		{router, "railbed verdict=corrupt reason=fault name=f", true},
		{router, "railbed verdict=truncate reason=fault name=f", true},
	} {
		s := verifytest.NewScene(t)
		s.Plan = plantest.Compile(t, c.file)
		s.Step, s.Hits = 1_000_000, true
		from, to := &s.Plan.Nodes[0], &s.Plan.Nodes[2]
		var ids []uint64
		for n := range 40 {
			s.Send(from.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(from), 7000),
				Dst: netip.AddrPortFrom(verifytest.Loopback(to), 17000), Datagram: make([]byte, 200+n)})
			ids = append(ids, s.IDs)
		}
		s.Now += 1_000_000_000
		hit := s.Of(ids[changing], "leaf1:p0", false)
		left := s.Of(ids[changing], "h0:eth0", true).Time - verifytest.Start
		s.Change(func(k verifytest.Sighting) bool { return k.ID == ids[changing] && k.Time > hit.Time },
			func(k *verifytest.Sighting) {
				k.Frame, k.Length = slices.Clone(k.Frame[:128]), 128
				if !c.record && k.Out && strings.HasPrefix(k.Tap, "leaf1") {
					k.Comment = c.comment
				}
				wire.IPv4(k.Frame[14:]).RewriteTOS(59 << 2)
				if c.file == router {
					k.ID += 1 << 32
				}
			})
		if c.record {
			hit.Record, hit.Time, hit.Comment = true, hit.Time+1, c.comment
			s.Insert(hit)
		}
		after := int64(1) // of the departure, and before the packet is changed
		judge := func(begin, end int64, max string, want verdict.Verdict, says string) {
			t.Helper()
			k := NewLatency(&spec.LatencyCheck{Max: max}, nil)
			verifytest.Judge(t, s, between(begin, end, false, k), want, says)
		}
		judge(0, left+after, "<= 100ms", pass, "20 packets took")
		judge(left+after, 900_000_000, "<= 100ms", pass, "19 packets took")
		s.Remove(func(k verifytest.Sighting) bool { return k.ID == ids[lost] && k.Tap == "h2:eth0" })
		judge(0, left+after, "<= 100ms", pass, "20 packets took")
		judge(left+after, 900_000_000, "<= 100ms", fail, "18 of 19 packets took")
	}
}

// What leaves and arrives outside of a time takes no room.
func TestLatencyForgetsWhatArrivedOutsideOfATime(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Sightings, s.Now, s.Step = nil, verifytest.Start, 100_000_000
	from, to := &s.Plan.Nodes[0], &s.Plan.Nodes[2]
	for range 200 {
		s.Send(from.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(from), 7000),
			Dst: netip.AddrPortFrom(verifytest.Loopback(to), 17000), Datagram: make([]byte, 64)})
	}
	s.Now += 1_000_000_000
	k := NewLatency(&spec.LatencyCheck{Max: "<= 100ms", Per: spec.PerPair}, nil).(*latency)
	verifytest.Judge(t, s, between(10_000_000_000, 15_000_000_000, false, k), pass, "packets took")
	if k.travel.strays > 0 || k.travel.acausal > 0 {
		t.Errorf("%d arrivals of packets outside of the time have no departure", k.travel.strays)
	}
}

// A pair that stalls in the time of a fault has no throughput of the time before it stalled.
func TestThroughputOfPairsThatStallInATime(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile) // 8 ms
	for rate, want := range map[string]verdict.Verdict{">= 10mbit": pass, "<= 1gbit": pass} {
		k := NewThroughput(&spec.ThroughputCheck{Rate: rate}, nil)
		verifytest.Judge(t, s, between(0, 10_000_000, false, k), want, "2 pairs of nodes had")
		k = NewThroughput(&spec.ThroughputCheck{Rate: rate}, nil)
		verifytest.Judge(t, s, between(0, 900_000_000, false, k), unclear, "frames cover only 0.00")
		k = NewThroughput(&spec.ThroughputCheck{Rate: rate}, nil)
		verifytest.Judge(t, s, between(-2_000_000, -1_000_000, true, k), pass, "2 pairs of nodes had")
	}
}
