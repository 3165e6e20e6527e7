package runner

import (
	"context"

	"railbed/reporting"
	"railbed/scenarios/runner/judge"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/clock"
	"railbed/internal/element"
	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/workloads/training/moe"
	"railbed/workloads/worker"
)

// collectiveStep runs a collective, an SGD training or a mixture of experts on every rank.
type collectiveStep struct {
	ranksStep
	spec     *spec.Workload
	schedule *schedule.Schedule // of algorithm: msccl
}

var _ = makes((*preparation).collective)

func (p *preparation) collective(f stepFrame, w *spec.Workload) step {
	c := &collectiveStep{ranksStep: p.ranks(f), spec: w}
	c.pattern = pattern(w)
	if p.algorithm(c) {
		c.weigh()
		p.planRates(&c.ranksStep, w.Algorithm)
	}
	return c
}

// job implements ranked. It returns the job without the aggregator.
func (c *collectiveStep) job(s *session) (worker.Job, error) {
	job, w := c.ranksJob(s), c.spec
	job.Kind, job.Algorithm, job.Size, job.Iterations, job.Warmup = w.Kind, w.Algorithm, w.Size, w.Iterations,
		w.Warmup
	job.Skew, job.Seed, job.Type, job.Op, job.Root, job.Schedule = w.Skew, s.plan.Seed, element.Type(w.Type),
		element.Op(w.Op), w.Root, c.schedule
	switch w.Kind {
	case spec.KindMoE:
		job.Work = worker.MoE{Config: moe.ConfigOf(w.MoE, len(job.Ranks), s.plan.Seed),
			RatesBack: c.ratesBack}
	case spec.KindSGD:
		job.Work = worker.SGD{Config: w.SGD}
	}
	if w.Sizes != nil {
		sizes, err := sizes(w, len(job.Ranks))
		if err != nil {
			return job, err
		}
		job.Sweep, job.InPlace = &worker.Sweep{Sizes: sizes, Checks: sweepChecks, Average: worker.MeanRank},
			inPlaceToo(w, job.Schedule)
	}
	if w.Channels > 0 {
		job.Channels = worker.Channels(s.plan, job.Ranks, w.Channels)
		job.ChannelSends = worker.SendsOf(s.plan, job.Channels)
	}
	return job, nil
}

func (c *collectiveStep) do(ctx context.Context, s *session) error {
	if c.spec.Algorithm != schedule.InNetwork {
		return s.work(ctx, c, func(r *worker.Result, _ *worker.Wanted) judge.Finished {
			return finish(c.spec, r, s.plan)
		})
	}
	a, release, err := s.aggregator(ctx, c.spec, c.plan.Ranks)
	if err != nil {
		return err
	}
	defer release()
	return s.work(ctx, aggregated{c, a}, func(r *worker.Result, _ *worker.Wanted) judge.Finished {
		done := finish(c.spec, r, s.plan)
		done.Traffic.Sums = &verify.Sums{Job: a.Job.Number, Epoch: a.Epoch}
		return done
	})
}

// aggregated is a collective that switches compute.
type aggregated struct {
	*collectiveStep
	aggregator *worker.Aggregator
}

// job implements ranked.
func (a aggregated) job(s *session) (worker.Job, error) {
	job, err := a.collectiveStep.job(s)
	job.Aggregator = a.aggregator
	return job, err
}

// finish translates a result for the report and for the packet checks. It converts the workers'
// times from real time to the testbed's time.
func finish(w *spec.Workload, r *worker.Result, p *plan.Plan) judge.Finished {
	by := clock.Dilation(p.Dilation)
	row := r.Row().Virtual(by)
	measured := row.OutOfPlace
	ran := *w // the collective that ran
	ran.Kind, ran.Size, ran.Type = r.Kind, units.Bytes(row.Size), row.Type
	made := collectiveOutcome{&report.Workload{
		Name:      w.Name,
		Kind:      w.Kind,
		Algorithm: r.Algorithm,
		File:      w.File,
		Transport: r.Transport,
		Ranks:     r.Ranks,
		Bytes:     row.Size, Count: uint64(row.Count), Type: row.Type, RedOp: row.RedOp,
		Warmup: w.Warmup, Iterations: w.Iterations,
		Time: measured.Time, AlgBW: measured.AlgBW, BusBW: measured.BusBW, Wrong: r.Wrong(),
		LeftOut: report.LeftOut{Missing: r.Missing(), MayMiss: mayMiss(&ran, r.Ranks, row.Size)},
		Conduct: conduct(r, w.RoCE),
	}}
	made.Straggler = r.Straggler()
	done := judge.Finished{Name: w.Name, Wrong: made.Wrong, LeftOut: made.LeftOut, Outcome: made,
		Traffic: verify.Workload{Name: w.Name, Pattern: pattern(w).Pattern}}
	if w.Sizes != nil {
		for _, row := range r.Rows {
			made.Rows = append(made.Rows, row.Virtual(by))
		}
	}
	if w.Channels > 0 {
		done.Traffic = channelTraffic(&ran, r)
	}
	for _, rank := range r.PerRank {
		made.Sent = append(made.Sent, rank.Stream.Sent)
		if w.Channels > 0 {
			continue
		}
		judged := judgedRank(r.Transport, &rank)
		judged.Missing = left(&w.Carriage, &rank)
		done.Traffic.Ranks = append(done.Traffic.Ranks, judged)
	}
	switch own := r.Own.(type) {
	case *worker.Learning:
		done.Outcome = finishSGD(made, own)
	case *worker.Mixture:
		done.Outcome = finishMixture(made, w, own, p)
		if w.Channels == 0 {
			done.Traffic.Pattern = verify.AllToAll
		}
	}
	if w.Kind == spec.Barrier {
		done.Outcome = barrierOutcome{made, measured.Unchecked}
	}
	return done
}

// collectiveOutcome is the outcome of a collective.
type collectiveOutcome struct{ *report.Workload }

func (o collectiveOutcome) Figure(key string) (value float64, there bool) {
	return reporting.WorkloadFigure(o.Workload, key)
}

func (o collectiveOutcome) Observations() *report.Conduct { return &o.Conduct }

func (o collectiveOutcome) AddTo(r *report.Report) { r.Workloads = append(r.Workloads, *o.Workload) }

func (o collectiveOutcome) Correctness() judge.Correctness { return judge.Elements(o.Ranks) }

// barrierOutcome is the outcome of a barrier.
type barrierOutcome struct {
	collectiveOutcome
	unchecked bool // ranks have other clocks
}

func (o barrierOutcome) Correctness() judge.Correctness {
	words := judge.Elements(o.Ranks)
	words.Wrong = "a rank ended before all had begun %d times"
	words.Right = plural.Text("none of %d ranks ended before all had begun", o.Ranks)
	if o.unchecked {
		words.Unknown = "the order is unknown: ranks have other clocks than this host"
	}
	return words
}

// conduct returns the observations of the ranks. The pace is the pace of the rank whose packets were the
// latest. roce are the settings of transport roce, nil for the defaults.
func conduct(r *worker.Result, roce *spec.RoCE) report.Conduct {
	made := report.Conduct{Repeats: r.Repeats(), RoCE: r.RoCE()}
	for i := range r.PerRank {
		if p := r.PerRank[i].Pace; p != nil {
			made.Pace.Worst(report.Pace(*p))
		}
	}
	if made.RoCE != nil && roce != nil {
		made.RoCE.DCQCN = roce.Congestion == spec.RoCEDCQCN
	}
	return made
}

// channelTraffic returns the traffic of a workload in channels. For the checks, each channel of a
// rank is a rank of its own, with its place and the ranks to which it sends.
func channelTraffic(w *spec.Workload, r *worker.Result) verify.Workload {
	t := verify.Workload{Name: w.Name, Pattern: verify.Pairs}
	for _, rank := range r.PerRank {
		for i := range rank.Channels {
			judged := judgedRank(r.Transport, &rank.Channels[i])
			judged.Channel = i
			if q := judged.QueuePairs; q != nil {
				q.Peers = peersInChannel(q.Peers, i, w.Channels)
			}
			for other := range r.Ranks {
				if w.Algorithm != schedule.Ring && other != rank.Rank ||
					w.Algorithm == schedule.Ring && r.Ranks > 1 && other == (rank.Rank+1)%r.Ranks {
					t.Pairs = append(t.Pairs, [2]int{len(t.Ranks), other*w.Channels + i})
				}
			}
			t.Ranks = append(t.Ranks, judged)
		}
	}
	return t
}

// peersInChannel returns the peers of queue pairs as indices of ranks of which each channel is one.
func peersInChannel(peers map[uint32]int, channel, channels int) map[uint32]int {
	places := map[uint32]int{}
	for number, rank := range peers {
		places[number] = rank*channels + channel
	}
	return places
}

// judgedRank returns a rank for the packet checks.
func judgedRank(transport string, rank *worker.RankResult) verify.Rank {
	judged := verify.Rank{
		Rank:      rank.Rank,
		Node:      rank.Node,
		NIC:       rank.NIC,
		SecondNIC: rank.SecondNIC,
		Addr:      rank.Addr,
		Port:      rank.Port,
		Transport: transport,
		Engines:   rank.Engines,
		Reported:  &rank.Stream.Sent, Life: rank.Life,
	}
	if q := rank.QueuePairs; q != nil {
		judged.QueuePairs, judged.Overruns = &verify.QueuePairs{First: q.First, Count: q.Count,
			Peers: q.Peers}, q.Overruns
	}
	for _, flow := range rank.Flows {
		judged.Flows = append(judged.Flows, verify.FlowAddr{Src: flow.Local, Dst: flow.Remote})
	}
	return judged
}

// overruns returns the ranks of all workloads that had no room for packets.
func overruns(workloads []judge.Finished) (all []report.Overrun) {
	for _, w := range workloads {
		for _, rank := range w.Traffic.Ranks {
			if rank.Overruns > 0 {
				all = append(all, report.Overrun{Workload: w.Name, Rank: rank.Rank, Node: rank.Node,
					Packets: rank.Overruns})
			}
		}
	}
	return all
}

// sweepChecks is how many operations of each size and mode are checked if a workload has several
// sizes.
const sweepChecks = 1

// sizes returns the sizes of a workload over the given number of ranks.
func sizes(w *spec.Workload, ranks int) ([]units.Bytes, error) {
	if w.Sizes == nil {
		return []units.Bytes{w.Size}, nil
	}
	return worker.Range{From: w.Sizes.From, To: w.Sizes.To, Factor: w.Sizes.Factor}.Sizes(w.Kind, ranks,
		element.Type(w.Type))
}

// left returns the bytes that never arrived at a rank, by its own count, or nil if no bytes may be
// left out.
func left(c *spec.Carriage, rank *worker.RankResult) *uint64 {
	if !c.MayDrop() {
		return nil
	}
	return &rank.Payload.Missing
}

// mayMiss returns how many bytes of partial sums a workload may leave out. They are part of the
// reduce-scatter: n-1 steps in which all ranks together send the buffer once.
func mayMiss(w *spec.Workload, ranks int, size uint64) uint64 {
	if !w.MayDrop() || ranks < 2 {
		return 0
	}
	return uint64(w.RD.Droppable.Float() * float64(uint64(ranks-1)*size*uint64(w.Warmup+w.Iterations)))
}
