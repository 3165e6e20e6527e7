package verify

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railbed/capture/pcapng"
	"railbed/internal/verdict"
	"railbed/plan/plantest"
	"railbed/plan/spec"
)

// equalDatagrams are datagrams over IPv6 without anything that tells them apart, 5 ms
// apart, from h0 to h2.
func equalDatagrams(t *testing.T, count int) *scene {
	s := softScene(t, softFile)
	s.sightings, s.now, s.step = nil, start, 5_000_000
	src, dst := &s.plan.Nodes[0], &s.plan.Nodes[2]
	for range count {
		s.send(src.Name, "eth0", tcp{
			src:      netip.AddrPortFrom(src.Loopbacks[1].Addr(), 7000),
			dst:      netip.AddrPortFrom(dst.Loopbacks[1].Addr(), 7777),
			datagram: []byte("hi"),
		})
	}
	return s
}

// droppedOfEqual removes packets of equal ones behind the first leaf, with or without a record of
// the drop. It numbers equal packets as a recorder does that counts them at each port.
func droppedOfEqual(s *scene, recorded bool, ordinals ...int) {
	ids := []uint64{}
	for _, k := range s.sightings {
		if k.tap == "h0:eth0" && k.out {
			ids = append(ids, k.id)
		}
	}
	for _, n := range ordinals {
		at := s.of(ids[n], "leaf1:p0", false)
		s.remove(func(k sighting) bool { return k.id == ids[n] && k.time > at.time })
		if recorded {
			at.tap, at.out, at.time, at.comment = s.uplinks("leaf1")[0], true, at.time+10,
				"railbed verdict=drop reason=nth depth=0 late=0ns"
			s.insert(at)
		}
	}
	slices.SortStableFunc(s.sightings, func(a, b sighting) int { return int(a.time - b.time) })
	seen := map[string]uint64{}
	for i := range s.sightings {
		k := &s.sightings[i]
		place := k.tap
		if k.out {
			place += ">"
		}
		k.id = seen[place] + 1
		seen[place]++
	}
}

// Which of equal packets was dropped no ordinal tells: the record does that there was one.
func TestDropsOfEqualPackets(t *testing.T) {
	for _, c := range []struct {
		name                   string
		recorded               bool
		ordinals               []int
		later                  int64 // the capture's end
		lossless, conservation verdict.Verdict
		says                   string
	}{
		{"recorded", true, []int{5, 50, 77, 90, 120}, 0, fail, pass,
			"200 packets left: 195 arrived, 5 were lost"},
		{"recorded at last", true, []int{199}, 0, fail, pass, "200 packets left: 199 arrived, 1 were lost"},
		{"without a record", false, []int{5, 50}, 1_000_000_000, fail, fail,
			"200 packets left: 198 arrived, 2 were lost"},
		{"without a record, at the end", false, []int{5, 50}, 0, unclear, fail,
			"2 packets that equal others have not arrived"},
		{"none", true, nil, 0, pass, pass, "200 packets left: 200 arrived, 0 were lost"},
	} {
		s := equalDatagrams(t, 200)
		droppedOfEqual(s, c.recorded, c.ordinals...)
		if s.now += c.later; c.later == 0 {
			s.now -= 1_000_000 // the scene ends a millisecond later
		}
		results, _ := s.run(newLossless(Selection{}, -1), NewConservation("leaf1"))
		wants(t, results[0], c.lossless, c.says)
		if results[1].Verdict != c.conservation && c.later > 0 ||
			results[1].Verdict == fail && c.conservation == pass {
			t.Errorf("%s: want %s: %v", c.name, c.conservation, results[1])
		}
		m := results[0].Measured
		if sum := m["arrived"] + m["lost"] + m["nic-overrun"] + m["refused"] +
			m["under-way"]; m["sent"] != sum {
			t.Errorf("%s: %v sent and %v accounted for", c.name, m["sent"], sum)
		}
	}
}

// A copy of an equal packet does not stand for one whose drop is recorded, whether it
// arrives before the drop or after it.
func TestCopiesOfEqualPackets(t *testing.T) {
	for _, after := range []int64{-1000, 1000} {
		s := equalDatagrams(t, 40)
		lost := s.ids - 30
		drop := s.of(lost, "leaf1:p0", false)
		s.remove(func(k sighting) bool { return k.id == lost && k.time > drop.time })
		drop.tap, drop.out, drop.time, drop.comment = s.uplinks("leaf1")[0], true, drop.time+1_000_000,
			"railbed verdict=drop reason=loss depth=0 late=0ns"
		s.ids++
		again := s.of(lost-1, "h2:eth0", false)
		again.id, again.time = s.ids, drop.time+after
		s.insert(drop, again)
		judgeScene(t, s, newLossless(Selection{}, -1), fail,
			"40 packets left: 39 arrived, 1 were lost, 0 found no room in the emulated NIC, 0 were refused "+
				"by their node, 0 were under way at the end; 1 arrived that had not left")
	}
}

// A packet that is sent again is in order, where ids tell it from the lost one, and perhaps
// where they do not.
func TestOrderOfEqualPackets(t *testing.T) {
	for _, c := range []struct {
		kernel bool
		share  string
		want   verdict.Verdict
		says   string
	}{
		{false, "== 0%", pass, "0 of 35 packets arrived out of order"},
		{false, ">= 1%", fail, "0 of 35 packets arrived out of order"},
		{true, "== 0%", unclear, "packets equal others, and so up to"},
		{true, "<= 100%", pass, "0 of 35 packets arrived out of order"},
	} {
		s := equalDatagrams(t, 0)
		src, dst := &s.plan.Nodes[0], &s.plan.Nodes[2]
		send := func(what byte) {
			s.send(src.Name, "eth0", tcp{
				src:      netip.AddrPortFrom(src.Loopbacks[1].Addr(), 7000),
				dst:      netip.AddrPortFrom(dst.Loopbacks[1].Addr(), 7777),
				datagram: []byte{what},
			})
		}
		for n := range byte(35) {
			if send(n); n%7 == 3 {
				id := s.ids
				s.remove(func(k sighting) bool { return k.tap == "h2:eth0" && k.id == id })
			}
			if n%7 == 6 {
				send(n - 3) // the packet that was lost
			}
		}
		if c.kernel {
			s.plan.Switches[0].Kind = spec.Router
		}
		judgeScene(t, s, newReordering(Selection{}, bounded(t, c.share, spec.ShareBound)), c.want, c.says)
	}
}

// Only the NIC of the destination is where a packet arrives, and it arrives once.
func TestArrivals(t *testing.T) {
	at := func(tap string) func(*scene) {
		return func(s *scene) {
			id := s.packet("h0:eth0", true)
			s.change(func(k sighting) bool {
				return k.id == id && k.tap == "h2:eth0"
			}, func(k *sighting) { k.tap = tap })
		}
	}
	again := func(tap string) func(*scene) {
		return func(s *scene) {
			k := s.of(s.packet("h0:eth0", true), "h2:eth0", false)
			k.tap, k.time = tap, k.time+5000
			s.insert(k)
		}
	}
	outage := func() Check { return newOutage(Selection{}, bounded(t, "<= 1ms", spec.DurationBound)) }
	reordering := func() Check { return newReordering(Selection{}, bounded(t, "<= 50%", spec.ShareBound)) }
	lossless := func() Check { return newLossless(Selection{}, -1) }
	for _, c := range []struct {
		name  string
		alter func(*scene)
		check func() Check
		want  verdict.Verdict
		says  string
	}{
		{"astray", at("h1:eth0"), lossless, fail, "1 packets came to a NIC that they were not for"},
		{"doubled", again("h2:eth0"), lossless, fail,
			"1 packets arrived that had not left, or had arrived before"},
		{"doubled astray", again("h3:eth0"), lossless, pass, "1 packets came to a NIC"},
		{"astray", at("h1:eth0"), reordering, pass, "0 of 399 packets"},
		{"doubled", again("h2:eth0"), reordering, pass, "0 of 400 packets"},
	} {
		s := softScene(t, softFile)
		c.alter(s)
		judgeScene(t, s, c.check(), c.want, c.says)
	}
	s := datagrams(t)
	k := s.of(s.ids, "h2:eth0", false)
	for n := range int64(13) {
		k.time += 1000 + n
		s.insert(k)
	}
	judgeScene(t, s, outage(), pass, "0 of 100 datagrams did not arrive; 13 arrived that had not left")
}

// A soft switch records each drop: what its counters say besides excuses nothing.
func TestRecordedDropsExcuseOnce(t *testing.T) {
	s := softScene(t, softFile)
	s.lose("railbed verdict=drop reason=tail depth=40320")
	s.lose("")
	s.queues["leaf1:p0"], s.queues["leaf1:p2"] = 1, 1
	judgeScene(t, s, NewConservation("*"), fail, "leaf1: 1 packets entered and never left")
}

// Queues of kernel switches count drops and record none.
func TestKernelSwitches(t *testing.T) {
	const text = "\nname: kernel\nfabric:\n  topology: single-switch\n  params: {hosts: 3}\n  switch: " +
		"{kind: router}\n"
	play := func(queues map[string]uint64) *scene {
		s := newScene(t)
		s.plan, s.queues = plantest.Compile(t, text), queues
		for n := range 20 {
			from, to := &s.plan.Nodes[0], &s.plan.Nodes[1]
			s.send(from.Name, "eth0", tcp{src: netip.AddrPortFrom(loopback(from), 7000),
				dst: netip.AddrPortFrom(loopback(to), 7001), seq: uint32(n), payload: 100})
		}
		s.now += 1_000_000_000
		return s
	}
	drops := func(reason, from, count string) Check {
		return newDrops(Selection{From: from}, reason, bounded(t, count, spec.CountBound))
	}
	none, some := map[string]uint64{"leaf1:p0": 0}, map[string]uint64{"leaf1:p0": 403}
	judgeScene(t, play(none), drops("", "", "== 0"), pass, "0 packets were dropped")
	judgeScene(t, play(some), drops("", "", "== 0"), fail, "403 packets were dropped")
	judgeScene(t, play(some), drops("", "", ">= 1"), pass, "403 packets were dropped")
	judgeScene(t, play(some), drops("tail", "", "== 0"), unclear, "neither flow nor reason is known")
	judgeScene(t, play(some), drops("", "h0", "== 0"), unclear, "neither flow nor reason is known")
	judgeScene(t, play(some), drops("tail", "", ">= 1"), unclear, "0 packets were dropped for reason tail")
	judgeScene(t, play(some), drops("", "h0", ">= 1"), unclear, "neither flow nor reason is known")
	judgeScene(t, play(nil), drops("", "", "== 0"), unclear, "other ports record no drops")
	down := play(none)
	down.interrupted = func(link string) bool { return strings.Contains(link, "h1") }
	judgeScene(t, down, drops("", "", "== 0"), unclear, "the link was down for a time at leaf1:p1,")
	const mute = "other ports record no drops, marks, trims, pauses or depths"
	judgeScene(t, play(none), newPauses(Selection{}, -1, bounded(t, "== 0", spec.CountBound), nil, nil),
		unclear, mute)
	judgeScene(t, play(none), newDeadlock(false), unclear, mute)
	judgeScene(t, play(none), newTrims(Selection{}, bounded(t, "== 0", spec.CountBound)), unclear, mute)
	judgeScene(t, play(none), newQueueDepth(Selection{}, -1, bounded(t, "<= 1KB", spec.BytesBound), nil),
		unclear, "")
	gone := play(nil)
	id := gone.ids
	gone.remove(func(k sighting) bool {
		return k.id == id && k.out && strings.HasPrefix(k.tap, "leaf1:") || k.id == id && k.tap == "h1:eth0"
	})
	judgeScene(t, gone, NewConservation("*"), unclear, "how many its queues dropped is not known")
	gone.queues = none
	judgeScene(t, gone, NewConservation("*"), fail, "1 packets entered and never left")
	gone.queues = map[string]uint64{"leaf1:p1": 1}
	judgeScene(t, gone, NewConservation("*"), pass,
		"queues of kernel switches counted 1 of the missing as dropped")
}

// What proves a bound is enough, wherever else nothing was recorded; what was lost there
// is not.
func TestLowerBoundsNeedNoMoreThanTheySaw(t *testing.T) {
	for _, c := range []struct {
		alter func(*scene)
		count string
		want  verdict.Verdict
	}{
		{func(s *scene) { s.mark(); s.untapped["spine1:p0"] = true }, ">= 1", pass},
		{func(s *scene) { s.untapped["spine1:p0"] = true }, ">= 1", unclear},
		{func(s *scene) { s.mark(); s.drops["leaf1:p0"] = 1 }, ">= 1", unclear},
		{func(s *scene) { s.untapped["spine1:p0"] = true }, "== 0", unclear},
		{func(s *scene) { s.mark(); s.untapped["spine1:p0"] = true }, "== 0", fail},
	} {
		s := softScene(t, softFile)
		c.alter(s)
		judgeScene(t, s, newMarks(Selection{}, nil, bounded(t, c.count, spec.CountBound)), c.want, "")
	}
}

// Others' recordings count their losses in their own ways.
func TestLossesOfOthers(t *testing.T) {
	s := softScene(t, softFile)
	s.foreign = true
	original := readTape(t, s.write())
	for name, c := range map[string]struct {
		alter func(*tape)
		want  verdict.Verdict
	}{
		"none": {func(*tape) {}, pass},
		"by a packet": {func(c *tape) {
			i := slices.IndexFunc(c.packets, func(p pcapng.Packet) bool {
				return c.interfaces[p.Interface].Name == "h0:eth0"
			})
			c.packets[i].Has, c.packets[i].DropCount = c.packets[i].Has|pcapng.HasDropCount, 4
		}, unclear},
	} {
		altered := original.clone()
		c.alter(altered)
		results, _, err := Run(t.Context(), bytes.NewReader(altered.write(t)), s.options(),
			newLossless(Selection{}, -1))
		if err != nil {
			t.Fatal(err)
		}
		if results[0].Verdict != c.want {
			t.Errorf("%s: want %s: %v", name, c.want, results[0])
		}
	}
}

// A filter hides packets, unless it lets pass all that a check is about.
func TestFilters(t *testing.T) {
	for filter, want := range map[string]verdict.Verdict{"": pass, "udp port 4791": pass, "udp": pass,
		"udp src port 4791": unclear, "host 10.0.0.1": unclear} {
		s, check := specimens["roce psn"](t, false)
		c := readTape(t, s.write())
		for i := range c.interfaces {
			c.interfaces[i].Filter = filter
		}
		results, _, err := Run(t.Context(), bytes.NewReader(c.write(t)), s.options(), check())
		if err != nil || results[0].Verdict != want {
			t.Errorf("filter %q: %v, want %s: %v", filter, err, want, results)
		}
	}
}

// Packets are sorted as far as memory goes; beyond it, checks that need their order
// cannot tell.
func TestOrderBeyondTheWindow(t *testing.T) {
	const window = 1 << 15 // packets by which a capture is sorted
	for behind, want := range map[int]verdict.Verdict{window / 2: pass, window + 10: unclear} {
		s := datagrams(t)
		c := readTape(t, s.write())
		last := c.packets[len(c.packets)-1]
		nic := slices.IndexFunc(c.packets, func(p pcapng.Packet) bool {
			return c.interfaces[p.Interface].Name == "h2:eth0"
		})
		moved := c.packets[nic]
		c.packets = slices.Delete(c.packets, nic, nic+1)
		arp := last
		arp.Data = append(make([]byte, 12), 8, 6)
		for n := range behind {
			arp.Time, arp.ID, arp.Length = last.Time+int64(n)+1, uint64(n)<<8, 60
			c.packets = append(c.packets, arp)
		}
		c.counts[arp.Interface].Delivered += uint64(behind)
		c.counts[arp.Interface].Accepted += uint64(behind)
		c.packets = append(c.packets, moved)
		outage, drops := newOutage(Selection{}, bounded(t, "<= 20ms", spec.DurationBound)),
			newDrops(Selection{}, "", bounded(t, "== 0", spec.CountBound))
		results, _, err := Run(t.Context(), bytes.NewReader(c.write(t)), s.options(), outage, drops)
		if err != nil || results[0].Verdict != want || results[1].Verdict != pass {
			t.Errorf("%d behind: %v, want %s and PASS: %v", behind, err, want, results)
		}
	}
}
