package worker

import (
	"context"

	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
)

// buffers are a rank's memory, and the program that uses it, if any.
type buffers struct {
	input, output, work []byte
	program             *collective.Program
}

// shape is the memory in bytes that a rank needs for a size, and the program that uses it, if any.
type shape struct {
	input, output, work int
	program             *collective.Program
}

// allocate makes memory that is large enough for each of the shapes, which are by size and lane.
// All lanes share one input and one output.
func allocate(shapes [][]shape) []buffers {
	var all []buffers
	var most shape
	for lane := range shapes[0] {
		most.work = 0
		for _, s := range shapes {
			most.input, most.output, most.work = max(most.input, s[lane].input),
				max(most.output, s[lane].output), max(most.work, s[lane].work)
		}
		all = append(all, buffers{work: make([]byte, most.work)})
	}
	input, output := make([]byte, most.input), make([]byte, most.output)
	for lane := range all {
		all[lane].input, all[lane].output = input, output
	}
	return all
}

// allocateFor makes memory for one size in one lane.
func allocateFor(s shape) buffers { return allocate([][]shape{{s}})[0].view(s) }

// all returns the memory as a lane registers it.
func (b buffers) all() collective.Memory[[]byte] {
	return collective.Memory[[]byte]{Input: b.input, Output: b.output, Work: b.work}
}

// view returns the part of the memory that a shape uses.
func (b buffers) view(s shape) buffers {
	return buffers{input: b.input[:s.input], output: b.output[:s.output], work: b.work[:s.work],
		program: s.program}
}

// allReduce is a rank's part in a ring all-reduce.
type allReduce struct {
	buffers
	ring    *collective.Ring
	pattern *collective.Pattern
}

func (a *allReduce) Fill(id rank.OperationID) {
	if id.Mode == collective.InPlace {
		a.pattern.Fill(a.output, id.Index, 0)
	} else {
		a.pattern.Fill(a.input, id.Index, 0)
	}
}

func (a *allReduce) Operate(ctx context.Context, id rank.OperationID, _ bool) (collective.Traffic, error) {
	return a.ring.AllReduce(ctx, id.Mode)
}

func (a *allReduce) Lost() []collective.Loss { return a.ring.Lost() }

func (a *allReduce) Check(id rank.OperationID, lost []collective.Loss) (wrong, short uint64) {
	return a.ring.Wrong(a.pattern, id.Index, lost)
}

// allToAll is a rank's part in an all-to-all, with one exchange per lane.
type allToAll struct {
	buffers
	exchanges []*collective.AllToAll
	blocks    *collective.Blocks
	busy      *rank.Idleness
}

func (a *allToAll) Fill(id rank.OperationID) { a.blocks.Fill(a.input, id.Index) }

func (a *allToAll) Operate(ctx context.Context, _ rank.OperationID, _ bool) (collective.Traffic, error) {
	return atOnce(ctx, a.busy, a.exchanges, (*collective.AllToAll).Exchange)
}

func (a *allToAll) Lost() []collective.Loss { return nil }

func (a *allToAll) Check(id rank.OperationID, _ []collective.Loss) (wrong, short uint64) {
	return a.blocks.Wrong(a.output, id.Index), 0
}

// shapes returns the shapes of a rank's memory, by size and lane.
func (c *collectiveConfig) shapes() ([][]shape, error) {
	carriers, err := c.carriers()
	if err != nil {
		return nil, err
	}
	shapes := make([][]shape, len(carriers))
	for i := range carriers {
		for _, made := range carriers[i] {
			shapes[i] = append(shapes[i], made.shape(c.Rank))
		}
	}
	return shapes, nil
}

// shortExchange reports whether the job's blocks are short enough to be sent at once, without
// permission of the receiver.
func (c *collectiveConfig) shortExchange(size units.Bytes) bool {
	return c.Algorithm == Direct && c.Skew == 0 && len(c.Channels) == 0 &&
		isShortExchange(int(size), c.Ranks, c.Type)
}

// isShortExchange reports whether an all-to-all sends its blocks without permission of the
// receiver, as a program does: all blocks have the same length and are short. bytes is the size of
// each rank's buffer.
func isShortExchange(bytes, ranks int, t element.Type) bool {
	return isShort(bytes, ranks) && bytes%(ranks*t.Size()) == 0
}

// isShort reports whether a program sends a buffer's messages without permission of the receiver.
// With more than 16 ranks the proof that this is safe takes too long.
func isShort(bytes, ranks int) bool { return collective.IsShort(bytes) && ranks <= 16 }

// matrix returns the elements that ranks send each other in an all-to-all.
func (c *collectiveConfig) matrix(size units.Bytes) collective.Matrix {
	return collective.Skewed(c.Ranks, int(size)/c.Type.Size(), c.Skew, c.Seed)
}

// join makes this rank's part in operations of a size from the tables of all ranks.
func (c *collectiveConfig) join(w *rank.Process, tables [][]rank.Rendezvous, b []buffers,
	size units.Bytes) (rank.Part, error) {
	switch {
	case c.Kind == AllToAll && b[0].program == nil:
		return c.joinAllToAll(w, tables, b, c.matrix(size))
	case b[0].program != nil:
		return c.joinProgram(w, tables, b)
	}
	return c.joinRing(w, tables[0], b[0])
}

func (c *collectiveConfig) joinRing(w *rank.Process, table []rank.Rendezvous, b buffers) (rank.Part, error) {
	n, l := c.Ranks, w.Lanes()[0]
	next, prev := (c.Rank+1)%n, (c.Rank+n-1)%n
	config := collective.RingConfig{
		Endpoint: l.Endpoint(), Rank: c.Rank, Ranks: n,
		Input: collective.Floats(b.input), Output: collective.Floats(b.output),
		NextInput: table[next].Input, NextOutput: table[next].Output, Steps: w.LogSteps(),
	}
	if c.Lossy() {
		config.Droppable = c.RD.Droppable
	}
	var err error
	if config.Next, err = l.AddPeer(table, next); err != nil {
		return nil, err
	}
	if config.Prev, err = l.AddPeer(table, prev); err != nil {
		return nil, err
	}
	ring, err := collective.NewRing(config)
	if err != nil {
		return nil, err
	}
	pattern, err := collective.NewPattern(collective.PatternConfig{Rank: c.Rank, Ranks: n})
	return &allReduce{b, ring, pattern}, err
}

func (c *collectiveConfig) joinAllToAll(w *rank.Process, tables [][]rank.Rendezvous, b []buffers,
	matrix collective.Matrix) (rank.Part, error) {
	a := &allToAll{busy: w.Busy(), buffers: b[0], blocks: collective.NewBlocks(c.Rank, matrix, c.Type)}
	for i, l := range w.Lanes() {
		config := collective.AllToAllConfig{
			Endpoint: l.Endpoint(), Rank: c.Rank, Matrix: matrix, Phases: c.Phases,
			Channel: channelsOf(c.Config)[i], Type: c.Type, Input: b[i].input, Output: b[i].output,
			Outputs: make([][]byte, c.Ranks), Steps: w.LogSteps(channelName(w, i)),
		}
		for other, of := range tables[i] {
			config.Outputs[other] = of.Output
		}
		var err error
		if config.Peers, err = l.AddPeers(tables[i]); err != nil {
			return nil, err
		}
		exchange, err := collective.NewAllToAll(config)
		if err != nil {
			return nil, err
		}
		a.exchanges = append(a.exchanges, exchange)
	}
	return a, nil
}

// phases returns the phases of rank i in an all-to-all: the plan's if its rates were computed in
// advance, else the algorithm's. Pairs that a plan leaves out, such as ranks of one node, come
// last, all at once.
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
	for _, p := range collective.Pairwise(i, n) { // in this order if a phase has several
		to, from := at(i, p.To[0]), at(p.From[0], i)
		to.To, from.From = append(to.To, p.To...), append(from.From, p.From...)
	}
	return planned
}
