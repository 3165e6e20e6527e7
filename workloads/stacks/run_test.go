package stacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

const twoHosts = "name: stacks-%d\nfabric: {topology: single-switch, params: {hosts: 2}}\n"

func up(t *testing.T) *testbed.Testbed {
	t.Helper()
	hosttest.Need(t, hosttest.Testbed)
	tb, err := testbed.Up(t.Context(), plantest.Compile(t, fmt.Sprintf(twoHosts, os.Getpid())),
		testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tb.Close(); err != nil {
			t.Error(err)
		}
	})
	return tb
}

// A rank that dies or hangs is named within the run's time limit, and no process of the run remains
// in the nodes.
func TestRanksThatEnd(t *testing.T) {
	tb := up(t)
	const rank = `case "$OMPI_COMM_WORLD_RANK$PMI_RANK" in 1) %s;; esac; exec sleep 633`
	for _, test := range []struct {
		kind    string
		feature hosttest.Feature
		does    string // rank 1
		limit   time.Duration
		want    string
	}{
		{spec.OpenMPI, hosttest.OpenMPI, "kill -9 $$", time.Minute, "rank 1 (h1) ended: "},
		{spec.OpenMPI, hosttest.OpenMPI, "exit 7", time.Minute, "rank 1 (h1) ended: "},
		{spec.OpenMPI, hosttest.OpenMPI, "kill -STOP $$", 4 * time.Second,
			"out of time: rank 1 (h1) is stopped"},
		{spec.MPICH, hosttest.MPICH, "kill -9 $$", time.Minute, "a rank in h1 ended: "},
	} {
		t.Run(test.kind+" "+test.does, func(t *testing.T) {
			hosttest.Need(t, test.feature)
			job := Job{
				Step: &spec.Stack{Name: "ranks", Kind: test.kind,
					Command: []string{"sh", "-c", fmt.Sprintf(rank, test.does)}},
				Plan: tb.Plan(), Log: func(string) (io.Writer, io.Writer, error) {
					return t.Output(), t.Output(), nil
				},
			}
			for i := range job.Plan.Nodes {
				job.Nodes = append(job.Nodes, &job.Plan.Nodes[i])
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), test.limit, errors.New("out of time"))
			defer cancel()
			result, err := Run(ctx, tb, job)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %+v, %v; want %q", result, err, test.want)
			}
			for _, node := range []string{"h0", "h1"} {
				left, err := tb.Node(node).Command(t.Context(), "sh", "-c",
					`for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' < $f 2>/dev/null | grep -E '[6]33|[o]rted|[h]ydra|[r]sh'; done; true`).Output()
				if err != nil || len(left) > 0 {
					t.Errorf("left in %s: %s, %v", node, left, err)
				}
			}
		})
	}
}

// A program that a node lacks counts as missing on the host, whether a shell or the supervisor
// reports it.
func TestProgramsThatAreNotThere(t *testing.T) {
	tb := up(t)
	p := tb.Plan()
	r := newRun(t.Context(), tb, Job{
		Step: &spec.Stack{Name: "none", Kind: spec.Redis}, Plan: p, Nodes: []*plan.Node{&p.Nodes[0]},
		Log: func(string) (io.Writer, io.Writer, error) { return io.Discard, io.Discard, nil },
	}, nil)
	defer func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := r.output("h0", "no-such-program"); !errors.Is(err, testbed.ErrNotFound) {
		t.Errorf("no such program: %v", err)
	}
	var exit *testbed.ExitError
	if _, err := r.output("h0", "sh", "-c", "no-such-program"); !errors.As(err, &exit) || exit.Code != 127 {
		t.Errorf("no such program of a shell: %v", err)
	}
	if _, err := r.output("h0", "sh", "-c", "echo because >&2; exit 4"); err == nil ||
		errors.Is(err, verdict.ErrUnsupported) || !strings.Contains(err.Error(), "because") {
		t.Errorf("a failure: %v", err)
	}
	if err := r.serve("h0", 4711, "sh", "-c", "echo no licence >&2; exit 1"); err == nil ||
		!strings.Contains(err.Error(), "no licence") {
		t.Errorf("a server that ends: %v", err)
	}
}

// A killed server ends the run. A stopped server is named when the run's time is over.
func TestServersThatEnd(t *testing.T) {
	tb := up(t)
	hosttest.Need(t, hosttest.Redis)
	for _, test := range []struct {
		signal string
		limit  time.Duration
		want   string
	}{
		{"KILL", time.Minute, "a server ended: redis-server in h0: signal 9 (killed)"},
		{"STOP", 2 * time.Second, "out of time: redis-server (h0) is stopped"},
	} {
		job := Job{
			Step: &spec.Stack{Name: "server", Kind: spec.Redis, Size: 1 << 10, Iterations: 10_000_000},
			Plan: tb.Plan(), Log: func(string) (io.Writer, io.Writer, error) {
				return io.Discard, io.Discard, nil
			},
		}
		for i := range job.Plan.Nodes {
			job.Nodes = append(job.Nodes, &job.Plan.Nodes[i])
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), test.limit, errors.New("out of time"))
		defer cancel()
		go func() {
			const script = `until pidof redis-server >/dev/null && grep -q ':18EB .* 01 ' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done; kill -$1 $(pidof redis-server)`
			if err := tb.Node("h0").Command(ctx, "sh", "-c", script, "end", test.signal).Run(); err != nil {
				t.Errorf("%s: %v", test.signal, err)
			}
		}()
		if result, err := Run(ctx, tb, job); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: got %+v, %v; want %q", test.signal, result, err, test.want)
		}
	}
}

// What a program prints without end is not kept without end.
func TestPrintedIsBounded(t *testing.T) {
	last, said, chunk := &lastWord{}, &tail{}, bytes.Repeat([]byte("x"), 1<<20)
	for range mostPrinted/len(chunk) + 1 {
		for _, w := range []io.Writer{last, said} {
			if n, err := w.Write(chunk); n != len(chunk) || err != nil {
				t.Fatalf("wrote %d, %v", n, err)
			}
		}
	}
	if last.printed.Len() > mostPrinted || !last.cut || len(said.kept) != errorTail {
		t.Errorf("%d bytes printed (cut: %v), the last %d kept; want at most %d, cut, and %d",
			last.printed.Len(), last.cut, len(said.kept), mostPrinted, errorTail)
	}
}
