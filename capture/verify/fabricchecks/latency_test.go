package fabricchecks

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// delayed sends datagrams from h0 and h1 to h2, with drawn delays at the receiver. It returns the
// latencies of each sender, sorted.
func delayed(t *testing.T, r *rand.Rand, count int) (s *verifytest.Scene, took [2][]time.Duration) {
	s = verifytest.SoftScene(t, verifytest.SoftFile)
	s.Sightings, s.Now, s.Step = nil, verifytest.Start, 100_000
	dst := verifytest.Loopback(&s.Plan.Nodes[2])
	for i := range count {
		from := &s.Plan.Nodes[i%2]
		s.Send(from.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(from), 7000),
			Dst: netip.AddrPortFrom(dst, 17000), Datagram: fmt.Appendf(nil, "%64d", i)})
	}
	left := map[uint64]int64{}
	for _, k := range s.Sightings {
		if k.Out && (k.Tap == "h0:eth0" || k.Tap == "h1:eth0") {
			left[k.ID] = k.Time
		}
	}
	s.Change(func(k verifytest.Sighting) bool { return k.Tap == "h2:eth0" }, func(k *verifytest.Sighting) {
		k.Time += r.Int64N(40) * 10_000
		sender := 1
		if verifytest.SrcOf(*k) == verifytest.Loopback(&s.Plan.Nodes[0]) {
			sender = 0
		}
		took[sender] = append(took[sender], time.Duration(k.Time-left[k.ID]))
	})
	for i := range took {
		slices.Sort(took[i])
	}
	s.Now += 1_000_000_000
	return s, took
}

// Percentiles are by nearest rank. The expected values come from the sorted latencies.
func TestLatency(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	verdicts := map[string]int{}
	for range 60 {
		count := 2 + r.IntN(300)
		s, took := delayed(t, r, count)
		both := slices.Sorted(slices.Values(slices.Concat(took[0], took[1])))
		for _, per := range []string{"", spec.PerFlow, spec.PerPair} {
			streams := [][]time.Duration{both}
			if per != "" {
				streams = took[:]
			}
			name, share := "p50", 0.5
			switch r.IntN(4) {
			case 0:
				name, share = "p99", 0.99
			case 1:
				name, share = "p999", 0.999
			case 2:
				name, share = "max", 1
			}
			limit := both[r.IntN(len(both))]
			op := []string{"<", "<=", ">", ">="}[r.IntN(4)]
			holds := true
			for _, stream := range streams {
				v := stream[int(math.Ceil(share*float64(len(stream))-1e-9))-1]
				holds = holds && map[string]bool{"<": v < limit, "<=": v <= limit, ">": v > limit,
					">=": v >= limit}[op]
			}
			k := &spec.LatencyCheck{Per: per}
			*map[string]*string{"p50": &k.P50, "p99": &k.P99, "p999": &k.P999, "max": &k.Max}[name] =
				fmt.Sprintf("%s %dns", op, limit)
			results, _ := s.Run(NewLatency(k, nil))
			want := fail
			if holds {
				want = pass
			}
			verdicts[string(want)]++
			if results[0].Verdict != want || int(results[0].Measured["packets"]) != count {
				t.Errorf("per %q, %s of %d packets %s %v: want %s: %v", per, name, count, op, limit, want,
					results[0])
			}
		}
	}
	if verdicts[string(pass)] < 20 || verdicts[string(fail)] < 20 {
		t.Errorf("drew %v", verdicts)
	}
}

// Without evidence latencies are not known.
func TestLatencyLacksEvidence(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for says, spoil := range map[string]func(*verifytest.Scene){
		"not recorded: h2:eth0":                func(s *verifytest.Scene) { s.Untapped["h2:eth0"] = true },
		"tap h0:eth0 lost 1":                   func(s *verifytest.Scene) { s.Drops["h0:eth0"] = 1 },
		"no packet was seen to leave one node": func(s *verifytest.Scene) { s.Sightings = nil },
	} {
		s, _ := delayed(t, r, 50)
		spoil(s)
		results, _ := s.Run(NewLatency(&spec.LatencyCheck{Max: "<= 1s"}, nil))
		verifytest.Wants(t, results[0], unclear, says)
	}
}

// TestLinkBytes compares the bytes of links with those that the scene sent. A datagram of 64 bytes is a
// frame of 106.
func TestLinkBytes(t *testing.T) {
	for _, c := range []struct {
		link, is string
		spoil    func(*verifytest.Scene)
		pass     bool
		says     string
	}{
		{"h0--leaf1 a-to-b", "== 2.65KB", nil, true, "links carried 2650B"},
		{"h0--leaf1 b-to-a", "== 0B", nil, true, "carried 0B"},
		{"h0--leaf1", ">= 1KB", nil, false, "h0--leaf1 b-to-a: 0B, want >= 1KB"},
		{"h2--leaf2 b-to-a", "<= 5.2KB", nil, false, "h2--leaf2 b-to-a: 5300B, want <= 5.2KB"},
		{"h*--leaf*", "<= 5.3KB", nil, true,
			"links carried 10600B, at most 5300B in a direction (8 directions)"},
		// Frames count where they arrive if the sending port has no tap.
		{"h0--leaf1 a-to-b", "== 2.65KB", func(s *verifytest.Scene) {
			s.Untapped["h0:eth0"] = true
		}, true, "2650B"},
	} {
		s, _ := delayed(t, rand.New(rand.NewPCG(5, 6)), 50)
		if c.spoil != nil {
			c.spoil(s)
		}
		results, _ := s.Run(NewLinkBytes(&spec.LinkBytesCheck{Link: c.link, Is: c.is}, nil))
		want := fail
		if c.pass {
			want = pass
		}
		verifytest.Wants(t, results[0], want, c.says)
	}
	s, _ := delayed(t, rand.New(rand.NewPCG(5, 6)), 50)
	s.Untapped["h0:eth0"], s.Untapped["leaf1:p0"] = true, true
	results, _ := s.Run(NewLinkBytes(&spec.LinkBytesCheck{Link: "h0--leaf1 a-to-b", Is: "<= 1MB"}, nil))
	verifytest.Wants(t, results[0], unclear, "not recorded: h0:eth0")
}
