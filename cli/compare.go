package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"railbed/internal/verdict"
	"railbed/reporting/compare"
)

// compareRuns compares two sides of runs.
func (a *app) compareRuns(ctx context.Context, base, changed []string, page string, o compare.Options) error {
	c, err := compare.Runs(ctx, base, changed, o)
	if err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	if page != "" {
		if err := writeFile(page, 0, 0o644, c.WriteHTML); err != nil {
			return err
		}
	}
	if a.output == "json" {
		return a.printJSON(c)
	}
	a.printComparison(c)
	a.show("%s", c.Summary())
	if page != "" {
		a.show("page: %s", page)
	}
	return nil
}

func (a *app) printComparison(c *compare.Comparison) {
	rows := a.newTable("side", "run", "verdict", "fidelity", "file", "started")
	for _, side := range []struct {
		name string
		runs []compare.Run
	}{{"base", c.Base}, {"new", c.New}} {
		for _, r := range side.runs {
			rows.AppendRow([]any{side.name, r.Name, string(r.Verdict), r.Fidelity, r.File,
				r.Started.Format(time.DateTime)})
		}
	}
	a.render(rows)
	for _, note := range c.Notes {
		a.show("note: %s", note)
	}
	fmt.Fprintln(a.stdout)
	switch {
	case !c.PlanCompared:
		a.show("plan: not compared")
	case len(c.Plan) == 0:
		a.show("plan: no change")
	}
	changes, more := c.Changes()
	for _, change := range changes {
		a.show("plan: %s", change)
	}
	if more > 0 {
		a.show("(%d more changes with -o json)", more)
	}
	fmt.Fprintln(a.stdout)
	for _, t := range c.FactTables() {
		a.printFacts(&t)
	}
	for _, s := range c.Sections() {
		a.printSection(c, &s)
	}
}

// render prints a table and an empty line.
func (a *app) render(rows printableTable) {
	rows.Render()
	fmt.Fprintln(a.stdout)
}

func (a *app) printFacts(t *compare.FactTable) {
	if len(t.Facts) == 0 {
		return
	}
	rows := a.newTable(t.Title, "base", "new", "")
	for i := range t.Facts {
		f := &t.Facts[i]
		differs := ""
		if !f.Same() {
			differs = "differs"
		}
		rows.AppendRow([]any{f.Title(), compare.Words(f.Base), compare.Words(f.New), differs})
	}
	if t.More > 0 {
		rows.AppendRow([]any{fmt.Sprintf("(%d more with -o json)", t.More)})
	}
	a.render(rows)
}

func (a *app) printSection(c *compare.Comparison, s *compare.Section) {
	if len(s.Numbers) > 0 {
		header := []any{s.Title, "", "better", "base", "new", "difference"}
		if c.Several() {
			header = append(header, "test")
		}
		rows := a.newTable(header...)
		for _, n := range s.Numbers {
			row := []any{n.Of, n.What, string(n.Better), n.Texts(n.Base), n.Texts(n.New)}
			if c.Several() {
				row = append(row, n.Told(), n.Test())
			} else {
				row = append(row, n.Change())
			}
			rows.AppendRow(row)
		}
		rows.Render()
	}
	if rest := s.Rest(); rest != "" {
		a.show("%s: %s", s.Title, rest)
	}
	fmt.Fprintln(a.stdout)
}

// sidesOf splits the arguments of "railbed report" into two sides: at the argument that follows -- or, of two
// arguments, one each. As elsewhere, -- before all arguments only ends the flags.
func sidesOf(args []string, dash int) (base, changed []string, err error) {
	switch {
	case dash <= 0 && len(args) == 2:
		return args[:1], args[1:], nil
	case dash <= 0:
		return nil, nil,
			usage("%d runs: want -- between base runs and new runs, as in: railbed report %s -- %s",
				len(args), strings.Join(args[:len(args)-1], " "), args[len(args)-1])
	case dash == len(args):
		return nil, nil, usage("no run follows --: want base runs before it and new runs after it")
	}
	for _, arg := range args[dash:] {
		if strings.HasPrefix(arg, "-") {
			return nil, nil, usage("%s follows --: want runs there, and flags before it", arg)
		}
	}
	return args[:dash], args[dash:], nil
}
