package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"railbed/reporting"
	"railbed/scenarios/runner/judge"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/plan/spec"
	"railbed/workloads/training"
	"railbed/workloads/training/jobfile"
	"railbed/workloads/training/placement"
	"railbed/workloads/worker"
)

// ErrTraining is the error of a training job that does not fit its testbed.
var ErrTraining = errors.New("training job")

// trainingStep runs a training job.
type trainingStep struct {
	ranksStep
	spec    *spec.Training
	program *training.Program
}

var _ = makes((*preparation).training)

func (p *preparation) training(f stepFrame, t *spec.Training) step {
	made := &trainingStep{ranksStep: p.ranks(f), spec: t}
	program, err := trainingProgram(p.o, t)
	if err != nil {
		p.wrong(ErrTraining, f.at, err)
		return made
	}
	if t.MayDrop() && program.MayMiss(t.RD.Droppable) == 0 {
		p.wrong(ErrTraining, f.at+".rd.droppable",
			fmt.Errorf("droppable has no effect, as the job sums no gradients in groups %s or %s: remove it",
				training.DataParallel, training.ExpertData))
		return made
	}
	chosen := t.Ranks
	if len(chosen) == 0 {
		if chosen, err = placement.Choose(p.o.Plan, t.Placement, len(program.Tasks), p.taken); err != nil {
			if jobfile.AnyWorld(t.Trace) {
				err = fmt.Errorf("%w; world: sets the number of ranks", err)
			}
			p.wrong(ErrTraining, f.at, err)
			return made
		}
	}
	p.use(&made.ranksStep, chosen)
	made.program, made.pattern = program, among(program.Pairs(), &t.Carriage)
	made.pattern.Demand = program.Demand()
	p.planRates(&made.ranksStep, "")
	return made
}

// trainingProgram returns the program of a job's model or trace.
func trainingProgram(o *Options, t *spec.Training) (*training.Program, error) {
	if t.Model != nil {
		return training.Compile(t.Model, training.Scale{Bytes: t.BytesScale, Times: t.TimeScale})
	}
	options := jobfile.Options{Ranks: max(t.World, len(t.Ranks)),
		Scale: training.Scale{Bytes: t.BytesScale, Times: t.TimeScale}}
	if t.Groups != "" {
		options.Groups = besideFile(o, t.Groups)
	}
	program, err := jobfile.Read(besideFile(o, t.Trace), options)
	return program, inFile("trace", err)
}

// job implements ranked.
func (t *trainingStep) job(s *session) (worker.Job, error) {
	job := t.ranksJob(s)
	job.Work = worker.Training{Program: t.program}
	job.Iterations, job.Warmup = t.spec.Iterations, t.spec.Warmup
	return job, nil
}

func (t *trainingStep) do(ctx context.Context, s *session) error {
	return s.work(ctx, t, func(r *worker.Result, wanted *worker.Wanted) judge.Finished {
		return finishTraining(t.spec, t.program, r, wanted)
	})
}

// finishTraining translates a job's result for the report and for the packet checks.
func finishTraining(t *spec.Training, program *training.Program, r *worker.Result,
	wanted *worker.Wanted) judge.Finished {
	made := &report.Training{Name: t.Name, Transport: r.Transport, Ranks: r.Ranks, Warmup: t.Warmup,
		Wrong: r.Wrong(), Conduct: conduct(r, t.RoCE)}
	made.Straggler = r.Straggler()
	ideal, err := program.Predict(func(*training.Operation) time.Duration { return 0 })
	if err == nil { // it succeeded already when the program was checked
		whole, _ := program.Times(ideal)
		made.Ideal = whole.Seconds()
	}
	sums, exposed := make([]training.Times, r.Ranks), make([]map[string]time.Duration, r.Ranks)
	var iterations time.Duration
	own := r.Own.(*worker.Iterations)
	for i, o := range r.Operations {
		if !o.Timed {
			continue
		}
		made.Iterations = append(made.Iterations, o.Time.Seconds())
		iterations += o.Time
		made.OtherClocks = made.OtherClocks || own.All[i].OtherClocks
		for rank, times := range own.All[i].Ranks {
			sums[rank].Compute += times.Compute
			sums[rank].Exposed += times.Exposed
			sums[rank].Idle += times.Idle
			if exposed[rank] == nil {
				exposed[rank] = map[string]time.Duration{}
			}
			for group, d := range own.All[i].ExposedBy[rank] {
				exposed[rank][group] += d
			}
		}
	}
	runs := uint64(t.Warmup + t.Iterations)
	if made.Missing = r.Missing(); t.MayDrop() {
		made.MayMiss = runs * program.MayMiss(t.RD.Droppable)
	}
	done := judge.Finished{Name: t.Name, Wrong: made.Wrong, LeftOut: made.LeftOut,
		Outcome: trainingOutcome{made}}
	done.Traffic = verify.Workload{Name: t.Name, Pattern: verify.Pairs, Pairs: program.Pairs()}
	for rank, result := range r.PerRank {
		whole := iterations.Seconds()
		one := report.TrainingRank{Rank: rank, Node: result.Node, NIC: result.NIC}
		if whole > 0 {
			one.Compute, one.Exposed, one.Idle = sums[rank].Compute.Seconds()/whole,
				sums[rank].Exposed.Seconds()/whole, sums[rank].Idle.Seconds()/whole
		}
		for _, v := range program.Volumes(rank) {
			g := report.TrainingGroup{Group: v.Group, Expected: wanted.Groups[rank][v.Group],
				Sent: own.Groups[rank][v.Group]}
			if whole > 0 {
				g.Exposed = exposed[rank][v.Group].Seconds() / whole
			}
			one.Groups = append(one.Groups, g)
		}
		made.PerRank = append(made.PerRank, one)
		judged := judgedRank(r.Transport, &r.PerRank[rank])
		judged.Missing = left(&t.Carriage, &r.PerRank[rank])
		done.Traffic.Ranks = append(done.Traffic.Ranks, judged)
	}
	made.Bars, made.Began = bars(program, own), own.Began
	return done
}

// trainingOutcome is the outcome of a training job.
type trainingOutcome struct{ *report.Training }

func (o trainingOutcome) Figure(key string) (value float64, there bool) {
	return reporting.TrainingFigure(o.Training, key)
}

func (o trainingOutcome) Observations() *report.Conduct { return &o.Conduct }

func (o trainingOutcome) AddTo(r *report.Report) { r.Trainings = append(r.Trainings, *o.Training) }

func (o trainingOutcome) Correctness() judge.Correctness { return judge.Elements(o.Ranks) }

// barsKept is the maximum number of an iteration's tasks that the report shows.
const barsKept = 20_000

// bars returns the tasks of an iteration by rank, for the drawing of the report.
func bars(program *training.Program, own *worker.Iterations) (all [][]report.TrainingBar) {
	kept := 0
	under := program.UnderWay(own.Spans)
	for rank, tasks := range program.Tasks {
		if kept += len(tasks); kept > barsKept {
			break
		}
		made := make([]report.TrainingBar, 0, len(tasks))
		for i := range tasks {
			s := own.Spans[rank][i]
			bar := report.TrainingBar{Name: tasks[i].Name, Group: tasks[i].Kind, Start: s.Start.Seconds(),
				End: s.End.Seconds()}
			if bar.Group == training.Exchange {
				bar.Group, bar.Begun = program.Operations[tasks[i].Operation].Group,
					under[rank][i].Start.Seconds()
				bar.Steps = judge.ReportSteps(own.Steps[rank][i], time.Duration.Seconds)
			}
			made = append(made, bar)
		}
		slices.SortStableFunc(made, func(a, b report.TrainingBar) int {
			switch {
			case a.Start < b.Start:
				return -1
			case a.Start > b.Start:
				return 1
			}
			return 0
		})
		all = append(all, made)
	}
	return all
}

// UnknownTimes reports whether the times are unknown, because ranks have other clocks.
func (t trainingOutcome) UnknownTimes() bool { return t.OtherClocks }
