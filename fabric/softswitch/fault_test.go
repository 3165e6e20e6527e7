package softswitch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

// faulty is a rig of two nodes at a switch with faults at the port to node 1. It sends a datagram of 500
// bytes each millisecond from node 0 to node 1, from source ports 4000 and 4001 in turn.
func faulty(t *testing.T, count int, observers []Observer, faults ...string) *rig {
	t.Helper()
	r := newRig(t, single(2, "  switch: {kind: soft}\n  links: {default: {rate: 1gbit, delay: 5us}}\n"),
		observers...)
	link, _, _ := r.towards(1)
	end := link.A
	if end.Node == r.plan.Nodes[1].Name {
		end = link.B
	}
	for i, text := range faults {
		f, err := spec.ParseFault("fault", fmt.Sprintf("{name: f%d, where: all, %s}", i+1, text))
		if err == nil {
			err = r.engine.AddFault(f, []plan.End{end})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for port := range r.engine.PortCount() {
		r.engine.Observe(port, len(observers) > 0)
	}
	for i := range count {
		at := clock.Time(i+1) * clock.Time(time.Millisecond)
		r.engine.Advance(at)
		r.send(at, flow{from: 0, to: 1, port: uint16(i % 2), ecn: wire.ECT0}, 500)
	}
	r.drain(time.Second)
	r.balance()
	return r
}

// ids are the numbers of the datagrams that arrived, in their order.
func ids(r *rig) (all []int) {
	for _, a := range r.got {
		all = append(all, int(a.id))
	}
	return all
}

// TestFaultsPickPackets: a fault counts the packets that match, at its port, and hits those that it picks.
func TestFaultsPickPackets(t *testing.T) {
	for _, test := range []struct {
		fault        string
		arrive       []int
		matched, hit uint64
	}{
		{"drop: {}", nil, 8, 8},
		{"drop: {nth: [2, 3]}", []int{1, 4, 5, 6, 7, 8}, 8, 2},
		{"drop: {every: 3}", []int{1, 2, 4, 5, 7, 8}, 8, 2},
		{"match: udp.srcport == 4001, drop: {nth: [1, 4]}", []int{1, 3, 4, 5, 6, 7}, 4, 2},
		{"match: tcp, drop: {}", []int{1, 2, 3, 4, 5, 6, 7, 8}, 0, 0},
		{"match: ip.id > 6, drop: {}, for: 7500us", []int{1, 2, 3, 4, 5, 6, 8}, 1, 1},
		{"delay: {by: 2500us, nth: [2]}", []int{1, 3, 4, 2, 5, 6, 7, 8}, 8, 1},
		{"duplicate: {nth: [8]}", []int{1, 2, 3, 4, 5, 6, 7, 8, 8}, 8, 1},
		{"replay: {after: 2500us, nth: [2]}", []int{1, 2, 3, 4, 2, 5, 6, 7, 8}, 8, 1},
		{"replay: {after: 500ms, every: 4}", []int{1, 2, 3, 4, 5, 6, 7, 8, 4, 8}, 8, 2},
		{"reorder: {by: 2, nth: [2]}", []int{1, 3, 4, 2, 5, 6, 7, 8}, 8, 1},
		{"reorder: {by: 5, within: 2500us, nth: [2]}", []int{1, 3, 4, 2, 5, 6, 7, 8}, 8, 1},
		{"reorder: {by: 1, nth: [2, 8]}", []int{1, 3, 2, 4, 5, 6, 7, 8}, 8, 2},
		// A datagram takes 4 ms at this rate, and two can wait in part.
		{"limit: {rate: 1mbit, queue: 1200B}", []int{1, 2, 4, 8}, 8, 8},
	} {
		t.Run(test.fault, func(t *testing.T) {
			r := faulty(t, 8, nil, test.fault)
			if got := ids(r); !slices.Equal(got, test.arrive) {
				t.Errorf("datagrams %v arrived, want %v", got, test.arrive)
			}
			f := r.engine.Faults()[0]
			if f.Matched != test.matched || f.Hit != test.hit || len(f.Places) != int(min(f.Matched, 1)) {
				t.Errorf("%+v", f)
			}
			dropped := 8 - min(r.count, 8)
			if of := r.engine.Totals().Dropped; of != dropped {
				t.Errorf("%d packets were dropped, want %d", of, dropped)
			}
		})
	}
}

// content keeps the bytes of the frames that arrive at a port of a node.
type content struct {
	frames [][]byte
	harmed []string
}

func (c *content) Observe(o *Observation) {
	switch {
	case o.Kind == Harmed || o.Kind == Lost:
		c.harmed = append(c.harmed, fmt.Sprintf("%d %s by %d", o.Verdict, o.Reason, o.Fault))
	case o.Kind == Arrived && o.Packet.Headers.TTL == 63:
		c.frames = append(c.frames, slices.Clone(o.Packet.Data))
	}
}

// TestFaultsChangeBytes compares the second frame, which faults changed, with the others.
func TestFaultsChangeBytes(t *testing.T) {
	for _, test := range []struct {
		fault string
		right func(changed, whole []byte) bool
		bits  int
	}{
		{"corrupt: {at: 100B, bits: 129, nth: [2]}", func(changed, whole []byte) bool {
			whole[100] ^= 0x81
			return slices.Equal(changed, whole)
		}, 2},
		{"corrupt: {nth: [2]}", func(changed, whole []byte) bool {
			return len(changed) == len(whole) && slices.Equal(changed[:14], whole[:14])
		}, 1},
		{"truncate: {to: 64B, nth: [2]}", func(changed, whole []byte) bool {
			return slices.Equal(changed, whole[:64])
		}, 0},
		{"trim: {size: 80B, nth: [2]}", func(changed, whole []byte) bool {
			whole = whole[:80]
			ip := wire.IPv4(whole[14:])
			ip.RewriteTotalLength(66)
			ip.RewriteDSCP(59)
			wire.UDP(whole[34:]).SetLength(46)
			return slices.Equal(changed, whole)
		}, 0},
		{"rewrite: {field: ip.id, to: 0x1234, nth: [2]}", func(changed, whole []byte) bool {
			copy(whole[18:], []byte{0x12, 0x34})
			wire.IPv4(whole[14:34]).FillChecksum()
			return slices.Equal(changed, whole)
		}, 0},
		{"rewrite: {field: udp.dstport, to: 5001, checksums: keep, nth: [2]}",
			func(changed, whole []byte) bool { return changed[37] == whole[37]^1 }, 1},
		{"mark: {nth: [2]}", func(changed, whole []byte) bool {
			wire.IPv4(whole[14:]).RewriteECN(wire.CE)
			return slices.Equal(changed, whole)
		}, 0},
	} {
		t.Run(test.fault, func(t *testing.T) {
			var seen, whole content
			faulty(t, 2, []Observer{&whole})
			r := faulty(t, 2, []Observer{&seen}, test.fault)
			if len(seen.frames) != 2 || len(whole.frames) != 2 ||
				!slices.Equal(seen.frames[0], whole.frames[0]) {
				t.Fatalf("%d frames, want 2 with the first unchanged", len(seen.frames))
			}
			flipped := 0
			for i := range min(len(seen.frames[1]), len(whole.frames[1])) {
				for x := seen.frames[1][i] ^ whole.frames[1][i]; x != 0; x &= x - 1 {
					flipped++
				}
			}
			if test.bits > 0 && flipped != test.bits || !test.right(seen.frames[1], whole.frames[1]) {
				t.Errorf("%d bits differ: % x", flipped, seen.frames[1])
			}
			if f := r.engine.Faults()[0]; f.Hit != 1 || len(seen.harmed) != 1 ||
				!strings.HasSuffix(seen.harmed[0], "fault by 1") {
				t.Errorf("%+v, %v", f, seen.harmed)
			}
		})
	}
}

// TestFaultsCompose: faults at a port act in their order. The second counts what the first left over.
func TestFaultsCompose(t *testing.T) {
	var seen content
	r := faulty(t, 8, []Observer{&seen}, "drop: {every: 2}", "drop: {nth: [3]}")
	if got := ids(r); !slices.Equal(got, []int{1, 3, 7}) {
		t.Errorf("datagrams %v arrived", got)
	}
	all := r.engine.Faults()
	if len(all) != 2 || all[0].Hit != 4 || all[1].Matched != 4 || all[1].Hit != 1 || len(seen.harmed) != 5 {
		t.Errorf("%+v, %v", all, seen.harmed)
	}
	if _, err := r.engine.ClearFaults("f1", "f3"); err == nil || len(r.engine.Faults()) != 2 {
		t.Errorf("an unknown name is cleared: %v", err)
	}
	ended, err := r.engine.ClearFaults("f1")
	if err != nil || len(ended) != 1 || ended[0].Hit != 4 || len(r.engine.Faults()) != 1 {
		t.Errorf("%+v, %v", ended, err)
	}
	r.got = nil
	r.send(r.engine.Now(), flow{from: 0, to: 1}, 500)
	r.send(r.engine.Now(), flow{from: 0, to: 1}, 500)
	r.drain(time.Second)
	if len(r.got) != 2 {
		t.Errorf("%d datagrams arrived after the fault was cleared, want 2", len(r.got))
	}
	if ended, err := r.engine.ClearFaults(); err != nil || len(ended) != 1 {
		t.Errorf("%+v, %v", ended, err)
	}
}

// TestFaultsOfCopies: copies of several faults add up, and a delay applies to all of them.
func TestFaultsOfCopies(t *testing.T) {
	r := faulty(t, 4, nil, "duplicate: {nth: [2]}", "delay: {by: 2500us, nth: [2]}", "duplicate: {nth: [2]}")
	if got := ids(r); !slices.Equal(got, []int{1, 3, 4, 2, 2, 2}) {
		t.Errorf("datagrams %v arrived", got)
	}
}

// TestReplay: the copy arrives the stated time after the packet, with the bytes that the packet then had.
// A link that goes down meanwhile loses the copy.
func TestReplay(t *testing.T) {
	var seen content
	r := faulty(t, 3, []Observer{&seen}, "replay: {after: 50ms, nth: [2]}", "mark: {nth: [2]}")
	if got := ids(r); !slices.Equal(got, []int{1, 2, 3, 2}) {
		t.Fatalf("datagrams %v arrived", got)
	}
	if took := r.got[3].at.Sub(r.got[1].at); took != 50*time.Millisecond {
		t.Errorf("the copy arrives %s after the packet, want 50ms", took)
	}
	if len(seen.frames) != 4 || !slices.Equal(seen.frames[1], seen.frames[3]) || r.got[3].ecn != wire.CE {
		t.Errorf("frames % x", seen.frames)
	}
	want := fmt.Sprintf("%d fault by 1", Duplicated)
	if len(seen.harmed) != 2 || seen.harmed[0] != want {
		t.Errorf("records %q, want %q first", seen.harmed, want)
	}
	copies := uint64(0)
	for _, p := range r.engine.Ports() {
		copies += p.Counters.Duplicated
	}
	if copies != 1 {
		t.Errorf("ports count %d copies, want 1", copies)
	}

	r.got = nil
	if err := r.engine.AddFault(spec.Fault{Name: "later", Replay: &spec.FaultReplay{After: 50e6}},
		[]plan.End{r.engine.faults.inForce[0].places[0].port.end}); err != nil {
		t.Fatal(err)
	}
	r.send(r.engine.Now(), flow{from: 0, to: 1}, 500)
	r.run(20 * time.Millisecond)
	link, _, _ := r.towards(1)
	for _, up := range []bool{false, true} {
		if err := r.engine.SetLinkState(link.Name, up); err != nil {
			t.Fatal(err)
		}
	}
	r.drain(time.Second)
	r.balance()
	if len(r.got) != 1 || r.dropped(LinkDown) != 1 {
		t.Errorf("%d frames arrived, %v dropped; want 1 and the copy", len(r.got), r.drops())
	}
}

// TestFaultsShare: the packets that a share hits do not depend on the packets of other flows.
func TestFaultsShare(t *testing.T) {
	const count = 2000
	lost := func() map[uint16]bool {
		r := faulty(t, count, nil, "match: udp.srcport == 4000, drop: {share: 25%}")
		all := map[uint16]bool{}
		for i := uint16(1); i <= count; i++ {
			all[i] = true
		}
		for _, a := range r.got {
			delete(all, a.id)
		}
		return all
	}
	first, again := lost(), lost()
	if len(first) < count/2/5 || len(first) > count/2*3/10 {
		t.Errorf("%d of %d datagrams are lost, want about a quarter", len(first), count/2)
	}
	for id := range first {
		if !again[id] || id%2 == 0 {
			t.Errorf("datagram %d is lost in one run", id)
		}
	}
}

// TestFaultsOfFlows: a flow is hit with all its packets or not at all, and at all ports alike.
func TestFaultsOfFlows(t *testing.T) {
	r := newRig(t, single(3, "  switch: {kind: soft}\n"))
	f, err := spec.ParseFault("fault", "{name: grey, where: s1, drop: {flows: 40%}}")
	if err == nil {
		f.Where = r.plan.Switches[0].Name
		err = r.engine.AddFault(f, r.plan.FaultPlaces(&f))
	}
	if err != nil {
		t.Fatal(err)
	}
	const flows, each = 100, 5
	for range each {
		for i := range flows {
			r.send(r.engine.Now(), flow{from: 0, to: 1 + i%2, port: uint16(i)}, 100)
		}
		r.drain(time.Second)
	}
	got := map[int]int{} // by flow
	for _, a := range r.got {
		got[int(a.id-1)%flows]++
	}
	for of, count := range got {
		if count != each {
			t.Errorf("%d of %d packets of flow %d arrived", count, each, of)
		}
	}
	if len(got) < flows*45/100 || len(got) > flows*75/100 {
		t.Errorf("%d of %d flows arrived, want about 60", len(got), flows)
	}
}

// TestFaultsOfOtherPorts: a copy goes to another NIC, a packet leaves by another port, and the receiver
// sends a pause.
func TestFaultsOfOtherPorts(t *testing.T) {
	for _, test := range []struct {
		fault   string
		nics    []int // by arrival
		paused  uint64
		hit     uint64
		another string // target that does not exist
	}{
		{"mirror: {to: h2, nth: [2]}", []int{1, 2, 1, 1}, 0, 1, "h9"},
		{"misroute: {to: PORT, nth: [2, 3]}", []int{1, 2, 2}, 0, 2, "h0:eth0"},
		{"pause: {priorities: [0], quanta: 65535, nth: [2]}", []int{1, 1}, 1, 1, ""},
	} {
		t.Run(test.fault, func(t *testing.T) {
			r := newRig(t, single(3, "  switch: {kind: soft}\n  links: {default: {rate: 10mbit}}\n"))
			ends := make([]plan.End, 3) // of the switch, by node
			for i := range ends {
				l, _, _ := r.towards(i)
				if ends[i] = l.A; l.A.Node == r.plan.Nodes[i].Name {
					ends[i] = l.B
				}
			}
			text := strings.ReplaceAll(test.fault, "PORT", ends[2].Node+":"+ends[2].Port)
			add := func(text string) error {
				where := ends[1].Node + ":" + ends[1].Port
				f, err := spec.ParseFault("fault", "{name: f, where: "+where+", "+text+"}")
				if err == nil {
					err = r.engine.AddFault(f, ends[1:2])
				}
				return err
			}
			to := strings.ReplaceAll(strings.ReplaceAll(test.fault, "PORT", test.another), "to: h2", "to: h9")
			if err := add(to); test.another != "" && (err == nil || len(r.engine.Faults()) > 0) {
				t.Errorf("a fault with a wrong target is added: %v", err)
			}
			if test.another != "" {
				if err := add(text); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				r.send(r.engine.Now(), flow{from: 0, to: 1}, 500)
				r.engine.Advance(r.engine.Now().Add(2 * time.Millisecond))
			}
			var nics []int
			for _, a := range r.got {
				nics = append(nics, a.nic)
			}
			if !slices.Equal(nics, test.nics) {
				t.Errorf("frames arrived at NICs %v, want %v", nics, test.nics)
			}
			if f := r.engine.Faults()[0]; f.Matched != 3-test.paused || f.Hit != test.hit {
				t.Errorf("%+v", f)
			}
			one := r.engine.byPort[ends[1]]
			if one.count.PausesReceived[0] != test.paused {
				t.Errorf("the port received %d pauses, want %d", one.count.PausesReceived[0], test.paused)
			}
			r.drain(5 * time.Second)
			r.balance()
		})
	}
}

// TestFaultsBeginAgain: a fault that is over begins again with the same settings. It counts
// packets from 1 again, and its state has the sums.
func TestFaultsBeginAgain(t *testing.T) {
	r := faulty(t, 4, nil, "drop: {nth: [1]}, for: 2500us")
	f := r.engine.Faults()[0]
	if f.Matched == 0 || f.Hit != 1 || !f.Over {
		t.Fatalf("%+v", f)
	}
	places := r.engine.plan.FaultPlaces(&f.Fault)
	other := f.Fault
	other.Drop = &spec.Pick{}
	if err := r.engine.AddFault(other, places); err == nil {
		t.Error("another fault has the name of one that is over")
	}
	if err := r.engine.AddFault(f.Fault, places); err != nil {
		t.Fatal(err)
	}
	if err := r.engine.AddFault(f.Fault, places); err == nil {
		t.Error("a fault that is in force begins again")
	}
	again := r.engine.faults.inForce[0]
	if again.places[0].matched != 0 || again.state(r.engine.now).Hit != 1 ||
		again.state(r.engine.now).Matched != f.Matched || again.state(r.engine.now).Over {
		t.Errorf("%+v", again.state(r.engine.now))
	}
}

// TestFaultsReboot: a switch that reboots loses what waits and what it has learned, and forwards again after
// its time.
func TestFaultsReboot(t *testing.T) {
	r := newRig(t, single(2, "  switch: {kind: soft}\n  links: {default: {rate: 10mbit}}\n"))
	f, err := spec.ParseFault("fault", "{name: f, where: s, reboot: true, for: 10ms}")
	if err != nil {
		t.Fatal(err)
	}
	f.Where = r.plan.Switches[0].Name
	send := func(count int) {
		for range count {
			r.send(r.engine.Now(), flow{from: 0, to: 1}, 500)
		}
	}
	send(10) // they take 4 ms on each link
	r.engine.Advance(r.engine.Now().Add(2 * time.Millisecond))
	before := len(r.got)
	if err := r.engine.AddFault(f, r.plan.FaultPlaces(&f)); err != nil {
		t.Fatal(err)
	}
	r.engine.Advance(r.engine.Now().Add(9 * time.Millisecond))
	send(1)
	r.engine.Advance(r.engine.Now().Add(999 * time.Microsecond))
	if len(r.got) != before || before == 0 {
		t.Errorf("%d frames arrived before the reboot and %d until its end", before, len(r.got))
	}
	r.engine.Advance(r.engine.Now().Add(time.Microsecond))
	send(1)
	r.drain(time.Second)
	r.balance()
	if len(r.got) != before+1 || r.dropped(LinkDown) != uint64(11-before) {
		t.Errorf("%d frames arrived, %v dropped", len(r.got), r.drops())
	}
	if s := r.engine.Faults()[0]; s.Hit != 2 || !s.Over {
		t.Errorf("%+v", s)
	}
}

// TestLinkStateDuringReboot: a request to take a link up waits for the end of a reboot, and a link that was
// taken down meanwhile stays down.
func TestLinkStateDuringReboot(t *testing.T) {
	r := newRig(t, single(2, "  switch: {kind: soft}\n  links: {default: {rate: 10mbit}}\n"))
	f, err := spec.ParseFault("fault", "{name: f, where: "+r.plan.Switches[0].Name+
		", reboot: true, for: 10ms}")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.engine.AddFault(f, r.plan.FaultPlaces(&f)); err != nil {
		t.Fatal(err)
	}
	set := func(link int, up bool) {
		if err := r.engine.SetLinkState(r.plan.Links[link].Name, up); err != nil {
			t.Fatal(err)
		}
	}
	up := func() (states []bool) {
		for _, l := range r.plan.Links {
			states = append(states, r.engine.byLink[l.Name].up)
		}
		return states
	}
	set(0, true)
	set(1, false)
	if got := up(); got[0] || got[1] {
		t.Errorf("during the reboot the links are up: %v", got)
	}
	r.engine.Advance(r.engine.Now().Add(10 * time.Millisecond))
	if got := up(); !got[0] || got[1] {
		t.Errorf("after the reboot the links are up: %v, want only the first", got)
	}
	set(1, true)
	if got := up(); !got[1] {
		t.Errorf("the second link does not come up")
	}
}

// TestFaultsAreRefused says what is wrong with a fault, and adds none.
func TestFaultsAreRefused(t *testing.T) {
	r := faulty(t, 0, nil, "drop: {}")
	for _, test := range []struct {
		fault spec.Fault
		at    plan.End
		want  string
	}{
		{spec.Fault{Name: "f1"}, plan.End{}, "in force"},
		{spec.Fault{Name: "f2", Match: "railbed.depth > 3"}, plan.End{}, "column 1: railbed.depth"},
		{spec.Fault{Name: "f2", Drop: &spec.Pick{}}, plan.End{Node: "h9", Port: "p0"}, "h9:p0"},
		{spec.Fault{Name: "f2", Rewrite: &spec.FaultRewrite{Field: "ip.tll", To: "1"}}, plan.End{}, "ip.ttl"},
		{spec.Fault{Name: "f2", Rewrite: &spec.FaultRewrite{Field: "ip.ttl", To: "256"}}, plan.End{},
			"at most 255"},
	} {
		if err := r.engine.AddFault(test.fault, []plan.End{test.at}); err == nil ||
			!strings.Contains(err.Error(), test.want) || len(r.engine.Faults()) != 1 {
			t.Errorf("%v: %v, want %q", test.fault, err, test.want)
		}
	}
}

// BenchmarkFaultMatch has a match that looks into TCP, at a port of a switch.
func BenchmarkFaultMatch(b *testing.B) {
	r := newRig(b, single(2, "  switch: {kind: soft}\n"))
	if err := r.engine.AddFault(spec.Fault{Name: "f", Match: "udp.srcport == 4001 && ip.id > 7",
		Drop: &spec.Pick{}}, nil); err != nil {
		b.Fatal(err)
	}
	one := &packet.Packet{Data: r.frame(make([]byte, 1500), flow{from: 0, to: 1, port: 1}, 1500)}
	one.Parse()
	for b.Loop() {
		r.engine.faults.matches(r.engine.faults.inForce[0].filter, one)
	}
}
