package worker

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"railbed/capture/report"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
	"railbed/workloads/flows"
	"railbed/workloads/rank"
)

// TestEndOfAProcess kills or stops one of four ranks in the middle of a job that would take hours.
// The job must end within its patience, name that rank, and leave no process behind.
func TestEndOfAProcess(t *testing.T) {
	hosttest.MarkTest(t, hosttest.Raced)
	for i, c := range []struct {
		name, transport, want string
		signal                syscall.Signal
	}{
		{"killed", TCP, "killed", syscall.SIGKILL},
		{"killed", RD, "killed", syscall.SIGKILL},
		{"stopped", TCP, "does not answer", syscall.SIGSTOP},
		{"stopped", RD, "does not answer", syscall.SIGSTOP},
	} {
		t.Run(c.name+"/"+c.transport, func(t *testing.T) {
			hosttest.Long(t)
			t.Parallel()
			j := job(4, 1<<20)
			moved(&j, i)
			j.Transport, j.Iterations, j.Silence = c.transport, 1<<20, 30*time.Second
			j.Timeout = 3 * time.Minute // on a slow host the third operation may end after half a minute
			if c.signal == syscall.SIGSTOP {
				j.Silence = 4 * time.Second
			}
			var mu sync.Mutex
			started := make(map[string]*realProcess)
			l := processes{started: func(node string, p *realProcess) {
				mu.Lock()
				defer mu.Unlock()
				started[node] = p
			}}
			_, err := Run(t.Context(), j, l, func(p Progress) {
				if p.Done == 3 {
					mu.Lock()
					defer mu.Unlock()
					started["h2"].command.Process.Signal(c.signal)
				}
			})
			var rank *RankError
			if !errors.As(err, &rank) || rank.Rank != 2 || rank.Node != "h2" ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("after rank 2 was %s: %v", c.name, err)
			}
			for node, p := range started {
				if p.command.ProcessState == nil {
					t.Errorf("the worker of %s still runs", node)
				}
			}
		})
	}
	t.Run("stopped at its start", testStopAtTheStart)
}

// testStopAtTheStart stops one of four ranks as soon as it exists: the job names it long
// before its time is over.
func testStopAtTheStart(t *testing.T) {
	hosttest.Long(t)
	t.Parallel()
	j := job(4, 1<<10)
	j.Silence = 1500 * time.Millisecond
	l := processes{started: func(node string, p *realProcess) {
		if node == "h2" {
			if err := p.command.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Error(err)
			}
		}
	}}
	_, err := Run(t.Context(), j, l, nil)
	var rank *RankError
	if !errors.As(err, &rank) || rank.Rank != 2 || rank.Node != "h2" || !errors.Is(err, errUnheard) {
		t.Errorf("after rank 2 was stopped at its start: %v", err)
	}
}

// moved gives a job an address of its own, beside jobs that run at the same time: the ports
// of rd are an address's.
func moved(j *Job, to int) {
	for r := range j.Ranks {
		j.Ranks[r].Addr4 = netip.AddrFrom4([4]byte{127, 87, 1, byte(to)})
	}
}

// TestEndOfAProcessOfAnyKind kills or stops a rank of a training job and of messages, which
// would take hours too: they end as soon, and name it.
func TestEndOfAProcessOfAnyKind(t *testing.T) {
	kinds := map[string]func(t *testing.T, transport string) Job{
		"training": func(t *testing.T, transport string) Job {
			j := trainingJob(t, transport, func(m *spec.Model) { m.DP, m.PP, m.GlobalBatch = 2, 2, 400 })
			j.Iterations = 1 << 20
			return j
		},
		"messages": func(_ *testing.T, transport string) Job {
			last := flows.Message{From: 1, To: 3, Bytes: 1, At: time.Hour}
			s := flows.Blocks{Ranks: 4, Servers: 1, Count: 1000, Block: 4096, Reads: 0.5}.Schedule()
			for i := range s.Messages {
				s.Messages[i].At = time.Duration(i) * time.Millisecond
			}
			s.Messages = append(s.Messages, last)
			return messagesJob(4, transport, s)
		},
	}
	for _, c := range []struct {
		kind, transport, want string
		signal                syscall.Signal
	}{
		{"training", RD, "killed", syscall.SIGKILL},
		{"training", TCP, "does not answer", syscall.SIGSTOP},
		{"messages", TCP, "killed", syscall.SIGKILL},
		{"messages", RD, "does not answer", syscall.SIGSTOP},
	} {
		t.Run(c.kind+"/"+c.want, func(t *testing.T) {
			hosttest.Long(t)
			t.Parallel() // each waits for seconds
			j := kinds[c.kind](t, c.transport)
			j.Silence, j.Timeout = 2*time.Second, time.Minute
			l := processes{started: func(node string, p *realProcess) {
				if node == "h2" {
					time.AfterFunc(2*time.Second, func() { _ = p.command.Process.Signal(c.signal) })
				}
			}}
			_, err := Run(t.Context(), j, l, nil)
			var rank *RankError
			if !errors.As(err, &rank) || rank.Rank != 2 || rank.Node != "h2" ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("after rank 2 got %v: %v", c.signal, err)
			}
		})
	}
}

// TestSlowWorkersLive: a job that takes much longer than a worker's silence may goes on while
// all answer, and says how long the slowest answer took.
func TestSlowWorkersLive(t *testing.T) {
	j := job(3, 4096)
	j.Silence, j.Warmup, j.Iterations = 2*time.Second, 0, 1
	l := before(func(rank int, _ rank.OperationID) {
		if rank == 1 {
			time.Sleep(3 * time.Second)
		}
	})
	result, err := Run(t.Context(), j, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range result.PerRank {
		if r.SlowestAnswer <= 0 {
			t.Errorf("rank %d was not asked: %+v", r.Rank, r)
		}
	}
	// The sleep is work, and the others waited for it.
	if s := result.Straggler(); s == nil || s.Rank != 1 || s.Node != "h1" {
		t.Errorf("rank 1 slept and the straggler is %+v", s)
	}
}

// TestSlowRanksThatWaitElsewhere checks that a slow rank is named too if several lanes or exchanges
// of each rank wait. A rank that waited in all of them is not named.
func TestSlowRanksThatWaitElsewhere(t *testing.T) {
	for name, j := range map[string]Job{
		"channels":            inChannels(job(3, 3<<16), 3),
		"mixture":             mixtureJob(3, TCP),
		"mixture in channels": inChannels(mixtureJob(3, RD), 2),
	} {
		t.Run(name, func(t *testing.T) {
			j.Warmup, j.Iterations = 1, 2
			l := before(func(rank int, _ rank.OperationID) {
				if rank == 1 {
					time.Sleep(120 * time.Millisecond)
				}
			})
			result, err := Run(t.Context(), j, l, nil)
			if err != nil {
				t.Fatal(err)
			}
			if s := result.Straggler(); s == nil || s.Rank != 1 {
				for _, r := range result.PerRank {
					t.Logf("rank %d waited %v of %v", r.Rank, r.Waited, r.Timed)
				}
				t.Errorf("rank 1 slept and the straggler is %+v", s)
			}
			for _, r := range result.PerRank {
				if r.Waited < 0 || r.Waited > r.Timed {
					t.Errorf("rank %d waited %v of %v", r.Rank, r.Waited, r.Timed)
				}
			}
		})
	}
}

// late is a launcher whose workers end one after another, each so much after the one before.
type late struct {
	goroutines
	each  time.Duration
	ended atomic.Int32
}

type lateProcess struct {
	Process
	by *late
}

func (l *late) Launch(ctx context.Context, node string, args []string) (Process, error) {
	p, err := l.goroutines.Launch(ctx, node, args)
	return lateProcess{p, l}, err
}

func (p lateProcess) Wait() error {
	err := p.Process.Wait()
	time.Sleep(time.Duration(p.by.ended.Add(1)) * p.by.each)
	return err
}

// TestWorkersEndOneAfterAnother: each has its time to end, as long as others do, and one that
// does not end has no more than that.
func TestWorkersEndOneAfterAnother(t *testing.T) {
	t.Parallel()
	j := job(5, 4096)
	j.endGrace = 2 * time.Second // less than all take together, and far more than each
	if _, err := Run(t.Context(), j, &late{each: 500 * time.Millisecond}, nil); err != nil {
		t.Error(err)
	}
	j = job(2, 4096)
	j.endGrace = 100 * time.Millisecond
	if _, err := Run(t.Context(), j, &late{each: 3 * time.Second}, nil); err == nil ||
		!strings.Contains(err.Error(), "rank 0 on h0: the worker had to be killed") {
		t.Errorf("after workers that did not end: %v", err)
	}
}

// TestStraggler: who stands out of accounts.
func TestStraggler(t *testing.T) {
	for name, c := range map[string]struct {
		waited []time.Duration // of each, in ms
		of     time.Duration
		want   *report.Straggler
	}{
		"alone":    {[]time.Duration{0}, 100, nil},
		"alike":    {[]time.Duration{20, 10, 15}, 100, nil},
		"all wait": {[]time.Duration{90, 95, 60}, 100, nil},
		"one works": {[]time.Duration{80, 75, 10, 90}, 100,
			&report.Straggler{Rank: 2, Node: "h2", Worked: 0.9, Others: 0.25}},
		"first works": {[]time.Duration{0, 75}, 100,
			&report.Straggler{Rank: 0, Node: "h0", Worked: 1, Others: 0.25}},
		"few ms":   {[]time.Duration{16, 17, 2, 16}, 20, nil},
		"two work": {[]time.Duration{10, 75, 15}, 100, nil},
	} {
		var r Result
		for i, waited := range c.waited {
			r.PerRank = append(r.PerRank, RankResult{Rank: i, Node: []string{"h0", "h1", "h2", "h3"}[i],
				Timed: c.of * time.Millisecond, Waited: waited * time.Millisecond})
		}
		if got := r.Straggler(); (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if got := (&Result{PerRank: make([]RankResult, 2)}).Straggler(); got != nil {
		t.Errorf("of no timed operation: %+v", got)
	}
}
