package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"railbed/capture/report"
	"railbed/internal/plural"
	"railbed/internal/rundir"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/scenarios/runner"
	"railbed/scenarios/runner/suite"
)

// testFlags are the flags of "railbed test".
type testFlags struct {
	jobs, repeat       int
	shard, filter, out string
	baseline           string
	metrics            []string
	keep, list, resume bool
	strict             bool
	control, quick     bool
}

func newTestCommand(a *app) *cobra.Command {
	var flags testFlags
	cmd := &cobra.Command{
		Use:   "test [FILE|DIR]...",
		Short: "Run many scenarios as a test suite",
		Long: `Run scenarios and print a line for each. If an argument is a directory, all YAML and
JSON files below it that describe a fabric are run, and the others are named with the
reason. The default is the working directory.

With -j, several scenarios run at the same time. If a run does not pass while others run,
it is repeated alone. If the host was too busy for a run, it is repeated alone at most
twice. The last run counts. So does a FAIL that rests on no time, such as an exit code:
if the run alone passes, the scenario is flaky. --repeat makes several runs of each
scenario with the file's seed. If verdicts that count differ, the scenario is flaky, and
the worst verdict counts.

Each cell of a file's matrix is a scenario. Its repetitions have different seeds. The
results have a table and a page of the numbers of all cells. The suite fails if a check
between cells fails. --resume goes on with the results in --out: runs that came to an end
are kept if the testbed, its steps, its checks and the version of Railbed are the same.

A file's claim names a baseline and a treatment, which its checks between cells compare.
--quick makes two runs of each of its cells, and judges only the direction. --control runs
the baseline in place of the treatment, and files with the key control without theirs. It
fails if a claim or such a file passes all the same.

--baseline compares the runs with the runs in an earlier --out. The suite fails if a number
that --metric names is significantly worse. This needs several runs on both sides. If a
scenario or such a number is on one side only, the suite is INCONCLUSIVE.

The directory --out has results.json, junit.xml, index.html, and a directory for each run.
If a run passed, only its report and its plan are kept, unless --keep is given. A scenario
that this host cannot run is skipped; with --strict it fails.

The worst verdict sets the exit code, as for run. Ctrl-C ends the running scenarios as
ABORTED, and the results are still written. A second Ctrl-C kills the testbeds.`,
		Example: `  railbed test scenarios
  railbed test scenarios -j 4 --shard 1/4 --out results
  railbed test --filter 'roce/*' --repeat 10
  railbed test scenarios/rd-spray.yaml --repeat 8 --baseline old --metric busbw
  railbed test scenarios/matrix --filter transport=rd --set size=1MiB --resume
  railbed test scenarios --control`,
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			surviveReaders()
			cases, err := a.cases(args, flags, cmd.Flags().Changed("repeat"))
			if err != nil {
				return err
			}
			a.printPassedOver(cases.over)
			return a.test(cmd.Context(), cases, flags)
		},
	}
	a.settingsFlag(cmd)
	flags.define(cmd)
	return cmd
}

// define adds the flags to the command.
func (t *testFlags) define(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVarP(&t.jobs, "jobs", "j", 1, "`NUMBER` of scenarios to run at the same time")
	f.IntVar(&t.repeat, "repeat", 1, "`NUMBER` of runs of each scenario")
	f.StringVar(&t.shard, "shard", "", "`PART` of the scenarios, such as 1/4 for the first of four parts")
	f.StringVar(&t.filter, "filter", "",
		"`PATTERN` of the names of scenarios: a part of the name, or a glob")
	f.StringVar(&t.out, "out", "test-results", "directory `DIR` for the results")
	f.StringVar(&t.baseline, "baseline", "", "directory `DIR` with earlier results to compare with")
	f.StringSliceVar(&t.metrics, "metric", nil,
		"`NAME` of a number of railbed report that must not become worse, such as busbw; may be repeated")
	f.BoolVar(&t.keep, "keep", false, "keep all files of all runs")
	f.BoolVar(&t.resume, "resume", false,
		"keep the runs in --out that came to an end, and make the others")
	f.BoolVar(&t.strict, "strict", false,
		"fail if this host cannot run a scenario, in place of skipping it")
	f.BoolVar(&t.control, "control", false,
		"run claims and controls without their treatment, and fail if they pass")
	f.BoolVar(&t.quick, "quick", false,
		"make two runs of each cell of a claim, and judge only the direction of the difference")
	f.BoolVar(&t.list, "list", false,
		"list the scenarios, with the times that they took in --out, without running them")
	completeFlag(cmd, "out", completeDirs)
	completeFlag(cmd, "baseline", completeDirs)
	completeFlag(cmd, "shard", oneOf("1/2", "2/2", "1/4"))
}

// timedCase is a case with the time that it took in the suite before, 0 if that is unknown.
type timedCase struct {
	suite.Case
	Seconds float64 `json:"seconds,omitempty"`
}

// listCases prints the cases. The results in a directory have their times.
func (a *app) listCases(cases []suite.Case, out string) error {
	took := map[string]float64{}
	if earlier, err := suite.Read(out); err == nil {
		for i := range earlier.Cases {
			took[earlier.Cases[i].Name] = earlier.Cases[i].Took().Seconds()
		}
	}
	all := []timedCase{}
	for _, c := range cases {
		all = append(all, timedCase{c, took[c.Name]})
	}
	if a.output == "json" {
		return a.printJSON(all)
	}
	for _, c := range all {
		if c.Seconds == 0 {
			a.show("%s", c.Name)
			continue
		}
		a.show("%-57s %8s", c.Name, units.Took(time.Duration(c.Seconds*float64(time.Second))))
	}
	return nil
}

func (a *app) test(ctx context.Context, t *testSuite, flags testFlags) error {
	if flags.list {
		return a.listCases(t.cases, flags.out)
	}
	var earlier *suite.Results
	base, err := t.baseline(flags)
	if err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	if t.out, err = suite.Claim(flags.out); err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	defer t.out.Close()
	if flags.resume {
		earlier, _ = suite.Read(flags.out) // nil in a new directory
	}
	a.sweep(rundir.SweepOptions{Patience: besides})
	defer a.onInterrupt("taking the testbeds down and writing the results", a.killStarted)()
	var names turns
	line := newProgressLine(a.rawStderr)
	running := map[string]bool{}
	ended := 0
	t.identify()
	results, err := suite.Run(ctx, suite.Options{Cases: t.cases, Jobs: flags.jobs, Repeat: flags.repeat,
		Out: flags.out, KeepAll: flags.keep, Files: t.matrices, Control: flags.control, Quick: flags.quick,
		Earlier: earlier, Strict: flags.strict,
		Measured: base != nil, PassedOver: t.over,
		Do: func(ctx context.Context, c suite.Case, repetition int, out string) (*report.Report, error) {
			return t.run(ctx, c, repetition, out, &names)
		},
		Prune: func(dir string, keep ...string) error { return runner.Prune(dir, t.out, keep...) },
		Progress: func(u suite.Update) {
			switch {
			case u.Begins != nil:
				running[u.Begins.Name] = true
			case u.Waits != nil:
				delete(running, u.Waits.Name)
			default:
				delete(running, u.Ended.Name)
				ended = u.Done
				line.clear()
				if a.output != "json" {
					a.printCase(u.Ended)
				}
			}
			line.show(strings.Join(slices.Sorted(maps.Keys(running)), ", "), ended, len(t.cases))
		}})
	line.clear()
	if results == nil {
		return err
	}
	// On a full disk the results cannot be written, but they are printed.
	err = cmp.Or(err, t.compareWith(ctx, results, base, flags))
	if a.output == "json" {
		err = errors.Join(err, a.printJSON(results))
	} else {
		a.printSuite(results, flags.out)
	}
	if err == nil && results.Verdict != verdict.Pass {
		err = &exitError{Code: results.Verdict.ExitCode()}
	}
	return err
}

// baseline reads the results in --baseline, if it was given.
func (t *testSuite) baseline(flags testFlags) (*suite.Results, error) {
	switch {
	case sameFile(flags.out, flags.baseline):
		return nil, usage("--baseline and --out are one directory: want another --out")
	case flags.baseline == "":
		return nil, nil
	}
	base, err := suite.Read(flags.baseline)
	if err != nil {
		return nil, err
	}
	return base, suite.EnoughRuns(t.cases, flags.repeat, base, flags.baseline)
}

// compareWith compares the results with the results in --baseline, if it was given.
func (t *testSuite) compareWith(ctx context.Context, results, base *suite.Results, flags testFlags) error {
	if base == nil {
		return nil
	}
	return results.Compare(ctx, t.out, flags.out, &suite.Baseline{Results: base, Dir: flags.baseline,
		Metrics: flags.metrics, Selects: func(c *suite.Case) bool { return t.selects(c, flags) }})
}

// printCase prints the line of a case.
func (a *app) printCase(o *suite.Outcome) {
	text := fmt.Sprintf("%-12s %-44s %8s", o.Verdict, o.Name, units.Took(o.Took()))
	if o.Verdict != verdict.Pass || o.Flaky {
		first, _, _ := strings.Cut(o.Reason, "\n")
		text += "  " + first
	}
	if o.Note != "" {
		text += "  " + o.Note
	}
	a.show("%s", text)
}

// printSuite prints the numbers that are worse, the number of cases with each verdict, and the place of the
// results.
func (a *app) printSuite(r *suite.Results, dir string) {
	counts, flaky := r.Counts()
	var words []string
	for _, v := range []verdict.Verdict{verdict.Pass, verdict.Fail, verdict.Inconclusive, verdict.Overloaded,
		verdict.Aborted, verdict.Unsupported} {
		if counts[v] > 0 {
			words = append(words, fmt.Sprintf("%d %s", counts[v], v))
		}
	}
	if flaky > 0 {
		words = append(words, fmt.Sprintf("%d flaky", flaky))
	}
	for i := range r.Matrices {
		a.printMatrix(&r.Matrices[i], r, dir)
	}
	for _, text := range r.Worse {
		a.show("worse: %s", text)
	}
	for _, text := range r.NotCompared {
		a.show("not compared: %s", text)
	}
	fmt.Fprintln(a.stdout)
	if len(r.PassedOver) > 0 {
		words = append(words, plural.Text("%d files passed over", len(r.PassedOver)))
	}
	a.show("%s: %s in %s", r.Verdict, strings.Join(words, ", "), units.Took(r.Finished.Sub(r.Started)))
	for _, file := range []string{suite.IndexFile, suite.ResultsFile} {
		if r.Has(file) {
			a.show("results: %s", filepath.Join(dir, file))
			break
		}
	}
}

// turns lets one user of a name at a time go on. It is safe for concurrent use.
type turns struct{ locks sync.Map }

// take waits for a name, and returns a function that gives it back.
func (t *turns) take(name string) (give func()) {
	lock, _ := t.locks.LoadOrStore(name, &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
	return lock.(*sync.Mutex).Unlock
}

// sameFile reports whether two paths lead to one file.
func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	second, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(first, second)
}
