package forward

import (
	"encoding/binary"
	"math/bits"
	"time"

	"railbed/fabric/softswitch/draw"
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
)

const (
	// ageing is how long the bridge keeps an address: IEEE 802.1Q-2018, table 8-6.
	ageing = 300 * time.Second
	// ways is the number of addresses in one set of the table. A newly learned address replaces the
	// address in its set that was silent for longest.
	ways = 4
	// minLearnt is the smallest size of the table. The table holds four times the plan's NICs, so
	// that there is also room for addresses that nodes create (containers, guests), but for no
	// more.
	minLearnt = 1024
	// Flooding may make this many copies for each ingress, in a second and at once. This limits the
	// work of a broadcast storm.
	copiesPerSecond = 1_000_000
	copiesAtOnce    = 200_000
)

// bridge forwards by Ethernet address, and learns where stations are (IEEE 802.1D). It runs no
// spanning tree: the plan has no loops of bridges.
//
// The plan's NICs are known from the start, at the ports that lead to them, as static entries.
// Nodes with permanent neighbours may never send first, and flooding the packets to them would load
// every link. Learned entries take precedence over planned ones.
type bridge struct {
	seed    uint64
	sets    [][ways]station
	mask    uint64
	planned map[uint64]int32 // port by address; it does not change
	down    []bool
	mtu     []int
	floods  []bucket // by ingress
}

// station is where an address was last seen.
type station struct {
	address uint64 // with bit 48 set; 0 is an empty entry
	seen    clock.Time
	port    int32
}

func newBridge(p *plan.Plan, sw *plan.Switch) *bridge {
	nics := 0
	for i := range p.Nodes {
		nics += len(p.Nodes[i].NICs)
	}
	size := max(minLearnt, 4*nics)
	sets := 1 << bits.Len(uint(size/ways-1))
	b := &bridge{
		seed: draw.Seed(p.Seed, "bridge", sw.Name), sets: make([][ways]station, sets), mask: uint64(sets - 1),
		down: make([]bool, len(sw.Ports)), planned: make(map[uint64]int32, nics),
	}
	for _, port := range sw.Ports {
		b.mtu = append(b.mtu, port.MTU)
		b.floods = append(b.floods, newBucket(copiesPerSecond, copiesAtOnce))
	}
	for port := range sw.Ports {
		for _, mac := range behind(p, sw, port) {
			b.planned[addressOf(mac[:])] = int32(port)
		}
	}
	return b
}

// behind returns the addresses of the NICs behind a port, through all bridges there.
func behind(p *plan.Plan, sw *plan.Switch, port int) []plan.MAC {
	ends := map[plan.End]plan.End{}
	for _, l := range p.Links {
		ends[l.A], ends[l.B] = l.B, l.A
	}
	var macs []plan.MAC
	seen := map[string]bool{sw.Name: true}
	for queue := []plan.End{ends[plan.End{Node: sw.Name, Port: sw.Ports[port].Name}]}; len(
		queue) > 0; queue = queue[1:] {
		at := queue[0]
		if node := p.Node(at.Node); node != nil {
			for _, nic := range node.NICs {
				if nic.Name == at.Port {
					macs = append(macs, nic.MAC)
				}
			}
			continue
		}
		next := p.Switch(at.Node)
		if next == nil || seen[at.Node] {
			continue
		}
		seen[at.Node] = true
		for _, other := range next.Ports {
			if other.Name != at.Port {
				queue = append(queue, ends[plan.End{Node: next.Name, Port: other.Name}])
			}
		}
	}
	return macs
}

// addressOf returns an Ethernet address as a number that is never 0.
func addressOf(mac []byte) uint64 {
	return 1<<48 | uint64(binary.BigEndian.Uint16(mac))<<32 | uint64(binary.BigEndian.Uint32(mac[2:]))
}

func (b *bridge) place(address uint64) uint64 { return draw.Mix(b.seed+address) & b.mask }

// SetPortUp implements Table. When a port goes down, the bridge forgets the addresses learned
// there: the station may appear elsewhere.
func (b *bridge) SetPortUp(port int, up bool) {
	b.down[port] = !up
	if up {
		return
	}
	for s := range b.sets {
		for w := range b.sets[s] {
			if one := &b.sets[s][w]; one.port == int32(port) {
				*one = station{}
			}
		}
	}
}

// Decide implements Table.
func (b *bridge) Decide(now clock.Time, one *packet.Packet, ingress int) Decision {
	if len(one.Data) < wire.EthernetLen {
		return Decision{Reason: Malformed}
	}
	src, dst := addressOf(one.Data[6:12]), addressOf(one.Data[0:6])
	if src>>40&1 != 0 || src == 1<<48 {
		return Decision{Reason: Malformed} // a group address or the null address cannot be a source
	}
	b.learn(now, src, ingress)
	to := wire.MAC(one.Data[0:6])
	switch {
	case to.IsLinkLocal():
		return Decision{Reason: Reserved}
	case to.IsMulticast():
		return b.flood(now, ingress)
	}
	port, known := b.find(now, dst)
	switch {
	case !known:
		return b.flood(now, ingress)
	case port == ingress:
		return Decision{Reason: Hairpin}
	case len(one.Data)-int(one.Headers.L3) > b.mtu[port]:
		return Decision{Reason: TooBig} // a bridge drops it silently
	}
	return Decision{Action: Send, Port: port}
}

// find returns the port at which an address was recently seen, or is planned.
func (b *bridge) find(now clock.Time, address uint64) (port int, known bool) {
	place := b.place(address)
	for w := range ways {
		if one := &b.sets[place][w]; one.address == address && now.Sub(one.seen) < ageing {
			return int(one.port), true
		}
	}
	planned, known := b.planned[address]
	return int(planned), known
}

// learn records where an address was seen.
func (b *bridge) learn(now clock.Time, address uint64, port int) {
	set := &b.sets[b.place(address)]
	oldest := 0
	for w := range ways {
		switch one := &set[w]; {
		case one.address == address:
			one.seen, one.port = now, int32(port)
			return
		case set[oldest].address != 0 && (one.address == 0 || one.seen < set[oldest].seen):
			oldest = w
		}
	}
	set[oldest] = station{address: address, seen: now, port: int32(port)}
}

// flood sends a packet to every other port that is up, within the ingress's limit.
func (b *bridge) flood(now clock.Time, ingress int) Decision {
	copies := 0
	for port, down := range b.down {
		if port != ingress && !down {
			copies++
		}
	}
	if !b.floods[ingress].take(now, copies) {
		return Decision{Reason: FloodLimit}
	}
	return Decision{Action: Flood}
}
