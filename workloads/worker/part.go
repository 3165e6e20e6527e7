package worker

import (
	"context"

	"railbed/fabric/units"
	"railbed/transports"
	"railbed/workloads/collective"
	"railbed/workloads/collective/element"
)

// part is one rank's part in a collective: its data, the operation, and the check of what
// that gave.
type part interface {
	// fill sets the input of an operation.
	fill(id operationID)
	operate(ctx context.Context, id operationID) (collective.Traffic, error)
	// lost is what the latest operation lost at this rank, of parts of sums.
	lost() []collective.Loss
	// check counts the elements of the output that are wrong for what all ranks lost,
	// and those that lack a part for that.
	check(id operationID, lost []collective.Loss) (wrong, short uint64)
}

// teller is a part that has more to say of an operation.
type teller interface{ tell(done *operationDone) }

// buffers are a rank's memory, and what it is for where that is a program.
type buffers struct {
	input, output, work []byte
	program             *collective.Program
}

// shape is how much memory a rank needs for a size, in bytes, and what it is for where
// that is a program.
type shape struct {
	input, output, work int
	program             *collective.Program
}

// allocate makes memory that is enough for each of the shapes.
func allocate(shapes []shape) buffers {
	var most shape
	for _, s := range shapes {
		most.input, most.output, most.work = max(most.input, s.input), max(most.output, s.output), max(most.work, s.work)
	}
	return buffers{input: make([]byte, most.input), output: make([]byte, most.output), work: make([]byte, most.work)}
}

// view is the part of the memory that a shape has.
func (b buffers) view(s shape) buffers {
	return buffers{input: b.input[:s.input], output: b.output[:s.output], work: b.work[:s.work], program: s.program}
}

// allReduce is a part in a ring.
type allReduce struct {
	buffers
	ring    *collective.Ring
	pattern *collective.Pattern
}

func (a *allReduce) fill(id operationID) {
	if id.Mode == collective.InPlace {
		a.pattern.Fill(a.output, id.Index, 0)
	} else {
		a.pattern.Fill(a.input, id.Index, 0)
	}
}

func (a *allReduce) operate(ctx context.Context, id operationID) (collective.Traffic, error) {
	return a.ring.AllReduce(ctx, id.Mode)
}

func (a *allReduce) lost() []collective.Loss { return a.ring.Lost() }

func (a *allReduce) check(id operationID, lost []collective.Loss) (wrong, short uint64) {
	if len(lost) == 0 {
		return a.pattern.Wrong(a.output, id.Index, 0), 0
	}
	return a.pattern.WrongBut(collective.Floats(a.output), id.Index, lost)
}

// allToAll is a part in an all-to-all.
type allToAll struct {
	buffers
	exchange *collective.AllToAll
	blocks   *collective.Blocks
}

func (a *allToAll) fill(id operationID) { a.blocks.Fill(a.input, id.Index) }

func (a *allToAll) operate(ctx context.Context, _ operationID) (collective.Traffic, error) {
	return a.exchange.Exchange(ctx)
}

func (a *allToAll) lost() []collective.Loss { return nil }

func (a *allToAll) check(id operationID, _ []collective.Loss) (wrong, short uint64) {
	return a.blocks.Wrong(a.output, id.Index), 0
}

// shapes are those of a rank's memory, by size.
func (c *workerConfig) shapes() ([]shape, error) {
	shapes := make([]shape, len(c.Sizes))
	for i, size := range c.Sizes {
		switch {
		case c.Kind == AllToAll && c.Algorithm != MSCCL:
			m := c.matrix(size)
			shapes[i] = shape{input: c.Type.Size() * m.InputLen(c.Rank), output: c.Type.Size() * m.OutputLen(c.Rank)}
		case c.Kind == AllReduce && c.Algorithm == Ring && c.Type == element.Float32 && c.Op == element.Sum:
			shapes[i] = shape{input: int(size), output: int(size)}
		default:
			var err error
			if shapes[i], err = c.programShape(int(size) / c.Type.Size()); err != nil {
				return nil, err
			}
		}
	}
	return shapes, nil
}

// matrix is what ranks send in an all-to-all.
func (c *workerConfig) matrix(size units.Bytes) collective.Matrix {
	return collective.Skewed(c.Ranks, int(size)/c.Type.Size(), c.Skew, c.Seed)
}

// join makes this rank's part in operations of a size from the table of all ranks.
func (w *rank) join(table []rendezvous, b buffers, size units.Bytes) (part, error) {
	switch {
	case w.config.Kind == AllToAll && b.program == nil:
		return w.joinAllToAll(table, b, w.config.matrix(size))
	case b.program != nil:
		return w.joinProgram(table, b)
	}
	n := w.config.Ranks
	next, prev := (w.config.Rank+1)%n, (w.config.Rank+n-1)%n
	config := collective.RingConfig{
		Endpoint: w.endpoint, Rank: w.config.Rank, Ranks: n,
		Input: collective.Floats(b.input), Output: collective.Floats(b.output),
		NextInput: table[next].Input, NextOutput: table[next].Output,
	}
	if w.config.lossy() {
		config.Droppable = w.config.RD.Droppable
	}
	var err error
	if config.Next, err = w.addPeer(table, next); err != nil {
		return nil, err
	}
	if config.Prev, err = w.addPeer(table, prev); err != nil {
		return nil, err
	}
	ring, err := collective.NewRing(config)
	if err != nil {
		return nil, err
	}
	pattern, err := collective.NewPattern(collective.PatternConfig{Rank: w.config.Rank, Ranks: n})
	return &allReduce{b, ring, pattern}, err
}

func (w *rank) joinAllToAll(table []rendezvous, b buffers, matrix collective.Matrix) (part, error) {
	c := &w.config
	config := collective.AllToAllConfig{
		Endpoint: w.endpoint, Rank: c.Rank, Matrix: matrix, Phases: c.Phases, Peers: make([]transports.Peer, c.Ranks),
		Type: c.Type, Input: b.input, Output: b.output, Outputs: make([][]byte, c.Ranks),
	}
	for other := range table {
		if other == c.Rank {
			continue
		}
		peer, err := w.addPeer(table, other)
		if err != nil {
			return nil, err
		}
		config.Peers[other], config.Outputs[other] = peer, table[other].Output
	}
	exchange, err := collective.NewAllToAll(config)
	if err != nil {
		return nil, err
	}
	return &allToAll{b, exchange, collective.NewBlocks(c.Rank, config.Matrix, c.Type)}, nil
}

// addPeer makes another rank a peer, unless it is one.
func (w *rank) addPeer(table []rendezvous, rank int) (transports.Peer, error) {
	if peer, known := w.endpoints[rank]; known {
		return peer, nil
	}
	peer, err := w.endpoint.AddPeer(table[rank].Address)
	if err == nil {
		w.peers[peer], w.endpoints[rank] = rank, peer
	}
	return peer, err
}

// phases are those of rank i in an all-to-all: its algorithm's, or, where rates were
// computed before, the plan's. Pairs that a plan leaves out, such as ranks of one node,
// come last, at once.
func (j Job) phases(i int) []collective.Phase {
	n := len(j.Ranks)
	switch {
	case j.Algorithm == Direct:
		return collective.Direct(i, n)
	case !j.offline():
		return collective.Pairwise(i, n)
	}
	planned := make([]collective.Phase, len(j.Rates.Phases)+1)
	at := func(from, to int) *collective.Phase {
		if p := j.Rates.Phase(from, to); p >= 0 {
			return &planned[p]
		}
		return &planned[len(planned)-1]
	}
	for _, p := range collective.Pairwise(i, n) { // in this order where there are several in a phase
		to, from := at(i, p.To[0]), at(p.From[0], i)
		to.To, from.From = append(to.To, p.To...), append(from.From, p.From...)
	}
	return planned
}
