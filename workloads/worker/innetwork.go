package worker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"railbed/internal/clock"
	"railbed/internal/element"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/transports"
	"railbed/transports/aggregation"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
)

// Aggregator is the tree of switches that computes an all-reduce for a job.
type Aggregator struct {
	Job   plan.AggregationJob
	Epoch uint16 // later than every earlier epoch

	release func() error // releases the job's reservation, if this process holds it
}

// FindAggregator returns the aggregator for some ranks: the plan's choice, or the switch named root
// and the switches below it. It uses none of the job numbers in busy, which belong to other
// collectives.
func FindAggregator(p *plan.Plan, ranks []plan.Rank, root string, busy ...uint16) (*Aggregator, error) {
	job, err := p.AggregationFor(ranks, root, busy...)
	if err != nil {
		return nil, err
	}
	return &Aggregator{Job: *job}, nil
}

// Begin reserves the aggregation job for this process until End and chooses an epoch that is later
// than the epoch of each running switch. Without the reservation two processes that begin at once
// would choose the same epoch. If another process holds the job, the error wraps testbed.ErrInUse.
func (a *Aggregator) Begin(ctx context.Context, tb *testbed.Testbed) error {
	if a.release == nil {
		release, err := tb.Reserve(fmt.Sprintf("aggregation-%d", a.Job.Number))
		if err != nil {
			return fmt.Errorf("the aggregation job of switch %s: %w; run the collectives one after the "+
				"other, or use another switch", a.Job.Root().Switch, err)
		}
		a.release = release
	}
	state, err := tb.Inspect(ctx)
	if err != nil {
		return err
	}
	running := 0
	if state.Soft != nil {
		for _, job := range state.Soft.Aggregation {
			if job.Job != a.Job.Number {
				continue
			}
			if running++; running == 1 || int16(job.Epoch+1-a.Epoch) > 0 {
				a.Epoch = job.Epoch + 1
			}
		}
	}
	if running != len(a.Job.Tree) {
		return fmt.Errorf("only %d of the switches %s run aggregation job %d, want all", running,
			a.Job.Text(), a.Job.Number)
	}
	return nil
}

// End releases the job for other processes. It does nothing if a is nil or has not begun.
func (a *Aggregator) End() {
	if a != nil && a.release != nil {
		_ = a.release() // it closes a file, which releases the lock
		a.release = nil
	}
}

// checkInNetwork checks that a switch can compute the job's collective.
func (j Job) checkInNetwork(problem reporter) {
	if (j.Algorithm == schedule.InNetwork) != (j.Transport == spec.InSwitch) {
		problem("%s over %s: want algorithm %s over %s, or neither", j.Algorithm, j.Transport,
			schedule.InNetwork, spec.InSwitch)
		return
	}
	if j.Algorithm != schedule.InNetwork {
		return
	}
	if j.Kind != spec.AllReduce {
		problem("%s by %s: a switch can only compute %s", j.Kind, schedule.InNetwork, spec.AllReduce)
	}
	if !aggregation.Computes(j.Type, j.Op) {
		problem("%s of type %s by %s: a switch computes %s of %s", j.Op, j.Type, schedule.InNetwork,
			strings.Join(spec.InNetworkOps, ", "), strings.Join(spec.InNetworkTypes, ", "))
	}
	if j.Aggregator == nil || len(j.Aggregator.Job.Workers) != len(j.Ranks) {
		problem("%s: %w", schedule.InNetwork, plan.ErrNoTree)
	}
}

// aggregator returns the in-network part of a rank's work.
func (j Job) aggregator(rank int) *aggregatorConfig {
	a := j.Aggregator
	to := a.Job.Of(rank)
	c := &aggregatorConfig{Config: aggregation.Of(&a.Job, rank, a.Epoch), Addr: to.Addr4}
	if j.Family == 6 {
		c.Addr = to.Addr6
	}
	return c
}

// inNetwork is a rank's part in an all-reduce that a switch computes.
type inNetwork struct {
	buffers
	client  *aggregation.Client
	kind    element.Type
	op      element.Op
	pattern *collective.Pattern
	process *rank.Process
	steps   *collective.StepLog // each use of all slots
}

// aggregate waits for the other ranks to be ready and does the operations in the switch.
func (c *collectiveConfig) aggregate(ctx context.Context, w *rank.Process, wrap wrapper) error {
	var steps *collective.StepLog // of the current size
	slots := c.Aggregator.Config.Slots
	c.Aggregator.Config.Landed = func(chunk int) { steps.Done(chunk / slots) }
	client, err := rank.WhenFree(func() (*aggregation.Client, error) {
		return aggregation.Dial(netip.AddrPortFrom(c.Addr, c.Port), c.Aggregator.Addr, c.Aggregator.Config,
			aggregation.Options{Clock: clock.New(c.Dilation), Bypass: c.Bypass})
	})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := w.Meet(ctx, nil); err != nil {
		return err
	}
	pattern, err := collective.NewPattern(
		collective.PatternConfig{Rank: c.Rank, Ranks: c.Ranks, Type: c.Type, Op: c.Op})
	if err != nil {
		return err
	}
	most := int(slices.Max(c.Sizes))
	whole := allocate(collective.Memory[int]{Input: most, Output: most})
	err = w.Do(ctx, func(i int) (rank.Part, []byte, error) {
		size := int(c.Sizes[i])
		used := view(whole, collective.Memory[int]{Input: size, Output: size})
		steps = w.LogSteps()
		chunk := c.Type.Size() * c.Aggregator.Config.Elements
		steps.Add(usesOfSlots((size+chunk-1)/chunk, slots)...)
		p, err := wrap(&inNetwork{used, client, c.Type, c.Op, pattern, w, steps}, used)
		return p, used.Output, err
	})
	if err != nil {
		return missingRanks(err, c.Ranks)
	}
	bytes := c.throughSwitch()
	stream := collective.Traffic{Sent: bytes, Received: bytes}
	return w.Send(rank.Message{Finished: &rank.Finished{Stream: stream}})
}

// usesOfSlots returns the number of chunks in each use of all slots: the n-th use of a slot is part of the
// n-th step.
func usesOfSlots(chunks, slots int) (parts []int) {
	for ; chunks > 0; chunks -= slots {
		parts = append(parts, min(slots, chunks))
	}
	return parts
}

// throughSwitch returns the bytes that each rank sends to the switch in all rounds. As many come back.
func (c *collectiveConfig) throughSwitch() (bytes uint64) {
	for _, r := range c.Rounds() {
		bytes += uint64(c.Sizes[r.Size]) * uint64(r.Before+r.Count)
	}
	return bytes
}

// missingRanks adds the ranks that the switch waited for in vain to a timeout error.
func missingRanks(err error, ranks int) error {
	var reject *aggregation.RejectError
	if !errors.As(err, &reject) || reject.Code != wire.AggregationTimeout {
		return err
	}
	var missing []int
	for rank := range ranks {
		if reject.Present>>rank&1 == 0 {
			missing = append(missing, rank)
		}
	}
	return fmt.Errorf("%w: the switch waited for ranks %v: %w", transports.ErrPeerFailed, missing, err)
}

// Fill implements rank.Part.
func (p *inNetwork) Fill(id rank.OperationID) {
	to := p.Input
	if id.Mode == collective.InPlace {
		to = p.Output
	}
	p.pattern.Fill(to, id.Index, 0)
}

// Operate implements rank.Part.
func (p *inNetwork) Operate(ctx context.Context, id rank.OperationID, _ bool) (collective.Traffic, error) {
	if id.Mode == collective.OutOfPlace {
		copy(p.Output, p.Input)
	}
	size := uint64(len(p.Output))
	p.steps.Begin()
	err := p.client.Combine(ctx, p.kind, p.op, p.Output)
	p.process.SetWaited(p.client.Waited())
	return collective.Traffic{Sent: size, Received: size}, err
}

// Lost implements rank.Part.
func (p *inNetwork) Lost() []collective.Loss { return nil }

// Check implements rank.Part.
func (p *inNetwork) Check(id rank.OperationID, _ []collective.Loss) (wrong, short uint64) {
	return p.pattern.Wrong(p.Output, id.Index, 0), 0
}
