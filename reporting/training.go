package reporting

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"railbed/capture/report"
	"railbed/internal/units"
)

// trainingVolume is the payload of a job's ranks in one kind of group in each iteration.
type trainingVolume struct {
	Group       string
	Ranks       int // that send in the group
	Least, Most uint64
	Exposed     float64 // mean over all ranks of the job
	Sent        string  // whether the ranks' own counts agree
}

// volumesOf returns the volumes of a job, by group.
func volumesOf(t *report.Training) (all []trainingVolume) {
	runs := uint64(max(1, t.Warmup+len(t.Iterations)))
	for _, r := range t.PerRank {
		for _, g := range r.Groups {
			i := slices.IndexFunc(all, func(v trainingVolume) bool { return v.Group == g.Group })
			if i < 0 {
				i = len(all)
				all = append(all, trainingVolume{Group: g.Group, Least: g.Expected / runs,
					Sent: "as expected"})
			}
			v := &all[i]
			v.Ranks++
			v.Least, v.Most = min(v.Least, g.Expected/runs), max(v.Most, g.Expected/runs)
			v.Exposed += g.Exposed / float64(len(t.PerRank))
			if g.Sent != g.Expected {
				v.Sent = fmt.Sprintf("rank %d sent %d in all, want %d", r.Rank, g.Sent, g.Expected)
			}
		}
	}
	slices.SortFunc(all, func(a, b trainingVolume) int { return cmp.Compare(a.Group, b.Group) })
	return all
}

// trainings prints a line for each job, each rank and each group.
func (t *textWriter) trainings(all []report.Training) {
	if len(all) == 0 {
		return
	}
	t.figures(trainingTable(fullView, all))
	rows := newRows("training", "group", "ranks", "exposed\ncommunication",
		"bytes of a rank\nin an iteration", "ranks' counts")
	rightAligned(rows, 3, 4, 5)
	for i := range all {
		for _, v := range volumesOf(&all[i]) {
			bytes := fmt.Sprint(v.Least)
			if v.Most > v.Least {
				bytes = fmt.Sprintf("%d to %d", v.Least, v.Most)
			}
			rows.AppendRow(table.Row{all[i].Name, v.Group, v.Ranks, units.Percent(v.Exposed), bytes, v.Sent})
		}
	}
	t.table(rows)
	for i := range all {
		t.pace(all[i].Name, all[i].Pace)
	}
}
