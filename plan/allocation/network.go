package allocation

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan"
)

// network holds the directions of links that the pairs of a pattern use.
type network struct {
	plan     *plan.Plan
	o        Options
	tables   map[string][]plan.Route // of switches, sorted by prefix length, longest first
	index    map[string]int          // of directions, by name
	names    []string                // "leaf0:p1 to h0:eth0"
	capacity []float64               // bit/s
	delay    []time.Duration
	rate     []units.Rate
	overhead []units.Bytes   // of a frame
	full     []time.Duration // delay plus transmission time of a full packet
	small    []time.Duration // delay plus transmission time of an acknowledgement
	uses     map[Pair][]use
	weights  map[Pair]float64 // nil means a weight of 1 for each pair
}

func newNetwork(p *plan.Plan, pairs []Pair, o Options) (*network, error) {
	n := &network{plan: p, o: o, tables: make(map[string][]plan.Route), index: make(map[string]int),
		uses: make(map[Pair][]use)}
	for i := range p.Switches {
		s := &p.Switches[i]
		var table []plan.Route
		for _, port := range s.Ports {
			for _, addr := range port.Addrs {
				table = append(table, plan.Route{Dst: addr.Masked(),
					NextHops: []plan.NextHop{{Dev: port.Name}}})
			}
		}
		for r := range s.Routes.All() {
			if r.Table == 0 {
				table = append(table, r)
			}
		}
		slices.SortStableFunc(table, func(a, b plan.Route) int { return b.Dst.Bits() - a.Dst.Bits() })
		n.tables[s.Name] = table
	}
	for _, pair := range pairs {
		uses, err := n.walk(p.Ranks[pair.From], p.Ranks[pair.To])
		if err != nil {
			return nil, fmt.Errorf("rank %d to rank %d: %w", pair.From, pair.To, err)
		}
		n.uses[pair] = uses
	}
	return n, nil
}

// sender and receiver identify the NIC of a rank by the first rank on it.
func (n *network) sender(rank int) int { return n.receiver(rank) }

func (n *network) receiver(rank int) int {
	at := n.plan.Ranks[rank]
	return slices.IndexFunc(n.plan.Ranks, func(r plan.Rank) bool {
		return r.Node == at.Node && r.NIC == at.NIC
	})
}

// port returns an interface of a node or switch, by name.
func (n *network) port(device, name string) *plan.Interface {
	var ports []plan.Interface
	if node := n.plan.Node(device); node != nil {
		ports = node.NICs
	} else if s := n.plan.Switch(device); s != nil {
		ports = s.Ports
	}
	if i := slices.IndexFunc(ports, func(p plan.Interface) bool { return p.Name == name }); i >= 0 {
		return &ports[i]
	}
	return nil
}

// direction returns the index of the direction of a link in which a port sends.
func (n *network) direction(device, port string) (int, error) {
	key := device + ":" + port
	if at, known := n.index[key]; known {
		return at, nil
	}
	d := n.plan.Sends(device, port)
	iface := n.port(device, port)
	if d == nil || iface == nil || d.Rate == 0 {
		return 0, fmt.Errorf("%s has no link with a rate", key)
	}
	at := len(n.names)
	n.index[key] = at
	n.names = append(n.names, key+" to "+iface.Peer)
	n.capacity = append(n.capacity, float64(d.Rate)*(1-n.o.Headroom.Float()))
	delay := time.Duration(d.Delay)
	n.delay, n.rate, n.overhead = append(n.delay, delay), append(n.rate, d.Rate),
		append(n.overhead, d.Overhead)
	n.full = append(n.full, delay+d.Rate.SerialisationTime(
		units.Bytes(iface.MTU+wire.EthernetLen)+d.Overhead))
	n.small = append(n.small, delay+d.Rate.SerialisationTime(ackFrame+d.Overhead))
	return at, nil
}

// walk returns the links that packets of one rank to another take. At each hop a switch divides the
// arriving traffic among its next hops.
func (n *network) walk(from, to plan.Rank) ([]use, error) {
	if from.Node == to.Node {
		return nil, nil
	}
	dst := to.Addr4
	if n.o.Family == 6 {
		dst = to.Addr6
	}
	shares := make(map[int]float64)
	// at is the share of the traffic at each device.
	at := map[string]float64{}
	cross := func(device, port string, share float64, next map[string]float64) error {
		l, err := n.direction(device, port)
		if err != nil {
			return err
		}
		shares[l] += share
		peer, _, _ := strings.Cut(n.port(device, port).Peer, ":")
		next[peer] += share
		return nil
	}
	if err := cross(from.Node, from.NIC, 1, at); err != nil {
		return nil, err
	}
	for hops := 0; len(at) > 0; hops++ {
		if hops > len(n.plan.Switches) {
			return nil, fmt.Errorf("packets for %v are routed in a loop", dst)
		}
		next := map[string]float64{}
		for _, device := range slices.Sorted(maps.Keys(at)) { // for the same sums of shares each time
			share := at[device]
			if device == to.Node {
				continue
			}
			hops, err := n.nextHops(device, to, dst)
			if err != nil {
				return nil, err
			}
			total := 0
			for _, h := range hops {
				total += max(h.Weight, 1)
			}
			for _, h := range hops {
				if err := cross(device, h.Dev, share*float64(max(h.Weight, 1))/float64(total),
					next); err != nil {
					return nil, err
				}
			}
		}
		at = next
	}
	var uses []use
	for l, share := range shares {
		uses = append(uses, use{l, share})
	}
	slices.SortFunc(uses, func(a, b use) int { return a.Link - b.Link })
	return uses, nil
}

// nextHops returns the next hops of a switch for packets to a rank.
func (n *network) nextHops(device string, to plan.Rank, dst netip.Addr) ([]plan.NextHop, error) {
	s := n.plan.Switch(device)
	if s == nil {
		return nil, fmt.Errorf("%s is no switch, so it cannot forward packets to %v", device, dst)
	}
	if s.Bridged() {
		if port := n.towards(s, to); port != "" {
			return []plan.NextHop{{Dev: port}}, nil
		}
		return nil, fmt.Errorf("no path from %s to %s", device, to.Node)
	}
	for _, r := range n.tables[device] {
		if r.Dst.Contains(dst) {
			return r.NextHops, nil
		}
	}
	return nil, fmt.Errorf("%s has no route to %v", device, dst)
}

// ackFrame is the length of a frame with an acknowledgement of eight packets.
const ackFrame = wire.EthernetLen + wire.IPv4MinLen + wire.UDPLen + wire.RDAckLen + 8 + 8*4

// RoundTrip returns the longest time for a full packet and its acknowledgement between two ranks of
// a pattern without other traffic. It is the sum of the delays of links and the transmission times,
// as the mean over the possible paths. It is 0 if the pattern uses no link.
func RoundTrip(p *plan.Plan, o Options) (time.Duration, error) {
	pairs, err := o.pairs(len(p.Ranks))
	if err != nil {
		return 0, fmt.Errorf("compute %w", err)
	}
	all := slices.Clone(pairs)
	for _, pair := range pairs {
		all = append(all, Pair{pair.To, pair.From})
	}
	n, err := newNetwork(p, all, o)
	if err != nil {
		return 0, fmt.Errorf("compute round trip: %w", err)
	}
	var longest float64
	for _, pair := range pairs {
		var trip float64
		for _, u := range n.uses[pair] {
			trip += u.Share * float64(n.full[u.Link])
		}
		for _, u := range n.uses[Pair{pair.To, pair.From}] {
			trip += u.Share * float64(n.small[u.Link])
		}
		longest = max(longest, trip)
	}
	return time.Duration(longest), nil
}

// headers is the approximate length of the headers of a packet of any transport.
const headers = 80

// Alone returns a function that computes the time of a message from one rank to another without
// other traffic, its acknowledgement included. The time is the sum of the first packet's path, the
// other packets on the slowest link, and the path back. Packets have the MTU of the sender's NIC.
func Alone(p *plan.Plan, o Options) (func(from, to int, size units.Bytes) time.Duration, error) {
	pairs, err := Pairs(AllToAll, len(p.Ranks))
	if err != nil {
		return nil, err
	}
	n, err := newNetwork(p, pairs, o)
	if err != nil {
		return nil, fmt.Errorf("compute times: %w", err)
	}
	return func(from, to int, size units.Bytes) time.Duration {
		nic := n.port(p.Ranks[from].Node, p.Ranks[from].NIC)
		each := max(1, units.Bytes(nic.MTU)-min(headers, units.Bytes(nic.MTU)))
		packets := max(1, (size+each-1)/each)
		var way, slowest float64
		for _, u := range n.uses[Pair{from, to}] {
			frame := func(payload units.Bytes) float64 {
				return float64(n.rate[u.Link].SerialisationTime(
					payload + headers + wire.EthernetLen + n.overhead[u.Link]))
			}
			way += u.Share * (float64(n.delay[u.Link]) + frame(min(size, each)))
			slowest = max(slowest, frame(each)*float64(packets-1))
		}
		for _, u := range n.uses[Pair{to, from}] {
			way += u.Share * float64(n.small[u.Link])
		}
		return time.Duration(way + slowest)
	}, nil
}

// towards returns the port of a bridge that leads to a rank's NIC. Bridges form trees.
func (n *network) towards(s *plan.Switch, to plan.Rank) string {
	var search func(s *plan.Switch, from string) string
	search = func(s *plan.Switch, from string) string {
		for _, p := range s.Ports {
			peer, port, _ := strings.Cut(p.Peer, ":")
			if peer == from {
				continue
			}
			if peer == to.Node && port == to.NIC {
				return p.Name
			}
			if next := n.plan.Switch(peer); next != nil && search(next, s.Name) != "" {
				return p.Name
			}
		}
		return ""
	}
	return search(s, "")
}
