package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"railbed/reporting"
	"railbed/scenarios/runner/judge"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/plan/allocation"
	"railbed/plan/spec"
	"railbed/workloads/flows"
	"railbed/workloads/worker"
)

// ErrMessages is the error of a messages step for which the plan has too few ranks, or which is too
// large.
var ErrMessages = errors.New("messages")

// messagesStep sends messages.
type messagesStep struct {
	ranksStep
	spec     *spec.Messages
	schedule *flows.Schedule
}

var _ = makes((*preparation).messages)

func (p *preparation) messages(f stepFrame, m *spec.Messages) step {
	made := &messagesStep{ranksStep: p.ranks(f), spec: m}
	var slowest units.Rate
	for _, d := range worker.SendsOf(made.plan, made.plan.Ranks) {
		if slowest == 0 || d.Rate < slowest {
			slowest = d.Rate
		}
	}
	var err error
	if made.schedule, err = scheduleOf(p.o, m, len(made.plan.Ranks), slowest); err != nil {
		p.wrong(ErrMessages, f.at, err)
		return made
	}
	made.pattern = among(made.schedule.Pairs(), &m.Carriage)
	p.planRates(&made.ranksStep, "")
	return made
}

// mostMessageBytes is the maximum size of a schedule in bytes. Both ends keep all of it in memory.
const mostMessageBytes = 1 << 30

// sizesOf returns the sizes of messages. key is the key of the settings in the file.
func sizesOf(o *Options, key string, m *spec.Sizing) (*flows.Sizes, error) {
	sizes := flows.Published[m.Sizes]
	if m.File != "" {
		key += ".file"
		name, text, err := o.read(key, m.File)
		if err != nil {
			return nil, err
		}
		if sizes, err = flows.ReadSizes(name, text); err != nil {
			return nil, inFile(key, err)
		}
	}
	return sizes.Scaled(m.Scale.Float()), nil
}

// cacheOf returns the schedule of a transfer of caches.
func cacheOf(o *Options, c *spec.CacheMessages, ranks int) (*flows.Schedule, error) {
	if c.Prefill >= ranks {
		return nil, fmt.Errorf("%d of %d ranks prefill: want at least one rank that decodes", c.Prefill,
			ranks)
	}
	output := 0
	if c.Decode != nil {
		output = c.Decode.Tokens
	}
	cache := flows.Cache{
		Output:     output,
		Ranks:      ranks,
		Prefill:    c.Prefill,
		Requests:   c.Requests,
		PerSecond:  c.PerSecond.Float(),
		TimeScale:  c.TimeScale.Float(),
		Tokens:     c.Tokens,
		Layers:     c.Layers,
		LayerTime:  time.Duration(c.LayerTime),
		LayerBytes: c.LayerBytes,
		Whole:      c.Whole,
		Seed:       o.Plan.Seed,
	}
	if c.Trace != "" {
		const key = "cache.trace"
		name, text, err := o.read(key, c.Trace)
		if err != nil {
			return nil, err
		}
		if cache.Trace, err = flows.ReadRequests(name, text); err != nil {
			return nil, inFile(key, err)
		}
	}
	return cache.Schedule()
}

// scheduleOf returns the messages that a number of ranks send. rate is the rate of their NICs. Errors are
// written for the user.
func scheduleOf(options *Options, m *spec.Messages, ranks int, rate units.Rate) (*flows.Schedule, error) {
	var s *flows.Schedule
	seed := options.Plan.Seed
	var sizes *flows.Sizes
	var err error
	if sizing := m.Sizing(); sizing != nil {
		key := "open"
		if m.Closed != nil {
			key = "closed"
		}
		if sizes, err = sizesOf(options, key, sizing); err != nil {
			return nil, err
		}
	}
	switch {
	case m.Open != nil:
		o := m.Open
		s, err = flows.Open{Ranks: ranks, Count: o.Count, Sizes: sizes, Load: o.Load.Float(), Rate: rate,
			Seed: seed}.Schedule()
	case m.Closed != nil:
		o := m.Closed
		s, err = flows.Closed{Ranks: ranks, Count: o.Count, Sizes: sizes, Outstanding: o.Outstanding,
			Seed: seed}.Schedule()
	case m.Cache != nil:
		s, err = cacheOf(options, m.Cache, ranks)
	default:
		b := m.Blocks
		if b.Servers >= ranks {
			return nil, fmt.Errorf("%d of %d ranks have storage: want at least one rank without", b.Servers,
				ranks)
		}
		s = flows.Blocks{Ranks: ranks, Servers: b.Servers, Count: b.Count, Block: b.Block,
			Outstanding: b.Outstanding, Reads: b.Reads.Float(), Replicas: b.Replicas, Seed: seed}.Schedule()
	}
	if err != nil {
		return nil, err
	}
	if m.RD != nil {
		s.Droppable = m.RD.Droppable
	}
	if total := s.Bytes(); total > mostMessageBytes {
		return nil, fmt.Errorf("the messages have %v in total: want at most %v, by fewer or smaller messages",
			total, units.Bytes(mostMessageBytes))
	}
	return s, nil
}

// job implements ranked.
func (m *messagesStep) job(s *session) (worker.Job, error) {
	job := m.ranksJob(s)
	job.Work, job.Iterations = worker.Messages{Schedule: m.schedule}, 1
	return job, nil
}

func (m *messagesStep) do(ctx context.Context, s *session) error {
	return s.work(ctx, m, func(r *worker.Result, _ *worker.Wanted) judge.Finished {
		// Without rates of links the time of a message alone is unknown.
		alone, err := allocation.Alone(s.plan, allocation.Options{})
		if err != nil {
			alone = nil
		}
		return finishMessages(m.spec, m.schedule, r, alone)
	})
}

// sizeBins is the number of size ranges in the table of slowdowns.
const sizeBins = 5

// slowdowns compares the time of messages with the time that they take alone, by size.
func slowdowns(
	schedule *flows.Schedule, sent []flows.Sent, alone func(from, to int, size units.Bytes) time.Duration,
) (all []report.Slowdown) {
	for _, bin := range schedule.Slowdowns(sent, sizeBins, func(m flows.Message) time.Duration {
		return alone(m.From, m.To, m.Bytes)
	}) {
		all = append(all, report.Slowdown{
			AtMost: uint64(bin.AtMost), Percentiles: report.Percentiles(bin.Percentiles),
		})
	}
	return all
}

// finishBlocks computes the share of blocks that took no longer than an objective in seconds. An
// objective of 0 means none.
func finishBlocks(made *report.Messages, objective float64, took []float64) {
	if objective <= 0 {
		return
	}
	within := 0
	for _, t := range took {
		if t <= objective {
			within++
		}
	}
	share := float64(within) / float64(len(took))
	made.SLO, made.Attained = objective, &share
}

// finishMessages translates a result for the report and for the packet checks.
func finishMessages(m *spec.Messages, schedule *flows.Schedule, r *worker.Result,
	alone func(from, to int, size units.Bytes) time.Duration) judge.Finished {
	made := &report.Messages{Name: m.Name, Transport: r.Transport, Bytes: uint64(schedule.Bytes()),
		Wrong: r.Wrong(), Conduct: conduct(r, m.RoCE)}
	var sent []flows.Sent // without answers
	var last time.Duration
	for _, rank := range *r.Own.(*worker.Sent) {
		for _, s := range rank {
			if last = max(last, s.Done); !schedule.IsAnswer(s.Message) {
				sent = append(sent, s)
			}
		}
	}
	var took []float64
	parts := map[bool][]float64{} // by whether the message has an answer
	whole := schedule.Whole(sent)
	for _, s := range whole {
		took = append(took, schedule.Took(s).Seconds())
		answered := schedule.Messages[s.Message].Answer > 0
		parts[answered] = append(parts[answered], took[len(took)-1])
	}
	if slow := schedule.Straggler(sent, r.Ranks); slow != nil {
		made.Slow = &report.SlowRank{Rank: slow.Rank, Node: r.PerRank[slow.Rank].Node,
			Median: slow.Median.Seconds(), Others: slow.Others.Seconds()}
	}
	perSecond := func(count int) float64 { return float64(count) / max(last.Seconds(), 1e-9) }
	made.Count = len(whole)
	switch {
	case m.Cache != nil:
		made.What = "time to first token"
		took = finishServing(made, m.Cache, schedule, flows.Groups(schedule.Messages, sent), last)
	case m.Sizing() != nil:
		made.What = "message"
		if alone != nil {
			made.Slowdowns = slowdowns(schedule, sent, alone)
		}
	default:
		made.What = "block"
		finishBlocks(made, time.Duration(m.Blocks.SLO).Seconds(), took)
		for _, part := range []struct {
			what     string
			answered bool
		}{{"read", true}, {"write", false}} {
			if times := parts[part.answered]; len(parts) > 1 {
				made.Parts = append(made.Parts,
					report.MessagesPart{What: part.what, PerSecond: perSecond(len(times)),
						Times: report.Percentiles(flows.PercentilesOf(times))})
			}
		}
	}
	made.PerSecond = perSecond(len(took))
	made.Times = report.Percentiles(flows.PercentilesOf(took))
	made.Missing = r.Missing()
	for i := range schedule.Messages {
		made.MayMiss += uint64(schedule.MayMiss(i))
	}
	done := judge.Finished{Name: m.Name, Wrong: made.Wrong, LeftOut: made.LeftOut,
		Outcome: messagesOutcome{made},
		Times:   []report.Distribution{report.NewDistribution(m.Name, made.What, report.RanksSource, took)}}
	done.Traffic = verify.Workload{Name: m.Name, Pattern: verify.Pairs, Pairs: schedule.Pairs()}
	for rank := range r.PerRank {
		judged := judgedRank(r.Transport, &r.PerRank[rank])
		judged.Missing = left(&m.Carriage, &r.PerRank[rank])
		done.Traffic.Ranks = append(done.Traffic.Ranks, judged)
	}
	return done
}

// messagesOutcome is the outcome of a messages step.
type messagesOutcome struct{ *report.Messages }

func (o messagesOutcome) Figure(key string) (value float64, there bool) {
	return reporting.MessagesFigure(o.Messages, key)
}

func (o messagesOutcome) Observations() *report.Conduct { return &o.Conduct }

func (o messagesOutcome) AddTo(r *report.Report) { r.Messages = append(r.Messages, *o.Messages) }

func (o messagesOutcome) Correctness() judge.Correctness {
	return judge.Correctness{Unit: "bytes", Wrong: "%d bytes of messages are wrong",
		Right: plural.Text("every byte of %d messages is right", o.Count), Parts: "messages",
		Without: " but for"}
}
