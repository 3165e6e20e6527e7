package sweep

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// sample has three sizes of two lines: rd has no run that counts at 4MiB, and lost one of two at 64KiB.
func sample() Sweep {
	s := Sweep{Of: "ar", Number: "busbw", Unit: "bit/s"}
	value := func(v float64) *float64 { return &v }
	s.Add("tcp", 4<<20, Cell{Value: value(88.65e6), Runs: 2})
	s.Add("tcp", 8, Cell{Value: value(45072), Runs: 2})
	s.Add("rd", 8, Cell{Value: value(120000), Runs: 2})
	s.Add("rd", 64<<10, Cell{Value: value(41.5e6), Runs: 1, NotCounted: "1 overloaded"})
	s.Add("rd", 4<<20, Cell{NotCounted: "2 overloaded"})
	s.Add("tcp", 64<<10, Cell{Value: value(39.999e6), Runs: 2})
	return s
}

// TestTable: rows are in ascending order of sizes, all cells have one unit and four digits, and cells with
// runs that do not count are marked.
func TestTable(t *testing.T) {
	s := sample()
	if got, want := s.Title(), "ar: busbw by size, in Mbit/s"; got != want {
		t.Errorf("title %q, want %q", got, want)
	}
	got := []string{strings.Join(s.Header(), " ")}
	for _, row := range s.Table() {
		got = append(got, strings.Join(row, " "))
	}
	want := []string{"size tcp rd", "8B 0.04507 0.1200", "64KiB 40.00 41.50*", "4MiB 88.65 -*"}
	if !slices.Equal(got, want) {
		t.Errorf("table %q, want %q", got, want)
	}
	want = []string{"* rd at 64KiB: 1 run; others do not count: 1 overloaded",
		"* rd at 4MiB: 0 runs; others do not count: 2 overloaded"}
	if got := s.Notes(); !slices.Equal(got, want) {
		t.Errorf("notes %q, want %q", got, want)
	}
	times := Sweep{Unit: "s", Number: "time", Of: "ar"}
	half := 0.5e-3
	times.Add("tcp", 8, Cell{Value: &half, Runs: 1})
	if times.Title() != "ar: time by size, in us" || times.Table()[0][1] != "500.0" {
		t.Errorf("%s: %q", times.Title(), times.Table())
	}
}

// TestFiles: CSV and JSON have base units without exponents, and say which runs do not count.
func TestFiles(t *testing.T) {
	s, other := sample(), Sweep{Of: "ar", Number: "time", Unit: "s"}
	small := 0.0000000125
	other.Add("quic", 8, Cell{Value: &small, Runs: 1})
	var csv, text strings.Builder
	if err := WriteCSV(&csv, []Sweep{s, other}); err != nil {
		t.Fatal(err)
	}
	const want = `of,number,unit,size_bytes,tcp,rd,quic,not_counted
ar,busbw,bit/s,8,45072,120000,,
ar,busbw,bit/s,65536,39999000,41500000,,rd: 1 overloaded
ar,busbw,bit/s,4194304,88650000,,,rd: 2 overloaded
ar,time,s,8,,,0.0000000125,
`
	if csv.String() != want {
		t.Errorf("CSV:\n%s\nwant:\n%s", csv.String(), want)
	}
	if err := WriteJSON(&text, []Sweep{s, other}); err != nil {
		t.Fatal(err)
	}
	var read struct {
		Sweeps []struct {
			Unit  string
			Lines []string
			Rows  []struct {
				Size  uint64 `json:"size_bytes"`
				Cells []struct {
					Value      *float64
					NotCounted string `json:"not_counted"`
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(text.String()), &read); err != nil {
		t.Fatal(err)
	}
	got := read.Sweeps[0]
	last := got.Rows[2]
	if got.Unit != "bit/s" || !slices.Equal(got.Lines, []string{"tcp", "rd"}) || last.Size != 4<<20 ||
		*last.Cells[0].Value != 88.65e6 || last.Cells[1].Value != nil ||
		last.Cells[1].NotCounted != "2 overloaded" {
		t.Errorf("JSON: %+v", got)
	}
}

// TestPage: the page has a plot with a point for each value, a line for each transport, and the table.
func TestPage(t *testing.T) {
	var page strings.Builder
	if err := WritePage(&page, "a<b", "sweep.csv", []Sweep{sample()}); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]int{"a&lt;b": 2, "<circle ": 5, `<path d="M`: 2,
		"rd, 64KiB: 41.50": 1, ">4MiB<": 2, ">41.50*<": 1, ">40<": 1, "* rd at 4MiB: 0 runs": 1, `href="sweep.csv"`: 1} {
		if got := strings.Count(page.String(), what); got != want {
			t.Errorf("%d times %s, want %d, in\n%s", got, what, want, page.String())
		}
	}
	empty := Sweep{Of: "ar", Number: "busbw", Unit: "bit/s"}
	empty.Add("rd", 8, Cell{NotCounted: "1 overloaded"})
	if drawn, err := empty.HTML(); err != nil || strings.Contains(string(drawn), "<svg") ||
		!strings.Contains(string(drawn), "1 overloaded") {
		t.Errorf("without values: %v, %s", err, drawn)
	}
}

// TestAverages: text, page, CSV and JSON have the same average of each line, in no row of a size.
func TestAverages(t *testing.T) {
	s := sample()
	s.Averages = []float64{42.5e6, 20.25e6}
	var csv, text, drawn strings.Builder
	for _, err := range []error{WriteCSV(&csv, []Sweep{s}), WriteJSON(&text, []Sweep{s}),
		WritePage(&drawn, "ar by size", "sweep.csv", []Sweep{s})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const note = "average busbw of all sizes, out of place and in place: tcp 42.50 Mbit/s, rd 20.25 Mbit/s"
	if got := s.Notes()[0]; got != note || !strings.Contains(drawn.String(), note) {
		t.Errorf("note %q, want %q, also in the page", got, note)
	}
	if want := "\nar,average busbw,bit/s,,42500000,20250000,\n"; !strings.HasSuffix(csv.String(), want) {
		t.Errorf("CSV %q, want %q at the end", csv.String(), want)
	}
	var read struct{ Sweeps []Sweep }
	if err := json.Unmarshal([]byte(text.String()), &read); err != nil ||
		!slices.Equal(read.Sweeps[0].Averages, s.Averages) || len(s.Table()) != 3 {
		t.Errorf("%v, JSON %s, table %q", err, text.String(), s.Table())
	}
}
