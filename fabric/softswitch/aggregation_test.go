package softswitch

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/transports/aggregation"
)

// aggregated are workers of a switch's job at the nodes of a rig.
type aggregated struct {
	*rig
	job     *plan.AggregationJob
	workers []*aggregation.Worker
	nodes   []int // of each worker
	v6      bool
	dscp    uint8
	ecn     wire.ECN
	seen    [4]int // results by ECN
}

func newAggregated(t testing.TB, text, sw string) *aggregated {
	r := newRig(t, text)
	a := &aggregated{rig: r, job: &r.plan.Switch(sw).Soft.Aggregation.Jobs[0]}
	for i, w := range a.job.Workers {
		one, err := aggregation.New(aggregation.Of(a.job, i, 1))
		if err != nil {
			t.Fatal(err)
		}
		a.workers = append(a.workers, one)
		for n := range r.plan.Nodes {
			if r.plan.Nodes[n].Name == w.Node {
				a.nodes = append(a.nodes, n)
			}
		}
	}
	r.engine.options.Deliver = a.deliver
	return a
}

// deliver gives a worker what came for it.
func (a *aggregated) deliver(nic int, one *packet.Packet) {
	h := &one.Headers
	if h.SrcPort == wire.PortAggregation && h.Verdict == wire.WellFormed {
		datagram := wire.UDP(one.Data[h.L4:h.End])
		if datagram.ChecksumValid(pseudo(h.Has(wire.IsIPv4), &h.Src, &h.Dst, len(datagram))) {
			// as a kernel would
			a.seen[h.ECN]++
			for w, node := range a.nodes {
				if node == nic && h.DstPort == a.portOf(w) && h.DSCP == a.dscp {
					a.workers[w].Handle(one.Due, datagram.Payload())
				}
			}
		}
	}
	a.engine.Pool().Put(one)
}

func (a *aggregated) portOf(worker int) uint16 { return 50_000 + uint16(worker) }

// frame is a message of a worker.
func (a *aggregated) message(into []byte, worker int, message []byte) []byte {
	w := &a.job.Workers[worker]
	nic := &a.plan.Nodes[a.nodes[worker]].NICs[0]
	at := a.job.Of(worker)
	src, dst := w.Addr4, at.Addr4
	header := wire.EthernetLen + wire.IPv4MinLen
	if a.v6 {
		src, dst, header = w.Addr6, at.Addr6, wire.EthernetLen+wire.IPv6Len
	}
	data := into[:header+wire.UDPLen+len(message)]
	fields := wire.EthernetFields{Dst: wire.MAC(nic.Neighbors[0].MAC), Src: wire.MAC(nic.MAC),
		EtherType: wire.EtherTypeIPv4}
	length := uint16(wire.UDPLen + len(message))
	if a.v6 {
		fields.EtherType = wire.EtherTypeIPv6
		wire.IPv6(data[wire.EthernetLen:]).Encode(&wire.IPv6Fields{
			PayloadLength: length,
			NextHeader:    wire.ProtocolUDP,
			HopLimit:      64,
			DSCP:          a.dscp,
			ECN:           a.ecn,
			Src:           src.As16(),
			Dst:           dst.As16(),
		})
	} else {
		wire.IPv4(data[wire.EthernetLen:]).Encode(&wire.IPv4Fields{
			TotalLength: length + wire.IPv4MinLen,
			TTL:         64,
			Protocol:    wire.ProtocolUDP,
			DSCP:        a.dscp,
			ECN:         a.ecn,
			Src:         src.As4(),
			Dst:         dst.As4(),
		})
	}
	wire.Ethernet(data).Encode(&fields)
	datagram := wire.UDP(data[header:])
	datagram.Encode(&wire.UDPFields{SrcPort: a.portOf(worker), DstPort: wire.PortAggregation, Length: length})
	copy(datagram[wire.UDPLen:], message)
	from, to := netip.Addr.As16(src), netip.Addr.As16(dst)
	datagram.FillChecksum(pseudo(!a.v6, &from, &to, int(length)))
	return data
}

// run goes on until all workers are done, and at most for a time.
func (a *aggregated) run(most time.Duration) {
	a.t.Helper()
	end := a.engine.Now().Add(most)
	for a.engine.Now() < end {
		next, done := clock.Never, true
		for w, one := range a.workers {
			for m := one.Poll(a.engine.Now()); m != nil; m = one.Poll(a.engine.Now()) {
				frame := a.engine.Pool().Get()
				frame.Data = a.message(frame.Data, w, m)
				a.engine.Receive(a.nodes[w], frame, a.engine.Now())
			}
			done = done && one.Done()
			next = min(next, one.Next())
		}
		if done {
			return
		}
		a.engine.Advance(min(next, a.engine.Advance(a.engine.Now())))
	}
	a.t.Fatalf("the workers are not done after %v: %+v", most, a.engine.Aggregation())
}

// sums sums integers up and checks every one at every worker.
func (a *aggregated) sums(length, salt int) {
	a.t.Helper()
	data := make([][]int32, len(a.workers))
	want := make([]int32, length)
	for w, one := range a.workers {
		data[w] = make([]int32, length)
		for i := range data[w] {
			data[w][i] = int32(w+1)*1_000_003 + int32(i*31+salt)
			want[i] += data[w][i]
		}
		one.Int32(a.engine.Now(), data[w])
	}
	a.run(time.Minute)
	for w, one := range a.workers {
		if one.Err() != nil {
			a.t.Fatalf("worker %d: %v", w, one.Err())
		}
		for i := range want {
			if data[w][i] != want[i] {
				a.t.Fatalf("worker %d, element %d: %d, want %d", w, i, data[w][i], want[i])
			}
		}
	}
}

const badLinks = "{loss: 1%, duplicate: 2%, reorder: 3%, reorder-by: 100us, corrupt: 1%, jitter: 2us}"

// TestAggregation: workers on links that lose, double, reorder and damage frames
// get exact sums, over IPv4 and IPv6, at a switch of their own and at a spine.
func TestAggregation(t *testing.T) {
	for _, c := range []struct{ name, text, sw string }{
		{"single", single(4, "  switch: {kind: soft, aggregation: {slots: 16, elements: 300}}\n  links: "+
			"{default: {rate: 1gbit, delay: 5us}, \"*--*\": "+badLinks+"}\n"), "leaf1"},
		{"spine", "name: t\nfabric:\n  topology: leaf-spine\n  params: {leaves: 2, spines: 2, " +
			"hosts-per-leaf: 3}\n  switch: {kind: soft, load-balance: spray}\n" +
			"  switches: {spine2: {aggregation: {slots: 8, elements: 100}}}\n  links: {default: {rate: " +
			"1gbit, delay: 5us}, \"*--*\": " + badLinks + "}\n", "spine2"},
		{"tree", "name: t\nfabric:\n  topology: leaf-spine\n  params: {leaves: 2, spines: 2, " +
			"hosts-per-leaf: 3}\n  switch: {kind: soft, load-balance: spray, aggregation: {slots: 8, " +
			"elements: 100}}\n" +
			"  links: {default: {rate: 1gbit, delay: 5us}, \"*--*\": " + badLinks + "}\n", "spine2"},
	} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, v6), func(t *testing.T) {
				a := newAggregated(t, c.text, c.sw)
				a.v6, a.dscp = v6, 8
				for salt := range 3 {
					a.sums(20_000, salt)
				}
				a.drain(time.Second)
				a.balance()
				var state AggregationState
				for _, s := range a.engine.Aggregation() {
					switch {
					case s.Switch == c.sw:
						state = s
					case s.Above == c.sw && (s.Partials == 0 || s.Reasked == 0 || s.Partials != s.Results ||
						s.Waiting > 0 || s.Over || len(s.Rejected) > 0):
						t.Errorf("%+v: want sums that went up, some again, and nothing rejected", s)
					}
				}
				t.Logf("%+v", state)
				if state.Again == 0 || state.Dropped["checksum"] == 0 || state.Waiting != 0 || state.Over ||
					len(state.Rejected) != 0 || state.Epoch != 1 {
					t.Errorf("%+v: want repeats, damage, and nothing rejected", state)
				}
			})
		}
	}
}

// TestAggregationIsTraffic: results wait in queues, and are marked if the messages that they answer
// may be marked.
func TestAggregationIsTraffic(t *testing.T) {
	a := newAggregated(t, single(4,
		"  switch: {kind: soft, ecn: {kmin: 1B, kmax: 1KB, pmax: 100%}, aggregation: {slots: 64, elements: "+
			"300}}\n"+
			"  links: {default: {rate: 1gbit, delay: 5us}, \"h0--leaf1\": {b-to-a: {rate: 100mbit}}}\n"),
		"leaf1")
	a.ecn = wire.ECT0
	a.sums(64*300*3, 0)
	marked := uint64(0)
	for _, p := range a.engine.Ports() {
		marked += p.Marks.Total()
	}
	if marked == 0 || a.seen[wire.CE] == 0 || a.seen[wire.ECT0] == 0 || a.seen[wire.NotECT] != 0 {
		t.Errorf("%d marked, results by ECN %v; want some with and without a mark", marked, a.seen)
	}
}

// TestAggregationElsewhere: an update to another switch's address, or to another
// port of this one's, is the router's business.
func TestAggregationElsewhere(t *testing.T) {
	a := newAggregated(t, single(2, "  switch: {kind: soft, aggregation: {slots: 1, elements: 1}}\n"),
		"leaf1")
	a.workers[0].Int32(0, []int32{1})
	message := a.workers[0].Poll(0)
	for i, change := range []func(frame []byte){
		func(f []byte) { wire.UDP(f[34:]).SetDstPort(9); wire.UDP(f[34:]).SetChecksum(0) }, // no such port
		func(f []byte) { f[0] ^= 2 },                                      // another station
		func(f []byte) { f[24] ^= 1 },                                     // a damaged IP header
		func(f []byte) { f[50] ^= 1 },                                     // a damaged message
		func(f []byte) { f[20] = 0x20; wire.IPv4(f[14:]).FillChecksum() }, // a fragment
	} {
		one := a.engine.Pool().Get()
		one.Data = a.message(one.Data, 0, message)
		change(one.Data)
		a.engine.Receive(a.nodes[0], one, clock.Time(i)*1_000_000)
	}
	a.drain(time.Second)
	a.balance()
	state := a.engine.Aggregation()[0]
	if state.Updates != 0 || state.Dropped["checksum"] != 1 || state.Dropped["fragment"] != 1 ||
		len(state.Dropped) != 2 || a.dropped(NotForUs) != 1 || a.dropped(Malformed) != 1 ||
		a.dropped(Aggregation) != 2 {
		t.Errorf("%+v; dropped %v", state, a.drops())
	}
}

// TestAggregationDoesNotAllocate in switches, with all workers' messages.
func TestAggregationDoesNotAllocate(t *testing.T) {
	a := newAggregated(t, "name: t\nfabric:\n  topology: leaf-spine\n  params: {leaves: 2, spines: 1, "+
		"hosts-per-leaf: 2}\n  switch: {kind: soft, aggregation: {slots: 2, elements: 100}}\n", "spine1")
	data := make([]int32, 100)
	run := func() {
		for _, one := range a.workers {
			one.Int32(a.engine.Now(), data)
		}
		a.run(time.Second)
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Fatalf("%v allocations for each sum", n)
	}
}
