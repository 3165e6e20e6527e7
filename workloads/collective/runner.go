package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"railbed/internal/element"
	"railbed/plan/schedule"
	"railbed/transports"
)

// Memory is a rank's memory, or the handles by which others write to it.
type Memory[T any] struct{ Input, Output, Work T }

func (m *Memory[T]) of(b schedule.Buffer) T {
	return [...]T{m.Input, m.Output, m.Work}[b]
}

// RunnerConfig is one rank's place in an algorithm and its memory.
type RunnerConfig struct {
	Endpoint  transports.Endpoint
	Algorithm Algorithm
	Rank      int
	// Names are the ranks' numbers in errors, by rank; nil uses the ranks themselves.
	Names []int
	// Peers are the endpoint's peers, by rank. The entries of ranks that exchange nothing with this
	// rank are unused.
	Peers []transports.Peer
	// Memory has the lengths that the algorithm gives, and is aligned to elements. Memory that is not
	// empty must be registered for remote writing.
	Memory Memory[[]byte]
	// Handles are the handles of the other ranks' memory, by rank.
	Handles []Memory[[]byte]
	// Steps records the times of the steps. Nil records nothing.
	Steps *StepLog
}

// Runner performs the operations of an algorithm at one rank. Each slice of the chunks goes through
// all steps independently: a step runs as soon as the steps before it are done for that slice and
// its message has arrived. So transfer, reduction and the algorithm's rounds overlap.
//
// A Runner needs the endpoint for itself and is not safe for concurrent use. After an error it must
// not be used any more.
type Runner struct {
	driver  driver
	config  RunnerConfig
	traits  traits
	rankOf  map[transports.Peer]int
	takers  []int // ranks to which this rank sends
	modes   [2]modeActions
	peers   []runnerPeer
	current uint32                  // operations begun
	early   []transports.Completion // received messages of the next operation, if messages are eager
	ahead   ahead
	run     progress
	lost    []Loss // of the latest operation
}

// modeActions is the part of a runner that depends on the mode.
type modeActions struct {
	actions []action
	behind  [][]int // By action, the actions that wait for it.
	unsent  [][]int // By action, the actions that wait until its message is complete.
	waits   []int   // By action, the number of actions, messages and completions that it waits for.
	sends   int     // The number of messages that the rank sends.
	sent    int     // The number of bytes in these messages.
}

// runnerPeer is a runner's state about another rank.
type runnerPeer struct {
	takes     bool                 // It is one of the takers.
	first     int                  // The index of its message 0 among the actions.
	permitted uint32               // The latest operation in which it may send.
	cleared   uint32               // Operations for which its memory is ready.
	held      []transports.Request // Requests held until then.
}

// progress is the state of one operation.
type progress struct {
	mode  *modeActions
	waits []int  // remaining waits, like those of the mode
	came  []bool // received messages, by action
	ready []int  // actions that can run
	left  int    // actions that are not done
	// number of requests posted, pending or held, except those in ahead, plus ranks that are not
	// ready yet
	outstanding int
	unsent      int  // messages still to send
	first       bool // the runner's first operation
	ahead       bool // the operation does not wait for its sent messages
	traffic     Traffic
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

// leaveID is the ID of a request that only announces that this rank is ready.
const leaveID = ^uint64(0)

var errUnexpected = errors.New("unexpected message")

// NewRunner checks the configuration and returns the runner.
func NewRunner(config RunnerConfig) (*Runner, error) {
	t, rank := config.Algorithm.traits(), config.Rank
	if rank < 0 || rank >= t.ranks || len(config.Peers) != t.ranks || len(config.Handles) != t.ranks {
		return nil, fmt.Errorf("make runner: rank %d with %d peers and handles of %d ranks, want rank 0 "+
			"to %d, and %d of each", rank, len(config.Peers), len(config.Handles), t.ranks-1, t.ranks)
	}
	lengths := config.Algorithm.Lengths(rank)
	for _, b := range []schedule.Buffer{schedule.Input, schedule.Output, schedule.Scratch} {
		want := lengths.of(b)
		if memory := config.Memory.of(b); len(memory) != want || !element.Aligned(t.data, memory) {
			return nil, fmt.Errorf("make runner: buffer %d of rank %d has %d bytes, want %d, aligned to "+
				"elements", b, rank, len(memory), want)
		}
	}
	r := &Runner{config: config, traits: t, rankOf: map[transports.Peer]int{},
		peers: make([]runnerPeer, t.ranks)}
	r.driver = driver{endpoint: config.Endpoint, rank: rankIn(r.rankOf), names: config.Names}
	for _, other := range config.Algorithm.Partners(rank) {
		r.rankOf[config.Peers[other]] = other
	}
	most := 0
	for _, mode := range t.modes {
		r.prepare(mode)
		most = max(most, len(r.modes[mode].actions))
	}
	r.run = progress{waits: make([]int, 0, most), came: make([]bool, 0, most), ready: make([]int, 0, most)}
	return r, nil
}

// prepare lists the actions of a mode. The log has the steps of the first mode.
func (r *Runner) prepare(mode Mode) {
	m := &r.modes[mode]
	threads := r.config.Algorithm.actions(r.config.Rank, mode,
		func(a action) { m.actions = append(m.actions, a) })
	parts := make([]int, total(threads))
	m.behind, m.unsent = make([][]int, len(m.actions)), make([][]int, len(m.actions))
	for i := range m.actions {
		a := &m.actions[i]
		wait := len(a.after) + len(a.unsent)
		for _, before := range a.after {
			m.behind[before] = append(m.behind[before], i)
		}
		for _, send := range a.unsent {
			m.unsent[send] = append(m.unsent[send], i)
		}
		switch {
		case a.op == schedule.Send:
			if peer := &r.peers[a.peer]; !peer.takes {
				peer.takes = true
				r.takers = append(r.takers, a.peer)
			}
			if a.message {
				m.sends++
			}
			a.copied = m.sent
			m.sent += a.source.len()
		case takes(a.op) && a.message:
			r.peers[a.peer].first = i - int(a.imm)
			wait++
		}
		m.waits = append(m.waits, wait)
		for _, step := range []int{a.taken, a.arrived} {
			if step != noStep {
				parts[step]++
			}
		}
	}
	if mode == r.traits.modes[0] {
		for _, steps := range threads {
			r.config.Steps.Add(parts[:steps]...)
			parts = parts[steps:]
		}
	}
}

// Buffer returns the rank's input or output in a mode, and the index of its first element in the
// whole buffer.
func (r *Runner) Buffer(mode Mode, b schedule.Buffer) (memory []byte, from int) {
	p, from := r.config.Algorithm.buffer(r.config.Rank, mode, b)
	return r.memory(p), from
}

func (r *Runner) memory(p place) []byte { return r.config.Memory.of(p.buffer)[p.from:p.to] }

// Lost returns the losses of the latest operation at this rank. It is valid until the next
// operation.
func (r *Runner) Lost() []Loss { return r.lost }

// Run performs one operation. All ranks must call Run or RunAhead equally often, with the same
// modes. Run returns when this rank has its result and everything that it ever sent has arrived.
func (r *Runner) Run(ctx context.Context, mode Mode) (Traffic, error) {
	return r.operate(ctx, mode, false)
}

// RunAhead is like Run, but may return when this rank has its result while its messages are still
// in transit, as a send of MPI may. The buffers are then free. A last Run must follow. The gain is
// that consecutive short operations need no replies.
func (r *Runner) RunAhead(ctx context.Context, mode Mode) (Traffic, error) {
	return r.operate(ctx, mode, r.traits.eager)
}

func (r *Runner) operate(ctx context.Context, mode Mode, ahead bool) (Traffic, error) {
	if !slices.Contains(r.traits.modes, mode) {
		return Traffic{}, fmt.Errorf("%s by %s %v: the algorithm works only out of place", r.traits.kind,
			r.traits.algorithm, mode)
	}
	if err := r.begin(ctx, mode, ahead); err != nil {
		return r.run.traffic, r.failed(mode, err)
	}
	r.work()
	for r.run.left > 0 || r.run.outstanding > 0 || !ahead && r.ahead.outstanding > 0 {
		if err := r.driver.turn(ctx, r.advance); err != nil {
			return r.run.traffic, r.failed(mode, err)
		}
	}
	for len(r.driver.pending) > 0 { // post the last messages; the operation does not wait for their arrival
		if err := r.driver.post(ctx, r.handle); err != nil {
			return r.run.traffic, r.failed(mode, err)
		}
	}
	return r.run.traffic, nil
}

func (r *Runner) failed(mode Mode, err error) error {
	return fmt.Errorf("%v %s %d on rank %d: %w", mode, r.traits.kind, r.current,
		r.driver.name(r.config.Rank), err)
}

func (r *Runner) begin(ctx context.Context, mode Mode, ahead bool) error {
	r.current = (r.current + 1) % sequences
	r.config.Steps.Begin()
	r.driver.pending, r.lost = r.driver.pending[:0], r.lost[:0]
	o, m := &r.run, &r.modes[mode]
	count := len(m.actions)
	*o = progress{mode: m, waits: append(o.waits[:0], m.waits...), came: o.came[:count], ready: o.ready[:0],
		left: count, unsent: m.sends, first: o.mode == nil, ahead: ahead}
	clear(o.came)
	for i := count - 1; i >= 0; i-- { // the last action in the list runs first
		if o.waits[i] == 0 {
			o.ready = append(o.ready, i)
		}
	}
	if ahead {
		if err := r.makeRoom(ctx); err != nil {
			return err
		}
	}
	if r.traits.eager && !o.first {
		for _, rank := range r.takers {
			r.peers[rank].cleared = r.current
		}
		came := r.early
		r.early = r.early[:0]
		for _, c := range came {
			if err := r.receive(r.rankOf[c.Peer], c); err != nil {
				return err
			}
		}
		return nil
	}
	// A rank announces that it is ready even if it receives nothing, and no announcement of an
	// operation may be outstanding when the operation ends.
	for _, rank := range r.takers {
		if !reached(r.peers[rank].cleared, r.current) {
			o.outstanding++
		}
	}
	return nil
}

// turn returns the turn bit of eager messages in the current operation.
func (r *Runner) turn() uint32 {
	if !r.traits.eager {
		return 0
	}
	return r.current & 1 * eagerTurn
}

// landed returns where the message of an action lands in the current operation.
func (r *Runner) landed(a *action) place {
	p := a.landed
	if r.turn() != 0 {
		p.from, p.to = p.from+a.turn, p.to+a.turn
	}
	return p
}

// work runs the actions that can run.
func (r *Runner) work() {
	for len(r.run.ready) > 0 {
		last := len(r.run.ready) - 1
		i := r.run.ready[last]
		r.run.ready = r.run.ready[:last]
		r.do(i)
	}
}

// do runs one action.
func (r *Runner) do(i int) {
	a := &r.run.mode.actions[i]
	switch a.op {
	case permit:
		r.permit(a.peer)
	case schedule.Send:
		if a.message {
			r.send(i, a)
		} else {
			r.sent(i)
		}
	case schedule.Receive:
		if landed := r.landed(a); landed != a.target {
			copy(r.memory(a.target), r.memory(landed))
		}
	case schedule.Combine:
		r.combine(a, r.memory(r.landed(a)), r.memory(a.source))
	case schedule.Accumulate:
		r.combine(a, r.memory(a.source), r.memory(a.target))
	case schedule.Copy:
		if a.source != a.target {
			copy(r.memory(a.target), r.memory(a.source))
		}
	}
	r.run.left--
	r.config.Steps.Done(a.taken)
	r.release(r.run.mode.behind[i])
}

func (r *Runner) combine(a *action, came, has []byte) {
	target := r.memory(a.target)
	for _, c := range a.combine {
		c.combine(target[c.from:c.to], came[c.from:c.to], has[c.from:c.to])
	}
}

// release removes one of the conditions for which actions wait.
func (r *Runner) release(actions []int) {
	for _, i := range actions {
		r.meet(i)
	}
}

// meet removes one of the conditions for which an action waits.
func (r *Runner) meet(i int) {
	if r.run.waits[i]--; r.run.waits[i] == 0 {
		r.run.ready = append(r.run.ready, i)
	}
}

// permit lets a rank write here from now on: the memory that it writes to holds no needed data. The first
// permission for eager messages is for all operations.
func (r *Runner) permit(rank int) {
	r.peers[rank].permitted = r.current
	if r.traits.eager && !r.run.first {
		return
	}
	r.run.outstanding++
	r.driver.pending = append(r.driver.pending, transports.Request{ID: leaveID, Op: transports.OpWriteImm,
		Peer: r.config.Peers[rank], Imm: clearToSend | r.current})
}

// send posts a message, or holds it until its receiver is ready. If the message is a result that the
// rank received, it may be overwritten with the same result before it is complete.
func (r *Runner) send(i int, a *action) {
	remote := r.landed(a)
	r.run.unsent--
	request := transports.Request{
		ID: uint64(i), Op: transports.OpWriteImm, Peer: r.config.Peers[a.peer],
		Local: r.memory(a.source), Remote: r.config.Handles[a.peer].of(remote.buffer),
		Offset: uint64(remote.from), Imm: a.imm | r.turn(), Droppable: a.droppable,
		Unsignaled: r.traits.lastSignaled && r.run.unsent > 0,
	}
	r.run.traffic.Sent += uint64(a.source.len())
	if r.run.ahead {
		r.ahead.take(&request, a, r.current)
		r.sent(i)
	} else {
		r.run.outstanding++
	}
	if peer := &r.peers[a.peer]; !reached(peer.cleared, r.current) {
		peer.held = append(peer.held, request)
		return
	}
	r.driver.pending = append(r.driver.pending, request)
}

// sent handles the completion of a message, after which its memory may change.
func (r *Runner) sent(i int) {
	r.config.Steps.Done(r.run.mode.actions[i].arrived)
	r.release(r.run.mode.unsent[i])
}

// advance handles a completion and runs the actions that can run then, so that messages travel on in the
// order in which they came.
func (r *Runner) advance(c transports.Completion) error {
	err := r.handle(c)
	r.work()
	return err
}

func (r *Runner) handle(c transports.Completion) error {
	rank, known := r.rankOf[c.Peer]
	switch {
	case c.Op != transports.OpReceive && c.ID != leaveID && c.ID&aheadID != 0:
		r.ahead.arrived(c.ID)
		return nil
	case c.Op != transports.OpReceive:
		if r.run.outstanding--; c.ID != leaveID {
			r.run.traffic.Sent -= uint64(c.Missing)
			r.sent(int(c.ID))
		}
		return nil
	case !known:
		return fmt.Errorf("%w: from peer %d, which belongs to no rank", errUnexpected, c.Peer)
	case c.Imm&clearToSend != 0:
		return r.clear(rank, c.Imm&^clearToSend)
	case r.traits.eager && c.Imm&eagerTurn != r.turn():
		if len(r.early) >= len(r.run.came) {
			return fmt.Errorf("%w: message %d from rank %d is of an operation too far ahead", errUnexpected,
				c.Imm, rank)
		}
		r.early = append(r.early, c)
		return nil
	}
	return r.receive(rank, c)
}

// clear records that another rank has begun an operation: the current one, or the following one if
// that rank is faster.
func (r *Runner) clear(rank int, sequence uint32) error {
	peer := &r.peers[rank]
	if !peer.takes || sequence != (peer.cleared+1)%sequences {
		return fmt.Errorf("rank %d is ready for operation %d, want %d", rank, sequence, peer.cleared+1)
	}
	peer.cleared = sequence
	if sequence == r.current {
		r.run.outstanding--
		r.driver.pending = append(r.driver.pending, peer.held...)
		clear(peer.held)
		peer.held = peer.held[:0]
	}
	return nil
}

// receive handles a received message.
func (r *Runner) receive(rank int, c transports.Completion) error {
	number, peer := int(c.Imm&^r.turn()), &r.peers[rank]
	i := peer.first + number
	if i >= len(r.run.came) || r.run.came[i] || !r.traits.eager && peer.permitted != r.current {
		return fmt.Errorf("%w: message %d from rank %d is unknown, or came twice, or without permission",
			errUnexpected, number, rank)
	}
	a := &r.run.mode.actions[i]
	if !takes(a.op) || !a.message || a.peer != rank {
		return fmt.Errorf("%w: rank %d sends no message %d", errUnexpected, rank, number)
	}
	if want := a.target.len(); c.Bytes+c.Missing != want || c.Missing > a.droppable {
		return fmt.Errorf("%w: message %d from rank %d has %d bytes, %d missing, want %d, of which at most "+
			"%d missing", errUnexpected, number, rank, c.Bytes, c.Missing, want, a.droppable)
	}
	r.lose(a, c.Holes)
	r.run.came[i] = true
	r.run.traffic.Received += uint64(c.Bytes)
	r.run.traffic.Missing += uint64(c.Missing)
	r.meet(i)
	return nil
}

// lose records the elements of a message that did not arrive completely, and sets them to 0.
func (r *Runner) lose(a *action, holes []transports.Hole) {
	if len(holes) == 0 {
		return
	}
	landed, size := r.memory(r.landed(a)), r.traits.data.Size()
	for _, h := range holes {
		from := h.Offset / size
		to := min((h.Offset+h.Bytes+size-1)/size, len(landed)/size)
		clear(landed[from*size : to*size])
		r.lost = append(r.lost, Loss{Rank: r.config.Rank, From: a.first + from, To: a.first + to})
	}
}
