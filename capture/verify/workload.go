package verify

import (
	"fmt"
	"net/netip"
	"slices"

	"railbed/capture/filter"
	"railbed/internal/infiniband"
	"railbed/internal/units"
	"railbed/internal/wire"
)

// Transports of a Rank besides TCP: reliable datagrams, reliable connections of RoCEv2, and the
// messages of a switch that aggregates.
const (
	TransportRD       = "rd"
	TransportRoCE     = "roce"
	TransportInSwitch = "in-switch"
)

// AllToAll is the pattern of a Workload in which each rank sends to each other rank.
const AllToAll = "all-to-all"

// Pairs is the pattern of a Workload that lists senders and receivers.
const Pairs = "pairs"

// Workload describes the packets of a run of a collective: its ranks, their nodes and NICs, and the
// bytes that each rank should have sent. The process that ran the workload writes it down before
// the packets are judged.
type Workload struct {
	Name string `json:"name"`
	// Pattern specifies which ranks send to which: ring, all-to-all or pairs. Empty means ring.
	Pattern string `json:"pattern,omitempty"`
	// Pairs are the senders and receivers of the pattern pairs, as indices of Ranks.
	Pairs [][2]int `json:"pairs,omitempty"`
	// Across means that only bytes to ranks of other nodes count as expected. Nothing is expected
	// of bytes within a node, which pass no tap.
	Across bool `json:"across,omitempty"`
	// Sums describes the job of a workload that switches aggregate. It is nil for other workloads.
	Sums *Sums `json:"sums,omitempty"`
	// From and To are the start and the end of the run, in nanoseconds since 1970; 0 means unknown.
	From  int64  `json:"from,omitempty"`
	To    int64  `json:"to,omitempty"`
	Ranks []Rank `json:"ranks"`
}

// Rank is one rank of a workload.
type Rank struct {
	Rank int        `json:"rank"`
	Node string     `json:"node"`
	NIC  string     `json:"nic"`
	Addr netip.Addr `json:"addr"` // of the NIC, and of every packet of the rank
	Port uint16     `json:"port"` // on which the rank listens
	// Channel is the number of this channel, for a rank with several channels.
	Channel int `json:"channel,omitempty"`
	// Transport is tcp, rd, roce or in-switch. Empty means tcp.
	Transport string `json:"transport,omitempty"`
	// Engines is the number of UDP ports, from Port on, on which a rank of rd receives. Port is
	// then a multiple of wire.RDEngines within the block from wire.PortRD on.
	Engines int `json:"engines,omitempty"`
	// Life is the life of a rank's rd endpoint; 0 means unknown.
	Life uint64 `json:"life,omitempty"`
	// QueuePairs are the queue pairs of a rank of roce. Packets to its address and other queue
	// pairs do not belong to the workload.
	QueuePairs *QueuePairs `json:"queue_pairs,omitempty"`
	// Overruns counts packets that arrived at a rank of roce and for which it had no room.
	Overruns uint64 `json:"overruns,omitempty"`
	// Flows are the rank's outgoing flows, payload and replies. They are needed where ranks share
	// an address. Otherwise an empty list means every flow from Addr to another rank's service, or
	// from the rank's own service.
	Flows []FlowAddr `json:"flows,omitempty"`
	// Expected is the payload that the rank sends over all iterations, counted in the steps of the
	// algorithm. RingAllReduceBytes and AllToAllBytes are closed formulas for it.
	Expected units.Bytes `json:"expected"`
	// ExpectedTo is the part of Expected that goes to each rank, by index of Ranks. Nil means
	// unknown.
	ExpectedTo []units.Bytes `json:"expected_to,omitempty"`
	// Framing specifies which bytes of the rank's streams are not payload. Nil counts all bytes as
	// payload.
	Framing *Framing `json:"framing,omitempty"`
	// Empty are messages without payload that the rank is to send. Nil expects nothing of them.
	Empty *Empty `json:"empty,omitempty"`
	// Missing is the number of message bytes that the rank states as never received, of messages
	// that may have holes. Nil means that the rank states no number.
	Missing *uint64 `json:"missing,omitempty"`
	// Reported is the number of bytes that the rank states as written to its sockets, including
	// headers and replies of its transport. Nil means that the rank states no number.
	Reported *uint64 `json:"reported,omitempty"`
}

// Empty are messages without data.
type Empty struct {
	Messages uint64 `json:"messages"`
}

// String returns a description for people.
func (e *Empty) String() string { return fmt.Sprintf("%d empty messages", e.Messages) }

// Framing describes the bytes besides payload in TCP streams. The stream from the connecting to the
// listening side has a hello, a header for each message, and optionally a header as a goodbye. The
// other direction carries replies, which are not payload. The number of messages follows from the
// algorithm. The payload can therefore be counted even if the capture keeps only the beginning of
// each packet.
type Framing struct {
	Hello  units.Bytes `json:"hello"`
	Header units.Bytes `json:"header"`
	// Goodbye is the first byte of the header that ends a stream. The rest of that header is 0.
	Goodbye byte `json:"goodbye"`
	// Messages counts the rank's messages to each rank, by index of Ranks.
	Messages []uint64 `json:"messages"`
}

// around returns the bytes of framing of a stream to a rank, without the goodbye.
func (f *Framing) around(to int) uint64 {
	if to < 0 || to >= len(f.Messages) {
		return 0
	}
	return uint64(f.Hello) + f.Messages[to]*uint64(f.Header)
}

// isGoodbye reports whether a segment is the header that ends a stream, and whether that is unknown
// because the capture holds none of the segment's bytes. The goodbye has a segment of its own,
// because its sender has received replies to all earlier messages.
func (f *Framing) isGoodbye(p *Packet) (is, unknown bool) {
	if f == nil || p.Payload != int(f.Header) {
		return false, false
	}
	if len(p.Segment) == 0 {
		return false, true
	}
	return p.Segment[0] == f.Goodbye &&
		!slices.ContainsFunc(p.Segment[1:], func(b byte) bool { return b != 0 }), false
}

// QueuePairs is a range of Count queue pair numbers, from First on.
type QueuePairs struct {
	First uint32 `json:"first"`
	Count int    `json:"count"`
}

func (q *QueuePairs) has(n infiniband.QPN) bool {
	return q == nil || uint32(n) >= q.First && uint32(n)-q.First < uint32(q.Count)
}

// FlowAddr is one direction of a connection.
type FlowAddr struct {
	Src netip.AddrPort `json:"src"`
	Dst netip.AddrPort `json:"dst"`
}

// ringAllReduceBytes returns the bytes that each rank of a ring all-reduce sends, rounded up. The
// reduce-scatter and the all-gather have n-1 steps each, and each step sends one n-th of the
// buffer. Together that is 2(n-1)/n of the size (Patarasuk and Yuan 2009).
func ringAllReduceBytes(ranks int, size units.Bytes, iterations int) units.Bytes {
	if ranks < 2 {
		return 0
	}
	n := units.Bytes(ranks)
	return (2*(n-1)*size*units.Bytes(iterations) + n - 1) / n
}

// allToAllBytes returns the bytes that a rank of an all-to-all sends. The elements of its buffer,
// of each bytes, are divided among all ranks. If a remainder is left, the first ranks get one
// element more. The rank sends all parts but its own to others, (n-1)/n of the size.
func allToAllBytes(rank, ranks int, size, each units.Bytes, iterations int) units.Bytes {
	elements, n := uint64(size/each), uint64(ranks)
	own := elements / n
	if uint64(rank) < elements%n {
		own++
	}
	return each * units.Bytes((elements-own)*uint64(iterations))
}

// within finds ranks on one node that send to each other. Their bytes pass no tap.
func (w Workload) within() (from, to Rank, found bool) {
	if len(w.Ranks) > 0 && w.Ranks[0].Transport == TransportInSwitch { // these ranks send to switches
		return from, to, false
	}
	if w.Pattern == Pairs {
		for _, pair := range w.Pairs {
			if from, to := w.Ranks[pair[0]], w.Ranks[pair[1]]; from.Node == to.Node {
				return from, to, true
			}
		}
		return from, to, false
	}
	next := 1 // the number of next ranks to which each rank sends
	if w.Pattern == AllToAll {
		next = len(w.Ranks) - 1
	}
	for i, from := range w.Ranks {
		for k := 1; k <= next; k++ {
			if to := w.Ranks[(i+k)%len(w.Ranks)]; len(w.Ranks) > 1 && from.Node == to.Node {
				return from, to, true
			}
		}
	}
	return from, to, false
}

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
		if from, known := r.rd[netip.AddrPortFrom(p.Flow.Src.Addr(),
			wire.PortRD+uint16(p.RD.Source))]; known {
			if life := r.workload.Ranks[from].Life; life != 0 && p.RD.Life != life {
				return role{} // of a workload that used the same ports before or after
			}
			found.rank, found.relevant = from, true
		}
	}
	return found
}

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

// Title returns the name of the rank.
func (r *Rank) Title() string {
	if r.Channel > 0 {
		return fmt.Sprintf("rank %d, channel %d (%s:%s)", r.Rank, r.Channel, r.Node, r.NIC)
	}
	return fmt.Sprintf("rank %d (%s:%s)", r.Rank, r.Node, r.NIC)
}

// Measured returns the name of a measured value of the rank.
func (r *Rank) Measured(what string) string {
	if r.Channel > 0 {
		return fmt.Sprintf("rank%d.channel%d.%s", r.Rank, r.Channel, what)
	}
	return fmt.Sprintf("rank%d.%s", r.Rank, what)
}

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
