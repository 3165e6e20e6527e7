package forward

import (
	"encoding/binary"
	"time"

	"railbed/fabric/softswitch/draw"
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// hop is one next hop of a route.
type hop struct {
	port   int
	mac    wire.MAC
	weight uint32
}

// group is a set of equal-cost next hops.
type group struct {
	number uint32
	hops   []hop
	live   []hop    // Next hops whose port is up, in the order of hops.
	upTo   []uint64 // Cumulative sums of the weights of live hops.
	even   bool     // All live hops have the same weight.
	turn   int      // Round robin: index of the next hop in live.
	credit []int64  // Smooth weighted round robin, by index in live.
}

func newGroup(number uint32, hops []hop) *group {
	g := &group{
		number: number, hops: hops,
		live:   make([]hop, 0, len(hops)),
		upTo:   make([]uint64, 0, len(hops)),
		credit: make([]int64, 0, len(hops)),
	}
	g.update(nil)
	return g
}

// update determines which next hops are live.
func (g *group) update(down []bool) {
	g.live, g.upTo, g.credit, g.turn, g.even = g.live[:0], g.upTo[:0], g.credit[:0], 0, true
	sum := uint64(0)
	for _, h := range g.hops {
		if down != nil && down[h.port] {
			continue
		}
		sum += uint64(h.weight)
		g.live, g.upTo, g.credit = append(g.live, h), append(g.upTo, sum), append(g.credit, 0)
		g.even = g.even && h.weight == g.live[0].weight
	}
}

// share returns the index of the live next hop for a drawn number, by weight: hash threshold (RFC
// 2992), as in Linux.
func (g *group) share(drawn uint64) int {
	if g.even {
		return int(draw.Within(drawn, uint64(len(g.live))))
	}
	at := draw.Within(drawn, g.upTo[len(g.upTo)-1])
	i := 0
	for g.upTo[i] <= at {
		i++
	}
	return i
}

// next returns the index of the next live hop in round robin. With weights the turns are spread
// out. Each hop's credit grows by its weight; the hop with the largest credit is chosen and pays
// the sum of all weights (smooth weighted round robin, as in nginx).
func (g *group) next() int {
	if g.even {
		i := g.turn
		if g.turn++; g.turn == len(g.live) {
			g.turn = 0
		}
		return i
	}
	best := 0
	for i := range g.live {
		g.credit[i] += int64(g.live[i].weight)
		if g.credit[i] > g.credit[best] {
			best = i
		}
	}
	g.credit[best] -= int64(g.upTo[len(g.upTo)-1])
	return best
}

// flowlets is the size of the table of flowlets. Flows whose hashes share an entry also share their
// flowlets, as in LetFlow's tables (Vanini et al., Let It Flow, NSDI 2017).
const flowlets = 1 << 12

// flowlet is the port for a flow's packets until the flow pauses.
type flowlet struct {
	last  clock.Time
	group uint32 // the group's number plus 1, or 0
	port  int32
}

// balancer chooses among equal-cost next hops.
type balancer struct {
	kind      string
	hashSeed  uint64
	drawSeed  uint64
	flowLabel bool
	gap       time.Duration
	flowlets  []flowlet
	depths    Depths
}

// balances are the kinds that choose supports. Flow and Polarised both use the hash; they differ in
// its seed, which the plan sets.
var balances = []string{spec.Flow, spec.Polarised, spec.Flowlet, spec.Spray, spec.RoundRobin, spec.LeastQueue}

// choose returns the next hop for a packet. The group must have a live one.
func (b *balancer) choose(now clock.Time, g *group, one *packet.Packet) *hop {
	if len(g.live) == 1 {
		return &g.live[0]
	}
	switch b.kind {
	case spec.Spray:
		return &g.live[g.share(b.random(one))]
	case spec.RoundRobin:
		return &g.live[g.next()]
	case spec.LeastQueue:
		return &g.live[b.leastQueue(g, one)]
	case spec.Flowlet:
		return b.flowlet(now, g, one)
	}
	return &g.live[g.share(b.hash(one))]
}

// random returns a random number for the packet at this switch.
func (b *balancer) random(one *packet.Packet) uint64 {
	return draw.Nth(draw.Pair(b.drawSeed, one.Flow), one.Ordinal)
}

// leastQueue returns the hop with the fewest waiting bytes relative to its weight. Among equal hops
// it starts at a drawn index: otherwise the first hop would get every packet of an idle switch.
func (b *balancer) leastQueue(g *group, one *packet.Packet) int {
	n := len(g.live)
	best := int(draw.Within(b.random(one), uint64(n)))
	least := b.depths.Waiting(g.live[best].port)
	for i, left := best, n-1; left > 0; left-- {
		if i++; i == n {
			i = 0
		}
		waiting := b.depths.Waiting(g.live[i].port)
		if waiting*int64(g.live[best].weight) < least*int64(g.live[i].weight) {
			best, least = i, waiting
		}
	}
	return best
}

// flowlet returns the hop of the packet's flowlet; after a pause a flow draws a new one.
func (b *balancer) flowlet(now clock.Time, g *group, one *packet.Packet) *hop {
	place := &b.flowlets[b.hash(one)%flowlets]
	if place.group == g.number+1 && now.Sub(place.last) <= b.gap {
		for i := range g.live {
			if g.live[i].port == int(place.port) {
				place.last = now
				return &g.live[i]
			}
		}
	}
	chosen := &g.live[g.share(b.random(one))]
	*place = flowlet{last: now, group: g.number + 1, port: int32(chosen.port)}
	return chosen
}

// hash returns the hash of the packet's flow: addresses, protocol and ports. For fragments it only
// covers the addresses, because only the first fragment has ports.
func (b *balancer) hash(one *packet.Packet) uint64 {
	h := &one.Headers
	var x uint64
	if h.Has(wire.IsIPv4) {
		x = draw.Mix(b.hashSeed + (uint64(binary.BigEndian.Uint32(h.Src[12:]))<<32 |
			uint64(binary.BigEndian.Uint32(h.Dst[12:]))))
	} else {
		src, dst := keyOf(&h.Src), keyOf(&h.Dst)
		x = draw.Mix(b.hashSeed + src.high)
		x = draw.Mix(x + src.low)
		x = draw.Mix(x + dst.high)
		x = draw.Mix(x + dst.low)
		if b.flowLabel {
			x = draw.Mix(x + uint64(wire.IPv6(one.Data[h.L3:]).FlowLabel()))
		}
	}
	if h.Has(wire.Fragment) {
		return x
	}
	return draw.Mix(x + (uint64(h.Protocol)<<32 | uint64(h.SrcPort)<<16 | uint64(h.DstPort) | 1<<40))
}
