package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"time"

	"railbed/internal/element"
	"railbed/internal/frame"
	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/transports/rd/privacy"
	"railbed/workloads/collective"
)

// message is the JSON payload of one frame.Message. Exactly one field is set.
//
//	coordinator                      worker
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
// The coordinator may send alive at any time. The worker sends alive back at once, whatever it
// does.
//
// A worker that cannot continue sends failed and exits. A worker whose channel closes exits at
// once.
type message struct {
	Config   *workerConfig   `json:"config,omitempty"`
	Ready    *rendezvous     `json:"ready,omitempty"`
	Table    []rendezvous    `json:"table,omitempty"`
	Prepared *operationID    `json:"prepared,omitempty"`
	Start    *operationID    `json:"start,omitempty"`
	Reduced  *losses         `json:"reduced,omitempty"`
	Lost     *losses         `json:"lost,omitempty"`
	Done     *operationDone  `json:"done,omitempty"`
	End      *struct{}       `json:"end,omitempty"`
	Alive    *struct{}       `json:"alive,omitempty"`
	Finished *workerFinished `json:"finished,omitempty"`
	Failed   *workerFailed   `json:"failed,omitempty"`
}

// workerConfig is the configuration that the coordinator sends to one worker.
type workerConfig struct {
	Job       string  `json:"job"`
	Kind      string  `json:"kind"`
	Work      anyWork `json:"work"`
	Transport string  `json:"transport"`
	placeConfig
	roundsConfig
	algorithmConfig
	transportConfig
	// Channels are the configurations of the rank's channels, if the collective uses several.
	Channels []workerConfig `json:"channels,omitempty"`
}

// placeConfig is the place of a rank among the others and in the network.
type placeConfig struct {
	Rank        int        `json:"rank"`
	Ranks       int        `json:"ranks"`
	NIC         string     `json:"nic,omitempty"`
	Unbound     bool       `json:"unbound,omitempty"` // the worker does not bind its sockets to NIC
	Addr        netip.Addr `json:"addr"`
	Port        uint16     `json:"port"`
	SourcePorts []uint16   `json:"source_ports,omitempty"`
	// Dilation is the testbed's time dilation.
	Dilation uint64 `json:"dilation,omitempty"`
}

// roundsConfig determines the rounds of a job: see func rounds.
type roundsConfig struct {
	Sizes      []units.Bytes `json:"sizes"`
	Warmup     int           `json:"warmup,omitempty"`
	Iterations int           `json:"iterations"`
	InPlace    bool          `json:"in_place,omitempty"`
	BusyPoll   bool          `json:"busy_poll,omitempty"`
	Together   bool          `json:"together,omitempty"`
	Checks     int           `json:"checks,omitempty"`
}

// algorithmConfig determines a collective and the algorithm that carries it out.
type algorithmConfig struct {
	Algorithm string       `json:"algorithm"`
	Root      int          `json:"root,omitempty"`
	Type      element.Type `json:"type"`
	Op        element.Op   `json:"op"`
	// Skew, Seed and the rank's Phases are set for an all-to-all. Seed is also set for an SGD
	// training.
	Skew   int                `json:"skew,omitempty"`
	Seed   uint64             `json:"seed,omitempty"`
	Phases []collective.Phase `json:"phases,omitempty"`
	// Chosen are the algorithms for Sizes, if Algorithm is auto.
	Chosen []string `json:"chosen,omitempty"`
	// Rails is set for algorithm hierarchical, which auto may choose, Schedule for msccl, and
	// Aggregator for in-network.
	Rails      schedule.Rails     `json:"rails,omitempty"`
	Schedule   *schedule.Schedule `json:"schedule,omitempty"`
	Aggregator *aggregatorConfig  `json:"aggregator,omitempty"`
}

// transportConfig configures the rank's endpoint. RD and RoCE are for these transports. Rate and
// Overhead of the link are for both.
type transportConfig struct {
	PeerTimeout units.Duration   `json:"peer_timeout,omitzero"`
	RoCE        *spec.RoCE       `json:"roce,omitempty"`
	Block       uint32           `json:"block,omitempty"` // block of queue pair numbers, for roce
	RD          *spec.RD         `json:"rd,omitempty"`
	Secret      privacy.Material `json:"secret,omitempty"` // for rd with encryption
	Rate        units.Rate       `json:"rate,omitempty"`
	Overhead    int              `json:"overhead,omitempty"`
	// Rates are the rates at which the rank sends to other ranks, for control: offline.
	Rates map[int]units.Rate `json:"rates,omitempty"`
	// RoundTrip is the planned maximum time for a full packet and its acknowledgement when no other
	// rank sends. 0 means unknown.
	RoundTrip time.Duration `json:"round_trip,omitempty"`
	// Arbiter is the address of the arbiter of control: arbiter. SlotTime is the length of a slot
	// in real time.
	Arbiter  netip.AddrPort `json:"arbiter,omitzero"`
	SlotTime time.Duration  `json:"slot_time,omitempty"`
}

// operationID identifies one round of the job.
type operationID struct {
	Index int             `json:"index"`
	Mode  collective.Mode `json:"mode"`
}

// rendezvous is the information about one rank that the other ranks need.
type rendezvous struct {
	PID     int    `json:"pid"`
	Address []byte `json:"address"`
	Input   []byte `json:"input,omitempty"`
	Output  []byte `json:"output,omitempty"`
	Work    []byte `json:"work,omitempty"`
	// Operations are the memory handles of the operations of a training job or of the exchanges of
	// a mixture of experts.
	Operations []collective.Memory[[]byte] `json:"operations,omitempty"`
	// Channels are the rank's ends of the channels, each with its memory, if the collective uses
	// several.
	Channels []rendezvous `json:"channels,omitempty"`
}

// losses are the bytes that an operation lost, at one rank or at all ranks.
type losses struct {
	operationID
	Losses []collective.Loss `json:"losses,omitempty"`
}

// lossy reports whether parts of sums may be left out.
func (c *workerConfig) lossy() bool { return c.RD.MayDrop() }

type operationDone struct {
	operationID
	Start   int64              `json:"start"`            // Unix time in ns
	Time    time.Duration      `json:"time"`             // in ns, for all operations that are timed together
	Waited  time.Duration      `json:"waited,omitempty"` // the part of Time spent waiting for other ranks
	Wrong   uint64             `json:"wrong"`
	Short   uint64             `json:"short,omitempty"` // elements that lack the contribution of a rank
	Before  collective.Traffic `json:"before,omitzero"` // for the operations before the timed ones
	Traffic collective.Traffic `json:"traffic"`
	// Own is the result of the kind of workload.
	Own json.RawMessage `json:"own,omitempty"`
}

type workerFinished struct {
	Channels    []workerFinished   `json:"channels,omitempty"` // one per channel, if there are several
	Stream      collective.Traffic `json:"stream"`
	Flows       []Flow             `json:"flows,omitempty"`
	DeviceBound bool               `json:"device_bound"`
	Engines     int                `json:"engines,omitempty"` // only for rd
	QueuePairs  *QueuePairs        `json:"queue_pairs,omitempty"`
	Pace        *Pace              `json:"pace,omitempty"` // only for rd
	Life        uint64             `json:"life,omitempty"` // only for rd
}

type workerFailed struct {
	Error string `json:"error"`
	// Peer is true if this rank failed because another rank ended.
	Peer bool `json:"peer,omitempty"`
}

// readMessage reads the next message. It skips frames of other types, which are for other users of
// the same channel.
func readMessage(r *frame.Reader) (*message, error) {
	for {
		kind, payload, err := r.Read()
		if err != nil {
			return nil, err
		}
		if kind != frame.Message {
			continue
		}
		m := &message{}
		if err := json.Unmarshal(payload, m); err != nil {
			return nil, fmt.Errorf("decode message of %d bytes: %w", len(payload), err)
		}
		return m, nil
	}
}

// channel carries the messages between a worker and the coordinator, which each hold one end. Close
// must end a Read that is waiting.
type channel = io.ReadWriteCloser
