package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"railbed/internal/plural"
	"railbed/internal/rundir"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/scenarios/runner"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

func newUpCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "up FILE",
		Short: "Bring a testbed up and leave it running",
		Long: `Bring up the cluster that FILE describes and leave it running. Steps and checks
in the file are not run; railbed run does that. The testbed stays up until
railbed down, even if this command's terminal is closed.

A testbed that is up already is repaired: up undoes changes made with railbed link
and every other difference from the plan, such as deleted routes, changed qdiscs or
removed links. It prints each repair. Everything else stays unchanged, and processes
go on running. Differences that could not be repaired are printed, too, with exit
code 1.

If the file has changed, up applies the changes that are possible while the testbed
runs: rates, queues, delays and losses of links. Other changes are printed and are an
error; take the testbed down first.

Ctrl-C undoes what was made, a second one kills the testbed. A repair is completed.`,
		Example: `  railbed up scenarios/quickstart.yaml
  railbed exec h0 -- ping -c1 h7
  railbed down`,
		Args:              exactArgs(1),
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, p, err := a.load(args[0], name)
			if err != nil {
				return err
			}
			if err := testbed.Require(cmd.Context(), p.Requires, args[0]); err != nil {
				return err
			}
			absent := runner.Missing(runner.Options{File: file, Plan: p, Path: args[0]})
			if err := absent.Err(); err != nil {
				return usage("%w", err)
			}
			return a.up(cmd.Context(), p, args[0])
		},
	}
	a.settingsFlag(cmd)
	cmd.Flags().StringVar(&name, "name", "", "bring it up under this `NAME` instead of the file's")
	return cmd
}

func (a *app) up(ctx context.Context, p *plan.Plan, file string) error {
	a.sweep(rundir.SweepOptions{Patience: besides})
	defer a.onInterrupt("undoing what was made of "+p.Name, a.killStarted)()
	start := time.Now()
	line := newProgressLine(a.rawStderr)
	options := testbed.Options{File: file, Progress: line.show, Warn: func(text string) {
		line.clear()
		a.say("warning: %s", text)
	}}
	if a.trace {
		options.Trace = func(text string) { a.say("%s", text) }
	}
	tb, err := testbed.Up(ctx, p, options)
	line.clear()
	if errors.Is(err, testbed.ErrRunning) {
		return a.converge(ctx, p, options)
	}
	if err != nil {
		return err
	}
	if err := tb.Detach(); err != nil {
		return errors.Join(err, tb.Close())
	}
	return a.printUp(p, "up", time.Since(start), nil)
}

// converge handles a testbed name that is up already.
func (a *app) converge(ctx context.Context, p *plan.Plan, options testbed.Options) error {
	start := time.Now()
	tb, err := testbed.Open(ctx, p.Name)
	if err != nil {
		return err
	}
	another := tb.Plan().Hash() != p.Hash()
	done, err := tb.Converge(ctx, p, options)
	var other *testbed.OtherPlanError
	if errors.As(err, &other) {
		return usage("%w\ntake it down first (railbed down %s) or choose another --name", other, p.Name)
	}
	if done == nil {
		return err
	}
	state := "up already, verified"
	switch {
	case err != nil:
		state = "up, but not as planned"
		err = fmt.Errorf("testbed %s is up but not as planned, and this could not be repaired; take it "+
			"down and up again (railbed down %s): %w", p.Name, p.Name, err)
	case another:
		state = "up already, changed to the new plan"
	case len(done.Changed)+len(done.Repaired) > 0:
		state = "up already, repaired"
	}
	return errors.Join(a.printUp(p, state, time.Since(start), done), err)
}

// printUp prints that a testbed is up, and the changes that a running testbed needed.
func (a *app) printUp(p *plan.Plan, state string, took time.Duration, done *supervisor.Converged) error {
	if a.output == "json" {
		document := map[string]any{
			"name": p.Name, "state": state, "seconds": took.Seconds(),
			"nodes": len(p.Nodes), "switches": len(p.Switches), "links": len(p.Links),
		}
		if done != nil {
			document["changed"], document["repaired"] = done.Changed, done.Repaired
			if done.Failure != nil {
				document["remaining"] = strings.Split(done.Failure.Error, "\n")
			}
		}
		return a.printJSON(document)
	}
	fmt.Fprintf(a.stdout, "%s: %s in %s: %s, %s, %s\n", p.Name, state,
		units.Took(took), plural.Count(len(p.Nodes), "nodes"), plural.Count(len(p.Switches), "switches"),
		plural.Count(len(p.Links), "links"))
	if done != nil {
		for _, change := range done.Changed {
			a.show("changed: %s", change.What)
		}
		for _, repair := range done.Repaired {
			a.show("repaired: %s", repair.What)
		}
	}
	return nil
}

func newDownCommand(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down [NAME|FILE]...",
		Short: "Take testbeds down",
		Long: `Take testbeds down, by name or by the file they came from, with every program that
runs in them. Without arguments, take down the only testbed that is up. A testbed that
is not up is no error. If the testbed's supervisor is stopped or does not answer, the
command kills it, and removes what it left. Ctrl-C does not stop the command; a second one
kills the testbed.

With -o json a list has the state of each testbed: "down", "not up" or "failed".`,
		Example:           "  railbed down\n  railbed down quickstart\n  railbed down --all",
		ValidArgsFunction: completeTestbeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := downNames(args, all)
			if err != nil {
				return err
			}
			var failures error
			ended := []downed{}
			for _, name := range names {
				// Once requested, the shutdown of a testbed is completed.
				one, err := a.down(context.WithoutCancel(cmd.Context()), name)
				failures, ended = errors.Join(failures, err), append(ended, one)
			}
			a.sweep(rundir.SweepOptions{})
			if a.output == "json" {
				failures = errors.Join(a.printJSON(ended), failures)
			}
			return failures
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "all of the calling user's testbeds")
	return cmd
}

func downNames(args []string, all bool) ([]string, error) {
	if len(args) == 0 {
		running, err := testbed.Testbeds()
		if err != nil {
			return nil, err
		}
		if len(running) > 1 && !all {
			return nil, usage("%d testbeds are up (%s); name one or give --all", len(running),
				strings.Join(running, ", "))
		}
		return running, nil
	}
	var names []string
	for _, arg := range args {
		if spec.CheckName(arg) == nil {
			names = append(names, arg)
			continue
		}
		file, err := spec.Load(arg)
		if err != nil {
			return nil, &exitError{Code: verdict.ExitUsage, Err: err}
		}
		names = append(names, file.Name)
	}
	return names, nil
}

// downed is the result of taking one testbed down, in the JSON of down.
type downed struct {
	Name    string  `json:"name"`
	State   string  `json:"state"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

// down takes a testbed down, also if its client is interrupted: the request is one message, and the
// supervisor does the rest.
func (a *app) down(ctx context.Context, name string) (downed, error) {
	start := time.Now()
	err := a.takeDown(ctx, name)
	if errors.Is(err, testbed.ErrNotRunning) {
		a.say("%s: not up", name)
		return downed{Name: name, State: "not up"}, nil
	}
	took := time.Since(start)
	if err != nil {
		return downed{Name: name, State: "failed", Seconds: took.Seconds(), Error: err.Error()}, err
	}
	if a.output != "json" {
		a.show("%s: down in %s", name, units.Took(took))
	}
	return downed{Name: name, State: "down", Seconds: took.Seconds()}, nil
}

// errKilled means that the shutdown was interrupted twice and the testbed was killed.
var errKilled = errors.New("interrupted twice; the testbed was killed")

// How long down waits for an answer of a supervisor, and of a stopped supervisor. It then kills the
// supervisor. A stopped one may continue, as when a debugger detaches.
const (
	downPatience    = 30 * time.Second
	stoppedPatience = 5 * time.Second
)

// answerTime returns a context that ends when a supervisor has had enough time to answer.
func answerTime(ctx context.Context, s *testbed.Supervisor) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(stoppedPatience / 10)
		defer tick.Stop()
		stopped := 0
		for began := time.Now(); time.Since(began) < downPatience && stopped < 10; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if stopped++; !s.Stopped() {
				stopped = 0
			}
		}
		cancel(testbed.ErrNoAnswer)
	}()
	return ctx, func() { cancel(nil) }
}

// takeDown takes a testbed down. It kills a supervisor that does not answer or does not end, and one for
// which it is interrupted twice.
func (a *app) takeDown(ctx context.Context, name string) error {
	end := func(ctx context.Context) error {
		tb, err := testbed.Open(ctx, name)
		if err != nil {
			return err
		}
		return tb.Down(ctx)
	}
	supervisor, err := testbed.FindSupervisor(name)
	if err != nil {
		return end(ctx) // the testbed is not up, or on its way down already
	}
	defer supervisor.Close()
	var killErr error
	forced := false
	stop := a.onInterrupt("completing the end of "+name, func() {
		forced = true
		if killErr = supervisor.Kill(); killErr == nil {
			a.killed(name)
		}
	})
	patient, done := answerTime(ctx, supervisor)
	err = end(patient)
	done()
	stop() // afterwards forced and killErr do not change
	switch {
	case killErr != nil:
		return errors.Join(err, killErr)
	case forced:
		return fmt.Errorf("take down %s: %w", name, errKilled)
	}
	return a.killUnwilling(name, supervisor, err)
}

// killUnwilling kills the supervisor of a testbed that could not be taken down with an error, if the testbed
// is still up.
func (a *app) killUnwilling(name string, supervisor *testbed.Supervisor, err error) error {
	dir, dirErr := rundir.Of(name)
	if err == nil || dirErr != nil || !dir.Running() {
		return err
	}
	state := "did not answer or did not end"
	if supervisor.Stopped() {
		state = "is stopped by a signal"
	}
	if killErr := supervisor.Kill(); killErr != nil {
		return errors.Join(err, killErr)
	}
	if goneErr := dir.WaitGone(downPatience); goneErr != nil {
		return errors.Join(err, goneErr)
	}
	a.say("railbed: the supervisor of testbed %s, process %d, %s: killed it, and with it the testbed", name,
		supervisor.Pid(), state)
	return nil
}
