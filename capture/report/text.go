package report

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"railbed/internal/printable"
	"railbed/internal/verdict"
	"railbed/plan/perf"
	"railbed/plan/schedule"
)

// TextOptions are the options of WriteText. The zero value is for a file.
type TextOptions struct {
	// Dir is the directory of the results, printed before file names.
	Dir string
	// Color marks verdicts with ANSI colours, for terminals.
	Color bool
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

// WriteText writes the tables of the terminal.
func (r *Report) WriteText(w io.Writer, o TextOptions) error {
	r = r.printable()
	o.Dir = printable.Line(o.Dir)
	t := &textWriter{w: w, o: o}
	t.head(r)
	t.steps(r.Steps)
	t.workloads(r.Workloads)
	t.learned(r.Workloads)
	t.mixtures(r.Workloads)
	t.trainings(r.Trainings)
	t.messages(r.Messages)
	t.stacks(r.Stacks)
	t.containers(r.Containers)
	if r.EventsDropped > 0 {
		t.printf("%d events of the testbed were not kept; railbed events --follow has all\n\n",
			r.EventsDropped)
	}
	t.routing(r.Routing)
	t.faults(r.Faults)
	t.checks(r.Checks)
	t.fidelity(r.Fidelity)
	t.files(r)
	t.tail(r)
	if t.err != nil {
		return fmt.Errorf("print report: %w", t.err)
	}
	return nil
}

func (t *textWriter) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, args...)
	}
}

func (t *textWriter) containers(lines []string) {
	for _, line := range lines {
		t.printf("container %s\n", line)
	}
	if len(lines) > 0 {
		t.printf("\n")
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
	case string(verdict.Pass), string(Passed), Faithful:
		color = "32"
	case string(verdict.Fail), string(verdict.Aborted), string(Failed), Overloaded:
		color = "31"
	}
	return "\x1b[" + color + "m" + word + "\x1b[0m"
}

func (t *textWriter) head(r *Report) {
	t.printf("%s: %s\n", r.Name, r.File)
	if r.Testbed.Nodes > 0 {
		t.printf("%s; up in %s\n", r.Testbed.Sizes(), seconds(r.Testbed.BringUp))
		if r.Dilation > 1 {
			t.printf("times and rates are of the testbed's time, %d times slower than real time\n",
				r.Dilation)
		}
	}
	t.printf("\n")
}

func (t *textWriter) steps(steps []Step) {
	if len(steps) == 0 {
		return
	}
	rows := newRows("step", "start", "time", "state")
	rightAligned(rows, 2, 3)
	for _, s := range steps {
		if s.State == Skipped {
			rows.AppendRow(table.Row{s.Name, "", "", t.paint(string(s.State))})
			continue
		}
		state := t.paint(string(s.State))
		if s.Times > 0 {
			state += fmt.Sprintf(", done %d times", s.Times)
		}
		rows.AppendRow(table.Row{s.Name, seconds(s.Start), seconds(s.End - s.Start), state})
	}
	t.table(rows)
	for _, s := range steps {
		if s.State == Failed {
			t.printf("%s: step %s: %s\n\n", s.Where, s.Name, s.Error)
		}
	}
}

// workloads prints the columns of nccl-tests (all_reduce_perf), with the name first.
func (t *textWriter) workloads(workloads []Workload) {
	if len(workloads) == 0 {
		return
	}
	rows := newRows("workload", "size\n(B)", "count\n(elements)", "type", "redop", "time\n(us)",
		"algbw\n(GB/s)", "busbw\n(GB/s)", "#wrong")
	rightAligned(rows, 2, 3, 6, 7, 8, 9)
	for _, w := range workloads {
		rows.AppendRow(table.Row{w.Name, w.Bytes, w.Count, w.Type, w.RedOp, ncclNumber(w.Time),
			fmt.Sprintf("%.4f", w.AlgBW), fmt.Sprintf("%.4f", w.BusBW), w.Wrong})
	}
	t.table(rows)
	for _, w := range workloads {
		if len(w.Rows) > 0 {
			t.printf("%s, %s by %s over %s, %d ranks:\n%s\n", w.Name, w.Kind, w.Algorithm, w.Transport,
				w.Ranks, ncclTable(w))
		} else if strings.HasPrefix(w.Algorithm, schedule.Auto) {
			t.printf("%s: %s by %s\n\n", w.Name, w.Kind, w.Algorithm)
		}
		t.conduct(w.Name, &w.Conduct)
	}
}

// Lost returns, for people, the number of bytes that were left out. It is empty if no byte may be
// left out.
func (l LeftOut) Lost() string {
	if l.MayMiss == 0 {
		return ""
	}
	return fmt.Sprintf("%d bytes were lost and left out; up to %d may be", l.Missing, l.MayMiss)
}

// leftOut prints Lost if it is not empty.
func (t *textWriter) leftOut(name string, l LeftOut) {
	if lost := l.Lost(); lost != "" {
		t.printf("%s: %s\n\n", name, lost)
	}
}

func (t *textWriter) conduct(name string, c *Conduct) {
	for _, note := range c.Notes() {
		t.printf("%s: %s\n\n", name, note)
	}
	if p := c.Pace; p.Packets > 0 {
		t.printf("%s: %d packets were paced; they left late by %v in the median, %v in the 99th "+
			"percentile, %v at most (the worst rank for each figure)\n\n",
			name, p.Packets, p.P50, p.P99, p.Most.Round(time.Microsecond))
	}
}

// ncclTable returns the table in nccl-tests' format of a workload with several sizes.
func ncclTable(w Workload) string {
	var text strings.Builder
	table := perf.NewTable(&text) // its writer cannot fail
	_ = table.Header()
	for i := range w.Rows {
		_ = table.Row(&w.Rows[i])
	}
	_ = table.Close(w.Name)
	return text.String()
}

// ncclNumber formats a time as nccl-tests does, with as many digits as fit.
func ncclNumber(us float64) string {
	switch {
	case us >= 10000:
		return strconv.FormatFloat(us, 'f', 0, 64)
	case us >= 100:
		return strconv.FormatFloat(us, 'f', 1, 64)
	}
	return strconv.FormatFloat(us, 'f', 2, 64)
}

func (t *textWriter) checks(checks []Check) {
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
		if c.Verdict != verdict.Pass {
			t.printf("%s: check %s: %s\n", c.Where, c.Name, c.Verdict)
			for _, detail := range c.Details {
				t.printf("  %s\n", detail)
			}
			if c.Excerpt != "" {
				t.printf("  these packets and their neighbours: %s\n", c.Excerpt)
			}
			t.printf("\n")
		}
	}
	for _, c := range checks {
		t.values(c)
	}
}

// values prints the numbers that have a bound.
func (t *textWriter) values(c Check) {
	var values []Value
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
		rows.AppendRow(table.Row{v.Name, number(v.Value), v.Unit, v.Want})
	}
	t.table(rows)
}

// number formats large and whole numbers without a fraction, and others with four significant
// digits.
func number(v float64) string {
	if v == math.Trunc(v) || math.Abs(v) >= 1e4 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

func (t *textWriter) fidelity(f *Fidelity) {
	if f == nil {
		return
	}
	t.printf("fidelity: %s; cpu pressure %s (%s), %s lost by captures\n", t.paint(f.Verdict),
		percent(f.Pressure), f.PressureSource, count(f.Dropped, "packet"))
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
	rows := newRows("link", "asked", "achieved", "peak", "busy", "packets", "dropped")
	rightAligned(rows, 2, 3, 4, 5, 6, 7)
	for i, l := range f.Links {
		if i == linksShown {
			rows.AppendRow(table.Row{fmt.Sprintf("(%d more in report.json)", len(f.Links)-i)})
			break
		}
		rows.AppendRow(table.Row{l.From + " > " + l.To, Bits(float64(l.Asked)), achieved(l),
			Bits(float64(l.Peak)), seconds(l.Busy), l.Packets, l.Dropped})
	}
	t.table(rows)
	t.reasons(f.Links[:min(len(f.Links), linksShown)])
}

// reasons prints the drops, marks and trims of soft switches' ports, if there were any.
func (t *textWriter) reasons(links []LinkRate) {
	title := "by reason, at priority:\n"
	for _, l := range links {
		if did := l.did(); did != "" {
			t.printf("%s  %s > %s: %s\n", title, l.From, l.To, did)
			title = ""
		}
	}
	if title == "" {
		t.printf("\n")
	}
}

// timing prints the soft switches' measurements of their own timing.
func (t *textWriter) timing(m *Timing) {
	if m == nil || m.Arrivals.Frames == 0 {
		return
	}
	t.printf("  lateness of %s watched%s: p50 %s, p99 %s, worst %s; smallest time of the links in use %s; "+
		"late in %d of %s\n",
		count(m.Arrivals.Frames, "frame"), unmatched(m), Micros(m.Arrivals.P50), Micros(m.Arrivals.P99),
		Micros(m.Arrivals.Worst),
		m.unit(), m.Late, count(m.Windows, "window"))
	t.printf("  timing thread: on a CPU %s, waited for a CPU %s, %s; p99 of releases %s late\n",
		percent(m.Ran), percent(max(0, m.Waited)), rank(m), Micros(m.Released.P99))
}

func unmatched(m *Timing) string {
	if m.Unmatched == 0 {
		return ""
	}
	return fmt.Sprintf(" (unknown for %d more)", m.Unmatched)
}

// rank describes the scheduling priority of the timing thread.
func rank(m *Timing) string {
	if m.Priority > 0 {
		return fmt.Sprintf("real-time priority %d", m.Priority)
	}
	return fmt.Sprintf("nice %d", m.Nice)
}

// Micros formats microseconds in a few characters.
func Micros(us float64) string { return seconds(us / 1e6) }

func achieved(l LinkRate) string {
	if l.Busy == 0 {
		return "-"
	}
	return Bits(float64(l.Achieved))
}

func (t *textWriter) files(r *Report) {
	for _, c := range r.Captures {
		files := ""
		if c.Files > 1 {
			files = " and " + count(c.Files-1, "more file")
		}
		t.printf("packets: %s%s (%s)\n", filepath.Join(t.o.Dir, c.File), files, c.holds())
	}
	if t.o.Dir != "" {
		t.printf("report:  %s\n", filepath.Join(t.o.Dir, HTMLFile))
	}
	if len(r.Repeat) > 0 && r.Verdict != verdict.Pass {
		t.printf("repeat:  %s\n", ShellLine(r.Repeat))
	}
}

func (t *textWriter) tail(r *Report) {
	if r.Reason == "" {
		t.printf("%s\n", t.paint(string(r.Verdict)))
		return
	}
	t.printf("%s: %s\n", t.paint(string(r.Verdict)), r.Reason)
	if u := r.Unsupported; u != nil && u.Remedy != "" {
		t.printf("remedy: %s\n", u.Remedy)
	}
}

// Bits formats a rate with four significant digits and its unit.
func Bits(bitsPerSecond float64) string {
	for _, unit := range []struct {
		name  string
		scale float64
	}{{"Tbit/s", 1e12}, {"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}} {
		if bitsPerSecond >= unit.scale {
			return strconv.FormatFloat(bitsPerSecond/unit.scale, 'g', 4, 64) + " " + unit.name
		}
	}
	return strconv.FormatFloat(bitsPerSecond, 'g', 4, 64) + " bit/s"
}

// count returns "1 node", "2 nodes", "2 switches".
func count[N int | uint64](n N, of string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(of, "ch"):
		of += "es"
	default:
		of += "s"
	}
	return fmt.Sprintf("%d %s", n, of)
}

// Sizes returns "8 nodes, 4 switches, 12 links, 8 ranks".
func (t Testbed) Sizes() string {
	return strings.Join([]string{count(t.Nodes, "node"), count(t.Switches, "switch"), count(t.Links, "link"),
		count(t.Ranks, "rank")}, ", ")
}

// holds describes the contents and losses of a recording.
func (c Capture) holds() string {
	text := fmt.Sprintf("%s at %s, %d lost", count(c.Packets(), "packet"), count(len(c.Taps), "tap"),
		c.Dropped())
	var limited uint64
	for _, tap := range c.Taps {
		limited += tap.Limited
	}
	if limited > 0 {
		text += fmt.Sprintf(", %d over the size limit", limited)
	}
	return text
}

func percent(share float64) string { return strconv.FormatFloat(share*100, 'f', 1, 64) + "%" }

// seconds formats a duration in a few characters.
func seconds(s float64) string { return Took(time.Duration(s * float64(time.Second))) }

// Took formats a measured duration with three significant digits. It leaves out fractions of a
// microsecond, and from a minute on fractions of a second, because they are noise.
func Took(d time.Duration) string {
	unit := time.Duration(1)
	switch magnitude := d.Abs(); {
	case magnitude >= time.Minute:
		unit = time.Second
	case magnitude >= time.Microsecond:
		for unit = time.Microsecond; unit*1000 <= magnitude; {
			unit *= 10
		}
	}
	return strings.Replace(d.Round(unit).String(), "µs", "us", 1)
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
