package reporting

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"railbed/capture/report"
	"railbed/internal/units"
)

// routingTable returns the table of reactions.
func routingTable(r *report.Routing) *figureTable {
	var times []float64
	for _, one := range r.Reactions {
		times = append(times, one.At, one.First, one.Last)
	}
	t := fullView.labels(tableUnits{Time: units.Times.Of(times...)}, "l", "routers follow")
	for i := range r.Reactions {
		t.add([]string{strings.Join(r.Reactions[i].To, ", ")}, func(l *list) { l.reaction(&r.Reactions[i]) })
	}
	return t
}

// figureTable is a table of figures, for the terminal or the page.
type figureTable struct {
	view  view
	in    tableUnits
	Heads []string
	Rows  [][]string
	// align has l or r for each label, the columns before those of figures. Figures are aligned right.
	align string
}

// labels returns a table that has no figures yet. align has l or r for each label.
func (v view) labels(in tableUnits, align string, labels ...string) *figureTable {
	return &figureTable{view: v, in: in, align: align, Heads: labels}
}

// Right reports whether a column is aligned right.
func (t *figureTable) Right(column int) bool { return column >= len(t.align) || t.align[column] == 'r' }

// Rest returns the columns that a row lacks.
func (t *figureTable) Rest(row []string) []string { return t.Heads[min(len(row), len(t.Heads)):] }

// add adds a row of labels and figures. A figure is in the column with its head, which the first row adds.
func (t *figureTable) add(row []string, figures func(*list)) {
	var l list
	figures(&l)
	for _, f := range l.all {
		if f.heads[t.view] == "" || f.part {
			continue
		}
		head := f.head(t)
		at := len(t.align) + slices.Index(t.Heads[len(t.align):], head)
		if at < len(t.align) {
			at, t.Heads = len(t.Heads), append(t.Heads, head)
		}
		for len(row) < at {
			row = append(row, "")
		}
		text := "-"
		if !math.IsNaN(f.value) {
			text = f.unit.text(t.view, t.in, f.value)
		}
		row = append(row, text)
	}
	t.Rows = append(t.Rows, row)
}

// head returns the head of a figure's column, with its unit if the table has one for it.
func (f *figure) head(t *figureTable) string {
	switch f.unit.name {
	case Seconds:
		return strings.ReplaceAll(f.heads[t.view], "%s", t.in.Time.Name)
	case BitRate:
		return strings.ReplaceAll(f.heads[t.view], "%s", t.in.Rate.Name)
	}
	return strings.TrimSuffix(f.heads[t.view], "\n(%s)")
}

// text returns the table for the terminal.
func (t *figureTable) text() table.Writer {
	rows := newRows(cells(t.Heads)...)
	var right []int
	for i := range t.Heads {
		if t.Right(i) {
			right = append(right, i+1)
		}
	}
	rightAligned(rows, right...)
	for _, row := range t.Rows {
		rows.AppendRow(cells(row))
	}
	return rows
}

// lines returns a text of several lines for the page.
func lines(text string) template.HTML {
	return template.HTML(strings.ReplaceAll(template.HTMLEscapeString(text), "\n", "<br>"))
}

// workloadTable has the results of collectives in the columns of nccl-tests (all_reduce_perf), with the name
// first. The brief table has the kind and the distribution of times. A collective of several sizes has
// another table with a row for each size.
func workloadTable(v view, r *report.Report) *figureTable {
	var bits, times []float64
	for i := range r.Workloads {
		bits, times = append(bits, r.Workloads[i].BusBWBits()), append(times, r.Workloads[i].Time/1e6)
	}
	in := tableUnits{units.Rates.Of(bits...), units.Times.Of(times...)}
	t := [views]*figureTable{
		v.labels(in, "lllrrr", "workload", "kind", "over", "ranks", "size", "iters"),
		v.labels(in, "lrrll", "workload", "size\n(B)", "count\n(elements)", "type", "redop"),
		v.labels(in, "llrrrll", "Workload", "Algorithm", "Ranks", "Size\n(B)", "Count\n(elements)", "Type",
			"Redop"),
	}[v]
	for i := range r.Workloads {
		w := &r.Workloads[i]
		algorithm := strings.TrimSuffix(w.Algorithm+" "+w.File, " ") + " " + w.Kind + ", " + w.Transport
		ranks, bytes, count := fmt.Sprint(w.Ranks), fmt.Sprint(w.Bytes), fmt.Sprint(w.Count)
		t.add([views][]string{
			{w.Name, w.Kind, w.Transport, ranks, units.Bytes(w.Bytes).String(), fmt.Sprint(w.Iterations)},
			{w.Name, bytes, count, w.Type, w.RedOp},
			{w.Name, algorithm, ranks, bytes, count, w.Type, w.RedOp},
		}[v], func(l *list) {
			at := slices.IndexFunc(r.Distributions, func(d report.Distribution) bool {
				return d.Step == w.Name && d.What == report.OperationSpan
			})
			var times *report.Distribution
			if at >= 0 {
				times = &r.Distributions[at]
			}
			measureOf(w).figures(l, times)
			l.wrong(w.Wrong)
		})
	}
	return t
}

// learningTable has a row for each training with gradients.
func learningTable(v view, workloads []report.Workload) *figureTable {
	t := v.labels(tableUnits{}, "lr", "learned", "iterations")
	if v == pageView {
		t = v.labels(tableUnits{}, "lr", "Training", "Iterations")
	}
	for _, w := range workloads {
		if n := w.Learning; n != nil && (len(n.Loss) > 0 || v == pageView) {
			t.add([]string{w.Name, fmt.Sprint(len(n.Loss))}, func(l *list) { l.learning(n) })
		}
	}
	return t
}

// mixtureTable has a row for each mixture of experts. On the page each has a table, with the labels above.
func mixtureTable(v view, workloads []report.Workload) *figureTable {
	t := v.labels(tableUnits{}, "lrrrr", "experts", "count", "tokens\nof a rank", "hidden", "top-k")
	if v == pageView {
		t = v.labels(tableUnits{}, "")
	}
	for _, w := range workloads {
		if m := w.Mixture; m != nil {
			labels := []string{w.Name, fmt.Sprint(m.Experts), fmt.Sprint(m.Tokens), fmt.Sprint(m.Hidden),
				fmt.Sprint(m.TopK)}
			t.add(labels[:len(t.align)], func(l *list) { l.mixture(m) })
		}
	}
	return t
}

// trainingTable has a row for each training job, and one for each rank if all tables are printed.
func trainingTable(v view, all []report.Training) *figureTable {
	var times []float64
	for i := range all {
		times = append(times, all[i].Median(), all[i].Ideal)
	}
	t := v.labels(tableUnits{Time: units.Times.Of(times...)}, "lr", "training", "ranks")
	if v == pageView { // each time has its own unit
		t = v.labels(tableUnits{}, "lr", "Job", "Ranks")
	}
	for i := range all {
		j := &all[i]
		name := j.Name
		if v == pageView {
			name += ", " + j.Transport
		}
		t.add([]string{name, fmt.Sprint(j.Ranks)}, func(l *list) { l.training(j) })
		if v != fullView {
			continue
		}
		for _, r := range j.PerRank[:min(len(j.PerRank), rowsShown)] {
			t.add([]string{fmt.Sprintf("  rank %d (%s:%s)", r.Rank, r.Node, r.NIC)},
				func(l *list) { l.trainingRank(&r) })
		}
	}
	return t
}

// messageTable has a row for each step of messages. All but the brief table have one for each part.
func messageTable(v view, all []report.Messages) *figureTable {
	var times []float64
	for i := range all {
		times = append(times, all[i].Times.P50, all[i].Times.P99)
	}
	t := v.labels(tableUnits{Time: units.Times.Of(times...)}, "lllr", "messages", "over", "of", "count")
	if v == pageView {
		t = v.labels(t.in, "llr", "Step", "Of", "Count")
	}
	for i := range all {
		m := &all[i]
		labels := []string{m.Name, m.Transport, m.What, fmt.Sprint(m.Times.Count)}
		if v == pageView {
			labels = []string{m.Name + ", " + m.Transport, m.What, fmt.Sprint(m.Times.Count)}
		}
		t.add(labels, func(l *list) { l.messages(m) })
		for k := range m.Parts {
			if v == briefView {
				break
			}
			part := &m.Parts[k]
			labels := []string{"", "", part.What, fmt.Sprint(part.Times.Count)}
			t.add(labels[4-len(t.align):], func(l *list) { l.messagesPart(part) })
		}
	}
	return t
}

// slowdownTable has a row for each range of sizes.
func slowdownTable(all []report.Messages) *figureTable {
	t := fullView.labels(tableUnits{}, "lrr", "slowdown", "size up to\n(B)", "count")
	for i := range all {
		for _, s := range all[i].Slowdowns {
			t.add([]string{all[i].Name, fmt.Sprint(s.AtMost), fmt.Sprint(s.Count)},
				func(l *list) { l.percentiles(&s.Percentiles, inTimes) })
		}
	}
	return t
}
