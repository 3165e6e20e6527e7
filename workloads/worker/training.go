package worker

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"railbed/internal/clock"
	"railbed/internal/element"
	"railbed/plan/schedule"
	"railbed/transports"
	"railbed/workloads/collective"
	"railbed/workloads/training"
)

// Training is the kind of a Job that plays a training.Program.
const Training = "training"

// checkTraining checks that a job of kind Training has a program for its ranks.
func (j Job) checkTraining(problem func(format string, args ...any)) {
	if trains := j.Kind == Training; trains != (j.Training != nil) ||
		trains && (len(j.Training.Tasks) != len(j.Ranks) || j.InPlace) {
		problem("%s on %d ranks needs a program for these, out of place, and no other kind has one", Training,
			len(j.Ranks))
	}
}

// player is one rank's part in a training job. Each operation of the job is an iteration.
type player struct {
	rank     int
	ranks    int
	program  *training.Program
	dilation clock.Dilation
	// operations are the rank's parts in the program's operations. An entry is nil if the rank has
	// no part.
	operations []part
	memory     []buffers
	patterns   map[collective.PatternConfig]*collective.Pattern
	streams    [][]int // tasks of each stream, in order
	shares     *shares
	spans      []training.Span // of the latest iteration
	groups     map[string]uint64
	// waited is the time of the latest iteration in which the rank waited for other ranks or for
	// its own device.
	waited time.Duration
	// used marks the operations that were done in the iteration. blank counts elements that did not
	// arrive in all but the last execution of an operation: see again.
	used  []bool
	blank atomic.Uint64
}

func (p *player) tell(done *operationDone) error {
	done.Spans, done.Groups, done.Waited = p.spans, p.groups, p.waited
	return nil
}

// newPlayer makes a player with a rank's memory.
func newPlayer(c *workerConfig) (*player, error) {
	p := &player{
		rank:       c.Rank,
		ranks:      c.Ranks,
		program:    c.Training,
		dilation:   clock.Dilation(c.Dilation),
		patterns:   map[collective.PatternConfig]*collective.Pattern{},
		operations: make([]part, len(c.Training.Operations)),
		memory:     make([]buffers, len(c.Training.Operations)),
		used:       make([]bool, len(c.Training.Operations)),
	}
	for i := range p.program.Operations {
		o := &p.program.Operations[i]
		place := slices.Index(o.Ranks, c.Rank)
		if place < 0 {
			continue
		}
		made, err := operationCarrier(o, c.lossy())
		if err != nil {
			return nil, err
		}
		p.memory[i] = allocateFor(made.shape(place))
	}
	number := map[string]int{}
	for task := range p.program.Tasks[p.rank] {
		name := p.program.Stream(p.rank, task)
		i, known := number[name]
		if !known {
			i = len(p.streams)
			number[name] = i
			p.streams = append(p.streams, nil)
		}
		p.streams[i] = append(p.streams[i], task)
	}
	return p, nil
}

// train exchanges memory handles and addresses with the other ranks and does the iterations of a
// training job.
func (w *rank) train(ctx context.Context) error {
	p, err := newPlayer(&w.config)
	if err != nil {
		return err
	}
	own := &rendezvous{Operations: make([]collective.Memory[[]byte], len(p.operations))}
	var output []byte // of the first operation, for hooks
	for i, b := range p.memory {
		if own.Operations[i], err = w.registerAll(b); err != nil {
			return err
		}
		if output == nil {
			output = b.output
		}
	}
	table, err := w.meet(ctx, own)
	if err != nil {
		return err
	}
	if p.shares, err = newShares(w.endpoint, len(p.operations), &w.busy); err != nil {
		return err
	}
	for i := range p.program.Operations {
		if slices.Contains(p.program.Operations[i].Ranks, p.rank) {
			if p.operations[i], err = w.joinOperation(table, p, i); err != nil {
				return err
			}
		}
	}
	for _, r := range w.config.rounds() {
		if err := w.round(ctx, p, output, &r); err != nil {
			return err
		}
	}
	return w.end(ctx)
}

func (w *rank) joinOperation(table []rendezvous, p *player, i int) (part, error) {
	o, b := &p.program.Operations[i], p.memory[i]
	n, place := len(o.Ranks), slices.Index(o.Ranks, p.rank)
	peers, handles := make([]transports.Peer, n), make([]collective.Memory[[]byte], n)
	for other, rank := range o.Ranks {
		if other == place {
			continue
		}
		var err error
		if peers[other], err = w.addPeer(table, rank); err != nil {
			return nil, err
		}
		if len(table[rank].Operations) != len(p.operations) {
			return nil, fmt.Errorf("rank %d has %d operations, want %d", rank, len(table[rank].Operations),
				len(p.operations))
		}
		handles[other] = table[rank].Operations[i]
	}
	if o.Kind == training.AllToAll && b.program == nil {
		m := collective.Even(n, int(o.Bytes)/element.Float32.Size())
		outputs := make([][]byte, n)
		for other := range handles {
			outputs[other] = handles[other].Output
		}
		exchange, err := collective.NewAllToAll(collective.AllToAllConfig{
			Endpoint: p.shares.of[i],
			Rank:     place,
			Names:    o.Ranks,
			Matrix:   m,
			Phases:   collective.Direct(place, n),
			Peers:    peers,
			Input:    b.input,
			Output:   b.output,
			Outputs:  outputs,
		})
		return &allToAll{buffers: b, exchanges: []*collective.AllToAll{exchange},
			blocks: collective.NewBlocks(place, m, element.Float32)}, err
	}
	if b.program == nil {
		return w.joinGradients(p, i, peers, handles)
	}
	runner, err := collective.NewRunner(collective.RunnerConfig{
		Endpoint: p.shares.of[i],
		Program:  b.program,
		Rank:     place,
		Names:    o.Ranks,
		Peers:    peers,
		Handles:  handles,
		Memory:   collective.Memory[[]byte]{Input: b.input, Output: b.output, Work: b.work},
	})
	if err != nil {
		return nil, err
	}
	pattern, err := p.pattern(b.program.Pattern(place))
	return &scheduled{runners: []*collective.Runner{runner}, pattern: pattern}, err
}

// joinGradients makes the rank's part in a sum of gradients that may lack parts.
func (w *rank) joinGradients(p *player, i int, peers []transports.Peer,
	handles []collective.Memory[[]byte]) (part, error) {
	b, n := p.memory[i], len(peers)
	place := slices.Index(p.program.Operations[i].Ranks, p.rank)
	next, before := (place+1)%n, (place+n-1)%n
	ring, err := collective.NewRing(collective.RingConfig{
		Endpoint:   p.shares.of[i],
		Rank:       place,
		Ranks:      n,
		Names:      p.program.Operations[i].Ranks,
		Next:       peers[next],
		Prev:       peers[before],
		Droppable:  w.config.RD.Droppable,
		Scatter:    p.program.Operations[i].Kind == schedule.ReduceScatter,
		Input:      collective.Floats(b.input),
		Output:     collective.Floats(b.output),
		NextInput:  handles[next].Input,
		NextOutput: handles[next].Output,
	})
	if err != nil {
		return nil, err
	}
	pattern, err := p.pattern(collective.PatternConfig{Rank: place, Ranks: n})
	return &allReduce{b, ring, pattern}, err
}

// pattern returns the data of a rank of an operation. Each operation uses another part of it.
func (p *player) pattern(c collective.PatternConfig) (pattern *collective.Pattern, err error) {
	if p.patterns[c] == nil {
		p.patterns[c], err = collective.NewPattern(c)
	}
	return p.patterns[c], err
}

// of returns the ID of an operation in an iteration. It differs for all operations of all
// iterations, so that no two have the same data.
func (p *player) of(id operationID, operation int) operationID {
	id.Index = id.Index*len(p.operations) + operation
	return id
}

// fill implements part. An operation has the same input each time that it is done in an iteration.
func (p *player) fill(id operationID) {
	clear(p.used)
	p.blank.Store(0)
	for i, o := range p.operations {
		if o != nil {
			o.fill(p.of(id, i))
		}
	}
}

// blankStep is the distance in bytes between the elements that again checks. It is less than the
// payload of a packet or a message.
const blankStep = 1 << 10

// again clears an operation's output before other ranks may write to it, so that the check does not
// take results of the last execution for results of the next. No data element is 0, so an element
// that is still 0 did not arrive. After all executions but the last, again checks one element in
// each blankStep bytes, which takes no noticeable time. After the last, check checks every element.
func (p *player) again(operation int) {
	output := p.memory[operation].output
	// The rest of a reduce-scatter's output is scratch memory.
	if a, ring := p.operations[operation].(*allReduce); ring {
		from, to := a.ring.Result()
		output = output[from*element.Float32.Size() : to*element.Float32.Size()]
	}
	for at := 0; p.used[operation] && at < len(output); at += blankStep {
		if [4]byte(output[at:]) == [4]byte{} { // not -0, which may be data
			p.blank.Add(1)
		}
	}
	p.used[operation] = true
	clear(output)
}

// operate implements part. Each stream does its tasks in order.
func (p *player) operate(ctx context.Context, id operationID, _ bool) (collective.Traffic, error) {
	tasks := p.program.Tasks[p.rank]
	p.spans, p.groups = make([]training.Span, len(tasks)), map[string]uint64{}
	done := make([]chan struct{}, len(tasks))
	for i := range done {
		done[i] = make(chan struct{})
	}
	traffic := make([]collective.Traffic, len(tasks))
	now := clock.New(uint64(p.dilation))
	p.shares.work.begin()
	err := p.shares.during(ctx, func(running context.Context) error {
		group, running := errgroup.WithContext(running)
		for _, stream := range p.streams {
			group.Go(func() error {
				var free time.Duration
				for _, task := range stream {
					if err := p.await(running, task, done); err != nil {
						return err
					}
					if err := p.task(running, id, task, now, free, &traffic[task]); err != nil {
						return err
					}
					free = p.spans[task].End
					close(done[task])
				}
				return nil
			})
		}
		return group.Wait()
	})
	p.waited = p.shares.work.end()
	var sum collective.Traffic
	for i, t := range traffic {
		addTraffic(&sum, t)
		if tasks[i].Kind == training.Exchange {
			p.groups[p.program.Operations[tasks[i].Operation].Group] += t.Sent
		}
	}
	return sum, err
}

// await waits until the tasks on which a task depends are done.
func (p *player) await(ctx context.Context, task int, done []chan struct{}) error {
	for _, before := range p.program.Tasks[p.rank][task].After {
		select {
		case <-done[before]:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// task does a task. A computing task's time starts when its predecessors, in its stream and in
// After, have ended. It does not start when the kernel runs this process: otherwise the host's
// delays would add up and make the device look slower.
func (p *player) task(ctx context.Context, id operationID, i int, now *clock.Clock, free time.Duration,
	traffic *collective.Traffic) error {
	t := &p.program.Tasks[p.rank][i]
	span := &p.spans[i]
	if t.Kind == training.Exchange {
		span.Start = now.Now().Sub(0)
		var err error
		p.shares.work.add(1)
		p.again(t.Operation)
		*traffic, err = p.operations[t.Operation].operate(ctx, id, false)
		p.shares.work.add(-1)
		span.End = now.Now().Sub(0)
		if err != nil {
			err = fmt.Errorf("%s: %w", t.Name, err)
		}
		return err
	}
	span.Start = free
	for _, before := range t.After {
		span.Start = max(span.Start, p.spans[before].End)
	}
	span.End = span.Start + t.Time
	due := now.Real(clock.Time(span.End))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		p.shares.work.late(time.Since(due))
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lost implements part. For each operation it returns the losses of the last execution in the
// iteration, whose results are in the output.
func (p *player) lost() (all []collective.Loss) {
	for i, o := range p.operations {
		if o == nil {
			continue
		}
		for _, l := range o.lost() {
			l.Operation = i
			all = append(all, l)
		}
	}
	return all
}

// check implements part.
func (p *player) check(id operationID, lost []collective.Loss) (wrong, short uint64) {
	of := make([][]collective.Loss, len(p.operations))
	for _, l := range lost {
		if l.Operation < 0 || l.Operation >= len(of) {
			return 1, 0 // no such operation
		}
		of[l.Operation] = append(of[l.Operation], l)
	}
	for i, o := range p.operations {
		if o != nil {
			bad, less := o.check(p.of(id, i), of[i])
			wrong, short = wrong+bad, short+less
		}
	}
	return wrong + p.blank.Load(), short
}

// addIteration divides the time of an iteration, which starts when the first rank begins, and adds
// the bytes that ranks sent. Times are in the testbed's time. The iteration ran between released
// and ended of this host's clock.
func (r *Result) addIteration(job Job, o *Operation, dones []operationDone, released, ended time.Time) {
	if n := len(r.Operations); n > 0 {
		r.Operations[n-1].Spans = nil // the spans of the latest iteration are enough
	}
	by := clock.Dilation(job.Dilation)
	o.Spans = make([][]training.Span, len(dones))
	for rank, d := range dones {
		o.OtherClocks = o.OtherClocks || !d.within(released, ended, clockMargin)
		late := by.Passed(time.Duration(d.Start - o.Start.UnixNano()))
		for _, s := range d.Spans {
			o.Spans[rank] = append(o.Spans[rank], training.Span{Start: late + s.Start, End: late + s.End})
		}
		if r.PerRank[rank].Groups == nil {
			r.PerRank[rank].Groups = map[string]uint64{}
		}
		for group, bytes := range d.Groups {
			r.PerRank[rank].Groups[group] += bytes
		}
	}
	o.Time, o.Ranks = job.Training.Times(o.Spans)
	o.ExposedBy = job.Training.ExposedBy(o.Spans)
}
