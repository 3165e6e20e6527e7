package reporting

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"railbed/capture/report"
	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/internal/verdict"
)

const (
	// briefLines bounds the report of a run that passed, so that a terminal shows all of it.
	briefLines = 25
	// briefWidth is the width of a terminal, for the lines that it wraps.
	briefWidth = 100
	// resultLines is the least number of lines for the tables of results.
	resultLines = 9
	// remarksShown is the most numbers near their bounds that are printed, and the most notes.
	remarksShown = 3
	// recordingsShown is the most recordings that are printed.
	recordingsShown = 2
	// detailsShown is the most details that are printed of a check that did not pass.
	detailsShown = 6
	// headlinesShown is how many figures are in the first line.
	headlinesShown = 3
)

// brief prints the report that fits a screen: the verdict and the results, then failures and numbers near
// their bounds, then the places of the other results. With Verbose all tables follow, and it leaves nothing
// out.
func (t *textWriter) brief(r *report.Report) {
	head, tail := t.head(r), t.tail(r)
	room := briefLines - height(head) - height(tail)
	least := min(resultLines, len(t.results(r, math.MaxInt)))
	shown := remarksShown
	for shown > 0 && height(t.remarks(r, shown)) > room-least {
		shown--
	}
	remarks := t.remarks(r, shown)
	tables := t.results(r, max(room-height(remarks), least))
	t.lines(head)
	t.lines(tables)
	t.lines(remarks)
	if t.o.Verbose {
		t.tables(r)
	}
	t.lines(tail)
}

// height returns the number of rows of a terminal that lines need.
func height(lines []string) (rows int) {
	for _, line := range lines {
		rows += 1 + max(0, len([]rune(line))-1)/briefWidth
	}
	return rows
}

func (t *textWriter) lines(lines []string) {
	for _, line := range lines {
		t.printf("%s\n", line)
	}
}

// head returns the verdict with its reason, or with the figures of a run that passed.
func (t *textWriter) head(r *report.Report) (lines []string) {
	first := t.paint(string(r.Verdict)) + ": " + r.Name + ": "
	if r.Reason != "" {
		lines, first = append(lines, strings.Split(first+r.Reason, "\n")...), ""
	}
	if figures := headline(r); figures != "" {
		lines = append(lines, first+figures)
	}
	if u := r.Unsupported; u != nil && u.Remedy != "" {
		lines = append(lines, "remedy: "+u.Remedy)
	}
	if r.Dilation > 1 {
		lines = append(lines, fmt.Sprintf("times and rates are of the testbed's time, %d times slower than "+
			"real time", r.Dilation))
	}
	return append(lines, "")
}

// headline returns the figures of the first workloads, and how many checks passed.
func headline(r *report.Report) string {
	var parts, bandwidths, iterations, latencies []string
	for _, w := range r.Workloads {
		bandwidths = append(bandwidths, w.Name+" "+units.BitRate(w.BusBWBits()))
	}
	for i := range r.Trainings {
		iterations = append(iterations, r.Trainings[i].Name+" "+units.Seconds(r.Trainings[i].Median()))
	}
	for _, m := range r.Messages {
		latencies = append(latencies, m.Name+" "+units.Seconds(m.Times.P99))
	}
	for _, one := range []struct {
		what string
		all  []string
	}{{"busbw of ", bandwidths}, {"median iteration of ", iterations}, {"p99 of ", latencies}} {
		if more := len(one.all) - headlinesShown; more > 0 {
			one.all = append(one.all[:headlinesShown], fmt.Sprintf("%d more", more))
		}
		if len(one.all) > 0 {
			parts = append(parts, one.what+strings.Join(one.all, ", "))
		}
	}
	passed, of, things := 0, len(r.Checks), "checks"
	for _, c := range r.Checks {
		if c.Verdict == verdict.Pass {
			passed++
		}
	}
	if of == 0 {
		of, things = len(r.Steps), "steps"
		for _, s := range r.Steps {
			if s.State == report.Passed {
				passed++
			}
		}
	}
	if of > 0 {
		parts = append(parts, plural.Text("%d of %d "+things+" passed", passed, of))
	}
	return strings.Join(parts, "; ")
}

// resultTable is a table of results, below a title if it needs one.
type resultTable struct {
	title string
	rows  table.Writer
}

// results returns tables with the results of workloads, training jobs, messages and stacks, in as many lines
// as there is room. A verbose report has tables of its own for all but collectives.
func (t *textWriter) results(r *report.Report, room int) (lines []string) {
	tables := []resultTable{{"", workloadTable(briefView, r).text()}}
	if t.o.Verbose {
		room = math.MaxInt
	} else {
		tables = append(tables, resultTable{"", trainingTable(briefView, r.Trainings).text()},
			resultTable{"", messageTable(briefView, r.Messages).text()})
		for i := range r.Stacks {
			tables = append(tables, resultTable{r.Stacks[i].Title(), stackRows(r.Stacks[i])})
		}
	}
	tables = slices.DeleteFunc(tables, func(t resultTable) bool { return t.rows.Length() == 0 })
	for i, one := range tables {
		share := room / (len(tables) - i) // the other tables need lines too
		if i == 0 {
			share = max(share, min(room, resultLines-1))
		}
		all := one.render(share)
		lines = append(lines, all...)
		room -= len(all)
	}
	return lines
}

// render returns the table in at most as many lines, the last of them empty. It returns none if there is no
// room for a row.
func (r *resultTable) render(room int) []string {
	lines := append(strings.Split(r.rows.Render(), "\n"), "")
	if r.title != "" {
		lines = append([]string{r.title}, lines...)
	}
	rows := r.rows.Length()
	if len(lines) <= room {
		return lines
	}
	heads := len(lines) - 1 - rows
	kept := room - heads - 2 // a line says that there are more rows, and one is empty
	if kept < 1 {
		return nil
	}
	return append(lines[:heads+kept], fmt.Sprintf("(%d more with -v)", rows-kept), "")
}

// remarks returns the steps and checks that did not pass, the numbers near their bounds, and the notes.
// Of the numbers and of the notes, it returns as many as are shown.
func (t *textWriter) remarks(r *report.Report, shown int) (lines []string) {
	for _, s := range r.Steps {
		if s.State == report.Failed && !strings.Contains(r.Reason, s.Error) {
			lines = append(lines, fmt.Sprintf("%s: step %s: %s", s.Where, s.Name, s.Error))
		}
	}
	said := map[string]bool{}
	for i := range r.Checks {
		c := &r.Checks[i]
		same := alike(r, c)
		switch {
		case c.Verdict == verdict.Pass:
		case same < 2 || t.o.Verbose:
			lines = append(lines, t.unproved(c)...)
		case !said[string(c.Verdict)+c.Summary]:
			said[string(c.Verdict)+c.Summary] = true
			lines = append(lines, fmt.Sprintf("%s: check %s and %s: %s: %s", c.Where, c.Name,
				plural.Count(same-1, "others"), t.paint(string(c.Verdict)), c.Summary))
		}
	}
	var near []string
	for _, c := range r.Checks {
		for _, claim := range c.Near {
			near = append(near, "within 10 % of its bound: "+c.Name+": "+claim)
		}
	}
	lines = append(append(lines, t.some(near, shown)...), t.some(notesOf(r), shown)...)
	if len(lines) > 0 {
		lines = append(lines, "")
	}
	return lines
}

// alike counts the checks with the verdict and the summary of a check, if it has no details.
func alike(r *report.Report, c *report.Check) (count int) {
	for i := range r.Checks {
		o := &r.Checks[i]
		if len(c.Details)+len(o.Details) == 0 && c.Verdict == o.Verdict && c.Summary == o.Summary {
			count++
		}
	}
	return count
}

// some returns the first remarks, or all of them in a verbose report.
func (t *textWriter) some(remarks []string, shown int) []string {
	if more := len(remarks) - shown; more > 0 && !t.o.Verbose {
		return append(remarks[:shown:shown], fmt.Sprintf("(%d more with -v)", more))
	}
	return remarks
}

// unproved returns the findings of a check that did not pass, and the commands that show its evidence.
func (t *textWriter) unproved(c *report.Check) []string {
	lines := []string{fmt.Sprintf("%s: check %s: %s: %s", c.Where, c.Name, t.paint(string(c.Verdict)),
		c.Summary)}
	details := c.Details
	if more := len(details) - detailsShown; more > 1 && !t.o.Verbose {
		details = append(details[:detailsShown:detailsShown], plural.Count(more, "more lines")+" with -v")
	}
	for _, detail := range details {
		lines = append(lines, "  "+detail)
	}
	if c.Excerpt != "" {
		lines = append(lines, "  these packets and their neighbours: "+filepath.Join(t.o.Dir, c.Excerpt))
	}
	for _, command := range c.Commands {
		lines = append(lines, "  look: "+ShellLine(command))
	}
	return lines
}

// tail returns the fidelity, and the places of the other results.
func (t *textWriter) tail(r *report.Report) (lines []string) {
	if f := r.Fidelity; f != nil && !t.o.Verbose {
		line := "fidelity: " + t.paint(f.Verdict)
		if f.Cause != "" {
			line += ": " + f.Cause
		}
		if len(f.Reasons) > 0 {
			line += ": " + f.Reasons[0]
		}
		if more := len(f.Reasons) - 1; more > 0 {
			line += plural.Text(" (and %d more reasons)", more)
		}
		lines = append(lines, line)
	}
	for i, c := range r.Captures {
		if i == recordingsShown && len(r.Captures) > recordingsShown+1 && !t.o.Verbose {
			lines = append(lines, fmt.Sprintf("          (%d more recordings with -v)", len(r.Captures)-i))
			break
		}
		files := ""
		if c.Files > 1 {
			files = " and " + plural.Count(c.Files-1, "more files")
		}
		lines = append(lines, fmt.Sprintf("packets:  %s%s (%s)", filepath.Join(t.o.Dir, c.File), files,
			holds(c)))
	}
	if t.o.Dir == "" {
		return append(lines, t.again(r)...)
	}
	if !t.o.NoPage {
		lines = append(lines, "report:   "+filepath.Join(t.o.Dir, report.HTMLFile))
	}
	if !t.o.Verbose && !t.o.NoPage {
		lines = append(lines, "tables:   "+ShellLine([]string{"railbed", "report", "-v", t.o.Dir}))
	}
	if len(r.Captures) > 0 {
		lines = append(lines, "why:      "+ShellLine([]string{"railbed", "why", t.o.Dir}))
	}
	return append(lines, t.again(r)...)
}

// again returns the next steps after a run that did not pass.
func (t *textWriter) again(r *report.Report) (lines []string) {
	if r.Verdict == verdict.Overloaded && (r.Fidelity == nil || r.Fidelity.Remedy == "") {
		lines = append(lines, "mend:     give the emulation more time with dilation:, or free processors of "+
			"this host")
	}
	if len(r.Repeat) > 0 && r.Verdict != verdict.Pass {
		lines = append(lines, "repeat:   "+ShellLine(r.Repeat))
	}
	return lines
}
