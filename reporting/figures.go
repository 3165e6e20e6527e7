package reporting

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"railbed/capture/report"
	"railbed/plan/perf"
)

// The functions of this file list every figure of a report, in the order of comparisons. The tables of the
// terminal and of the page, comparisons, matrices and the checks of files read these rows, and no other list.

func (l *list) report(r *report.Report) {
	for i := range r.Workloads {
		l.workload(&r.Workloads[i])
	}
	for i := range r.Trainings {
		l.training(&r.Trainings[i])
	}
	for i := range r.Stacks {
		l.stack(&r.Stacks[i])
	}
	for i := range r.Messages {
		l.messages(&r.Messages[i])
	}
	for _, c := range r.Checks {
		l.start("checks", c.Name)
		for _, v := range c.Values {
			l.add(v.Name, unit{v.Unit, 1, nil}, Neither, v.Value)
		}
	}
	if r.Routing != nil {
		l.routing(r.Routing)
	}
	if r.Fidelity != nil {
		l.fidelity(r.Fidelity)
	}
	for _, c := range r.Captures {
		l.start("captures", c.File)
		l.add("packets", inCount, Neither, float64(c.Packets()))
		l.add("size", inBytes, Neither, float64(c.Bytes))
		l.add("lost packets", inCount, Less, float64(c.Dropped()))
	}
	if r.Testbed.Nodes > 0 {
		l.start("testbed", "")
		l.add("bring up", inTime, Less, r.Testbed.BringUp)
		l.add("take down", inTime, Less, r.Testbed.TakeDown)
	}
	for _, f := range r.Faults {
		l.start("faults", f.Name)
		l.add("packets matched", inCount, Neither, float64(f.Matched))
		l.add("packets hit", inCount, Neither, float64(f.Hit))
		l.add("late", inTime, Less, f.Late)
	}
}

func (l *list) workload(w *report.Workload) {
	l.start(WorkloadSection, w.Name)
	l.hide = len(w.Rows) > 0 // the last row has the same
	measureOf(w).figures(l, nil)
	l.hide = false
	l.wrong(w.Wrong)
	for i := range w.Rows {
		row := &w.Rows[i]
		l.sized(row.Size, "")
		speed{row.OutOfPlace}.figures(l, nil)
		l.wrong(row.OutOfPlace.Wrong)
		if row.InPlace != nil {
			l.sized(row.Size, " in place")
			speed{*row.InPlace}.figures(l, nil)
			l.wrong(row.InPlace.Wrong)
		}
	}
	l.rename = nil
	l.observed(&w.LeftOut, &w.Conduct)
	if w.Learning != nil {
		l.learning(w.Learning)
	}
	if w.Mixture != nil {
		l.mixture(w.Mixture)
	}
}

// speed is the result of a collective of one size.
type speed struct{ perf.Measure }

func measureOf(w *report.Workload) speed {
	return speed{perf.Measure{Time: w.Time, AlgBW: w.AlgBW, BusBW: w.BusBW}}
}

// figures lists the speed. times are the times of operations, or nil.
func (s speed) figures(l *list, times *report.Distribution) {
	p50, p99 := math.NaN(), math.NaN()
	if times != nil {
		p50, p99 = times.At(0.5), times.At(0.99)
	}
	l.add("time", inTime, Less, s.Time/1e6).under("mean\n(%s)", "time\n(%s)", "Time\n(%s)")
	l.add("", inTime, Less, p50).under("p50\n(%s)", "", "")
	l.add("", inTime, Less, p99).under("p99\n(%s)", "", "")
	l.add("algbw", inRate, More, s.AlgBits()).under("", "algbw\n(%s)", "algbw\n(%s)")
	l.add("busbw", inRate, More, s.BusBits()).under("busbw\n(%s)", "busbw\n(%s)", "busbw\n(%s)").
		bounded("BusBW", `the bus bandwidth, such as ">= 600 Mbit/s"`,
			`the bus bandwidth as a share of the other workload's, such as ">= 90%"`)
}

func (l *list) wrong(elements uint64) {
	l.add("wrong elements", inCount, Less, float64(elements)).under("", "#wrong", "#wrong")
}

func (l *list) learning(r *report.Learning) {
	first, last := math.NaN(), math.NaN()
	if n := len(r.Loss); n > 0 {
		first, last = r.Loss[0], r.Loss[n-1]
	}
	l.hide = len(r.Loss) == 0
	l.add("", inNats, Less, first).under("", "loss\nfirst", "")
	l.add("loss, last", inNats, Less, last).under("", "loss\nlast", "")
	l.add("loss, held out", inNats, Less, r.Held).unclocked().under("", "loss\nheld out", "Loss\nheld out").
		bounded("Loss", `the loss of sgd at the end, such as "<= 0.5" nats. It is measured over samples on `+
			`which no rank has trained`, `the loss as a share of the other workload's, such as "<= 110%"`)
	l.add("accuracy, held out", inShare, More, r.Accuracy).unclocked().
		under("", "accuracy\nheld out", "Accuracy\nheld out").
		bounded("Accuracy", `the share of samples that sgd classifies correctly, such as ">= 85%". The `+
			`samples are the same as for loss`)
	l.add("elements clipped", inCount, Less, float64(r.Clipped)).
		under("", "elements\nclipped", "Elements\nclipped")
	l.hide = false
}

func (l *list) mixture(m *report.Mixture) {
	l.add("dispatch", inMicros, Less, m.Dispatch).under("", "dispatch\n(us)", "Dispatch\n(us)")
	l.add("combine", inMicros, Less, m.Combine).under("", "combine\n(us)", "Combine\n(us)")
	l.add("tokens per second", perSecond, More, m.TokensPerSecond).under("", "tokens/s", "Tokens/s")
	l.add("", inBytes, Less, float64(m.DispatchBytes)).under("", "dispatch\n(B)", "Dispatch\n(B)")
	l.add("", inBytes, Less, float64(m.CombineBytes)).under("", "combine\n(B)", "Combine\n(B)")
	l.add("", inCount, Less, float64(m.Load)).under("", "hottest\n(tokens)", "Hottest expert\n(tokens)")
	l.add("", inTimes, Less, m.Times).under("", "of the\nmean", "Of the mean")
	l.add("error", inShare, Less, m.Error).under("", "error", "Error")
}

func (l *list) training(t *report.Training) {
	l.start("trainings", t.Name)
	mean := t.Mean()
	l.add("iteration, median", inTime, Less, t.Median()).
		under("p50\n(%s)", "iteration\n(median, %s)", "Iteration\n(median)").
		bounded("Iteration", `the median time of a training job's iterations, such as "<= 500ms"`,
			`the median iteration as a share of the other training job's, such as "<= 80%"`)
	l.add("", inTime, Less, report.NewDistribution("", "", "", slices.Clone(t.Iterations)).At(0.99)).
		under("p99\n(%s)", "", "")
	l.add("iteration without network", inTime, Neither, t.Ideal).
		under("without\nnetwork\n(%s)", "without\nnetwork (%s)", "Without\nnetwork")
	l.trainingRank(&mean)
	l.wrong(t.Wrong)
	l.observed(&t.LeftOut, &t.Conduct)
}

// trainingRank lists the shares of the time of a rank, or of the mean of all ranks.
func (l *list) trainingRank(r *report.TrainingRank) {
	l.add("utilisation", inShare, More, r.Compute).under("utilisation", "utilisation", "Utilisation").
		bounded("Utilisation", `the share of time in which the ranks computed, such as ">= 30%"`,
			`the utilisation as a share of the other training job's`)
	l.add("exposed communication", inShare, Less, r.Exposed).
		under("exposed\ncommunication", "exposed\ncommunication", "Exposed\ncommunication").
		bounded("Exposed", `the share of time in which a rank did not compute while bytes were in flight, `+
			`such as "<= 40%". It is the mean over the job's ranks`,
			`the exposed share as a share of the other training job's`)
	l.add("idle", inShare, Less, r.Idle).under("idle", "idle", "Idle")
}

func (l *list) messages(m *report.Messages) {
	l.start("messages", m.Name)
	l.rate(m.PerSecond)
	l.add("count", inCount, Neither, float64(m.Times.Count))
	l.percentiles(&m.Times, inTime)
	for i := range m.Parts {
		l.part(m.Parts[i].What + ", ")
		l.messagesPart(&m.Parts[i])
	}
	for i := range m.Slowdowns {
		l.part(fmt.Sprintf("slowdown up to %d B, ", m.Slowdowns[i].AtMost))
		l.percentiles(&m.Slowdowns[i].Percentiles, inTimes)
	}
	l.rename = nil
	if m.Attained != nil {
		l.add("met the objective", inShare, More, *m.Attained).
			bounded("Attained", `the share of the requests of cache, or of the blocks, that met their slo, `+
				`such as ">= 90%"`)
	}
	if s := m.Serving; s != nil {
		l.add("requests offered", perSecond, Neither, s.Offered)
		l.add("prefill busy", inShare, Neither, s.PrefillBusy)
		if m.Attained != nil {
			l.add("goodput", perSecond, More, s.Goodput)
		}
	}
	l.add("wrong bytes", inBytes, Less, float64(m.Wrong)).under("", "wrong\nbytes", "Wrong\nbytes")
	l.observed(&m.LeftOut, &m.Conduct)
}

func (l *list) messagesPart(p *report.MessagesPart) {
	if p.PerSecond > 0 {
		l.rate(p.PerSecond)
	}
	l.percentiles(&p.Times, inTime)
}

func (l *list) rate(value float64) {
	l.add("per second", perSecond, More, value).under("per\nsecond", "per\nsecond", "Per second")
}

func (l *list) percentiles(p *report.Percentiles, in unit) {
	l.add("p50", in, Less, p.P50).under("p50\n(%s)", "p50\n(%s)", "p50\n(%s)").
		bounded("P50", `the median of the times of a messages step, such as "<= 5ms". A time starts when a `+
			`message was due, or for cache when a request came, and ends when all of it had arrived`,
			`the median as a share of the other workload's, such as "<= 80%"`)
	l.add("p95", in, Less, p.P95).under("", "p95\n(%s)", "p95")
	l.add("p99", in, Less, p.P99).under("p99\n(%s)", "p99\n(%s)", "p99").
		bounded("P99", `the 99th percentile of the times of a messages step`,
			`the 99th percentile as a share of the other workload's`)
	l.add("p99.9", in, Less, p.P999).under("", "p99.9\n(%s)", "p99.9")
	l.add("most", in, Less, p.Most).under("most\n(%s)", "most\n(%s)", "Most").
		bounded("Most", `the longest of the times of a messages step`,
			`the longest time as a share of the other workload's`)
}

// observed lists the observations of the ranks of any workload.
func (l *list) observed(left *report.LeftOut, c *report.Conduct) {
	if left.MayMiss > 0 {
		l.add("bytes left out", inBytes, Less, float64(left.Missing))
	}
	if c.Pace.Packets > 0 {
		l.add("paced packets late, p99", inTime, Less, c.Pace.P99.Seconds())
	}
	if c.Load != nil {
		l.add("processors busy", inShare, Neither, c.Load.CPUs)
		l.add("busiest link", inShare, Neither, c.Load.Use)
	}
	if c.Repeats.Bytes > 0 {
		l.add("payload sent again", inShare, Less, c.Repeats.Share())
	}
	if r := c.RoCE; r != nil {
		l.add("packets sent again", inShare, Less, r.Share())
		l.add("timeouts", inCount, Less, float64(r.Timeouts))
		l.add("CNPs", inCount, Neither, float64(r.CNPs))
	}
}

// stack lists the figure of each row, and the other columns that are numbers. The program names them.
func (l *list) stack(s *report.Stack) {
	l.start("stacks", s.Name)
	better := More
	if s.Less {
		better = Less
	}
	for _, row := range s.Rows {
		l.part("")
		if row.Key != "" {
			l.part(row.Key + ": ")
		}
		if s.Metric != "" {
			l.add(s.Metric, unit{s.Unit, 1, nil}, better, row.Value)
		}
		for i, cell := range row.Cells[:min(len(row.Cells), len(s.Columns))] {
			own := s.Metric != "" && strings.HasPrefix(s.Columns[i], s.Metric) // Avg Latency(us)
			if value, err := strconv.ParseFloat(cell, 64); err == nil && cell != row.Key && !own {
				l.add(s.Columns[i], inCount, Neither, value)
			}
		}
	}
	for _, c := range s.Costs {
		if l.part(c.Of + ": "); c.Before != 0 {
			l.add(c.Figure+" beside "+s.Beside, inTimes, Neither, c.After/c.Before)
		}
	}
}

func (l *list) routing(r *report.Routing) {
	l.start("routing", "bring-up")
	l.add("routes found", inTime, Less, r.Converged)
	for i := range r.Reactions {
		l.start("routing", strings.Join(r.Reactions[i].To, ", "))
		l.reaction(&r.Reactions[i])
	}
}

func (l *list) reaction(r *report.Reaction) {
	first, last := r.First, r.Last
	if r.Routes == 0 {
		first, last = math.NaN(), math.NaN()
	}
	l.add("", inTime, Neither, r.At).under("", "at (%s)", "at (%s)")
	l.add("routes changed", inCount, Neither, float64(r.Routes)).under("", "routes changed", "routes changed")
	l.add("routers", inCount, Neither, float64(r.Routers)).under("", "in routers", "in routers")
	l.add("first change", inTime, Less, first).under("", "first after (%s)", "first after (%s)")
	l.add("converged", inTime, Less, last).under("", "converged after (%s)", "converged after (%s)")
}

// fidelity lists how the emulation did, and the links.
func (l *list) fidelity(f *report.Fidelity) {
	l.start("fidelity", "")
	l.add("CPU pressure", inShare, Less, f.Pressure)
	l.add("CPU steal", inShare, Less, f.Steal)
	if t := f.Timing; t != nil {
		l.add("frames late, p50", inMicros, Less, t.Arrivals.P50)
		l.add("frames late, p99", inMicros, Less, t.Arrivals.P99)
		l.add("frames late, worst", inMicros, Less, t.Arrivals.Worst)
		l.add("frames lost by the emulator", inCount, Less, float64(t.Lost))
	}
	dropped, denied, throttled := uint64(0), 0.0, 0.0
	for i := range f.Nodes {
		dropped += f.Nodes[i].Dropped()
		denied = max(denied, f.Nodes[i].Denied())
		throttled += f.Nodes[i].Throttled
	}
	l.add("packets lost by captures", inCount, Less, float64(f.Dropped))
	l.add("packets dropped by kernels of nodes", inCount, Less, float64(dropped))
	l.add("processor time denied, worst node", inShare, Less, denied)
	l.add("programs held back by limits of CPUs", inTime, Less, throttled)
	l.add("packets dropped by the host's backlog", inCount, Less, float64(f.Backlog))
	var packets uint64
	var all linkLosses
	for i := range f.Links {
		packets += f.Links[i].Packets
		all.add(lossesOf(&f.Links[i]))
	}
	l.start("links", "all")
	l.add("packets", inCount, Neither, float64(packets))
	all.figures(l)
	for i := range f.Links {
		l.linkRate(&f.Links[i])
	}
}

func (l *list) linkRate(r *report.LinkRate) {
	l.start("links", r.From+" > "+r.To)
	achieved, busy := float64(r.Achieved), r.Busy
	if r.Busy == 0 {
		achieved, busy = math.NaN(), math.NaN()
	}
	l.add("", inRate, Neither, float64(r.Asked)).under("", "asked\n(%s)", "")
	l.add("achieved", inRate, More, achieved).under("", "achieved\n(%s)", "")
	l.add("peak", inRate, Neither, float64(r.Peak)).under("", "peak\n(%s)", "")
	l.add("", inTime, Neither, busy).under("", "busy\n(%s)", "")
	l.add("", inCount, Neither, float64(r.Packets)).under("", "packets", "")
	lossesOf(r).figures(l)
	if r.Late != nil {
		l.add("late, p99", inMicros, Less, r.Late.P99)
	}
}

// linkLosses counts the packets that a direction of a link, or all of them, did not pass unchanged.
type linkLosses struct{ dropped, marked, trimmed uint64 }

func lossesOf(r *report.LinkRate) linkLosses {
	return linkLosses{r.Dropped, counted(r.Marks), counted(r.Trims)}
}

func (n *linkLosses) add(o linkLosses) {
	n.dropped, n.marked, n.trimmed = n.dropped+o.dropped, n.marked+o.marked, n.trimmed+o.trimmed
}

func (n linkLosses) figures(l *list) {
	l.add("dropped", inCount, Less, float64(n.dropped)).under("", "dropped", "")
	l.add("marked", inCount, Neither, float64(n.marked))
	l.add("trimmed", inCount, Neither, float64(n.trimmed))
}
