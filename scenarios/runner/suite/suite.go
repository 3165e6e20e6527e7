// Package suite runs many scenarios as the tests of a CI job.
//
// Each scenario is a case, and so is each cell of a scenario's matrix. With repetitions a case has several
// runs. Cases can run at the same time. A run is repeated alone at most twice if the host did not keep up,
// and once if it did not pass while other runs may have disturbed it. The last run counts. A FAIL that rests
// on no time counts as well, because other runs cannot have caused it. The verdict of a case is the worst
// verdict that counts. A case whose repetitions have different verdicts is flaky. An outcome states each
// verdict that does not count.
//
// The results are a directory for each run (package runner), results.json, junit.xml and index.html. If a run
// passed or was UNSUPPORTED, only its report and its plan are kept. A scenario with a matrix also has a
// table of the numbers of its cells as CSV, and a page with a plot for each number.
package suite

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"railbed/capture/bundle"
	"railbed/capture/report"
	"railbed/internal/input"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/scenarios/runner/outdir"
)

// Format is the version of results.json, by the rules of report.Format.
const Format = "railbed-suite/1"

// Options are the options of Run.
type Options struct {
	Cases []Case
	// Jobs is the number of runs at a time. 0 stands for 1.
	Jobs int
	// Repeat is the number of runs of each case that has no number of its own. 0 stands for 1.
	Repeat int
	// Out is the directory for the results. It exists.
	Out string
	// KeepAll keeps all files of all runs.
	KeepAll bool
	// Strict makes cases that this host cannot run FAIL.
	Strict bool
	// Measured is set if numbers of all cases count, and not only numbers of matrices: a run with an
	// overloaded emulation is repeated although it passed.
	Measured bool
	// PassedOver are the files that no case was made of.
	PassedOver []PassedOver
	// Files has the file of each matrix, with the checks between its cells and the claim.
	Files map[string]*spec.File
	// Control is set if the cases run without their treatment: Do runs the baseline in place of a claim's
	// treatment. Then a claim must not pass.
	Control bool
	// Quick is set if claims are judged by the direction of the difference alone, in all pairs of runs.
	Quick bool
	// Earlier are the results in Out, or nil. Run does not repeat runs of theirs that came to an end, of
	// cases with the same Content.
	Earlier *Results
	// Do makes a run of a case's repetition, counted from 1, with its results in the directory out. An error,
	// such as a mistake in the file, means that there is no report. The run is then a FAIL.
	Do func(ctx context.Context, c Case, repetition int, out string) (*report.Report, error)
	// Prune removes the files of a run that is over, except those of the given names.
	Prune func(dir string, keep ...string) error
	// Progress is called when a run begins, and when it has ended, by one goroutine at a time.
	Progress func(Update)
}

// Case is a scenario, or a cell of a scenario's matrix.
type Case struct {
	// Name is the name of the case: its path without the extension, and the name of the cell.
	Name string `json:"name"`
	// Path is the path of the file.
	Path string `json:"path"`
	// Matrix is the name of the scenario, if this is a cell of its matrix. Cell has the values of the axes.
	Matrix string         `json:"matrix,omitempty"`
	Cell   []spec.Setting `json:"cell,omitempty"`
	// Repeat is the number of runs. Cells have different seeds in each. 0 stands for the suite's number.
	Repeat int `json:"repeat,omitempty"`
	// Control has the values that take the treatment out of a scenario without a matrix, or is empty. The
	// verdict of the case is then PASS if a check does not hold.
	Control string `json:"control,omitempty"`
	// Content identifies the testbed with its steps and checks. It is empty if the file has a mistake.
	Content string `json:"content,omitempty"`
}

// PassedOver is a file or a folder of a directory that the suite does not run, and why.
type PassedOver struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// Update reports that a case runs, waits or has ended.
type Update struct {
	// Begins is the case of which a run begins.
	Begins *Case
	// Waits is the case of which a run has ended, and others follow.
	Waits *Case
	// Ended is the case that has ended. So far, Done of Total cases have ended.
	Ended       *Outcome
	Done, Total int
}

// Results are the results of all cases, in the order of the cases.
type Results struct {
	Format   string          `json:"format"`
	Verdict  verdict.Verdict `json:"verdict"`
	Started  time.Time       `json:"started"`
	Finished time.Time       `json:"finished"`
	Jobs     int             `json:"jobs"`
	Cases    []Outcome       `json:"cases"`
	// Strict is set if cases that this host cannot run are FAIL.
	Strict bool `json:"strict,omitempty"`
	// Control is set if the cases ran without their treatment.
	Control bool `json:"control,omitempty"`
	// Quick is set if claims were judged by the direction of the difference alone.
	Quick bool `json:"quick,omitempty"`
	// PassedOver are files below directories that the suite did not run.
	PassedOver []PassedOver `json:"passed_over,omitempty"`
	// Worse describes the numbers that are significantly worse than in an earlier suite.
	Worse []string `json:"worse,omitempty"`
	// NotCompared describes what could not be compared with the earlier suite.
	NotCompared []string `json:"not_compared,omitempty"`
	// Matrices has the numbers of the cells of each matrix.
	Matrices []Matrix `json:"matrices,omitempty"`
	// unwritten has the files that could not be written, relative to the directory of the suite.
	unwritten map[string]bool
}

// Outcome is the outcome of a case.
type Outcome struct {
	Case
	Verdict verdict.Verdict `json:"verdict"`
	Reason  string          `json:"reason,omitempty"`
	// Flaky is set if repetitions with one seed had different verdicts.
	Flaky bool `json:"flaky,omitempty"`
	// Note describes the runs that were repeated alone and had another verdict than the case.
	Note string `json:"note,omitempty"`
	// NotRun is set if the suite was interrupted before the case began.
	NotRun bool `json:"not_run,omitempty"`
	// Runs are the runs in the order in which they were made.
	Runs []Attempt `json:"runs"`
}

// Attempt is a run of a case.
type Attempt struct {
	// Repetition counts from 1.
	Repetition int             `json:"repetition"`
	Verdict    verdict.Verdict `json:"verdict"`
	Reason     string          `json:"reason,omitempty"`
	Fidelity   string          `json:"fidelity,omitempty"`
	// Reported is set if the run has a report. Seed is the run's seed.
	Reported bool   `json:"reported"`
	Seed     uint64 `json:"seed,omitempty"`
	// Earlier is set if the run was made by an earlier suite in the same directory.
	Earlier bool `json:"earlier,omitempty"`
	// Seconds is the time that the run took.
	Seconds float64 `json:"seconds"`
	// Alone is set if no other run could disturb it. Replaced is set if the run was repeated alone.
	Alone    bool `json:"alone"`
	Replaced bool `json:"replaced,omitempty"`
	// Timed is set for a FAIL that rests on times only. A replaced FAIL counts unless it is set.
	Timed bool `json:"timed,omitempty"`
	// StepFailed is set if a step failed.
	StepFailed bool `json:"step_failed,omitempty"`
	// Dir is the directory of the run's results, relative to the directory of the suite.
	Dir string `json:"dir"`
	// Kept is set if all files of the run were kept.
	Kept bool `json:"kept,omitempty"`
}

// Limits of the repetitions of a run alone, after it was overloaded, or did not pass beside other runs.
const (
	triesOverloaded = 2
	triesBeside     = 1
)

type suite struct {
	Options
	mu      sync.Mutex // guards done, results and Progress
	done    int
	results *Results
	out     *outdir.Dir
}

// Run runs the cases. An error means that files of the results could not be written or removed. If ctx ends,
// the running cases end as ABORTED, and the cases that wait are not run.
func Run(ctx context.Context, o Options) (*Results, error) {
	s := &suite{Options: o, results: &Results{Format: Format, Verdict: verdict.Aborted, Started: time.Now(),
		Jobs: max(o.Jobs, 1), Strict: o.Strict, PassedOver: o.PassedOver,
		Control: o.Control, Quick: o.Quick}}
	var err error
	if s.out, err = outdir.Open(o.Out); err != nil {
		return nil, fmt.Errorf("results directory %s: %w", o.Out, err)
	}
	defer s.out.Close()
	if s.Progress == nil {
		s.Progress = func(Update) {}
	}
	s.Repeat = max(s.Repeat, 1)
	s.results.Cases = make([]Outcome, len(s.Cases))
	for i, c := range s.Cases {
		if c.Repeat == 0 {
			c.Repeat = s.Repeat
		}
		s.results.Cases[i] = Outcome{Case: c, NotRun: true, Runs: []Attempt{}}
		s.results.Cases[i].resume(s.Earlier)
	}
	s.sideBySide(ctx)
	s.again(ctx)
	var failures []error
	for i := range s.results.Cases {
		o := &s.results.Cases[i]
		o.conclude(s.Strict)
		failures = append(failures, s.tidy(o))
	}
	failures = append(failures, s.results.measure(s.out, s.Files))
	s.results.conclude()
	s.results.Finished = time.Now()
	return s.results, errors.Join(append(failures, s.results.write(s.out))...)
}

// sideBySide makes the first runs, several at a time.
func (s *suite) sideBySide(ctx context.Context) {
	q := newQueue(s.results.Cases)
	var workers sync.WaitGroup
	for range s.results.Jobs {
		workers.Go(func() {
			for t, more := q.take(ctx); more; t, more = q.take(ctx) {
				o := &s.results.Cases[t.of]
				s.first(ctx, o, t.repetition)
				// After done another worker may make the case's next run, unless ctx ended before.
				again, over := slices.ContainsFunc(o.Runs, s.wantsAgain(o)), ctx.Err() != nil
				if last := q.done(t); again || !last && !over {
					s.tell(Update{Waits: &o.Case})
				} else {
					s.end(o)
				}
			}
		})
	}
	workers.Wait()
}

// first makes a repetition of a case. A repetition of this run alone follows later, in again.
func (s *suite) first(ctx context.Context, o *Outcome, repetition int) {
	if !o.has(repetition) {
		s.tell(Update{Begins: &o.Case})
		s.attempt(ctx, o, repetition, s.results.Jobs == 1)
	}
}

// wantsAgain returns a function that reports whether a run of a case is to be repeated alone.
func (s *suite) wantsAgain(o *Outcome) func(Attempt) bool {
	return func(a Attempt) bool {
		disturbed := !a.Alone && a.Reported // a mistake in the file stays one
		return !a.Replaced && (s.lacksTime(o, a) || disturbed && a.Verdict != verdict.Pass &&
			a.Verdict != verdict.Unsupported && a.Verdict != verdict.Aborted)
	}
}

// lacksTime reports whether a run is worth nothing because the host did not keep up: it proves nothing, or
// its numbers are needed.
func (s *suite) lacksTime(o *Outcome, a Attempt) bool {
	return a.Verdict == verdict.Overloaded || a.overloaded() && a.Verdict == verdict.Pass &&
		(s.Measured || o.Matrix != "")
}

// overloaded reports whether the emulation of a run was overloaded, so that its numbers are worth nothing.
// The verdict of such a run may be PASS.
func (a *Attempt) overloaded() bool {
	return a.Verdict == verdict.Overloaded || a.Fidelity == report.Overloaded
}

// again repeats runs alone that other runs may have disturbed, or for which the host was too busy.
func (s *suite) again(ctx context.Context) {
	for i := range s.results.Cases {
		o := &s.results.Cases[i]
		wantsAgain := s.wantsAgain(o)
		if !slices.ContainsFunc(o.Runs, wantsAgain) {
			continue
		}
		for first := range o.Runs {
			tries := triesBeside
			if s.lacksTime(o, o.Runs[first]) {
				tries = triesOverloaded
			}
			at := first
			for try := 0; try < tries && ctx.Err() == nil && wantsAgain(o.Runs[at]); try++ {
				o.Runs[at].Replaced = true
				s.attempt(ctx, o, o.Runs[at].Repetition, true)
				at = len(o.Runs) - 1
			}
		}
		s.end(o)
	}
}

// attempt makes a run and records it.
func (s *suite) attempt(ctx context.Context, o *Outcome, repetition int, alone bool) {
	a := Attempt{Repetition: repetition, Alone: alone, Dir: o.nextDir()}
	began := time.Now()
	r, err := s.Do(ctx, o.Case, repetition, filepath.Join(s.Out, filepath.FromSlash(a.Dir)))
	if r != nil {
		a.Reported, a.Verdict, a.Reason, a.Seed = true, r.Verdict, r.Reason, r.Seed
		a.Timed = r.RestsOnTime()
		if r.Fidelity != nil {
			a.Fidelity = r.Fidelity.Verdict
		}
		a.StepFailed = slices.ContainsFunc(r.Steps, func(s report.Step) bool {
			return s.State == report.Failed
		})
	}
	if err != nil {
		a.Verdict, a.Reason = verdict.Fail, err.Error()
		if input.Full(err) { // which says nothing about the scenario
			a.Verdict = verdict.Aborted
		}
	}
	a.Seconds = time.Since(began).Seconds()
	s.mu.Lock()
	defer s.mu.Unlock()
	o.NotRun = false
	o.Runs = append(o.Runs, a)
	// Written after each run, so that --resume goes on after a crash too. Run reports errors of the last
	// writing.
	_ = s.results.writeJSON(s.out)
}

// end reports a case that has ended.
func (s *suite) end(o *Outcome) {
	if o.NotRun {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o.conclude(s.Strict)
	s.done++
	s.Progress(Update{Ended: o, Done: s.done, Total: len(s.Cases)})
}

func (s *suite) tell(u Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Progress(u)
}

// conclude sets the verdict of the suite: the worst verdict of its cases and of the checks between cells.
// Cases that this host cannot run do not count, unless it can run none.
func (r *Results) conclude() {
	var verdicts []verdict.Verdict
	supported := len(r.Cases) == 0
	for _, o := range r.Cases {
		supported = supported || o.Verdict != verdict.Unsupported
		if r.Control && o.Matrix != "" && o.Verdict != verdict.Aborted { // the verdict of the claim counts
			continue
		}
		if o.Verdict != verdict.Unsupported {
			verdicts = append(verdicts, o.Verdict)
		}
	}
	if !supported {
		r.Verdict = verdict.Unsupported
		return
	}
	for _, m := range r.Matrices {
		for _, c := range m.judgements() {
			if c != verdict.Unsupported {
				verdicts = append(verdicts, c)
			}
		}
	}
	r.Verdict = verdict.Worst(verdicts...)
}

// Counts returns the number of cases with each verdict, and of flaky cases.
func (r *Results) Counts() (of map[verdict.Verdict]int, flaky int) {
	of = map[verdict.Verdict]int{}
	for _, o := range r.Cases {
		of[o.Verdict]++
		if o.Flaky {
			flaky++
		}
	}
	return of, flaky
}

// kept are the files that stay of a run that passed or was UNSUPPORTED.
var kept = []string{report.JSONFile, bundle.PlanFile}

// tidy removes the files of a case's runs that passed or were UNSUPPORTED, except kept.
func (s *suite) tidy(o *Outcome) error {
	var failures []error
	for i := range o.Runs {
		a := &o.Runs[i]
		a.Kept = a.Reported &&
			(s.KeepAll || a.Verdict != verdict.Pass && a.Verdict != verdict.Unsupported)
		if a.Earlier && a.Kept { // unless the earlier suite removed them
			_, err := s.out.Stat(path.Join(a.Dir, report.HTMLFile))
			a.Kept = err == nil
		}
		if a.Reported && !a.Kept {
			failures = append(failures, s.Prune(filepath.Join(s.Out, filepath.FromSlash(a.Dir)), kept...))
		}
	}
	return errors.Join(failures...)
}
