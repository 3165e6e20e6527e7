package reporting

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"railbed/capture/report"
)

// A stack's table is the program's own table. If there is a run to compare with, it has one more
// column: this run's speed divided by the other's, whether more or less of the figure is better.
func TestStacksAreShown(t *testing.T) {
	row := func(key string, value float64) report.StackRow {
		return report.StackRow{Cells: []string{key, "7"}, Key: key, Value: value}
	}
	clean := report.Stack{Name: "clean", Kind: "redis", Version: "7.0", Ranks: 2, Columns: []string{"test",
		"rps"},
		Rows: []report.StackRow{row("SET", 1000), row("GET", 0)}}
	lossy := report.Stack{Name: "lossy", Kind: "redis", Version: "7.0", Ranks: 2, Columns: clean.Columns,
		Figures: []string{"rps", "gone"}, Rows: []report.StackRow{row("SET", 250), row("GET", 5), row("DEL",
			5)},
		Beside: "clean"}
	lossy.Rows[0].Cells[1], lossy.Rows[1].Cells[1] = "3.5", "-"
	lossy.Compare(&clean)
	slow := report.Stack{Name: "slow", Kind: "openmpi", Version: "4.1", Test: "all-reduce", Ranks: 2,
		Less:    true,
		Columns: []string{"# Size", "us"}, Rows: []report.StackRow{row("SET", 4000)}, Beside: "clean"}
	slow.Compare(&clean)
	r := &report.Report{Stacks: []report.Stack{clean, lossy, slow}}
	const want = `clean: redis 7.0 of 2 ranks
test  rps
SET     7
GET     7

lossy: redis 7.0 of 2 ranks
test  rps  speed of clean's
SET   3.5               25%
GET     -                 -
DEL     7                 -

lossy beside clean  figure  clean  lossy  times
SET                 rps         7    3.5   0.50

slow: openmpi 4.1 all-reduce of 2 ranks
# Size  us  speed of clean's
SET      7               25%
`
	var text, page bytes.Buffer
	err := WriteText(&text, r, TextOptions{Verbose: true})
	if err != nil || !strings.Contains(text.String(), want) {
		t.Errorf("got %v\n%s\nwant\n%s", err, &text, want)
	}
	if err := WriteHTML(&page, r, HTMLOptions{}); err != nil ||
		strings.Count(page.String(), `<td class="n">25%</td>`) != 2 {
		t.Errorf("the page, %v, has not the two parts of 25%%:\n%s", err, &page)
	}
}

// Many rows have one cost, of their medians.
func TestCostsOfManyRows(t *testing.T) {
	var clean, lossy report.Stack
	for i, time := range []string{"10", "30", "20", "50", "40"} {
		key := string(rune('a' + i))
		clean.Rows = append(clean.Rows, report.StackRow{Key: key, Cells: []string{key, time}})
		lossy.Rows = append(lossy.Rows, report.StackRow{Key: key, Cells: []string{key, time + "0"}})
	}
	lossy.Columns, lossy.Figures = []string{"Step", "Time(ms)"}, []string{"Time(ms)"}
	lossy.Compare(&clean)
	if want := []string{"median of 5", "Time(ms)", "30", "300", "10.00"}; len(lossy.Costs) != 1 ||
		!slices.Equal(lossy.Costs[0].Cells(), want) {
		t.Errorf("costs %+v, want %q", lossy.Costs, want)
	}
}
