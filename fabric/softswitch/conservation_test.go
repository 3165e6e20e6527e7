package softswitch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"railbed/fabric/softswitch/queue"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
)

// randomFabric returns the file of a random fabric, with any features that can be on at once.
func randomFabric(r *rand.Rand) string {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	topology := pick(
		"single-switch\n  params: {hosts: 5}",
		"leaf-spine\n  params: {leaves: 3, spines: 2, hosts-per-leaf: 2}",
		"torus\n  params: {x: 3, y: 3}",
		"fat-tree\n  params: {k: 4}",
	)
	soft := []string{"kind: soft", "buffer: " + pick("100KB", "500KB", "2MB"),
		"alpha: " + pick("0.5", "1", "8")}
	if strings.HasPrefix(topology, "single") && r.IntN(2) == 0 {
		soft = append(soft, "forwarding: l2")
	} else {
		soft = append(soft, "load-balance: "+pick("flow", "polarised", "flowlet", "spray", "round-robin",
			"least-queue"))
	}
	if r.IntN(2) == 0 {
		soft = append(soft, pick("ecn: {kmin: 5KB, kmax: 40KB, pmax: 30%}",
			"ecn: {kind: ecn-sharp, target: 200us, persistent-target: 20us, interval: 200us}"))
	}
	if r.IntN(2) == 0 {
		soft = append(soft, "trim: {size: 128B, priorities: [1, 2]}")
	}
	switch r.IntN(4) { // lossless priorities want room
	case 0:
		soft[1] = "buffer: 8MB"
		soft = append(soft, "pfc: {priorities: [3]}")
	case 1:
		soft[1] = "buffer: 8MB"
		soft = append(soft, "gfc: {kind: "+pick("buffer", "time")+", priorities: [3]}")
	}
	if r.IntN(2) == 0 {
		soft = append(soft, "int: true")
	}
	if r.IntN(2) == 0 {
		soft = append(soft, "scheduler: {strict: [7, 6], weights: {0: 1, 1: 4, 3: 2}}")
	}
	link := []string{"rate: " + pick("100mbit", "1gbit", "10gbit"), "delay: " + pick("1us", "50us")}
	for _, fault := range []string{
		"loss: 1%", "duplicate: 2%", "corrupt: 2%", "jitter: 1us", "reorder: 2%", "drop-every: 50",
		"drop-list: [1, 2, 9]",
		"gilbert-elliott: {enter: 1%, leave: 20%, loss: 90%}", "flap: {every: 3ms, for: 500us}",
		"overhead: 24B", "bit-error-ratio: 1e-5",
	} {
		if r.IntN(4) == 0 {
			link = append(link, fault)
		}
	}
	return fmt.Sprintf("name: t\nseed: %d\nfabric:\n  topology: %s\n  switch: {%s}\n  links: {default: "+
		"{%s}}\nnodes: {default: {nic-queue: %s}}\n",
		1+r.IntN(1000), topology, strings.Join(soft, ", "), strings.Join(link, ", "), pick("20KB", "1MB"))
}

// TestConservation: over random fabrics, faults, traffic and changes, every
// packet that came into being is delivered, consumed, dropped for a reason, or
// still there, and no memory is lost.
func TestConservation(t *testing.T) {
	cases, seen := 60, Totals{}
	if testing.Short() {
		cases = 10
	}
	reasons := map[string]bool{}
	for seed := range cases {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(seed), 1))
			file := randomFabric(random)
			defer func() {
				if t.Failed() {
					t.Logf("the file:\n%s", file)
				}
			}()
			r := newRig(t, file)
			r.silent = true
			r.disturb(random)
			r.drain(10 * time.Second)
			r.balance()
			totals := r.engine.Totals()
			seen.Received += totals.Received
			seen.Made += totals.Made
			seen.Delivered += totals.Delivered
			seen.Consumed += totals.Consumed
			seen.Dropped += totals.Dropped
			for why := range r.drops() {
				reasons[why] = true
			}
			r.unforeseen()
		})
	}
	if seen.Made == 0 || seen.Delivered == 0 || seen.Consumed == 0 || seen.Dropped == 0 || len(reasons) < 8 {
		t.Errorf("%+v for %d reasons: not everything was tried", seen, len(reasons))
	}
	t.Logf("%+v; reasons %v", seen, reasons)
}

// unforeseen checks that ports did to packets only what Foresee reports as possible.
func (r *rig) unforeseen() {
	r.t.Helper()
	for i, state := range r.engine.Ports() {
		at := r.engine.ports[i]
		// Changes of this test take faults away, and add none.
		end, planned := at.end, at.link.plan.AToB
		if at.link.b == at {
			planned = at.link.plan.BToA
		}
		can := Foresee(r.plan, end, planned)
		for _, all := range []struct {
			what    string
			counted ByReason
			can     map[Reason]queue.Mask
		}{{"dropped", state.Drops, can.Drops}, {"marked", state.Marks, can.Marks},
			{"trimmed", state.Trims, can.Trims}} {
			foreseen := map[string]queue.Mask{}
			for why, at := range all.can {
				foreseen[why.String()] = at
			}
			for why, counts := range all.counted {
				for q, n := range counts {
					if n > 0 && !foreseen[why].Has(uint8(q)) {
						r.t.Errorf("%s %s %d packets for %s at priority %d, which was not foreseen",
							state.Port, all.what, n, why, q)
					}
				}
			}
		}
	}
}

// disturb sends traffic, good and bad, and changes links meanwhile.
func (r *rig) disturb(random *rand.Rand) {
	nodes := len(r.plan.Nodes)
	at := clock.Time(0)
	for n := range 3000 {
		at += clock.Time(random.IntN(4000))
		from := random.IntN(nodes)
		to := (from + 1 + random.IntN(nodes-1)) % nodes
		f := flow{
			from: from,
			to:   to,
			port: uint16(random.IntN(4)),
			dscp: uint8(random.IntN(64)),
			ecn:  wire.ECN(random.IntN(4)),
			ttl:  uint8(1 + random.IntN(64)),
		}
		one := r.engine.Pool().Get()
		one.Data = r.frame(one.Data, f, 64+random.IntN(1400))
		if random.IntN(10) == 0 {
			spoil(random, &one.Data)
		}
		r.engine.Receive(from, one, at)
		if random.IntN(20) == 0 {
			r.engine.Advance(at)
		}
		if random.IntN(300) == 0 {
			r.change(random)
		}
		if n%500 == 0 {
			r.balance()
		}
	}
	for _, l := range r.plan.Links {
		if err := r.engine.SetLinkState(l.Name, true); err != nil {
			r.t.Fatal(err)
		}
	}
}

// spoil changes bytes, cuts, or makes a frame something else altogether.
func spoil(random *rand.Rand, data *[]byte) {
	b := *data
	switch random.IntN(4) {
	case 0:
		*data = b[:random.IntN(len(b))]
	case 1:
		for range 1 + random.IntN(8) {
			b[random.IntN(len(b))] = byte(random.Uint32())
		}
	case 2: // a forged pause
		*data = b[:wire.EncodePFCFrame(b[:64], wire.MAC{2},
			&wire.PFCFields{Enable: 0xff, Quanta: [8]uint16{9, 9, 9, 9, 9, 9, 9, 9}})]
	case 3:
		for i := range b {
			b[i] = byte(random.Uint32())
		}
	}
}

// change takes a link down or up, or gives it other settings.
func (r *rig) change(random *rand.Rand) {
	l := &r.plan.Links[random.IntN(len(r.plan.Links))]
	var err error
	if random.IntN(2) == 0 {
		err = r.engine.SetLinkState(l.Name, random.IntN(2) == 0)
	} else {
		other := plan.Direction{Rate: l.AToB.Rate / 2, Delay: l.AToB.Delay * 2, Queue: l.AToB.Queue}
		err = r.engine.SetLink(l.Name, other, l.BToA)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}
