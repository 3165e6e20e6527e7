package cli

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"railbed/capture/report"
	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/scenarios/runner"
	"railbed/scenarios/suite"
)

// testFlags are the flags of "railbed test".
type testFlags struct {
	jobs, repeat       int
	shard, filter, out string
	baseline           string
	metrics            []string
	keep, list         bool
}

func newTestCommand(a *app) *cobra.Command {
	var flags testFlags
	cmd := &cobra.Command{
		Use:   "test [FILE|DIR]...",
		Short: "Run many scenarios as a test suite",
		Long: `Test runs scenarios and prints a line for each. Of a directory it runs all files below it
that describe a fabric. Without arguments it takes the working directory.

With -j, several scenarios run at a time. A run that did not pass beside others is made
again alone, and so is a run for which the host was too busy, at most twice; the last run
counts. --repeat makes several runs of each scenario with the file's seed: if their
verdicts differ, the scenario is flaky, and the worst verdict counts.

--baseline compares the runs with those of an earlier --out. The suite fails if a number
that --metric names is significantly worse; that needs several runs on both sides.

DIR has results.json, junit.xml, index.html, and a directory for each run: all of its files
if it did not pass, otherwise the report and the plan. A scenario that this host cannot run
is skipped.

Exit code: that of the worst scenario, as for run. Ctrl-C ends the running scenarios as
ABORTED and writes the results; a second Ctrl-C kills their testbeds.`,
		Example: `  railbed test scenarios
  railbed test scenarios -j 4 --shard 1/4 --out results
  railbed test --filter 'roce/*' --repeat 10
  railbed test scenarios/rd-spray.yaml --repeat 8 --baseline old --metric busbw`,
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			cases, err := a.cases(args, flags)
			if err != nil {
				return err
			}
			if flags.list {
				return a.listCases(cases)
			}
			return a.test(cmd.Context(), cases, flags)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&flags.jobs, "jobs", "j", 1, "`NUMBER` of scenarios at a time")
	f.IntVar(&flags.repeat, "repeat", 1, "`NUMBER` of runs of each scenario")
	f.StringVar(&flags.shard, "shard", "", "`PART` of the scenarios, such as 1/4 for the first of four parts")
	f.StringVar(&flags.filter, "filter", "",
		"`PATTERN` of the names of scenarios: a part of the name, or a glob")
	f.StringVar(&flags.out, "out", "test-results", "directory `DIR` for the results")
	f.StringVar(&flags.baseline, "baseline", "", "directory `DIR` with earlier results to compare with")
	f.StringSliceVar(&flags.metrics, "metric", nil,
		"`NAME` of a number of railbed report that must not become worse, such as busbw; may be repeated")
	f.BoolVar(&flags.keep, "keep", false, "keep all files of all runs")
	f.BoolVar(&flags.list, "list", false, "list the scenarios and run none")
	completeFlag(cmd, "out", completeDirs)
	completeFlag(cmd, "baseline", completeDirs)
	completeFlag(cmd, "shard", oneOf("1/2", "2/2", "1/4"))
	return cmd
}

// cases returns the scenarios of the arguments, in the order of their names.
func (a *app) cases(args []string, flags testFlags) ([]suite.Case, error) {
	if len(args) == 0 {
		args = []string{"."}
	}
	switch {
	case flags.jobs < 1:
		return nil, usage("-j %d: want at least 1", flags.jobs)
	case flags.repeat < 1:
		return nil, usage("--repeat %d: want at least 1", flags.repeat)
	case (flags.baseline == "") != (len(flags.metrics) == 0):
		return nil, usage("--baseline and --metric go together: want both, or neither")
	}
	var cases []suite.Case
	for _, arg := range args {
		files, err := scenarioFiles(arg)
		if err != nil {
			return nil, usage("%w", err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(filepath.ToSlash(filepath.Clean(file)), filepath.Ext(file))
			name = strings.TrimLeft(strings.ReplaceAll(name, "../", ""), "/")
			cases = append(cases, suite.Case{Name: name, Path: file})
		}
	}
	slices.SortFunc(cases, func(x, y suite.Case) int { return strings.Compare(x.Name, y.Name) })
	cases = slices.CompactFunc(cases, func(x, y suite.Case) bool { return x.Name == y.Name })
	if flags.filter != "" {
		cases = slices.DeleteFunc(cases, func(c suite.Case) bool { return !named(flags.filter, c.Name) })
	}
	if flags.shard != "" {
		part, of, err := parseShard(flags.shard)
		if err != nil {
			return nil, err
		}
		var own []suite.Case
		for i := part - 1; i < len(cases); i += of {
			own = append(own, cases[i])
		}
		cases = own
	}
	if len(cases) == 0 {
		return nil, usage("no scenarios: want files that describe a fabric, and a --filter and --shard " +
			"that leave some")
	}
	return cases, nil
}

// named reports whether a pattern is a part of a name, or a glob that matches it or its last elements.
func named(pattern, name string) bool {
	if !strings.ContainsAny(pattern, "*?[") {
		return strings.Contains(name, pattern)
	}
	for rest := name; ; {
		if matched, err := path.Match(pattern, rest); err == nil && matched {
			return true
		}
		_, after, more := strings.Cut(rest, "/")
		if !more {
			return false
		}
		rest = after
	}
}

func parseShard(text string) (part, of int, err error) {
	first, second, _ := strings.Cut(text, "/")
	part, err = strconv.Atoi(first)
	of, err2 := strconv.Atoi(second)
	if err != nil || err2 != nil || part < 1 || part > of {
		return 0, 0, usage("--shard %q: want a part and a number of parts, such as 1/4", text)
	}
	return part, of, nil
}

// scenarioFiles returns a file, or the files below a directory that describe a fabric.
func scenarioFiles(arg string) (files []string, err error) {
	info, err := os.Stat(arg)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{arg}, nil
	}
	err = filepath.WalkDir(arg, func(name string, entry fs.DirEntry, err error) error {
		switch base := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && name != arg && (strings.HasPrefix(base, ".") || base == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(base) != ".yaml" && filepath.Ext(base) != ".yml":
			return nil
		}
		text, err := os.ReadFile(name)
		if err == nil && describesFabric(text) {
			files = append(files, name)
		}
		return err
	})
	return files, err
}

// describesFabric reports whether a file has the key without which no testbed is.
func describesFabric(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "fabric:") {
			return true
		}
	}
	return false
}

func (a *app) listCases(cases []suite.Case) error {
	if a.output == "json" {
		return a.printJSON(cases)
	}
	for _, c := range cases {
		a.show("%s", c.Name)
	}
	return nil
}

func (a *app) test(ctx context.Context, cases []suite.Case, flags testFlags) error {
	var base *suite.Results
	if flags.baseline != "" {
		var err error
		if base, err = suite.Read(flags.baseline); err != nil {
			return &exitError{Code: verdict.ExitUsage, Err: err}
		}
	}
	if err := os.MkdirAll(flags.out, 0o755); err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	a.sweep(rundir.SweepOptions{Patience: besides})
	defer a.onInterrupt("taking the testbeds down and writing the results", a.killStarted)()
	names := &freeNames{taken: map[string]bool{}}
	line := newProgressLine(a.rawStderr)
	running := map[string]bool{}
	ended := 0
	results, err := suite.Run(ctx, suite.Options{Cases: cases, Jobs: flags.jobs, Repeat: flags.repeat,
		Out: flags.out, KeepAll: flags.keep,
		Do: func(ctx context.Context, c suite.Case, out string) (*report.Report, error) {
			return a.testRun(ctx, c, out, names)
		},
		Progress: func(u suite.Update) {
			if u.Begins != nil {
				running[u.Begins.Name] = true
			} else {
				delete(running, u.Ended.Name)
				ended = u.Done
				line.clear()
				if a.output != "json" {
					a.printCase(u.Ended)
				}
			}
			line.show(strings.Join(slices.Sorted(maps.Keys(running)), ", "), ended, len(cases))
		}})
	line.clear()
	if err != nil {
		return err
	}
	if base != nil {
		if err := results.Compare(ctx, flags.out, base, flags.baseline, flags.metrics); err != nil {
			return &exitError{Code: verdict.ExitUsage, Err: err}
		}
	}
	if a.output == "json" {
		err = a.printJSON(results)
	} else {
		a.printSuite(results, flags.out)
	}
	if err == nil && results.Verdict != verdict.Pass {
		err = &exitError{Code: results.Verdict.ExitCode()}
	}
	return err
}

// printCase prints the line of a case.
func (a *app) printCase(o *suite.Outcome) {
	text := fmt.Sprintf("%-12s %-44s %8s", o.Verdict, o.Name, report.Took(o.Took()))
	if o.Verdict != verdict.Pass || o.Flaky {
		first, _, _ := strings.Cut(o.Reason, "\n")
		text += "  " + first
	}
	a.show("%s", text)
}

// printSuite prints the counts.
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
	for _, text := range r.Worse {
		a.show("worse: %s", text)
	}
	fmt.Fprintln(a.stdout)
	a.show("%s: %s in %s", r.Verdict, strings.Join(words, ", "), report.Took(r.Finished.Sub(r.Started)))
	a.show("results: %s", filepath.Join(dir, suite.IndexFile))
}

// testRun makes a run of a case. A file that is wrong has no report.
func (a *app) testRun(ctx context.Context, c suite.Case, out string, names *freeNames) (*report.Report,
	error) {
	file, err := a.readSpec(c.Path)
	if err != nil {
		return nil, err
	}
	name := names.take(file.Name)
	defer names.give(name)
	o, err := a.runOptions(c.Path, name, out)
	if err != nil {
		return nil, err
	}
	made, err := runner.Run(ctx, o)
	if made != nil && !made.Finished.IsZero() {
		return made, nil
	}
	return nil, err
}

// freeNames are names of testbeds that do not run. It is safe for concurrent use.
type freeNames struct {
	mu    sync.Mutex
	taken map[string]bool
}

// maxTestbedName is the length of the longest name of a testbed.
const maxTestbedName = 24

// take returns a name, or if it is taken the name with a number behind it.
func (n *freeNames) take(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	free := name
	for number := 2; n.taken[free] || isRunning(free); number++ {
		suffix := "-" + strconv.Itoa(number)
		free = name[:min(len(name), maxTestbedName-len(suffix))] + suffix
	}
	n.taken[free] = true
	return free
}

func (n *freeNames) give(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.taken, name)
}

func isRunning(name string) bool {
	dir, err := rundir.Of(name)
	return err == nil && dir.Running()
}
