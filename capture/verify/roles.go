package verify

import (
	"net/netip"
	"slices"

	"railbed/capture/filter"
	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// role is a flow's part in a workload.
type role struct {
	rank     int  // index of the sender in Ranks; -1 for none
	to       int  // index of the receiver; -1 when unknown
	relevant bool // the flow belongs to the workload
	reply    bool // it carries replies, and no payload
}

// roles assigns flows to the ranks of a workload and caches the results.
type roles struct {
	workload Workload
	exact    map[FlowAddr]int
	service  map[netip.AddrPort]int
	rd       map[netip.AddrPort]int // engines of ranks of rd
	roce     map[netip.Addr][]int   // ranks of roce
	inSwitch map[netip.AddrPort]int // ranks for which a switch aggregates
	byAddr   map[netip.Addr][]int
	known    []role // by flow index
	seen     []bool
	// ambiguous counts flows that may belong to any of several ranks of one address.
	ambiguous int
}

func newRoles(w Workload) *roles {
	r := &roles{workload: w, exact: map[FlowAddr]int{}, service: map[netip.AddrPort]int{},
		rd: map[netip.AddrPort]int{}, roce: map[netip.Addr][]int{}, inSwitch: map[netip.AddrPort]int{},
		byAddr: map[netip.Addr][]int{}}
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
		default:
			r.service[netip.AddrPortFrom(rank.Addr, rank.Port)] = i
		}
		r.byAddr[rank.Addr] = append(r.byAddr[rank.Addr], i)
	}
	return r
}

// of returns the role of a packet. For a reliable datagram the role depends also on the engine in
// the packet. Ranks of one address differ only in the ports on which they receive.
func (r *roles) of(p *Packet) role {
	if p.Aggregation != nil && p.Flow != nil { // answers belong to the switch
		from, known := r.inSwitch[p.Flow.Src]
		return role{rank: from, to: -1, relevant: known}
	}
	if p.Flow == nil || p.Flow.Proto != protoTCP &&
		(p.Flow.Proto != protoUDP || !wire.IsPortRD(p.Flow.Dst.Port()) &&
			p.Flow.Dst.Port() != infiniband.Port) {
		return role{}
	}
	if p.Flow.Proto == protoUDP && p.Flow.Dst.Port() == infiniband.Port {
		return r.ofRoCE(p)
	}
	found := r.flow(p.Flow)
	if p.RD != nil {
		if from, known := r.Engine(p.Flow.Src.Addr(), p.RD.Source); known {
			if life := r.workload.Ranks[from].Life; life != 0 && p.RD.Life != life {
				return role{} // of a workload that used the same ports before or after
			}
			found.rank, found.relevant = from, true
		}
	}
	return found
}

// Engine returns the rank of rd to which an engine of an address belongs.
func (r *roles) Engine(of netip.Addr, engine uint8) (rank int, known bool) {
	rank, known = r.rd[netip.AddrPortFrom(of, wire.PortRD+uint16(engine))]
	return rank, known
}

// Has reports whether an address is a rank's.
func (r *roles) Has(addr netip.Addr) bool { return len(r.byAddr[addr]) > 0 }

func (r *roles) flow(f *Flow) role {
	for len(r.known) <= f.Index {
		r.known = append(r.known, role{})
		r.seen = append(r.seen, false)
	}
	if !r.seen[f.Index] {
		r.seen[f.Index] = true
		if f.Proto == protoUDP {
			r.known[f.Index] = r.findRD(f)
		} else {
			r.known[f.Index] = r.find(f)
		}
	}
	return r.known[f.Index]
}

// findRD returns the role of a flow of reliable datagrams without looking into the packets. A flow
// goes from a path to an engine. Replies go to an engine too.
func (r *roles) findRD(f *Flow) role {
	to, relevant := r.rd[f.Dst]
	if !relevant {
		return role{rank: -1, to: -1}
	}
	found := role{rank: -1, to: to, relevant: true}
	if owners := r.byAddr[f.Src.Addr()]; len(owners) == 1 {
		found.rank = owners[0]
	}
	return found
}

// ofRoCE returns the role of a RoCEv2 packet. The destination queue pair determines the receiving
// rank, and the source address the sending rank. Messages that make connections are for no
// particular queue pair.
func (r *roles) ofRoCE(p *Packet) role {
	found := role{rank: -1, to: -1}
	for _, i := range r.roce[p.Flow.Dst.Addr()] {
		if p.RoCE == nil || p.RoCE.BTH.DestQP == infiniband.GSI ||
			r.workload.Ranks[i].QueuePairs.has(p.RoCE.BTH.DestQP) {
			found.relevant, found.to = true, i
			break
		}
	}
	if !found.relevant {
		return found
	}
	switch owners := r.roce[p.Flow.Src.Addr()]; {
	case len(owners) == 1:
		found.rank = owners[0]
	case len(owners) > 1:
		r.ambiguous++
	}
	return found
}

func (r *roles) find(f *Flow) role {
	serving, toService := r.service[f.Dst]
	from, fromService := r.service[f.Src]
	if !toService && !fromService {
		return role{}
	}
	result := role{relevant: true, rank: -1, to: -1, reply: !toService}
	if toService {
		result.to = serving
	} else if owners := r.byAddr[f.Dst.Addr()]; len(owners) == 1 {
		result.to = owners[0]
	}
	if exact, ok := r.exact[FlowAddr{f.Src, f.Dst}]; ok {
		result.rank = exact
		return result
	}
	if fromService {
		result.rank = from
		return result
	}
	switch owners := r.byAddr[f.Src.Addr()]; {
	case len(owners) == 1:
		result.rank = owners[0]
	case len(owners) > 1:
		r.ambiguous++
	}
	return result
}

func (r *roles) name(rank int) string { return r.workload.Ranks[rank].Title() }

// need returns the need of checks of the workload: the ranks' NICs, in the workload's time.
func (r *roles) need(c *Capture) Need {
	w := &r.workload
	n := Need{From: w.From, To: w.To, Packets: r.patterns()}
	for i := range w.Ranks {
		if name := w.Ranks[i].Node + ":" + w.Ranks[i].NIC; !slices.Contains(n.Ports, name) {
			n.Ports = append(n.Ports, name)
		}
	}
	return n
}

// patterns returns the patterns of the workload's packets for filters.
func (r *roles) patterns() (patterns []filter.Pattern) {
	for i := range r.workload.Ranks {
		switch rank := &r.workload.Ranks[i]; rank.Transport {
		case TransportRD:
			for engine := range min(rank.Engines, wire.RDEngines) {
				patterns = append(patterns, filter.Transport(protoUDP, 0, rank.Port+uint16(engine))...)
			}
		case TransportInSwitch:
			patterns = append(patterns, filter.Transport(protoUDP, 0, wire.PortAggregation)...)
		case TransportRoCE:
			patterns = append(patterns, filter.Transport(protoUDP, 0, infiniband.Port)...)
		default:
			patterns = append(patterns, filter.Transport(protoTCP, 0, rank.Port)...)
			patterns = append(patterns, filter.Transport(protoTCP, rank.Port, 0)...)
		}
	}
	return patterns
}
