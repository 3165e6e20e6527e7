package evidence

import (
	"fmt"
	"net/netip"
	"slices"

	"railbed/internal/infiniband"
	"railbed/internal/units"
)

// Transports of a Rank besides TCP: reliable datagrams, reliable connections of RoCEv2, QUIC, and the
// messages of a switch that aggregates.
const (
	TransportRD       = "rd"
	TransportRoCE     = "roce"
	TransportQUIC     = "quic"
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

// Sums is a workload that switches aggregate: the number of the job in the plan, and the job's epoch
// during the workload.
type Sums struct {
	Job   uint16 `json:"job"`
	Epoch uint16 `json:"epoch"`
}

// Rank is one rank of a workload.
type Rank struct {
	Rank int    `json:"rank"`
	Node string `json:"node"`
	NIC  string `json:"nic"`
	// SecondNIC is another NIC by which the rank sends and receives, in a dual-ToR fabric.
	SecondNIC string     `json:"second_nic,omitempty"`
	Addr      netip.Addr `json:"addr"` // of every packet of the rank
	Port      uint16     `json:"port"` // on which the rank listens
	// Channel is the number of this channel, for a rank with several channels.
	Channel int `json:"channel,omitempty"`
	// Transport is tcp, rd, roce, quic or in-switch. Empty means tcp.
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
	// algorithm.
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

// QueuePairs is a range of Count queue pair numbers, from First on.
type QueuePairs struct {
	First uint32 `json:"first"`
	Count int    `json:"count"`
	// Peers maps the number of each queue pair to the index in Ranks of the rank at its other end. It
	// distinguishes the senders where ranks share an address. Numbers that are missing are unknown.
	Peers map[uint32]int `json:"peers,omitempty"`
}

func (q *QueuePairs) has(n infiniband.QPN) bool {
	return q == nil || uint32(n) >= q.First && uint32(n)-q.First < uint32(q.Count)
}

// sender returns which of the given ranks sends to a queue pair.
func (q *QueuePairs) sender(to infiniband.QPN, among []int) (rank int, known bool) {
	if q == nil {
		return -1, false
	}
	rank, known = q.Peers[uint32(to)]
	return rank, known && slices.Contains(among, rank)
}

// Numbers returns the numbers that formulas of rules can use: n, the number of ranks.
func (w Workload) Numbers() map[string]float64 {
	ranks := map[int]bool{}
	for i := range w.Ranks {
		ranks[w.Ranks[i].Rank] = true
	}
	return map[string]float64{"n": float64(len(ranks))}
}

// FlowAddr is one direction of a connection.
type FlowAddr struct {
	Src netip.AddrPort `json:"src"`
	Dst netip.AddrPort `json:"dst"`
}

// Within finds ranks on one node that send to each other. Their bytes pass no tap.
func (w Workload) Within() (from, to Rank, found bool) {
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

// Uses reports whether a port is a NIC of the rank.
func (r *Rank) Uses(node, port string) bool {
	return node == r.Node && (port == r.NIC || r.SecondNIC != "" && port == r.SecondNIC)
}

// NICs returns the names of the rank's NICs, as NODE:PORT.
func (r *Rank) NICs() []string {
	names := []string{r.Node + ":" + r.NIC}
	if r.SecondNIC != "" {
		names = append(names, r.Node+":"+r.SecondNIC)
	}
	return names
}

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

// Crossing describes the traffic that programs which choose their transports themselves had to send
// over links. The process that ran them writes it down before the packets are judged.
type Crossing struct {
	Name string
	// From and To are the start and the end of the programs' run, in nanoseconds since 1970.
	From, To int64
	Ranks    []CrossingRank
	// Others are workloads that ran in that time, whose packets are not the programs'. Datagrams
	// are the UDP ports to which other senders sent.
	Others    []Workload
	Datagrams []uint16
	// Beside names other programs that ran then in the ranks' nodes, whose packets cannot be
	// distinguished from these programs' packets.
	Beside []string
	// Encrypted means that the packets do not show which of their bytes are payload, so that what
	// left may be less than all bytes of datagrams.
	Encrypted bool
}

// CrossingRank is a program that takes part, and the NIC that it was configured to use.
type CrossingRank struct {
	Rank      int
	Node, NIC string
	SecondNIC string // as in Rank
	// Sends is the least number of bytes of payload that the program had to send to other nodes,
	// whatever its algorithm. With 0 the number is unknown, but some payload must still have left.
	Sends units.Bytes
}
