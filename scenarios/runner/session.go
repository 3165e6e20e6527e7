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
	// errorTail is how many bytes of a failed command's stderr are copied into the report. The log
	// has all of them.
	errorTail = 2048
)

// session does steps on a running testbed. It is safe for concurrent use.
type session struct {
	file    *spec.Testbed
	plan    *plan.Plan
	testbed *testbed.Testbed
	results *results
	links   *linkBook
	secret  func() privacy.Material // for a workload that encrypts; nil: a new one
	inputs
	// progress receives the progress of a workload's iterations.
	progress func(Update)
	// silence is how long a process may not answer before its step fails.
	silence time.Duration
	// logged records a file that a step wrote.
	logged func(index int, files ...string)

	mu        sync.Mutex
	captures  []*recording
	workloads []finished
	adding    []uint16        // jobs of the aggregators of running workloads
	stacks    []stacks.Result // in the order of their end
	keys      *privacy.KeyLog // of workloads with a key log
	heldUp    []report.HeldUp
}

// recording is a running capture.
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
	// The recording lasts longer than the step: ctx limits only its start.
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

// stopCaptures stops all recordings and returns their contents. A recording that failed is in the
// list and not complete. The error says why it failed.
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

// finished returns the workloads that ran to their end, in the order of their end.
func (s *session) finished() []finished {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]finished{}, s.workloads...)
}

// sourcesHeldUp returns the traffic sources that the host has held up so far.
func (s *session) sourcesHeldUp() []report.HeldUp {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heldUp)
}

func (s *session) link(ctx context.Context, _ int, l *spec.LinkChange) (func(context.Context) error, error) {
	return s.links.apply(ctx, l)
}

// exec runs a command in all its nodes at once. The first failure ends the others.
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
	// The command gets time to exit after SIGTERM, so its own context is not ctx.
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
			// Kill it by a signal first: closing the connection would lose its exit status.
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

// stoppedError says that a command's process was stopped when the command was ended, so that the
// process did not complete its task.
type stoppedError struct {
	command, node, process string
	ended                  error // why the command was ended
}

func (e *stoppedError) Error() string {
	return fmt.Sprintf("%s in %s did not run to its end: a signal had stopped its process %s (%v)", e.command,
		e.node, e.process, e.ended)
}

func (e *stoppedError) Unwrap() error { return e.ended }

// exitNotFound is a shell's exit code for a program that does not exist.
const exitNotFound = 127

// judgeExit compares how a command ended with the end that the file expects.
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

// logPair is the logs of a program's stdout and stderr.
type logPair struct {
	out, err *programLog
	base     string // the path of both below the results directory, without the extension
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

// closeLogs closes a pair of logs and records those that have content. It removes the log of an
// output to which the program printed nothing.
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

// tailWriter keeps the end of its input. One goroutine writes to it, and it may be read after that
// goroutine has ended.
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
