package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/clock"
	"railbed/internal/element"
	"railbed/internal/reexec"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/workloads/stacks"
	"railbed/workloads/traffic"
	"railbed/workloads/worker"
)

// Parts returns the parts that a program must implement to run scenarios. The program passes them
// to testbed.Init.
func Parts() reexec.Parts {
	parts := reexec.Parts{
		worker.Args()[0]: func([]string) int {
			channel, err := worker.Inherited()
			if err != nil {
				fmt.Fprintln(os.Stderr, "railbed worker:", err)
				return 1
			}
			return worker.Main(channel, os.Stderr)
		},
		traffic.Part: func(args []string) int {
			channel, err := worker.Inherited()
			if err != nil {
				fmt.Fprintln(os.Stderr, "railbed traffic:", err)
				return 1
			}
			go traffic.Beat(channel)
			return traffic.Main(args, os.Stdin, os.Stdout, os.Stderr)
		},
	}
	maps.Copy(parts, stacks.Parts())
	return parts
}

// Ports of workloads. Each workload of a file has a port range of its own, so that it finds no
// connection of another workload in TIME_WAIT. If a file has more workloads than there are ranges,
// the later ones use the first ranges again.
const (
	firstPort = 18600
	lastPort  = 65535
)

// basePort returns the first port of a file's workload number ordinal.
func basePort(ordinal, ranks int) int {
	each := worker.Ports(ranks)
	ranges := max(1, (lastPort-firstPort+1)/each)
	return firstPort + ordinal%ranges*each
}

// basePort returns the first port of workload number ordinal. All port ranges are long enough for
// the workload with the most channels.
func (s *session) basePort(ordinal int) int {
	channels := 1
	for _, step := range s.file.Steps {
		if step.Workload != nil {
			channels = max(channels, step.Workload.Channels)
		}
	}
	return basePort(ordinal, len(s.plan.Ranks)*channels)
}

// workloadJob returns the workers' job of a workload, without the aggregator.
func (s *session) workloadJob(index int, w *spec.Workload) (worker.Job, error) {
	job := s.job(index, w.Name, w.Transport)
	job.Kind, job.Algorithm, job.Size, job.Iterations, job.Warmup = w.Kind, w.Algorithm, w.Size, w.Iterations,
		w.Warmup
	job.Skew, job.Seed, job.Type, job.Op, job.Root, job.Schedule = w.Skew, s.plan.Seed, element.Type(w.Type),
		element.Op(w.Op), w.Root, s.algorithms[index]
	if w.Kind == spec.KindMoE {
		config := w.MoE.Config(len(s.plan.Ranks), s.plan.Seed)
		job.Work = worker.MoE{Config: config, RatesBack: s.rates[index].back}
	}
	if w.Kind == spec.KindSGD {
		job.Work = worker.SGD{Config: w.SGD}
	}
	if w.Sizes != nil {
		sizes, err := sizes(w, len(s.plan.Ranks))
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

func (s *session) workload(ctx context.Context, index int, w *spec.Workload) error {
	job, err := s.workloadJob(index, w)
	if err != nil {
		return err
	}
	if w.Algorithm == spec.InNetwork {
		a, release, err := s.aggregator(ctx, w, job.Ranks)
		if err != nil {
			return err
		}
		defer release()
		job.Aggregator = a
	}
	result, wanted, err := s.runJob(ctx, index, job)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	done := finish(w, result, s.plan)
	setWanted(&done.traffic, wanted)
	if a := job.Aggregator; a != nil {
		done.traffic.Sums = &verify.Sums{Job: a.Job.Number, Epoch: a.Epoch}
	}
	s.workloads = append(s.workloads, done)
	return nil
}

// finish translates a result for the report and for the packet checks. It converts the workers'
// times from real time to the testbed's time.
func finish(w *spec.Workload, r *worker.Result, p *plan.Plan) finished {
	by := clock.Dilation(p.Dilation)
	row := r.Row().Virtual(by)
	measured := row.OutOfPlace
	ran := *w // the collective that ran
	ran.Kind, ran.Size, ran.Type = r.Kind, units.Bytes(row.Size), row.Type
	done := finished{
		Workload: report.Workload{
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
		},
		traffic: verify.Workload{Name: w.Name, Pattern: pattern(w).Pattern},
	}
	done.unchecked = measured.Unchecked
	if t, learns := r.Own.(*worker.Learning); learns {
		done.Learning = &report.Learning{Loss: t.Loss, Held: t.Held, Accuracy: t.Accuracy, Clipped: t.Clipped}
	}
	done.Conduct = report.Conduct{Straggler: r.Straggler(), Pace: pace(r)}
	if w.Sizes != nil {
		for _, row := range r.Rows {
			done.Rows = append(done.Rows, row.Virtual(by))
		}
	}
	if w.Channels > 0 {
		done.traffic = channelTraffic(&ran, r)
	}
	for _, rank := range r.PerRank {
		done.Sent = append(done.Sent, rank.Stream.Sent)
		if w.Channels > 0 {
			continue
		}
		judged := judgedRank(r.Transport, &rank)
		judged.Missing = left(&w.Carriage, &rank)
		done.traffic.Ranks = append(done.traffic.Ranks, judged)
	}
	if w.Kind == spec.KindMoE {
		done.finishMixture(w, r, p)
	}
	return done
}

// pace returns the pace of the rank whose packets were the latest.
func pace(r *worker.Result) (worst report.Pace) {
	for i := range r.PerRank {
		if p := r.PerRank[i].Pace; p != nil {
			worst.Worst(report.Pace(*p))
		}
	}
	return worst
}

// channelTraffic returns the traffic of a workload in channels. For the checks, each channel of a
// rank is a rank of its own, with its place and the ranks to which it sends.
func channelTraffic(w *spec.Workload, r *worker.Result) verify.Workload {
	t := verify.Workload{Name: w.Name, Pattern: verify.Pairs}
	for _, rank := range r.PerRank {
		for i := range rank.Channels {
			judged := judgedRank(r.Transport, &rank.Channels[i])
			judged.Channel = i
			for other := range r.Ranks {
				if w.Algorithm != spec.Ring && other != rank.Rank ||
					w.Algorithm == spec.Ring && r.Ranks > 1 && other == (rank.Rank+1)%r.Ranks {
					t.Pairs = append(t.Pairs, [2]int{len(t.Ranks), other*w.Channels + i})
				}
			}
			t.Ranks = append(t.Ranks, judged)
		}
	}
	return t
}

// judgedRank returns a rank for the packet checks.
func judgedRank(transport string, rank *worker.RankResult) verify.Rank {
	judged := verify.Rank{
		Rank:      rank.Rank,
		Node:      rank.Node,
		NIC:       rank.NIC,
		Addr:      rank.Addr,
		Port:      rank.Port,
		Transport: transport,
		Engines:   rank.Engines,
		Reported:  &rank.Stream.Sent, Life: rank.Life,
	}
	if q := rank.QueuePairs; q != nil {
		judged.QueuePairs, judged.Overruns = &verify.QueuePairs{First: q.First, Count: q.Count}, q.Overruns
	}
	for _, flow := range rank.Flows {
		judged.Flows = append(judged.Flows, verify.FlowAddr{Src: flow.Local, Dst: flow.Remote})
	}
	return judged
}

// overruns returns the ranks of all workloads that had no room for packets.
func overruns(workloads []finished) (all []report.Overrun) {
	for _, w := range workloads {
		for _, rank := range w.traffic.Ranks {
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

// workerLogs are a workload's logs, one pair per node for all its workers. They are safe for
// concurrent use.
type workerLogs struct {
	session *session
	index   int
	name    string
	mu      sync.Mutex
	logs    map[string]logPair // by node
}

// open opens a node's logs, unless they are open already.
func (l *workerLogs) open(node string) (stdout, stderr io.Writer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	logs, open := l.logs[node]
	if !open {
		if logs, err = l.session.openLogs(node, l.name); err != nil {
			return nil, nil, err
		}
		l.logs[node] = logs
	}
	return logs.out, logs.err, nil
}

func (l *workerLogs) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, logs := range l.logs {
		errs = append(errs, l.session.closeLogs(l.index, logs))
	}
	return errors.Join(errs...)
}
