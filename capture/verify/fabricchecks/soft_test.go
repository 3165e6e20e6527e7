package fabricchecks

import (
	"net/netip"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// TestFabricChecks judges scenes by each check of the fabric: runs that pass, and runs that are
// broken on purpose.
func TestFabricChecks(t *testing.T) {
	marks := func(at, share, count string) func(*testing.T) evidence.Check {
		return func(t *testing.T) evidence.Check {
			return NewMarks(&spec.MarksCheck{At: at, Share: share, Count: count})
		}
	}
	drops := func(at, reason, count string) func(*testing.T) evidence.Check {
		return func(t *testing.T) evidence.Check {
			return NewDrops(&spec.DropsCheck{At: at, Reason: reason, Count: count})
		}
	}
	lossless := func(from string) func(*testing.T) evidence.Check {
		return func(*testing.T) evidence.Check {
			return NewLossless(&spec.LosslessCheck{From: from, Priority: new(3)})
		}
	}
	trims := func(t *testing.T) evidence.Check {
		return NewTrims(&spec.TrimsCheck{Count: ">= 1"}, nil)
	}
	pauses := func(count, paused string, order ...string) func(*testing.T) evidence.Check {
		return func(t *testing.T) evidence.Check {
			return NewPauses(&spec.PausesCheck{Priority: new(3), Count: count, Paused: paused, Order: order})
		}
	}
	deadlock := func(want string) func(*testing.T) evidence.Check {
		return func(*testing.T) evidence.Check { return NewDeadlock(want) }
	}
	reordering := func(share string) func(*testing.T) evidence.Check {
		return func(t *testing.T) evidence.Check {
			return NewReordering(&spec.ReorderingCheck{Share: share})
		}
	}
	depth := func(q int, most string) func(*testing.T) evidence.Check {
		return func(t *testing.T) evidence.Check {
			return NewQueueDepth(&spec.QueueDepthCheck{Priority: new(q), Max: most}, nil)
		}
	}
	nothing := func(*verifytest.Scene) {}
	silence := func(s *verifytest.Scene) { s.Sightings = nil }
	lossy := func(s *verifytest.Scene) {
		for _, n := range s.Plan.Nodes {
			s.Drops[n.Name+":eth0"] = 1
		}
		for _, sw := range s.Plan.Switches {
			for _, port := range sw.Ports {
				s.Drops[sw.Name+":"+port.Name] = 1
			}
		}
	}
	then := func(all ...func(*verifytest.Scene)) func(*verifytest.Scene) {
		return func(s *verifytest.Scene) {
			for _, one := range all {
				one(s)
			}
		}
	}
	cut := func(s *verifytest.Scene) { s.Cut(59) }
	for _, c := range []struct {
		name  string
		scene func(*verifytest.Scene)
		check func(*testing.T) evidence.Check
		want  verdict.Verdict
		says  string
	}{
		{"marked", (*verifytest.Scene).Mark, marks("leaf1", ">= 40%", ">= 100"), pass, "marked 200 packets"},
		{"marks at the receiver", (*verifytest.Scene).Mark, marks("h2", ">= 40%", ""), pass, ""},
		{"too many marks", (*verifytest.Scene).Mark, marks("leaf1", "<= 10%", ""), fail,
			"share of marked packets: 50%, want <= 10%"},
		{"no marks", nothing, marks("", ">= 10%", ""), fail, "0%, want >= 10%"},
		{"marked elsewhere", (*verifytest.Scene).Mark, marks("spine*", "", ">= 1"), fail,
			"packets marked here: 0"},
		{"marked in words only", func(s *verifytest.Scene) {
			s.From("leaf1", func(k *verifytest.Sighting, here bool) {
				if here {
					k.Comment = "railbed verdict=mark reason=red depth=40000 late=0ns"
				}
			})
		}, marks("leaf1", "", ">= 1"), fail, "carry no mark"},
		{"nobody can be marked", func(s *verifytest.Scene) {
			s.Change(func(verifytest.Sighting) bool {
				return true
			}, func(k *verifytest.Sighting) { k.Frame[15] = 24 << 2 })
		}, marks("", "<= 10%", ""), unclear, "no packet of an ECN-capable transport"},
		{"marks in a lossy capture", lossy, marks("leaf1", ">= 10%", ""), unclear, "lost 1 packet"},

		{"nothing dropped", nothing, drops("", "", "== 0"), pass, ""},
		{"a drop", func(s *verifytest.Scene) {
			s.Lose("railbed verdict=drop reason=tail depth=40320")
		}, drops("leaf1", "", "== 0"), fail, "dropped 1: tail"},
		{"a drop elsewhere", func(s *verifytest.Scene) {
			s.Lose("railbed verdict=drop reason=tail depth=40320")
		}, drops("spine*", "", "== 0"), pass, ""},
		{"a drop for another reason", func(s *verifytest.Scene) {
			s.Lose("railbed verdict=drop reason=tail depth=40320")
		}, drops("", "loss", ">= 1"), fail, "packets dropped: 0, want >= 1"},
		{"no drop where there must be some", nothing, drops("", "", ">= 1"), fail, "want >= 1"},
		{"no drop in a lossy capture", lossy, drops("", "", ">= 1"), unclear, ""},
		{"a drop in a lossy capture", then(lossy, func(s *verifytest.Scene) {
			s.Lose("railbed verdict=drop reason=tail depth=1")
		}), drops("", "", "== 0"), fail, ""},
		{"drops of unrecorded ports", silence, drops("", "", "== 0"), unclear,
			"no packet at the chosen ports"},

		{"all arrive", nothing, lossless(""), pass, ""},
		{"a packet vanishes", func(s *verifytest.Scene) { s.Lose("") }, lossless(""), fail,
			"1 packet was lost: no record of a drop"},
		{"a packet of another flow vanishes", func(s *verifytest.Scene) {
			s.Lose("")
		}, lossless("h1"), pass, ""},
		{"a packet is dropped", func(s *verifytest.Scene) {
			s.Lose("railbed verdict=drop reason=headroom depth=1")
		}, lossless(""), fail, "headroom"},
		{"the node's own NIC overflows", func(s *verifytest.Scene) {
			id := s.Packet("h0:eth0", true)
			at := s.Of(id, "h0:eth0", true)
			s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Time > at.Time })
			at.Time, at.Comment = at.Time+10, "railbed verdict=drop reason=nic-overrun depth=1"
			s.Insert(at)
		}, lossless(""), pass, ""},
		{"a fault drops a packet", func(s *verifytest.Scene) {
			s.Lose("railbed verdict=drop reason=fault name=f1 late=0ns")
		}, lossless(""), pass, "1 was dropped by faults"},
		{"a fault drops a packet, and another vanishes", func(s *verifytest.Scene) {
			s.Lose("railbed verdict=drop reason=fault name=f1 late=0ns")
			s.Remove(func(k verifytest.Sighting) bool {
				return k.ID == s.IDs/2 && !(k.Out && strings.HasPrefix(k.Tap, "h"))
			})
		}, lossless(""), fail, "1 packet was lost: no record of a drop"},
		{"the host has no room", func(s *verifytest.Scene) {
			id := s.Packet("h0:eth0", true)
			s.Change(func(k verifytest.Sighting) bool {
				return k.ID == id && k.Tap == "h2:eth0"
			}, func(k *verifytest.Sighting) { k.Comment = "railbed verdict=drop reason=refused depth=0" })
		}, lossless(""), unclear, "1 packet came to a node without room"},
		{"a packet vanishes in a lossy capture", then(lossy, func(s *verifytest.Scene) {
			s.Lose("")
		}), lossless(""),
			unclear, ""},
		{"a packet is cut", cut, lossless(""), fail, "200 packets were lost"},
		{"nobody sends", silence, lossless(""), unclear, "no packet left a node"},
		{"a NIC without a tap", func(s *verifytest.Scene) {
			s.Untapped["h2:eth0"] = true
		}, lossless(""), unclear, "not recorded: h2:eth0"},

		{"trimmed", cut, trims, pass, "trimmed 200: tail"},
		{"nothing trimmed", nothing, trims, fail, "packets trimmed: 0, want >= 1"},
		{"trimmed, with its old DSCP", func(s *verifytest.Scene) { s.Cut(24) }, trims, fail,
			"do not carry the DSCP"},
		{"trimmed, and not short", func(s *verifytest.Scene) {
			s.Cut(59)
			s.Change(func(k verifytest.Sighting) bool {
				return k.Length == 128
			}, func(k *verifytest.Sighting) { k.Length = 900 })
		}, trims, fail, "longer than the trimmed length"},
		{"a head vanishes", func(s *verifytest.Scene) {
			s.Cut(59)
			first := uint64(0)
			for _, k := range s.Sightings {
				if k.ID > 1<<32 && first == 0 {
					first = k.ID
				}
			}
			s.Remove(func(k verifytest.Sighting) bool { return k.ID == first && k.Tap == "h2:eth0" })
		}, trims, fail, "1 head of trimmed packets were lost: no record of a drop"},
		{"trims of unrecorded ports", silence, trims, unclear, "no packet left a switch"},

		{"paused in order", (*verifytest.Scene).Chain, pauses(">= 2", ">= 500us", "spine1:*", "leaf1:*"),
			pass, ""},
		{"paused in order by ports outside at", (*verifytest.Scene).Chain, func(t *testing.T) evidence.Check {
			return NewPauses(&spec.PausesCheck{At: "leaf2:p0", Priority: new(3), Count: "== 0",
				Order: []string{"spine1:*", "leaf1:*"}})
		}, pass, "0 pauses"},
		{"paused in another order", (*verifytest.Scene).Chain, pauses("", "", "leaf1:*", "spine1:*"), fail,
			"before leaf1:* did"},
		{"paused by somebody else", (*verifytest.Scene).Chain, pauses("", "", "spine2:*"), fail,
			"spine2:* asked for no pause"},
		{"paused for too long", (*verifytest.Scene).Chain, pauses("", "<= 400us"), fail,
			"time paused: 512µs, want <= 400us"},
		{"paused for too long by a tap that lost the end", verifytest.LostBy((*verifytest.Scene).Chain,
			"leaf1:p0", "spine1:*"),
			pauses("", "<= 400us"), unclear, "time paused: 512µs, want <= 400us"},
		{"pauses where there must be none", (*verifytest.Scene).Chain, pauses("== 0", ""), fail,
			"pauses: 2, want == 0"},
		{"no pauses", nothing, pauses("== 0", ""), pass, ""},
		{"no pauses where there must be some", nothing, pauses(">= 1", ""), fail, "pauses: 0"},
		{"no pauses in a lossy capture", lossy, pauses(">= 1", ""), unclear, ""},
		{"sent while paused", then((*verifytest.Scene).Chain, func(s *verifytest.Scene) {
			k := s.Of(s.Packet("h0:eth0", true), s.Uplinks("leaf1")[0], true)
			k.Time = s.Now - 900_000_000 + 100_000
			s.Insert(k)
		}), pauses(">= 1", ""), fail, "sent 1 packet of a priority that was paused"},
		{"sent while paused by a tap that lost the end", verifytest.LostBy(then((*verifytest.Scene).Chain,
			func(s *verifytest.Scene) {
				k := s.Of(s.Packet("h0:eth0", true), s.Uplinks("leaf1")[0], true)
				k.Time = s.Now - 900_000_000 + 100_000
				s.Insert(k)
			}), "leaf1:*"), pauses(">= 1", ""), unclear, "sent 1 packet of a priority that was paused"},
		{"sent at another priority", then((*verifytest.Scene).Chain, func(s *verifytest.Scene) {
			k := s.Of(s.Packet("h0:eth0", true), s.Uplinks("leaf1")[0], true)
			k.Time, k.Queue = s.Now-900_000_000+100_000, 1
			s.Insert(k)
		}), pauses(">= 1", ""), pass, ""},
		{"pauses of unrecorded ports", silence, pauses("== 0", ""), unclear, "no packet at the chosen ports"},

		{"no deadlock", nothing, deadlock("none"), pass, ""},
		{"no deadlock where there must be one", (*verifytest.Scene).Chain, deadlock("some"), fail,
			"no cycle"},
		{"a deadlock of unrecorded ports", silence, deadlock("none"), unclear, "no packet passed"},

		{"in order", nothing, reordering("== 0%"), pass, ""},
		{"in order where it must not be", nothing, reordering(">= 1%"), fail, "0%, want >= 1%"},
		{"out of order", func(s *verifytest.Scene) {
			s.Change(func(k verifytest.Sighting) bool {
				return k.Tap == "h2:eth0" && k.ID%10 == 0
			}, func(k *verifytest.Sighting) { k.Time += 60_000 })
		}, reordering("<= 1%"), fail, "packets out of order: 9.75%"},
		{"order of unrecorded packets", silence, reordering("== 0%"), unclear, "no packet was seen"},

		{"short queues", nothing, depth(3, "<= 1KB"), pass, ""},
		{"a long queue", (*verifytest.Scene).Mark, depth(3, "<= 30KB"), fail,
			"longest queue: 40KB, want <= 30KB"},
		{"mostly long queues in a capture that lost packets", verifytest.LostBy((*verifytest.Scene).Mark,
			"leaf1:*"),
			func(t *testing.T) evidence.Check {
				return NewQueueDepth(&spec.QueueDepthCheck{Priority: new(3), P99: "<= 30KB"}, nil)
			}, unclear, "99 of 100 packets found"},
		{"a long queue elsewhere", cut, depth(3, "<= 30KB"), pass, ""},
		{"a NIC's queue", verifytest.NicOverruns, depth(-1, "<= 30KB"), pass, ""},
		{"drops alone at a NIC", verifytest.NicOverruns, func(t *testing.T) evidence.Check {
			return NewQueueDepth(&spec.QueueDepthCheck{At: "h0:*", Max: "<= 300KB"}, nil)
		}, unclear, "only dropped packets say"},
		{"queues that nobody tells of", func(s *verifytest.Scene) {
			s.Change(func(k verifytest.Sighting) bool {
				return k.Comment != ""
			}, func(k *verifytest.Sighting) { k.Comment = "" })
		}, depth(-1, "<= 1KB"), unclear, "no packet says"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := verifytest.SoftScene(t, verifytest.SoftFile)
			c.scene(s)
			verifytest.Judge(t, s, c.check(t), c.want, c.says)
		})
	}
}

func TestDeadlockOfARing(t *testing.T) {
	for _, c := range []struct {
		name   string
		mutate func(*verifytest.Scene)
		some   verdict.Verdict
		says   string
	}{
		{"all wait for each other", func(*verifytest.Scene) {}, pass, "wait for each other in a circle"},
		{"one of them goes on sending", func(s *verifytest.Scene) {
			var inserted []verifytest.Sighting
			for _, k := range s.Sightings {
				if strings.HasPrefix(k.Tap, "sw1:") && !k.Out && len(k.Frame) == wire.EthernetMinLen {
					data := s.Sightings[0]
					data.Tap, data.Out, data.Time, data.Queue = k.Tap, true, k.Time+1000, 4
					inserted = append(inserted, data)
				}
			}
			s.Insert(inserted...)
		}, fail, "no cycle"},
		{"one of the pauses runs out", func(s *verifytest.Scene) {
			s.Remove(func(k verifytest.Sighting) bool {
				return strings.HasPrefix(k.Tap, "sw2:") && !k.Out && len(k.Frame) == wire.EthernetMinLen &&
					k.Time > s.Now-890_000_000
			})
		}, fail, "no cycle"},
		{"the capture is lossy", func(s *verifytest.Scene) {
			s.Drops["sw0:p1"] = 1
		}, unclear, "lost 1 packet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := verifytest.SoftScene(t, verifytest.SoftRing)
			s.Circle()
			c.mutate(s)
			verifytest.Judge(t, s, NewDeadlock("some"), c.some, c.says)
			none := map[verdict.Verdict]verdict.Verdict{pass: fail, fail: pass, unclear: unclear}[c.some]
			verifytest.Judge(t, s, NewDeadlock("none"), none, "")
		})
	}
}

// TestSpreadOfFlows: what chance does not leave empty is polarised, and flows
// keep to one path or use all.
func TestSpreadOfFlows(t *testing.T) {
	alternate := 0
	for _, c := range []struct {
		name    string
		uplink  func(flow, paths int) int
		options spec.PathSpread
		want    verdict.Verdict
		says    string
	}{
		{"all by one path", func(int, int) int {
			return 0
		}, spec.PathSpread{Switch: "leaf1", Polarised: true}, pass, ""},
		{"all by one path, unasked", func(int, int) int { return 0 }, spec.PathSpread{Switch: "leaf1"}, fail,
			"0% of its fair share"},
		{"by all paths", func(flow, paths int) int {
			return flow % paths
		}, spec.PathSpread{Switch: "leaf1", Polarised: true}, fail, "every one of 2 paths carried traffic"},
		{"each flow by one", func(flow, paths int) int {
			return flow % paths
		}, spec.PathSpread{Switch: "leaf1", Flows: onePath}, pass, ""},
		{"each flow by all", func(_, paths int) int {
			alternate++
			return alternate / 3 % paths
		}, spec.PathSpread{Switch: "leaf1", Flows: onePath}, fail, "used more than one path"},
		{"sprayed", func(_, paths int) int {
			alternate++
			return alternate / 3 % paths
		}, spec.PathSpread{Switch: "leaf1", Flows: everyPath}, pass, ""},
		{"hashed, not sprayed", func(flow, paths int) int {
			return flow % paths
		}, spec.PathSpread{Switch: "leaf1", Flows: everyPath}, fail, "did not use every one of 2 paths"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := verifytest.NewScene(t)
			s.Uplink = c.uplink
			s.Ring(4)
			s.Now += 1_000_000
			verifytest.Judge(t, s, NewPathSpread(&c.options), c.want, c.says)
		})
	}
	s := verifytest.NewScene(t)
	for n := range 10 { // fewer than tell
		from, to := &s.Plan.Ranks[0], &s.Plan.Ranks[2]
		s.Send(from.Node, from.NIC, verifytest.TCP{Src: netip.AddrPortFrom(from.Addr4, 7000),
			Dst: netip.AddrPortFrom(to.Addr4, 7001), Seq: uint32(n), Payload: 100, Flow: n})
	}
	s.Now += 1_000_000
	verifytest.Judge(t, s, NewPathSpread(&spec.PathSpread{Switch: "leaf1", Flows: everyPath}), unclear,
		"no flow has enough packets")
}

// TestTrimmedPacketsAreConserved: the head that leaves counts for the packet that entered. A head
// that leaves without a record is a violation.
func TestTrimmedPacketsAreConserved(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Cut(59)
	verifytest.Judge(t, s, NewConservation("leaf1"), pass, "200 trimmed")
	s = verifytest.SoftScene(t, verifytest.SoftFile)
	s.Cut(59)
	s.Change(func(k verifytest.Sighting) bool {
		return strings.Contains(k.Comment, "trim")
	}, func(k *verifytest.Sighting) { k.Comment = "" })
	verifytest.Judge(t, s, NewConservation("leaf1"), fail, "left without having entered")
}

// TestEventsAreNoPackets: what enters a queue is counted by the checks that ask
// for it, and by no other.
func TestEventsAreNoPackets(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	var events []verifytest.Sighting
	for _, k := range s.Sightings {
		if k.Out && strings.HasPrefix(k.Tap, "leaf1:") {
			k.Time, k.Comment = k.Time-100, "railbed verdict=enqueue depth=50000 late=0ns"
			events = append(events, k)
		}
	}
	s.Insert(events...)
	verifytest.Judge(t, s, NewConservation("*"), pass, "1200 packets crossed")
	verifytest.Judge(t, s, NewQueueDepth(&spec.QueueDepthCheck{At: "leaf1", Priority: new(3), Max: "<= 30KB"},
		nil), fail, "longest queue: 50KB")
}
