package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"railbed/capture/report"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testbed/supervisor"
	"railbed/transports/rd/privacy"
	"railbed/workloads/stacks"
)

const (
	// endGrace is how long a command has between SIGTERM and SIGKILL.
	endGrace = 2 * time.Second
	// errorTail is how many bytes of a failed command's stderr go into the
	// report; the log has all of it.
	errorTail = 2048
)

// session does steps on a running testbed. It is safe for concurrent use.
type session struct {
	file    *spec.Testbed
	plan    *plan.Plan
	testbed *testbed.Testbed
	results *results
	links   *linkBook
	secret  func() privacy.Material // of a workload that encrypts; nil leaves it to that
	inputs
	// progress is told of a workload's iterations.
	progress func(Update)
	// silence is how long a process may not answer before its step fails.
	silence time.Duration
	// logged notes a file that a step wrote.
	logged func(index int, files ...string)

	mu        sync.Mutex
	captures  []*recording
	workloads []finished
	adding    []uint16        // jobs of switches that add up for workloads under way
	stacks    []stacks.Result // in the order of their end
	keys      *privacy.KeyLog // of workloads whose file asks for them
	heldUp    []report.HeldUp
}

// recording is a capture under way.
type recording struct {
	spec    *spec.Capture
	capture *testbed.Capture
	file    *os.File
	end     context.CancelFunc
}

func (s *session) capture(ctx context.Context, _ int, c *spec.Capture) error {
	file, err := s.results.create(c.File)
	if err != nil {
		return lost(err)
	}
	// The recording outlasts the step: only its start ends with ctx.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	started, err := s.testbed.Capture(life, supervisor.CaptureRequest{
		At: c.At, Filter: c.Filter, SnapLen: int(c.SnapLen), Limit: int64(c.Limit), Events: c.Events == "all",
	}, file)
	stop()
	if err != nil {
		end()
		return errors.Join(err, file.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.captures = append(s.captures, &recording{spec: c, capture: started, file: file, end: end})
	return nil
}

// stopCaptures ends all recordings and says what they hold. A recording that
// broke is in the list, not complete; the error says why.
func (s *session) stopCaptures() ([]report.Capture, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stopped := []report.Capture{}
	var errs []error
	for _, r := range s.captures {
		stats, err := r.capture.Stop()
		r.end()
		err = errors.Join(err, r.file.Close())
		made := report.Capture{File: r.spec.File, At: r.spec.At, Filter: r.spec.Filter, Bytes: stats.Bytes,
			Complete: err == nil}
		for _, tap := range stats.Taps {
			made.Taps = append(made.Taps, report.Tap{Name: tap.Tap, Packets: tap.Written,
				Dropped: tap.Dropped, Limited: tap.Limited})
		}
		stopped = append(stopped, made)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.spec.File, err))
		}
	}
	s.captures = nil
	return stopped, errors.Join(errs...)
}

// finished are the workloads that ran to their end, in the order of their end.
func (s *session) finished() []finished {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]finished{}, s.workloads...)
}

// sourcesHeldUp are the sources of traffic that the host held up so far.
func (s *session) sourcesHeldUp() []report.HeldUp {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heldUp)
}

func (s *session) link(ctx context.Context, _ int, l *spec.LinkChange) (func(context.Context) error, error) {
	return s.links.apply(ctx, l)
}

// exec runs a command in all its nodes at once. The first that fails ends the
// others.
func (s *session) exec(ctx context.Context, index int, e *spec.Exec) error {
	name := e.Name
	if name == "" {
		name = fmt.Sprintf("step%d", index+1)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range s.plan.ExecNodes(e.Nodes) {
		group.Go(func() error { return s.execIn(ctx, node, name, index, e) })
	}
	return group.Wait()
}

func (s *session) execIn(ctx context.Context, node, name string, index int, e *spec.Exec) error {
	logs, err := s.openLogs(node, name)
	if err != nil {
		return err
	}
	// The command is ended with a grace, so its own context is not ctx.
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	cmd := s.testbed.Node(node).Command(life, e.Command[0], e.Command[1:]...)
	tail := &tailWriter{limit: errorTail}
	cmd.Stdout, cmd.Stderr = logs.out, teeWriter{logs.err, tail}
	err = cmd.Start()
	if err == nil {
		stop := context.AfterFunc(ctx, func() {
			if cmd.Signal(syscall.SIGTERM) != nil || !sleep(life, endGrace) {
				return
			}
			// By a signal first: with the connection the word of how it ended is lost.
			if cmd.Kill() == nil && !sleep(life, endGrace) {
				return
			}
			kill()
		})
		err = cmd.Wait()
		stop()
	}
	if closeErr := s.closeLogs(index, logs); err == nil {
		err = closeErr
	}
	if ctx.Err() != nil {
		if stopped := cmd.Stopped(); stopped != "" {
			return &stoppedError{command: e.Command[0], node: node, process: stopped,
				ended: context.Cause(ctx)}
		}
		return context.Cause(ctx)
	}
	if errors.Is(err, testbed.ErrNotFound) {
		return notFound(e.Command[0], node, err)
	}
	return judgeExit(err, node, e, tail.String())
}

// stoppedError says that a command's process stood still when the command was ended,
// so that it did not do what the step is for.
type stoppedError struct {
	command, node, process string
	ended                  error // why the command was ended
}

func (e *stoppedError) Error() string {
	return fmt.Sprintf("%s in %s did not run to its end: a signal had stopped its process %s (%v)", e.command,
		e.node, e.process, e.ended)
}

func (e *stoppedError) Unwrap() error { return e.ended }

// exitNotFound is a shell's exit code for a program that is not there.
const exitNotFound = 127

// judgeExit compares how a command ended with what the file expects.
func judgeExit(err error, node string, e *spec.Exec, stderr string) error {
	want := 0
	if e.Expect != nil {
		want = *e.Expect
	}
	var exit *testbed.ExitError
	switch {
	case errors.As(err, &exit):
		if exit.Signal == 0 && exit.Code == want {
			return nil
		}
		if want != 0 {
			return fmt.Errorf("%w, want exit code %d", exit, want)
		}
		exit.Stderr = []byte(stderr)
		if exit.Code == exitNotFound {
			return notFound(e.Command[0], node, exit)
		}
		return exit
	case err == nil && want != 0:
		return fmt.Errorf("%s in %s: exit code 0, want %d", e.Command[0], node, want)
	}
	return err
}

// logPair is where a program's outputs go.
type logPair struct {
	out, err *programLog
	base     string // the path of both below the results, without its ending
}

func (s *session) openLogs(node, name string) (pair logPair, err error) {
	base := "logs/" + node + "/" + name
	if pair.out, err = s.results.createLog(base + ".out"); err != nil {
		return pair, err
	}
	if pair.err, err = s.results.createLog(base + ".err"); err != nil {
		return pair, errors.Join(err, pair.out.Close())
	}
	pair.base = base
	return pair, nil
}

// closeLogs closes a pair and notes what there is to read; a program that
// printed nothing has no log.
func (s *session) closeLogs(index int, p logPair) error {
	var errs []error
	for ending, file := range map[string]*programLog{".err": p.err, ".out": p.out} {
		errs = append(errs, file.Close())
		switch {
		case file.size > 0:
			s.logged(index, p.base+ending)
		default:
			errs = append(errs, lost(s.results.discard(p.base+ending)))
		}
	}
	return errors.Join(errs...)
}

// teeWriter is io.MultiWriter for a file and a tail.
type teeWriter struct {
	file io.Writer
	tail *tailWriter
}

func (w teeWriter) Write(p []byte) (int, error) {
	w.tail.Write(p)
	return w.file.Write(p)
}

// tailWriter keeps the end of what is written. It is written to by one
// goroutine and read after that has ended.
type tailWriter struct {
	limit int
	kept  []byte
}

// Write implements io.Writer.
func (w *tailWriter) Write(p []byte) (int, error) {
	w.kept = append(w.kept, p...)
	if extra := len(w.kept) - w.limit; extra > 0 {
		w.kept = append(w.kept[:0], w.kept[extra:]...)
	}
	return len(p), nil
}

func (w *tailWriter) String() string { return strings.TrimSpace(string(w.kept)) }
