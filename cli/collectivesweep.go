package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"railbed/plan/perf"
	"railbed/reporting"
	"railbed/reporting/sweep"
	"railbed/scenarios/runner/outdir"
)

// Files of railbed collective --out.
const (
	sweepPage = "sweep.html"
	sweepCSV  = "sweep.csv"
	sweepJSON = "sweep.json"
)

// collectiveSweeps returns the figures of runs by size. lineNames names their lines.
func collectiveSweeps(runs []CollectiveRun) []sweep.Sweep {
	lines := lineNames(runs)
	of := runs[0].Result.Name
	all := []sweep.Sweep{}
	for _, inPlace := range []bool{false, true} {
		mode := ""
		if inPlace {
			mode = " in place"
		}
		for _, f := range []struct {
			name, unit string
			of         func(*perf.Measure) float64
		}{
			{"busbw", reporting.BitRate, (*perf.Measure).BusBits},
			{"algbw", reporting.BitRate, (*perf.Measure).AlgBits},
			{"time", reporting.Seconds, func(m *perf.Measure) float64 { return m.Time / 1e6 }},
		} {
			s := sweep.Sweep{Of: of, Number: f.name + mode, Unit: f.unit}
			for i := range runs {
				addRows(&s, lines[i], runs[i].Rows, inPlace, f.of)
			}
			if len(s.Rows) > 0 {
				all = append(all, s)
			}
		}
	}
	if len(all) > 0 {
		for i := range runs { // each run is a line
			all[0].Averages = append(all[0].Averages, perf.Bits(averageOf(runs[i:i+1])))
		}
	}
	return all
}

// addRows adds a figure of the rows of a run. Of several rows of a size it takes the median.
func addRows(s *sweep.Sweep, line string, rows []perf.Row, inPlace bool, of func(*perf.Measure) float64) {
	bySize := map[uint64][]float64{}
	for i := range rows {
		m := &rows[i].OutOfPlace
		if inPlace {
			m = rows[i].InPlace
		}
		if m != nil {
			bySize[rows[i].Size] = append(bySize[rows[i].Size], of(m))
		}
	}
	for size, values := range bySize {
		slices.Sort(values)
		n := len(values)
		median := (values[(n-1)/2] + values[n/2]) / 2
		s.Add(line, size, sweep.Cell{Value: &median, Runs: n})
	}
}

// lineNames names the lines of runs: the transport, and the type, the operation and the root where these
// differ between runs.
func lineNames(runs []CollectiveRun) (names []string) {
	words := make([][]string, len(runs)) // transport, type, operation, root
	for i, run := range runs {
		words[i] = []string{run.Result.Transport, "", "", ""}
		if len(run.Rows) > 0 {
			row := &run.Rows[0]
			words[i] = []string{run.Result.Transport, row.Type, row.RedOp, fmt.Sprintf("root %d", row.Root)}
		}
	}
	for _, own := range words {
		var parts []string
		for k, word := range own {
			differs := slices.ContainsFunc(words, func(other []string) bool { return other[k] != word })
			if k == 0 || differs {
				parts = append(parts, word)
			}
		}
		names = append(names, strings.Join(parts, ", "))
	}
	return names
}

// showSweeps prints busbw by size if there are several transports. It writes all figures into a directory, if
// it is given.
func (a *app) showSweeps(o *collectiveOptions, sweeps []sweep.Sweep, dir *outdir.Dir) error {
	if len(sweeps) == 0 {
		return nil
	}
	if len(o.transports) > 1 && a.output != "json" && !o.ncclColumns {
		fmt.Fprintln(a.stdout)
		a.printSweep(&sweeps[0], "")
	}
	if dir == nil {
		return nil
	}
	var written []string
	var failed error
	for _, file := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{sweepPage, func(w io.Writer) error {
			return sweep.WritePage(w, sweeps[0].Of+" by size", sweepCSV, sweeps)
		}},
		{sweepCSV, func(w io.Writer) error { return sweep.WriteCSV(w, sweeps) }},
		{sweepJSON, func(w io.Writer) error { return sweep.WriteJSON(w, sweeps) }},
	} {
		if err := dir.Replace(file.name, file.write); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		written = append(written, filepath.Join(o.out, file.name))
	}
	if len(written) > 0 {
		a.say("railbed: by size: %s", strings.Join(written, ", "))
	}
	return failed
}
