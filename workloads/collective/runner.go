package collective

import (
	"context"
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

// RunnerConfig is one rank's place in a program and its memory.
type RunnerConfig struct {
	Endpoint transports.Endpoint
	Program  *Program
	Rank     int
	// Names are the ranks' numbers in errors, by rank; nil uses the ranks themselves.
	Names []int
	// Peers are the endpoint's peers, by rank. The entries of ranks that exchange nothing with this
	// rank are unused.
	Peers []transports.Peer
	// Memory has the lengths that the program gives, times the size of an element, and is aligned
	// to that size. Program.Whole names the buffer of operations in place. Memory that is not empty
	// must be registered for remote writing.
	Memory Memory[[]byte]
	// Handles are the handles of the other ranks' memory, by rank.
	Handles []Memory[[]byte]
	// Steps records the times of the steps. Nil records nothing.
	Steps *StepLog
}

// Runner performs the operations of a program at one rank. Each slice of the chunks goes through
// all steps independently: a step runs as soon as the steps before it are done for that slice and
// its message has arrived. So transfer, reduction and the algorithm's rounds overlap.
//
// A Runner needs the endpoint for itself and is not safe for concurrent use. After an error it must
// not be used any more.
type Runner struct {
	driver  driver
	config  RunnerConfig
	rankOf  map[transports.Peer]int
	senders []int // ranks that send to this rank
	takers  []int // ranks to which this rank sends
	steps   int
	behind  [][]int // by step, the steps that wait for it
	modes   [2]modeSteps
	peers   []runnerPeer
	current uint32                  // operations begun
	early   []transports.Completion // received messages of the next operation, if messages are eager
	ahead   ahead
	run     progress
	logged  logged
}

// modeSteps is the part of a runner that depends on the mode. Lists of actions are by slice and
// step.
type modeSteps struct {
	actions []action
	waits   []int   // by action, the number of steps, messages and completions that it waits for
	unsent  [][]int // by step, the steps that wait until its message is complete
	sent    int     // bytes sent
}

// action is a step for one slice.
type action struct {
	op                     schedule.Op
	source, landed, target []byte
	turned                 []byte        // like landed, for every second operation of eager messages
	copied                 int           // offset in the operation's place in ahead
	combine                []combination // of a Combine
	message                bool          // it has a message; false for a slice without elements
	peer                   int
	offset, turn           uint64 // turn is added to offset in every second operation
	remote                 []byte
	imm                    uint32
}

// combination returns how the bytes [from, to) of an action are combined.
type combination struct {
	from, to int
	combine  element.Combine
}

// runnerPeer is a runner's state about another rank.
type runnerPeer struct {
	cleared uint32               // operations for which its memory is ready
	held    []transports.Request // requests held until then
}

// progress is the state of one operation.
type progress struct {
	mode  *modeSteps
	waits []int  // remaining waits, like those of the mode
	came  []bool // received messages, by slice and step
	ready []int  // actions that can run
	left  int    // actions that are not done
	// number of requests posted, pending or held, except those in ahead, plus ranks that are not
	// ready yet
	outstanding int
	ahead       bool // the operation does not wait for its sent messages
	traffic     Traffic
}

// leaveID is the ID of a request that only announces that this rank is ready.
const leaveID = ^uint64(0)

// NewRunner checks the configuration and returns the runner.
func NewRunner(config RunnerConfig) (*Runner, error) {
	p, rank := config.Program, config.Rank
	n := len(p.schedule.Ranks)
	if rank < 0 || rank >= n || len(config.Peers) != n || len(config.Handles) != n {
		return nil, fmt.Errorf("make runner: rank %d with %d peers and handles of %d ranks, want rank 0 "+
			"to %d, and %d of each", rank, len(config.Peers), len(config.Handles), n-1, n)
	}
	for _, b := range []schedule.Buffer{schedule.Input, schedule.Output, schedule.Scratch} {
		want := p.WorkLen(rank)
		if b != schedule.Scratch {
			from, to := p.Span(rank, b)
			want = to - from
		}
		if memory := config.Memory.of(b); len(memory) != want*p.data.Type.Size() ||
			!element.Aligned(p.data.Type, memory) {
			return nil, fmt.Errorf("make runner: buffer %d of rank %d has %d bytes, want %d, aligned to "+
				"elements", b, rank, len(memory), want*p.data.Type.Size())
		}
	}
	r := &Runner{config: config, rankOf: map[transports.Peer]int{}, steps: p.steps(rank),
		peers: make([]runnerPeer, n)}
	r.driver = driver{endpoint: config.Endpoint, rank: rankIn(r.rankOf), names: config.Names}
	for _, t := range p.schedule.Ranks[rank] {
		for i := range t.Steps {
			if !t.Steps[i].Op.Local() {
				r.rankOf[config.Peers[t.Steps[i].Peer]] = t.Steps[i].Peer
			}
			switch peer := t.Steps[i].Peer; {
			case takes(&t.Steps[i]) && !slices.Contains(r.senders, peer):
				r.senders = append(r.senders, peer)
			case t.Steps[i].Op == schedule.Send && !slices.Contains(r.takers, peer):
				r.takers = append(r.takers, peer)
			}
		}
	}
	r.link()
	r.log()
	for _, mode := range p.modes() {
		r.prepare(mode)
	}
	all := r.steps * p.slices
	r.run = progress{waits: make([]int, all), came: make([]bool, all), ready: make([]int, 0, all)}
	return r, nil
}

// Buffer returns the rank's input or output in a mode, and the index of its first element in the
// whole buffer.
func (r *Runner) Buffer(mode Mode, b schedule.Buffer) (memory []byte, from int) {
	p := r.config.Program
	from, to := p.Span(r.config.Rank, b)
	if from == to {
		return nil, from
	}
	return r.memory(p.place(r.config.Rank, mode, b, from, to)), from
}

// Run performs one operation. All ranks must call Run or RunAhead equally often, with the same
// modes. Run returns when this rank has its result and everything that it ever sent has arrived.
func (r *Runner) Run(ctx context.Context, mode Mode) (Traffic, error) {
	return r.operate(ctx, mode, false)
}

// RunAhead is like Run, but may return when this rank has its result while its messages are still
// in transit, as a send of MPI may. The buffers are then free. A last Run must follow. The gain is
// that consecutive short operations need no replies.
func (r *Runner) RunAhead(ctx context.Context, mode Mode) (Traffic, error) {
	return r.operate(ctx, mode, r.config.Program.eager)
}

func (r *Runner) operate(ctx context.Context, mode Mode, ahead bool) (Traffic, error) {
	if !slices.Contains(r.config.Program.modes(), mode) {
		return Traffic{}, fmt.Errorf("%s by %s %v: the algorithm works only out of place",
			r.config.Program.schedule.Kind, r.config.Program.schedule.Algorithm, mode)
	}
	if err := r.begin(ctx, mode, ahead); err != nil {
		return r.run.traffic, r.failed(mode, err)
	}
	r.work()
	for r.run.left > 0 || r.run.outstanding > 0 || !ahead && r.ahead.outstanding > 0 {
		if err := r.driver.turn(ctx, r.handle); err != nil {
			return r.run.traffic, r.failed(mode, err)
		}
		r.work()
	}
	for len(r.driver.pending) > 0 { // post the last messages; the operation does not wait for their arrival
		if err := r.driver.post(ctx, r.handle); err != nil {
			return r.run.traffic, r.failed(mode, err)
		}
	}
	return r.run.traffic, nil
}

func (r *Runner) failed(mode Mode, err error) error {
	return fmt.Errorf("%v %s %d on rank %d: %w", mode, r.config.Program.schedule.Kind, r.current,
		r.driver.name(r.config.Rank), err)
}

func (r *Runner) begin(ctx context.Context, mode Mode, ahead bool) error {
	first := r.run.mode == nil
	r.current = (r.current + 1) % sequences
	r.config.Steps.Begin()
	r.driver.pending = r.driver.pending[:0]
	o := &r.run
	o.mode, o.ready, o.left, o.outstanding, o.traffic, o.ahead = &r.modes[mode], o.ready[:0], len(o.waits), 0,
		Traffic{}, ahead
	clear(o.came)
	copy(o.waits, o.mode.waits)
	for i := len(o.waits) - 1; i >= 0; i-- { // the last action in the list runs first
		if o.waits[i] == 0 {
			o.ready = append(o.ready, i)
		}
	}
	if ahead {
		if err := r.makeRoom(ctx); err != nil {
			return err
		}
	}
	if r.config.Program.eager && !first {
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
	// From now on the others may write here: the memory that they write to holds no needed data.
	for _, rank := range r.senders {
		o.outstanding++
		r.driver.pending = append(r.driver.pending,
			transports.Request{ID: leaveID, Op: transports.OpWriteImm, Peer: r.config.Peers[rank],
				Imm: clearToSend | r.current})
	}
	return nil
}

// turn returns the turn bit of eager messages in the current operation.
func (r *Runner) turn() uint32 {
	if !r.config.Program.eager {
		return 0
	}
	return r.current & 1 * eagerTurn
}

// landed returns where the message of a step landed.
func (r *Runner) landed(a *action) []byte {
	if r.turn() != 0 {
		return a.turned
	}
	return a.landed
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
	step := i % r.steps
	switch a.op {
	case schedule.Send:
		if a.message {
			r.send(i, a)
		} else {
			r.sent(i)
		}
	case schedule.Receive:
		if landed := r.landed(a); len(a.target) > 0 && &landed[0] != &a.target[0] {
			copy(a.target, landed)
		}
	case schedule.Combine:
		landed := r.landed(a)
		for _, c := range a.combine {
			c.combine(a.target[c.from:c.to], landed[c.from:c.to], a.source[c.from:c.to])
		}
	case schedule.Accumulate:
		for _, c := range a.combine {
			c.combine(a.target[c.from:c.to], a.source[c.from:c.to], a.target[c.from:c.to])
		}
	case schedule.Copy:
		if len(a.target) > 0 && &a.source[0] != &a.target[0] {
			copy(a.target, a.source)
		}
	}
	r.run.left--
	r.config.Steps.Done(r.logged.taken[step])
	r.release(i-step, r.behind[step])
}

// release removes one of the conditions for which steps of a slice wait.
func (r *Runner) release(slice int, steps []int) {
	for _, step := range steps {
		if r.run.waits[slice+step]--; r.run.waits[slice+step] == 0 {
			r.run.ready = append(r.run.ready, slice+step)
		}
	}
}

func (r *Runner) send(i int, a *action) {
	request := transports.Request{
		ID: uint64(i), Op: transports.OpWriteImm, Peer: r.config.Peers[a.peer],
		Local: a.source, Remote: a.remote, Offset: a.offset, Imm: a.imm | r.turn(),
	}
	if r.turn() != 0 {
		request.Offset += a.turn
	}
	r.run.traffic.Sent += uint64(len(a.source))
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
	step := i % r.steps
	r.config.Steps.Done(r.logged.arrived[step])
	r.release(i-step, r.run.mode.unsent[step])
}

func (r *Runner) handle(c transports.Completion) error {
	rank, known := r.rankOf[c.Peer]
	switch {
	case c.Op != transports.OpReceive && c.ID != leaveID && c.ID&aheadID != 0:
		r.ahead.arrived(c.ID)
		return nil
	case c.Op != transports.OpReceive:
		if r.run.outstanding--; c.ID != leaveID {
			r.sent(int(c.ID))
		}
		return nil
	case !known:
		return fmt.Errorf("%w: from peer %d, which belongs to no rank", errUnexpected, c.Peer)
	case c.Imm&clearToSend != 0:
		return r.clear(rank, c.Imm&^clearToSend)
	case r.config.Program.eager && c.Imm&eagerTurn != r.turn():
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
	if sequence != (peer.cleared+1)%sequences {
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

// receive handles the received message of a step.
func (r *Runner) receive(rank int, c transports.Completion) error {
	i := int(c.Imm &^ r.turn())
	if i >= len(r.run.came) || r.run.came[i] {
		return fmt.Errorf("%w: message %d of %d from rank %d is unknown, or came twice", errUnexpected, i,
			len(r.run.came), rank)
	}
	a := &r.run.mode.actions[i]
	want := len(a.target)
	if a.op != schedule.Receive && a.op != schedule.Combine || !a.message || a.peer != rank ||
		c.Bytes != want || c.Missing != 0 {
		return fmt.Errorf("%w: message %d from rank %d has %d bytes, %d missing, want %v of %d from rank %d",
			errUnexpected, i, rank, c.Bytes, c.Missing, a.op, want, a.peer)
	}
	r.run.came[i] = true
	r.run.traffic.Received += uint64(c.Bytes)
	if r.run.waits[i]--; r.run.waits[i] == 0 {
		r.run.ready = append(r.run.ready, i)
	}
	return nil
}
