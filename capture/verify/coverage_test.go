package verify

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railbed/capture/pcapng"
	"railbed/capture/verify/evidence"
	"railbed/capture/verify/fabricchecks"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// equalDatagrams are datagrams over IPv6 without anything that tells them apart, 5 ms
// apart, from h0 to h2.
func equalDatagrams(t *testing.T, count int) *verifytest.Scene {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Sightings, s.Now, s.Step = nil, verifytest.Start, 5_000_000
	src, dst := &s.Plan.Nodes[0], &s.Plan.Nodes[2]
	for range count {
		s.Send(src.Name, "eth0", verifytest.TCP{
			Src:      netip.AddrPortFrom(src.Loopbacks[1].Addr(), 7000),
			Dst:      netip.AddrPortFrom(dst.Loopbacks[1].Addr(), 7777),
			Datagram: []byte("hi"),
		})
	}
	return s
}

// droppedOfEqual removes packets of equal ones behind the first leaf, with or without a record of
// the drop. It numbers equal packets as a recorder does that counts them at each port.
func droppedOfEqual(s *verifytest.Scene, recorded bool, ordinals ...int) {
	ids := []uint64{}
	for _, k := range s.Sightings {
		if k.Tap == "h0:eth0" && k.Out {
			ids = append(ids, k.ID)
		}
	}
	for _, n := range ordinals {
		at := s.Of(ids[n], "leaf1:p0", false)
		s.Remove(func(k verifytest.Sighting) bool { return k.ID == ids[n] && k.Time > at.Time })
		if recorded {
			at.Tap, at.Out, at.Time, at.Comment = s.Uplinks("leaf1")[0], true, at.Time+10,
				"railbed verdict=drop reason=nth depth=0 late=0ns"
			s.Insert(at)
		}
	}
	slices.SortStableFunc(s.Sightings, func(a, b verifytest.Sighting) int { return int(a.Time - b.Time) })
	seen := map[string]uint64{}
	for i := range s.Sightings {
		k := &s.Sightings[i]
		place := k.Tap
		if k.Out {
			place += ">"
		}
		k.ID = seen[place] + 1
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
		{"recorded at last", true, []int{199}, 0, fail, pass, "200 packets left: 199 arrived, 1 was lost"},
		{"without a record", false, []int{5, 50}, 1_000_000_000, fail, fail,
			"200 packets left: 198 arrived, 2 were lost"},
		{"without a record, at the end", false, []int{5, 50}, 0, unclear, fail,
			"2 packets that equal others have not arrived"},
		{"none", true, nil, 0, pass, pass, "200 packets left: 200 arrived, 0 were lost"},
	} {
		s := equalDatagrams(t, 200)
		droppedOfEqual(s, c.recorded, c.ordinals...)
		if s.Now += c.later; c.later == 0 {
			s.Now -= 1_000_000 // the scene ends a millisecond later
		}
		results, _ := s.Run(fabricchecks.NewLossless(&spec.LosslessCheck{}),
			fabricchecks.NewConservation("leaf1"))
		verifytest.Wants(t, results[0], c.lossless, c.says)
		if results[1].Verdict != c.conservation && c.later > 0 ||
			results[1].Verdict == fail && c.conservation == pass {
			t.Errorf("%s: want %s: %v", c.name, c.conservation, results[1])
		}
		m := results[0].Measured
		if sum := m["arrived"] + m["lost"] + m["nic-overrun"] + m["refused"] + m["by-fault"] +
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
		lost := s.IDs - 30
		drop := s.Of(lost, "leaf1:p0", false)
		s.Remove(func(k verifytest.Sighting) bool { return k.ID == lost && k.Time > drop.Time })
		drop.Tap, drop.Out, drop.Time, drop.Comment = s.Uplinks("leaf1")[0], true, drop.Time+1_000_000,
			"railbed verdict=drop reason=loss depth=0 late=0ns"
		s.IDs++
		again := s.Of(lost-1, "h2:eth0", false)
		again.ID, again.Time = s.IDs, drop.Time+after
		s.Insert(drop, again)
		verifytest.Judge(t, s, fabricchecks.NewLossless(&spec.LosslessCheck{}), fail,
			"40 packets left: 39 arrived, 1 was lost, 0 found no room in the emulated NIC, 0 were refused "+
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
		src, dst := &s.Plan.Nodes[0], &s.Plan.Nodes[2]
		send := func(what byte) {
			s.Send(src.Name, "eth0", verifytest.TCP{
				Src:      netip.AddrPortFrom(src.Loopbacks[1].Addr(), 7000),
				Dst:      netip.AddrPortFrom(dst.Loopbacks[1].Addr(), 7777),
				Datagram: []byte{what},
			})
		}
		for n := range byte(35) {
			if send(n); n%7 == 3 {
				id := s.IDs
				s.Remove(func(k verifytest.Sighting) bool { return k.Tap == "h2:eth0" && k.ID == id })
			}
			if n%7 == 6 {
				send(n - 3) // the packet that was lost
			}
		}
		if c.kernel {
			s.Plan.Switches[0].Kind = spec.Router
		}
		verifytest.Judge(t, s, fabricchecks.NewReordering(&spec.ReorderingCheck{Share: c.share}),
			c.want, c.says)
	}
}

// Only the NIC of the destination is where a packet arrives, and it arrives once.
func TestArrivals(t *testing.T) {
	at := func(tap string) func(*verifytest.Scene) {
		return func(s *verifytest.Scene) {
			id := s.Packet("h0:eth0", true)
			s.Change(func(k verifytest.Sighting) bool {
				return k.ID == id && k.Tap == "h2:eth0"
			}, func(k *verifytest.Sighting) { k.Tap = tap })
		}
	}
	again := func(tap string) func(*verifytest.Scene) {
		return func(s *verifytest.Scene) {
			k := s.Of(s.Packet("h0:eth0", true), "h2:eth0", false)
			k.Tap, k.Time = tap, k.Time+5000
			s.Insert(k)
		}
	}
	outage := func() evidence.Check {
		return fabricchecks.NewOutage(&spec.OutageCheck{Longest: "<= 1ms"})
	}
	reordering := func() evidence.Check {
		return fabricchecks.NewReordering(&spec.ReorderingCheck{Share: "<= 50%"})
	}
	lossless := func() evidence.Check { return fabricchecks.NewLossless(&spec.LosslessCheck{}) }
	for _, c := range []struct {
		name  string
		alter func(*verifytest.Scene)
		check func() evidence.Check
		want  verdict.Verdict
		says  string
	}{
		{"astray", at("h1:eth0"), lossless, fail, "1 packet came to a NIC that they were not addressed to"},
		{"doubled", again("h2:eth0"), lossless, fail,
			"1 packet arrived that had not left, or had arrived before"},
		{"doubled astray", again("h3:eth0"), lossless, pass, "1 packet came to a NIC"},
		{"astray", at("h1:eth0"), reordering, pass, "0 of 399 packets"},
		{"doubled", again("h2:eth0"), reordering, pass, "0 of 400 packets"},
	} {
		s := verifytest.SoftScene(t, verifytest.SoftFile)
		c.alter(s)
		verifytest.Judge(t, s, c.check(), c.want, c.says)
	}
	s := datagrams(t)
	k := s.Of(s.IDs, "h2:eth0", false)
	for n := range int64(13) {
		k.Time += 1000 + n
		s.Insert(k)
	}
	verifytest.Judge(t, s, outage(), pass, "0 of 100 datagrams did not arrive; 13 arrived that had not left")
}

// A soft switch records each drop: what its counters say besides excuses nothing.
func TestRecordedDropsExcuseOnce(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Lose("railbed verdict=drop reason=tail depth=40320")
	s.Lose("")
	s.Queues["leaf1:p0"], s.Queues["leaf1:p2"] = 1, 1
	verifytest.Judge(t, s, fabricchecks.NewConservation("*"), fail, "leaf1: 1 packet entered and never left")
}

// Queues of kernel switches count drops and record none.
func TestKernelSwitches(t *testing.T) {
	const text = "\nname: kernel\nfabric:\n  topology: single-switch\n  params: {hosts: 3}\n  switch: " +
		"{kind: router}\n"
	play := func(queues map[string]uint64) *verifytest.Scene {
		s := verifytest.NewScene(t)
		s.Plan, s.Queues = plantest.Compile(t, text), queues
		for n := range 20 {
			from, to := &s.Plan.Nodes[0], &s.Plan.Nodes[1]
			s.Send(from.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(from), 7000),
				Dst: netip.AddrPortFrom(verifytest.Loopback(to), 7001), Seq: uint32(n), Payload: 100})
		}
		s.Now += 1_000_000_000
		return s
	}
	drops := func(reason, from, count string) evidence.Check {
		return fabricchecks.NewDrops(&spec.DropsCheck{From: from, Reason: reason, Count: count})
	}
	const unknown = "whose flow, reason and time are not known"
	none, some := map[string]uint64{"leaf1:p0": 0}, map[string]uint64{"leaf1:p0": 403}
	verifytest.Judge(t, play(none), drops("", "", "== 0"), pass, "0 packets were dropped")
	verifytest.Judge(t, play(some), drops("", "", "== 0"), fail, "403 packets were dropped")
	verifytest.Judge(t, play(some), drops("", "", ">= 1"), pass, "403 packets were dropped")
	verifytest.Judge(t, play(some), drops("tail", "", "== 0"), unclear, unknown)
	verifytest.Judge(t, play(some), drops("", "h0", "== 0"), unclear, unknown)
	verifytest.Judge(t, play(some), drops("tail", "", ">= 1"), unclear,
		"0 packets were dropped for reason tail")
	verifytest.Judge(t, play(some), drops("", "h0", ">= 1"), unclear, unknown)
	verifytest.Judge(t, play(nil), drops("", "", "== 0"), unclear, "other ports record no drops")
	down := play(none)
	down.Interrupted = func(link string) bool { return strings.Contains(link, "h1") }
	verifytest.Judge(t, down, drops("", "", "== 0"), unclear, "the link was down for a time at leaf1:p1,")
	const mute = "other ports record no drops, marks, trims, pauses or depths"
	verifytest.Judge(t, play(none), fabricchecks.NewPauses(&spec.PausesCheck{Count: "== 0"}), unclear, mute)
	verifytest.Judge(t, play(none), fabricchecks.NewDeadlock("none"), unclear, mute)
	verifytest.Judge(t, play(none), fabricchecks.NewTrims(&spec.TrimsCheck{Count: "== 0"}, nil),
		unclear, mute)
	verifytest.Judge(t, play(none), fabricchecks.NewQueueDepth(&spec.QueueDepthCheck{Max: "<= 1KB"}, nil),
		unclear,
		"")
	gone := play(nil)
	id := gone.IDs
	gone.Remove(func(k verifytest.Sighting) bool {
		return k.ID == id && k.Out && strings.HasPrefix(k.Tap, "leaf1:") || k.ID == id && k.Tap == "h1:eth0"
	})
	verifytest.Judge(t, gone, fabricchecks.NewConservation("*"), unclear,
		"how many its queues dropped is not known")
	gone.Queues = none
	verifytest.Judge(t, gone, fabricchecks.NewConservation("*"), fail, "1 packet entered and never left")
	gone.Queues = map[string]uint64{"leaf1:p1": 1}
	verifytest.Judge(t, gone, fabricchecks.NewConservation("*"), pass,
		"queues of kernel switches counted 1 of the missing as dropped")
}

// What proves a bound is enough, wherever else nothing was recorded; what was lost there
// is not.
func TestLowerBoundsNeedNoMoreThanTheySaw(t *testing.T) {
	for _, c := range []struct {
		alter func(*verifytest.Scene)
		count string
		want  verdict.Verdict
	}{
		{func(s *verifytest.Scene) { s.Mark(); s.Untapped["spine1:p0"] = true }, ">= 1", pass},
		{func(s *verifytest.Scene) { s.Untapped["spine1:p0"] = true }, ">= 1", unclear},
		{func(s *verifytest.Scene) { s.Mark(); s.Drops["leaf1:p0"] = 1 }, ">= 1", unclear},
		{func(s *verifytest.Scene) { s.Untapped["spine1:p0"] = true }, "== 0", unclear},
		{func(s *verifytest.Scene) { s.Mark(); s.Untapped["spine1:p0"] = true }, "== 0", fail},
	} {
		s := verifytest.SoftScene(t, verifytest.SoftFile)
		c.alter(s)
		verifytest.Judge(t, s, fabricchecks.NewMarks(&spec.MarksCheck{Count: c.count}),
			c.want, "")
	}
}

// Others' recordings count their losses in their own ways.
func TestLossesOfOthers(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Foreign = true
	original := readTape(t, s.Write())
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
		results, _, err := evidence.Run(t.Context(), bytes.NewReader(altered.write(t)), s.Options(),
			fabricchecks.NewLossless(&spec.LosslessCheck{}))
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
		c := readTape(t, s.Write())
		for i := range c.interfaces {
			c.interfaces[i].Filter = filter
		}
		results, _, err := evidence.Run(t.Context(), bytes.NewReader(c.write(t)), s.Options(), check())
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
		c := readTape(t, s.Write())
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
		outage, drops := fabricchecks.NewOutage(&spec.OutageCheck{Longest: "<= 20ms"}),
			fabricchecks.NewDrops(&spec.DropsCheck{Count: "== 0"})
		results, _, err := evidence.Run(t.Context(), bytes.NewReader(c.write(t)), s.Options(), outage, drops)
		if err != nil || results[0].Verdict != want || results[1].Verdict != pass {
			t.Errorf("%d behind: %v, want %s and PASS: %v", behind, err, want, results)
		}
	}
}
