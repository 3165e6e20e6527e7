// Package runner runs a scenario. It brings up the file's testbed, does the steps on their timeline
// and takes the testbed down. Then it judges the checks from the recorded data, or before if somebody
// follows the testbed's events. It writes all results into a directory.
//
// A failed run leaves results too. From the start of the run report.json has the verdict ABORTED,
// and the run replaces it when it has a verdict. A failing step ends the run, but the checks are
// still judged from the data recorded so far.
package runner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"railbed/scenarios/runner/judge"

	"railbed/scenarios/runner/measure"

	"railbed/capture/bundle"
	"railbed/capture/keep"
	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/printable"
	"railbed/internal/rundir"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/reporting"
	"railbed/scenarios/runner/outdir"
	"railbed/testbed"
	"railbed/transports/rd/privacy"
)

// Options are the options of Run. File, Plan and Out are required.
type Options struct {
	File *spec.Testbed
	Plan *plan.Plan
	// Path is the path of the file as the user gave it.
	Path string
	// Out is the directory for results: new, empty, or from an earlier run.
	Out string
	// Below is a directory above Out, or nil. No link leads out of it.
	Below *outdir.Dir
	// Repeat is the command line that repeats the run.
	Repeat []string
	// Version is the version of Railbed.
	Version string
	// Progress reports how the run proceeds. It is called by one goroutine at a time.
	Progress func(Update)
	// Trace receives each host change as the equivalent ip or tc line.
	Trace func(line string)
	// HostLoad returns the load of the host, of which the run warns before it begins. It may be nil.
	HostLoad func() measure.HostLoad

	// hold receives the evidence from which the checks are judged, for this package's tests.
	hold func(*judge.Evidence)
	// secret generates the secret of a workload that encrypts, for this package's tests.
	secret func() privacy.Material
	// silence is how long a process may not answer before its step or the run fails. Default
	// defaultSilence.
	silence time.Duration
}

// defaultSilence equals the default silence of workers.
const defaultSilence = 20 * time.Second

// Update is a progress report of a run.
type Update struct {
	// Phase is the current activity: "bring-up: links", "workload ar", "checking".
	Phase string
	// Done of Total is the progress. A Total of 0 means unknown.
	Done, Total int
	// Line is a message that deserves a line of its own, or empty.
	Line string
}

// run is one run of a scenario.
type run struct {
	Options
	report  *report.Report
	results *results
	// prepared are the file's steps.
	prepared []step
	// steps is the error that ended the timeline early, or nil.
	steps    error
	evidence judge.Evidence
}

// Run runs a scenario. It returns an error only if there is no run to report on:
//
//   - the testbed's name is in use (testbed.ErrRunning)
//   - the directory cannot be used (ErrResults)
//   - the steps' inputs cannot be read, or the steps cannot be done (spec.Problems, of the kinds
//     ErrWord, ErrRates, ErrAlgorithm, ErrTraining, ErrMessages and ErrJob)
//   - the report cannot be written
//
// The report contains all other failures. When Run returns, the report is complete and nothing of
// the testbed is left. When ctx ends, the run ends with the verdict ABORTED.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	r := &run{Options: o}
	if r.Progress == nil {
		r.Progress = func(Update) {}
	}
	r.Progress = oneAtATime(r.Progress)
	r.silence = cmp.Or(r.silence, defaultSilence)
	// Check early, so that a mistake does not delete earlier results. testbed.Up makes the final
	// check.
	if dir, err := rundir.Of(o.Plan.Name); err == nil && dir.Running() {
		return nil, fmt.Errorf("run %s: %w", o.Plan.Name, testbed.ErrRunning)
	}
	var err error
	if r.prepared, err = prepare(&o); err != nil {
		return nil, err
	}
	if r.results, err = openResults(o.Out, o.Below); err != nil {
		return nil, err
	}
	err = r.do(ctx)
	return r.report, errors.Join(err, r.results.close())
}

func (r *run) do(ctx context.Context) error {
	r.report = r.newReport()
	if err := errors.Join(r.writeReport(), r.writePlan()); err != nil {
		return err
	}
	err := r.carryOut(ctx)
	if errors.Is(err, testbed.ErrRunning) {
		return err
	}
	r.conclude(ctx, err)
	r.report.Finished = time.Now()
	return errors.Join(r.writeReport(), r.writeWorkloads(),
		r.results.replace(report.JUnitFile, func(w io.Writer) error {
			return reporting.WriteJUnit(w, r.report)
		}), r.writePage())
}

// newReport returns the initial report, which remains if the run is killed.
func (r *run) newReport() *report.Report {
	return &report.Report{
		Format: report.Format, Verdict: verdict.Aborted, Reason: "the run did not come to its end",
		Name:        r.Plan.Name,
		Description: r.File.Description,
		File:        r.Path,
		PlanHash:    r.Plan.Hash(),
		Seed:        r.Plan.Seed,
		Dilation:    r.Plan.Dilation,
		Repeat:      r.Repeat,
		Started:     time.Now(),
		Versions:    report.Versions{Railbed: r.Version, Go: runtime.Version()},
		Host:        hostFacts("/proc"),
		Testbed: report.Testbed{
			Nodes:    len(r.Plan.Nodes),
			Switches: len(r.Plan.Switches),
			Links:    len(r.Plan.Links),
			Ranks:    len(r.Plan.Ranks),
			Bypass:   r.Plan.Bypassing(),
			Topology: r.File.Fabric.Topology,
		},
		Steps:     append([]report.Step{}, records(r.File, r.prepared)...),
		Workloads: []report.Workload{},
		Checks:    []report.Check{},
		Captures:  []report.Capture{},
	}
}

// carryOut does everything up to the verdict. Its error says why it could not. Failures of steps
// and checks are not errors of carryOut.
func (r *run) carryOut(ctx context.Context) error {
	if err := r.require(ctx); err != nil {
		return err
	}
	if problems := Missing(r.Options); len(problems) > 0 {
		return &verdict.MistakeError{Text: problems.Error()}
	}
	began := time.Now()
	tb, err := testbed.Up(ctx, r.Plan,
		testbed.Options{File: r.Path, Trace: r.Trace, Progress: func(phase string, done, total int) {
			r.Progress(Update{Phase: "bring-up: " + phase, Done: done, Total: total})
		}, Warn: func(text string) { r.Progress(Update{Line: "warning: " + text}) }})
	if err != nil {
		return err
	}
	r.report.Testbed.BringUp = time.Since(began).Seconds()
	r.Progress(Update{Line: fmt.Sprintf("up in %s: %s", units.Took(time.Since(began)),
		reporting.Sizes(r.report.Testbed))})
	if r.HostLoad != nil { // it has measured during the bring-up
		if text := r.HostLoad().Warning(r.Plan); text != "" {
			r.Progress(Update{Line: "warning: " + text})
		}
	}
	// Taking the testbed down deletes the log, but an open file stays readable.
	log, logErr := os.Open(tb.LogPath())
	r.steps = r.runSteps(ctx, tb)
	// Those who watch the testbed get the verdicts. Without them the testbed goes down first.
	var checkErr error
	judged := watched(ctx, tb)
	if judged {
		checkErr = r.check(ctx)
		tellVerdicts(ctx, tb, r.report.Checks)
	}
	began = time.Now()
	err = tb.Close()
	r.report.Testbed.TakeDown = time.Since(began).Seconds()
	if logErr == nil {
		logErr = errors.Join(r.results.replace(bundle.SupervisorLog, func(w io.Writer) error {
			_, err := io.Copy(w, log)
			return err
		}), log.Close())
	}
	if !judged {
		checkErr = r.check(ctx)
	}
	return errors.Join(err, logErr, checkErr)
}

// require checks that the host has the features that the plan and the steps need.
func (r *run) require(ctx context.Context) error {
	err := testbed.Require(ctx, slices.Concat(r.Plan.Requires, stepRequirements(r.File, r.Plan)), r.Path)
	var lacks testbed.LacksError
	if errors.As(err, &lacks) {
		r.lacks(lacks[0].Err, lacks[0].Reason, lacks[0].Where)
		var remedies []string
		for _, l := range lacks {
			if l.Err.Remedy != "" {
				remedies = append(remedies, l.Err.Remedy)
			}
		}
		r.report.Unsupported.Remedy = strings.Join(remedies, "; ")
	}
	if err != nil {
		return err
	}
	return errors.Join(r.requireStacks(ctx), ctx.Err())
}

// lacks records in the report which feature the host lacks, and its purpose, if err is an
// UnsupportedError.
func (r *run) lacks(err error, reason, where string) {
	var lacking *verdict.UnsupportedError
	if errors.As(err, &lacking) {
		r.report.Unsupported = &report.Unsupported{
			Feature: lacking.Feature,
			Reason:  reason + ": " + lacking.Reason,
			Remedy:  lacking.Remedy,
			Where:   where,
		}
	}
}

// runSteps runs the timeline, and everything that lasts as long as the timeline.
func (r *run) runSteps(ctx context.Context, tb *testbed.Testbed) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go watchEnd(ctx, tb, cancel)
	go watchSupervisor(ctx, tb, r.silence, cancel)
	s := &session{
		file: r.File, plan: r.Plan, testbed: tb, results: r.results, progress: r.Progress,
		path:  absolute(r.Path),
		links: newLinkBook(r.Plan, tb.ChangeLink), secret: r.secret, silence: r.silence,
	}
	told := startNotes(ctx, tb)
	defer told.end()
	line := newTimeline(r.File, r.prepared, s, func(index int, step report.Step) {
		r.stepChanged(index, step)
		told.step(step)
		if step.State == report.Passed || step.State == report.Failed {
			told.verdictsSoFar(r.File, index, s.finished())
		}
	})
	s.logged, s.now = line.logged, line.now
	sampler := measure.Start(ctx, r.Plan, r.File, linkReader(tb))
	err := line.run(ctx)
	if line.clock != nil {
		r.report.Began = line.clock.Real(0)
	}
	if err != nil {
		// The testbed's end explains the failure of the step that noticed it first.
		err = cmp.Or(goneOf(ctx, tb, r.silence), err)
	}
	// An interrupted run still keeps its recordings, within the time limit of a supervisor request.
	last, done := context.WithTimeout(context.WithoutCancel(ctx), controlTimeout)
	defer done()
	captures, captureErr := s.stopCaptures()
	r.gather(last, line, s, sampler, captures)
	if faultErr := r.readFaults(last, tb, s); err == nil {
		err = faultErr
	}
	if endedErr := r.containers(last, tb); err == nil || errors.As(endedErr, new(*containerError)) {
		err = errors.Join(err, endedErr)
	}
	if endedErr := r.routing(last, tb, line.seconds); err == nil || errors.As(endedErr, new(*daemonError)) {
		err = errors.Join(err, endedErr)
	}
	for _, done := range r.evidence.Stacks {
		r.report.Stacks = append(r.report.Stacks, done.Stack)
	}
	if err == nil && captureErr != nil {
		return fmt.Errorf("end capture: %w", captureErr)
	}
	return err
}

// check judges the checks. If the run was interrupted or the supervisor died, check leaves them
// unjudged: the recorded data may be incomplete.
func (r *run) check(ctx context.Context) (err error) {
	if stepVerdict(r.steps) == verdict.Aborted {
		r.evidence.Aborted = r.steps
	}
	if r.hold != nil {
		r.hold(&r.evidence)
	}
	r.evidence.Out = r.Out
	r.evidence.Keep = func(name string, write func(io.Writer) error) error {
		return lost(r.results.replace(name, write))
	}
	var size int64
	for _, c := range r.report.Captures {
		size += c.Bytes
	}
	open := func(name string) (io.ReadCloser, error) { return keep.Open(r.results.root.FS(), name) }
	r.report.Checks, err = judge.Checks(ctx, r.File, r.Plan, &r.evidence, open, func(read int64) {
		r.Progress(Update{Phase: "checking packets, MiB", Done: int(read >> 20), Total: int(size >> 20)})
	})
	r.evidence.Chart(r.report, r.File, r.Plan)
	return err
}

func (r *run) stepChanged(index int, step report.Step) {
	if kept := step; kept.Name != "" {
		if kept.State == running { // if the run is killed now, this is how the step ended
			kept.State = report.Cancelled
		}
		r.report.Steps[index] = kept
		_ = r.writeReport() // the last one's error counts
	}
	prefix := fmt.Sprintf("[%d/%d] %s", index+1, len(r.File.Steps), step.Name)
	switch step.State {
	case running:
		r.Progress(Update{Phase: prefix})
	case report.Failed:
		r.Progress(Update{Line: prefix + ": failed: " + step.Error})
	default:
		r.Progress(Update{Line: fmt.Sprintf("%s: %s", prefix, step.State)})
	}
}

// conclude sets the verdict and its reason.
func (r *run) conclude(ctx context.Context, err error) {
	rep := r.report
	rep.Reason = ""
	after := err
	if r.steps != nil {
		err = r.steps // the steps failed first
	}
	r.evidence.MarkTimed(rep.Checks, r.File.Checks)
	failed := 0
	overloaded := rep.Fidelity != nil && rep.Fidelity.Verdict == report.Overloaded
	if overloaded {
		failed = judge.Overload(rep.Checks, r.File.Checks)
	}
	verdicts := []verdict.Verdict{stepVerdict(err)}
	if r.idle() != "" {
		verdicts = append(verdicts, verdict.Inconclusive)
	}
	for _, check := range rep.Checks {
		verdicts = append(verdicts, check.Verdict)
	}
	// In an overloaded run a failed step proves nothing, nor do measurements that no check judges.
	if overloaded && (stepVerdict(err) == verdict.Fail || len(rep.Checks) == 0) {
		verdicts = append(verdicts, verdict.Overloaded)
	}
	if len(r.File.Steps)+len(r.File.Checks) == 0 {
		verdicts = append(verdicts, verdict.Worst()) // nothing was judged
	}
	rep.Verdict = verdict.Worst(verdicts...)
	var lacking *verdict.UnsupportedError
	if errors.As(err, &lacking) && rep.Unsupported == nil {
		rep.Unsupported = &report.Unsupported{Feature: lacking.Feature, Reason: lacking.Reason,
			Remedy: lacking.Remedy}
	}
	if rep.Fidelity != nil {
		measure.Explain(rep.Fidelity, rep.Host.CPUs, r.Plan)
	}
	if rep.Verdict != verdict.Pass {
		rep.Reason = r.reason(ctx, err)
		if after != nil && r.steps != nil && rep.Verdict == stepVerdict(r.steps) && ctx.Err() == nil {
			first, _, _ := strings.Cut(after.Error(), "\n")
			rep.Reason += "; then " + strings.TrimSuffix(first, "; its log ends:")
		}
	}
	if rep.Verdict == verdict.Overloaded {
		rep.Reason += overruled(failed, err)
	}
}

// overruled returns the failure that the overload makes meaningless, as text for the reason.
func overruled(failed int, err error) string {
	switch {
	case stepVerdict(err) == verdict.Fail:
		return "; the failed step proves nothing"
	case failed == 1:
		return "; the failed check proves nothing"
	case failed > 1:
		return fmt.Sprintf("; the %d failed checks prove nothing", failed)
	}
	return ""
}

func (r *run) writeReport() error { return r.results.replace(report.JSONFile, r.report.WriteJSON) }

func (r *run) writePlan() error {
	return r.results.replace(bundle.PlanFile, func(w io.Writer) error {
		encoder := json.NewEncoder(printable.NewWriter(w)) // people print this file to terminals
		encoder.SetIndent("", "  ")
		return encoder.Encode(r.Plan)
	})
}

// writeWorkloads writes which packets belong to which workload, for those who read the recordings later.
func (r *run) writeWorkloads() error {
	all := []verify.Workload{}
	for i := range r.evidence.Workloads {
		all = append(all, r.evidence.TrafficOf(r.File, &r.evidence.Workloads[i]))
	}
	return r.results.replace(bundle.WorkloadsFile, func(w io.Writer) error {
		return json.NewEncoder(printable.NewWriter(w)).Encode(all)
	})
}

func (r *run) writePage() error {
	var topology bytes.Buffer
	if err := judge.DrawUse(&topology, r.Plan, r.report); err != nil {
		return err
	}
	return r.results.replace(report.HTMLFile, func(w io.Writer) error {
		return reporting.WriteHTML(w, r.report, reporting.HTMLOptions{Topology: topology.Bytes()})
	})
}
