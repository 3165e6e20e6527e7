package suite

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/plan/perf"
	"railbed/plan/spec"
)

// matrixOf parses a file with the given matrix and variables in its description.
func matrixOf(t *testing.T, matrix string, axes ...string) *spec.File {
	t.Helper()
	f, err := spec.Parse("a.yaml", []byte("name: a\nfabric: {topology: single-switch}\ndescription: ${"+
		strings.Join(axes, "} ${")+"}\nmatrix: "+matrix+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestSweepOfMatrix: an axis of sizes makes rows, and the values of the other axis are lines. Overloaded runs
// do not count, and their cells are marked on the page and in the CSV file.
func TestSweepOfMatrix(t *testing.T) {
	bits := map[string]float64{"rd 4KiB": 8e6, "rd 1MiB": 80e6, "tcp 4KiB": 1600, "tcp 1MiB": 90e6}
	l := &lab{t: t, file: matrixOf(t, "{transport: [rd, tcp], size: [1MiB, 4KiB]}", "transport", "size"),
		busbw: func(cell string, _ int) float64 {
			var transport, size string
			_, _ = fmt.Sscanf(strings.ReplaceAll(cell, ",", ""), "transport=%s size=%s", &transport, &size)
			return bits[transport+" "+size] / 8e9
		},
		overloaded: func(cell string, _ int) bool { return cell == "transport=rd, size=1MiB" }}
	dir := t.TempDir()
	m := l.run(l.options(dir)).Matrices[0]
	if len(m.Sweeps) == 0 {
		t.Fatal("no sweep")
	}
	s := m.Sweeps[0]
	got := []string{s.Title(), strings.Join(s.Header(), " ")}
	for _, row := range s.Table() {
		got = append(got, strings.Join(row, " "))
	}
	want := []string{"ar: busbw by size, in Mbit/s", "size rd tcp", "4KiB 8.000 0.001600", "1MiB -* 90.00"}
	if !slices.Equal(got, want) {
		t.Errorf("sweep %q, want %q", got, want)
	}
	for name, wants := range map[string][]string{
		SweepFile: {"ar,busbw,bit/s,4096,8000000,1600,\n",
			"ar,busbw,bit/s,1048576,,90000000,\"rd: 2 made again, 1 overloaded\"\n"},
		MatrixFile: {"ar: busbw by size, in Mbit/s", "-*", "rd, 4KiB: 8.000", "overloaded",
			`href="sweep.csv"`},
	} {
		text, err := os.ReadFile(filepath.Join(dir, "a", name))
		for _, want := range wants {
			if err != nil || !bytes.Contains(text, []byte(want)) {
				t.Errorf("%s lacks %q: %v\n%s", name, want, err, text)
			}
		}
	}
	// No axis of sizes: no sweep, and no file.
	l = &lab{t: t, busbw: byCell, file: matrixFile(t,
		"  - {metric: busbw, of: ar, cells: {loss: 1%}, beside: {loss: 0}, ratio: '>= 90%'}\n")}
	dir = t.TempDir()
	if m := l.run(l.options(dir)).Matrices[0]; len(m.Sweeps) > 0 {
		t.Errorf("sweeps %+v", m.Sweeps)
	}
	if _, err := os.Stat(filepath.Join(dir, "a", SweepFile)); !os.IsNotExist(err) {
		t.Errorf("%s: %v", SweepFile, err)
	}
}

// TestSweepOfRows: a workload of several sizes makes rows, too, with a line for each cell.
func TestSweepOfRows(t *testing.T) {
	f := matrixOf(t, "{transport: [rd, tcp]}", "transport")
	m := Matrix{Name: "a"}
	for i, c := range f.Cells {
		var rows []perf.Row
		for k, size := range []uint64{8, 4096} {
			bw := float64(i+1) * float64(k+1) * 1e6 / 8e9
			rows = append(rows, perf.Row{Size: size, OutOfPlace: perf.Measure{BusBW: bw, Time: 1},
				InPlace: &perf.Measure{BusBW: bw / 2, Time: 1}})
		}
		m.add(&Outcome{Case: Case{Name: c.String(), Cell: c.Values}, Verdict: pass}, nil,
			[]*report.Report{{Workloads: []report.Workload{{Name: "ar", Rows: rows}}}})
	}
	var got []string
	for _, s := range m.sweeps() {
		text := s.Title() + ": " + strings.Join(s.Header(), " ")
		for _, row := range s.Table() {
			text += "; " + strings.Join(row, " ")
		}
		got = append(got, text)
	}
	want := []string{"ar: busbw by size, in kbit/s: size rd tcp; 8B 1000 2000; 4KiB 2000 4000",
		"ar: busbw in place by size, in kbit/s: size rd tcp; 8B 500.0 1000; 4KiB 1000 2000"}
	if !slices.Equal(got, want) {
		t.Errorf("sweeps %q, want %q", got, want)
	}
}

// TestLabels: labels have what differs, with the names of the axes if there is room.
func TestLabels(t *testing.T) {
	cell := func(values ...string) Cell {
		var c Cell
		for i := 0; i < len(values); i += 2 {
			c.Values = append(c.Values, spec.Setting{Name: values[i], Value: values[i+1]})
		}
		c.Name = spec.Cell{Values: c.Values}.String()
		return c
	}
	m := Matrix{Cells: []Cell{
		cell("topology-of-the-fabric", "leaf-spine", "transport", "rd", "buffer", "1MiB"),
		cell("topology-of-the-fabric", "leaf-spine", "transport", "rd", "buffer", "2MiB"),
		cell("topology-of-the-fabric", "leaf-spine", "transport", "tcp", "buffer", "2MiB")}}
	if got, want := m.Label(1), "transport=rd, buffer=2MiB"; got != want || m.Unnamed() != "" ||
		m.Shared() != "topology-of-the-fabric=leaf-spine" {
		t.Errorf("label %q, want %q; %q, %q", got, want, m.Shared(), m.Unnamed())
	}
	long := strings.Repeat("x", 38)
	m = Matrix{Cells: []Cell{cell("control", long+"1", "loss", "0"), cell("control", long+"2", "loss", "1%")}}
	if got, want := m.Label(1), long+"2, 1%"; got != want || m.Unnamed() != "control, loss" ||
		m.Shared() != "" {
		t.Errorf("label %q, want %q; %q, %q", got, want, m.Shared(), m.Unnamed())
	}
	m = Matrix{Cells: []Cell{cell("transport", "rd")}}
	if got := m.Label(0); got != "transport=rd" || m.Shared() != "" {
		t.Errorf("label of the only cell %q, shared %q", got, m.Shared())
	}
}
