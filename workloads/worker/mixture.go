package worker

import (
	"context"
	"fmt"
	"time"

	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/plan/allocation"
	"railbed/plan/perf"
	"railbed/plan/spec"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
	"railbed/workloads/training/moe"
)

// MoE is a mixture of experts: dispatch and combine are two all-to-alls of unequal parts. Type and size
// of the elements follow from it.
type MoE struct {
	Collective
	Config moe.Config
	// RatesBack are the rates for messages that experts send back. Default: the job's.
	RatesBack *allocation.File
}

// mixtureWork is a rank's part in a mixture of experts.
type mixtureWork struct {
	Config    moe.Config         `json:"config"`
	Phases    []collective.Phase `json:"phases"`
	RatesBack map[int]units.Rate `json:"rates_back,omitempty"`
}

// Mixture is the result of a mixture of experts, without the times of operations.
type Mixture struct {
	// Dispatch and Combine are the times of the two exchanges of an operation: the slowest rank's,
	// averaged over operations. Between the two exchanges the experts compute.
	Dispatch time.Duration `json:"dispatch_ns"`
	Combine  time.Duration `json:"combine_ns"`
	// Error is the error over all ranks and operations.
	Error moe.Error `json:"error"`

	operations int
}

// mixtureStep is a rank's result of an operation.
type mixtureStep struct {
	Dispatch time.Duration `json:"dispatch"`
	Combine  time.Duration `json:"combine"`
	Error    moe.Error     `json:"error"`
}

// add implements Results.
func (m *Mixture) add(o *Operation, ranks []rank.Done, _, _ time.Time) error {
	steps, err := own[mixtureStep](ranks)
	if err != nil {
		return err
	}
	var most mixtureStep
	for _, step := range steps {
		most.Dispatch, most.Combine = max(most.Dispatch, step.Dispatch), max(most.Combine, step.Combine)
		m.Error.Add(step.Error)
	}
	if o.Timed {
		before := time.Duration(m.operations)
		m.operations++
		m.Dispatch = (m.Dispatch*before + most.Dispatch) / (before + 1)
		m.Combine = (m.Combine*before + most.Combine) / (before + 1)
	}
	return nil
}

// complete implements Work.
func (m MoE) complete(j *Job, problem reporter) {
	if j.InPlace || j.Sweep != nil || j.Type != "" || j.Op != "" || j.Size != 0 {
		problem("mixture of experts: want no in-place operations, sweep, type, op or size")
	}
	if m.Config.Ranks != len(j.Ranks) {
		problem("mixture of experts on %d ranks: want the job's %d ranks", m.Config.Ranks, len(j.Ranks))
	}
	if err := m.Config.Check(); err != nil {
		problem("%w", err)
	}
	j.Kind, j.Type = spec.KindMoE, element.BFloat16
	bytes := m.Config.DispatchBytes() + m.Config.CombineBytes() // of a token and an expert
	j.Size = units.Bytes(m.Config.Tokens * m.Config.TopK * bytes)
}

func (MoE) check(j *Job, problem reporter) { j.checkAlgorithm(problem) }

func (m MoE) of(j *Job, rank int) rank.Work {
	return mixtureWork{Config: m.Config, Phases: j.phases(rank), RatesBack: ratesOf(m.RatesBack, rank)}
}

// wanted implements Work.
func (m MoE) wanted(_ *Job, c *rank.Config, w *Wanted) error {
	all, err := mixtureAlgorithms(m.Config, c, nil)
	if err != nil {
		return err
	}
	operations := operationsOf(c)[0]
	for _, lanes := range all {
		for i, exchange := range lanes {
			for rank := range c.Ranks {
				w.add(rank, i, len(lanes), collective.Amounts(exchange, rank, operations))
			}
		}
	}
	return nil
}

func (MoE) results(*Job) Results { return &Mixture{} }

func (m MoE) measure(_ *Job, row *perf.Row) bool {
	row.Count = m.Config.Tokens * m.Config.Hidden
	return true
}

// The two exchanges of a mixture.
const (
	dispatch = iota
	combine
	exchanges
)

// mixture is one rank's part in a mixture of experts.
type mixture struct {
	experts   *moe.Rank
	memory    [exchanges]buffers
	exchanges [exchanges][]*collective.Runner // by lane
	shares    []*rank.Shares                  // by lane
	busy      *rank.Idleness
	step      mixtureStep
	keepTo    func(exchange int) // sets the rates, if each exchange has its own
}

// WordBytes is the length in bytes of the elements in which a mixture's messages are exchanged.
const WordBytes = 4

// Matrices returns the number of words of WordBytes that ranks send each other in the dispatch and
// in the combine.
func Matrices(c moe.Config) (m [exchanges]collective.Matrix) {
	load := c.Load()
	for from := range c.Ranks {
		for i := range m {
			m[i] = append(m[i], make([]int, c.Ranks))
		}
		for to := range c.Ranks {
			out, back := c.Bytes(&load, from, to)
			m[dispatch][from][to], m[combine][from][to] = out/WordBytes, back/WordBytes
		}
	}
	return m
}

// mixtureAlgorithms returns the algorithms of the exchanges, by exchange and lane. A rank knows its own
// phases.
func mixtureAlgorithms(m moe.Config, c *rank.Config, phases map[int][]collective.Phase) (
	all [exchanges][]collective.Algorithm, err error) {
	for i, words := range Matrices(m) {
		for _, channel := range channelsOf(c) {
			made, err := collective.NewExchange(collective.ExchangeConfig{Matrix: words, Phases: phases,
				Channel: channel, Type: element.Int32})
			if err != nil {
				return all, err
			}
			all[i] = append(all[i], made)
		}
	}
	return all, nil
}

// Run implements rank.Work.
func (m mixtureWork) Run(ctx context.Context, w *rank.Process) error {
	return w.ThroughLanes(func() error { return m.exchange(ctx, w) })
}

// exchange exchanges memory handles and addresses with the other ranks and does the exchanges.
func (of mixtureWork) exchange(ctx context.Context, w *rank.Process) error {
	c := &w.Config
	m := &mixture{busy: w.Busy(), experts: moe.NewRank(of.Config, c.Rank)}
	all, err := mixtureAlgorithms(of.Config, c, map[int][]collective.Phase{c.Rank: of.Phases})
	if err != nil {
		return err
	}
	for i := range m.memory {
		m.memory[i] = allocate(all[i][0].Lengths(c.Rank))
	}
	tables, err := w.Meet(ctx, func(_ int, l *rank.Lane) (own *rank.Rendezvous, err error) {
		own = &rank.Rendezvous{Operations: make([]collective.Memory[[]byte], exchanges)}
		for i := range m.memory {
			if own.Operations[i], err = l.Register(m.memory[i]); err != nil {
				return nil, err
			}
		}
		return own, nil
	})
	if err != nil {
		return err
	}
	for i := range w.Lanes() {
		if err := m.join(w, i, tables[i], &all); err != nil {
			return err
		}
	}
	m.keepTo = func(int) {}
	if of.RatesBack != nil {
		m.keepTo = func(exchange int) {
			w.KeepTo([exchanges]map[int]units.Rate{c.Rates, of.RatesBack}[exchange])
		}
	}
	return w.Do(ctx, func(int) (rank.Part, []byte, error) { return m, m.experts.Result(), nil })
}

// join makes the exchanges of a lane.
func (m *mixture) join(w *rank.Process, lane int, table []rank.Rendezvous,
	all *[exchanges][]collective.Algorithm) error {
	l := w.Lanes()[lane]
	shares, err := l.Share(exchanges)
	if err != nil {
		return err
	}
	m.shares = append(m.shares, shares)
	for other := range table {
		if got := len(table[other].Operations); got != exchanges {
			return fmt.Errorf("rank %d has %d exchanges, want %d", other, got, exchanges)
		}
	}
	names := [exchanges]string{"dispatch", "combine"}
	for i := range m.exchanges {
		of := func(other *rank.Rendezvous) buffers { return other.Operations[i] }
		exchange, err := newRunner(l, table, of, collective.RunnerConfig{
			Endpoint:  shares.Of(i),
			Algorithm: all[i][lane],
			Rank:      w.Config.Rank,
			Memory:    m.memory[i],
			Steps:     w.LogSteps(names[i], channelName(w, lane)),
		})
		if err != nil {
			return err
		}
		m.exchanges[i] = append(m.exchanges[i], exchange)
	}
	return nil
}

// exchangeOnce does one exchange in all lanes.
func (m *mixture) exchangeOnce(ctx context.Context, exchange int) (collective.Traffic, error) {
	m.keepTo(exchange)
	return atOnce(ctx, m.busy, m.exchanges[exchange],
		func(r *collective.Runner, ctx context.Context) (collective.Traffic, error) {
			return r.Run(ctx, collective.OutOfPlace)
		})
}

// Fill implements rank.Part.
func (m *mixture) Fill(id rank.OperationID) { m.experts.Fill(id.Index) }

// Operate implements rank.Part. The dispatch time includes the conversion of tokens to FP8, and the
// combine time includes the addition of the experts' results, as in the GPU kernels that the
// mixture emulates.
func (m *mixture) Operate(ctx context.Context, _ rank.OperationID, _ bool) (traffic collective.Traffic,
	err error) {
	err = rank.During(ctx, m.shares, func(ctx context.Context) error {
		began := time.Now()
		m.experts.Pack(m.memory[dispatch].Input)
		out, err := m.exchangeOnce(ctx, dispatch)
		if err != nil {
			return fmt.Errorf("dispatch: %w", err)
		}
		dispatched := time.Now()
		m.experts.Compute(m.memory[dispatch].Output, m.memory[combine].Input)
		computed := time.Now()
		back, err := m.exchangeOnce(ctx, combine)
		if err != nil {
			return fmt.Errorf("combine: %w", err)
		}
		m.experts.Merge(m.memory[combine].Output)
		m.step = mixtureStep{Dispatch: dispatched.Sub(began), Combine: time.Since(computed)}
		traffic.Add(out)
		traffic.Add(back)
		return nil
	})
	return traffic, err
}

// Lost implements rank.Part.
func (m *mixture) Lost() []collective.Loss { return nil }

// Check implements rank.Part. It counts the wrong bytes of messages to experts and the wrong elements of
// the result.
func (m *mixture) Check(rank.OperationID, []collective.Loss) (wrong, short uint64) {
	wrong, m.step.Error = m.experts.WrongCombined()
	return wrong + m.experts.WrongDispatched(m.memory[dispatch].Output), 0
}

func (m *mixture) Tell() (any, error) { return m.step, nil }
