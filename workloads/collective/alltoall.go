package collective

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"railbed/internal/element"
	"railbed/transports"
)

// Phase lists the ranks to which a rank sends at the same time, and the ranks from which it
// receives then.
type Phase struct {
	To   []int `json:"to,omitempty"`
	From []int `json:"from,omitempty"`
}

// Direct returns one phase in which a rank sends to all others at once, as ncclAlltoAll does. It
// begins with the next rank, so that the ranks do not all begin with the same receiver.
func Direct(rank, ranks int) []Phase {
	var all Phase
	for _, p := range Pairwise(rank, ranks) {
		all.To, all.From = append(all.To, p.To...), append(all.From, p.From...)
	}
	return []Phase{all}
}

// Pairwise returns ranks - 1 phases. In each phase a rank sends to one rank and receives from one
// rank: in phase p to rank + p and from rank - p, modulo ranks. This is MPI's pairwise exchange
// (Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
// 2005).
func Pairwise(rank, ranks int) []Phase {
	var phases []Phase
	for p := 1; p < ranks; p++ {
		phases = append(phases, Phase{To: []int{(rank + p) % ranks}, From: []int{(rank - p + ranks) % ranks}})
	}
	return phases
}

// AllToAllConfig is one rank's place in an all-to-all and its memory. Every rank must have the same
// Matrix, and matching phases: if a rank sends to another in a phase, the other receives from it in
// one of its phases.
type AllToAllConfig struct {
	Endpoint transports.Endpoint
	Rank     int
	// Matrix is the number of elements that each rank sends to each other; it has a row for each rank.
	Matrix Matrix
	// Phases are in order. Each other rank occurs once in their To and once in their From.
	Phases []Phase
	// Names are the ranks' numbers in errors, by rank; nil uses the ranks themselves.
	Names []int
	// Peers are the endpoint's peers, by rank. The entry of this rank is unused.
	Peers []transports.Peer
	// Type is the elements' type, element.Float32 by default.
	Type element.Type
	// Input and Output have the lengths that the matrix gives and must not overlap. Output must be
	// registered with the endpoint for remote writing.
	Input, Output []byte
	// Channel selects the part of each block that this operation sends.
	Channel Channel
	// Outputs are the handles of the other ranks' outputs, by rank.
	Outputs [][]byte
	// Steps records the times of the phases. Nil records nothing.
	Steps *StepLog
}

// AllToAll sends a block from each rank to each rank. A rank enters its next phase when it has
// received all blocks of the current phase and all its sent blocks have arrived. Only then does it
// permit the senders of the next phase to send. So if the phases are matchings, a rank never
// receives from two ranks at once, however far the ranks are apart in the phases.
//
// An AllToAll needs the endpoint for itself and is not safe for concurrent use. After an error it
// must not be used any more.
type AllToAll struct {
	driver  driver
	config  AllToAllConfig
	rankOf  map[transports.Peer]int
	blocks  []block // by rank
	current uint32  // number of operations begun
	run     exchange
}

// block is a rank's state about another rank.
type block struct {
	in, out  int    // bytes received and sent
	at       int    // received block's offset
	from     int    // sent block's offset
	lands    uint64 // offset in the other's Output
	seen     []bool // received slices
	expected bool   // the other may send
	waits    bool   // for permission to send
	cleared  uint32 // latest permitted operation
}

// exchange is the state of one operation.
type exchange struct {
	phase       int
	outstanding int // requests posted or pending
	sending     int // slices of the phase whose sending has not completed
	receiving   int // slices of the phase that are not received
	traffic     Traffic
}

// blockSlices returns the number of messages of a block of the given number of bytes.
func blockSlices(bytes int) int { return (bytes + sliceBytes - 1) / sliceBytes }

// slicePart returns the bounds of a slice in a block of the given number of bytes.
func slicePart(bytes, slice int) (from, to int) {
	return slice * sliceBytes, min((slice+1)*sliceBytes, bytes)
}

// NewAllToAll checks the configuration and returns the operation.
func NewAllToAll(config AllToAllConfig) (*AllToAll, error) {
	m, rank := config.Matrix, config.Rank
	problem := func(format string, args ...any) (*AllToAll, error) {
		return nil, fmt.Errorf("make all-to-all: "+format, args...)
	}
	if rank < 0 || rank >= len(m) {
		return problem("rank is %d, want 0 to %d", rank, len(m)-1)
	}
	for from, row := range m {
		if len(row) != len(m) {
			return problem("rank %d has elements for %d ranks, want %d", from, len(row), len(m))
		}
	}
	size := cmp.Or(config.Type, element.Float32).Size()
	if size == 0 {
		return problem("unknown type %s", config.Type)
	}
	if len(config.Input) != size*m.InputLen(rank) || len(config.Output) != size*m.OutputLen(rank) {
		return problem("input of %d bytes, output of %d, want %d and %d", len(config.Input),
			len(config.Output), size*m.InputLen(rank), size*m.OutputLen(rank))
	}
	if len(m) > 1 && (len(config.Peers) != len(m) || len(config.Outputs) != len(m)) {
		return problem("%d peers and %d outputs, want %d of each", len(config.Peers), len(config.Outputs),
			len(m))
	}
	if err := checkPhases(config.Phases, rank, len(m)); err != nil {
		return problem("%w", err)
	}
	config.Steps.Add(slices.Repeat([]int{1}, len(config.Phases))...)
	a := &AllToAll{config: config, rankOf: make(map[transports.Peer]int), blocks: make([]block, len(m))}
	a.driver = driver{endpoint: config.Endpoint, rank: rankIn(a.rankOf), names: config.Names}
	for other := range m {
		at, to := config.Channel.Part(0, m[other][rank])
		from, behind := config.Channel.Part(0, m[rank][other])
		a.blocks[other] = block{
			in:    size * (to - at),
			out:   size * (behind - from),
			at:    size * (m.output(other, rank) + at),
			from:  size * (m.input(rank, other) + from),
			lands: uint64(size * (m.output(rank, other) + from)),
			seen:  make([]bool, blockSlices(size*(to-at))),
		}
		if other != rank {
			a.rankOf[config.Peers[other]] = other
		}
	}
	return a, nil
}

// checkPhases checks that each other rank is in the phases once in each direction.
func checkPhases(phases []Phase, rank, ranks int) error {
	to, from := make([]int, ranks), make([]int, ranks)
	for i, p := range phases {
		for _, way := range []struct {
			ranks []int
			count []int
		}{{p.To, to}, {p.From, from}} {
			for _, r := range way.ranks {
				if r < 0 || r >= ranks {
					return fmt.Errorf("phase %d has rank %d, want 0 to %d", i, r, ranks-1)
				}
				way.count[r]++
			}
		}
	}
	for r := range ranks {
		want := 1
		if r == rank {
			want = 0
		}
		if to[r] != want || from[r] != want {
			return fmt.Errorf("rank %d sends %d times to rank %d and receives %d times, want %d", rank, to[r],
				r, from[r], want)
		}
	}
	return nil
}

// Exchange performs one all-to-all from Input to Output. All ranks must call it equally often. It
// returns when this rank has received all its blocks and all its sent blocks have arrived. There is
// no exchange in place: received data would overwrite data that is still to be sent.
func (a *AllToAll) Exchange(ctx context.Context) (Traffic, error) {
	a.current = (a.current + 1) % sequences
	a.config.Steps.Begin()
	a.run = exchange{phase: -1}
	for i := range a.blocks {
		b := &a.blocks[i]
		clear(b.seen)
		b.expected, b.waits = false, false
	}
	own := &a.blocks[a.config.Rank]
	copy(a.config.Output[own.at:own.at+own.in], a.config.Input[own.from:])
	a.advance()
	for a.run.phase < len(a.config.Phases) || a.run.outstanding > 0 {
		if err := a.driver.turn(ctx, a.handle); err != nil {
			return a.run.traffic, fmt.Errorf("all-to-all %d on rank %d in phase %d: %w", a.current,
				a.driver.name(a.config.Rank), a.run.phase, err)
		}
		a.advance()
	}
	return a.run.traffic, nil
}

// advance enters further phases while the current phase has nothing left to do.
func (a *AllToAll) advance() {
	for a.run.phase < len(a.config.Phases) && a.run.sending == 0 && a.run.receiving == 0 {
		a.config.Steps.Done(a.run.phase)
		if a.run.phase++; a.run.phase < len(a.config.Phases) {
			a.enter(a.config.Phases[a.run.phase])
		}
	}
}

// enter permits the senders of a phase to send, and begins to send.
func (a *AllToAll) enter(p Phase) {
	for _, from := range p.From {
		b := &a.blocks[from]
		b.expected = true
		if b.in == 0 {
			continue
		}
		a.run.receiving += len(b.seen)
		a.post(transports.Request{Op: transports.OpWriteImm, Peer: a.config.Peers[from],
			Imm: clearToSend | a.current})
	}
	for _, to := range p.To {
		b := &a.blocks[to]
		a.run.sending += blockSlices(b.out)
		b.waits = b.out > 0
		a.release(to)
	}
}

func (a *AllToAll) post(r transports.Request) {
	a.run.outstanding++
	a.driver.pending = append(a.driver.pending, r)
}

// release sends a waiting block once its receiver has permitted it.
func (a *AllToAll) release(to int) {
	b := &a.blocks[to]
	if !b.waits || b.cleared != a.current {
		return
	}
	b.waits = false
	input := a.config.Input[b.from : b.from+b.out]
	for slice := range blockSlices(b.out) {
		from, behind := slicePart(b.out, slice)
		a.post(transports.Request{
			Op: transports.OpWriteImm, Peer: a.config.Peers[to], Local: input[from:behind],
			Remote: a.config.Outputs[to], Offset: b.lands + uint64(from), Imm: uint32(slice),
		})
	}
}

func (a *AllToAll) handle(c transports.Completion) error {
	rank, known := a.rankOf[c.Peer]
	switch {
	case c.Op != transports.OpReceive:
		a.run.outstanding--
		if c.Bytes > 0 { // without bytes it is a permission
			a.run.sending--
			a.run.traffic.Sent += uint64(c.Bytes)
		}
		return nil
	case !known:
		return fmt.Errorf("%w: from peer %d, which belongs to no rank", errUnexpected, c.Peer)
	}
	b := &a.blocks[rank]
	if c.Imm&clearToSend != 0 {
		sequence := c.Imm &^ clearToSend
		if sequence != (b.cleared+1)%sequences || b.out == 0 {
			return fmt.Errorf("rank %d is ready for operation %d, want %d", rank, sequence, b.cleared+1)
		}
		b.cleared = sequence
		a.release(rank)
		return nil
	}
	return a.receive(b, rank, c)
}

// receive handles one received slice of a block.
func (a *AllToAll) receive(b *block, rank int, c transports.Completion) error {
	number := int(c.Imm)
	if !b.expected || number >= len(b.seen) || b.seen[number] {
		return fmt.Errorf("%w: message %d of %d from rank %d came before its phase, or twice",
			errUnexpected, number, len(b.seen), rank)
	}
	from, to := slicePart(b.in, number)
	if want := to - from; c.Bytes != want || c.Missing != 0 {
		return fmt.Errorf("%w: message %d from rank %d has %d bytes, %d missing, want %d", errUnexpected,
			number, rank, c.Bytes, c.Missing, want)
	}
	b.seen[number] = true
	a.run.receiving--
	a.run.traffic.Received += uint64(c.Bytes)
	return nil
}
