package stacks

import (
	"fmt"
	"slices"
	"strings"

	"railbed/capture/report"
	"railbed/internal/units"
)

// perftest is ib_write_bw and similar programs, over the RDMA devices of nodes that have them. It
// runs a server in the first node for each of the other nodes, whose clients run at the same time.
var perftest = adapter{
	kind:    "perftest",
	tools:   []tool{{names: []string{"ib_write_bw"}, debian: "perftest"}},
	version: []string{"ib_write_bw", "--version"}, says: `Version: `, least: "4.5",
	metric:  metric{name: "BW average", unit: "MiB/s"}, // its MB are 2^20 bytes
	figures: []string{"BW average[MB/sec]"},
	run:     runPerftest,
}

const (
	perftestPort = 18515 // perftest's default
	// perftestTimeout is 4.096 us times 2^17, half a second. A guest with an emulated processor
	// does not answer within perftest's default of 67 ms.
	perftestTimeout = "17"
)

// Columns of perftest's tables.
var (
	perftestBandwidth = []string{"client > server", "#bytes", "#iterations", "BW peak[MB/sec]",
		"BW average[MB/sec]", "MsgRate[Mpps]"}
	perftestLatency = []string{
		"client > server", "#bytes", "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]",
		"t_avg[usec]", "t_stdev[usec]",
		"99% percentile[usec]", "99.9% percentile[usec]",
	}
)

func runPerftest(r *run) (table, error) {
	program, latency := "ib_"+r.Step.Test, strings.HasSuffix(r.Step.Test, "_lat")
	options := func(port string) []string {
		return []string{program, "-F", "-u", perftestTimeout, "-s", fmt.Sprint(uint64(r.Step.Size)), "-n",
			fmt.Sprint(r.Step.Iterations), "-p", port}
	}
	printed, err := r.pairs(perftestPort, options, func(port string) []string {
		return append(options(port), r.Nodes[0].Name)
	})
	if err != nil {
		return table{}, err
	}
	t := table{columns: perftestBandwidth}
	if latency {
		t.columns, t.metric = perftestLatency, &metric{name: "t_typical", unit: "us", less: true}
		t.figures = []string{"t_typical[usec]", "99% percentile[usec]"}
	}
	for i, text := range printed {
		row, err := parsePerftest(r.pairName(i), text, t.columns, latency)
		if err != nil {
			return t, err
		}
		t.rows = append(t.rows, row)
	}
	all := r.Step.Size * units.Bytes(r.Step.Iterations)
	read := strings.HasPrefix(r.Step.Test, "read_")
	t.sends = r.sends(func(node int) units.Bytes {
		switch {
		case node == 0 && (read || latency):
			return all * units.Bytes(len(printed))
		case node > 0 && !read:
			return all
		}
		return 0
	})
	return t, nil
}

// parsePerftest parses the row below the column heads of the table.
func parsePerftest(name, text string, columns []string, latency bool) (row report.StackRow, err error) {
	all := lines(text)
	head := slices.IndexFunc(all, func(line string) bool {
		return strings.HasPrefix(strings.TrimSpace(line), columns[1])
	})
	if head >= 0 && head+1 < len(all) {
		cells := strings.Fields(all[head+1])
		at := 3 // BW average
		if latency {
			at = 4 // t_typical
		}
		if len(cells) == len(columns)-1 {
			if value, err := figure(cells[at]); err == nil {
				return report.StackRow{Cells: append([]string{name}, cells...), Key: name, Value: value}, nil
			}
		}
	}
	return row, fmt.Errorf("perftest %s printed no figures: %q", name, text[:min(len(text), errorTail)])
}
