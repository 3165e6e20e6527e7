// Package perf presents results of collectives in the units and columns of nccl-tests, whatever
// program measured them.
package perf

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"time"

	"railbed/internal/clock"
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
// The bus bandwidth is the rate on a link when every rank sends the least that the operation allows
// (nccl-tests, doc/PERFORMANCE.md). It is algbw * 2(n-1)/n for an all-reduce, algbw * (n-1)/n if a
// rank's own part crosses no link, and algbw for a broadcast, a reduce and a sendrecv. The program
// hypercube of nccl-tests is an all-gather here. Its busbw is the same, and nccl-tests prints it as algbw
// too.
func MeasureOf(kind schedule.Kind, size uint64, ranks int, perOperation time.Duration, wrong uint64) Measure {
	n := float64(ranks)
	switch kind {
	case schedule.AllReduce:
		return measure(size, 2*(n-1)/n, perOperation, wrong)
	case schedule.Broadcast, schedule.Reduce, schedule.SendReceive:
		return measure(size, 1, perOperation, wrong)
	}
	return measure(size, (n-1)/n, perOperation, wrong)
}

func measure(size uint64, factor float64, perOperation time.Duration, wrong uint64) Measure {
	m := Measure{Time: float64(perOperation) / float64(time.Microsecond), Wrong: wrong}
	if perOperation > 0 {
		m.AlgBW = float64(size) / float64(perOperation) // bytes per nanosecond equal GB/s
		m.BusBW = m.AlgBW * factor
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

// Table prints results to one writer, in the format of nccl-tests 2.19 (src/util.cu). The caller
// checks the writer's errors.
type Table struct {
	// Clock returns the time of day that is printed after each row. With nil none is printed.
	Clock func() time.Time

	out       *bufio.Writer
	bandwidth float64
	measures  int
	wrong     uint64
}

// NewTable returns a table that has printed nothing yet.
func NewTable(to io.Writer) *Table { return &Table{out: bufio.NewWriter(to)} }

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
	const columns = "# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s %*s\n"
	width, title, format := 0, "", ""
	if t.Clock != nil {
		width, title, format = len(time.DateTime), "timestamp", "%Y-%m-%d %H:%M:%S"
	}
	fmt.Fprintf(t.out, "#\n# %10s  %12s  %8s  %6s  %6s           out-of-place                       "+
		"in-place          \n", "", "", "", "", "")
	fmt.Fprintf(t.out, columns, "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong",
		"time", "algbw", "busbw", "#wrong", width, title)
	fmt.Fprintf(t.out, columns, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
		"(GB/s)", "(GB/s)", "", width, format)
	return t.out.Flush()
}

// Row prints a row. Values that were not measured or not checked are N/A.
func (t *Table) Row(row *Row) error {
	fmt.Fprintf(t.out, "%12d  %12d  %8s  %6s  %6d", row.Size, row.Count, row.Type, row.RedOp, row.Root)
	for _, m := range []*Measure{&row.OutOfPlace, row.InPlace} {
		if m == nil {
			fmt.Fprintf(t.out, "  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A")
			continue
		}
		wrong := "  N/A" // nccl-tests also prints one column less here
		if !m.Unchecked {
			wrong = fmt.Sprintf("%6g", float64(m.Wrong))
		}
		fmt.Fprintf(t.out, "  %7s  %6s  %6s  %s", Time(m.Time), Bandwidth(m.AlgBW), Bandwidth(m.BusBW), wrong)
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
	fmt.Fprintf(t.out, "# %-20s : %.6g \n#\n# Collective test concluded: %s\n", "Avg bus bandwidth",
		t.Average(), program)
	return t.out.Flush()
}

// Time formats microseconds as the column time.
func Time(us float64) string { return fit(us, 7) }

// Bandwidth formats 10^9 bytes per second as the columns algbw and busbw.
func Bandwidth(gigabytes float64) string { return fit(gigabytes, 6) }

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
