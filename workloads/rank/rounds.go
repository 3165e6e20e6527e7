package rank

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"railbed/workloads/collective"
)

// Part is one rank's part in the operations of a job: its data, the operation, and the check of the result.
// A part whose kind of workload reports results of its own also has a method Tell() (any, error). Done.Own is
// the JSON of its value.
type Part interface {
	// Fill sets the input of an operation.
	Fill(id OperationID)
	// Operate does an operation. If more is true, another operation follows at once, and Operate
	// may return while its messages are still under way.
	Operate(ctx context.Context, id OperationID, more bool) (collective.Traffic, error)
	// Lost returns the parts of sums that the latest operation lost at this rank.
	Lost() []collective.Loss
	// Check counts the wrong elements of the output, given the losses of all ranks, and the
	// elements that lack a part because of these losses.
	Check(id OperationID, lost []collective.Loss) (wrong, short uint64)
}

type teller interface {
	Tell() (any, error)
}

// Round is the work of the ranks between two messages of the coordinator: first untimed operations,
// then operations that are timed together.
type Round struct {
	OperationID
	Size          int // index of Config.Sizes
	Before, Count int
	Timed, Check  bool
}

// Rounds returns the job's rounds, numbered from 0. They are the same for all ranks.
func (c *Config) Rounds() []Round {
	var rounds []Round
	add := func(r Round) {
		r.Index = len(rounds)
		rounds = append(rounds, r)
	}
	modes := []collective.Mode{collective.OutOfPlace}
	if c.InPlace {
		modes = append(modes, collective.InPlace)
	}
	for size := range c.Sizes {
		for _, mode := range modes {
			id := OperationID{Mode: mode}
			if c.Together {
				add(Round{OperationID: id, Size: size, Before: c.Warmup, Count: c.Iterations, Timed: true})
				for range c.Checks {
					add(Round{OperationID: id, Size: size, Count: 1, Check: true})
				}
				continue
			}
			for i := range c.Warmup + c.Iterations {
				add(Round{OperationID: id, Size: size, Count: 1, Timed: i >= c.Warmup, Check: true})
			}
		}
	}
	return rounds
}

// Do does the rounds of the job and returns when all ranks are done. join returns the rank's part in the
// operations of Config.Sizes[size], and the memory of their results. Do calls join before the first round
// of each size.
func (p *Process) Do(ctx context.Context, join func(size int) (Part, []byte, error)) error {
	var part Part
	var output []byte
	size := -1
	for _, r := range p.Config.Rounds() {
		if r.Size != size {
			if size >= 0 {
				p.logs = nil
			}
			var err error
			if part, output, err = join(r.Size); err != nil {
				return err
			}
			size = r.Size
		}
		if err := p.round(ctx, part, output, &r); err != nil {
			return err
		}
	}
	m, err := p.next(ctx)
	if err == nil && m.End == nil {
		err = errors.New("the coordinator's message after the last round is not End")
	}
	return err
}

// Parameters of RoundsConfig.BusyPoll: the largest result of an operation for which a rank polls, and the
// polling time. Up to this size a message arrives sooner than a sleep and a wake-up take.
const (
	busyPollBytes = 32 << 10
	busyPollTime  = 100 * time.Microsecond
)

// round does the operations of a round. The time that it reports includes neither filling the data
// before them nor the check after them.
func (p *Process) round(ctx context.Context, part Part, output []byte, r *Round) error {
	id := r.OperationID
	part.Fill(id)
	if err := p.Send(Message{Prepared: &id}); err != nil {
		return err
	}
	m, err := p.next(ctx)
	if err != nil {
		return err
	}
	if m.Start == nil || *m.Start != id {
		return fmt.Errorf("the coordinator did not start operation %d", id.Index)
	}
	done := &Done{OperationID: id}
	last := r.Before + r.Count - 1
	if p.setBusyPoll != nil && p.Config.BusyPoll && last > 0 && len(output) <= busyPollBytes {
		p.setBusyPoll(busyPollTime)
		defer p.setBusyPoll(0)
	}
	for i := range r.Before {
		t, err := part.Operate(ctx, id, i < last)
		if err != nil {
			return err
		}
		done.Before.Add(t)
	}
	start, waited := time.Now(), p.timer.waited.Load()
	p.timer.log.begin(start)
	p.busy.begin()
	p.busy.Add(1)
	if p.options.BeforeOperation != nil {
		p.options.BeforeOperation(p.Config.Rank, id)
	}
	for i := range r.Count {
		t, err := part.Operate(ctx, id, r.Before+i < last)
		if err != nil {
			return err
		}
		done.Traffic.Add(t)
	}
	done.Time, done.Waited = time.Since(start), time.Duration(p.timer.waited.Load()-waited)
	if p.concurrent {
		done.Waited = p.busy.end()
	} else if r.Count == 1 {
		done.Waits = p.timer.log.end()
	}
	if r.Timed && r.Count == 1 {
		done.Steps, done.StepsLeftOut = p.stepsSince(start)
	}
	done.Start = start.UnixNano()
	if p.options.AfterOperation != nil {
		p.options.AfterOperation(p.Config.Rank, id, output)
	}
	if err := p.judge(ctx, part, r, done); err != nil {
		return err
	}
	return p.Send(Message{Done: done})
}

// judge adds to done the check of the result and the result of the kind of workload.
func (p *Process) judge(ctx context.Context, part Part, r *Round, done *Done) (err error) {
	var lost []collective.Loss
	if p.Config.Lossy() {
		if lost, err = p.losses(ctx, part, r.OperationID); err != nil {
			return err
		}
	}
	if r.Check {
		done.Wrong, done.Short = part.Check(r.OperationID, lost)
	}
	if part, more := part.(teller); more {
		own, err := part.Tell()
		if err != nil {
			return err
		}
		if done.Own, err = json.Marshal(own); err != nil {
			return err
		}
	}
	return nil
}

// losses sends this rank's losses to the coordinator and returns the losses of all ranks.
func (p *Process) losses(ctx context.Context, part Part, id OperationID) ([]collective.Loss, error) {
	if err := p.Send(Message{Reduced: &Losses{OperationID: id, Losses: part.Lost()}}); err != nil {
		return nil, err
	}
	m, err := p.next(ctx)
	if err != nil {
		return nil, err
	}
	if m.Lost == nil || m.Lost.OperationID != id {
		return nil, fmt.Errorf("the coordinator did not send the losses of operation %d", id.Index)
	}
	return m.Lost.Losses, nil
}
