package cli

import (
	"context"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"

	"railbed/internal/units"
	"railbed/scenarios/runner"
)

// printLoad prints the load of the collectives of a file on this machine.
func (a *app) printLoad(ctx context.Context, o runner.Options) error {
	done := a.followRun(&o, "taking "+o.Plan.Name+" down")
	show := o.Progress
	o.Progress = func(u runner.Update) {
		if u.Line == "" { // the lines of a run would only repeat themselves
			show(u)
		}
	}
	trials, err := runner.Trials(ctx, o)
	done()
	switch refused := refusedRun(o.Plan.Name, err); {
	case refused != nil:
		return refused
	case err != nil:
		return err
	case a.output == "json":
		return a.printJSON(trials)
	case len(trials) == 0:
		return fmt.Errorf("%s has no collective whose ranks send to each other", o.Path)
	}
	rows := a.newTable("workload", "over", "at the links' rates", "this machine carries", "load", "expected")
	var advice []string
	for i := range trials {
		t, expected := &trials[i], "keeps up"
		if !t.KeepsUp() {
			expected = "late"
			if t.Load() > 1 {
				expected = "bound by the processors"
			}
			rates, dilation := t.Advice()
			advice = append(advice, fmt.Sprintf("%s: for a load of 60%% divide the rates of the links by "+
				"%.2g or more, or set dilation: %d", t.Name, 1/rates, dilation))
		}
		rows.AppendRow(table.Row{t.Name, t.Transport, units.BitRate(t.Asked), units.BitRate(t.Carried),
			fmt.Sprintf("%.0f%%", 100*t.Load()), expected})
	}
	rows.Render()
	for _, line := range advice {
		fmt.Fprintln(a.stdout, line)
	}
	return nil
}
