package worker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"railbed/internal/clock"
	"railbed/internal/element"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/transports"
	"railbed/transports/aggregation"
	"railbed/workloads/collective"
)

// InNetwork is the algorithm of an all-reduce in which a switch adds up, and InSwitch what
// carries it.
const (
	InNetwork = spec.InNetwork
	InSwitch  = spec.InSwitch
)

// Aggregator is the switches that add up for a job.
type Aggregator struct {
	Job   plan.AggregationJob
	Epoch uint16 // later than any before

	release func() error // of the job, where this process has it
}

// FindAggregator is who adds up for some ranks: the plan's choice, or the switch of a name and those
// below it. Jobs of some numbers are busy with other collectives.
func FindAggregator(p *plan.Plan, ranks []plan.Rank, root string, busy ...uint16) (*Aggregator, error) {
	job, err := p.AggregationFor(ranks, root, busy...)
	if err != nil {
		return nil, err
	}
	return &Aggregator{Job: *job}, nil
}

// Begin takes an epoch that is later than those at which the running switches are. The job is
// this process's until End: two that began at once would take the same one. The error wraps
// testbed.ErrInUse where another process has it.
func (a *Aggregator) Begin(ctx context.Context, tb *testbed.Testbed) error {
	if a.release == nil {
		release, err := tb.Reserve(fmt.Sprintf("aggregation-%d", a.Job.Number))
		if err != nil {
			return fmt.Errorf("the job of switch %s: %w; want this collective after that one's, or another "+
				"switch", a.Job.Root().Switch, err)
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
		return fmt.Errorf("of %s, which are to add up, %d run job %d", a.Job.Text(), running, a.Job.Number)
	}
	return nil
}

// End leaves the job to others. It does nothing where there is none, or it has not begun.
func (a *Aggregator) End() {
	if a != nil && a.release != nil {
		_ = a.release() // it closes a file, and with that the lock is gone
		a.release = nil
	}
}

// aggregatorConfig is what a worker is told of it.
type aggregatorConfig struct {
	Config aggregation.Config `json:"config"`
	Addr   netip.Addr         `json:"addr"`
}

// checkInNetwork looks at what a switch can add up.
func (j Job) checkInNetwork(problem func(format string, args ...any)) {
	if (j.Algorithm == InNetwork) != (j.Transport == InSwitch) {
		problem("%s over %s: want algorithm %s over %s, or neither", j.Algorithm, j.Transport, InNetwork,
			InSwitch)
		return
	}
	if j.Algorithm != InNetwork {
		return
	}
	if j.Kind != AllReduce {
		problem("%s by %s: a switch does %s", j.Kind, InNetwork, AllReduce)
	}
	if j.Aggregator == nil || len(j.Aggregator.Job.Workers) != len(j.Ranks) {
		problem("%s: %w", InNetwork, plan.ErrNoTree)
	}
}

// aggregator is what the worker of a rank is told.
func (j Job) aggregator(rank int) *aggregatorConfig {
	a := j.Aggregator
	to := a.Job.Of(rank)
	c := &aggregatorConfig{Config: aggregation.Of(&a.Job, rank, a.Epoch), Addr: to.Addr4}
	if j.Family == 6 {
		c.Addr = to.Addr6
	}
	return c
}

// inNetwork is a rank's part in all-reduces that a switch computes.
type inNetwork struct {
	buffers
	client  *aggregation.Client
	kind    element.Type
	op      element.Op
	pattern *collective.Pattern
	timer   *waitTimer
}

// aggregate meets the other ranks and has a switch do the operations.
func (w *rank) aggregate(ctx context.Context) error {
	c := &w.config
	client, err := whenFree(func() (*aggregation.Client, error) {
		return aggregation.Dial(netip.AddrPortFrom(c.Addr, c.Port), c.Aggregator.Addr, c.Aggregator.Config,
			clock.New(c.Dilation))
	})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := w.meet(ctx, &rendezvous{}); err != nil {
		return err
	}
	pattern, err := collective.NewPattern(
		collective.PatternConfig{Rank: c.Rank, Ranks: c.Ranks, Type: c.Type, Op: c.Op})
	if err != nil {
		return err
	}
	most := int(slices.Max(c.Sizes))
	whole := allocateFor(shape{input: most, output: most})
	var sent collective.Traffic
	var p part
	var view buffers
	at := -1
	for _, r := range c.rounds() {
		size := int(c.Sizes[r.size])
		if r.size != at {
			at, view = r.size, whole.view(shape{input: size, output: size})
			p = &inNetwork{view, client, c.Type, c.Op, pattern, w.timer}
			if c.SGD != nil {
				if p, err = w.learn(p, view); err != nil {
					return err
				}
			}
		}
		if err := w.round(ctx, p, view.output, &r); err != nil {
			return missingRanks(err, c)
		}
		operations := uint64(r.before + r.count)
		addTraffic(&sent, collective.Traffic{Sent: operations * uint64(size),
			Received: operations * uint64(size)})
	}
	if err := w.end(ctx); err != nil {
		return err
	}
	return w.send(message{Finished: &workerFinished{Stream: sent}})
}

// missingRanks says which ranks the switch waited for in vain.
func missingRanks(err error, c *workerConfig) error {
	var reject *aggregation.RejectError
	if !errors.As(err, &reject) || reject.Code != wire.AggregationTimeout {
		return err
	}
	var missing []int
	for rank := range c.Ranks {
		if reject.Present>>rank&1 == 0 {
			missing = append(missing, rank)
		}
	}
	return fmt.Errorf("%w: the switch waited for ranks %v: %w", transports.ErrPeerFailed, missing, err)
}

// fill implements part.
func (p *inNetwork) fill(id operationID) {
	to := p.input
	if id.Mode == collective.InPlace {
		to = p.output
	}
	p.pattern.Fill(to, id.Index, 0)
}

// operate implements part.
func (p *inNetwork) operate(ctx context.Context, id operationID, _ bool) (collective.Traffic, error) {
	if id.Mode == collective.OutOfPlace {
		copy(p.output, p.input)
	}
	size := uint64(len(p.output))
	err := p.client.Combine(ctx, p.kind, p.op, p.output)
	p.timer.waited.Store(int64(p.client.Waited()))
	return collective.Traffic{Sent: size, Received: size}, err
}

// lost implements part.
func (p *inNetwork) lost() []collective.Loss { return nil }

// check implements part.
func (p *inNetwork) check(id operationID, _ []collective.Loss) (wrong, short uint64) {
	return p.pattern.Wrong(p.output, id.Index, 0), 0
}
