package verify

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railbed/capture/pcapng"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan/plantest"
)

const (
	pass    = verdict.Pass
	fail    = verdict.Fail
	unclear = verdict.Inconclusive
)

// The checks of the table, in the order of its columns.
var columns = []string{"bytes-per-rank", "rank-nic", "conservation", "path-spread", "fidelity", "mtu"}

func checksOf(s *scene) []Check {
	return []Check{
		NewBytesPerRank(s.workload, units.Ratio{Num: 2, Den: 100}),
		NewRankNIC(s.workload),
		NewConservation("*"),
		NewPathSpread("leaf*", units.Ratio{Num: 1, Den: 2}, SpreadOptions{}),
		NewFidelity(Faithful, HostLoad{Pressure: 0.2, Steal: 0}),
		NewMTU(0),
	}
}

func (s *scene) run(checks ...Check) ([]Result, Summary) {
	s.t.Helper()
	results, summary, err := Run(s.t.Context(), bytes.NewReader(s.write()), s.options(), checks...)
	if err != nil {
		s.t.Fatal(err)
	}
	return results, summary
}

// isData is a segment with payload.
func isData(k sighting) bool { return k.length > segment }

// mutations are runs that are broken on purpose. Each states what every check
// must say about it; says is part of a line of the check that finds it.
var mutations = []struct {
	name   string
	mutate func(*scene)
	want   [6]verdict.Verdict
	says   string
}{
	{"nothing", func(*scene) {}, [6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, ""},
	{"a packet vanishes inside a leaf", func(s *scene) {
		id := s.packet("h1:eth0", true)
		at := s.of(id, "leaf1:p1", false).time
		s.remove(func(k sighting) bool { return k.id == id && k.time > at })
	}, [6]verdict.Verdict{pass, pass, fail, pass, pass, pass}, "leaf1: 1 packets entered and never left"},
	{"a packet leaves a leaf twice", func(s *scene) {
		id := s.packet("h0:eth0", true)
		again := s.of(id, "leaf1:p1", true)
		again.time += 5000
		s.insert(again)
	}, [6]verdict.Verdict{pass, pass, fail, pass, pass, pass}, "entered 1 times and left 2 times"},
	{"a spine makes a packet up", func(s *scene) {
		k := s.of(s.packet("h1:eth0", true), "h1:eth0", true)
		k.tap, k.id, k.time = "spine1:p1", 1<<40, s.now-s.step*500
		s.insert(k)
	}, [6]verdict.Verdict{pass, pass, fail, pass, pass, pass},
		"spine1: 1 packets left without having entered"},
	{"a packet ends by its TTL", func(s *scene) {
		s.ids++
		s.send("h0", "eth0", tcp{src: netip.MustParseAddrPort("10.9.9.9:1"),
			dst: netip.AddrPortFrom(s.workload.Ranks[3].Addr, 9), ttl: 1})
		s.now += 100_000_000
	}, [6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, ""},
	{"a packet is for the leaf itself", func(s *scene) {
		s.send("h0", "eth0", tcp{src: netip.AddrPortFrom(s.workload.Ranks[0].Addr, 1),
			dst: netip.AddrPortFrom(s.plan.Switch("leaf1").Loopbacks[0].Addr(), 9)})
		s.now += 100_000_000
	}, [6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, ""},
	{"a leaf drops a packet and says so", func(s *scene) {
		id := s.packet("h1:eth0", true)
		at := s.of(id, "leaf1:p1", false).time
		s.remove(func(k sighting) bool { return k.id == id && k.time > at })
		s.change(func(k sighting) bool { return k.id == id && k.tap == "leaf1:p1" }, func(k *sighting) {
			k.comment = "railbed verdict=drop reason=tail depth=40320"
		})
	}, [6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, ""},
	{"a rank sends through another NIC", func(s *scene) {
		rank := s.workload.Ranks[1].Addr
		s.change(func(k sighting) bool {
			return k.tap == "h1:eth0" && k.out && isData(k) && k.time > start+50_000_000 && srcOf(k) == rank
		}, func(k *sighting) { k.tap = "h0:eth0" })
	}, [6]verdict.Verdict{fail, fail, pass, pass, pass, pass},
		"rank 1 (h1:eth0) sent 423 packets at h0:eth0"},
	{"packets reach a leaf without having left a NIC", func(s *scene) {
		s.remove(func(k sighting) bool {
			return k.tap == "h1:eth0" && k.out && isData(k) && k.time > start+100_000_000
		})
	}, [6]verdict.Verdict{fail, fail, pass, pass, pass, pass}, "were not seen to leave its NIC"},
	{"a rank uses another address", func(s *scene) {
		s.send("h0", "eth0", tcp{src: netip.MustParseAddrPort("10.0.0.1:5"),
			dst: netip.AddrPortFrom(s.workload.Ranks[1].Addr, service), payload: 100})
	}, [6]verdict.Verdict{pass, fail, pass, pass, pass, pass}, "which is no rank's address"},
	{"a rank sends too little", func(s *scene) {
		s.workload.Ranks[2].Expected = s.workload.Ranks[2].Expected * 11 / 10
	}, [6]verdict.Verdict{fail, pass, pass, pass, pass, pass},
		"rank 2 (h2:eth0): sent 720000 bytes, the algorithm sends 792000"},
	{"a rank sends too much", func(s *scene) {
		s.workload.Ranks[2].Expected = s.workload.Ranks[2].Expected * 9 / 10
	}, [6]verdict.Verdict{fail, pass, pass, pass, pass, pass}, "(+11.11%)"},
	{"a worker counts other bytes than the packets", func(s *scene) {
		reported := uint64(720000 + 8000)
		s.workload.Ranks[0].Reported = &reported
	}, [6]verdict.Verdict{fail, pass, pass, pass, pass, pass}, "the worker counted 728000"},
	{"a worker counts the same", func(s *scene) {
		reported := uint64(720000)
		s.workload.Ranks[0].Reported = &reported
	}, [6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, ""},
	{"segments are sent again", func(s *scene) {
		for c := range connections {
			from, to := s.workload.Ranks[0], s.workload.Ranks[1]
			s.send("h0", "eth0", tcp{src: netip.AddrPortFrom(from.Addr, uint16(20000+c)),
				dst: netip.AddrPortFrom(to.Addr, service), flow: c, seq: 3000 - 255, payload: 1000})
		}
	}, [6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, "16000 bytes retransmitted"},
	{"bytes of a flow never pass the NIC", func(s *scene) {
		ids := map[uint64]bool{}
		for _, k := range s.sightings {
			if k.tap == "h3:eth0" && k.out && isData(k) && k.time > start+40_000_000 &&
				k.time < start+50_000_000 {
				ids[k.id] = true
			}
		}
		s.remove(func(k sighting) bool { return ids[k.id] })
	}, [6]verdict.Verdict{unclear, pass, pass, pass, pass, pass}, "never passed its tap"},
	{"a NIC's tap loses packets", func(s *scene) { s.drops["h1:eth0"] = 3 },
		[6]verdict.Verdict{unclear, unclear, pass, pass, fail, unclear}, "tap h1:eth0 lost 3 packets"},
	{"a leaf's tap loses packets", func(s *scene) {
		id := s.packet("h1:eth0", true)
		s.remove(func(k sighting) bool { return k.id == id && strings.HasPrefix(k.tap, "leaf1:") && k.out })
		for _, port := range s.plan.Switch("leaf1").Ports {
			s.drops["leaf1:"+port.Name] = 1
		}
	}, [6]verdict.Verdict{pass, pass, unclear, unclear, fail, unclear}, "lost 1 packets"},
	{"the limit is reached", func(s *scene) { s.limited["h1:eth0"] = 100 },
		[6]verdict.Verdict{unclear, unclear, pass, pass, fail, unclear}, "tap h1:eth0 lost 100 packets"},
	{"nobody sends", func(s *scene) { s.sightings = nil },
		[6]verdict.Verdict{unclear, unclear, unclear, unclear, unclear, unclear}, "no packet"},
	{"a NIC is not captured", func(s *scene) { s.untapped["h1:eth0"] = true },
		[6]verdict.Verdict{unclear, unclear, pass, pass, pass, pass}, "not recorded: "},
	{"a port is not captured", func(s *scene) { s.untapped["leaf1:p2"] = true },
		[6]verdict.Verdict{pass, pass, unclear, unclear, pass, pass}, "not recorded: leaf1:p2"},
	{"the counts at the end are missing", func(s *scene) { s.noCounts = true },
		[6]verdict.Verdict{unclear, unclear, unclear, unclear, unclear, unclear}, "the capture is truncated"},
	{"all flows take one uplink", func(s *scene) {
		replay(s, func(int, int) int { return 0 })
	}, [6]verdict.Verdict{pass, pass, pass, fail, pass, pass},
		"the least loaded of 2 paths had 0% of its fair part with 32 flows"},
	{"too few flows take one uplink", func(s *scene) {
		s.remove(func(k sighting) bool { return portOf(k) > 20001 })
		for i := range s.workload.Ranks {
			s.workload.Ranks[i].Expected /= connections / 2
		}
		s.change(func(k sighting) bool {
			return portOf(k) == 20001 && k.tap == "leaf1:p3"
		}, func(k *sighting) { k.tap = "leaf1:p2" })
		s.change(func(k sighting) bool {
			return portOf(k) == 20001 && k.tap == "leaf2:p3"
		}, func(k *sighting) { k.tap = "leaf2:p2" })
	}, [6]verdict.Verdict{pass, pass, pass, unclear, pass, pass},
		"an even hash is as uneven with probability"},
	{"a frame is longer than the MTU", func(s *scene) {
		s.change(func(k sighting) bool { return k.id == s.ids/2 }, func(k *sighting) { k.length = 1515 })
	}, [6]verdict.Verdict{pass, pass, pass, pass, pass, fail},
		"over the MTU of 1500, the longest of 1501 bytes"},
	{"a link carries too much", func(s *scene) {
		stretched(s, 10)
		s.plan.Links[0].AToB.Rate = 3_000_000
	}, [6]verdict.Verdict{pass, pass, pass, pass, verdict.Overloaded, pass}, "instead of 3mbit while busy"},
	{"somebody else's capture", func(s *scene) { s.foreign = true },
		[6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, ""},
	{"somebody else's capture without counts", func(s *scene) { s.foreign, s.noCounts = true, true },
		[6]verdict.Verdict{pass, pass, pass, pass, pass, pass}, ""},
}

func srcOf(k sighting) netip.Addr { return netip.AddrFrom4([4]byte(k.frame[26:30])) }

// portOf is the client's port of an IPv4 segment.
func portOf(k sighting) int {
	return max(int(k.frame[34])<<8|int(k.frame[35]), int(k.frame[36])<<8|int(k.frame[37]))
}

// replay plays the ring again with another choice of uplinks.
func replay(s *scene, uplink func(flow, paths int) int) {
	s.sightings, s.workload.Ranks, s.now, s.ids = nil, nil, start, 0
	s.uplink = uplink
	s.ring(4)
}

func TestChecksAgainstMutations(t *testing.T) {
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			s := newScene(t)
			s.ring(4)
			m.mutate(s)
			results, _ := s.run(checksOf(s)...)
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
			mutate func(*scene)
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
	s := newScene(t)
	s.ring(6)
	results, _ := s.run(checksOf(s)...)
	for _, result := range results {
		if result.Verdict != pass {
			t.Error(result)
		}
	}
}

// TestCutCapture cuts a capture at many places: no check may pass, whatever
// was cut off.
func TestCutCapture(t *testing.T) {
	s := newScene(t)
	s.ring(4)
	whole := s.write()
	for length := 100; length < len(whole); length += len(whole) / 50 {
		results, summary, err := Run(t.Context(), bytes.NewReader(whole[:length]), s.options(),
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
		s := newScene(t)
		s.plan = plantest.Compile(
			t, strings.Replace(clusterFile, "topology:", "switch: {kind: router}\n  topology:", 1))
		s.ring(4)
		for range 2 {
			id := s.packet("h1:eth0", true)
			at := s.of(id, "leaf1:p1", false).time
			s.remove(func(k sighting) bool { return k.id == id && k.time > at })
			// so that packet finds another
			s.change(func(k sighting) bool { return k.id == id }, func(k *sighting) { k.length = segment })
		}
		s.queues["leaf1:p0"] = drops
		results, _ := s.run(NewConservation("leaf1"))
		if results[0].Verdict != want {
			t.Errorf("with %d drops counted, want %s: %v", drops, want, results[0])
		}
	}
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
		s := newScene(t)
		s.ring(4)
		check := NewFidelity(c.accept, c.load)
		results, _ := s.run(check)
		if results[0].Verdict != c.want || check.Level() != c.level {
			t.Errorf("%+v accepting %s: %s and %s, want %s and %s", c.load, c.accept, results[0].Verdict,
				check.Level(), c.want, c.level)
		}
	}
}

// stretched makes the capture take longer.
func stretched(s *scene, factor int64) {
	for i := range s.sightings {
		s.sightings[i].time = start + (s.sightings[i].time-start)*factor
	}
	s.now = start + (s.now-start)*factor
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
		s := newScene(t)
		s.plan = plantest.Compile(t, "name: b\nfabric:\n  topology: single-switch\n  params: {hosts: 3}\n  "+
			"switch: {kind: bridge}\n")
		sw := s.plan.Switches[0].Name
		from, to := s.plan.Nodes[0].NICs[0], s.plan.Nodes[1].NICs[0]
		frame := s.frame(tcp{src: netip.MustParseAddrPort("10.0.0.1:1"),
			dst: netip.MustParseAddrPort("10.0.0.2:1")}, 64, from.MAC, to.MAC)
		at := func(id uint64, time int64, tap string, out bool) {
			s.insert(sighting{tap: tap, out: out, time: time, id: id, frame: frame, length: len(frame)})
		}
		at(1, start, sw+":p0", false) // an ordinary one, so that something crosses
		at(1, start+10, sw+":p1", true)
		at(2, start+50_000_000, sw+":p0", false)
		for i, port := range c.out {
			at(2, start+50_000_100+int64(i), sw+":"+port, true)
		}
		s.now = start + 200_000_000
		results, _ := s.run(NewConservation("*"))
		if results[0].Verdict != c.want {
			t.Errorf("%s: want %s: %v", name, c.want, results[0])
		}
	}
}

func TestWithoutPlan(t *testing.T) {
	s := newScene(t)
	s.ring(4)
	data := s.write()
	results, _, err := Run(t.Context(), bytes.NewReader(data), Options{}, checksOf(s)...)
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
	results, summary, err := Run(t.Context(), &out, Options{}, NewMTU(1500))
	if err != nil || results[0].Verdict != unclear || summary.Undecoded != 1 {
		t.Errorf("%v, %+v, %v", results, summary, err)
	}
}

// FuzzRun gives packets of any bytes to every check.
func FuzzRun(f *testing.F) {
	s := newScene(f)
	s.ring(4)
	for _, k := range s.sightings[:3] {
		f.Add(k.frame, uint32(k.length))
	}
	f.Add([]byte{1, 2, 3}, uint32(0))
	r := newScene(f)
	r.rdRing(4)
	r.say(8, 5000, nil, 8, 1<<63)
	r.nack(8, 6000, wire.RDTrimmed)
	for _, k := range r.sightings {
		if k.id < 3 || k.id > r.ids-3 {
			f.Add(k.frame, uint32(k.length))
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
		if _, _, err := Run(t.Context(), &out, s.options(),
			append(checksOf(s), newPlaced(), newNeeded(), NewBytesPerRank(r.workload, units.Ratio{}),
				newReordering(Selection{}, nil))...); err != nil {
			t.Fatal(err)
		}
	})
}

func TestNotACapture(t *testing.T) {
	_, _, err := Run(t.Context(), strings.NewReader("hello, world, this is no capture"), Options{})
	if err == nil || !strings.Contains(err.Error(), pcapng.ErrFormat.Error()) {
		t.Errorf("got %v", err)
	}
}
