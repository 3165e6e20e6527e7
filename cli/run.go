package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"railbed/capture/report"
	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/reporting"
	"railbed/scenarios/runner"
	"railbed/scenarios/runner/measure"
	"railbed/testbed"
)

func newRunCommand(a *app) *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a scenario: bring its testbed up, do its steps, judge its checks",
		Long: `Run brings up the cluster that FILE describes, does the steps on their timeline,
takes the cluster down, and judges the checks from what was recorded.

Steps run one after another. A step with "at" starts that long after the first and
begins a sequence of its own, parallel to the others. The run waits for background
workloads at the end. It ends background commands for which no step waits, which is no
failure. A step that fails ends the run; recordings up to then are still judged. A file
with steps and no checks passes when its steps do; a file with neither is INCONCLUSIVE.
Of a file with a matrix, --set chooses the cell to run; "railbed test" runs all of them.

It prints the verdict, the results, failures, and numbers within 10 % of their bounds, in
at most 25 lines if the run passed. -v adds tables of steps, checks, links
and all else, as report.html has them.

Before the steps, it warns if other programs leave less than two processors. If this
machine cannot carry the traffic in time, --dilation N slows the links down by N and
stretches all times by N; results are in the testbed's own time.

The results are report.json, junit.xml, report.html, plan.json, supervisor.log,
the captures, and under logs/NODE/ what programs printed, of each log the first 16 MiB
and the last 64 KiB. DIR is created; an existing DIR must be empty or hold an earlier
run, whose files are replaced.

Exit code: 0 PASS, 1 FAIL or ABORTED, 2 bad input, 3 UNSUPPORTED here,
4 OVERLOADED, 5 INCONCLUSIVE. A failure while the emulator does not keep up
proves nothing, so OVERLOADED overrules FAIL. Ctrl-C ends the run as ABORTED, takes everything
down and still writes the results; a second Ctrl-C kills the testbed first.`,
		Example: `  railbed run scenarios/quickstart.yaml
  railbed run scenarios/link-flap.yaml --out results -o json | jq .verdict
  railbed run scenarios/matrix/loss.yaml --set transport=rd --set loss=2%
  railbed run scenarios/quickstart.yaml --dilation 4`,
		Args:              exactArgs(1),
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.path = args[0]
			return a.runFile(cmd, flags)
		},
	}
	a.settingsFlag(cmd)
	a.verboseFlag(cmd)
	cmd.Flags().StringVar(&flags.out, "out", "", "directory `DIR` for the results (default NAME-results)")
	cmd.Flags().StringVar(&flags.name, "name", "", "run it under this `NAME` instead of the file's")
	cmd.Flags().Uint64Var(&flags.seed, "seed", 0,
		"the `NUMBER` to run it with as its seed instead of the file's")
	cmd.Flags().Uint64Var(&flags.dilation, "dilation", 0,
		"run it slower than real time by this `FACTOR`, instead of the file's dilation")
	completeFlag(cmd, "out", completeDirs)
	return cmd
}

// runFile runs a file, with warnings about checks that it cannot prove and about a busy host.
func (a *app) runFile(cmd *cobra.Command, flags runFlags) error {
	surviveReaders()
	if cmd.Flags().Changed("seed") && flags.seed == 0 {
		return usage("--seed 0: want at least 1")
	}
	if d := flags.dilation; cmd.Flags().Changed("dilation") && (d == 0 || d > spec.MostDilation) {
		return usage("--dilation %d: want 1 to %d", d, spec.MostDilation)
	}
	load := measure.StartHostLoad()
	o, err := a.runOptions(flags)
	if err != nil {
		return err
	}
	never, hardly := runner.Provable(o)
	a.warn(append(never, hardly...)) // the other checks can still be proved
	o.HostLoad = load
	return a.run(cmd.Context(), o)
}

// runFlags are the arguments of a run. Unless they are empty, name, seed and dilation replace the file's.
// Without a seed a repetition, counted from 1, has a seed that follows from the file's. control is the claim
// whose baseline replaces its treatment, or nil.
type runFlags struct {
	path, name, out string
	seed, dilation  uint64
	repetition      int
	control         *spec.Claim
}

// runOptions reads the only testbed of the file. An error in the file has the exit code 2.
func (a *app) runOptions(flags runFlags) (runner.Options, error) {
	f, err := a.readSetFile(flags.path)
	var cell *spec.Cell
	if err == nil {
		cell, err = f.Only()
	}
	if err != nil {
		return runner.Options{}, &exitError{Code: verdict.ExitUsage, Err: err}
	}
	settings, _ := a.settings() // readSetFile has checked them
	return cellOptions(f, cell, settings, flags)
}

// cellOptions reads a testbed of a file. settings are the values of --set that choose it. An error in the
// file has the exit code 2.
func cellOptions(f *spec.File, cell *spec.Cell, settings []spec.Setting, flags runFlags) (runner.Options,
	error) {
	o := runner.Options{Path: flags.path, Out: flags.out, Version: version,
		Repeat: []string{"railbed", "run", flags.path}}
	var err error
	if o.File, err = f.Decode(cell); err == nil {
		if flags.seed == 0 && flags.repetition > 1 {
			flags.seed = spec.RepetitionSeed(o.File.Seed, flags.repetition)
		}
		if flags.seed != 0 {
			o.File.Seed = flags.seed
		}
		if flags.dilation != 0 {
			o.File.Dilation = flags.dilation
		}
		if flags.control != nil {
			err = flags.control.Replace(o.File)
		}
	}
	if err == nil {
		o.Plan, err = compileAs(o.File, flags.name)
	}
	if err != nil {
		return o, &exitError{Code: verdict.ExitUsage, Err: err}
	}
	for _, s := range settings {
		o.Repeat = append(o.Repeat, "--set", s.Name+"="+s.Value)
	}
	if flags.seed != 0 {
		o.Repeat = append(o.Repeat, "--seed", strconv.FormatUint(flags.seed, 10))
	}
	if flags.dilation != 0 {
		o.Repeat = append(o.Repeat, "--dilation", strconv.FormatUint(flags.dilation, 10))
	}
	if flags.name != "" {
		o.Repeat = append(o.Repeat, "--name", flags.name)
	}
	if flags.out == "" {
		o.Out = o.File.Name + "-results"
	}
	o.Repeat = append(o.Repeat, "--out", o.Out)
	return o, nil
}

// followRun lets a run show its progress. ending describes the effect of the first interrupt. The caller
// calls done after the run.
func (a *app) followRun(o *runner.Options, ending string) (done func()) {
	a.sweep(rundir.SweepOptions{Patience: besides})
	ended := a.onInterrupt(ending, a.killStarted)
	if a.trace {
		o.Trace = func(line string) { a.say("%s", line) }
	}
	line := newProgressLine(a.rawStderr)
	o.Progress = func(u runner.Update) {
		if u.Line == "" {
			line.show(u.Phase, u.Done, u.Total)
			return
		}
		line.clear()
		a.say("%s", u.Line)
	}
	return func() {
		line.clear()
		ended()
	}
}

// refusedRun returns the error of a run under a name that did not begin, or nil.
func refusedRun(name string, err error) error {
	if errors.Is(err, testbed.ErrRunning) {
		return usage("%w\ntake it down first (railbed down %s) or choose another --name", err, name)
	}
	if errors.Is(err, runner.ErrResults) ||
		errors.As(err, new(spec.Problems)) {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	return nil
}

func (a *app) run(ctx context.Context, o runner.Options) error {
	done := a.followRun(&o, "taking "+o.Plan.Name+" down and writing the results")
	made, err := runner.Run(ctx, o)
	done()
	if err := refusedRun(o.Plan.Name, err); err != nil {
		return err
	}
	if made != nil && !made.Finished.IsZero() {
		err = errors.Join(err, a.printReport(made, o.Out)) // also if the results cannot be written
	}
	if err != nil {
		return err
	}
	return ended(made)
}

// verboseFlag adds the flag that makes printReport print all tables.
func (a *app) verboseFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&a.verbose, "verbose", "v", false, "print all tables of the report")
}

// printReport prints a report as text or as JSON. dir is the folder of its files.
func (a *app) printReport(r *report.Report, dir string) error {
	if a.output == "json" {
		return r.WriteJSON(a.stdout)
	}
	_, err := os.Stat(filepath.Join(dir, report.HTMLFile))
	return reporting.WriteText(a.rawStdout, r, reporting.TextOptions{Dir: dir, NoPage: err != nil,
		Color: isTerminal(a.rawStdout), Verbose: a.verbose})
}

// ended converts a verdict to the exit code.
func ended(r *report.Report) error {
	if code := r.Verdict.ExitCode(); code != verdict.ExitPass {
		return &exitError{Code: code}
	}
	return nil
}
