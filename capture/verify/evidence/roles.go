package evidence

import (
	"net/netip"
	"slices"

	"railbed/capture/filter"
	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// Role is a flow's part in a workload.
type Role struct {
	Rank     int  // index of the sender in Ranks; -1 for none
	To       int  // index of the receiver; -1 when unknown
	Relevant bool // the flow belongs to the workload
	Reply    bool // it carries replies, and no payload
}

// flowRole is the role of a flow, once it is known.
type flowRole struct {
	Role
	known bool
}

// Roles assigns flows to the ranks of a workload and caches the results.
type Roles struct {
	Workload Workload // as given to NewRoles
	exact    map[FlowAddr]int
	service  map[netip.AddrPort]int
	rd       map[netip.AddrPort]int // engines of ranks of rd
	roce     map[netip.Addr][]int   // ranks of roce
	quic     map[netip.AddrPort]int // ranks of quic
	inSwitch map[netip.AddrPort]int // ranks for which a switch aggregates
	byAddr   map[netip.Addr][]int
	known    Slots[flowRole]
	// Ambiguous counts flows that may belong to any of several ranks of one address.
	Ambiguous int
}

// NewRoles assigns flows to the ranks of a workload.
func NewRoles(w Workload) *Roles {
	r := &Roles{Workload: w, exact: map[FlowAddr]int{}, service: map[netip.AddrPort]int{},
		rd: map[netip.AddrPort]int{}, roce: map[netip.Addr][]int{}, quic: map[netip.AddrPort]int{},
		inSwitch: map[netip.AddrPort]int{}, byAddr: map[netip.Addr][]int{}}
	for i, rank := range w.Ranks {
		for _, f := range rank.Flows {
			r.exact[f] = i
		}
		switch rank.Transport {
		case TransportRD:
			for engine := range min(rank.Engines, wire.RDEngines) {
				r.rd[netip.AddrPortFrom(rank.Addr, rank.Port+uint16(engine))] = i
			}
		case TransportInSwitch:
			r.inSwitch[netip.AddrPortFrom(rank.Addr, rank.Port)] = i
		case TransportRoCE:
			r.roce[rank.Addr] = append(r.roce[rank.Addr], i)
		case TransportQUIC:
			r.quic[netip.AddrPortFrom(rank.Addr, rank.Port)] = i
		default:
			r.service[netip.AddrPortFrom(rank.Addr, rank.Port)] = i
		}
		r.byAddr[rank.Addr] = append(r.byAddr[rank.Addr], i)
	}
	return r
}

// Of returns the role of a packet. For a reliable datagram the role depends also on the engine in
// the packet. Ranks of one address differ only in the ports on which they receive.
func (r *Roles) Of(p *Packet) Role {
	if p.Aggregation != nil && p.Flow != nil { // answers belong to the switch
		from, known := r.inSwitch[p.Flow.Src]
		return Role{Rank: from, To: -1, Relevant: known}
	}
	if to, known := r.toQUIC(p.Flow); known {
		return to
	}
	if p.Flow == nil || p.Flow.Proto != ProtoTCP &&
		(p.Flow.Proto != ProtoUDP || !wire.IsPortRD(p.Flow.Dst.Port()) &&
			p.Flow.Dst.Port() != infiniband.Port) {
		return Role{}
	}
	if p.Flow.Proto == ProtoUDP && p.Flow.Dst.Port() == infiniband.Port {
		return r.ofRoCE(p)
	}
	found := r.flow(p.Flow)
	if p.RD != nil {
		from, known := r.Engine(p.Flow.Src.Addr(), p.RD.Source)
		switch {
		case !known && r.Has(p.Flow.Src.Addr()):
			return Role{} // of a workload with other ranks at the same address
		case !known:
		case r.Workload.Ranks[from].Life != 0 && r.Workload.Ranks[from].Life != p.RD.Life:
			return Role{} // of a workload that used the same ports before or after
		default:
			found.Rank, found.Relevant = from, true
		}
	}
	return found
}

// Engine returns the rank of rd to which an engine of an address belongs.
func (r *Roles) Engine(of netip.Addr, engine uint8) (rank int, known bool) {
	rank, known = r.rd[netip.AddrPortFrom(of, wire.PortRD+uint16(engine))]
	return rank, known
}

// Encrypted reports whether packets of ranks do not show which of their bytes are payload.
func (r *Roles) Encrypted() bool { return len(r.quic) > 0 }

// Has reports whether an address is a rank's.
func (r *Roles) Has(addr netip.Addr) bool { return len(r.byAddr[addr]) > 0 }

func (r *Roles) flow(f *Flow) Role {
	slot := r.known.At(f.Index)
	if !slot.known {
		slot.known = true
		if f.Proto == ProtoUDP {
			slot.Role = r.findRD(f)
		} else {
			slot.Role = r.find(f)
		}
	}
	return slot.Role
}

// findRD returns the role of a flow of reliable datagrams without looking into the packets. A flow
// goes from a path to an engine. Replies go to an engine too.
func (r *Roles) findRD(f *Flow) Role {
	to, relevant := r.rd[f.Dst]
	if !relevant {
		return Role{Rank: -1, To: -1}
	}
	found := Role{Rank: -1, To: to, Relevant: true}
	if owners := r.byAddr[f.Src.Addr()]; len(owners) == 1 {
		found.Rank = owners[0]
	}
	return found
}

// ofRoCE returns the role of a RoCEv2 packet. The destination queue pair determines the receiving
// rank, and the source address the sending rank. If several ranks have the source address, the sender
// is the peer of the queue pair. Messages that make connections are for no particular queue pair.
func (r *Roles) ofRoCE(p *Packet) Role {
	found := Role{Rank: -1, To: -1}
	for _, i := range r.roce[p.Flow.Dst.Addr()] {
		if p.RoCE == nil || p.RoCE.BTH.DestQP == infiniband.GSI ||
			r.Workload.Ranks[i].QueuePairs.has(p.RoCE.BTH.DestQP) {
			found.Relevant, found.To = true, i
			break
		}
	}
	if !found.Relevant {
		return found
	}
	owners := r.roce[p.Flow.Src.Addr()]
	switch {
	case len(owners) == 1:
		found.Rank = owners[0]
	case len(owners) > 1 && p.RoCE != nil && p.RoCE.BTH.DestQP != infiniband.GSI:
		of, known := r.Workload.Ranks[found.To].QueuePairs.sender(p.RoCE.BTH.DestQP, owners)
		if found.Rank = of; !known {
			found.Rank = -1
			r.Ambiguous++
		}
	}
	return found
}

// toQUIC returns the role of a flow of QUIC. A rank sends and receives at one port.
func (r *Roles) toQUIC(f *Flow) (of Role, known bool) {
	if f == nil || f.Proto != ProtoUDP {
		return of, false
	}
	to, known := r.quic[f.Dst]
	of = Role{Rank: -1, To: to, Relevant: known}
	if from, known := r.quic[f.Src]; known {
		of.Rank = from
	}
	return of, known
}

func (r *Roles) find(f *Flow) Role {
	serving, toService := r.service[f.Dst]
	from, fromService := r.service[f.Src]
	if !toService && !fromService {
		return Role{}
	}
	result := Role{Relevant: true, Rank: -1, To: -1, Reply: !toService}
	if toService {
		result.To = serving
	} else if owners := r.byAddr[f.Dst.Addr()]; len(owners) == 1 {
		result.To = owners[0]
	}
	if exact, ok := r.exact[FlowAddr{f.Src, f.Dst}]; ok {
		result.Rank = exact
		return result
	}
	if fromService {
		result.Rank = from
		return result
	}
	switch owners := r.byAddr[f.Src.Addr()]; {
	case len(owners) == 1:
		result.Rank = owners[0]
	case len(owners) > 1:
		r.Ambiguous++
	}
	return result
}

// Name returns the name of a rank, by its index.
func (r *Roles) Name(rank int) string { return r.Workload.Ranks[rank].Title() }

// Need returns the need of checks of the workload: the ranks' NICs, in the workload's time.
func (r *Roles) Need(c *Capture) Need {
	w := &r.Workload
	n := Need{From: w.From, To: w.To, Packets: r.patterns()}
	for i := range w.Ranks {
		for _, name := range w.Ranks[i].NICs() {
			if !slices.Contains(n.Ports, name) {
				n.Ports = append(n.Ports, name)
			}
		}
	}
	return n
}

// patterns returns the patterns of the workload's packets for filters.
func (r *Roles) patterns() (patterns []filter.Pattern) {
	for i := range r.Workload.Ranks {
		switch rank := &r.Workload.Ranks[i]; rank.Transport {
		case TransportRD:
			for engine := range min(rank.Engines, wire.RDEngines) {
				patterns = append(patterns, filter.Transport(ProtoUDP, 0, rank.Port+uint16(engine))...)
			}
		case TransportInSwitch:
			patterns = append(patterns, filter.Transport(ProtoUDP, 0, wire.PortAggregation)...)
		case TransportRoCE:
			patterns = append(patterns, filter.Transport(ProtoUDP, 0, infiniband.Port)...)
		case TransportQUIC:
			patterns = append(patterns, filter.Transport(ProtoUDP, 0, rank.Port)...)
		default:
			patterns = append(patterns, filter.Transport(ProtoTCP, 0, rank.Port)...)
			patterns = append(patterns, filter.Transport(ProtoTCP, rank.Port, 0)...)
		}
	}
	return patterns
}
