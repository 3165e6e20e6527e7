package stacks

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strings"

	"railbed/capture/report"
	"railbed/internal/units"
)

// ucx is ucx_perftest over the transports that UCX chooses.
var ucx = adapter{
	kind: "ucx",
	tools: []tool{{names: []string{"ucx_perftest"}, debian: "ucx-utils"},
		{names: []string{"ucx_info"}, debian: "ucx-utils"}},
	version: []string{"ucx_info", "-v"}, says: `(?i:version)[= ]`, least: "1.10",
	metric:  metric{name: "bandwidth", unit: "MiB/s"}, // its MB are 2^20 bytes
	figures: []string{"50.0%ile (usec)", "overall (MB/s)"},
	run:     runUCX,
}

const (
	ucxPort   = 13337 // ucx_perftest's default
	ucxWarmup = 1
)

// ucxColumns are the columns of ucx_perftest's table for people. With -v it prints no column heads.
var ucxColumns = []string{
	"client > server", "# iterations", "50.0%ile (usec)", "average (usec)", "overall (usec)",
	"average (MB/s)", "overall (MB/s)", "average (msg/s)", "overall (msg/s)",
}

func runUCX(r *run) (table, error) {
	printed, err := r.pairs(ucxPort,
		func(port string) []string { return []string{"ucx_perftest", "-p", port} },
		func(port string) []string {
			return []string{
				"ucx_perftest", r.Nodes[0].Name, "-p", port, "-t", r.Step.Test, "-s",
				fmt.Sprint(uint64(r.Step.Size)),
				"-n", fmt.Sprint(r.Step.Iterations), "-w", fmt.Sprint(ucxWarmup), "-f", "-v",
			}
		})
	if err != nil {
		return table{}, err
	}
	t := table{columns: ucxColumns}
	for i, text := range printed {
		row, err := parseUCX(r.pairName(i), text)
		if err != nil {
			return t, err
		}
		t.rows = append(t.rows, row)
	}
	all := r.Step.Size * units.Bytes(r.Step.Iterations+ucxWarmup)
	t.sends = r.sends(func(node int) units.Bytes {
		switch {
		case node > 0:
			return all
		case r.Step.Test == "tag_lat":
			return all * units.Bytes(len(printed))
		}
		return 0
	})
	return t, nil
}

// parseUCX parses the last row that has a figure for each column.
func parseUCX(name, text string) (row report.StackRow, err error) {
	for _, line := range slices.Backward(lines(text)) {
		reader := csv.NewReader(strings.NewReader(line))
		reader.TrimLeadingSpace = true
		record, err := reader.Read()
		if err != nil || len(record) != len(ucxColumns)-1 {
			continue
		}
		if speed, err := figure(record[5]); err == nil {
			return report.StackRow{Cells: append([]string{name}, record...), Key: name, Value: speed}, nil
		}
	}
	return row, fmt.Errorf("ucx_perftest %s printed no figures: %q", name, text[:min(len(text), errorTail)])
}
