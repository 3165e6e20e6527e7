package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
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
		Long: `Run scenarios and print a line for each. If an argument is a directory, all YAML files
below it that describe a fabric are run. The default is the working directory.

With -j, several scenarios run at the same time. If a run does not pass while others run,
it is repeated alone. If the host was too busy for a run, it is repeated alone at most
twice. The last run counts. --repeat makes several runs of each scenario with the file's
seed. If their verdicts differ, the scenario is flaky, and the worst verdict counts.

--baseline compares the runs with the runs in an earlier --out. The suite fails if a number
that --metric names is significantly worse. This needs several runs on both sides.

The directory --out has results.json, junit.xml, index.html, and a directory for each run.
If a run passed, only its report and its plan are kept, unless --keep is given. A scenario
that this host cannot run is skipped.

The worst verdict sets the exit code, as for run. Ctrl-C ends the running scenarios as
ABORTED, and the results are still written. A second Ctrl-C kills the testbeds.`,
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
	f.IntVarP(&flags.jobs, "jobs", "j", 1, "`NUMBER` of scenarios to run at the same time")
	f.IntVar(&flags.repeat, "repeat", 1, "`NUMBER` of runs of each scenario")
	f.StringVar(&flags.shard, "shard", "", "`PART` of the scenarios, such as 1/4 for the first of four parts")
	f.StringVar(&flags.filter, "filter", "",
		"`PATTERN` of the names of scenarios: a part of the name, or a glob")
	f.StringVar(&flags.out, "out", "test-results", "directory `DIR` for the results")
	f.StringVar(&flags.baseline, "baseline", "", "directory `DIR` with earlier results to compare with")
	f.StringSliceVar(&flags.metrics, "metric", nil,
		"`NAME` of a number of railbed report that must not become worse, such as busbw; may be repeated")
	f.BoolVar(&flags.keep, "keep", false, "keep all files of all runs")
	f.BoolVar(&flags.list, "list", false, "list the scenarios without running them")
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
	cases, err := allCases(args)
	if err != nil {
		return nil, usage("%w", err)
	}
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
		return nil, usage("no scenarios: want files that describe a fabric, and a --filter and a --shard " +
			"that select some of them")
	}
	return cases, nil
}

// runDir matches an element of a case's name that is the name of a run's directory.
var runDir = regexp.MustCompile(`(^|/)run-[0-9]+(/|$)`)

// allCases returns the scenarios of the arguments. A file that several arguments name is one case.
func allCases(args []string) (cases []suite.Case, err error) {
	of := map[string]string{} // path by name
	seen := map[string]bool{}
	for _, arg := range args {
		files, err := scenarioFiles(arg)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			path, err := filepath.Abs(file)
			if err != nil {
				return nil, err
			}
			name := strings.TrimSuffix(filepath.ToSlash(filepath.Clean(file)), filepath.Ext(file))
			name = strings.TrimLeft(strings.ReplaceAll(name, "../", ""), "/")
			switch {
			case seen[path]:
				continue
			case of[name] != "":
				return nil, fmt.Errorf("%s and %s are both called %s; rename one", of[name], file, name)
			case !filepath.IsLocal(name) || name == "." || strings.HasSuffix(name, "/") ||
				runDir.MatchString(name):
				return nil, fmt.Errorf("%s: %q cannot be the name of a scenario; rename the file", file, name)
			}
			seen[path], of[name] = true, file
			cases = append(cases, suite.Case{Name: name, Path: file})
		}
	}
	slices.SortFunc(cases, func(x, y suite.Case) int { return strings.Compare(x.Name, y.Name) })
	return cases, nil
}

// named reports whether a pattern is a part of a name, or a glob that matches the name or its last elements.
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
	if arg, err = filepath.EvalSymlinks(arg); err != nil { // WalkDir follows no link
		return nil, err
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
		if errors.Is(err, fs.ErrNotExist) { // a link that leads nowhere, as editors make
			return nil
		}
		if err == nil && describesFabric(text) {
			files = append(files, name)
		}
		return err
	})
	return files, err
}

// describesFabric reports whether a file has the top-level key fabric, which every testbed needs.
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
	if err := suite.Claim(flags.out); err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	if sameFile(flags.out, flags.baseline) {
		return usage("--baseline and --out are one directory: want another --out")
	}
	a.sweep(rundir.SweepOptions{Patience: besides})
	defer a.onInterrupt("taking the testbeds down and writing the results", a.killStarted)()
	var names turns
	line := newProgressLine(a.rawStderr)
	running := map[string]bool{}
	ended := 0
	results, err := suite.Run(ctx, suite.Options{Cases: cases, Jobs: flags.jobs, Repeat: flags.repeat,
		Out: flags.out, KeepAll: flags.keep,
		Do: func(ctx context.Context, c suite.Case, out string) (*report.Report, error) {
			return a.testRun(ctx, c, out, &names)
		},
		Prune: runner.Prune,
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
	for _, text := range r.Worse {
		a.show("worse: %s", text)
	}
	fmt.Fprintln(a.stdout)
	a.show("%s: %s in %s", r.Verdict, strings.Join(words, ", "), report.Took(r.Finished.Sub(r.Started)))
	a.show("results: %s", filepath.Join(dir, suite.IndexFile))
}

// testRun makes a run of a case. For an invalid file it returns an error and no report.
func (a *app) testRun(ctx context.Context, c suite.Case, out string, names *turns) (*report.Report, error) {
	o, err := a.runOptions(c.Path, "", out)
	if err != nil {
		return nil, err
	}
	// A testbed's name decides about its addresses and paths, so it stays: files of one name take turns.
	defer names.take(o.Plan.Name)()
	made, err := runner.Run(ctx, o)
	if made != nil && made.Finished.IsZero() {
		made = nil
	}
	return made, err
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
