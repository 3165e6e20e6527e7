package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/fabric/clock"
	"railbed/fabric/units"
	"railbed/testbed"
	"railbed/testbed/plan"
	"railbed/testbed/reexec"
	"railbed/testbed/spec"
	"railbed/workloads/collective"
	"railbed/workloads/collective/schedule"
	"railbed/workloads/traffic"
	"railbed/workloads/worker"
)

// Parts are the parts that a program which runs scenarios must be able to play;
// it gives them to testbed.Init.
func Parts() reexec.Parts {
	return reexec.Parts{
		worker.Args()[0]: func([]string) int {
			channel, err := worker.Inherited()
			if err != nil {
				fmt.Fprintln(os.Stderr, "railbed worker:", err)
				return 1
			}
			return worker.Main(channel, os.Stderr)
		},
		traffic.Part: func(args []string) int { return traffic.Main(args, os.Stdin, os.Stdout, os.Stderr) },
	}
}

// Ports of workloads. Each workload of a file has a range of its own, so that
// none meets another's connections in TIME_WAIT; a file with more of them than
// there are ranges uses the first ones again.
const (
	firstPort = 18600
	lastPort  = 65535
)

// basePort is the first port of the workload that is number ordinal of its
// file.
func basePort(ordinal, ranks int) int {
	each := worker.Ports(ranks)
	ranges := max(1, (lastPort-firstPort+1)/each)
	return firstPort + ordinal%ranges*each
}

func (s *session) workload(ctx context.Context, index int, w *spec.Workload) error {
	ordinal := 0
	for _, step := range s.file.Steps[:index] {
		if step.Workload != nil {
			ordinal++
		}
	}
	job := worker.Job{
		Name: w.Name, Ranks: s.plan.Ranks, Kind: w.Kind, Algorithm: w.Algorithm, Transport: w.Transport,
		Size: w.Size, Iterations: w.Iterations, Warmup: w.Warmup, Family: 4, BasePort: basePort(ordinal, len(s.plan.Ranks)),
		Ordinal: ordinal, Dilation: s.plan.Dilation, RD: w.RD, RoCE: w.RoCE, Rates: s.rates[index], Secret: s.secretOf(w), RoundTrip: s.roundTrip(w), Skew: w.Skew, Seed: s.plan.Seed,
	}
	for _, r := range s.plan.Ranks {
		if d := s.plan.Sends(r.Node, r.NIC); d != nil {
			job.Sends = append(job.Sends, *d)
		}
	}
	if w.Family == "6" {
		job.Family = 6
	}
	if deadline, bounded := ctx.Deadline(); bounded {
		// The timeline's limit comes first and says so.
		job.Timeout = 2 * (controlTimeout + time.Until(deadline))
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	l := &launcher{session: s, life: life, index: index, name: w.Name, logs: map[string]logPair{}}
	result, err := worker.Run(ctx, job, l, func(p worker.Progress) {
		s.progress(Update{Phase: "workload " + w.Name, Done: p.Done, Total: p.Total})
	})
	end()
	err = errors.Join(err, l.close())
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err) // which ranks were waited for
	}
	if err == nil {
		err = s.logKeys(index, w, job.Secret, result)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workloads = append(s.workloads, finish(w, result, s.plan))
	return nil
}

// finish translates a result for the report and for the checks of packets. What
// the workers measured in real time becomes virtual.
func finish(w *spec.Workload, r *worker.Result, p *plan.Plan) finished {
	by := clock.Dilation(p.Dilation)
	measured := r.Row.OutOfPlace
	done := finished{
		Workload: report.Workload{
			Name: w.Name, Kind: r.Kind, Algorithm: r.Algorithm, Transport: r.Transport, Ranks: r.Ranks,
			Bytes: r.Row.Size, Count: uint64(r.Row.Count), Type: r.Row.Type, RedOp: r.Row.RedOp,
			Warmup: w.Warmup, Iterations: w.Iterations,
			Time: measured.Time / by.Virtual(1), AlgBW: by.Virtual(measured.AlgBW), BusBW: by.Virtual(measured.BusBW), Wrong: r.Wrong(), Missing: r.Missing(), MayMiss: mayMiss(w, r.Ranks, r.Row.Size),
		},
		traffic: verify.Workload{Name: w.Name, Pattern: pattern(w).Pattern},
	}
	for _, rank := range r.PerRank {
		done.Sent = append(done.Sent, rank.Stream.Sent)
		if rank.Pace != nil {
			done.Pace.Worst(report.Pace(*rank.Pace))
		}
		judged := verify.Rank{
			Rank: rank.Rank, Node: rank.Node, NIC: rank.NIC, Addr: rank.Addr, Port: rank.Port, Transport: r.Transport, Engines: rank.Engines,
			Expected: expected(w, rank.Rank, r.Ranks, p.Seed),
			Reported: &rank.Stream.Sent,
		}
		if q := rank.QueuePairs; q != nil {
			judged.QueuePairs = &verify.QueuePairs{First: q.First, Count: q.Count}
		}
		if w.RD != nil && !w.RD.Droppable.IsZero() {
			judged.Missing = &rank.Payload.Missing
		}
		for _, flow := range rank.Flows {
			judged.Flows = append(judged.Flows, verify.FlowAddr{Src: flow.Local, Dst: flow.Remote})
		}
		done.traffic.Ranks = append(done.traffic.Ranks, judged)
	}
	return done
}

// expected is what a rank sends over all iterations, by the formula of its collective.
func expected(w *spec.Workload, rank, ranks int, seed uint64) units.Bytes {
	iterations := w.Warmup + w.Iterations
	switch {
	case w.Kind == spec.AllReduce && w.Algorithm == spec.Ring:
		return verify.RingAllReduceBytes(ranks, w.Size, iterations)
	case w.Kind != spec.AllToAll:
		return units.Bytes(schedule.Sent(schedule.Kind(w.Kind), w.Algorithm, ranks, rank, worker.Root).Of(uint64(w.Size) * uint64(iterations)))
	case w.Skew == 0:
		return verify.AllToAllBytes(rank, ranks, w.Size, iterations)
	}
	m := collective.Skewed(ranks, int(w.Size)/collective.ElementSize, w.Skew, seed)
	return units.Bytes(m.Sends(rank) * collective.ElementSize * iterations)
}

// mayMiss is how many bytes of partial sums a workload may leave out: of the
// reduce-scatter, n-1 steps in which all ranks together send the buffer once.
func mayMiss(w *spec.Workload, ranks int, size uint64) uint64 {
	if w.RD == nil || w.RD.Droppable.IsZero() || ranks < 2 {
		return 0
	}
	return uint64(w.RD.Droppable.Float() * float64(uint64(ranks-1)*size*uint64(w.Warmup+w.Iterations)))
}

// launcher starts a workload's workers in the nodes. It is safe for concurrent
// use.
type launcher struct {
	session *session
	// life ends whatever of the workers is left when the workload has ended.
	life  context.Context
	index int
	name  string

	mu      sync.Mutex
	logs    map[string]logPair // by node
	workers sync.WaitGroup
}

// Launch implements worker.Launcher.
func (l *launcher) Launch(ctx context.Context, node string, args []string) (worker.Process, error) {
	logs, err := l.log(node)
	if err != nil {
		return nil, err
	}
	life, kill := context.WithCancel(l.life)
	cmd := l.session.testbed.Node(node).Part(life, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = logs.out, logs.err
	channel := cmd.Channel()
	stop := context.AfterFunc(ctx, kill)
	err = cmd.Start()
	stop()
	if err != nil {
		kill()
		return nil, err
	}
	p := &process{cmd: cmd, kill: kill}
	p.read, p.write = io.Pipe()
	p.channel = channel
	l.workers.Go(func() {
		_, err := io.Copy(p.write, channel)
		p.write.CloseWithError(err)
	})
	l.workers.Go(func() {
		cmd.Wait() // the coordinator asks how
		kill()
	})
	return p, nil
}

// log opens a node's logs, which all workers there share.
func (l *launcher) log(node string) (logPair, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if logs, open := l.logs[node]; open {
		return logs, nil
	}
	logs, err := l.session.openLogs(node, l.name)
	if err == nil {
		l.logs[node] = logs
	}
	return logs, err
}

// close waits for the workers' ends, which life has asked for, and closes the
// logs.
func (l *launcher) close() error {
	l.workers.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, logs := range l.logs {
		errs = append(errs, l.session.closeLogs(l.index, logs))
	}
	return errors.Join(errs...)
}

// process is a worker in a node. Its channel passes a pipe, because closing it
// must end a Read that waits.
type process struct {
	cmd     *testbed.Cmd
	kill    context.CancelFunc
	channel io.ReadWriteCloser
	read    *io.PipeReader
	write   *io.PipeWriter
}

// Channel implements worker.Process.
func (p *process) Channel() worker.Channel { return pipedChannel{p} }

// Wait implements worker.Process.
func (p *process) Wait() error { return p.cmd.Wait() }

// Kill implements worker.Process.
func (p *process) Kill() error {
	p.kill()
	return nil
}

type pipedChannel struct{ *process }

func (c pipedChannel) Read(b []byte) (int, error)  { return c.read.Read(b) }
func (c pipedChannel) Write(b []byte) (int, error) { return c.channel.Write(b) }

func (c pipedChannel) Close() error {
	return errors.Join(c.read.Close(), c.channel.Close())
}
