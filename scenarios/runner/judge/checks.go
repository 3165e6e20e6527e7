package judge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"railbed/scenarios/runner/measure"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/clock"
	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
)

// leaveUnjudged gives a verdict to the checks that have none because the run was interrupted.
func leaveUnjudged(checks []report.Check, cause error) {
	for i := range checks {
		if c := &checks[i]; c.Verdict == "" {
			c.Verdict, c.Summary = verdict.Inconclusive, fmt.Sprintf("not judged: %v", cause)
		}
	}
}

// Checks returns the result of every check of the file, in the file's order. Packet checks read all
// recordings as one, in one pass. The same pass also reads the rates of links. open opens a
// result file. read is called with the number of bytes of the recordings read so far.
func Checks(ctx context.Context, file *spec.Testbed, p *plan.Plan, e *Evidence,
	open func(string) (io.ReadCloser, error), read func(int64)) ([]report.Check, error) {
	checks := make([]report.Check, len(file.Checks))
	var packets []verify.Check
	var of []int // index in checks of each element of packets
	for i, check := range file.Checks {
		c := &checks[i]
		c.Name, c.Where = Title(check), file.Source.Pos(fmt.Sprintf("checks[%d]", i)).String()
		switch {
		case e.Aborted != nil:
			c.Verdict, c.Summary = verdict.Inconclusive, fmt.Sprintf("not judged: %v", e.Aborted)
		case check.Packets != nil:
			made, err := verify.New(check.Packets, e.sources(file, p))
			if err != nil {
				c.Verdict, c.Summary = verdict.Inconclusive, err.Error()
				continue
			}
			packets, of = append(packets, made), append(of, i)
		}
	}
	rates := ratesOf(file, p, e)
	if rates != nil {
		packets = append(packets, rates)
	}
	if len(e.Passing) > 0 && len(e.Captures) > 0 {
		packets = append(packets, verify.NewPassings(e.Passing))
	}
	var results []verify.Result
	var err error
	causes := slices.ContainsFunc(file.Checks, func(c spec.Check) bool { return c.Why != nil })
	if len(packets) > 0 || causes && e.Aborted == nil {
		results, err = verifyCapture(ctx, file, p, e, open, read, packets)
	}
	if rates != nil && err == nil && ctx.Err() == nil {
		found, _ := rates.Rates()
		measure.Refine(e.Fidelity, found, clock.Dilation(p.Dilation), e.Captures)
	}
	e.judgeOthers(checks, file.Checks, ctx.Err() != nil)
	if ctx.Err() != nil {
		leaveUnjudged(checks, context.Cause(ctx))
		return checks, context.Cause(ctx)
	}
	for n, i := range of {
		if err != nil {
			checks[i].Verdict, checks[i].Summary = verdict.Inconclusive, err.Error()
			continue
		}
		takeResult(&checks[i], file.Checks[i].Packets, e, results[n])
		ExcuseSources(&checks[i], file.Checks[i].Packets, e.Fidelity)
		name := fmt.Sprintf("%s/check-%d.pcapng", excerptsDir, i+1)
		if err := e.excerpt(&checks[i], name, results[n]); err != nil {
			return checks, err
		}
		e.packetCommands(&checks[i], file.Checks[i].Packets, &results[n])
	}
	e.workloadCommands(file, checks)
	return checks, nil
}

// judgeOthers judges the checks that are not of packets, by the refined fidelity. If the packets were not
// read to their end, it judges only workloads.
func (e *Evidence) judgeOthers(checks []report.Check, file []spec.Check, interrupted bool) {
	for i, check := range file {
		switch c := &checks[i]; {
		case e.Aborted != nil || check.Packets != nil:
		case check.Workload != nil:
			JudgeWorkload(c, check.Workload, e.Workload, e.Fidelity)
			if check.Workload.Beside != nil {
				JudgeBeside(c, check.Workload, e.Workload, e.Fidelity)
			}
		case interrupted:
		case check.Why != nil:
			e.judgeWhy(c, check.Why)
		default:
			JudgeFidelityCheck(c, check.Fidelity, e.Fidelity)
		}
	}
}

// ratesOf returns the check that reads rates from the recordings, or nil if there is no recording or
// one is incomplete.
func ratesOf(file *spec.Testbed, p *plan.Plan, e *Evidence) *verify.Fidelity {
	if !e.Captures.complete() || e.Fidelity == nil || e.Aborted != nil {
		return nil
	}
	rates := verify.NewFidelity(verify.Faithful, verify.HostLoad{Pressure: -1, Steal: -1})
	rates.Except(file, p)
	if e.Clock != nil {
		rates.ExceptDuring(e.Acts)
	}
	return rates
}

func verifyCapture(ctx context.Context, file *spec.Testbed, p *plan.Plan, e *Evidence,
	open func(string) (io.ReadCloser, error), read func(int64), packets []verify.Check) ([]verify.Result,
	error) {
	if len(e.Captures) == 0 {
		return nil, errors.New("the run has no recording")
	}
	var readers []io.Reader
	var total int64
	for _, name := range e.Captures.names() {
		in, err := open(name)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", name, err)
		}
		defer in.Close()
		readers = append(readers, &countingReader{r: in, total: &total, read: read})
	}
	options := verify.Options{Plan: p, Keys: e.Keys, Drops: e.Drops, Lost: e.Lost, Harm: e.Harm,
		Interrupted: func(link string) bool { return file.ChangesState(link) || e.Interrupted[link] },
		Sends:       e.Sends}
	options.From, options.To = verify.SentIn(e.ran(file), "")
	follower := e.follower(file, p)
	if follower != nil {
		packets = append(packets, follower)
	}
	results, summary, err := verify.RunAll(ctx, e.Captures.names(), readers, options, packets...)
	if follower != nil && err == nil {
		// If the recording has more records than can be followed, the charts are made without it.
		e.recording, _ = follower.Recording(summary)
	}
	return results, err
}

func Title(check spec.Check) string {
	switch {
	case check.Workload != nil:
		return "workload " + check.Workload.Name
	case check.Why != nil:
		return "why " + check.Why.Cause
	case check.Packets == nil:
		return "fidelity"
	}
	return verify.Title(check.Packets)
}

// excerptsDir is the directory, below that of the results, of packets that break checks.
const excerptsDir = "offenders"

// excerpt writes the packets that break a check.
func (e *Evidence) excerpt(c *report.Check, name string, r verify.Result) error {
	if e.Keep == nil || r.Offenders == nil || !r.Offenders.Kept() || r.Verdict == verdict.Pass {
		return nil
	}
	err := e.Keep(name, func(w io.Writer) error { return r.Offenders.WriteExcerpt(w, c.Name) })
	if err == nil {
		c.Excerpt = name
	}
	return err
}

// numbers returns the numbers of a workload for the formulas of rules.
func (e *Evidence) numbers(file *spec.Testbed, name string) (map[string]float64, error) {
	done := e.Workload(name)
	if done == nil {
		return nil, fmt.Errorf("workload %s did not come to its end", name)
	}
	numbers := done.Traffic.Numbers()
	for _, step := range file.Steps {
		if w := step.Workload; w != nil && w.Name == name {
			numbers["iterations"] = float64(w.Warmup + w.Iterations)
			if w.Size > 0 {
				numbers["size"] = float64(w.Size)
			}
		}
	}
	return numbers, nil
}

// sources returns what packet checks need besides the packets.
func (e *Evidence) sources(file *spec.Testbed, p *plan.Plan) verify.Sources {
	return verify.Sources{
		Crossing: func(name string) (verify.Crossing, error) { return e.Crossing(name) },
		Numbers:  func(name string) (map[string]float64, error) { return e.numbers(file, name) },
		Active: func(name string) ([]verify.Active, string, error) {
			return verify.ActiveIn(e.ran(file), name)
		},
		Traffic: func(name string) (verify.Workload, error) {
			if done := e.Workload(name); done != nil {
				return e.TrafficOf(file, done), nil
			}
			return verify.Workload{}, fmt.Errorf("workload %s did not end, so its packets are not complete",
				name)
		},
	}
}

// ran returns the part of the report from which the times of steps follow.
func (e *Evidence) ran(file *spec.Testbed) *report.Report {
	ran := &report.Report{Steps: e.Steps, Dilation: uint64(file.Dilation)}
	if e.Clock != nil {
		ran.Began = e.Clock.Real(0)
	}
	return ran
}

// TrafficOf describes the packets of a workload and their time.
func (e *Evidence) TrafficOf(file *spec.Testbed, done *Finished) verify.Workload {
	traffic := done.Traffic
	traffic.From, traffic.To = verify.SentIn(e.ran(file), done.Name)
	return traffic
}

// takeResult copies the result of a packet check into the report.
func takeResult(c *report.Check, p *spec.PacketsCheck, e *Evidence, r verify.Result) {
	c.Verdict, c.Summary, c.Details, c.Near = r.Verdict, r.Summary, r.Details, r.Near
	if b := p.BytesPerRank; b != nil {
		for _, rank := range e.Workload(b.Workload).Traffic.Ranks {
			sent, counted := r.Measured[rank.Measured("bytes")]
			if !counted {
				continue
			}
			if e := rank.Empty; e != nil {
				c.Values = append(c.Values, report.Value{
					Name: rank.Title(), Value: r.Measured[rank.Measured("empty")], Want: e.String(),
				})
				continue
			}
			wanted := fmt.Sprintf("%d B", uint64(rank.Expected))
			if !b.Tolerance.IsZero() {
				wanted += fmt.Sprintf(" ± %v", b.Tolerance)
			}
			c.Values = append(c.Values, report.Value{Name: rank.Title(), Value: sent, Unit: "B",
				Want: wanted})
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r.Measured)) {
		c.Values = append(c.Values, report.Value{Name: name, Value: r.Measured[name]})
	}
	if p.That == spec.ThatRDNeeded && c.Verdict == verdict.Fail && e.Fidelity != nil &&
		e.Fidelity.Verdict != report.Faithful &&
		r.Measured["spurious"] <= pauseSpurious*r.Measured["sent"] {
		c.Verdict = verdict.Inconclusive
		c.Summary += fmt.Sprintf(", but the emulation was %s: a pause of the host looks like a loss",
			e.Fidelity.Verdict)
	}
}

// pauseSpurious is the share of spurious retransmissions up to which pauses of the host may be
// their cause, in a run that was not faithful.
const pauseSpurious = 0.01

// judgeLeftOut judges a result that is right except for parts that never arrived.
func judgeLeftOut(c *report.Check, done *Finished, words Correctness) string {
	if done.Missing > done.MayMiss {
		c.Verdict = verdict.Fail
		return plural.Text("%d bytes of %s are missing, and at most %d may be", done.Missing, words.Parts,
			done.MayMiss)
	}
	return plural.Text("%s%s %d bytes of %s, which the receivers know are missing (at most %d may be)",
		words.Right, words.Without, done.Missing, words.Parts, done.MayMiss)
}

// judgeCorrect judges whether a result is right.
func judgeCorrect(c *report.Check, done *Finished) string {
	words := done.Correctness()
	c.Values = append(c.Values, report.Value{Name: "wrong " + words.Unit, Value: float64(done.Wrong),
		Want: "0"})
	if done.MayMiss > 0 {
		c.Values = append(c.Values, report.Value{Name: "bytes left out", Value: float64(done.Missing),
			Want: fmt.Sprintf("<= %d", done.MayMiss)})
	}
	switch {
	case done.Wrong > 0:
		c.Verdict = verdict.Fail
		return fmt.Sprintf(words.Wrong, done.Wrong)
	case done.Missing > done.MayMiss, done.MayMiss > 0:
		return judgeLeftOut(c, done, words)
	case words.Unknown != "":
		c.Verdict = verdict.Inconclusive
		return words.Unknown
	}
	return words.Right
}

func JudgeWorkload(c *report.Check, w *spec.WorkloadCheck, workload func(name string) *Finished,
	f *report.Fidelity) {
	done := workload(w.Name)
	if done == nil {
		c.Verdict, c.Summary = verdict.Inconclusive, "the workload did not come to its end"
		return
	}
	c.Verdict = verdict.Pass
	var found []string
	if w.Correct {
		found = append(found, judgeCorrect(c, done))
	}
	found = append(found, judgeFigures(c, w, done, f)...)
	if bound, err := spec.ParseComparison(w.BusBW); w.BusBW != "" && err == nil {
		bits, _ := done.Figure("busbw")
		c.Values = append(c.Values, report.Value{Name: "busbw", Value: bits / 1e6, Unit: "Mbit/s",
			Want: bound.String()})
		addNear(c, "busbw", bound.Bound(), bits, units.BitRate(bits))
		found = append(found, "busbw "+units.BitRate(bits)+
			judgeTimed(c, bound.Holds(units.Rate(bits)), bound.String(), bound.Op[0] == '<', f))
	}
	c.Summary = strings.Join(found, "; ")
}

// judgeFigures judges a workload's figures, such as a training's loss or the duration of messages,
// and returns its findings. Times from a host that did not keep up prove nothing.
func judgeFigures(c *report.Check, w *spec.WorkloadCheck, done *Finished,
	f *report.Fidelity) (found []string) {
	for _, k := range spec.Figures {
		if k.Kind == (spec.BoundKind{}) {
			continue // judgeWorkload judges the bandwidth
		}
		want := k.Bound(w)
		bound, err := spec.ParseBound(want, k.Kind)
		if want == "" || err != nil {
			continue
		}
		value, there := done.Figure(k.Name)
		if k.Timed && otherClocks(done) {
			if c.Verdict == verdict.Pass {
				c.Verdict = verdict.Inconclusive
			}
			found = append(found, k.Name+" is unknown: ranks have other clocks than this host")
			continue
		}
		if !there {
			c.Verdict = verdict.Fail
			found = append(found, "the workload has no "+k.Name)
			continue
		}
		shown := value
		switch k.Kind {
		case spec.ShareBound:
			shown *= 100
		case spec.DurationBound:
			value *= 1e9 // bounds of durations are in nanoseconds
			shown = value / 1e6
		}
		c.Values = append(c.Values, report.Value{Name: k.Name, Value: shown, Unit: k.Unit, Want: want})
		addNear(c, k.Name, bound, value, fmt.Sprintf("%.4g %s", shown, k.Unit))
		judged := f
		if !k.Timed {
			judged = nil
		}
		found = append(found, fmt.Sprintf("%s %.3g %s%s", k.Name, shown, k.Unit,
			judgeTimed(c, bound.Holds(value), want, bound.Upper() == k.Falls, judged)))
	}
	return found
}

// addNear keeps a figure that satisfies its bound but is near it.
func addNear(c *report.Check, name string, bound spec.Bound, value float64, shown string) {
	if bound.Near(value) {
		c.Near = append(c.Near, fmt.Sprintf("%s: %s, want %s", name, shown, bound))
	}
}

// judgeTimed judges whether a bound on a timed figure holds, and returns the finding in words, with the host
// if it may be the cause. A bound that does not hold proves nothing unless the run was faithful. A bound
// that holds in an overloaded run proves nothing if a slow host makes the bound easier (eased). If
// f is nil, the host is not taken into account.
func judgeTimed(c *report.Check, holds bool, want string, eased bool, f *report.Fidelity) string {
	is := " is not "
	if holds {
		is = " is "
	}
	switch {
	case holds && !(eased && f != nil && f.Verdict == report.Overloaded):
		return is + want
	case f == nil || f.Verdict == report.Faithful:
		c.Verdict = verdict.Fail
		return is + want
	case c.Verdict == verdict.Pass:
		c.Verdict = verdict.Inconclusive
	}
	return is + want + ", but the emulation was " + f.Verdict
}

// JudgeBeside compares a workload with another workload, in addition to judgeWorkload.
func JudgeBeside(c *report.Check, w *spec.WorkloadCheck, workload func(name string) *Finished,
	f *report.Fidelity) {
	b, done, other := w.Beside, workload(w.Name), workload(w.Beside.Workload)
	if done == nil {
		return
	}
	for _, k := range spec.Figures {
		if k.Beside == nil || k.Beside(b) == "" {
			continue
		}
		judged := f
		if !k.Timed {
			judged = nil
		}
		judgePart(c, k.Name, k.Beside(b), b.Workload, done, other, judged)
	}
}

// judgePart compares one figure of a workload with the same figure of another workload. If the host
// did not keep up, the comparison proves nothing: one of the two may have had less time.
func judgePart(c *report.Check, name, want, beside string, done, other *Finished, f *report.Fidelity) {
	bound, err := spec.ParseBound(want, spec.BesideBound)
	own, has := done.Figure(name)
	others := 0.0
	if other != nil {
		others, _ = other.Figure(name)
	}
	if err != nil || others == 0 || !has || otherClocks(done) || otherClocks(other) {
		c.Summary = strings.TrimPrefix(
			fmt.Sprintf("%s; workload %s has no result to compare with", c.Summary, beside), "; ")
		if c.Verdict == verdict.Pass {
			c.Verdict = verdict.Inconclusive
		}
		return
	}
	part := own / others
	c.Values = append(c.Values, report.Value{Name: name + " beside " + beside, Value: part * 100, Unit: "%",
		Want: want})
	addNear(c, name+" beside "+beside, bound, part, fmt.Sprintf("%.4g%%", part*100))
	text := fmt.Sprintf("%s %.0f%% of %s's%s", name, part*100, beside,
		judgeTimed(c, bound.Holds(part), want, true, f))
	c.Summary = strings.TrimPrefix(c.Summary+"; "+text, "; ")
}

// JudgeFidelityCheck judges a fidelity check. A failure has the verdict OVERLOADED, because the
// check is about the emulator and says nothing about the workloads.
func JudgeFidelityCheck(c *report.Check, want string, f *report.Fidelity) {
	if f == nil {
		c.Verdict, c.Summary = verdict.Inconclusive, "the run was not measured"
		return
	}
	c.Verdict, c.Details = verdict.Pass, f.Reasons
	if f.Verdict == report.Overloaded || f.Verdict == report.Degraded && want == report.Faithful {
		c.Verdict = verdict.Overloaded
	}
	if want == report.Degraded {
		want = report.Faithful + " or " + report.Degraded
	}
	c.Summary = fmt.Sprintf("the emulation was %s, want %s", f.Verdict, want)
}

// ExcuseSources makes a failed check of throughput INCONCLUSIVE if the host held up sources of traffic. Such
// a source sends less than the file asks for.
func ExcuseSources(c *report.Check, check *spec.PacketsCheck, f *report.Fidelity) {
	if c.Verdict != verdict.Fail || check.Throughput == nil || f == nil {
		return
	}
	for _, h := range f.HeldUp {
		if share := h.Share - h.Asked; share > measure.HeldUpDegraded {
			c.Verdict = verdict.Inconclusive
			c.Summary += fmt.Sprintf("; the host held up %s for %.0f%% of its time", h.Node, share*100)
		}
	}
}
