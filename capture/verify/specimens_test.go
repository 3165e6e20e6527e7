package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/capture/verify/fabricchecks"
	"railbed/capture/verify/ranks"
	"railbed/capture/verify/rdchecks"
	"railbed/capture/verify/rocechecks"
	"railbed/internal/infiniband"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// everyCheck names the checks of packets that files can ask for, with the rules and
// sentences that one kind may have.
func everyCheck() (names []string) {
	text, err := os.ReadFile("../../plan/spec/railbed.schema.json")
	var schema struct {
		Defs map[string]struct {
			Properties map[string]struct {
				AnyOf []struct {
					Enum []any `json:"enum"`
				} `json:"anyOf"`
			} `json:"properties"`
		} `json:"$defs"`
	}
	if err == nil {
		err = json.Unmarshal(text, &schema)
	}
	if err != nil {
		panic(err)
	}
	words := map[string][]any{
		"roce": schema.Defs["RoCECheck"].Properties["rule"].AnyOf[0].Enum,
		"that": schema.Defs["PacketsCheck"].Properties["that"].AnyOf[0].Enum,
	}
	for _, kind := range spec.RuleKinds() {
		if words["rule"] = append(words["rule"], kind); kind == spec.RuleCount {
			words["rule"] = append(words["rule"], kind+" in a window")
		}
	}
	for _, key := range spec.PacketChecks() {
		for _, word := range words[key] {
			names = append(names, fmt.Sprint(key, " ", word))
		}
		if words[key] == nil {
			names = append(names, key)
		}
	}
	return names
}

func init() { maps.Copy(specimens, ruleSpecimens) }

// specimens has two runs for each check: a run that passes and a broken run.
var specimens = map[string]func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check){
	"bytes-per-rank": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := smallRing(t)
		if broken {
			s.Workload.Ranks[2].Expected += 40_000
		}
		return s, func() evidence.Check {
			return ranks.NewBytesPerRank(s.Workload, units.Ratio{Num: 2, Den: 100})
		}
	},
	"rank-nic": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := smallRing(t)
		if broken {
			s.Change(func(k verifytest.Sighting) bool {
				return k.Tap == "h1:eth0" && k.Out && verifytest.IsData(k)
			}, func(k *verifytest.Sighting) { k.Tap = "h0:eth0" })
		}
		return s, func() evidence.Check { return ranks.NewRankNIC(s.Workload) }
	},
	"crossed": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := smallRing(t)
		if broken {
			s.Remove(func(k verifytest.Sighting) bool {
				return k.Tap == "h1:eth0" && k.Out && verifytest.IsData(k)
			})
		}
		return s, func() evidence.Check { return ranks.NewCrossed(ranks.CrossingOf(s.Workload)) }
	},
	"rail-local": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := smallRing(t)
		if !broken {
			s.Remove(func(k verifytest.Sighting) bool {
				return strings.HasPrefix(k.Tap, "spine") ||
					strings.HasPrefix(k.Tap, "leaf") && !strings.HasSuffix(k.Tap, "p0") &&
						!strings.HasSuffix(k.Tap, "p1")
			})
		}
		return s, func() evidence.Check { return ranks.NewRailLocal(s.Workload) }
	},
	"partial-sums": partialSums,
	"conservation": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := verifytest.SoftScene(t, verifytest.SoftFile)
		if broken {
			s.Lose("")
		}
		return s, func() evidence.Check { return fabricchecks.NewConservation("*") }
	},
	"path-spread": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := verifytest.NewScene(t)
		if broken {
			s.Uplink = func(int, int) int { return 0 }
		}
		s.Small = true
		s.Ring(4)
		s.Now += 100_000_000
		return s, func() evidence.Check {
			return fabricchecks.NewPathSpread(&spec.PathSpread{Switch: "leaf1"})
		}
	},
	"marks": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := verifytest.SoftScene(t, verifytest.SoftFile)
		if broken {
			s.Mark()
		}
		return s, func() evidence.Check {
			return fabricchecks.NewMarks(&spec.MarksCheck{Share: "<= 1%", Count: "== 0"})
		}
	},
	"drops": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := verifytest.SoftScene(t, verifytest.SoftFile)
		if broken {
			s.Lose("railbed verdict=drop reason=tail depth=40320")
		}
		return s, func() evidence.Check {
			return fabricchecks.NewDrops(&spec.DropsCheck{Count: "== 0"})
		}
	},
	"lossless": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := verifytest.SoftScene(t, verifytest.SoftFile)
		if broken {
			s.Lose("railbed verdict=drop reason=tail depth=40320")
		}
		return s, func() evidence.Check { return fabricchecks.NewLossless(&spec.LosslessCheck{}) }
	},
	"trims": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := verifytest.SoftScene(t, verifytest.SoftFile)
		if s.Cut(59); broken {
			gone := 0
			s.Remove(func(k verifytest.Sighting) bool {
				if k.Tap == "h2:eth0" && k.Length == 128 && gone < 3 {
					gone++
					return true
				}
				return false
			})
		}
		return s, func() evidence.Check {
			return fabricchecks.NewTrims(&spec.TrimsCheck{Count: ">= 1"}, nil)
		}
	},
	"pauses": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := verifytest.SoftScene(t, verifytest.SoftFile)
		if broken {
			s.Chain()
		}
		return s, func() evidence.Check {
			return fabricchecks.NewPauses(&spec.PausesCheck{Count: "== 0"})
		}
	},
	"deadlock": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := verifytest.SoftScene(t, verifytest.SoftRing)
		if broken {
			s.Circle()
		}
		return s, func() evidence.Check { return fabricchecks.NewDeadlock("none") }
	},
	"reordering": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := verifytest.SoftScene(t, verifytest.SoftFile)
		if broken {
			n := 0
			s.Change(func(k verifytest.Sighting) bool {
				return k.Tap == "h2:eth0" && !k.Out
			}, func(k *verifytest.Sighting) {
				if n++; n%10 < 4 { // behind two that left later
					k.Time += 3*2*s.Step + 1000
				}
			})
		}
		return s, func() evidence.Check {
			return fabricchecks.NewReordering(&spec.ReorderingCheck{Share: "<= 1%"})
		}
	},
	"outage": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := datagrams(t)
		if broken {
			s.Remove(func(k verifytest.Sighting) bool {
				return k.Tap == "h2:eth0" && !k.Out && k.Time > verifytest.Start+40_000_000 &&
					k.Time < verifytest.Start+80_000_000
			})
		}
		return s, func() evidence.Check {
			return fabricchecks.NewOutage(&spec.OutageCheck{From: "h0", Longest: "<= 20ms"})
		}
	},
	"throughput": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := datagrams(t)
		if broken {
			s.Remove(func(k verifytest.Sighting) bool {
				return k.Tap == "h2:eth0" && !k.Out && k.Time > verifytest.Start+40_000_000 &&
					k.Time < verifytest.Start+80_000_000
			})
		}
		return s, func() evidence.Check {
			return fabricchecks.NewThroughput(&spec.ThroughputCheck{From: "h0", Rate: ">= 1mbit"}, nil)
		}
	},
	"flows": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := datagrams(t) // one flow
		if broken {
			src, dst := &s.Plan.Nodes[0], &s.Plan.Nodes[2]
			s.Now = verifytest.Start + 500_000_000
			for range 50 {
				s.Send(src.Name, "eth0", verifytest.TCP{
					Src:      netip.AddrPortFrom(verifytest.Loopback(src), 7001),
					Dst:      netip.AddrPortFrom(verifytest.Loopback(dst), 17000),
					Datagram: make([]byte, 100)})
			}
			s.Now += 1_000_000_000
		}
		return s, func() evidence.Check {
			return fabricchecks.NewFlows(&spec.FlowsCheck{From: "h0", Count: "<= 1"}, nil)
		}
	},
	"queue-depth": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := verifytest.SoftScene(t, verifytest.SoftFile)
		if broken {
			s.Mark() // behind 40,000 bytes
		}
		return s, func() evidence.Check {
			return fabricchecks.NewQueueDepth(&spec.QueueDepthCheck{Max: "<= 30KB"}, nil)
		}
	},
	"pacing": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := verifytest.NewScene(t)
		s.Paced(200, 100e6, func(_ int, p *verifytest.PacedPacket) {
			if broken {
				p.At /= 2
			}
		})
		return s, func() evidence.Check {
			return rdchecks.NewPacing(s.Workload, &spec.PacingCheck{Rate: 100e6})
		}
	},
	"roce icrc": roceSpecimen(spec.RoCERuleICRC, func(q *verifytest.QP) {
		q.Healthy()
	}, func(q *verifytest.QP) {
		q.Change(func(k verifytest.Sighting) bool { return k.ID == 2 }, func(k *verifytest.Sighting) {
			k.Frame = slices.Clone(k.Frame)
			k.Frame[len(k.Frame)-1] ^= 1
		})
	}),
	"roce psn": roceSpecimen(spec.RoCERulePSN, func(q *verifytest.QP) {
		q.Healthy()
	}, func(q *verifytest.QP) {
		q.PSN = q.PSN.Add(3)
		q.Write()
	}),
	"roce acks": roceSpecimen(spec.RoCERuleAcks, func(q *verifytest.QP) {
		q.Connect(7)
		q.FirstLost()
		q.Healthy()
		q.Wait(900 * time.Millisecond)
		q.Write()
		q.Ack(q.PSN.Add(-1), 1)
		q.Wait(60 * time.Millisecond)
		q.Next(infiniband.WriteOnly, 100) // right before the end: its answer is under way
		q.Now -= 960_000_000
	}, func(q *verifytest.QP) {
		q.Ack(q.PSN.Add(5), 1)
	}),
	"roce writes": roceSpecimen(spec.RoCERuleWrites, func(q *verifytest.QP) {
		q.Healthy()
	}, func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 100, verifytest.Length(900))
	}),
	"roce go-back-n": roceSpecimen(spec.RoCERuleGoBack, func(q *verifytest.QP) {
		q.Healthy()
		q.GoBack()
	}, func(q *verifytest.QP) {
		q.Write()
		q.NAK(q.PSN.Add(-3))
	}),
	"roce cnp": roceSpecimen(spec.RoCERuleCNP, func(q *verifytest.QP) {
		q.ECN = wire.ECT0
		for range 4 {
			q.Marked()
			q.CNP()
			q.Wait(time.Millisecond)
		}
	}, func(q *verifytest.QP) { q.Marked(); q.Wait(time.Millisecond) }),
	"roce rate-decrease": func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		q := verifytest.NewQP(t, 4)
		every := map[bool]int64{false: 20_000, true: 9_000}[broken]
		for range 4 {
			for _, q.Step = range []int64{10_000, every} {
				for range 110 {
					q.Next(infiniband.WriteOnly, 200)
				}
				if q.Step == 10_000 {
					q.CNP()
				}
			}
			q.Wait(3 * time.Millisecond)
		}
		q.Now += 10_000_000
		return q.Scene, roceCheck(t, spec.RoCERuleRate)
	},
	"that " + spec.ThatRDPlaced: func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := rdSpecimen(t)
		if broken {
			s.Vanish(8)
		}
		return s, func() evidence.Check { return thatRD(t, spec.ThatRDPlaced) }
	},
	"that " + spec.ThatRDNeeded: func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := rdSpecimen(t)
		if broken {
			s.DataAgain(9, 40_000)
		}
		return s, func() evidence.Check { return thatRD(t, spec.ThatRDNeeded) }
	},
}

// smallRing is an all-reduce of few packets.
func smallRing(t *testing.T) *verifytest.Scene {
	s := verifytest.NewScene(t)
	s.Small = true
	s.Ring(4)
	s.Now += 100_000_000
	return s
}

func rdSpecimen(t *testing.T) *verifytest.Scene {
	s := verifytest.NewScene(t)
	s.Small = true
	s.RDRing(4)
	s.Now += 1_000_000_000
	return s
}

// datagrams sends one datagram each millisecond from h0 to h2.
func datagrams(t *testing.T) *verifytest.Scene {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Sightings, s.Now, s.Step = nil, verifytest.Start, 1_000_000
	src, dst := &s.Plan.Nodes[0], &s.Plan.Nodes[2]
	for range 100 {
		s.Send(src.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(src), 7000),
			Dst: netip.AddrPortFrom(verifytest.Loopback(dst), 17000), Datagram: make([]byte, 100)})
	}
	s.Now += 1_000_000_000
	return s
}

// roceSpecimen is a connection that keeps a rule, and what breaks it.
func roceSpecimen(rule string, play, spoil func(*verifytest.QP)) func(t *testing.T,
	broken bool) (*verifytest.Scene,
	func() evidence.Check) {
	return func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		q := verifytest.NewQP(t, 4)
		play(q)
		if broken {
			spoil(q)
		}
		for _, k := range q.Sightings {
			verifytest.Seal(k.Frame)
		}
		if rule == spec.RoCERuleICRC && broken {
			spoil(q)
		}
		q.Now += 1_000_000_000
		return q.Scene, roceCheck(t, rule)
	}
}

// thatRD makes the check of a sentence about reliable datagrams.
func thatRD(t *testing.T, that string) evidence.Check {
	check, err := rdchecks.New(that)
	if err != nil {
		t.Fatal(err)
	}
	return check
}

// roceCheck makes the check of a rule.
func roceCheck(t *testing.T, rule string) func() evidence.Check {
	return func() evidence.Check {
		check, err := rocechecks.New(&spec.RoCECheck{Rule: rule})
		if err != nil {
			t.Fatal(err)
		}
		return check
	}
}

// partialSums is four rounds of a slot that two leaves add up, one partial sum of which
// the second leaf keeps where it is broken.
func partialSums(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
	s := verifytest.NewScene(t)
	s.Plan = plantest.Compile(t, "name: t\nfabric:\n  topology: leaf-spine\n  params: {leaves: 2, spines: "+
		"1, hosts-per-leaf: 2}\n  switch: {kind: soft, aggregation: {slots: 2, elements: 10}}\n")
	job, err := s.Plan.AggregationFor(s.Plan.Ranks, "")
	if err != nil {
		t.Fatal(err)
	}
	w := evidence.Workload{Name: "ar", Sums: &evidence.Sums{Job: job.Number, Epoch: 3}}
	for _, r := range s.Plan.Ranks {
		w.Ranks = append(w.Ranks, evidence.Rank{Rank: r.Rank, Node: r.Node, NIC: r.NIC, Addr: r.Addr4,
			Transport: evidence.TransportInSwitch, Expected: units.Bytes(4 * 10 * 4)})
	}
	message := func(kind wire.AggregationKind, workers uint64, round uint32, from,
		to netip.Addr) verifytest.TCP {
		m := make([]byte, wire.AggregationLen+40)
		wire.Aggregation(m).Encode(&wire.AggregationFields{Kind: kind, Job: job.Number, Epoch: 3,
			Round: round, Bitmap: workers, FanIn: uint8(len(job.Workers)), Elements: 10})
		return verifytest.TCP{Src: netip.AddrPortFrom(from, 9), Dst: netip.AddrPortFrom(to,
			wire.PortAggregation), Datagram: m}
	}
	for round := range uint32(4) {
		for i := range job.Workers {
			w := &job.Workers[i]
			s.Send(w.Node, "eth0", message(wire.AggregationUpdate, 1<<i, round, w.Addr4, job.Of(i).Addr4))
		}
		for leaf := range job.Tree {
			from := &job.Tree[leaf]
			if from.Switch == job.Root().Switch || broken && round == 2 && from.Switch == "leaf2" {
				continue
			}
			ports := s.Plan.Switch(from.Switch).Ports
			up := slices.IndexFunc(ports, func(p plan.Interface) bool {
				return strings.HasPrefix(p.Peer, fmt.Sprint(job.Root().Switch, ":"))
			})
			s.IDs++
			s.Now += s.Step
			k := message(wire.AggregationPartial, job.Below(leaf), round, from.Addr4, job.Root().Addr4)
			k.TTL = 64
			s.Hops(from.Switch, &ports[up], k, s.Now)
		}
	}
	s.Now += 100_000_000
	s.Workload = w
	return s, func() evidence.Check { return ranks.NewPartialSums(w) }
}
