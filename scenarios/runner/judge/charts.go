package judge

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"railbed/reporting"
	"railbed/scenarios/runner/measure"

	"railbed/capture/follow"
	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/clock"
	"railbed/internal/plural"
	"railbed/plan"
	"railbed/plan/picture"
	"railbed/plan/spec"
	"railbed/workloads/rank"
	"railbed/workloads/worker"
)

// maxFollowed bounds the records of a recording that charts are made of. Following takes about 600 bytes for
// each at most, and so stays below the memory of follow.Options.
const maxFollowed = 1_000_000

// timedSpans are the times of one operation at all ranks.
type timedSpans struct {
	what    string
	slowest bool
	worker.Spans
}

// Chart keeps what the charts show of a workload's result: the ranks' times of the slowest and of the last
// operation, and how long operations took.
func (f *Finished) Chart(job *worker.Job, r *worker.Result) {
	if _, is := r.Own.(*worker.Iterations); is {
		return // its report has the tasks of each rank
	}
	var times []float64
	for _, o := range r.Operations {
		if o.Timed {
			times = append(times, clock.Dilation(job.Dilation).Passed(o.Time).Seconds())
		}
	}
	if len(times) > 1 && job.Sweep == nil {
		f.Times = append(f.Times, report.NewDistribution(f.Name, "operation", report.RanksSource, times))
	}
	switch {
	case r.Last == nil:
	case len(times) == 1:
		f.spans = []timedSpans{{"the operation", true, *r.Last}}
	case r.Last == r.Slowest:
		f.spans = []timedSpans{{plural.Text("the last of %d operations, which was the slowest", len(times)),
			true, *r.Last}}
	default:
		f.spans = []timedSpans{{plural.Text("the slowest of %d operations", len(times)), true, *r.Slowest},
			{plural.Text("the last of %d operations", len(times)), false, *r.Last}}
	}
}

// follower returns the check that follows the packets of the recordings. It returns nil if a recording is
// incomplete or of chosen packets, or if the recordings are too long. The charts are then made without it.
func (e *Evidence) follower(file *spec.Testbed, p *plan.Plan) *follow.Follower {
	if c := e.Captures; !c.complete() || c.filtered() || c.packets() > maxFollowed ||
		e.Aborted != nil || e.Clock == nil {
		return nil
	}
	o := follow.Options{Options: verify.Options{Plan: p, Keys: e.Keys}}
	for i := range e.Workloads {
		o.Workloads = append(o.Workloads, e.TrafficOf(file, &e.Workloads[i]))
	}
	return follow.NewFollower(o)
}

// Chart adds the data of the page's charts to the report.
func (e *Evidence) Chart(r *report.Report, file *spec.Testbed, p *plan.Plan) {
	for i := range e.Workloads {
		r.Distributions = append(r.Distributions, e.Workloads[i].Times...)
	}
	if e.Clock == nil {
		return
	}
	c := chartMaker{Evidence: e, recording: e.recording, plan: p}
	if c.recording != nil {
		c.file = strings.Join(e.Captures.names(), " and ")
		first := 0 // steps that record
		for first < len(file.Steps) && file.Steps[first].Capture != nil {
			first++
		}
		switch whole := first >= len(e.Captures); {
		case e.Captures.dropped() > 0:
			c.file += plural.Text(", which lost %d packets", e.Captures.dropped())
		case whole:
			c.series(r.Series)
		}
		c.ran = c.stacks(file)
		r.Distributions = append(r.Distributions, c.distributions()...)
	}
	for i := range e.Workloads {
		for k, spans := range e.Workloads[i].spans {
			if k > 0 && len(e.Workloads) > report.ActivitiesKept/2 {
				break // the slowest operation of each workload has to do
			}
			r.Activities = append(r.Activities, c.operation(e.Workloads[i].Name, &spans))
		}
	}
	if c.recording != nil {
		r.Activities = append(r.Activities, c.programs()...)
	}
	r.Activities = r.Activities[:min(len(r.Activities), report.ActivitiesKept)]
}

// DrawUse draws the topology of a run with the use of its links.
func DrawUse(w io.Writer, p *plan.Plan, r *report.Report) error {
	uses := picture.Uses{}
	for link, both := range reporting.Uses(r) {
		uses[link] = [2]picture.Use{picture.Use(both[0]), picture.Use(both[1])}
	}
	return picture.DrawUse(w, p, uses)
}

// chartMaker makes charts of a recording.
type chartMaker struct {
	*Evidence
	recording *follow.Recording
	file      string // and what the recording lost
	plan      *plan.Plan
	ran       []ran // of stacks
}

// seconds converts nanoseconds since 1970 to seconds from the start of the first step.
func (c *chartMaker) seconds(ns int64) float64 { return c.Clock.Of(time.Unix(0, ns)).Sub(0).Seconds() }

// distributions returns how long messages took, by workload and protocol.
func (c *chartMaker) distributions() (all []report.Distribution) {
	type kind struct{ workload, protocol string }
	var kinds []kind
	times := map[kind][]float64{}
	for i := range c.recording.Messages {
		m := &c.recording.Messages[i]
		f := &c.recording.Flows[m.Flow]
		k := kind{f.Workload, f.Protocol}
		if k.workload == "" {
			k.workload = c.stackAt(m.Start)
		}
		if m.Placed == 0 {
			continue
		}
		if times[k] == nil {
			kinds = append(kinds, k)
		}
		times[k] = append(times[k], c.recording.Own(int64(m.Took())).Seconds())
	}
	for _, k := range kinds {
		if len(times[k]) > 1 {
			all = append(all, report.NewDistribution(k.workload, k.protocol+" message", c.file, times[k]))
		}
	}
	return all
}

// operation returns what the ranks did in an operation, with their messages if there is a recording.
func (c *chartMaker) operation(step string, of *timedSpans) report.Activity {
	a := report.Activity{Step: step, What: of.what, Source: report.RanksSource, Began: of.Start,
		Slowest: of.slowest}
	if of.Count > 1 {
		a.What = plural.Text("%d operations in succession", of.Count)
	}
	by := clock.Dilation(c.Clock.Dilation())
	begin := of.Start.UnixNano()
	a.Start = c.seconds(begin)
	end := begin
	ranks := c.Workload(step).Traffic.Ranks
	for i, span := range of.Ranks[:min(len(of.Ranks), report.LanesKept)] {
		lane := report.Lane{Rank: &i}
		if at := slices.IndexFunc(ranks, func(r verify.Rank) bool { return r.Rank == i }); at >= 0 {
			lane.Node = ranks[at].Node
		}
		from := by.Passed(span.Start.Sub(of.Start)).Seconds()
		lane.Spans = []report.Span{{Of: report.OperationSpan, Start: from,
			End: from + by.Passed(span.Took).Seconds(), Waited: by.Passed(span.Waited).Seconds()}}
		for _, w := range span.Waits {
			lane.Spans = append(lane.Spans, report.Span{Of: report.WaitSpan,
				Start: from + by.Passed(w.From).Seconds(), End: from + by.Passed(w.To).Seconds()})
		}
		lane.Steps = ReportSteps(span.Steps, func(d time.Duration) float64 {
			return from + by.Passed(d).Seconds()
		})
		kept := min(len(lane.Steps), report.PartsKept(min(len(of.Ranks), report.LanesKept)))
		lane.StepsLeftOut = span.StepsLeftOut + len(lane.Steps) - kept
		lane.Steps = lane.Steps[:kept]
		a.Lanes = append(a.Lanes, lane)
		end = max(end, span.Start.Add(span.Took).UnixNano())
		a.Took = max(a.Took, from+by.Passed(span.Took).Seconds())
	}
	if c.recording == nil {
		return a
	}
	found := c.messages(begin, end, func(f *follow.Flow) (lane string, to string, is bool) {
		return fmt.Sprint(f.FromRank), fmt.Sprintf("rank %d", f.ToRank), f.Workload == step && f.FromRank >= 0
	})
	for i := range a.Lanes {
		a.Lanes[i].Spans = append(a.Lanes[i].Spans, found[fmt.Sprint(i)]...)
	}
	if len(found) > 0 {
		a.Source += " and " + c.file
	}
	return a
}

// ReportSteps returns the steps of a rank's algorithm, with their times in the report.
func ReportSteps(of []rank.Steps, at func(time.Duration) float64) (all []report.RankSteps) {
	for _, s := range of {
		steps := report.RankSteps{Of: s.Of, Count: s.Count, Each: s.Each, Start: at(s.From)}
		for _, end := range s.Ends {
			steps.Ends = append(steps.Ends, at(end))
		}
		all = append(all, steps)
	}
	return all
}

// ran is the time of a step in nanoseconds since 1970.
type ran struct {
	name       string
	begin, end int64
}

// stacks returns the times of the steps whose ranks report nothing about their operations.
func (c *chartMaker) stacks(file *spec.Testbed) (all []ran) {
	for i := range min(len(file.Steps), len(c.Steps)) {
		stack := file.Steps[i].Stack
		if stack == nil {
			continue
		}
		at := func(seconds float64) int64 {
			return c.Clock.Real(clock.Time(seconds * float64(time.Second))).UnixNano()
		}
		all = append(all, ran{stack.Name, at(c.Steps[i].Start), at(c.Steps[i].End)})
	}
	return all
}

// stackAt returns the name of the stack that ran at a time, or "".
func (c *chartMaker) stackAt(ns int64) string {
	for _, s := range c.ran {
		if ns >= s.begin && ns <= s.end {
			return s.name
		}
	}
	return ""
}

// programs returns the messages of stacks, by node.
func (c *chartMaker) programs() (all []report.Activity) {
	for _, s := range c.ran {
		found := c.messages(s.begin, s.end, func(f *follow.Flow) (lane, to string, is bool) {
			return f.From, f.To, f.Workload == "" && f.From != ""
		})
		a := report.Activity{Step: s.name, What: "messages while it ran", Start: c.seconds(s.begin),
			Source: c.file}
		for _, n := range c.plan.Nodes {
			if spans := found[n.Name]; len(spans) > 0 && len(a.Lanes) < report.LanesKept {
				a.Lanes = append(a.Lanes, report.Lane{Node: n.Name, Spans: spans})
			}
		}
		if len(a.Lanes) > 0 {
			all = append(all, a)
		}
	}
	return all
}

// messages returns the messages that began between two times, by lane. If a lane has more than
// report.MessagesKept allows, those that follow each other closely are one span.
func (c *chartMaker) messages(begin, end int64,
	lane func(*follow.Flow) (lane, to string, is bool)) map[string][]report.Span {
	found := map[string][]report.Span{}
	from := c.seconds(begin)
	for i := range c.recording.Messages {
		m := &c.recording.Messages[i]
		name, to, is := lane(&c.recording.Flows[m.Flow])
		if !is || m.Start < begin || m.Start > end || m.Placed == 0 {
			continue
		}
		found[name] = append(found[name], report.Span{Of: report.MessageSpan,
			Start: c.seconds(m.Start) - from,
			End:   c.seconds(m.Placed) - from, To: to, Bytes: m.Bytes, Message: m.Number, Again: m.Again})
	}
	for name, spans := range found {
		slices.SortFunc(spans, func(a, b report.Span) int { return cmp.Compare(a.Start, b.Start) })
		// The gaps that are closed grow until few enough spans are left.
		for gap := (c.seconds(end) - from) / 1000; len(spans) > report.MessagesKept(len(found)); gap *= 2 {
			spans = joined(spans, gap)
		}
		found[name] = spans
	}
	return found
}

// joined joins spans that follow each other within a gap.
func joined(spans []report.Span, gap float64) (all []report.Span) {
	for _, s := range spans {
		last := len(all) - 1
		if last < 0 || s.Start > all[last].End+gap {
			s.Count = max(s.Count, 1)
			all = append(all, s)
			continue
		}
		l := &all[last]
		l.End, l.Bytes, l.Again, l.Count = max(l.End, s.End), l.Bytes+s.Bytes, l.Again+s.Again,
			l.Count+max(s.Count, 1)
		if l.To != s.To {
			l.To = "several"
		}
		l.Message = 0
	}
	return all
}

// series replaces time lines of counters by time lines of the recording, whose intervals are shorter. The
// recording must have a tap at each of the links.
func (c *chartMaker) series(s *report.Series) {
	taps := map[string]int{}
	for i, tap := range c.recording.Taps {
		taps[tap.Name()] = i
	}
	if s == nil || slices.ContainsFunc(s.Links, func(l report.LinkSeries) bool {
		_, has := taps[l.From]
		return !has
	}) {
		return
	}
	end := 0.0
	for i := range c.Steps {
		end = max(end, c.Steps[i].End)
	}
	interval := max(end, 1e-6) / report.SeriesPoints
	lines := make([][]measure.Moment, len(c.recording.Taps))
	at := func(tap int, ns int64) *measure.Moment {
		if lines[tap] == nil {
			lines[tap] = make([]measure.Moment, report.SeriesPoints)
		}
		return &lines[tap][max(0, min(int(c.seconds(ns)/interval), report.SeriesPoints-1))]
	}
	overhead := c.overheads(taps)
	for i := range c.recording.Packets {
		p := &c.recording.Packets[i]
		for k, sight := range c.recording.Sights(i) {
			m := at(sight.Tap, sight.Time)
			m.Depth = max(m.Depth, uint64(max(sight.Depth, 0)))
			switch {
			case sight.Verdict == "drop":
				m.Drops++
				continue
			case sight.Verdict == "mark":
				m.Marks++
			}
			if sight.Out && !sight.Event {
				m.Bytes += uint64(p.Length) + overhead[sight.Tap]
			}
			if k == 0 && p.Again {
				m.Again++
			}
		}
	}
	for tap, ns := range c.recording.Pauses() {
		at(tap, ns).Pauses++
	}
	s.Source, s.Start, s.Interval = c.file, 0, interval
	for i := range s.Links {
		l := &s.Links[i]
		s.Links[i] = measure.LinkSeries(&report.LinkRate{From: l.From, To: l.To, Asked: l.Asked},
			lines[taps[l.From]], interval)
	}
}

// overheads returns what links add to the length of a packet, by tap.
func (c *chartMaker) overheads(taps map[string]int) map[int]uint64 {
	found := map[int]uint64{}
	set := func(end plan.End, d *plan.Direction) {
		if tap, has := taps[end.Node+":"+end.Port]; has {
			found[tap] = uint64(d.Overhead)
		}
	}
	for i := range c.plan.Links {
		l := &c.plan.Links[i]
		set(l.A, &l.AToB)
		set(l.B, &l.BToA)
	}
	return found
}
