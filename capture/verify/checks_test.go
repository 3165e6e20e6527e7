package verify

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railbed/capture/pcapng"
	"railbed/capture/verify/evidence"
	"railbed/capture/verify/fabricchecks"
	"railbed/capture/verify/ranks"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// The checks of the table, in the order of its columns.
var columns = []string{"bytes-per-rank", "rank-nic", "conservation", "path-spread", "fidelity", "mtu"}

func checksOf(s *verifytest.Scene) []evidence.Check {
	return []evidence.Check{
		ranks.NewBytesPerRank(s.Workload, units.Ratio{Num: 2, Den: 100}),
		ranks.NewRankNIC(s.Workload),
		fabricchecks.NewConservation("*"),
		fabricchecks.NewPathSpread(&spec.PathSpread{Switch: "leaf*", MinShare: units.Ratio{Num: 1, Den: 2}}),
		NewFidelity(Faithful, HostLoad{Pressure: 0.2, Steal: 0}),
		fabricchecks.NewMTU(0),
	}
}

// mutations are runs that are broken on purpose. Each states what every check
// must say about it; says is part of a line of the check that finds it.
var mutations = []struct {
	name   string
	mutate func(*verifytest.Scene)
	want   [6]verdict.Verdict
	says   string
}{
	{"nothing", func(*verifytest.Scene) {}, [6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, ""},
	{"a packet vanishes inside a leaf", func(s *verifytest.Scene) {
		id := s.Packet("h1:eth0", true)
		at := s.Of(id, "leaf1:p1", false).Time
		s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Time > at })
	}, [6]verdict.Verdict{pass, pass, fail, pass, pass, pass}, "leaf1: 1 packet entered and never left"},
	{"a packet leaves a leaf twice", func(s *verifytest.Scene) {
		id := s.Packet("h0:eth0", true)
		again := s.Of(id, "leaf1:p1", true)
		again.Time += 5000
		s.Insert(again)
	}, [6]verdict.Verdict{pass, pass, fail, pass, pass, pass}, "entered 1 time and left 2 times"},
	{"a spine makes a packet up", func(s *verifytest.Scene) {
		k := s.Of(s.Packet("h1:eth0", true), "h1:eth0", true)
		k.Tap, k.ID, k.Time = "spine1:p1", 1<<40, s.Now-s.Step*500
		s.Insert(k)
	}, [6]verdict.Verdict{pass, pass, fail, pass, pass, pass},
		"spine1: 1 packet left without having entered"},
	{"a packet ends by its TTL", func(s *verifytest.Scene) {
		s.IDs++
		s.Send("h0", "eth0", verifytest.TCP{Src: netip.MustParseAddrPort("10.9.9.9:1"),
			Dst: netip.AddrPortFrom(s.Workload.Ranks[3].Addr, 9), TTL: 1})
		s.Now += 100_000_000
	}, [6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, ""},
	{"a packet is for the leaf itself", func(s *verifytest.Scene) {
		s.Send("h0", "eth0", verifytest.TCP{Src: netip.AddrPortFrom(s.Workload.Ranks[0].Addr, 1),
			Dst: netip.AddrPortFrom(s.Plan.Switch("leaf1").Loopbacks[0].Addr(), 9)})
		s.Now += 100_000_000
	}, [6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, ""},
	{"a leaf drops a packet and says so", func(s *verifytest.Scene) {
		id := s.Packet("h1:eth0", true)
		at := s.Of(id, "leaf1:p1", false).Time
		s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Time > at })
		s.Change(func(k verifytest.Sighting) bool {
			return k.ID == id && k.Tap == "leaf1:p1"
		}, func(k *verifytest.Sighting) {
			k.Comment = "railbed verdict=drop reason=tail depth=40320"
		})
	}, [6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, ""},
	{"a rank sends through another NIC", func(s *verifytest.Scene) {
		rank := s.Workload.Ranks[1].Addr
		s.Change(func(k verifytest.Sighting) bool {
			return k.Tap == "h1:eth0" && k.Out && verifytest.IsData(k) &&
				k.Time > verifytest.Start+50_000_000 && verifytest.SrcOf(k) == rank
		}, func(k *verifytest.Sighting) { k.Tap = "h0:eth0" })
	}, [6]verdict.Verdict{fail, fail, pass, pass, pass, pass},
		"rank 1 (h1:eth0) sent 423 packets at h0:eth0"},
	{"packets reach a leaf without having left a NIC", func(s *verifytest.Scene) {
		s.Remove(func(k verifytest.Sighting) bool {
			return k.Tap == "h1:eth0" && k.Out && verifytest.IsData(k) &&
				k.Time > verifytest.Start+100_000_000
		})
	}, [6]verdict.Verdict{fail, fail, pass, pass, pass, pass}, "were not seen to leave its NIC"},
	{"a rank uses another address", func(s *verifytest.Scene) {
		s.Send("h0", "eth0", verifytest.TCP{Src: netip.MustParseAddrPort("10.0.0.1:5"),
			Dst: netip.AddrPortFrom(s.Workload.Ranks[1].Addr, verifytest.Service), Payload: 100})
	}, [6]verdict.Verdict{pass, fail, pass, pass, pass, pass}, "which is no rank's address"},
	{"a rank sends too little", func(s *verifytest.Scene) {
		s.Workload.Ranks[2].Expected = s.Workload.Ranks[2].Expected * 11 / 10
	}, [6]verdict.Verdict{fail, pass, pass, pass, pass, pass},
		"rank 2 (h2:eth0): sent 720000 bytes, the algorithm sends 792000"},
	{"a rank sends too much", func(s *verifytest.Scene) {
		s.Workload.Ranks[2].Expected = s.Workload.Ranks[2].Expected * 9 / 10
	}, [6]verdict.Verdict{fail, pass, pass, pass, pass, pass}, "(+11.11%)"},
	{"a worker counts other bytes than the packets", func(s *verifytest.Scene) {
		reported := uint64(720000 + 8000)
		s.Workload.Ranks[0].Reported = &reported
	}, [6]verdict.Verdict{fail, pass, pass, pass, pass, pass}, "the worker counted 728000"},
	{"a worker counts the same", func(s *verifytest.Scene) {
		reported := uint64(720000)
		s.Workload.Ranks[0].Reported = &reported
	}, [6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, ""},
	{"segments are sent again", func(s *verifytest.Scene) {
		for c := range verifytest.Connections {
			from, to := s.Workload.Ranks[0], s.Workload.Ranks[1]
			s.Send("h0", "eth0", verifytest.TCP{Src: netip.AddrPortFrom(from.Addr, uint16(20000+c)),
				Dst: netip.AddrPortFrom(to.Addr, verifytest.Service), Flow: c, Seq: 3000 - 255,
				Payload: 1000})
		}
	}, [6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, "16000 bytes retransmitted"},
	{"bytes of a flow never pass the NIC", func(s *verifytest.Scene) {
		ids := map[uint64]bool{}
		for _, k := range s.Sightings {
			if k.Tap == "h3:eth0" && k.Out && verifytest.IsData(k) && k.Time > verifytest.Start+40_000_000 &&
				k.Time < verifytest.Start+50_000_000 {
				ids[k.ID] = true
			}
		}
		s.Remove(func(k verifytest.Sighting) bool { return ids[k.ID] })
	}, [6]verdict.Verdict{unclear, pass, pass, pass, pass, pass}, "never passed its tap"},
	{"a NIC's tap loses packets", func(s *verifytest.Scene) { s.Drops["h1:eth0"] = 3 },
		[6]verdict.Verdict{unclear, unclear, pass, pass, fail, unclear}, "tap h1:eth0 lost 3 packets"},
	{"a leaf's tap loses packets", func(s *verifytest.Scene) {
		id := s.Packet("h1:eth0", true)
		s.Remove(func(k verifytest.Sighting) bool {
			return k.ID == id && strings.HasPrefix(k.Tap, "leaf1:") && k.Out
		})
		for _, port := range s.Plan.Switch("leaf1").Ports {
			s.Drops["leaf1:"+port.Name] = 1
		}
	}, [6]verdict.Verdict{pass, pass, unclear, unclear, fail, unclear}, "lost 1 packet"},
	{"the limit is reached", func(s *verifytest.Scene) { s.Limited["h1:eth0"] = 100 },
		[6]verdict.Verdict{unclear, unclear, pass, pass, fail, unclear}, "tap h1:eth0 lost 100 packets"},
	{"nobody sends", func(s *verifytest.Scene) { s.Sightings = nil },
		[6]verdict.Verdict{unclear, unclear, unclear, unclear, unclear, unclear}, "no packet"},
	{"a NIC is not captured", func(s *verifytest.Scene) { s.Untapped["h1:eth0"] = true },
		[6]verdict.Verdict{unclear, unclear, pass, pass, pass, pass}, "not recorded: "},
	{"a port is not captured", func(s *verifytest.Scene) { s.Untapped["leaf1:p2"] = true },
		[6]verdict.Verdict{pass, pass, unclear, unclear, pass, pass}, "not recorded: leaf1:p2"},
	{"the counts at the end are missing", func(s *verifytest.Scene) { s.NoCounts = true },
		[6]verdict.Verdict{unclear, unclear, unclear, unclear, unclear, unclear}, "the capture is truncated"},
	{"all flows take one uplink", func(s *verifytest.Scene) {
		replay(s, func(int, int) int { return 0 })
	}, [6]verdict.Verdict{pass, pass, pass, fail, pass, pass},
		"the least loaded of 2 paths had 0% of its fair share with 32 flows"},
	{"too few flows take one uplink", func(s *verifytest.Scene) {
		s.Remove(func(k verifytest.Sighting) bool { return verifytest.PortOf(k) > 20001 })
		for i := range s.Workload.Ranks {
			s.Workload.Ranks[i].Expected /= verifytest.Connections / 2
		}
		s.Change(func(k verifytest.Sighting) bool {
			return verifytest.PortOf(k) == 20001 && k.Tap == "leaf1:p3"
		}, func(k *verifytest.Sighting) { k.Tap = "leaf1:p2" })
		s.Change(func(k verifytest.Sighting) bool {
			return verifytest.PortOf(k) == 20001 && k.Tap == "leaf2:p3"
		}, func(k *verifytest.Sighting) { k.Tap = "leaf2:p2" })
	}, [6]verdict.Verdict{pass, pass, pass, unclear, pass, pass},
		"an even hash is as uneven with probability"},
	{"a frame is longer than the MTU", func(s *verifytest.Scene) {
		s.Change(func(k verifytest.Sighting) bool {
			return k.ID == s.IDs/2
		}, func(k *verifytest.Sighting) { k.Length = 1515 })
	}, [6]verdict.Verdict{pass, pass, pass, pass, pass, fail},
		"over the MTU of 1500, the longest of 1501 bytes"},
	{"a link carries too much", func(s *verifytest.Scene) {
		stretched(s, 10)
		s.Plan.Links[0].AToB.Rate = 3_000_000
	}, [6]verdict.Verdict{pass, pass, pass, pass, verdict.Overloaded, pass}, "instead of 3mbit while busy"},
	{"somebody else's capture", func(s *verifytest.Scene) { s.Foreign = true },
		[6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, ""},
	{"somebody else's capture without counts", func(s *verifytest.Scene) {
		s.Foreign, s.NoCounts = true, true
	},
		[6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, ""},
}

// replay plays the ring again with another choice of uplinks.
func replay(s *verifytest.Scene, uplink func(flow, paths int) int) {
	s.Sightings, s.Workload.Ranks, s.Now, s.IDs = nil, nil, verifytest.Start, 0
	s.Uplink = uplink
	s.Ring(4)
}

func TestChecksAgainstMutations(t *testing.T) {
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			s := verifytest.NewScene(t)
			s.Ring(4)
			m.mutate(s)
			results, _ := s.Run(checksOf(s)...)
			found := m.says == ""
			for i, result := range results {
				if result.Verdict != m.want[i] {
					t.Errorf("%s, want %s:\n%v", columns[i], m.want[i], result)
				}
				found = found || strings.Contains(strings.Join(append(result.Details, result.Summary), "\n"),
					m.says)
			}
			if !found {
				t.Errorf("nothing says %q: %v", m.says, results)
			}
		})
	}
}

// TestMutationsTurnEveryCheckRed holds that the table has a broken run for
// every check.
func TestMutationsTurnEveryCheckRed(t *testing.T) {
	for i, name := range columns {
		red := slices.ContainsFunc(mutations, func(m struct {
			name   string
			mutate func(*verifytest.Scene)
			want   [6]verdict.Verdict
			says   string
		}) bool {
			return m.want[i] == fail || m.want[i] == verdict.Overloaded
		})
		if !red {
			t.Errorf("no mutation fails %s", name)
		}
	}
}

func TestRingOverIPv6(t *testing.T) {
	s := verifytest.NewScene(t)
	s.Ring(6)
	results, _ := s.Run(checksOf(s)...)
	for _, result := range results {
		if result.Verdict != pass {
			t.Error(result)
		}
	}
}

// TestCutCapture cuts a capture at many places: no check may pass, whatever
// was cut off.
func TestCutCapture(t *testing.T) {
	s := verifytest.NewScene(t)
	s.Ring(4)
	whole := s.Write()
	for length := 100; length < len(whole); length += len(whole) / 50 {
		results, summary, err := evidence.Run(t.Context(), bytes.NewReader(whole[:length]), s.Options(),
			checksOf(s)...)
		if err != nil {
			continue // cut within the section header
		}
		if !summary.Truncated {
			t.Errorf("cut at byte %d of %d and not noticed", length, len(whole))
		}
		for _, result := range results {
			if result.Verdict == pass {
				t.Errorf("cut at byte %d of %d: %v", length, len(whole), result)
			}
		}
	}
}

func TestQueueDropsExplain(t *testing.T) {
	for drops, want := range map[uint64]verdict.Verdict{0: fail, 1: fail, 2: pass, 3: pass} {
		s := verifytest.NewScene(t)
		s.Plan = plantest.Compile(
			t, strings.Replace(verifytest.ClusterFile, "topology:", "switch: {kind: router}\n  topology:", 1))
		s.Ring(4)
		for range 2 {
			id := s.Packet("h1:eth0", true)
			at := s.Of(id, "leaf1:p1", false).Time
			s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Time > at })
			shorten(s, id)
		}
		s.Queues["leaf1:p0"] = drops
		results, _ := s.Run(fabricchecks.NewConservation("leaf1"))
		if results[0].Verdict != want {
			t.Errorf("with %d drops counted, want %s: %v", drops, want, results[0])
		}
	}
}

// TestHarmExplains: what faults dropped or changed at kernel switches is no violation, and not more than
// that.
func TestHarmExplains(t *testing.T) {
	for _, test := range []struct {
		harm Harm
		// hits is set if the capture has the packets that faults hit.
		hits bool
		// spoil harms a packet from the port of the switch on.
		spoil func(s *verifytest.Scene, id uint64, at int64)
		want  []verdict.Verdict // of each check
	}{
		{Harm{}, false, lose, []verdict.Verdict{fail, fail, fail, fail}},
		{Harm{Dropped: 1}, false, lose, []verdict.Verdict{fail, fail, fail, fail}},
		{Harm{Copied: 2}, false, lose, []verdict.Verdict{fail, fail, fail, fail}},
		// The counters tell nothing about single packets.
		{Harm{Dropped: 2}, false, lose, []verdict.Verdict{fail, unclear, unclear, pass}},
		{Harm{Changed: 2}, false, spoil, []verdict.Verdict{fail, unclear, unclear, fail}},
		{Harm{Dropped: 2}, false, spoil, []verdict.Verdict{fail, fail, fail, pass}},
		{Harm{Copied: 1}, false, double, []verdict.Verdict{fail, fail, fail, fail}},
		{Harm{Copied: 2}, false, double, []verdict.Verdict{fail, pass, pass, fail}},
		// They explain nothing if the capture has each packet that was hit.
		{Harm{Dropped: 2}, true, lose, []verdict.Verdict{fail, fail, fail, fail}},
		{Harm{Changed: 2}, true, spoil, []verdict.Verdict{fail, fail, fail, fail}},
		{Harm{Copied: 2}, true, double, []verdict.Verdict{fail, fail, fail, fail}},
		{Harm{Dropped: 2}, true, drop, []verdict.Verdict{pass, pass, pass, pass}},
		{Harm{Dropped: 4}, true, drop, []verdict.Verdict{pass, pass, pass, pass}},
		{Harm{Changed: 2}, true, hit(spoil, "corrupt"), []verdict.Verdict{pass, pass, pass, fail}},
		{Harm{Changed: 2}, true, hit(lose, "truncate"), []verdict.Verdict{pass, pass, pass, fail}},
		{Harm{Copied: 2}, true, hit(double, "duplicate"), []verdict.Verdict{pass, pass, pass, fail}},
		// Two faults change a packet, and another packet is lost.
		{Harm{Changed: 2}, true, hitFirst(), []verdict.Verdict{fail, fail, fail, fail}},
	} {
		s := verifytest.NewScene(t)
		s.Plan = plantest.Compile(
			t, strings.Replace(verifytest.ClusterFile, "topology:", "switch: {kind: router}\n  topology:", 1))
		s.Ring(4)
		s.Harm, s.Hits = map[string]Harm{"leaf1:p0": test.harm}, test.hits
		for range 2 {
			id := s.Packet("h1:eth0", true)
			test.spoil(s, id, s.Of(id, "leaf1:p1", false).Time)
			shorten(s, id)
		}
		results, _ := s.Run(fabricchecks.NewConservation("leaf1"),
			fabricchecks.NewLossless(&spec.LosslessCheck{}),
			fabricchecks.NewLossless(&spec.LosslessCheck{From: "h1"}),
			fabricchecks.NewDrops(&spec.DropsCheck{Reason: "fault", Count: "== 2"}))
		for i, r := range results {
			if r.Verdict != test.want[i] {
				t.Errorf("%+v, %t: want %s: %v", test.harm, test.hits, test.want[i], r)
			}
		}
	}
}

// shorten makes a packet shorter, so that Scene.Packet finds another.
func shorten(s *verifytest.Scene, id uint64) {
	s.Change(func(k verifytest.Sighting) bool { return k.ID == id }, func(k *verifytest.Sighting) {
		k.Frame, k.Length = slices.Clone(k.Frame), verifytest.Segment
		wire.IPv4(k.Frame[14:]).RewriteTotalLength(uint16(k.Length - 14))
	})
}

// lose removes a packet after a time.
func lose(s *verifytest.Scene, id uint64, at int64) {
	s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Time > at })
}

// hit harms a packet after a time, and records that a fault did it at the port that sends the packet.
func hit(spoil func(*verifytest.Scene, uint64, int64), verdict string) func(*verifytest.Scene, uint64,
	int64) {
	return func(s *verifytest.Scene, id uint64, at int64) {
		one := s.Of(id, "leaf1:p1", false)
		one.Tap, one.Record, one.Time, one.Comment = "leaf1:p0", true, at+1,
			"railbed verdict="+verdict+" reason=fault name=f"
		spoil(s, id, at)
		s.Insert(one)
	}
}

// hitFirst makes two faults change the first packet, and loses the second.
func hitFirst() func(*verifytest.Scene, uint64, int64) {
	seen := false
	return func(s *verifytest.Scene, id uint64, at int64) {
		if seen {
			lose(s, id, at)
			return
		}
		seen = true
		hit(spoil, "corrupt")(s, id, at)
		again := s.Sightings[slices.IndexFunc(s.Sightings, func(k verifytest.Sighting) bool {
			return k.ID == s.IDs
		})]
		again.Tap, again.Record, again.Time, again.Comment = "leaf1:p0", true, at+2,
			"railbed verdict=truncate reason=fault name=g"
		s.Insert(again)
	}
}

// TestCopiesComeBeforeEqualPackets: the copy of a packet that a fault made arrives just before an equal
// packet leaves. It is not this packet.
func TestCopiesComeBeforeEqualPackets(t *testing.T) {
	for comment, want := range map[string]verdict.Verdict{"duplicate": pass, "mark": fail} {
		s := verifytest.NewScene(t)
		s.Plan = plantest.Compile(
			t, strings.Replace(verifytest.ClusterFile, "topology:", "switch: {kind: router}\n  topology:", 1))
		s.Ring(4)
		s.Hits = true
		id := s.Packet("h1:eth0", true)
		hit(double, comment)(s, id, s.Of(id, "leaf1:p1", false).Time)
		came := int64(0)
		for _, k := range s.Sightings {
			if k.ID == s.IDs {
				came = max(came, k.Time)
			}
		}
		later := came + 100 - s.Of(id, "h1:eth0", true).Time
		s.IDs++
		for _, k := range slices.Clone(s.Sightings) {
			if k.ID == id && !k.Record {
				k.ID, k.Time = s.IDs, k.Time+later
				s.Insert(k)
			}
		}
		results, _ := s.Run(fabricchecks.NewLossless(&spec.LosslessCheck{}))
		if results[0].Verdict != want {
			t.Errorf("%s: want %s: %v", comment, want, results[0])
		}
	}
}

// TestRefusedBecauseOfFault: a router may refuse a packet whose header a fault at its NIC broke.
func TestRefusedBecauseOfFault(t *testing.T) {
	for _, comment := range []string{"railbed verdict=corrupt reason=fault name=f",
		"railbed verdict=duplicate reason=fault name=f"} {
		s := verifytest.NewScene(t)
		s.Plan = plantest.Compile(
			t, strings.Replace(verifytest.ClusterFile, "topology:", "switch: {kind: router}\n  topology:", 1))
		s.Ring(4)
		s.Hits = true
		id := s.Packet("h1:eth0", true)
		one := s.Of(id, "h1:eth0", true)
		s.Change(func(k verifytest.Sighting) bool { return k.ID == id }, func(k *verifytest.Sighting) {
			k.Frame = slices.Clone(k.Frame)
			k.Frame[22] ^= 1
		})
		lose(s, id, s.Of(id, "leaf1:p1", false).Time)
		one.Record, one.Time, one.Comment = true, one.Time-1, comment
		s.Insert(one)
		results, _ := s.Run(fabricchecks.NewLossless(&spec.LosslessCheck{}))
		want := pass
		if strings.Contains(comment, "duplicate") {
			want = fail
		}
		if results[0].Verdict != want {
			t.Errorf("%s: want %s: %v", comment, want, results[0])
		}
	}
}

// drop removes a packet after a time, and records that a fault dropped it.
func drop(s *verifytest.Scene, id uint64, at int64) {
	lose(s, id, at)
	one := s.Of(id, "leaf1:p1", false)
	one.Tap, one.Out, one.Time = "leaf1:p0", true, at+1
	one.Comment = "railbed verdict=drop reason=fault name=f"
	s.Insert(one)
}

// double makes a copy of a packet after a time.
func double(s *verifytest.Scene, id uint64, at int64) {
	s.IDs++
	for _, k := range slices.Clone(s.Sightings) {
		if k.ID == id && k.Time > at {
			k.ID, k.Time = s.IDs, k.Time+1
			s.Insert(k)
		}
	}
}

// TestRefusedByRouters: a router does not forward a packet that came with a wrong header.
func TestRefusedByRouters(t *testing.T) {
	for name, harm := range map[string]func(wire.IPv4){
		"checksum": func(h wire.IPv4) { h[8] ^= 0x10 },
		"length":   func(h wire.IPv4) { h.RewriteTotalLength(9000) },
		"":         func(h wire.IPv4) { h.RewriteTotalLength(h.TotalLength()) },
	} {
		s := verifytest.NewScene(t)
		s.Ring(4)
		id := s.Packet("h1:eth0", true)
		s.Change(func(k verifytest.Sighting) bool { return k.ID == id }, func(k *verifytest.Sighting) {
			k.Frame = slices.Clone(k.Frame)
			harm(wire.IPv4(k.Frame[14:]))
		})
		lose(s, id, s.Of(id, "leaf1:p1", false).Time)
		results, _ := s.Run(fabricchecks.NewConservation("leaf1"))
		want := pass
		if name == "" {
			want = fail
		}
		if results[0].Verdict != want {
			t.Errorf("wrong %q: want %s: %v", name, want, results[0])
		}
	}
}

// spoil makes another packet of a packet after a time.
func spoil(s *verifytest.Scene, id uint64, at int64) {
	s.IDs++
	other := s.IDs
	later := func(k verifytest.Sighting) bool { return k.ID == id && k.Time > at }
	s.Change(later, func(k *verifytest.Sighting) {
		k.ID, k.Frame = other, slices.Clone(k.Frame)
		k.Frame[40] ^= 1 // in the sequence number
	})
}

func TestHostLoad(t *testing.T) {
	for _, c := range []struct {
		load   HostLoad
		accept string
		want   verdict.Verdict
		level  string
	}{
		{HostLoad{Pressure: 0.5, Steal: 0.01}, Faithful, pass, Faithful},
		{HostLoad{Pressure: -1, Steal: -1}, Faithful, pass, Faithful},
		{HostLoad{Pressure: 0.95}, Faithful, fail, Degraded},
		{HostLoad{Pressure: 0.95}, Degraded, pass, Degraded},
		{HostLoad{Steal: 0.1}, Degraded, pass, Degraded},
		{HostLoad{Steal: 0.3}, Degraded, verdict.Overloaded, Overloaded},
	} {
		s := verifytest.NewScene(t)
		s.Ring(4)
		check := NewFidelity(c.accept, c.load)
		results, _ := s.Run(check)
		if results[0].Verdict != c.want || check.Level() != c.level {
			t.Errorf("%+v accepting %s: %s and %s, want %s and %s", c.load, c.accept, results[0].Verdict,
				check.Level(), c.want, c.level)
		}
	}
}

// stretched makes the capture take longer.
func stretched(s *verifytest.Scene, factor int64) {
	for i := range s.Sightings {
		s.Sightings[i].Time = verifytest.Start + (s.Sightings[i].Time-verifytest.Start)*factor
	}
	s.Now = verifytest.Start + (s.Now-verifytest.Start)*factor
}

// TestBridge judges what a bridge does with frames to all, to somebody that it
// has not learned yet, and what it must not do.
func TestBridge(t *testing.T) {
	for name, c := range map[string]struct {
		out  []string // ports by which a frame that came in by p0 leaves
		want verdict.Verdict
	}{
		"forwards":        {[]string{"p1"}, pass},
		"floods":          {[]string{"p1", "p2"}, pass},
		"sends twice":     {[]string{"p1", "p1"}, fail},
		"floods and back": {[]string{"p0", "p1", "p2"}, fail},
		"sends back":      {[]string{"p0"}, fail},
		"swallows":        {nil, fail},
	} {
		s := verifytest.NewScene(t)
		s.Plan = plantest.Compile(t, "name: b\nfabric:\n  topology: single-switch\n  params: {hosts: 3}\n  "+
			"switch: {kind: bridge}\n")
		sw := s.Plan.Switches[0].Name
		from, to := s.Plan.Nodes[0].NICs[0], s.Plan.Nodes[1].NICs[0]
		frame := s.Frame(verifytest.TCP{Src: netip.MustParseAddrPort("10.0.0.1:1"),
			Dst: netip.MustParseAddrPort("10.0.0.2:1")}, 64, from.MAC, to.MAC)
		at := func(id uint64, time int64, tap string, out bool) {
			s.Insert(verifytest.Sighting{Tap: tap, Out: out, Time: time, ID: id, Frame: frame,
				Length: len(frame)})
		}
		at(1, verifytest.Start, sw+":p0", false) // an ordinary one, so that something crosses
		at(1, verifytest.Start+10, sw+":p1", true)
		at(2, verifytest.Start+50_000_000, sw+":p0", false)
		for i, port := range c.out {
			at(2, verifytest.Start+50_000_100+int64(i), sw+":"+port, true)
		}
		s.Now = verifytest.Start + 200_000_000
		results, _ := s.Run(fabricchecks.NewConservation("*"))
		if results[0].Verdict != c.want {
			t.Errorf("%s: want %s: %v", name, c.want, results[0])
		}
	}
}

func TestWithoutPlan(t *testing.T) {
	s := verifytest.NewScene(t)
	s.Ring(4)
	data := s.Write()
	results, _, err := evidence.Run(t.Context(), bytes.NewReader(data), evidence.Options{}, checksOf(s)...)
	if err != nil {
		t.Fatal(err)
	}
	want := [6]verdict.Verdict{pass, pass, pass, unclear, unclear, unclear}
	for i, result := range results {
		if result.Verdict != want[i] {
			t.Errorf("%s, want %s: %v", columns[i], want[i], result)
		}
	}
}

// TestOtherLinkType has frames of another link layer than Ethernet, which must
// not be taken for some.
func TestOtherLinkType(t *testing.T) {
	var out bytes.Buffer
	w, err := pcapng.NewWriter(&out, pcapng.Section{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddInterface(pcapng.Interface{Name: "h0:any", LinkType: 113}); err != nil { // LINUX_SLL
		t.Fatal(err)
	}
	if err := errors.Join(w.WritePacket(&pcapng.Packet{Data: make([]byte, 60), Length: 9000}),
		w.Flush()); err != nil {
		t.Fatal(err)
	}
	results, summary, err := evidence.Run(t.Context(), &out, evidence.Options{}, fabricchecks.NewMTU(1500))
	if err != nil || results[0].Verdict != unclear || summary.Undecoded != 1 {
		t.Errorf("%v, %+v, %v", results, summary, err)
	}
}

// FuzzRun gives packets of any bytes to every check.
func FuzzRun(f *testing.F) {
	s := verifytest.NewScene(f)
	s.Ring(4)
	for _, k := range s.Sightings[:3] {
		f.Add(k.Frame, uint32(k.Length))
	}
	f.Add([]byte{1, 2, 3}, uint32(0))
	r := verifytest.NewScene(f)
	r.RDRing(4)
	r.Say(8, 5000, nil, 8, 1<<63)
	r.NACK(8, 6000, wire.RDTrimmed)
	for _, k := range r.Sightings {
		if k.ID < 3 || k.ID > r.IDs-3 {
			f.Add(k.Frame, uint32(k.Length))
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte, length uint32) {
		var out bytes.Buffer
		w, err := pcapng.NewWriter(&out, pcapng.Section{})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"h0:eth0", "leaf1:p0"} {
			if _, err := w.AddInterface(
				pcapng.Interface{Name: name, LinkType: pcapng.LinkEthernet}); err != nil {
				t.Fatal(err)
			}
			number := map[string]int{"h0:eth0": 0, "leaf1:p0": 1}[name]
			if err := w.WritePacket(&pcapng.Packet{Interface: number, Data: frame, Length: int(length),
				Has: pcapng.HasFlags, Flags: pcapng.Outbound}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := evidence.Run(t.Context(), &out, s.Options(),
			append(checksOf(s), thatRD(t, spec.ThatRDPlaced), thatRD(t, spec.ThatRDNeeded),
				ranks.NewBytesPerRank(r.Workload, units.Ratio{}),
				fabricchecks.NewReordering(&spec.ReorderingCheck{}))...); err != nil {
			t.Fatal(err)
		}
	})
}

func TestNotACapture(t *testing.T) {
	_, _, err := evidence.Run(t.Context(), strings.NewReader("hello, world, this is no capture"),
		evidence.Options{})
	if err == nil || !strings.Contains(err.Error(), pcapng.ErrFormat.Error()) {
		t.Errorf("got %v", err)
	}
}
