package worker

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"railbed/internal/clock"
	"railbed/plan/schedule"
	"railbed/transports"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
	"railbed/workloads/training"
)

// player is one rank's part in a training job. Each operation of the job is an iteration.
type player struct {
	rank     int
	ranks    int
	program  *training.Program
	dilation clock.Dilation
	// operations are the rank's parts in the program's operations. An entry is nil if the rank has
	// no part.
	operations []rank.Part
	algorithms []collective.Algorithm
	memory     []buffers
	outputs    [][]byte // with the operations' results
	patterns   map[collective.PatternConfig]*collective.Pattern
	streams    [][]int // tasks of each stream, in order
	shares     *rank.Shares
	busy       *rank.Idleness
	logs       []*collective.StepLog // of the operations
	ends       int                   // of steps that are kept of each exchange
	spans      []training.Span       // of the latest iteration
	steps      [][]rank.Steps        // of the tasks of the latest iteration
	groups     map[string]uint64
	// used marks the operations that were done in the iteration. blank counts elements that did not
	// arrive in all but the last execution of an operation: see again.
	used  []bool
	blank atomic.Uint64
}

func (p *player) Tell() (any, error) { return playerStep{p.spans, p.steps, p.groups}, nil }

// newPlayer makes a player with a rank's memory.
func newPlayer(c *rank.Config, program *training.Program) (*player, error) {
	p := &player{
		rank:       c.Rank,
		ranks:      c.Ranks,
		program:    program,
		dilation:   clock.Dilation(c.Dilation),
		patterns:   map[collective.PatternConfig]*collective.Pattern{},
		operations: make([]rank.Part, len(program.Operations)),
		algorithms: make([]collective.Algorithm, len(program.Operations)),
		memory:     make([]buffers, len(program.Operations)),
		outputs:    make([][]byte, len(program.Operations)),
		used:       make([]bool, len(program.Operations)),
		logs:       make([]*collective.StepLog, len(program.Operations)),
	}
	for i := range p.program.Operations {
		o := &p.program.Operations[i]
		place := slices.Index(o.Ranks, c.Rank)
		if place < 0 {
			continue
		}
		var err error
		if p.algorithms[i], err = operationAlgorithm(o, c); err != nil {
			return nil, err
		}
		p.memory[i] = allocate(p.algorithms[i].Lengths(place))
	}
	number, exchanges := map[string]int{}, 0
	for task := range p.program.Tasks[p.rank] {
		name := p.program.Stream(p.rank, task)
		i, known := number[name]
		if !known {
			i = len(p.streams)
			number[name] = i
			p.streams = append(p.streams, nil)
		}
		p.streams[i] = append(p.streams[i], task)
		if p.program.Tasks[p.rank][task].Kind == training.Exchange {
			exchanges++
		}
	}
	if p.ends = min(endsOfExchange, endsOfIteration/max(1, exchanges)); p.ends < 2 {
		p.ends = 0
	}
	return p, nil
}

// Run implements rank.Work.
func (t trainingWork) Run(ctx context.Context, w *rank.Process) error {
	return w.ThroughLanes(func() error { return t.train(ctx, w) })
}

// train exchanges memory handles and addresses with the other ranks and does the iterations.
func (t trainingWork) train(ctx context.Context, w *rank.Process) error {
	p, err := newPlayer(&w.Config, t.Program)
	if err != nil {
		return err
	}
	tables, err := w.Meet(ctx, func(_ int, l *rank.Lane) (own *rank.Rendezvous, err error) {
		own = &rank.Rendezvous{Operations: make([]collective.Memory[[]byte], len(p.operations))}
		for i, b := range p.memory {
			if own.Operations[i], err = l.Register(b); err != nil {
				return nil, err
			}
		}
		return own, nil
	})
	if err != nil {
		return err
	}
	p.busy = w.Busy()
	if p.shares, err = w.Lanes()[0].Share(len(p.operations)); err != nil {
		return err
	}
	for i := range p.program.Operations {
		if slices.Contains(p.program.Operations[i].Ranks, p.rank) {
			if p.operations[i], err = p.join(w, tables[0], i); err != nil {
				return err
			}
		}
	}
	var output []byte // of the first operation, for rank.Options.AfterOperation
	for _, b := range p.memory {
		if output == nil {
			output = b.Output
		}
	}
	return w.Do(ctx, func(int) (rank.Part, []byte, error) { return p, output, nil })
}

// A rank reports at most so many ends of steps of an exchange, and of all exchanges of an iteration. With
// more exchanges it reports none.
const (
	endsOfExchange  = 16
	endsOfIteration = 2048
)

// log returns the log of an operation's steps, or nil if they are not reported.
func (p *player) log(i int) *collective.StepLog {
	if p.ends > 0 {
		p.logs[i] = &collective.StepLog{}
	}
	return p.logs[i]
}

// join makes the rank's part in an operation.
func (p *player) join(w *rank.Process, table []rank.Rendezvous, i int) (rank.Part, error) {
	o := &p.program.Operations[i]
	n, place := len(o.Ranks), slices.Index(o.Ranks, p.rank)
	peers, handles := make([]transports.Peer, n), make([]collective.Memory[[]byte], n)
	for other, rank := range o.Ranks {
		if other == place {
			continue
		}
		var err error
		if peers[other], err = w.Lanes()[0].AddPeer(table, rank); err != nil {
			return nil, err
		}
		if len(table[rank].Operations) != len(p.operations) {
			return nil, fmt.Errorf("rank %d has %d operations, want %d", rank, len(table[rank].Operations),
				len(p.operations))
		}
		handles[other] = table[rank].Operations[i]
	}
	runner, err := collective.NewRunner(collective.RunnerConfig{
		Endpoint:  p.shares.Of(i),
		Algorithm: p.algorithms[i],
		Rank:      place,
		Names:     o.Ranks,
		Peers:     peers,
		Handles:   handles,
		Memory:    p.memory[i],
		Steps:     p.log(i),
	})
	if err != nil {
		return nil, err
	}
	p.outputs[i], _ = runner.Buffer(collective.OutOfPlace, schedule.Output)
	pattern, err := p.pattern(runner.Pattern())
	return &part{runners: []*collective.Runner{runner}, pattern: pattern}, err
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
func (p *player) of(id rank.OperationID, operation int) rank.OperationID {
	id.Index = id.Index*len(p.operations) + operation
	return id
}

// Fill implements rank.Part. An operation has the same input each time that it is done in an iteration.
func (p *player) Fill(id rank.OperationID) {
	clear(p.used)
	p.blank.Store(0)
	for i, o := range p.operations {
		if o != nil {
			o.Fill(p.of(id, i))
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
	output := p.outputs[operation]
	for at := 0; p.used[operation] && at < len(output); at += blankStep {
		if [4]byte(output[at:]) == [4]byte{} { // not -0, which may be data
			p.blank.Add(1)
		}
	}
	p.used[operation] = true
	clear(output)
}

// Operate implements rank.Part. Each stream does its tasks in order.
func (p *player) Operate(ctx context.Context, id rank.OperationID, _ bool) (collective.Traffic, error) {
	tasks := p.program.Tasks[p.rank]
	p.spans, p.groups = make([]training.Span, len(tasks)), map[string]uint64{}
	p.steps = make([][]rank.Steps, len(tasks))
	done := make([]chan struct{}, len(tasks))
	for i := range done {
		done[i] = make(chan struct{})
	}
	traffic := make([]collective.Traffic, len(tasks))
	now := clock.New(uint64(p.dilation))
	p.busy.Add(-1)
	err := rank.During(ctx, []*rank.Shares{p.shares}, func(running context.Context) error {
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
	p.busy.Add(1)
	var sum collective.Traffic
	for i, t := range traffic {
		sum.Add(t)
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
func (p *player) task(ctx context.Context, id rank.OperationID, i int, now *clock.Clock, free time.Duration,
	traffic *collective.Traffic) error {
	t := &p.program.Tasks[p.rank][i]
	span := &p.spans[i]
	if t.Kind == training.Exchange {
		span.Start = now.Now().Sub(0)
		var err error
		p.busy.Add(1)
		p.again(t.Operation)
		*traffic, err = p.operations[t.Operation].Operate(ctx, id, false)
		p.busy.Add(-1)
		span.End = now.Now().Sub(0)
		if log := p.logs[t.Operation]; log != nil {
			p.steps[i] = rank.StepsOf(log, now.Real(0), p.ends)
		}
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
		p.busy.Late(time.Since(due))
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Lost implements rank.Part. For each operation it returns the losses of the last execution in the
// iteration, whose results are in the output.
func (p *player) Lost() (all []collective.Loss) {
	for i, o := range p.operations {
		if o == nil {
			continue
		}
		for _, l := range o.Lost() {
			l.Operation = i
			all = append(all, l)
		}
	}
	return all
}

// Check implements rank.Part.
func (p *player) Check(id rank.OperationID, lost []collective.Loss) (wrong, short uint64) {
	of := make([][]collective.Loss, len(p.operations))
	for _, l := range lost {
		if l.Operation < 0 || l.Operation >= len(of) {
			return 1, 0 // no such operation
		}
		of[l.Operation] = append(of[l.Operation], l)
	}
	for i, o := range p.operations {
		if o != nil {
			bad, less := o.Check(p.of(id, i), of[i])
			wrong, short = wrong+bad, short+less
		}
	}
	return wrong + p.blank.Load(), short
}
