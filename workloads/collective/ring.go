// Package collective implements the collective operations that Railbed's workers run, and the data
// by which their results are checked element by element. It uses the network only through
// transports.Endpoint.
package collective

import (
	"context"
	"errors"
	"fmt"

	"railbed/internal/units"
	"railbed/transports"
)

// Mode selects the memory from which an operation reads its input.
type Mode int

// Modes, in the terms of nccl-tests.
const (
	OutOfPlace Mode = iota // from Input to Output
	InPlace                // from Output to Output; Input is scratch
)

// String returns the mode as nccl-tests prints it above its columns.
func (m Mode) String() string {
	if m == InPlace {
		return "in-place"
	}
	return "out-of-place"
}

// RingConfig is one rank's place in a ring and its memory. Every rank must have the same Ranks and
// the same number of elements.
type RingConfig struct {
	Endpoint transports.Endpoint
	// Rank is 0..Ranks-1. Messages go to rank Rank+1, modulo Ranks.
	Rank, Ranks int
	// Names are the ranks' numbers in errors, by rank; nil uses the ranks themselves.
	Names []int
	// Next and Prev are the endpoint's peers for the next and previous ranks. With one rank they
	// are unused, and with two ranks they are the same.
	Next, Prev transports.Peer
	// Input and Output have the same length and must not overlap. Both must be registered with the
	// endpoint for remote writing.
	Input, Output []float32
	// NextInput and NextOutput are the handles of the next rank's Input and Output.
	NextInput, NextOutput []byte
	// Droppable is the share of each message's bytes that the transport may leave out of partial
	// sums, the same on all ranks. Missing elements count as 0, and the sum continues with this
	// rank's elements. Results always arrive completely, so that they are the same everywhere.
	Droppable units.Ratio
	// Scatter is set if each rank gets only the chunk of the sum that has its number, at that
	// chunk's position in Output. The rest of Output then has no defined content.
	Scatter bool
	// Steps records the times of the steps. Nil records nothing.
	Steps *StepLog
}

// Traffic counts payload bytes.
type Traffic struct {
	Sent     uint64 `json:"sent"`     // in messages that have arrived at the next rank
	Received uint64 `json:"received"` // in messages from the previous rank
	// Missing is the number of bytes left out of those messages, as Droppable allows.
	Missing uint64 `json:"missing,omitempty"`
}

// Add adds other traffic.
func (t *Traffic) Add(other Traffic) {
	t.Sent += other.Sent
	t.Received += other.Received
	t.Missing += other.Missing
}

// Ring performs all-reduces around a ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", 2009): n-1 steps of reduce-scatter, then n-1 of
// all-gather. Each chunk is cut into slices that are sent independently. A slice is reduced and
// sent on as soon as it arrives, while others are on the wire.
//
// A Ring needs the endpoint for itself and is not safe for concurrent use. After an error it must
// not be used any more.
type Ring struct {
	driver driver
	config RingConfig
	layout layout
	// sends and receives are the numbers of messages of an operation.
	sends, receives int
	cleared         uint32 // operations for which the next rank's memory is ready
	current         uint32 // operations begun
	run             operation
}

// operation is the state of one all-reduce.
type operation struct {
	mode        Mode
	held        []transports.Request // requests held until the next rank is ready
	seen        []bool               // by message number
	started     bool                 // the next rank is ready
	outstanding int                  // requests posted or pending
	unsent      int                  // messages still to send
	missing     int                  // messages still to receive
	traffic     Traffic
	lost        []Loss
}

// Immediate data holds a message's number within the operation. With the bit clearToSend it permits
// the receiver to write into the sender's memory for the operation with that sequence number,
// modulo 2^20, which leaves room for other bits.
const (
	clearToSend = 1 << 31
	sequences   = 1 << 20
)

// reached reports whether a rank that has permitted one operation has also permitted another. A
// rank that needs nothing from this rank may be many operations ahead.
func reached(cleared, operation uint32) bool { return (cleared-operation)%sequences < sequences/2 }

// NewRing checks the configuration and returns the ring.
func NewRing(config RingConfig) (*Ring, error) {
	if config.Ranks < 1 || config.Rank < 0 || config.Rank >= config.Ranks {
		return nil, fmt.Errorf("make ring: rank is %d of %d ranks, want 0 to ranks - 1", config.Rank,
			config.Ranks)
	}
	if len(config.Input) != len(config.Output) {
		return nil, fmt.Errorf("make ring: input of %d elements, output of %d, want the same",
			len(config.Input), len(config.Output))
	}
	l := newLayout(config.Ranks, len(config.Input), floatSize)
	l.scatter = config.Scatter
	messages := l.steps() * l.slices
	if messages >= clearToSend {
		return nil, fmt.Errorf("make ring: %d messages per operation, limit %d", messages, clearToSend-1)
	}
	r := &Ring{config: config, layout: l, run: operation{seen: make([]bool, messages)}}
	received := l.messages(r.prev())
	config.Steps.Add(received...)
	r.sends, r.receives = total(l.messages(config.Rank)), total(received)
	r.driver = driver{endpoint: config.Endpoint, rank: r.rank, names: config.Names}
	return r, nil
}

// Result returns the elements of Output that hold the result.
func (r *Ring) Result() (from, to int) {
	if r.config.Scatter {
		return r.layout.bounds(r.config.Rank)
	}
	return 0, len(r.config.Output)
}

// Wrong counts the elements of the result that differ from the sum of a pattern, less the losses of
// all ranks. short counts the elements that lack a part of the sum.
func (r *Ring) Wrong(p *Pattern, iteration int, lost []Loss) (wrong, short uint64) {
	from, to := r.Result()
	return p.wrongBut(r.layout, r.config.Output[from:to], from, iteration, lost)
}

// AllReduce sums the ranks' elements into every rank's Output, or its Result. All ranks must call
// it equally often, with the same modes. It returns when this rank has the result and everything
// that it sent has arrived.
func (r *Ring) AllReduce(ctx context.Context, mode Mode) (Traffic, error) {
	r.begin(mode)
	if r.config.Ranks == 1 {
		if mode == OutOfPlace {
			copy(r.config.Output, r.config.Input)
		}
		return Traffic{}, nil
	}
	for r.run.missing > 0 || r.run.outstanding > 0 || !r.run.started {
		if err := r.driver.turn(ctx, r.handle); err != nil {
			return r.run.traffic, fmt.Errorf("%v all-reduce %d on rank %d: %w", mode, r.current,
				r.driver.name(r.config.Rank), err)
		}
	}
	return r.run.traffic, nil
}

func (r *Ring) begin(mode Mode) {
	r.current = (r.current + 1) % sequences
	r.config.Steps.Begin()
	o := &r.run
	clear(o.seen)
	r.driver.pending = r.driver.pending[:0]
	*o = operation{mode: mode, held: o.held[:0], seen: o.seen, lost: o.lost[:0]}
	if r.config.Ranks == 1 {
		return
	}
	o.unsent, o.missing = r.sends, r.receives
	for slice := range r.layout.slices {
		r.send(0, slice)
	}
	// From now on the previous rank may write here: Output, or Input if it is scratch, holds no
	// data that this rank needs.
	o.outstanding++
	r.driver.pending = append(r.driver.pending,
		transports.Request{Op: transports.OpWriteImm, Peer: r.config.Prev, Imm: clearToSend | r.current})
	r.start() // the next rank may have permitted already
}

func (r *Ring) prev() int { return (r.config.Rank + r.config.Ranks - 1) % r.config.Ranks }
func (r *Ring) next() int { return (r.config.Rank + 1) % r.config.Ranks }

// rank returns the rank of a peer.
func (r *Ring) rank(p transports.Peer) (rank int, known bool) {
	if p == r.config.Prev {
		return r.prev(), true
	}
	return r.next(), p == r.config.Next
}

// send posts one slice of the chunk that this rank sends in a step. Partial sums go to the memory
// in which the next rank reduces them, and results to its output.
func (r *Ring) send(step, slice int) {
	from, to := r.layout.part(r.layout.sends(r.config.Rank, step), slice)
	if from == to {
		return
	}
	source, remote := r.config.Output, r.config.NextOutput
	if step == 0 && r.run.mode == OutOfPlace {
		source = r.config.Input
	}
	if step < r.config.Ranks-1 && r.run.mode == InPlace {
		remote = r.config.NextInput
	}
	r.run.outstanding++
	request := transports.Request{
		Op:     transports.OpWriteImm,
		Peer:   r.config.Next,
		Local:  Bytes(source[from:to]),
		Remote: remote,
		Offset: uint64(from) * floatSize,
		Imm:    uint32(step*r.layout.slices + slice),
	}
	// Only the last message of an operation needs a completion.
	r.run.unsent--
	request.Unsignaled = r.run.unsent > 0
	request.Droppable = r.droppable(step, len(request.Local))
	if !r.run.started {
		r.run.held = append(r.run.held, request)
		return
	}
	r.driver.pending = append(r.driver.pending, request)
}

func (r *Ring) handle(c transports.Completion) error {
	switch {
	case c.Op != transports.OpReceive:
		r.run.outstanding--
		r.run.traffic.Sent += uint64(c.Bytes)
		return nil
	case c.Imm&clearToSend != 0:
		return r.clear(c)
	}
	return r.receive(c)
}

// clear records that the next rank has begun an operation: the current one, or the following one if
// the next rank is faster.
func (r *Ring) clear(c transports.Completion) error {
	sequence := c.Imm &^ clearToSend
	if c.Peer != r.config.Next || sequence != (r.cleared+1)%sequences {
		return fmt.Errorf("peer %d is ready for operation %d, want peer %d for %d", c.Peer, sequence,
			r.config.Next, r.cleared+1)
	}
	r.cleared = sequence
	r.start()
	return nil
}

// start posts the requests that were held for the next rank, once that rank is ready.
func (r *Ring) start() {
	if r.run.started || !reached(r.cleared, r.current) {
		return
	}
	r.run.started = true
	r.driver.pending = append(r.driver.pending, r.run.held...)
	clear(r.run.held)
	r.run.held = r.run.held[:0]
}

var errUnexpected = errors.New("unexpected message")

// receive handles one received slice. It adds this rank's elements to a partial sum, and sends the
// slice on if it must travel further.
func (r *Ring) receive(c transports.Completion) error {
	number := int(c.Imm)
	if c.Peer != r.config.Prev || number >= len(r.run.seen) || r.run.seen[number] {
		return fmt.Errorf("%w: message %d of %d from peer %d is unknown, or came twice", errUnexpected,
			number, len(r.run.seen), c.Peer)
	}
	step, slice := number/r.layout.slices, number%r.layout.slices
	from, to := r.layout.part(r.layout.sends(r.prev(), step), slice)
	size := (to - from) * floatSize
	if c.Bytes+c.Missing != size || size == 0 || c.Missing > r.droppable(step, size) {
		return fmt.Errorf("%w: message %d has %d bytes, %d missing, want %d, of which at most %d missing",
			errUnexpected, number, c.Bytes, c.Missing, size, r.droppable(step, size))
	}
	r.run.seen[number] = true
	r.run.missing--
	r.run.traffic.Received += uint64(c.Bytes)
	r.run.traffic.Missing += uint64(c.Missing)
	if step < r.config.Ranks-1 {
		landing, own := r.config.Output, r.config.Input
		if r.run.mode == InPlace {
			landing, own = r.config.Input, r.config.Output
		}
		r.lose(c.Holes, landing[:to], from)
		sum(Bytes(r.config.Output[from:to]), Bytes(landing[from:to]), Bytes(own[from:to]))
	}
	if step+1 < r.layout.steps() {
		// The previous rank may overwrite the memory sent here with the final result before the
		// endpoint reports this message complete. That is harmless: the result exists only because
		// the next rank has this message, and a message is placed once.
		r.send(step+1, slice)
	}
	r.config.Steps.Done(step)
	return nil
}
