package compare

import (
	"fmt"
	"strconv"
	"strings"

	"railbed/capture/report"
	"railbed/plan/perf"
)

// report adds the numbers of a report.
func (g *gathered) report(r *report.Report) {
	for i := range r.Workloads {
		g.workload(&r.Workloads[i])
	}
	for i := range r.Trainings {
		t, mean := &r.Trainings[i], r.Trainings[i].Mean()
		to := in{g, Trainings, t.Name}
		to.add("iteration, median", Seconds, Less, t.Median())
		to.add("iteration without network", Seconds, Neither, t.Ideal)
		to.add("utilisation", Share, More, mean.Compute)
		to.add("exposed communication", Share, Less, mean.Exposed)
		to.add("idle", Share, Less, mean.Idle)
		to.add("wrong elements", "", Less, float64(t.Wrong))
		to.leftOut(t.LeftOut)
		to.conduct(&t.Conduct)
	}
	for i := range r.Stacks {
		g.stack(&r.Stacks[i])
	}
	for i := range r.Messages {
		g.messages(&r.Messages[i])
	}
	for _, c := range r.Checks {
		for _, v := range c.Values {
			in{g, Checks, c.Name}.add(v.Name, v.Unit, Neither, v.Value)
		}
	}
	g.routing(r.Routing)
	g.fidelity(r.Fidelity)
	for _, f := range r.Faults {
		to := in{g, Faults, f.Name}
		to.add("packets matched", "", Neither, float64(f.Matched))
		to.add("packets hit", "", Neither, float64(f.Hit))
		to.add("late", Seconds, Less, f.Late)
	}
	for _, c := range r.Captures {
		to := in{g, Captures, c.File}
		to.add("packets", "", Neither, float64(c.Packets()))
		to.add("size", Bytes, Neither, float64(c.Bytes))
		to.add("lost packets", "", Less, float64(c.Dropped()))
	}
	if r.Testbed.Nodes > 0 {
		to := in{g, Testbeds, ""}
		to.add("bring up", Seconds, Less, r.Testbed.BringUp)
		to.add("take down", Seconds, Less, r.Testbed.TakeDown)
	}
}

func (g *gathered) workload(w *report.Workload) {
	to := in{g, Workloads, w.Name}
	measure := func(m *perf.Measure, add func(figure, unit string, better Direction, value float64)) {
		add("time", Seconds, Less, m.Time/1e6)
		add("algbw", BitRate, More, m.AlgBits())
		add("busbw", BitRate, More, m.BusBits())
		add("wrong elements", "", Less, float64(m.Wrong))
	}
	if len(w.Rows) == 0 {
		measure(&perf.Measure{Time: w.Time, AlgBW: w.AlgBW, BusBW: w.BusBW, Wrong: w.Wrong}, to.add)
	} else {
		to.add("wrong elements", "", Less, float64(w.Wrong))
	}
	for i := range w.Rows {
		row := &w.Rows[i]
		sized := func(mode string) func(string, string, Direction, float64) {
			return func(figure, unit string, better Direction, value float64) {
				to.addSized(figure, mode, row.Size, unit, better, value)
			}
		}
		measure(&row.OutOfPlace, sized(""))
		if row.InPlace != nil {
			measure(row.InPlace, sized(" in place"))
		}
	}
	to.leftOut(w.LeftOut)
	to.conduct(&w.Conduct)
	if l := w.Learning; l != nil && len(l.Loss) > 0 {
		to.add("loss, last", "nats", Less, l.Loss[len(l.Loss)-1])
		to.add("loss, held out", "nats", Less, l.Held)
		to.add("accuracy, held out", Share, More, l.Accuracy)
		to.add("elements clipped", "", Less, float64(l.Clipped))
	}
	if m := w.Mixture; m != nil {
		to.add("dispatch", Seconds, Less, m.Dispatch/1e6)
		to.add("combine", Seconds, Less, m.Combine/1e6)
		to.add("tokens per second", "/s", More, m.TokensPerSecond)
		to.add("error", Share, Less, m.Error)
	}
}

func (to in) leftOut(l report.LeftOut) {
	if l.MayMiss > 0 {
		to.add("bytes left out", Bytes, Less, float64(l.Missing))
	}
}

func (to in) conduct(c *report.Conduct) {
	if c.Pace.Packets > 0 {
		to.add("paced packets late, p99", Seconds, Less, c.Pace.P99.Seconds())
	}
	if c.Load != nil {
		to.add("processors busy", Share, Neither, c.Load.CPUs)
		to.add("busiest link", Share, Neither, c.Load.Use)
	}
	if c.Repeats.Bytes > 0 {
		to.add("payload sent again", Share, Less, c.Repeats.Share())
	}
	if r := c.RoCE; r != nil {
		to.add("packets sent again", Share, Less, r.Share())
		to.add("timeouts", "", Less, float64(r.Timeouts))
		to.add("CNPs", "", Neither, float64(r.CNPs))
	}
}

func (g *gathered) messages(m *report.Messages) {
	to := in{g, Messages, m.Name}
	to.add("per second", "/s", More, m.PerSecond)
	times := func(of string, p *report.Percentiles, unit string) {
		to.add(of+"p50", unit, Less, p.P50)
		to.add(of+"p95", unit, Less, p.P95)
		to.add(of+"p99", unit, Less, p.P99)
		to.add(of+"p99.9", unit, Less, p.P999)
		to.add(of+"most", unit, Less, p.Most)
	}
	to.add("count", "", Neither, float64(m.Times.Count))
	times("", &m.Times, Seconds)
	for i := range m.Parts {
		part := &m.Parts[i]
		if part.PerSecond > 0 {
			to.add(part.What+", per second", "/s", More, part.PerSecond)
		}
		times(part.What+", ", &part.Times, Seconds)
	}
	for i := range m.Slowdowns {
		s := &m.Slowdowns[i]
		times(fmt.Sprintf("slowdown up to %d B, ", s.AtMost), &s.Percentiles, "times")
	}
	if m.Attained != nil {
		to.add("met the objective", Share, More, *m.Attained)
	}
	if s := m.Serving; s != nil {
		to.add("requests offered", "/s", Neither, s.Offered)
		to.add("prefill busy", Share, Neither, s.PrefillBusy)
		if m.Attained != nil {
			to.add("goodput", "/s", More, s.Goodput)
		}
	}
	to.add("wrong bytes", Bytes, Less, float64(m.Wrong))
	to.leftOut(m.LeftOut)
	to.conduct(&m.Conduct)
}

// stack adds the figure of each row, and the other columns that are numbers.
func (g *gathered) stack(s *report.Stack) {
	to := in{g, Stacks, s.Name}
	better := More
	if s.Less {
		better = Less
	}
	for _, row := range s.Rows {
		of := ""
		if row.Key != "" {
			of = row.Key + ": "
		}
		if s.Metric != "" {
			to.add(of+s.Metric, s.Unit, better, row.Value)
		}
		for i, cell := range row.Cells[:min(len(row.Cells), len(s.Columns))] {
			own := s.Metric != "" && strings.HasPrefix(s.Columns[i], s.Metric) // Avg Latency(us)
			if value, err := strconv.ParseFloat(cell, 64); err == nil && cell != row.Key && !own {
				to.add(of+s.Columns[i], "", Neither, value)
			}
		}
	}
	for _, c := range s.Costs {
		if c.Before != 0 {
			to.add(fmt.Sprintf("%s: %s beside %s", c.Of, c.Figure, s.Beside), "times", Neither,
				c.After/c.Before)
		}
	}
}

func (g *gathered) routing(r *report.Routing) {
	if r == nil {
		return
	}
	in{g, Routing, "bring-up"}.add("routes found", Seconds, Less, r.Converged)
	for _, reaction := range r.Reactions {
		to := in{g, Routing, strings.Join(reaction.To, ", ")}
		to.add("routes changed", "", Neither, float64(reaction.Routes))
		to.add("routers", "", Neither, float64(reaction.Routers))
		if reaction.Routes > 0 {
			to.add("first change", Seconds, Less, reaction.First)
			to.add("converged", Seconds, Less, reaction.Last)
		}
	}
}

// fidelity adds how the emulation did, and the links.
func (g *gathered) fidelity(f *report.Fidelity) {
	if f == nil {
		return
	}
	to := in{g, Fidelity, ""}
	to.add("CPU pressure", Share, Less, f.Pressure)
	to.add("CPU steal", Share, Less, f.Steal)
	if t := f.Timing; t != nil {
		to.add("frames late, p50", Seconds, Less, t.Arrivals.P50/1e6)
		to.add("frames late, p99", Seconds, Less, t.Arrivals.P99/1e6)
		to.add("frames late, worst", Seconds, Less, t.Arrivals.Worst/1e6)
		to.add("frames lost by the emulator", "", Less, float64(t.Lost))
	}
	to.add("packets lost by captures", "", Less, float64(f.Dropped))
	dropped, denied, throttled := uint64(0), 0.0, 0.0
	for i := range f.Nodes {
		dropped += f.Nodes[i].Dropped()
		denied = max(denied, f.Nodes[i].Denied())
		throttled += f.Nodes[i].Throttled
	}
	to.add("packets dropped by kernels of nodes", "", Less, float64(dropped))
	to.add("processor time denied, worst node", Share, Less, denied)
	to.add("programs held back by limits of CPUs", Seconds, Less, throttled)
	to.add("packets dropped by the host's backlog", "", Less, float64(f.Backlog))
	var all linkCounts
	for i := range f.Links {
		all.add(&f.Links[i])
	}
	every := in{g, Links, "all"}
	every.add("packets", "", Neither, float64(all.packets))
	all.to(every)
	for i := range f.Links {
		l := &f.Links[i]
		to := in{g, Links, l.From + " > " + l.To}
		if l.Busy > 0 {
			to.add("achieved", BitRate, More, float64(l.Achieved))
		}
		to.add("peak", BitRate, Neither, float64(l.Peak))
		var own linkCounts
		own.add(l)
		own.to(to)
		if l.Late != nil {
			to.add("late, p99", Seconds, Less, l.Late.P99/1e6)
		}
	}
}

// linkCounts counts the packets of links.
type linkCounts struct{ packets, dropped, marked, trimmed uint64 }

func (c *linkCounts) add(l *report.LinkRate) {
	c.packets += l.Packets
	c.dropped += l.Dropped
	for _, sum := range []struct {
		into *uint64
		from map[string][8]uint64
	}{{&c.marked, l.Marks}, {&c.trimmed, l.Trims}} {
		for _, priorities := range sum.from {
			for _, n := range priorities {
				*sum.into += n
			}
		}
	}
}

func (c *linkCounts) to(to in) {
	to.add("dropped", "", Less, float64(c.dropped))
	to.add("marked", "", Neither, float64(c.marked))
	to.add("trimmed", "", Neither, float64(c.trimmed))
}
