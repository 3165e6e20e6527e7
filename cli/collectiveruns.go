package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"railbed/capture/report"
	"railbed/internal/clock"
	"railbed/internal/element"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/perf"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/reporting/sweep"
	"railbed/scenarios/runner/outdir"
	"railbed/testbed"
	"railbed/workloads/worker"
)

// all selects every type, operation or root.
const all = "all"

// otherTypes maps names of nccl-tests to names of rccl-tests.
var otherTypes = map[string]string{"f8e4m3": string(element.E4M3), "f8e5m2": string(element.E5M2)}

// chosen returns the value that an option names, or all values.
func chosen[T ~string](option, text string, every []T, hint string) ([]T, error) {
	if text == all {
		return every, nil
	}
	if !slices.Contains(every, T(text)) {
		return nil, fmt.Errorf("%s %s: want one of %s, or all%s", option, text,
			strings.Join(wordsOf(every), ", "), hint)
	}
	return []T{T(text)}, nil
}

// roots returns the roots that the option names among the given number of ranks.
func (o *collectiveOptions) roots(ranks int) ([]int, error) {
	root, err := strconv.Atoi(o.root)
	if o.root == all || err == nil && root == -1 {
		roots := make([]int, ranks)
		for i := range roots {
			roots[i] = i
		}
		return roots, nil
	}
	if err != nil || root < 0 || root >= ranks {
		return nil, fmt.Errorf("-r %s: want a rank, 0 to %d, or all", o.root, ranks-1)
	}
	return []int{root}, nil
}

// jobs returns the jobs for a testbed that the options select, one for each transport, type, operation and
// root, in the order of nccl-tests. Its error joins everything that is wrong with the options.
func (o *collectiveOptions) jobs(name string, p *plan.Plan) (jobs []worker.Job, err error) {
	for i, transport := range o.transports {
		if slices.Contains(o.transports[:i], transport) {
			return nil, fmt.Errorf("--transport %s: %s is there twice", strings.Join(o.transports, ","),
				transport)
		}
		some, err := o.jobsOver(transport, name, p)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, some...)
	}
	return jobs, nil
}

// jobsOver returns the jobs over a transport.
func (o *collectiveOptions) jobsOver(transport, name string, p *plan.Plan) ([]worker.Job, error) {
	job, err := o.job(transport, name, p)
	if job.Kind == "" {
		return nil, err
	}
	problems := []error{err}
	everyType, everyOp := element.Types(), element.Ops()
	if job.Algorithm == schedule.InNetwork {
		everyType = slices.DeleteFunc(everyType, func(t element.Type) bool {
			return !slices.Contains(spec.InNetworkTypes, string(t))
		})
		everyOp = slices.DeleteFunc(everyOp, func(op element.Op) bool {
			return !slices.Contains(spec.InNetworkOps, string(op))
		})
	}
	types, err := chosen("-d", cmp.Or(otherTypes[o.datatype], o.datatype), everyType, "")
	problems = append(problems, err)
	ops, err := chosen("-o", o.operation, everyOp, "; the output's format is --output")
	problems = append(problems, err)
	roots := []int{0}
	if len(job.Ranks) > 0 {
		roots, err = o.roots(len(job.Ranks))
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if job.Kind == spec.Barrier {
		types = []element.Type{element.Float32} // it has no elements
	}
	if !schedule.Kind(job.Kind).Combines() {
		ops = ops[:1]
	}
	if !schedule.Kind(job.Kind).Rooted() {
		roots = roots[:1]
	}
	var jobs []worker.Job
	for _, job.Type = range types {
		for _, job.Op = range ops {
			for _, job.Root = range roots {
				one, err := o.shaped(job)
				if err == nil {
					err = one.Check()
				}
				if err != nil {
					return nil, err
				}
				jobs = append(jobs, one)
			}
		}
	}
	return jobs, nil
}

// shaped returns a job with all values that follow from its type and its root.
func (o *collectiveOptions) shaped(job worker.Job) (worker.Job, error) {
	sizes, err := o.sizes.Sizes(job.Kind, len(job.Ranks), job.Type)
	if err != nil {
		return job, err
	}
	sweep := *job.Sweep
	sweep.Sizes = slices.Repeat(sizes, o.cycles)
	job.Sweep = &sweep
	return job, o.readAlgorithm(&job)
}

// job returns the settings that all jobs of the options on a testbed share.
func (o *collectiveOptions) job(transport, name string, p *plan.Plan) (worker.Job, error) {
	job := worker.Job{
		Name:       name,
		Algorithm:  o.algorithm,
		Transport:  transport,
		Iterations: o.iterations,
		Warmup:     o.warmup,
		Seed:       p.Seed, Dilation: p.Dilation, Timeout: time.Duration(o.timeout) * time.Second,
	}
	if err := setKind(&job, name); err != nil {
		return job, err
	}
	problems := o.problems()
	averages := []worker.Average{worker.FirstRank, worker.MeanRank, worker.Fastest, worker.Slowest}
	if o.average < 0 || o.average >= len(averages) {
		return job, errors.Join(
			append(problems, fmt.Errorf("-a %d: want 0 to %d", o.average, len(averages)-1))...)
	}
	if o.timeout == 0 {
		job.Timeout = 1000 * time.Hour
	}
	switch o.family {
	case "4", "6":
		job.Family = int(o.family[0] - '0')
	default:
		problems = append(problems, fmt.Errorf("--ip %s: want 4 or 6", o.family))
	}
	var err error
	if job.Ranks, err = ranksOf(p, o.nodes); err != nil || len(problems) > 0 {
		return job, errors.Join(append(problems, err)...)
	}
	job.Sends = worker.SendsOf(p, job.Ranks)
	job.Channels = worker.Channels(p, job.Ranks, max(o.channels, 0))
	job.ChannelSends = worker.SendsOf(p, job.Channels)
	if err := o.parseSizes(); err != nil {
		return job, err
	}
	job.Sweep = &worker.Sweep{Checks: o.checks, Average: averages[o.average], BusyPoll: !p.Soft()}
	job.InPlace = schedule.Kind(job.Kind).HasInPlace()
	if o.algorithm == schedule.InNetwork {
		if job.Aggregator, err = worker.FindAggregator(p, job.Ranks, o.at); err == nil && job.Family == 6 {
			err = p.FitsIPv6(&job.Aggregator.Job)
		}
		if slices.Equal(o.transports, []string{worker.TCP}) { // the flag's default
			job.Transport = spec.InSwitch
		}
	}
	return job, err
}

// problems returns the options that are wrong whatever the testbed is.
func (o *collectiveOptions) problems() (problems []error) {
	for _, other := range o.others {
		if other.value != other.fallback && other.value != "" && other.value != "0" {
			option := "--" + other.name
			if other.short != "" {
				option = fmt.Sprintf("-%s (--%s)", other.short, other.name)
			}
			problems = append(problems, fmt.Errorf("%s %s: %s", option, other.value, other.why))
		}
	}
	if o.iterations < 1 {
		problems = append(problems, fmt.Errorf("-n %d: want at least 1", o.iterations))
	}
	if o.cycles < 1 {
		problems = append(problems, fmt.Errorf(
			"-N %d: want at least 1; for runs without end, write a loop in the shell", o.cycles))
	}
	if o.stamps != "0" && o.stamps != "1" {
		problems = append(problems, fmt.Errorf("-S %s: want 0 or 1", o.stamps))
	}
	if o.channels < 0 {
		problems = append(problems, fmt.Errorf("--channels %d: want at least 1", o.channels))
	}
	if o.at != "" && o.algorithm != schedule.InNetwork {
		problems = append(problems, fmt.Errorf("--switch %s: want --algorithm %s with it", o.at,
			schedule.InNetwork))
	}
	return problems
}

// collective runs the collectives and prints the results.
func (a *app) collective(cmd *cobra.Command, o *collectiveOptions, name string) error {
	tb, err := openTestbed(cmd.Context(), o.testbed)
	if _, number := strconv.Atoi(o.testbed); err != nil && number == nil {
		return usage("%v; -t is the testbed here, and nccl-tests' threads are --nthreads", err)
	}
	if err != nil {
		return err
	}
	p := tb.Plan()
	jobs, err := o.jobs(name, p)
	if err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	if len(jobs) == 0 {
		return usage("--transport: want tcp, rd, roce or quic")
	}
	var dir *outdir.Dir
	if o.out != "" { // before the measurements, which may take long
		if dir, err = outdir.Open(o.out); err != nil {
			return &exitError{Code: verdict.ExitUsage, Err: fmt.Errorf("--out %s: %w", o.out, err)}
		}
		defer dir.Close()
	}
	runs, err := a.runCollectives(cmd.Context(), o, tb, jobs)
	if err != nil {
		return err
	}
	made := reportOf(runs)
	err = a.showSweeps(o, made.Sweeps, dir)
	if a.output == "json" { // also if the directory's disk is full: the measurements may have taken long
		err = errors.Join(err, a.printJSON(made))
	}
	if made.Wrong > 0 {
		err = errors.Join(err, fmt.Errorf("%d elements were wrong", made.Wrong))
	}
	return err
}

// runCollectives runs the jobs and prints a table for each transport.
func (a *app) runCollectives(ctx context.Context, o *collectiveOptions, tb *testbed.Testbed,
	jobs []worker.Job) (runs []CollectiveRun, err error) {
	out, p := a.stdout, tb.Plan()
	if a.output == "json" {
		out = io.Discard
	}
	nodes := worker.NewNodes(ctx, tb, func(string) (io.Writer, io.Writer, error) {
		return a.stderr, a.stderr, nil
	})
	defer nodes.Close()
	defer jobs[0].Aggregator.End()
	var printer *ncclPrinter
	for i := range jobs {
		if printer == nil || jobs[i].Transport != printer.job.Transport {
			printer = o.newPrinter(out, p, jobs[i])
		}
		var run CollectiveRun
		if aggregator := jobs[i].Aggregator; aggregator != nil {
			err = aggregator.Begin(ctx, tb)
		}
		if err == nil {
			run.Result, err = worker.Run(ctx, jobs[i], nodes, printer.progress)
		}
		if errors.Is(err, worker.ErrJob) || errors.Is(err, testbed.ErrInUse) {
			return nil, &exitError{Code: verdict.ExitUsage, Err: err}
		}
		if err != nil {
			return nil, err
		}
		run.Straggler = run.Result.Straggler()
		a.remark(&run)
		for i := range run.Rows {
			run.Rows[i] = run.Rows[i].Virtual(clock.Dilation(p.Dilation))
		}
		runs = append(runs, run)
		if i+1 == len(jobs) || jobs[i+1].Transport != jobs[i].Transport {
			if err := printer.table.Close(printer.job.Name); err != nil {
				return nil, err
			}
		}
	}
	return runs, nil
}

// averageOf returns the mean busbw of all rows and modes, in GB/s.
func averageOf(runs []CollectiveRun) float64 {
	sum, count := 0.0, 0
	for _, run := range runs {
		for _, row := range run.Rows {
			for _, m := range []*perf.Measure{&row.OutOfPlace, row.InPlace} {
				if m != nil {
					sum, count = sum+m.BusBW, count+1
				}
			}
		}
	}
	return sum / float64(max(count, 1))
}

// remark prints what slowed a run down.
func (a *app) remark(run *CollectiveRun) {
	say := func(text string) {
		row := run.Rows[0]
		a.say("railbed: %s, type %s, redop %s, root %d: %s", run.Name, row.Type, row.RedOp, row.Root, text)
	}
	if run.Straggler != nil {
		say(run.Straggler.String())
	}
	if note := run.Result.Repeats().Note(); note != "" {
		say(note)
	}
}

// CollectiveReport is the JSON document of railbed collective with --output json.
type CollectiveReport struct {
	// CollectiveRun is the run if there is only one type, operation and root. Otherwise it has the
	// rows of all runs, and Runs has the rest.
	CollectiveRun
	// Average is the mean busbw of all rows and modes. It is absent if there are several transports, of which
	// each has a table with an average.
	Average *float64 `json:"avg_busbw_gb_s,omitempty"`
	// Averages has the average of each table, in the order of the transports.
	Averages []TransportAverage `json:"averages"`
	Wrong    uint64             `json:"wrong"` // elements, over all ranks and rows
	Runs     []CollectiveRun    `json:"runs,omitempty"`
	// Sweeps are busbw, algbw and the time by size, with a line for each transport, type, operation and root.
	Sweeps []sweep.Sweep `json:"sweeps"`
}

// CollectiveRun holds the results of all sizes for a type, an operation and a root.
type CollectiveRun struct {
	*worker.Result
	// Straggler is the rank for which the others waited, if there is such a rank.
	Straggler *report.Straggler `json:"straggler,omitempty"`
}

// TransportAverage is the mean busbw of all rows and modes of the table of a transport.
type TransportAverage struct {
	Transport string  `json:"transport"`
	Average   float64 `json:"avg_busbw_gb_s"`
}

// transportAverages returns the average of each table. The runs of a transport follow one another.
func transportAverages(runs []CollectiveRun) (all []TransportAverage) {
	for from, to := 0, 0; from < len(runs); from = to {
		transport := runs[from].Result.Transport
		for to = from; to < len(runs) && runs[to].Result.Transport == transport; {
			to++
		}
		all = append(all, TransportAverage{transport, averageOf(runs[from:to])})
	}
	return all
}

// reportOf returns the report of runs.
func reportOf(runs []CollectiveRun) CollectiveReport {
	made := CollectiveReport{CollectiveRun: runs[0], Averages: transportAverages(runs),
		Sweeps: collectiveSweeps(runs)}
	if len(made.Averages) == 1 {
		made.Average = &made.Averages[0].Average
	}
	if len(runs) > 1 {
		one := made.Result
		made.CollectiveRun = CollectiveRun{Result: &worker.Result{
			Name:       one.Name,
			Kind:       one.Kind,
			Algorithm:  one.Algorithm,
			Transport:  one.Transport,
			Ranks:      one.Ranks,
			Operations: []worker.Operation{}, PerRank: []worker.RankResult{},
		}}
		made.Runs = runs
	}
	for _, run := range runs {
		made.Wrong += run.Result.Wrong()
		if len(runs) > 1 {
			made.Rows = append(made.Rows, run.Rows...)
		}
	}
	return made
}
