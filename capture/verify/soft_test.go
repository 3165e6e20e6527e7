package verify

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/plantest"
	"railbed/plan/spec"
)

const softFile = `
name: soft
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}
  switch: {kind: soft, ecn: {kmin: 10KB, kmax: 30KB}, trim: true, pfc: {priorities: [3]}}
  links: {default: {rate: 1gbit}}
`

const softRing = `
name: ring
fabric:
  topology: torus
  params: {x: 3}
  switch: {kind: soft, pfc: {priorities: [3]}}
  links: {default: {rate: 1gbit}}
`

// softScene sends 200 packets from h0 and 200 from h1 to hosts of the other leaf. The packets are
// ECN-capable at priority 3, and the soft switches record queue lengths.
func softScene(t testing.TB, text string) *scene {
	s := newScene(t)
	s.plan = plantest.Compile(t, text)
	for n := range 400 {
		from, to := &s.plan.Nodes[n%2], &s.plan.Nodes[2]
		s.send(from.Name, "eth0", tcp{
			src:     netip.AddrPortFrom(loopback(from), 7000),
			dst:     netip.AddrPortFrom(loopback(to), 7001),
			flow:    n % 2,
			seq:     uint32(n),
			payload: 1000,
		})
	}
	s.now += 1_000_000_000
	s.change(func(sighting) bool { return true }, func(k *sighting) {
		k.frame[15] = 24<<2 | byte(wire.ECT0)
		if k.out && !strings.HasPrefix(k.tap, "h") {
			k.comment, k.queue = "railbed depth=1000 late=0ns", 4
		}
	})
	return s
}

func loopback(n *plan.Node) netip.Addr { return n.Loopbacks[0].Addr() }

// uplinks are the taps of a switch's ports to other switches.
func (s *scene) uplinks(sw string) (taps []string) {
	for _, port := range s.plan.Switch(sw).Ports {
		if peer, _ := splitPort(port.Peer); s.plan.Switch(peer) != nil {
			taps = append(taps, sw+":"+port.Name)
		}
	}
	return taps
}

// from edits what is seen of every second packet from a switch's sending on.
func (s *scene) from(sw string, edit func(k *sighting, here bool)) {
	left := map[uint64]int64{}
	for _, k := range s.sightings {
		if k.out && strings.HasPrefix(k.tap, sw+":") && k.id%2 == 0 {
			left[k.id] = k.time
		}
	}
	s.change(func(k sighting) bool {
		at, found := left[k.id]
		return found && k.time >= at
	}, func(k *sighting) {
		edit(k, k.out && strings.HasPrefix(k.tap, sw+":"))
	})
}

// mark changes every second packet as leaf1 does when it marks packets.
func (s *scene) mark() {
	s.from("leaf1", func(k *sighting, here bool) {
		k.frame = slices.Clone(k.frame)
		k.frame[15] |= byte(wire.CE)
		if here {
			k.comment = "railbed verdict=mark reason=red depth=40000 late=0ns"
		}
	})
}

// cut changes every second packet as leaf1 does when it trims packets.
func (s *scene) cut(dscp byte) {
	s.from("leaf1", func(k *sighting, here bool) {
		k.frame = slices.Clone(k.frame[:128])
		k.frame[15] = dscp << 2
		k.frame[16], k.frame[17] = 0, 114
		k.id, k.length = k.id+1<<32, 128
		if here {
			k.comment, k.queue = "railbed verdict=trim reason=tail depth=60000 late=0ns", 8
		}
	})
}

// lose drops the first packet of h0 at leaf1, with a comment if there is one.
func (s *scene) lose(comment string) {
	id := s.packet("h0:eth0", true)
	at := s.of(id, "leaf1:p0", false)
	s.remove(func(k sighting) bool { return k.id == id && k.time > at.time })
	if comment != "" {
		at.tap, at.out, at.time, at.comment = s.uplinks("leaf1")[0], true, at.time+10, comment
		s.insert(at)
	}
}

// nicOverruns has the emulated NIC of h0 drop a packet for want of room, and leaf1 tell how short
// its queue was.
func nicOverruns(s *scene) {
	id := s.packet("h0:eth0", true)
	at := s.of(id, "h0:eth0", true)
	s.remove(func(k sighting) bool { return k.id == id && k.time > at.time })
	at.time, at.comment = at.time+10, "railbed verdict=drop reason=nic-overrun depth=261800"
	s.insert(at)
}

// lostBy is a scene of which taps lost a packet each.
func lostBy(of func(*scene), taps ...string) func(*scene) {
	return func(s *scene) {
		of(s)
		for _, sw := range s.plan.Switches {
			for _, port := range sw.Ports {
				name := sw.Name + ":" + port.Name
				if slices.ContainsFunc(taps, func(tap string) bool { return spec.Match(tap, name) }) {
					s.drops[name] = 1
				}
			}
		}
	}
}

// pause has a port ask the far end for a pause.
func (s *scene) pause(tap string, at int64, quanta uint16) {
	port, _ := (&Capture{Plan: s.plan}).port(splitPort(tap))
	frame := make([]byte, wire.EthernetMinLen)
	wire.EncodePFCFrame(frame, wire.MAC(port.MAC),
		&wire.PFCFields{Enable: 1 << 3, Quanta: [8]uint16{3: quanta}})
	s.ids++
	s.insert(
		sighting{tap: tap, out: true, time: at, id: s.ids, frame: frame, length: len(frame), queue: 8,
			comment: "railbed verdict=pause reason=pfc depth=9000 late=0ns"},
		sighting{tap: port.Peer, time: at + 500, id: s.ids, frame: frame, length: len(frame),
			comment: "railbed verdict=pause reason=pfc depth=5000 late=0ns"})
}

// chain is a pause that spreads from spine1 over leaf1 to h0, after the traffic,
// for 1,000 quanta each: 512 us.
func (s *scene) chain() {
	end := s.now - 900_000_000
	up := s.uplinks("leaf1")[0]
	port, _ := (&Capture{Plan: s.plan}).port(splitPort(up))
	s.pause(port.Peer, end, 1000)
	s.pause("leaf1:p0", end+10_000, 1000)
}

// circle has each switch of a ring pause the one before it, four times within the
// time of a pause.
func (s *scene) circle() {
	at := s.now - 900_000_000
	for n := range 4 {
		for i := range 3 {
			sw, far := fmt.Sprintf("sw%d", i), fmt.Sprintf("sw%d", (i+1)%3)
			for _, port := range s.plan.Switch(sw).Ports {
				if peer, _ := splitPort(port.Peer); peer == far {
					s.pause(port.Peer, at+int64(n)*10_000_000, wire.MaxQuanta)
				}
			}
		}
	}
}

func bounded(t *testing.T, text string, kind spec.BoundKind) *spec.Bound {
	t.Helper()
	b, err := spec.ParseBound(text, kind)
	if err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestFabricChecks judges scenes by each check of the fabric: runs that pass, and runs that are
// broken on purpose.
func TestFabricChecks(t *testing.T) {
	marks := func(at, share, count string) func(*testing.T) Check {
		return func(t *testing.T) Check {
			var s, c *spec.Bound
			if share != "" {
				s = bounded(t, share, spec.ShareBound)
			}
			if count != "" {
				c = bounded(t, count, spec.CountBound)
			}
			return newMarks(Selection{At: at}, s, c)
		}
	}
	drops := func(at, reason, count string) func(*testing.T) Check {
		return func(t *testing.T) Check {
			return newDrops(Selection{At: at}, reason, bounded(t, count, spec.CountBound))
		}
	}
	lossless := func(from string) func(*testing.T) Check {
		return func(*testing.T) Check { return newLossless(Selection{From: from}, 3) }
	}
	trims := func(t *testing.T) Check { return newTrims(Selection{}, bounded(t, ">= 1", spec.CountBound)) }
	pauses := func(count, paused string, order ...string) func(*testing.T) Check {
		return func(t *testing.T) Check {
			var c, p *spec.Bound
			if count != "" {
				c = bounded(t, count, spec.CountBound)
			}
			if paused != "" {
				p = bounded(t, paused, spec.DurationBound)
			}
			return newPauses(Selection{}, 3, c, p, order)
		}
	}
	deadlock := func(want bool) func(*testing.T) Check {
		return func(*testing.T) Check { return newDeadlock(want) }
	}
	reordering := func(share string) func(*testing.T) Check {
		return func(t *testing.T) Check {
			return newReordering(Selection{}, bounded(t, share, spec.ShareBound))
		}
	}
	depth := func(q int, most string) func(*testing.T) Check {
		return func(t *testing.T) Check {
			return newQueueDepth(Selection{}, q, bounded(t, most, spec.BytesBound), nil)
		}
	}
	nothing := func(*scene) {}
	silence := func(s *scene) { s.sightings = nil }
	lossy := func(s *scene) {
		for _, n := range s.plan.Nodes {
			s.drops[n.Name+":eth0"] = 1
		}
		for _, sw := range s.plan.Switches {
			for _, port := range sw.Ports {
				s.drops[sw.Name+":"+port.Name] = 1
			}
		}
	}
	then := func(all ...func(*scene)) func(*scene) {
		return func(s *scene) {
			for _, one := range all {
				one(s)
			}
		}
	}
	cut := func(s *scene) { s.cut(59) }
	for _, c := range []struct {
		name  string
		scene func(*scene)
		check func(*testing.T) Check
		want  verdict.Verdict
		says  string
	}{
		{"marked", (*scene).mark, marks("leaf1", ">= 40%", ">= 100"), pass, "marked 200 packets"},
		{"marks at the receiver", (*scene).mark, marks("h2", ">= 40%", ""), pass, ""},
		{"too many marks", (*scene).mark, marks("leaf1", "<= 10%", ""), fail,
			"share of marked packets: 50%, want <= 10%"},
		{"no marks", nothing, marks("", ">= 10%", ""), fail, "0%, want >= 10%"},
		{"marked elsewhere", (*scene).mark, marks("spine*", "", ">= 1"), fail, "packets marked here: 0"},
		{"marked in words only", func(s *scene) {
			s.from("leaf1", func(k *sighting, here bool) {
				if here {
					k.comment = "railbed verdict=mark reason=red depth=40000 late=0ns"
				}
			})
		}, marks("leaf1", "", ">= 1"), fail, "carry no mark"},
		{"nobody can be marked", func(s *scene) {
			s.change(func(sighting) bool { return true }, func(k *sighting) { k.frame[15] = 24 << 2 })
		}, marks("", "<= 10%", ""), unclear, "no packet of an ECN-capable transport"},
		{"marks in a lossy capture", lossy, marks("leaf1", ">= 10%", ""), unclear, "lost 1 packets"},

		{"nothing dropped", nothing, drops("", "", "== 0"), pass, ""},
		{"a drop", func(s *scene) {
			s.lose("railbed verdict=drop reason=tail depth=40320")
		}, drops("leaf1", "", "== 0"), fail, "dropped 1: tail"},
		{"a drop elsewhere", func(s *scene) {
			s.lose("railbed verdict=drop reason=tail depth=40320")
		}, drops("spine*", "", "== 0"), pass, ""},
		{"a drop for another reason", func(s *scene) {
			s.lose("railbed verdict=drop reason=tail depth=40320")
		}, drops("", "loss", ">= 1"), fail, "packets dropped: 0, want >= 1"},
		{"no drop where there must be some", nothing, drops("", "", ">= 1"), fail, "want >= 1"},
		{"no drop in a lossy capture", lossy, drops("", "", ">= 1"), unclear, ""},
		{"a drop in a lossy capture", then(lossy, func(s *scene) {
			s.lose("railbed verdict=drop reason=tail depth=1")
		}), drops("", "", "== 0"), fail, ""},
		{"drops of nobody", silence, drops("", "", "== 0"), unclear, "no packet came there"},

		{"all arrive", nothing, lossless(""), pass, ""},
		{"a packet vanishes", func(s *scene) { s.lose("") }, lossless(""), fail,
			"1 packets were lost: no record of a drop"},
		{"a packet of another flow vanishes", func(s *scene) { s.lose("") }, lossless("h1"), pass, ""},
		{"a packet is dropped", func(s *scene) {
			s.lose("railbed verdict=drop reason=headroom depth=1")
		}, lossless(""), fail, "headroom"},
		{"the node's own NIC overflows", func(s *scene) {
			id := s.packet("h0:eth0", true)
			at := s.of(id, "h0:eth0", true)
			s.remove(func(k sighting) bool { return k.id == id && k.time > at.time })
			at.time, at.comment = at.time+10, "railbed verdict=drop reason=nic-overrun depth=1"
			s.insert(at)
		}, lossless(""), pass, ""},
		{"the host has no room", func(s *scene) {
			id := s.packet("h0:eth0", true)
			s.change(func(k sighting) bool {
				return k.id == id && k.tap == "h2:eth0"
			}, func(k *sighting) { k.comment = "railbed verdict=drop reason=refused depth=0" })
		}, lossless(""), unclear, "1 packets came to a node that had no room"},
		{"a packet vanishes in a lossy capture", then(lossy, func(s *scene) { s.lose("") }), lossless(""),
			unclear, ""},
		{"a packet is cut", cut, lossless(""), fail, "200 packets were lost"},
		{"nobody sends", silence, lossless(""), unclear, "no packet left a node"},
		{"a NIC without a tap", func(s *scene) {
			s.untapped["h2:eth0"] = true
		}, lossless(""), unclear, "not recorded: h2:eth0"},

		{"trimmed", cut, trims, pass, "trimmed 200: tail"},
		{"nothing trimmed", nothing, trims, fail, "packets trimmed: 0, want >= 1"},
		{"trimmed, with its old DSCP", func(s *scene) { s.cut(24) }, trims, fail, "another DSCP"},
		{"trimmed, and not short", func(s *scene) {
			s.cut(59)
			s.change(func(k sighting) bool { return k.length == 128 }, func(k *sighting) { k.length = 900 })
		}, trims, fail, "longer than what is to be left"},
		{"a head vanishes", func(s *scene) {
			s.cut(59)
			first := uint64(0)
			for _, k := range s.sightings {
				if k.id > 1<<32 && first == 0 {
					first = k.id
				}
			}
			s.remove(func(k sighting) bool { return k.id == first && k.tap == "h2:eth0" })
		}, trims, fail, "1 heads of trimmed packets were lost: no record of a drop"},
		{"trims of nobody", silence, trims, unclear, "no packet left a switch"},

		{"paused in order", (*scene).chain, pauses(">= 2", ">= 500us", "spine1:*", "leaf1:*"), pass, ""},
		{"paused in order by ports outside at", (*scene).chain, func(t *testing.T) Check {
			return newPauses(Selection{At: "leaf2:p0"}, 3, bounded(t, "== 0", spec.CountBound), nil,
				[]string{"spine1:*", "leaf1:*"})
		}, pass, "0 pauses"},
		{"paused in another order", (*scene).chain, pauses("", "", "leaf1:*", "spine1:*"), fail,
			"before leaf1:* did"},
		{"paused by somebody else", (*scene).chain, pauses("", "", "spine2:*"), fail,
			"spine2:* asked for no pause"},
		{"paused for too long", (*scene).chain, pauses("", "<= 400us"), fail,
			"time paused: 512µs, want <= 400us"},
		{"paused for too long by a tap that lost the end", lostBy((*scene).chain, "leaf1:p0", "spine1:*"),
			pauses("", "<= 400us"), unclear, "time paused: 512µs, want <= 400us"},
		{"pauses where there must be none", (*scene).chain, pauses("== 0", ""), fail, "pauses: 2, want == 0"},
		{"no pauses", nothing, pauses("== 0", ""), pass, ""},
		{"no pauses where there must be some", nothing, pauses(">= 1", ""), fail, "pauses: 0"},
		{"no pauses in a lossy capture", lossy, pauses(">= 1", ""), unclear, ""},
		{"sent while paused", then((*scene).chain, func(s *scene) {
			k := s.of(s.packet("h0:eth0", true), s.uplinks("leaf1")[0], true)
			k.time = s.now - 900_000_000 + 100_000
			s.insert(k)
		}), pauses(">= 1", ""), fail, "sent 1 packets of a priority that was paused"},
		{"sent while paused by a tap that lost the end", lostBy(then((*scene).chain, func(s *scene) {
			k := s.of(s.packet("h0:eth0", true), s.uplinks("leaf1")[0], true)
			k.time = s.now - 900_000_000 + 100_000
			s.insert(k)
		}), "leaf1:*"), pauses(">= 1", ""), unclear, "sent 1 packets of a priority that was paused"},
		{"sent at another priority", then((*scene).chain, func(s *scene) {
			k := s.of(s.packet("h0:eth0", true), s.uplinks("leaf1")[0], true)
			k.time, k.queue = s.now-900_000_000+100_000, 1
			s.insert(k)
		}), pauses(">= 1", ""), pass, ""},
		{"pauses of nobody", silence, pauses("== 0", ""), unclear, "no packet came there"},

		{"no deadlock", nothing, deadlock(false), pass, ""},
		{"no deadlock where there must be one", (*scene).chain, deadlock(true), fail, "no cycle"},
		{"a deadlock of nobody", silence, deadlock(false), unclear, "no packet passed"},

		{"in order", nothing, reordering("== 0%"), pass, ""},
		{"in order where it must not be", nothing, reordering(">= 1%"), fail, "0%, want >= 1%"},
		{"out of order", func(s *scene) {
			s.change(func(k sighting) bool {
				return k.tap == "h2:eth0" && k.id%10 == 0
			}, func(k *sighting) { k.time += 60_000 })
		}, reordering("<= 1%"), fail, "packets out of order: 9.75%"},
		{"order of nobody", silence, reordering("== 0%"), unclear, "no packet was seen"},

		{"short queues", nothing, depth(3, "<= 1KB"), pass, ""},
		{"a long queue", (*scene).mark, depth(3, "<= 30KB"), fail, "longest queue: 40KB, want <= 30KB"},
		{"mostly long queues in a capture that lost packets", lostBy((*scene).mark, "leaf1:*"),
			func(t *testing.T) Check {
				return newQueueDepth(Selection{}, 3, nil, bounded(t, "<= 30KB", spec.BytesBound))
			}, unclear, "99 of 100 packets found"},
		{"a long queue elsewhere", cut, depth(3, "<= 30KB"), pass, ""},
		{"a NIC's queue", nicOverruns, depth(-1, "<= 30KB"), pass, ""},
		{"drops alone at a NIC", nicOverruns, func(t *testing.T) Check {
			return newQueueDepth(Selection{At: "h0:*"}, -1, bounded(t, "<= 300KB", spec.BytesBound), nil)
		}, unclear, "only dropped packets say"},
		{"queues that nobody tells of", func(s *scene) {
			s.change(func(k sighting) bool { return k.comment != "" }, func(k *sighting) { k.comment = "" })
		}, depth(-1, "<= 1KB"), unclear, "no packet says"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := softScene(t, softFile)
			c.scene(s)
			judgeScene(t, s, c.check(t), c.want, c.says)
		})
	}
}

func judgeScene(t *testing.T, s *scene, check Check, want verdict.Verdict, says string) {
	t.Helper()
	results, _ := s.run(check)
	if text := text(results[0]); results[0].Verdict != want || !strings.Contains(text, says) {
		t.Errorf("got %s\nwant %s with %q", text, want, says)
	}
}

func TestDeadlockOfARing(t *testing.T) {
	for _, c := range []struct {
		name   string
		mutate func(*scene)
		some   verdict.Verdict
		says   string
	}{
		{"all wait for each other", func(*scene) {}, pass, "wait for each other in a circle"},
		{"one of them goes on sending", func(s *scene) {
			var inserted []sighting
			for _, k := range s.sightings {
				if strings.HasPrefix(k.tap, "sw1:") && !k.out && len(k.frame) == wire.EthernetMinLen {
					data := s.sightings[0]
					data.tap, data.out, data.time, data.queue = k.tap, true, k.time+1000, 4
					inserted = append(inserted, data)
				}
			}
			s.insert(inserted...)
		}, fail, "no cycle"},
		{"one of the pauses runs out", func(s *scene) {
			s.remove(func(k sighting) bool {
				return strings.HasPrefix(k.tap, "sw2:") && !k.out && len(k.frame) == wire.EthernetMinLen &&
					k.time > s.now-890_000_000
			})
		}, fail, "no cycle"},
		{"the capture is lossy", func(s *scene) { s.drops["sw0:p1"] = 1 }, unclear, "lost 1 packets"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := softScene(t, softRing)
			s.circle()
			c.mutate(s)
			judgeScene(t, s, newDeadlock(true), c.some, c.says)
			none := map[verdict.Verdict]verdict.Verdict{pass: fail, fail: pass, unclear: unclear}[c.some]
			judgeScene(t, s, newDeadlock(false), none, "")
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
		options SpreadOptions
		want    verdict.Verdict
		says    string
	}{
		{"all by one path", func(int, int) int { return 0 }, SpreadOptions{Polarised: true}, pass, ""},
		{"all by one path, unasked", func(int, int) int { return 0 }, SpreadOptions{}, fail,
			"0% of its fair part"},
		{"by all paths", func(flow, paths int) int {
			return flow % paths
		}, SpreadOptions{Polarised: true}, fail, "every one of 2 paths carried traffic"},
		{"each flow by one", func(flow, paths int) int {
			return flow % paths
		}, SpreadOptions{Flows: OnePath}, pass, ""},
		{"each flow by all", func(_, paths int) int {
			alternate++
			return alternate / 3 % paths
		}, SpreadOptions{Flows: OnePath}, fail, "used more than one path"},
		{"sprayed", func(_, paths int) int {
			alternate++
			return alternate / 3 % paths
		}, SpreadOptions{Flows: EveryPath}, pass, ""},
		{"hashed, not sprayed", func(flow, paths int) int {
			return flow % paths
		}, SpreadOptions{Flows: EveryPath}, fail, "did not use every one of 2 paths"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			s.uplink = c.uplink
			s.ring(4)
			s.now += 1_000_000
			judgeScene(t, s, NewPathSpread("leaf1", units.Ratio{}, c.options), c.want, c.says)
		})
	}
	s := newScene(t)
	for n := range 10 { // fewer than tell
		from, to := &s.plan.Ranks[0], &s.plan.Ranks[2]
		s.send(from.Node, from.NIC, tcp{src: netip.AddrPortFrom(from.Addr4, 7000),
			dst: netip.AddrPortFrom(to.Addr4, 7001), seq: uint32(n), payload: 100, flow: n})
	}
	s.now += 1_000_000
	judgeScene(t, s, NewPathSpread("leaf1", units.Ratio{}, SpreadOptions{Flows: EveryPath}), unclear,
		"no flow has packets enough")
}

// TestTrimmedPacketsAreConserved: the head that leaves counts for the packet that entered. A head
// that leaves without a record is a violation.
func TestTrimmedPacketsAreConserved(t *testing.T) {
	s := softScene(t, softFile)
	s.cut(59)
	judgeScene(t, s, NewConservation("leaf1"), pass, "200 trimmed")
	s = softScene(t, softFile)
	s.cut(59)
	s.change(func(k sighting) bool {
		return strings.Contains(k.comment, "trim")
	}, func(k *sighting) { k.comment = "" })
	judgeScene(t, s, NewConservation("leaf1"), fail, "left without having entered")
}

// TestEventsAreNoPackets: what enters a queue is counted by the checks that ask
// for it, and by no other.
func TestEventsAreNoPackets(t *testing.T) {
	s := softScene(t, softFile)
	var events []sighting
	for _, k := range s.sightings {
		if k.out && strings.HasPrefix(k.tap, "leaf1:") {
			k.time, k.comment = k.time-100, "railbed verdict=enqueue depth=50000 late=0ns"
			events = append(events, k)
		}
	}
	s.insert(events...)
	judgeScene(t, s, NewConservation("*"), pass, "1200 packets crossed")
	judgeScene(t, s, newQueueDepth(Selection{At: "leaf1"}, 3, bounded(t, "<= 30KB", spec.BytesBound), nil),
		fail, "longest queue: 50KB")
}
