package forward

import (
	"slices"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

// bridged is a plan of bridges.
func bridged(t testing.TB, hosts, switches string, connect ...string) *plan.Plan {
	t.Helper()
	p := wired(t, hosts, switches, connect...)
	for i := range p.Switches {
		p.Switches[i].Kind = spec.Bridge
	}
	return p
}

// stations is a bridge of four ports whose plan has one NIC at each. It makes frames between
// stations that the plan contains (1 to 4, at ports 0 to 3) or does not contain.
type stations struct {
	t     testing.TB
	table Table
	pool  *packet.Pool
}

func newStations(t testing.TB) *stations {
	p := bridged(t, "a b c d", "s", "a -- s", "b -- s", "c -- s", "d -- s")
	s := &stations{t: t, pool: newPool(t)}
	var err error
	if s.table, err = New(p, &p.Switches[0], s.pool, depths{}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stations) frame(src, dst wire.MAC, length int) *packet.Packet {
	one := s.pool.Get()
	one.Data = one.Data[:length]
	clear(one.Data)
	// for experiments, IEEE 802
	wire.Ethernet(one.Data).Encode(&wire.EthernetFields{Dst: dst, Src: src, EtherType: 0x88b5})
	one.Parse()
	return one
}

func (s *stations) send(now clock.Time, src, dst wire.MAC, ingress int) Decision {
	one := s.frame(src, dst, 60)
	defer s.pool.Put(one)
	return s.table.Decide(now, one, ingress)
}

var (
	planned1 = wire.MAC{2, 0, 0, 0, 0, 1}
	planned2 = wire.MAC{2, 0, 0, 0, 0, 2}
	guest    = wire.MAC{0x52, 0x54, 0, 1, 2, 3}
	other    = wire.MAC{0x52, 0x54, 0, 1, 2, 4}
)

func TestBridgeLearns(t *testing.T) {
	const second = clock.Time(time.Second)
	flooded, reserved := Decision{Action: Flood}, Decision{Reason: Reserved}
	to := func(port int) Decision { return Decision{Action: Send, Port: port} }
	s := newStations(t)
	for i, c := range []struct {
		now      clock.Time
		src, dst wire.MAC
		ingress  int
		want     Decision
	}{
		{0, planned1, planned2, 0, to(1)}, // known from the plan before the first frame
		{0, planned1, guest, 0, flooded},
		{0, guest, planned1, 3, to(0)},
		{1 * second, planned1, guest, 0, to(3)},
		{300*second - 1, planned1, guest, 0, to(3)},
		{300 * second, planned1, guest, 0, flooded}, // 802.1Q: 300 s without a word
		{300 * second, guest, planned1, 2, to(0)},   // it moved
		{301 * second, planned1, guest, 0, to(2)},
		{302 * second, guest, planned1, 3, to(0)}, // and again, within its age
		{302 * second, planned1, guest, 0, to(3)},
		{303 * second, other, guest, 3, Decision{Reason: Hairpin}},
		{304 * second, planned2, planned1, 2, to(0)}, // learned addresses come before the plan
		{305 * second, planned1, planned2, 0, to(2)},
		{604 * second, planned1, planned2, 0, to(1)}, // and is forgotten: the plan holds
		{700 * second, planned1, wire.Broadcast, 0, flooded},
		{700 * second, planned1, wire.MAC{0x33, 0x33, 0, 0, 0, 1}, 0, flooded},
		{700 * second, planned1, wire.MAC{1, 0, 0x5e, 0, 0, 1}, 0, flooded},
		{700 * second, planned1, wire.MAC{1, 0x80, 0xc2, 0, 0, 0}, 0, reserved},    // spanning tree
		{700 * second, planned1, wire.MAC{1, 0x80, 0xc2, 0, 0, 1}, 0, reserved},    // pause
		{700 * second, planned1, wire.MAC{1, 0x80, 0xc2, 0, 0, 0x0e}, 0, reserved}, // LLDP
		{700 * second, planned1, wire.MAC{1, 0x80, 0xc2, 0, 0, 0x0f}, 0, reserved},
		{700 * second, planned1, wire.MAC{1, 0x80, 0xc2, 0, 0, 0x10}, 0, flooded},
		{700 * second, wire.Broadcast, planned1, 0, Decision{Reason: Malformed}}, // from a group
		{700 * second, wire.MAC{}, planned1, 0, Decision{Reason: Malformed}},
	} {
		if got := s.send(c.now, c.src, c.dst, c.ingress); got != c.want {
			t.Errorf("step %d, %s to %s by port %d: %+v, want %+v", i, c.src, c.dst, c.ingress, got, c.want)
		}
	}
	short := s.pool.Get()
	short.Data = short.Data[:13]
	short.Parse()
	if got := s.table.Decide(0, short, 0); got.Action != Drop || got.Reason != Malformed {
		t.Errorf("13 bytes: %+v", got)
	}
}

func TestBridgeForgetsPortsThatGoDown(t *testing.T) {
	s := newStations(t)
	s.send(0, guest, planned1, 3)
	s.send(0, other, planned1, 2)
	s.table.SetPortUp(3, false)
	if got := s.send(1, planned1, guest, 0); got.Action != Flood {
		t.Errorf("a station at a port that is down: %+v", got)
	}
	if got := s.send(1, planned1, other, 0); got.Action != Send || got.Port != 2 {
		t.Errorf("a station at another port: %+v", got)
	}
	s.table.SetPortUp(3, true)
	s.send(2, guest, planned1, 3)
	if got := s.send(2, planned1, guest, 0); got.Action != Send || got.Port != 3 {
		t.Errorf("a station that came back: %+v", got)
	}
}

// TestBridgeIsBounded: one port claims a million addresses. The table keeps its size, and planned
// stations and stations that send are still found.
func TestBridgeIsBounded(t *testing.T) {
	s := newStations(t)
	b := s.table.(*bridge)
	size := len(b.sets)
	for i := range 1_000_000 {
		s.send(clock.Time(i), wire.MAC{6, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)}, planned1, 3)
	}
	if len(b.sets) != size || len(b.planned) != 4 {
		t.Errorf("%d sets and %d planned, want %d and 4", len(b.sets), len(b.planned), size)
	}
	if got := s.send(1_000_000, planned1, planned2, 0); got.Action != Send || got.Port != 1 {
		t.Errorf("a planned station: %+v", got)
	}
	s.send(1_000_000, guest, planned1, 2)
	if got := s.send(1_000_000, planned1, guest, 0); got.Action != Send || got.Port != 2 {
		t.Errorf("who spoke last: %+v", got)
	}
}

// TestFloodsAreLimited: 200,000 copies at once and a million in a second for each
// ingress, 3 for each frame here; other ingresses have their own.
func TestFloodsAreLimited(t *testing.T) {
	s := newStations(t)
	count := func(now func(i int) clock.Time, n, ingress int) (flooded int) {
		for i := range n {
			switch got := s.send(now(i), planned1, wire.Broadcast, ingress); {
			case got.Action == Flood:
				flooded++
			case got.Reason != FloodLimit:
				t.Fatalf("%+v", got)
			}
		}
		return flooded
	}
	zero := func(int) clock.Time { return 0 }
	if got := count(zero, 70_000, 0); got != copiesAtOnce/3 {
		t.Errorf("%d frames are flooded at once, want %d", got, copiesAtOnce/3)
	}
	second := func(i int) clock.Time { return clock.Time(i+1) * 1e9 / 1_000_000 }
	if got, want := count(second, 1_000_000, 0), copiesPerSecond/3; got < want-1 || got > want+1 {
		t.Errorf("%d frames are flooded in a second, want %d", got, want)
	}
	if got := count(zero, 10, 1); got != 10 {
		t.Errorf("%d of 10 frames of another ingress are flooded", got)
	}
	if got := s.send(0, planned1, planned2, 0); got.Action != Send {
		t.Errorf("what is no flood: %+v", got)
	}
}

func TestBridgeKeepsToTheMTU(t *testing.T) {
	s := newStations(t)
	for length, want := range map[int]Action{1514: Send, 1515: Drop} {
		one := s.frame(planned1, planned2, length)
		if got := s.table.Decide(0, one, 0); got.Action != want || want == Drop && got.Reason != TooBig {
			t.Errorf("%d bytes: %+v", length, got)
		}
	}
}

// TestBridgesReachEverything sends a frame from every NIC to every other over a tree of bridges,
// including silent NICs: each frame takes the only path.
func TestBridgesReachEverything(t *testing.T) {
	f := newFabric(t, bridged(t, "a b c d e", "r x y", "a -- x", "b -- x", "c -- y", "d -- y", "e -- r",
		"r -- x", "r -- y"), "")
	for i := range f.plan.Nodes {
		for j := range f.plan.Nodes {
			from, to := &f.plan.Nodes[i], &f.plan.Nodes[j]
			if i == j {
				continue
			}
			d, at := f.from(from, 0, datagram{src: from.NICs[0].Addrs[0].Addr(),
				dst: to.NICs[0].Addrs[0].Addr()})
			d.dstMAC = to.NICs[0].MAC
			one := d.packet(f.pool)
			before := slices.Clone(one.Data)
			end, path, last := f.carry(one, at)
			if end.Node != to.Name || len(path) > 3 {
				t.Errorf("from %s to %s: ends at %v over %v: %+v", from.Name, to.Name, end, path, last)
			}
			if !slices.Equal(last.Reply.Data, before) {
				t.Errorf("from %s to %s: the frame changes on the way", from.Name, to.Name)
			}
			f.pool.Put(last.Reply)
		}
	}
}

func TestBridgeAllocatesNothing(t *testing.T) {
	s := newStations(t)
	one := s.frame(guest, planned1, 60)
	now := clock.Time(0)
	if n := testing.AllocsPerRun(10_000, func() {
		now += 1e9
		one.Data[11]++
		one.Data[5]++
		s.table.Decide(now, one, 3)
	}); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}

// TestBridgeForgetsTheSilent puts five stations into one set of the table, which holds four: the
// bridge forgets the station that was silent for longest.
func TestBridgeForgetsTheSilent(t *testing.T) {
	s := newStations(t)
	b := s.table.(*bridge)
	var rivals []wire.MAC
	for i := 0; len(rivals) < ways+1; i++ {
		mac := wire.MAC{6, 0, 0, 0, byte(i >> 8), byte(i)}
		if b.place(addressOf(mac[:])) == 0 {
			rivals = append(rivals, mac)
		}
	}
	for i, mac := range rivals[:ways] {
		s.send(clock.Time(i), mac, planned1, 3)
	}
	s.send(10, rivals[0], planned1, 3) // the second is now the most silent one
	s.send(11, rivals[ways], planned1, 3)
	for i, mac := range rivals {
		want := Send
		if i == 1 {
			want = Flood
		}
		if got := s.send(12, planned1, mac, 0); got.Action != want {
			t.Errorf("station %d: action %d, want %d", i, got.Action, want)
		}
	}
}
