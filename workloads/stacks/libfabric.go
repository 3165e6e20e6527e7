package stacks

import (
	"fmt"
	"strings"

	"railbed/capture/report"
	"railbed/internal/units"
)

// libfabric is fi_pingpong over the provider that libfabric chooses for the endpoint type. The test
// selects that type: reliable datagrams or messages.
var libfabric = adapter{
	kind: "libfabric",
	tools: []tool{{names: []string{"fi_pingpong"}, debian: "libfabric-bin"},
		{names: []string{"fi_info"}, debian: "libfabric-bin"}},
	version: []string{"fi_info", "--version"}, says: `libfabric: `, least: "1.11",
	metric:  metric{name: "bandwidth", unit: "MB/sec"},
	figures: []string{"MB/sec", "usec/xfer"},
	run:     runLibfabric,
}

const libfabricPort = 47592 // of fi_pingpong's out-of-band exchange, its default

// libfabricColumns are the columns of fi_pingpong's table, after a column for the pair.
var libfabricColumns = []string{"client > server", "bytes", "#sent", "#ack", "total", "time", "MB/sec",
	"usec/xfer", "Mxfers/sec"}

func runLibfabric(r *run) (table, error) {
	options := []string{"-e", r.Step.Test, "-I", fmt.Sprint(r.Step.Iterations), "-S",
		fmt.Sprint(uint64(r.Step.Size))}
	printed, err := r.pairs(libfabricPort,
		func(port string) []string { return append([]string{"fi_pingpong", "-B", port}, options...) },
		func(port string) []string {
			return append(append([]string{"fi_pingpong", "-P", port}, options...), r.Nodes[0].Name)
		})
	if err != nil {
		return table{}, err
	}
	t := table{columns: libfabricColumns}
	for i, text := range printed {
		row, err := parseLibfabric(r.pairName(i), text, len(t.columns))
		if err != nil {
			return t, err
		}
		t.rows = append(t.rows, row)
	}
	// Each received message is sent back.
	all := r.Step.Size * units.Bytes(r.Step.Iterations)
	t.sends = r.sends(func(node int) units.Bytes {
		if node == 0 {
			return all * units.Bytes(len(printed))
		}
		return all
	})
	return t, nil
}

// parseLibfabric parses the one row below the column heads.
func parseLibfabric(name, text string, columns int) (row report.StackRow, err error) {
	for _, line := range lines(text) {
		fields := strings.Fields(line)
		if len(fields) != columns-1 || fields[0] == "bytes" {
			continue
		}
		speed, err := figure(fields[5])
		if err == nil {
			return report.StackRow{Cells: append([]string{name}, fields...), Key: name, Value: speed}, nil
		}
	}
	return row, fmt.Errorf("fi_pingpong %s printed no figures: %q", name, text[:min(len(text), errorTail)])
}
