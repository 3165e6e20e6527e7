package runner

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
	"railbed/workloads/worker"
)

const adder = `
fabric:
  topology: single-switch
  params: {hosts: 3}
  switch: {kind: soft, aggregation: {slots: 16, timeout: 5s}}
  links: {default: {rate: 200mbit, delay: 10us, mtu: 1500}}
`

const adding = adder + `
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: clean, kind: all-reduce, algorithm: in-network, size: 256KiB, iterations: 5}
  - link: {where: "h1--*", set: {loss: 2%}}
  - workload: {name: lossy, kind: all-reduce, algorithm: in-network, type: half, op: min, size: 256KiB, iterations: 2}
checks:
  - workload: {name: clean, correct: true}
  - workload: {name: lossy, correct: true}
  - packets: {bytes-per-rank: {workload: clean, formula: in-network-all-reduce, tolerance: 0%}}
  - packets: {bytes-per-rank: {workload: lossy, formula: in-network-all-reduce, tolerance: 0%}}
`

// TestInNetworkRepeats checks, by the packets, what ranks retransmit to a switch that computes an
// all-reduce. They retransmit nothing if nothing is lost. If packets are lost, they retransmit
// these, so that sums stay exact. A pause of the host that is longer than the timer looks like a
// loss, so the test may repeat the run.
func TestInNetworkRepeats(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const nothing = ", and sent 0 again;"
	var said string
	var pressure float64
	for range hostTries {
		o := options(t, adding)
		r := runAll(t, t.Context(), o)
		carried(t, r)
		if r.Verdict != verdict.Pass {
			t.Fatalf("%s: %s", r.Verdict, r.Reason)
		}
		checkUsesOfSlots(t, o.Plan, r)
		if lossy := r.Checks[3].Summary; strings.Contains(lossy, nothing) {
			t.Fatalf("%s, where 2 %% are lost", lossy)
		}
		if said = r.Checks[2].Summary; strings.Contains(said, nothing) {
			return
		}
		pressure = r.Fidelity.Pressure
	}
	if pressure > hostBusy {
		t.Skipf("cannot run here: idle cores: tasks waited for a CPU in %.0f%% of the time: %s", pressure*100,
			said)
	}
	t.Errorf("%s, where nothing is lost", said)
}

// checkUsesOfSlots requires the steps of an all-reduce of 256 KiB of float32 in each chart: a step for each
// use of the switch's slots.
func checkUsesOfSlots(t *testing.T, p *plan.Plan, r *report.Report) {
	t.Helper()
	job, err := p.AggregationFor(p.Ranks, "")
	if err != nil {
		t.Fatal(err)
	}
	chunks := (256<<10/4 + job.Elements - 1) / job.Elements
	uses := (chunks + job.Slots - 1) / job.Slots
	charts := 0
	for _, a := range r.Activities {
		if a.Step != "clean" {
			continue
		}
		for _, lane := range a.Lanes {
			charts++
			if len(lane.Steps) != 1 || lane.Steps[0].Count != uses || uses < 2 {
				t.Errorf("%s of rank %d: steps %+v, want %d of one part", a.What, *lane.Rank, lane.Steps,
					uses)
				continue
			}
			steps, operation := lane.Steps[0], lane.Spans[0]
			if !slices.IsSorted(steps.Ends) || len(steps.Ends) != uses ||
				steps.Ends[uses-1] > operation.End {
				t.Errorf("the operation ends at %v and its steps at %v", operation.End, steps.Ends)
			}
		}
	}
	if charts == 0 {
		t.Error("no charts of the all-reduce")
	}
}

const addingTree = `
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 1, hosts-per-leaf: 2}
  switch: {kind: soft, aggregation: {slots: 16, timeout: 5s}}
  links: {default: {rate: 200mbit, delay: 10us, mtu: 1500}}
`

// TestInNetworkTree checks that two leaves and a spine combine the contributions of four hosts,
// with one partial result of each leaf for each slot. Results must stay exact if every link loses
// packets.
func TestInNetworkTree(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	r := runAll(t, t.Context(), options(t, addingTree+`
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: clean, kind: all-reduce, algorithm: in-network, type: int32, op: max, size: 64KiB, iterations: 2}
  - link: {where: "*--*", set: {loss: 2%}}
  - workload: {name: lossy, kind: all-reduce, algorithm: in-network, ip: 6, type: bfloat16, op: avg, size: 64KiB, iterations: 2}
checks:
  - workload: {name: clean, correct: true}
  - workload: {name: lossy, correct: true}
  - packets: {bytes-per-rank: {workload: clean, formula: in-network-all-reduce, tolerance: 0%}}
  - packets: {bytes-per-rank: {workload: lossy, formula: in-network-all-reduce, tolerance: 0%}}
  - packets: {partial-sums: clean}
  - packets: {partial-sums: lossy}
`))
	carried(t, r)
	if r.Verdict != verdict.Pass {
		t.Fatalf("%s: %s", r.Verdict, r.Reason)
	}
	for _, check := range r.Checks[4:] {
		if want := "393216 bytes for 786432 that came; "; !strings.Contains(check.Summary, want) {
			t.Errorf("%s, want %q", check.Summary, want)
		}
	}
	if lossy := r.Checks[5].Summary; strings.Contains(lossy, "; 0 sent again") {
		t.Errorf("%s, where 2 %% are lost", lossy)
	}
}

// upFor is a testbed for a test.
func upFor(t *testing.T, p *plan.Plan) *testbed.Testbed {
	t.Helper()
	tb, err := testbed.Up(t.Context(), p, testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tb.Down(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return tb
}

// begin returns an aggregator for all ranks that has begun.
func begin(t *testing.T, p *plan.Plan, tb *testbed.Testbed) *worker.Aggregator {
	t.Helper()
	aggregator, err := worker.FindAggregator(p, p.Ranks, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := aggregator.Begin(t.Context(), tb); err != nil {
		t.Fatal(err)
	}
	return aggregator
}

// TestInNetworkNamesWhoIsMissing holds that a rank that dies or stands still is named within a
// bounded time, whichever switch waits for it, and that the others do not wait for it.
func TestInNetworkNamesWhoIsMissing(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	p := plantest.Compile(t, fmt.Sprintf("name: engine-adder-%d\n%s", os.Getpid(),
		strings.Replace(addingTree, "5s", "500ms", 1)))
	tb := upFor(t, p)
	// In this order: the second job has the port of a worker of the first that had to be killed.
	for _, test := range []struct{ signal, want string }{
		// Either the switch names the rank, or the job, which asks the ranks for 2 s after one has failed.
		{"STOP", `the switch waited for ranks \[3\]|rank 3 on h3: the worker does not answer`},
		{"KILL", "rank 3 on h3: "},
	} {
		signal, want := test.signal, test.want
		aggregator := begin(t, p, tb)
		nodes := worker.NewNodes(t.Context(), tb, func(string) (io.Writer, io.Writer, error) {
			return io.Discard, io.Discard, nil
		})
		var once sync.Once
		var at time.Time
		_, err := worker.Run(t.Context(), worker.Job{
			Name:       "adding",
			Kind:       spec.AllReduce,
			Algorithm:  schedule.InNetwork,
			Ranks:      p.Ranks,
			Size:       64 << 10,
			Iterations: 100_000,
			Aggregator: aggregator,
		}, nodes, func(done worker.Progress) {
			once.Do(func() {
				at = time.Now()
				if out, err := tb.Node("h3").Command(t.Context(), "kill", "-"+signal,
					fmt.Sprint(done.Ranks[3].PID)).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		})
		nodes.Close()
		aggregator.End()
		if took := time.Since(at); err == nil || !regexp.MustCompile(want).MatchString(err.Error()) ||
			took > 10*time.Second {
			t.Errorf("%s: %v after %v, want %q", signal, err, took, want)
		} else {
			t.Logf("%s: %v after %v", signal, err, took)
		}
	}
}

// TestInNetworkNamesWhoIsSlow checks that the report names a rank which stops now and then while
// the switch waits for it. The rank may have stopped only between the operations, which then take
// no time, so the test may repeat the run.
func TestInNetworkNamesWhoIsSlow(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	p := plantest.Compile(t, fmt.Sprintf("name: engine-slow-adder-%d\n%s", os.Getpid(), adder))
	tb := upFor(t, p)
	for range 5 {
		result := runStopped(t, p, tb)
		took := time.Duration(0)
		for _, r := range result.PerRank {
			t.Logf("rank %d waited %v of %v", r.Rank, r.Waited, r.Timed)
			took = max(took, r.Timed)
		}
		s := result.Straggler()
		if s != nil && s.Rank == 1 && s.Node == "h1" {
			return
		}
		if s != nil || took > 400*time.Millisecond {
			t.Fatalf("rank 1 was stopped and the straggler is %+v", s)
		}
	}
	t.Error("rank 1 was never stopped during an operation")
}

// runStopped has rank 1 stopped and continued from the first operation on.
func runStopped(t *testing.T, p *plan.Plan, tb *testbed.Testbed) *worker.Result {
	t.Helper()
	aggregator := begin(t, p, tb)
	defer aggregator.End()
	nodes := worker.NewNodes(t.Context(), tb, func(string) (io.Writer, io.Writer, error) {
		return io.Discard, io.Discard, nil
	})
	defer nodes.Close()
	var stops sync.WaitGroup
	var once sync.Once
	result, err := worker.Run(t.Context(), worker.Job{
		Name:       "adding",
		Kind:       spec.AllReduce,
		Algorithm:  schedule.InNetwork,
		Ranks:      p.Ranks,
		Size:       1 << 20,
		Warmup:     1,
		Iterations: 2,
		Aggregator: aggregator,
	}, nodes, func(done worker.Progress) {
		once.Do(func() {
			// It runs for less at a time than an operation takes on its link.
			stop := fmt.Sprintf("while kill -STOP %d; do echo; sleep 0.1; kill -CONT %[1]d; sleep 0.01; done",
				done.Ranks[1].PID)
			command := tb.Node("h1").Command(t.Context(), "sh", "-c", stop)
			stopped, begun := io.Pipe()
			command.Stdout = begun
			stops.Go(func() {
				_ = command.Run() // it ends with the rank
				begun.Close()
			})
			_, _ = stopped.Read(make([]byte, 1)) // the next operation begins once it is under way
			stops.Go(func() { _, _ = io.Copy(io.Discard, stopped) })
		})
	})
	stops.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return result
}
