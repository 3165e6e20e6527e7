package collective

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"railbed/workloads/collective/schedule"
)

// Measure is one result in the units of nccl-tests.
type Measure struct {
	Time  float64 `json:"time_us"`    // microseconds per operation
	AlgBW float64 `json:"algbw_gbps"` // size / time in GB/s, 10^9 bytes
	BusBW float64 `json:"busbw_gbps"` // algbw scaled to what each link carries
	Wrong uint64  `json:"wrong"`      // elements that are not what they must be, over all ranks and iterations
}

// Row is one line of the table.
type Row struct {
	Size       uint64   `json:"size"`  // bytes
	Count      int      `json:"count"` // elements; of an all-to-all, from a rank to each
	Type       string   `json:"type"`
	RedOp      string   `json:"redop"`
	Root       int      `json:"root"` // -1: there is none
	OutOfPlace Measure  `json:"out_of_place"`
	InPlace    *Measure `json:"in_place,omitempty"` // nil: not run
}

// MeasureOf is the result of operations of size bytes over ranks that took perOperation
// each. The bus bandwidth is what a link carries when every rank sends the least that the
// operation allows: algbw * 2(n-1)/n for an all-reduce, algbw * (n-1)/n where a rank's own
// part crosses no link, and algbw for a broadcast and a reduce (nccl-tests,
// doc/PERFORMANCE.md).
func MeasureOf(kind schedule.Kind, size uint64, ranks int, perOperation time.Duration, wrong uint64) Measure {
	n := float64(ranks)
	switch kind {
	case schedule.AllReduce:
		return measure(size, 2*(n-1)/n, perOperation, wrong)
	case schedule.Broadcast, schedule.Reduce:
		return measure(size, 1, perOperation, wrong)
	}
	return measure(size, (n-1)/n, perOperation, wrong)
}

func measure(size uint64, factor float64, perOperation time.Duration, wrong uint64) Measure {
	m := Measure{Time: float64(perOperation) / float64(time.Microsecond), Wrong: wrong}
	if perOperation > 0 {
		m.AlgBW = float64(size) / float64(perOperation) // bytes per nanosecond are GB/s
		m.BusBW = m.AlgBW * factor
	}
	return m
}

// WriteTable prints rows as nccl-tests prints them. What was not run is N/A.
func WriteTable(to io.Writer, rows []Row) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place          \n", "", "", "", "", "")
	fmt.Fprintf(w, "# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root")
	for range 2 {
		fmt.Fprintf(w, "  %7s  %6s  %6s %6s", "time", "algbw", "busbw", "#wrong")
	}
	fmt.Fprintf(w, "\n# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "")
	for range 2 {
		fmt.Fprintf(w, "  %7s  %6s  %6s  %5s", "(us)", "(GB/s)", "(GB/s)", "")
	}
	fmt.Fprintln(w)
	var bandwidth, measures float64
	var wrong uint64
	for _, row := range rows {
		fmt.Fprintf(w, "%12d  %12d  %8s  %6s  %6d", row.Size, row.Count, row.Type, row.RedOp, row.Root)
		for _, m := range []*Measure{&row.OutOfPlace, row.InPlace} {
			if m == nil {
				fmt.Fprintf(w, "  %7s  %6s  %6s  %5s", "N/A", "N/A", "N/A", "N/A")
				continue
			}
			fmt.Fprintf(w, "  %7s  %6.2f  %6.2f  %5d", timeText(m.Time), m.AlgBW, m.BusBW, m.Wrong)
			bandwidth += m.BusBW
			measures++
			wrong += m.Wrong
		}
		fmt.Fprintln(w)
	}
	verdict := "OK"
	if wrong > 0 {
		verdict = "FAILED"
	}
	// nccl-tests counts here the results with wrong elements that it saw; the
	// sum of the #wrong columns says the same and more.
	fmt.Fprintf(w, "# Out of bounds values : %d %s\n", wrong, verdict)
	fmt.Fprintf(w, "# Avg bus bandwidth    : %.6g\n#\n", bandwidth/max(measures, 1))
	return w.Flush()
}

// timeText keeps the column's width the way nccl-tests does.
func timeText(us float64) string {
	switch {
	case us >= 10000:
		return fmt.Sprintf("%.0f", us)
	case us >= 100:
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.2f", us)
}
