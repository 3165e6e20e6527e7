package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"time"

	"railbed/fabric/units"
	"railbed/testbed/frame"
	"railbed/testbed/spec"
	"railbed/transports/rd/privacy"
	"railbed/workloads/collective"
)

// message is the JSON payload of one frame.Message. Exactly one field is set.
//
//	coordinator                      worker
//	  config            ->
//	                    <-  ready       endpoint and regions exist
//	  table             ->              everybody's, in order of rank
//	                    <-  prepared    \
//	  start             ->               \
//	                    <-  reduced       } for each operation; these two only
//	  lost              ->               /  where parts of sums may be left out
//	                    <-  done        /
//	  end               ->              once every rank is done
//	                    <-  finished    the endpoint is closed
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
	Finished *workerFinished `json:"finished,omitempty"`
	Failed   *workerFailed   `json:"failed,omitempty"`
}

// workerConfig is everything that one worker is told.
type workerConfig struct {
	Job         string      `json:"job"`
	Kind        string      `json:"kind"`
	Algorithm   string      `json:"algorithm"`
	Transport   string      `json:"transport"`
	Rank        int         `json:"rank"`
	Ranks       int         `json:"ranks"`
	NIC         string      `json:"nic,omitempty"`
	Addr        netip.Addr  `json:"addr"`
	Port        uint16      `json:"port"`
	SourcePorts []uint16    `json:"source_ports,omitempty"`
	Size        units.Bytes `json:"size"`
	// PerMode operations are done out of place, then as many in place if
	// InPlace; they are numbered from 0 throughout.
	PerMode     int            `json:"per_mode"`
	InPlace     bool           `json:"in_place,omitempty"`
	PeerTimeout units.Duration `json:"peer_timeout,omitzero"`
	// Skew, Seed and the rank's Phases are of an all-to-all.
	Skew   int                `json:"skew,omitempty"`
	Seed   uint64             `json:"seed,omitempty"`
	Phases []collective.Phase `json:"phases,omitempty"`
	// RD and RoCE are for these transports, and Rate and Overhead of the link, and
	// Dilation, for both.
	RoCE     *spec.RoCE       `json:"roce,omitempty"`
	RD       *spec.RD         `json:"rd,omitempty"`
	Secret   privacy.Material `json:"secret,omitempty"` // of rd, where it encrypts
	Rate     units.Rate       `json:"rate,omitempty"`
	Overhead int              `json:"overhead,omitempty"`
	Dilation uint64           `json:"dilation,omitempty"`
	// Rates are those at which it sends to other ranks, for control: offline.
	Rates map[int]units.Rate `json:"rates,omitempty"`
	// RoundTrip is how long a full packet and its acknowledgement take at most
	// where nobody else sends, as planned; 0 is not known.
	RoundTrip time.Duration `json:"round_trip,omitempty"`
	// Arbiter is where the arbiter of control: arbiter is, and SlotTime the length of
	// a slot in real time.
	Arbiter  netip.AddrPort `json:"arbiter,omitzero"`
	SlotTime time.Duration  `json:"slot_time,omitempty"`
}

// operationID names one operation of the job.
type operationID struct {
	Index int             `json:"index"`
	Mode  collective.Mode `json:"mode"`
}

// operations is how many operations there are.
func (c *workerConfig) operations() int {
	if c.InPlace {
		return 2 * c.PerMode
	}
	return c.PerMode
}

func (c *workerConfig) operation(index int) operationID {
	if index >= c.PerMode {
		return operationID{Index: index, Mode: collective.InPlace}
	}
	return operationID{Index: index, Mode: collective.OutOfPlace}
}

// rendezvous is what the other ranks need of one.
type rendezvous struct {
	Address []byte `json:"address"`
	Input   []byte `json:"input,omitempty"`
	Output  []byte `json:"output,omitempty"`
	Work    []byte `json:"work,omitempty"`
}

// losses are what an operation lost, at one rank or at all.
type losses struct {
	operationID
	Losses []collective.Loss `json:"losses,omitempty"`
}

// lossy says that parts of sums may be left out.
func (c *workerConfig) lossy() bool { return c.RD != nil && !c.RD.Droppable.IsZero() }

type operationDone struct {
	operationID
	Start   int64              `json:"start"` // Unix time in ns
	Time    time.Duration      `json:"time"`  // in ns
	Wrong   uint64             `json:"wrong"`
	Short   uint64             `json:"short,omitempty"` // elements that lack a part
	Traffic collective.Traffic `json:"traffic"`
}

type workerFinished struct {
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
