package verify

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/internal/infiniband"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/plantest"
	"railbed/plan/spec"
)

// everyCheck names the checks of packets that files can ask for, with the rules and
// sentences that one kind may have.
func everyCheck() (names []string) {
	text, err := os.ReadFile("../../plan/spec/railbed.schema.json")
	var schema struct {
		Defs map[string]struct {
			Properties map[string]struct {
				Enum []any `json:"enum"`
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
		"roce": schema.Defs["RoCECheck"].Properties["rule"].Enum,
		"that": schema.Defs["PacketsCheck"].Properties["that"].Enum,
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

// specimens has two runs for each check: a run that passes and a broken run.
var specimens = map[string]func(t *testing.T, broken bool) (*scene, func() Check){
	"bytes-per-rank": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := smallRing(t)
		if broken {
			s.workload.Ranks[2].Expected += 40_000
		}
		return s, func() Check { return NewBytesPerRank(s.workload, units.Ratio{Num: 2, Den: 100}) }
	},
	"rank-nic": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := smallRing(t)
		if broken {
			s.change(func(k sighting) bool {
				return k.tap == "h1:eth0" && k.out && isData(k)
			}, func(k *sighting) { k.tap = "h0:eth0" })
		}
		return s, func() Check { return NewRankNIC(s.workload) }
	},
	"crossed": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := smallRing(t)
		if broken {
			s.remove(func(k sighting) bool { return k.tap == "h1:eth0" && k.out && isData(k) })
		}
		return s, func() Check { return newCrossed(CrossingOf(s.workload)) }
	},
	"rail-local": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := smallRing(t)
		if !broken {
			s.remove(func(k sighting) bool {
				return strings.HasPrefix(k.tap, "spine") ||
					strings.HasPrefix(k.tap, "leaf") && !strings.HasSuffix(k.tap, "p0") &&
						!strings.HasSuffix(k.tap, "p1")
			})
		}
		return s, func() Check { return newRailLocal(s.workload) }
	},
	"partial-sums": partialSums,
	"conservation": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := softScene(t, softFile)
		if broken {
			s.lose("")
		}
		return s, func() Check { return NewConservation("*") }
	},
	"path-spread": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := newScene(t)
		if broken {
			s.uplink = func(int, int) int { return 0 }
		}
		s.small = true
		s.ring(4)
		s.now += 100_000_000
		return s, func() Check { return NewPathSpread("leaf1", units.Ratio{}, SpreadOptions{}) }
	},
	"marks": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := softScene(t, softFile)
		if broken {
			s.mark()
		}
		return s, func() Check {
			return newMarks(Selection{}, bounded(t, "<= 1%", spec.ShareBound),
				bounded(t, "== 0", spec.CountBound))
		}
	},
	"drops": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := softScene(t, softFile)
		if broken {
			s.lose("railbed verdict=drop reason=tail depth=40320")
		}
		return s, func() Check { return newDrops(Selection{}, "", bounded(t, "== 0", spec.CountBound)) }
	},
	"lossless": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := softScene(t, softFile)
		if broken {
			s.lose("railbed verdict=drop reason=tail depth=40320")
		}
		return s, func() Check { return newLossless(Selection{}, -1) }
	},
	"trims": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := softScene(t, softFile)
		if s.cut(59); broken {
			gone := 0
			s.remove(func(k sighting) bool {
				if k.tap == "h2:eth0" && k.length == 128 && gone < 3 {
					gone++
					return true
				}
				return false
			})
		}
		return s, func() Check { return newTrims(Selection{}, bounded(t, ">= 1", spec.CountBound)) }
	},
	"pauses": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := softScene(t, softFile)
		if broken {
			s.chain()
		}
		return s, func() Check {
			return newPauses(Selection{}, -1, bounded(t, "== 0", spec.CountBound), nil, nil)
		}
	},
	"deadlock": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := softScene(t, softRing)
		if broken {
			s.circle()
		}
		return s, func() Check { return newDeadlock(false) }
	},
	"reordering": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := softScene(t, softFile)
		if broken {
			n := 0
			s.change(func(k sighting) bool { return k.tap == "h2:eth0" && !k.out }, func(k *sighting) {
				if n++; n%10 < 4 { // behind two that left later
					k.time += 3*2*s.step + 1000
				}
			})
		}
		return s, func() Check { return newReordering(Selection{}, bounded(t, "<= 1%", spec.ShareBound)) }
	},
	"outage": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := datagrams(t)
		if broken {
			s.remove(func(k sighting) bool {
				return k.tap == "h2:eth0" && !k.out && k.time > start+40_000_000 && k.time < start+80_000_000
			})
		}
		return s, func() Check {
			return newOutage(Selection{From: "h0"}, bounded(t, "<= 20ms", spec.DurationBound))
		}
	},
	"throughput": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := datagrams(t)
		if broken {
			s.remove(func(k sighting) bool {
				return k.tap == "h2:eth0" && !k.out && k.time > start+40_000_000 && k.time < start+80_000_000
			})
		}
		return s, func() Check {
			return newThroughput(Selection{From: "h0"}, bounded(t, ">= 1mbit", spec.RateBound), nil)
		}
	},
	"queue-depth": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := softScene(t, softFile)
		if broken {
			s.mark() // behind 40,000 bytes
		}
		return s, func() Check {
			return newQueueDepth(Selection{}, -1, bounded(t, "<= 30KB", spec.BytesBound), nil)
		}
	},
	"pacing": func(t *testing.T, broken bool) (*scene, func() Check) {
		s := newScene(t)
		s.paced(200, 100e6, func(_ int, p *pacedPacket) {
			if broken {
				p.at /= 2
			}
		})
		return s, func() Check { return newPacing(s.workload, pacingOptions{Rate: 100e6}) }
	},
	"roce icrc": roceSpecimen(spec.RoCERuleICRC, func(q *roceQP) { q.healthy() }, func(q *roceQP) {
		q.change(func(k sighting) bool { return k.id == 2 }, func(k *sighting) {
			k.frame = slices.Clone(k.frame)
			k.frame[len(k.frame)-1] ^= 1
		})
	}),
	"roce psn": roceSpecimen(spec.RoCERulePSN, func(q *roceQP) { q.healthy() }, func(q *roceQP) {
		q.psn = q.psn.Add(3)
		q.write()
	}),
	"roce acks": roceSpecimen(spec.RoCERuleAcks, func(q *roceQP) { q.healthy() }, func(q *roceQP) {
		q.ack(q.psn.Add(5), 1)
	}),
	"roce writes": roceSpecimen(spec.RoCERuleWrites, func(q *roceQP) { q.healthy() }, func(q *roceQP) {
		q.next(infiniband.WriteOnly, 100, length(900))
	}),
	"roce go-back-n": roceSpecimen(spec.RoCERuleGoBack, func(q *roceQP) {
		q.healthy()
		q.goBack()
	}, func(q *roceQP) {
		q.write()
		q.nak(q.psn.Add(-3))
	}),
	"roce cnp": roceSpecimen(spec.RoCERuleCNP, func(q *roceQP) {
		q.ecn = wire.ECT0
		for range 4 {
			q.marked()
			q.cnp()
			q.wait(time.Millisecond)
		}
	}, func(q *roceQP) { q.marked(); q.wait(time.Millisecond) }),
	"roce rate-decrease": func(t *testing.T, broken bool) (*scene, func() Check) {
		q := newRoCEScene(t, 4)
		every := map[bool]int64{false: 20_000, true: 9_000}[broken]
		for range 4 {
			for _, q.step = range []int64{10_000, every} {
				for range 110 {
					q.next(infiniband.WriteOnly, 200)
				}
				if q.step == 10_000 {
					q.cnp()
				}
			}
			q.wait(3 * time.Millisecond)
		}
		q.now += 10_000_000
		return q.scene, roceCheck(t, spec.RoCERuleRate)
	},
	"that " + spec.ThatRDPlaced: func(t *testing.T, broken bool) (*scene, func() Check) {
		s := rdSpecimen(t)
		if broken {
			s.vanish(8)
		}
		return s, func() Check { return newPlaced() }
	},
	"that " + spec.ThatRDNeeded: func(t *testing.T, broken bool) (*scene, func() Check) {
		s := rdSpecimen(t)
		if broken {
			s.dataAgain(9, 40_000)
		}
		return s, func() Check { return newNeeded() }
	},
}

// smallRing is an all-reduce of few packets.
func smallRing(t *testing.T) *scene {
	s := newScene(t)
	s.small = true
	s.ring(4)
	s.now += 100_000_000
	return s
}

func rdSpecimen(t *testing.T) *scene {
	s := newScene(t)
	s.small = true
	s.rdRing(4)
	s.now += 1_000_000_000
	return s
}

// datagrams sends one datagram each millisecond from h0 to h2.
func datagrams(t *testing.T) *scene {
	s := softScene(t, softFile)
	s.sightings, s.now, s.step = nil, start, 1_000_000
	src, dst := &s.plan.Nodes[0], &s.plan.Nodes[2]
	for range 100 {
		s.send(src.Name, "eth0", tcp{src: netip.AddrPortFrom(loopback(src), 7000),
			dst: netip.AddrPortFrom(loopback(dst), 17000), datagram: make([]byte, 100)})
	}
	s.now += 1_000_000_000
	return s
}

// roceSpecimen is a connection that keeps a rule, and what breaks it.
func roceSpecimen(rule string, play, spoil func(*roceQP)) func(t *testing.T, broken bool) (*scene,
	func() Check) {
	return func(t *testing.T, broken bool) (*scene, func() Check) {
		q := newRoCEScene(t, 4)
		play(q)
		if broken {
			spoil(q)
		}
		for _, k := range q.sightings {
			seal(k.frame)
		}
		if rule == spec.RoCERuleICRC && broken {
			spoil(q)
		}
		q.now += 1_000_000_000
		return q.scene, roceCheck(t, rule)
	}
}

// roceCheck makes the check of a rule.
func roceCheck(t *testing.T, rule string) func() Check {
	return func() Check {
		check, err := newRoCE(&spec.RoCECheck{Rule: rule})
		if err != nil {
			t.Fatal(err)
		}
		return check
	}
}

// partialSums is four rounds of a slot that two leaves add up, one partial sum of which
// the second leaf keeps where it is broken.
func partialSums(t *testing.T, broken bool) (*scene, func() Check) {
	s := newScene(t)
	s.plan = plantest.Compile(t, "name: t\nfabric:\n  topology: leaf-spine\n  params: {leaves: 2, spines: "+
		"1, hosts-per-leaf: 2}\n  switch: {kind: soft, aggregation: {slots: 2, elements: 10}}\n")
	job, err := s.plan.AggregationFor(s.plan.Ranks, "")
	if err != nil {
		t.Fatal(err)
	}
	w := Workload{Name: "ar", Sums: &Sums{Job: job.Number, Epoch: 3}}
	for _, r := range s.plan.Ranks {
		w.Ranks = append(w.Ranks, Rank{Rank: r.Rank, Node: r.Node, NIC: r.NIC, Addr: r.Addr4,
			Transport: TransportInSwitch, Expected: units.Bytes(4 * 10 * 4)})
	}
	message := func(kind wire.AggregationKind, workers uint64, round uint32, from, to netip.Addr) tcp {
		m := make([]byte, wire.AggregationLen+40)
		wire.Aggregation(m).Encode(&wire.AggregationFields{Kind: kind, Job: job.Number, Epoch: 3,
			Round: round, Bitmap: workers, FanIn: uint8(len(job.Workers)), Elements: 10})
		return tcp{src: netip.AddrPortFrom(from, 9), dst: netip.AddrPortFrom(to, wire.PortAggregation),
			datagram: m}
	}
	for round := range uint32(4) {
		for i := range job.Workers {
			w := &job.Workers[i]
			s.send(w.Node, "eth0", message(wire.AggregationUpdate, 1<<i, round, w.Addr4, job.Of(i).Addr4))
		}
		for leaf := range job.Tree {
			from := &job.Tree[leaf]
			if from.Switch == job.Root().Switch || broken && round == 2 && from.Switch == "leaf2" {
				continue
			}
			ports := s.plan.Switch(from.Switch).Ports
			up := slices.IndexFunc(ports, func(p plan.Interface) bool {
				return strings.HasPrefix(p.Peer, fmt.Sprint(job.Root().Switch, ":"))
			})
			s.ids++
			s.now += s.step
			k := message(wire.AggregationPartial, job.Below(leaf), round, from.Addr4, job.Root().Addr4)
			k.ttl = 64
			s.hops(from.Switch, &ports[up], k, s.now)
		}
	}
	s.now += 100_000_000
	return s, func() Check { return newPartialSums(w) }
}
