package rank

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"railbed/internal/frame"
	"railbed/transports/rd/engine"
	"railbed/workloads/collective"
)

// Message is the JSON payload of one frame.Message. Exactly one field is set.
//
//	coordinator                      rank
//	  config            ->
//	                    <-  ready       endpoint and regions exist
//	  table             ->              all ranks' rendezvous, in order of rank
//	                    <-  prepared    \
//	  start             ->               \
//	                    <-  reduced       } for each round; reduced and lost only
//	  lost              ->               /  if partial sums may be left out
//	                    <-  done        /
//	  end               ->              once every rank is done
//	                    <-  finished    the endpoint is closed
//
// The coordinator may send alive at any time. The rank sends alive back at once, whatever it does.
//
// A rank that cannot continue sends failed and exits. A rank whose channel closes exits at once.
type Message struct {
	Config   *Config      `json:"config,omitempty"`
	Ready    *Rendezvous  `json:"ready,omitempty"`
	Table    []Rendezvous `json:"table,omitempty"`
	Prepared *OperationID `json:"prepared,omitempty"`
	Start    *OperationID `json:"start,omitempty"`
	Reduced  *Losses      `json:"reduced,omitempty"`
	Lost     *Losses      `json:"lost,omitempty"`
	Done     *Done        `json:"done,omitempty"`
	End      *struct{}    `json:"end,omitempty"`
	Alive    *struct{}    `json:"alive,omitempty"`
	Finished *Finished    `json:"finished,omitempty"`
	Failed   *Failed      `json:"failed,omitempty"`
}

// OperationID identifies the operations of one round of the job.
type OperationID struct {
	Index int             `json:"index"`
	Mode  collective.Mode `json:"mode"`
}

// Rendezvous is the information about one rank that the other ranks need.
type Rendezvous struct {
	PID     int    `json:"pid"`
	Address []byte `json:"address"`
	Input   []byte `json:"input,omitempty"`
	Output  []byte `json:"output,omitempty"`
	Work    []byte `json:"work,omitempty"`
	// Operations are the memory handles of several operations that share the endpoint.
	Operations []collective.Memory[[]byte] `json:"operations,omitempty"`
	// Channels are the rank's ends of the channels, each with its memory, if there are several.
	Channels []Rendezvous `json:"channels,omitempty"`
}

// Losses describes the bytes that an operation lost, at one rank or at all ranks.
type Losses struct {
	OperationID
	Losses []collective.Loss `json:"losses,omitempty"`
}

// Done is a rank's result of a round.
type Done struct {
	OperationID
	Start  int64         `json:"start"`            // Unix time in ns
	Time   time.Duration `json:"time"`             // in ns, for all operations that are timed together
	Waited time.Duration `json:"waited,omitempty"` // the part of Time spent waiting for other ranks
	// Waits are the times that add up to Waited, short times between them included. They are absent for
	// several operations, and for ranks that wait in several goroutines.
	Waits []Wait `json:"waits,omitempty"`
	// Steps are the steps of the rank's algorithm, if one operation was timed. StepsLeftOut counts parts of
	// the algorithm whose steps are left out.
	Steps        []Steps            `json:"steps,omitempty"`
	StepsLeftOut int                `json:"steps_left_out,omitempty"`
	Wrong        uint64             `json:"wrong"`
	Short        uint64             `json:"short,omitempty"` // elements that lack the contribution of a rank
	Before       collective.Traffic `json:"before,omitzero"` // of the untimed operations
	Traffic      collective.Traffic `json:"traffic"`
	// Own is the result of the kind of workload.
	Own json.RawMessage `json:"own,omitempty"`
}

// Finished has the counters of a rank's endpoints over their whole life.
type Finished struct {
	Channels    []Finished         `json:"channels,omitempty"` // one per channel, if there are several
	Stream      collective.Traffic `json:"stream"`
	Flows       []Flow             `json:"flows,omitempty"`
	DeviceBound bool               `json:"device_bound"`
	Engines     int                `json:"engines,omitempty"` // only for rd
	QueuePairs  *QueuePairs        `json:"queue_pairs,omitempty"`
	Pace        *Pace              `json:"pace,omitempty"`    // only for rd
	Repeats     *engine.Repeats    `json:"repeats,omitempty"` // only for rd, if packets were sent again
	Life        uint64             `json:"life,omitempty"`    // only for rd
}

// Flow is one connection of a rank. Payload goes from the connecting side to the listening side.
// Replies of 24 bytes go in the other direction.
type Flow struct {
	PeerRank   int            `json:"peer_rank"`
	Connecting bool           `json:"connecting"`
	Local      netip.AddrPort `json:"local"`
	Remote     netip.AddrPort `json:"remote"`
}

// Pace describes the lateness of packets that a rate limit delayed. Lateness counts from the time
// at which the schedule allowed a packet. No packet is sent early. P50 and P99 are rounded up to
// powers of two of microseconds.
type Pace struct {
	Packets uint64        `json:"packets"`
	P50     time.Duration `json:"p50_ns"`
	P99     time.Duration `json:"p99_ns"`
	Most    time.Duration `json:"most_ns"`
}

// QueuePairs are the counters of a rank's queue pairs over roce.
type QueuePairs struct {
	// First is the first queue pair number that the rank can use, of Count.
	First uint32 `json:"first"`
	Count int    `json:"count"`
	// Peers maps the number of each queue pair to the rank at its other end.
	Peers    map[uint32]int `json:"peers,omitempty"`
	PathMTU  int            `json:"path_mtu"` // payload bytes of a packet
	Packets  uint64         `json:"packets"`  // requests and responses sent
	Resent   uint64         `json:"resent"`   // retransmitted requests
	Naks     uint64         `json:"naks"`     // sent, for sequence errors and others
	RNRNaks  uint64         `json:"rnr_naks"`
	Timeouts uint64         `json:"timeouts"`
	CNPs     uint64         `json:"cnps"`   // that it sent
	Slowed   uint64         `json:"slowed"` // received CNPs
	BadICRC  uint64         `json:"bad_icrc"`
	// packets that arrived and had no room, because the host let the rank read too late
	Overruns uint64 `json:"overruns"`
}

// Failed is the error with which a rank ends.
type Failed struct {
	Error string `json:"error"`
	// Peer is true if this rank failed because another rank ended.
	Peer bool `json:"peer,omitempty"`
}

// ReadMessage reads the next message. It skips frames of other types, which are for other users of
// the same channel.
func ReadMessage(r *frame.Reader) (*Message, error) {
	for {
		kind, payload, err := r.Read()
		if err != nil {
			return nil, err
		}
		if kind != frame.Message {
			continue
		}
		m := &Message{}
		if err := json.Unmarshal(payload, m); err != nil {
			return nil, fmt.Errorf("decode message of %d bytes: %w", len(payload), err)
		}
		return m, nil
	}
}
