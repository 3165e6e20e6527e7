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
	"railbed/plan/moe"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/transports/rd/privacy"
	"railbed/workloads/collective"
	"railbed/workloads/flows"
	"railbed/workloads/training"
)

// message is the JSON payload of one frame.Message. Exactly one field is set.
//
//	coordinator                      worker
//	  config            ->
//	                    <-  ready       endpoint and regions exist
//	  table             ->              everybody's, in order of rank
//	                    <-  prepared    \
//	  start             ->               \
//	                    <-  reduced       } for each round; these two only
//	  lost              ->               /  where parts of sums may be left out
//	                    <-  done        /
//	  end               ->              once every rank is done
//	                    <-  finished    the endpoint is closed
//
// At any time the coordinator sends alive, which the worker sends back at once, whatever
// it does.
//
// A worker that cannot go on sends failed and ends. A worker whose channel
// closes ends at once.
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

// workerConfig is everything that one worker is told.
type workerConfig struct {
	Job         string         `json:"job"`
	Kind        string         `json:"kind"`
	Algorithm   string         `json:"algorithm"`
	Transport   string         `json:"transport"`
	Root        int            `json:"root,omitempty"`
	Type        element.Type   `json:"type"`
	Op          element.Op     `json:"op"`
	Rank        int            `json:"rank"`
	Ranks       int            `json:"ranks"`
	NIC         string         `json:"nic,omitempty"`
	Unbound     bool           `json:"unbound,omitempty"` // its sockets, from NIC
	Addr        netip.Addr     `json:"addr"`
	Port        uint16         `json:"port"`
	SourcePorts []uint16       `json:"source_ports,omitempty"`
	Sizes       []units.Bytes  `json:"sizes"`
	Warmup      int            `json:"warmup,omitempty"`
	Iterations  int            `json:"iterations"`
	InPlace     bool           `json:"in_place,omitempty"`
	BusyPoll    bool           `json:"busy_poll,omitempty"`
	Together    bool           `json:"together,omitempty"`
	Checks      int            `json:"checks,omitempty"`
	PeerTimeout units.Duration `json:"peer_timeout,omitzero"`
	// SGD and what gradients are encrypted with are of a training.
	SGD       *spec.SGD        `json:"sgd,omitempty"`
	SGDSecret privacy.Material `json:"sgd_secret,omitempty"`
	// Channels are, of a collective in several, the ends of each.
	Channels []workerConfig `json:"channels,omitempty"`
	// Skew, Seed and the rank's Phases are of an all-to-all.
	Skew       int                `json:"skew,omitempty"`
	Seed       uint64             `json:"seed,omitempty"`
	Phases     []collective.Phase `json:"phases,omitempty"`
	Aggregator *aggregatorConfig  `json:"aggregator,omitempty"` // of algorithm in-network
	// MoE is of a mixture of experts, as Phases.
	MoE *moe.Config `json:"moe,omitempty"`
	// Training is the rank's part of a training job.
	Training *training.Program `json:"training,omitempty"`
	Messages *flows.Schedule   `json:"messages,omitempty"`
	// Chosen are the algorithms of Sizes, of algorithm auto.
	Chosen []string `json:"chosen,omitempty"`
	// Rails are of algorithm hierarchical, which auto may choose, and Schedule of msccl.
	Rails    schedule.Rails     `json:"rails,omitempty"`
	Schedule *schedule.Schedule `json:"schedule,omitempty"`
	// RD and RoCE are for these transports, and Rate and Overhead of the link, and
	// Dilation, for both.
	RoCE     *spec.RoCE       `json:"roce,omitempty"`
	Block    uint32           `json:"block,omitempty"` // of queue pairs, of roce
	RD       *spec.RD         `json:"rd,omitempty"`
	Secret   privacy.Material `json:"secret,omitempty"` // of rd, where it encrypts
	Rate     units.Rate       `json:"rate,omitempty"`
	Overhead int              `json:"overhead,omitempty"`
	Dilation uint64           `json:"dilation,omitempty"`
	// Rates are those at which it sends to other ranks, for control: offline.
	// RatesBack are for what comes back from experts, where that has its own.
	Rates     map[int]units.Rate `json:"rates,omitempty"`
	RatesBack map[int]units.Rate `json:"rates_back,omitempty"`
	// RoundTrip is how long a full packet and its acknowledgement take at most
	// where nobody else sends, as planned; 0 is not known.
	RoundTrip time.Duration `json:"round_trip,omitempty"`
	// Arbiter is where the arbiter of control: arbiter is, and SlotTime the length of
	// a slot in real time.
	Arbiter  netip.AddrPort `json:"arbiter,omitzero"`
	SlotTime time.Duration  `json:"slot_time,omitempty"`
}

// operationID names one round of the job.
type operationID struct {
	Index int             `json:"index"`
	Mode  collective.Mode `json:"mode"`
}

// rendezvous is what the other ranks need of one.
type rendezvous struct {
	PID     int    `json:"pid"`
	Address []byte `json:"address"`
	Input   []byte `json:"input,omitempty"`
	Output  []byte `json:"output,omitempty"`
	Work    []byte `json:"work,omitempty"`
	// Operations are the memory of a training job's or of a mixture's exchanges.
	Operations []collective.Memory[[]byte] `json:"operations,omitempty"`
	// Channels are the ends of a collective in several, each with its memory.
	Channels []rendezvous `json:"channels,omitempty"`
}

// losses are what an operation lost, at one rank or at all.
type losses struct {
	operationID
	Losses []collective.Loss `json:"losses,omitempty"`
}

// lossy says that parts of sums may be left out.
func (c *workerConfig) lossy() bool { return c.RD.MayDrop() }

type operationDone struct {
	operationID
	Start   int64              `json:"start"`            // Unix time in ns
	Time    time.Duration      `json:"time"`             // in ns, of all that are timed together
	Waited  time.Duration      `json:"waited,omitempty"` // of that, for other ranks
	Wrong   uint64             `json:"wrong"`
	Short   uint64             `json:"short,omitempty"` // elements that lack a part
	Before  collective.Traffic `json:"before,omitzero"` // of the operations before those that are timed
	Traffic collective.Traffic `json:"traffic"`
	// Spans are when a training job's tasks were under way, after Start, and Groups the
	// bytes that it sent in each group.
	Spans  []training.Span   `json:"spans,omitempty"`
	Groups map[string]uint64 `json:"groups,omitempty"`
	// SGD is what an iteration of a training taught.
	SGD *learningStep `json:"sgd,omitempty"`
	// MoE is of an operation of a mixture of experts.
	MoE *mixtureStep `json:"moe,omitempty"`
	// Sent are the messages that the rank sent, of a job of these.
	Sent []flows.Sent `json:"sent,omitempty"`
}

type workerFinished struct {
	Channels    []workerFinished   `json:"channels,omitempty"` // of several, each one's own
	Stream      collective.Traffic `json:"stream"`
	Flows       []Flow             `json:"flows,omitempty"`
	DeviceBound bool               `json:"device_bound"`
	Engines     int                `json:"engines,omitempty"` // of rd
	QueuePairs  *QueuePairs        `json:"queue_pairs,omitempty"`
	Pace        *Pace              `json:"pace,omitempty"` // of rd
	Life        uint64             `json:"life,omitempty"` // of rd
}

type workerFailed struct {
	Error string `json:"error"`
	// Peer says that another rank's end made this one fail.
	Peer bool `json:"peer,omitempty"`
}

// readMessage reads the next message. Frames of other types are skipped: they
// are for other users of the same channel.
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

// Channel carries the messages: one end is the worker's, the other the
// coordinator's. Close must end a Read that is waiting.
type Channel = io.ReadWriteCloser
