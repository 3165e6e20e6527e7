package runner

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"time"

	"railbed/scenarios/runner/judge"

	"railbed/internal/reexec"
	"railbed/plan"
	"railbed/plan/allocation"
	"railbed/testbed/probe"
	"railbed/workloads/rank"
	"railbed/workloads/stacks"
	"railbed/workloads/traffic"
	"railbed/workloads/worker"
)

// Parts returns the parts that a program must implement to run scenarios. The program passes them
// to testbed.Init.
func Parts() reexec.Parts {
	parts := reexec.Parts{
		worker.Args()[0]: func([]string) int {
			channel, err := rank.Inherited()
			if err != nil {
				fmt.Fprintln(os.Stderr, "railbed worker:", err)
				return 1
			}
			return worker.Main(channel, os.Stderr)
		},
		traffic.Part: func(args []string) int {
			channel, err := rank.Inherited()
			if err != nil {
				fmt.Fprintln(os.Stderr, "railbed traffic:", err)
				return 1
			}
			go traffic.Beat(channel)
			return traffic.Main(args, os.Stdin, os.Stdout, os.Stderr)
		},
	}
	maps.Copy(parts, stacks.Parts())
	maps.Copy(parts, probe.Parts())
	return parts
}

// ranked is a step whose ranks run workers.
type ranked interface {
	step
	ranks() *ranksStep
	// job returns the workers' job, without what only a running testbed can give.
	job(s *session) (worker.Job, error)
}

// ranksStep is the part that all steps have whose ranks run workers.
type ranksStep struct {
	stepFrame
	ordinal int        // among these steps of the file
	plan    *plan.Plan // of the step's own ranks
	numbers []int      // the testbed's numbers of these ranks, or nil for all
	pattern allocation.Options
	back    *allocation.Options // of the messages back from experts, if they have their own rates
	// rates and ratesBack are the rates of control: offline. ratesBack is nil if they are the same.
	rates, ratesBack *allocation.File
}

func (p *preparation) ranks(f stepFrame) ranksStep {
	p.ranked++
	r := ranksStep{stepFrame: f, ordinal: p.ranked - 1}
	p.use(&r, f.Carriage.Ranks)
	return r
}

// use sets the ranks of the testbed that a step uses. None stand for all.
func (p *preparation) use(r *ranksStep, numbers []int) {
	of := *p.o.Plan
	of.Ranks = of.RanksOf(numbers)
	r.plan, r.numbers = &of, numbers
	for _, number := range numbers {
		if r.Background {
			p.taken[number] = r.Name
		}
	}
}

func (r *ranksStep) ranks() *ranksStep { return r }

func (r *ranksStep) object() string { return r.Name }

// roundTrip returns the longest round trip over rd without other traffic, or 0 if the workers
// should measure it.
func (r *ranksStep) roundTrip() time.Duration {
	if r.Carriage.RD == nil {
		return 0
	}
	trip, err := allocation.RoundTrip(r.plan, r.pattern)
	if err != nil {
		return 0
	}
	return trip
}

// ranksJob returns a job with the fields that do not depend on the kind of the step.
func (r *ranksStep) ranksJob(s *session) worker.Job {
	return worker.Job{
		Name:      r.Name,
		Ranks:     r.plan.Ranks,
		Numbers:   r.numbers,
		Transport: r.Transport,
		Family:    r.Carriage.Version(),
		DSCP:      r.Carriage.DSCP,
		RD:        r.Carriage.RD,
		RoCE:      r.Carriage.RoCE,
		Rates:     r.rates,
		Secret:    s.secretOf(r.Carriage.RD),
		RoundTrip: r.roundTrip(),
		BasePort:  s.basePort(r.ordinal),
		Ordinal:   r.ordinal + 1,
		Dilation:  s.plan.Dilation,
		Sends:     worker.SendsOf(s.plan, r.plan.Ranks),
		Silence:   s.silence,
	}
}

// work runs the workers of a step and keeps what finish makes of their result.
func (s *session) work(ctx context.Context, r ranked,
	finish func(*worker.Result, *worker.Wanted) judge.Finished) error {
	job, err := r.job(s)
	if err != nil {
		return err
	}
	result, wanted, err := s.runJob(ctx, r.frame().index, job)
	if err != nil {
		return err
	}
	done := finish(result, wanted)
	setWanted(&done.Traffic, wanted)
	done.Chart(&job, result)
	_, action := s.file.Steps[r.frame().index].Action()
	done.Timed(result, action)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workloads = append(s.workloads, done)
	return nil
}

// runJob runs the workers of a step to their end. It returns their result and the traffic that they
// should have sent.
func (s *session) runJob(ctx context.Context, index int, job worker.Job) (*worker.Result, *worker.Wanted,
	error) {
	wanted, err := job.Wanted()
	if err != nil {
		return nil, nil, err
	}
	if deadline, bounded := ctx.Deadline(); bounded {
		// The timeline's limit ends the job first, with its own message.
		job.Timeout = 2 * (controlTimeout + time.Until(deadline))
	}
	// All workers of a node have the same logs.
	nodes := worker.NewNodes(context.WithoutCancel(ctx), s.testbed,
		func(node string) (stdout, stderr io.Writer, err error) {
			logs, err := s.openLogs(index, node, job.Name)
			return logs.out, logs.err, err
		})
	result, err := worker.Run(ctx, job, nodes, func(p worker.Progress) {
		s.progress(Update{Phase: "workload " + job.Name, Done: p.Done, Total: p.Total})
	})
	nodes.Close()
	if ctx.Err() != nil && err != nil {
		return nil, nil, fmt.Errorf("%w: %w", context.Cause(ctx), err) // lists the ranks that were waited for
	}
	if err == nil {
		err = s.logKeys(index, &job, result)
	}
	return result, wanted, err
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
