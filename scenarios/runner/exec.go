package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"railbed/internal/clock"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
)

const (
	// endGrace is how long a command has between SIGTERM and SIGKILL.
	endGrace = 2 * time.Second
	// hangupGrace is the time between a hangup of a command and the hangup of its programs. If the testbed is
	// being taken down, the runner learns the reason in this time. The reason may also come after their end.
	hangupGrace = time.Second
	// errorTail is how many bytes of a failed command's stderr are copied into the report. The log
	// has all of them.
	errorTail = 2048
)

// execStep runs a command in nodes.
type execStep struct {
	stepFrame
	spec *spec.Exec
	// bounded is set if the timeout applies. It does not apply to a command that may be a server, unless
	// the file sets it.
	bounded bool
	// awaited is the place in the file that waits for the end of a command in the background, or "".
	awaited string
}

var _ = makes((*preparation).exec)

func (p *preparation) exec(f stepFrame, e *spec.Exec) step {
	p.workdir(f, e)
	step := &execStep{stepFrame: f, spec: e, bounded: !f.Serves || p.o.File.Source.Has(f.at+".timeout")}
	if path := p.o.File.Awaited(f.index); e.Background && path != "" {
		step.awaited = p.o.File.Source.Pos(path).String()
	}
	return step
}

func (e *execStep) object() string {
	if e.Name != "" {
		return e.Name
	}
	return strings.Join(e.spec.Command, " ")
}

func (e *execStep) limit(by clock.Dilation) time.Duration {
	if !e.bounded {
		return 0
	}
	return e.stepFrame.limit(by)
}

func (e *execStep) programs(p *plan.Plan) []string { return p.ExecNodes(e.spec.Nodes) }

// do runs the command in all its nodes at once. The first failure ends the others.
func (e *execStep) do(ctx context.Context, s *session) error {
	name := e.Name
	if name == "" {
		name = fmt.Sprintf("step%d", e.index+1)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range s.plan.ExecNodes(e.spec.Nodes) {
		group.Go(func() error { return s.execIn(ctx, node, name, e) })
	}
	err := group.Wait()
	if e.awaited != "" && errors.Is(err, errLate) {
		return fmt.Errorf("%w; %s waits for the end of %s: if it is a server, remove its name there, which "+
			"lets the run end it; otherwise give it a longer timeout", err, e.awaited, name)
	}
	return err
}

func (s *session) execIn(ctx context.Context, node, name string, step *execStep) error {
	e := step.spec
	logs, err := s.openLogs(step.index, node, name)
	if err != nil {
		return err
	}
	s.repeated(logs)
	// The command gets time to exit after SIGTERM, so its own context is not ctx.
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	cmd := s.testbed.Node(node).Command(life, e.Command[0], e.Command[1:]...)
	tail := &tailWriter{limit: errorTail}
	cmd.Stdout, cmd.Stderr = logs.out, teeWriter{logs.err, tail}
	err = s.start(cmd, node, e.Workdir)
	if err == nil {
		stop := context.AfterFunc(ctx, func() {
			if cmd.Signal(syscall.SIGTERM) != nil || !clock.Sleep(life, endGrace) {
				return
			}
			// Kill it by a signal first: closing the connection would lose its exit status.
			if cmd.Kill() == nil && !clock.Sleep(life, endGrace) {
				return
			}
			kill()
		})
		err = cmd.Wait()
		stop()
		if exit := (*testbed.ExitError)(nil); errors.As(err, &exit) && exit.Signal == syscall.SIGHUP {
			clock.Sleep(ctx, hangupGrace)
		}
	}
	if ctx.Err() != nil {
		if stopped := cmd.Stopped(); stopped != "" {
			return &stoppedError{command: e.Command[0], node: node, process: stopped,
				ended: context.Cause(ctx)}
		}
		if ended := context.Cause(ctx); !errors.Is(ended, errRunEnded) || !notFound(err) {
			return ended
		}
		ctx = life // a program that is not there was not ended with the run
	}
	if step.Serves && s.killed(node, err) {
		return nil // a server; the file crashed it on purpose, and its clients show the effect
	}
	return s.explain(ctx, e.Command, e.Workdir, []string{node}, judgeExit(err, node, e, tail.String()))
}

// stoppedError is the error of a command whose process was stopped when the command was ended, so that the
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
		return exit
	case err == nil && want != 0:
		return fmt.Errorf("%s in %s: exit code 0, want %d", e.Command[0], node, want)
	}
	return err
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
