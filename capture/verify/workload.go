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

// Transports of a Rank beside TCP: reliable datagrams, reliable connections of RoCEv2, and
// the messages of a switch that adds up.
const (
	TransportRD       = "rd"
	TransportRoCE     = "roce"
	TransportInSwitch = "in-switch"
)

// AllToAll is the pattern of a Workload in which each rank sends to each other one.
const AllToAll = "all-to-all"

// Pairs is the pattern of a Workload that names who sends to whom.
const Pairs = "pairs"

// Workload says which packets belong to a run of a collective: who took part,
// from where, and what each rank should have sent. It is written down by
// whoever ran the workload, before the packets are looked at.
type Workload struct {
	Name string `json:"name"`
	// Pattern is who sends to whom: ring, which empty means too, all-to-all, or pairs.
	Pattern string `json:"pattern,omitempty"`
	// Pairs are the senders and receivers of that pattern, indices of Ranks.
	Pairs [][2]int `json:"pairs,omitempty"`
	// Across is that ranks are expected to send what they send to ranks of other nodes,
	// and that nothing is said about what stays within a node, where no tap is.
	Across bool `json:"across,omitempty"`
	// Sums are those of a workload that switches add up; nil is none.
	Sums *Sums `json:"sums,omitempty"`
	// From and To are when it ran, in nanoseconds since 1970; 0 is not known.
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
	// Channel is which of the rank's this one is, where it has several.
	Channel int `json:"channel,omitempty"`
	// Transport is tcp, which empty means too, rd, roce or in-switch.
	Transport string `json:"transport,omitempty"`
	// Engines is on how many UDP ports, from Port on, a rank of rd hears. Port is
	// then a multiple of wire.RDEngines within the block from wire.PortRD on.
	Engines int `json:"engines,omitempty"`
	// Life is that of a rank's endpoint of rd; 0 is not known.
	Life uint64 `json:"life,omitempty"`
	// QueuePairs are those of a rank of roce: what goes to its address and to others
	// is not of the workload.
	QueuePairs *QueuePairs `json:"queue_pairs,omitempty"`
	// Overruns are packets that came to a rank of roce and that it had no room for.
	Overruns uint64 `json:"overruns,omitempty"`
	// Flows are the rank's outgoing flows, payload and replies. They are
	// needed where ranks share an address; otherwise an empty list means
	// every flow from Addr to another rank's service, or from the own one.
	Flows []FlowAddr `json:"flows,omitempty"`
	// Expected is the payload that the algorithm makes the rank send over all iterations,
	// counted in its steps. RingAllReduceBytes and AllToAllBytes are closed formulas of it.
	Expected units.Bytes `json:"expected"`
	// ExpectedTo is the part of it that goes to each rank, by index of Ranks; nil says
	// nothing of that.
	ExpectedTo []units.Bytes `json:"expected_to,omitempty"`
	// Framing says which bytes of the rank's streams are no payload; nil counts all of them.
	Framing *Framing `json:"framing,omitempty"`
	// Empty are messages without a byte that the rank is to send; nil says nothing of them.
	Empty *Empty `json:"empty,omitempty"`
	// Missing is how many bytes of messages the rank says never came to it, of those
	// that may be left out; nil where it says nothing.
	Missing *uint64 `json:"missing,omitempty"`
	// Reported is what the rank itself says that it gave to its sockets, with
	// its transport's headers and replies; nil when it says nothing.
	Reported *uint64 `json:"reported,omitempty"`
}

// Empty are messages without data.
type Empty struct {
	Messages uint64 `json:"messages"`
}

// String describes them for people.
func (e *Empty) String() string { return fmt.Sprintf("%d empty messages", e.Messages) }

// Framing is what streams of TCP carry beside payload: the stream from who connects to who listens
// has a hello, a header for each message, and maybe a header as a goodbye. The other way go replies,
// which are no payload at all. How many messages there are follows from the algorithm, so that
// payload is counted also where the capture keeps only the beginning of each packet.
type Framing struct {
	Hello  units.Bytes `json:"hello"`
	Header units.Bytes `json:"header"`
	// Goodbye is the first byte of the header that ends a stream. The rest of that header is 0.
	Goodbye byte `json:"goodbye"`
	// Messages counts the rank's messages to each rank, by index of Ranks.
	Messages []uint64 `json:"messages"`
}

// around is the framing of a stream to a rank, without the goodbye.
func (f *Framing) around(to int) uint64 {
	if to < 0 || to >= len(f.Messages) {
		return 0
	}
	return uint64(f.Hello) + f.Messages[to]*uint64(f.Header)
}

// isGoodbye reports whether a segment is the header that ends a stream, and whether that is unknown
// because nothing of it was captured. The goodbye has a segment of its own: whoever sends it has
// replies to all messages before.
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

// QueuePairs are so many numbers of queue pairs, from First on.
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

// RingAllReduceBytes is what each rank of a ring all-reduce sends: in each of
// n-1 steps of the reduce-scatter and of the all-gather one n-th of the buffer,
// 2(n-1)/n of the size in all (Patarasuk and Yuan 2009), rounded up.
func RingAllReduceBytes(ranks int, size units.Bytes, iterations int) units.Bytes {
	if ranks < 2 {
		return 0
	}
	n := units.Bytes(ranks)
	return (2*(n-1)*size*units.Bytes(iterations) + n - 1) / n
}

// AllToAllBytes is what rank number rank of an all-to-all sends: the elements of its buffer,
// of so many bytes each, are divided among all ranks, the first ones getting one more where
// that leaves a rest, and all but its own part goes to others, (n-1)/n of the size.
func AllToAllBytes(rank, ranks int, size, each units.Bytes, iterations int) units.Bytes {
	elements, n := uint64(size/each), uint64(ranks)
	own := elements / n
	if uint64(rank) < elements%n {
		own++
	}
	return each * units.Bytes((elements-own)*uint64(iterations))
}

// within finds ranks on one node that send to each other: no tap sees their bytes.
func (w Workload) within() (from, to Rank, found bool) {
	if len(w.Ranks) > 0 && w.Ranks[0].Transport == TransportInSwitch { // they send to switches
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
	next := 1 // behind the sender, how many of the others it sends to
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
	rank     int  // index into Ranks of who sends; -1 when it is none of them
	to       int  // index of the receiving rank; -1 when not known
	relevant bool // the flow belongs to the workload
	reply    bool // it carries the transport's replies, and no payload
}

// roles assigns flows to the ranks of a workload and remembers the answers.
type roles struct {
	workload Workload
	exact    map[FlowAddr]int
	service  map[netip.AddrPort]int
	rd       map[netip.AddrPort]int // the engines of ranks of rd
	roce     map[netip.Addr][]int   // ranks of roce
	inSwitch map[netip.AddrPort]int // ranks for which a switch adds up
	byAddr   map[netip.Addr][]int
	known    []role // by flow index
	seen     []bool
	// ambiguous counts flows that several ranks of one address may have sent.
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

// of is the role of a packet: of its flow, and of a reliable datagram's also of
// the engine that it says it comes from, because ranks of one address are told
// apart by the ports on which they hear.
func (r *roles) of(p *Packet) role {
	if p.Aggregation != nil && p.Flow != nil { // what the switch answers is its own
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
				return role{} // of a workload that had the same ports before or after
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

// findRD is what a flow of reliable datagrams tells by itself: from a path to an
// engine. Replies go to an engine too.
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

// ofRoCE is the role of a packet of RoCEv2: the queue pair that it is for says to
// which rank it goes, and its address from whom it is. What makes connections is for
// no queue pair in particular.
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

// Title is what the rank is called.
func (r *Rank) Title() string {
	if r.Channel > 0 {
		return fmt.Sprintf("rank %d, channel %d (%s:%s)", r.Rank, r.Channel, r.Node, r.NIC)
	}
	return fmt.Sprintf("rank %d (%s:%s)", r.Rank, r.Node, r.NIC)
}

// Measured is how what was measured of the rank is called.
func (r *Rank) Measured(what string) string {
	if r.Channel > 0 {
		return fmt.Sprintf("rank%d.channel%d.%s", r.Rank, r.Channel, what)
	}
	return fmt.Sprintf("rank%d.%s", r.Rank, what)
}

// need is what checks of the workload rest on: the ranks' NICs, in its time.
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

// patterns are the packets of the workload, as a filter sees them.
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
