// Package reporting shows reports of runs to people and machines: the tables of the terminal, one HTML page,
// and JUnit XML for CI systems. It lists the figures of a report. All of them are made from a report.Report
// alone, so that each can be made again from report.json.
package reporting

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"railbed/capture/report"
	"railbed/internal/plural"
	"railbed/internal/printable"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan/perf"
	"railbed/plan/schedule"
)

// TextOptions are the options of WriteText. The zero value is for a file.
type TextOptions struct {
	// Dir is the directory of the results, printed before file names.
	Dir string
	// NoPage is set if Dir has no page, because it could not be written. Then the text names neither the
	// page nor the command that reads the report. Default false.
	NoPage bool
	// Color marks verdicts with ANSI colours, for terminals.
	Color bool
	// Verbose adds the tables that the report leaves out for its length.
	Verbose bool
}

const (
	// valuesShown is how many numbers of one check are printed. report.json has all of them.
	valuesShown = 16
	// linksShown is how many links are printed, busiest first.
	linksShown = 8
	// summaryWidth is the width at which the text of a cell wraps, in characters.
	summaryWidth = 88
)

// textWriter prints the tables and keeps the first error.
type textWriter struct {
	w io.Writer
	o TextOptions
	// err is the first error of w; nothing is written after it.
	err error
}

// WriteText writes the report for a terminal. Without Verbose, the report of a run that passed has at most 25
// lines.
func WriteText(w io.Writer, r *report.Report, o TextOptions) error {
	o.Dir = printable.Line(o.Dir)
	t := &textWriter{w: w, o: o}
	t.brief(printableCopy(r))
	if t.err != nil {
		return fmt.Errorf("print report: %w", t.err)
	}
	return nil
}

// tables prints what the brief report leaves out.
func (t *textWriter) tables(r *report.Report) {
	t.printf("%s\n", r.File)
	if r.Testbed.Nodes > 0 {
		t.printf("%s; up in %s\n", Sizes(r.Testbed), units.Seconds(r.Testbed.BringUp))
	}
	t.printf("\n")
	t.steps(r.Steps)
	t.workloads(r)
	t.trainings(r.Trainings)
	t.messages(r.Messages)
	t.stacks(r.Stacks)
	t.routing(r.Routing)
	t.faults(r.Faults)
	t.checks(r.Checks)
	t.fidelity(r.Fidelity)
}

func (t *textWriter) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = io.WriteString(t.w, plural.Text(format, args...))
	}
}

func (t *textWriter) table(rows table.Writer) { t.printf("%s\n\n", rows.Render()) }

// newRows returns a table without lines, so that awk and grep can read it too.
func newRows(header ...any) table.Writer {
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	rows := table.NewWriter()
	rows.SetStyle(style)
	rows.SuppressTrailingSpaces()
	rows.AppendHeader(table.Row(header))
	return rows
}

func rightAligned(rows table.Writer, columns ...int) {
	var configs []table.ColumnConfig
	for _, column := range columns {
		configs = append(configs, table.ColumnConfig{Number: column, Align: text.AlignRight,
			AlignHeader: text.AlignRight})
	}
	rows.SetColumnConfigs(configs)
}

// paint colours a word by its meaning.
func (t *textWriter) paint(word string) string {
	if !t.o.Color {
		return word
	}
	color := "33" // yellow: not proved
	switch word {
	case string(verdict.Pass), string(report.Passed), report.Faithful:
		color = "32"
	case string(verdict.Fail), string(verdict.Aborted), string(report.Failed), report.Overloaded:
		color = "31"
	}
	return "\x1b[" + color + "m" + word + "\x1b[0m"
}

func (t *textWriter) steps(steps []report.Step) {
	if len(steps) == 0 {
		return
	}
	var times []float64
	for _, s := range steps {
		times = append(times, s.Start, s.End-s.Start)
	}
	in := units.Times.Of(times...)
	rows := newRows("step", in.Head("start"), in.Head("time"), "state")
	rightAligned(rows, 2, 3)
	for _, s := range steps {
		if s.State == report.Skipped {
			rows.AppendRow(table.Row{s.Name, "", "", t.paint(string(s.State))})
			continue
		}
		state := t.paint(string(s.State))
		if s.Times > 0 {
			state += plural.Text(", done %d times", s.Times)
		}
		rows.AppendRow(table.Row{s.Name, in.Text(s.Start), in.Text(s.End - s.Start), state})
	}
	t.table(rows)
}

// figures prints a table, unless it is empty.
func (t *textWriter) figures(all *figureTable) {
	if len(all.Rows) > 0 {
		t.table(all.text())
	}
}

// workloads prints the results of collectives, of trainings with gradients and of mixtures of experts.
func (t *textWriter) workloads(r *report.Report) {
	t.figures(workloadTable(fullView, r))
	for _, w := range r.Workloads {
		if len(w.Rows) > 0 {
			t.printf("%s, %s by %s over %s, %d ranks:\n%s\n", w.Name, w.Kind, w.Algorithm, w.Transport,
				w.Ranks, ncclTable(w))
		} else if strings.HasPrefix(w.Algorithm, schedule.Auto) {
			t.printf("%s: %s by %s\n\n", w.Name, w.Kind, w.Algorithm)
		}
		t.pace(w.Name, w.Pace)
	}
	t.figures(learningTable(fullView, r.Workloads))
	t.figures(mixtureTable(fullView, r.Workloads))
}

// pace prints the lateness of paced packets.
func (t *textWriter) pace(name string, p report.Pace) {
	if p.Packets == 0 {
		return
	}
	t.printf("%s: %d packets were paced; they left late by %s in the median, %s in the 99th percentile, %s "+
		"at most (the worst rank for each figure)\n\n", name, p.Packets, units.Took(p.P50), units.Took(p.P99),
		units.Took(p.Most))
}

// ncclTable returns the table in nccl-tests' columns of a workload with several sizes.
func ncclTable(w report.Workload) string {
	var text strings.Builder
	table := perf.NewTable(&text, perf.UnitOf(w.Rows)) // its writer cannot fail
	_ = table.Header()
	for i := range w.Rows {
		_ = table.Row(&w.Rows[i])
	}
	_ = table.Close(w.Name)
	return text.String()
}

func (t *textWriter) checks(checks []report.Check) {
	if len(checks) == 0 {
		return
	}
	rows := newRows("check", "verdict", "")
	rows.SetColumnConfigs([]table.ColumnConfig{{Number: 3, WidthMax: summaryWidth,
		WidthMaxEnforcer: text.WrapSoft}})
	for _, c := range checks {
		rows.AppendRow(table.Row{c.Name, t.paint(string(c.Verdict)), c.Summary})
	}
	t.table(rows)
	for _, c := range checks {
		t.values(c)
	}
}

// values prints the numbers that have a bound.
func (t *textWriter) values(c report.Check) {
	var values []report.Value
	for _, v := range c.Values {
		if v.Want != "" {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return
	}
	rows := newRows(c.Name, "measured", "", "wanted")
	rightAligned(rows, 2)
	for i, v := range values {
		if i == valuesShown {
			rows.AppendRow(table.Row{fmt.Sprintf("(%d more in report.json)", len(values)-i)})
			break
		}
		rows.AppendRow(table.Row{v.Name, units.Number(v.Value), v.Unit, v.Want})
	}
	t.table(rows)
}

func (t *textWriter) fidelity(f *report.Fidelity) {
	if f == nil {
		return
	}
	t.printf("fidelity: %s; cpu pressure %s (%s), %d packets lost by captures\n", t.paint(f.Verdict),
		units.Percent(f.Pressure), f.PressureSource, f.Dropped)
	for _, reason := range f.Reasons {
		t.printf("  %s\n", reason)
	}
	for _, u := range f.Undilated {
		if u.Accepted { // otherwise it is among the reasons
			t.printf("  %s (accepted)\n", u.Text())
		}
	}
	t.timing(f.Timing)
	t.printf("\n")
	t.kernels(f.Nodes)
	if len(f.Links) == 0 {
		return
	}
	t.links(f.Links)
	t.reasons(f.Links[:min(len(f.Links), linksShown)])
}

// links prints the rates of the busiest links.
func (t *textWriter) links(links []report.LinkRate) {
	rows := fullView.labels(unitsOfLinks(links), "l", "link")
	for i := range links[:min(len(links), linksShown)] {
		rows.add([]string{links[i].From + " > " + links[i].To}, func(l *list) { l.linkRate(&links[i]) })
	}
	if more := len(links) - linksShown; more > 0 {
		rows.Rows = append(rows.Rows, []string{fmt.Sprintf("(%d more in report.json)", more)})
	}
	t.figures(rows)
	if over := peaksOver(links); over != "" {
		t.printf("peak: the highest rate over %s\n\n", over)
	}
}

// peaksOver names the times over which the peaks of links were measured.
func peaksOver(links []report.LinkRate) string {
	least, most := 0.0, 0.0
	for _, l := range links {
		if l.PeakOver > 0 && (least == 0 || l.PeakOver < least) {
			least = l.PeakOver
		}
		most = max(most, l.PeakOver)
	}
	u := units.Times.Of(least, most)
	switch {
	case most == 0:
		return ""
	case u.Rounded(least) == u.Rounded(most):
		return u.Rounded(least)
	}
	return u.Rounded(least) + " (recorded links) to " + u.Rounded(most)
}

// reasons prints the drops, marks and trims of soft switches' ports, if there were any.
func (t *textWriter) reasons(links []report.LinkRate) {
	title := "by reason, at priority:\n"
	for _, l := range links {
		if did := didOf(l); did != "" {
			t.printf("%s  %s > %s: %s\n", title, l.From, l.To, did)
			title = ""
		}
	}
	if title == "" {
		t.printf("\n")
	}
}

// timing prints the soft switches' measurements of their own timing.
func (t *textWriter) timing(m *report.Timing) {
	if m == nil || m.Arrivals.Frames == 0 {
		return
	}
	t.printf("  lateness of %d frames watched%s: p50 %s, p99 %s, worst %s; smallest time of the links in "+
		"use %s; late in %d of %d windows\n", m.Arrivals.Frames, unmatched(m), units.Micros(m.Arrivals.P50),
		units.Micros(m.Arrivals.P99), units.Micros(m.Arrivals.Worst), unitText(m), m.Late, m.Windows)
	t.printf("  timing thread: on a CPU %s, waited for a CPU %s, %s; p99 of releases %s late\n",
		units.Percent(m.Ran), units.Percent(max(0, m.Waited)), rank(m), units.Micros(m.Released.P99))
}

func unmatched(m *report.Timing) string {
	if m.Unmatched == 0 {
		return ""
	}
	return fmt.Sprintf(" (unknown for %d more)", m.Unmatched)
}

// rank describes the scheduling priority of the timing thread.
func rank(m *report.Timing) string {
	if m.Priority > 0 {
		return fmt.Sprintf("real-time priority %d", m.Priority)
	}
	return fmt.Sprintf("nice %d", m.Nice)
}

// Sizes returns "8 nodes, 4 switches, 12 links, 8 ranks".
func Sizes(t report.Testbed) string {
	text := plural.Text("%d nodes, %d switches, %d links, %d ranks", t.Nodes, t.Switches, t.Links, t.Ranks)
	if t.Bypass > 0 {
		text += plural.Text("; %d nodes with nic-path bypass", t.Bypass)
	}
	return text
}

// holds describes the contents and losses of a recording.
func holds(c report.Capture) string {
	text := plural.Text("%d packets at %d taps, %d lost", c.Packets(), len(c.Taps), c.Dropped())
	var limited uint64
	for _, tap := range c.Taps {
		limited += tap.Limited
	}
	if limited > 0 {
		text += fmt.Sprintf(", %d over the size limit", limited)
	}
	if !c.Complete {
		text += ", not complete: the recording ended before the run"
	}
	return text
}

// ShellLine quotes a command for a POSIX shell.
func ShellLine(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = arg
		plain := strings.IndexFunc(arg, func(r rune) bool {
			return !strings.ContainsRune(
				"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-", r)
		}) < 0
		if !plain || arg == "" {
			quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// faults prints the faults and the packets that they hit.
func (t *textWriter) faults(faults []report.Fault) {
	if len(faults) == 0 {
		return
	}
	var late []float64
	for _, f := range faults {
		late = append(late, f.Late)
	}
	in := units.Times.Of(late...)
	rows := newRows("fault", "at", "does", in.Head("late"), "matched", "hit", "where")
	rightAligned(rows, 4, 5, 6)
	for _, f := range faults {
		rows.AppendRow([]any{f.Name, f.Where, f.Does, in.Text(f.Late), f.Matched, f.Hit, f.At()})
	}
	t.table(rows)
}

// kernels prints the nodes whose kernels lost packets. report.json and the page have all nodes.
func (t *textWriter) kernels(nodes []report.NodeKernel) {
	var times []float64
	for _, n := range nodes {
		times = append(times, n.Ran, n.Waited)
	}
	in := units.Times.Of(times...)
	rows := newRows("node", "packets in", "dropped by its kernel", in.Head("programs ran"), in.Head("waited"),
		"denied")
	rightAligned(rows, 2, 4, 5, 6)
	lost := 0
	for _, n := range nodes {
		if n.Lost() == 0 {
			continue
		}
		if lost++; lost <= report.NodesShown {
			rows.AppendRow([]any{n.Node, n.Received, n.Reasons(), in.Text(n.Ran), in.Text(n.Waited),
				units.Percent(n.Denied())})
		}
	}
	if lost > report.NodesShown {
		rows.AppendRow([]any{fmt.Sprintf("(%d more in report.json)", lost-report.NodesShown)})
	}
	if lost > 0 {
		t.table(rows)
	}
}

// messages prints a line for each step, and a line for each range of sizes.
func (t *textWriter) messages(all []report.Messages) {
	t.figures(messageTable(fullView, all))
	t.figures(slowdownTable(all))
	for i := range all {
		t.pace(all[i].Name, all[i].Pace)
	}
}

// didOf describes the drops, marks and trims of a port.
func didOf(l report.LinkRate) string {
	var parts []string
	for _, one := range []struct {
		what   string
		counts map[string][8]uint64
	}{{"dropped: ", l.Drops}, {"marked: ", l.Marks}, {"trimmed: ", l.Trims}} {
		if len(one.counts) > 0 {
			parts = append(parts, one.what+report.ByReason(one.counts))
		}
	}
	return strings.Join(parts, "; ")
}

// routing prints the reactions of the daemons and the daemons that ended.
func (t *textWriter) routing(r *report.Routing) {
	if r == nil {
		return
	}
	t.printf("routers found all routes in %s of the bring-up\n\n", units.Seconds(r.Converged))
	t.figures(routingTable(r))
}
