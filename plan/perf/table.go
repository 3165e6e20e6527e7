// Package perf presents results of collectives in the columns of nccl-tests, whatever program measured them.
package perf

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/plan/schedule"
)

// Measure is a result in the units of nccl-tests.
type Measure struct {
	Time  float64 `json:"time_us"`    // microseconds per operation
	AlgBW float64 `json:"algbw_gb_s"` // size / time in GB/s, 10^9 bytes
	BusBW float64 `json:"busbw_gb_s"` // algbw scaled to the load of each link
	// Wrong is the number of wrong elements, over all ranks and iterations.
	Wrong uint64 `json:"wrong"`
	// Unchecked reports that elements were not checked.
	Unchecked bool `json:"unchecked,omitempty"`
}

// Bits converts GB/s, of 10^9 bytes, to bit/s.
func Bits(gigabytes float64) float64 { return gigabytes * 8e9 }

// AlgBits returns algbw in bit/s.
func (m *Measure) AlgBits() float64 { return Bits(m.AlgBW) }

// BusBits returns busbw in bit/s.
func (m *Measure) BusBits() float64 { return Bits(m.BusBW) }

// Row is a line of the table.
type Row struct {
	Size       uint64   `json:"size"`                // bytes
	Count      int      `json:"count"`               // elements; in an all-to-all, from a rank to each rank
	Type       string   `json:"type"`                // the type of elements
	RedOp      string   `json:"redop"`               // the reduction, or none
	Root       int      `json:"root"`                // -1 if there is none
	Algorithm  string   `json:"algorithm,omitempty"` // the algorithm
	OutOfPlace Measure  `json:"out_of_place"`
	InPlace    *Measure `json:"in_place,omitempty"` // nil if not run
}

// Virtual converts a row that was measured in real time to the time of a dilated testbed.
func (r Row) Virtual(by clock.Dilation) Row {
	virtual := func(m Measure) Measure {
		m.Time, m.AlgBW, m.BusBW = m.Time/by.Virtual(1), by.Virtual(m.AlgBW), by.Virtual(m.BusBW)
		return m
	}
	r.OutOfPlace = virtual(r.OutOfPlace)
	if r.InPlace != nil {
		inPlace := virtual(*r.InPlace)
		r.InPlace = &inPlace
	}
	return r
}

// MeasureOf returns the result of operations of size bytes over ranks that took perOperation each.
// The program hypercube of nccl-tests is an all-gather here. Its busbw is the same, and nccl-tests prints it
// as algbw too.
func MeasureOf(kind schedule.Kind, size uint64, ranks int, perOperation time.Duration, wrong uint64) Measure {
	m := Measure{Time: float64(perOperation) / float64(time.Microsecond), Wrong: wrong}
	if perOperation > 0 {
		m.AlgBW = float64(size) / float64(perOperation) // bytes per nanosecond equal GB/s
		m.BusBW = m.AlgBW * kind.BusFactor(ranks)
	}
	return m
}

// Device is the location of a rank, for the head of a table.
type Device struct {
	Rank   int
	PID    int
	Host   string
	Index  int    // index of the NIC among the host's NICs
	NIC    string // name of the NIC
	Detail string
}

// Table prints results to one writer, in the columns of nccl-tests 2.19 (src/util.cu). The caller
// checks the writer's errors.
type Table struct {
	// Clock returns the time of day that is printed after each row. With nil none is printed.
	Clock func() time.Time

	out       *bufio.Writer
	format    format
	bandwidth float64 // the sum, in GB/s
	measures  int
	wrong     uint64
}

// format is the format of measurements.
type format struct {
	// titles is the line above the names of the columns.
	titles string
	// timeWidth and rateWidth are the widths of columns.
	timeWidth, rateWidth int
	unchecked            string
	unit                 string               // of bandwidths
	time, rate           func(float64) string // microseconds, and GB/s
	average              func(float64) string // GB/s, with the unit if the line has one
}

// NewTable returns a table that has printed nothing yet. Times are in microseconds and bandwidths in the
// given unit, of units.Rates, both with four significant digits.
func NewTable(to io.Writer, rate units.Unit) *Table {
	const timeWidth, rateWidth = 10, 10
	text := func(gigabytes float64) string { return rate.Text(Bits(gigabytes)) }
	group := func(title string) string { // in the middle of the columns of a mode
		const width = timeWidth + 2*rateWidth + 6 + 4*2
		left := (width - len(title)) / 2
		return strings.Repeat(" ", left) + title + strings.Repeat(" ", width-len(title)-left)
	}
	return &Table{out: bufio.NewWriter(to), format: format{
		titles:    group("out-of-place") + group("in-place"),
		timeWidth: timeWidth, rateWidth: rateWidth, unchecked: "   N/A", unit: rate.Name,
		time: units.Digits, rate: text,
		average: func(gigabytes float64) string { return text(gigabytes) + " " + rate.Name }}}
}

// NewNCCLTable returns a table in the format of nccl-tests, with bandwidths in GB/s, for programs that read
// it. Bandwidths below 1 GB/s have more decimals than there, as far as the column has room.
func NewNCCLTable(to io.Writer) *Table {
	return &Table{out: bufio.NewWriter(to), format: format{
		titles:    "           out-of-place                       in-place          ",
		timeWidth: 7, rateWidth: 6, unit: "GB/s", time: ncclTime, rate: ncclBandwidth,
		unchecked: "  N/A", // nccl-tests also prints one column less here
		average:   func(gigabytes float64) string { return fmt.Sprintf("%.6g ", gigabytes) }}}
}

// UnitFor returns the unit for the bandwidths of a table. It is the largest unit in which a tenth of the
// greatest bandwidth, in bit/s, is at least 1.
func UnitFor(most float64) units.Unit { return units.Rates.Of(most / 10) }

// UnitOf returns the unit for the bandwidths of a table with these rows.
func UnitOf(rows []Row) units.Unit {
	most := 0.0
	for i := range rows {
		for _, m := range []*Measure{&rows[i].OutOfPlace, rows[i].InPlace} {
			if m != nil {
				most = max(most, m.AlgBits(), m.BusBits())
			}
		}
	}
	return UnitFor(most)
}

// Devices prints the locations of the ranks.
func (t *Table) Devices(devices []Device) error {
	fmt.Fprintln(t.out, "# Using devices")
	for _, d := range devices {
		fmt.Fprintf(t.out, "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n", d.Rank, 0, d.PID,
			d.Host, d.Index, d.NIC, d.Detail)
	}
	return t.out.Flush()
}

// Header prints the headings of the columns.
func (t *Table) Header() error {
	f := &t.format
	width, title, stamp := 0, "", ""
	if t.Clock != nil {
		width, title, stamp = len(time.DateTime), "timestamp", "%Y-%m-%d %H:%M:%S"
	}
	columns := func(size, count, kind, redop, root, time, algbw, busbw, wrong, stamp string) {
		fmt.Fprintf(t.out, "# %10s  %12s  %8s  %6s  %6s", size, count, kind, redop, root)
		for range 2 {
			fmt.Fprintf(t.out, "  %*s  %*s  %*s  %6s", f.timeWidth, time, f.rateWidth, algbw, f.rateWidth,
				busbw, wrong)
		}
		fmt.Fprintf(t.out, " %*s\n", width, stamp)
	}
	fmt.Fprintf(t.out, "#\n# %10s  %12s  %8s  %6s  %6s%s\n", "", "", "", "", "", f.titles)
	columns("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", title)
	unit := "(" + f.unit + ")"
	columns("(B)", "(elements)", "", "", "", "(us)", unit, unit, "", stamp)
	return t.out.Flush()
}

// Row prints a row. Values that were not measured or not checked are N/A.
func (t *Table) Row(row *Row) error {
	f := &t.format
	cells := func(time, algbw, busbw, wrong string) {
		fmt.Fprintf(t.out, "  %*s  %*s  %*s  %s", f.timeWidth, time, f.rateWidth, algbw, f.rateWidth, busbw,
			wrong)
	}
	fmt.Fprintf(t.out, "%12d  %12d  %8s  %6s  %6d", row.Size, row.Count, row.Type, row.RedOp, row.Root)
	for _, m := range []*Measure{&row.OutOfPlace, row.InPlace} {
		if m == nil {
			cells("N/A", "N/A", "N/A", "   N/A")
			continue
		}
		wrong := f.unchecked
		if !m.Unchecked {
			wrong = fmt.Sprintf("%6g", float64(m.Wrong))
		}
		cells(f.time(m.Time), f.rate(m.AlgBW), f.rate(m.BusBW), wrong)
		t.bandwidth += m.BusBW
		t.measures++
		t.wrong += m.Wrong
	}
	if t.Clock != nil {
		fmt.Fprintf(t.out, "%21s", t.Clock().Format(time.DateTime))
	}
	fmt.Fprintln(t.out)
	return t.out.Flush()
}

// Average returns the mean bus bandwidth of all rows, in GB/s.
func (t *Table) Average() float64 { return t.bandwidth / float64(max(t.measures, 1)) }

// Close prints the summary of all rows, and that the named program is done. nccl-tests counts
// results with wrong elements. This summary counts the wrong elements, as the columns do.
func (t *Table) Close(program string) error {
	verdict := "OK"
	if t.wrong > 0 {
		verdict = "FAILED"
	}
	fmt.Fprintf(t.out, "# %-20s : %d %s\n", "Out of bounds values", t.wrong, verdict)
	fmt.Fprintf(t.out, "# %-20s : %s\n#\n# Collective test concluded: %s\n", "Avg bus bandwidth",
		t.format.average(t.Average()), program)
	return t.out.Flush()
}

// ncclTime formats microseconds as the column time of nccl-tests.
func ncclTime(us float64) string { return fit(us, 7) }

// ncclBandwidth formats 10^9 bytes per second as the columns algbw and busbw of nccl-tests.
func ncclBandwidth(gigabytes float64) string { return fit(gigabytes, 6) }

// fit formats a number as getFloatStr of nccl-tests 2.19 (src/util.cu) does: with as many decimals as fit
// into a column of the given width, at most two. One case differs. nccl-tests also prints two decimals of a
// number below 1, so 0.0044 GB/s, 35 Mbit/s, is 0.00 there. Here such a number has all decimals that the
// column has room for. It has no exponent, because scripts look for digits and a point.
func fit(value float64, width int) string {
	if value > 0 && value < 1 {
		return strconv.FormatFloat(value, 'f', width-2, 64)
	}
	for decimals := 2; decimals >= 0; decimals-- {
		if text := strconv.FormatFloat(value, 'f', decimals, 64); len(text) <= width {
			return text
		}
	}
	if width >= 7 {
		return strconv.FormatFloat(value, 'e', 1, 64)
	}
	return strconv.FormatFloat(value, 'e', 0, 64)
}
