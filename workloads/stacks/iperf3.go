package stacks

import (
	"encoding/json"
	"fmt"

	"railbed/capture/report"
	"railbed/internal/units"
)

// iperf3 runs a server in the first node for each of the other nodes, which all send to it at the
// same time.
var iperf3 = adapter{
	kind:    "iperf3",
	tools:   []tool{{names: []string{"iperf3"}, debian: "iperf3"}},
	version: []string{"iperf3", "--version"}, says: `iperf `, least: "3.1",
	metric:  metric{name: "Bitrate", unit: "bits/sec"},
	figures: []string{"Bitrate(bits/sec)", "Retr"},
	run:     runIPerf3,
}

// iperf3Port is the port of the first server, iperf3's default.
const iperf3Port = 5201

// iperf3Columns are the columns of iperf3's table, after a column for the pair.
var iperf3Columns = []string{"client > server", "Interval(sec)", "Transfer(Bytes)", "Bitrate(bits/sec)",
	"Retr"}

func runIPerf3(r *run) (table, error) {
	printed, err := r.pairs(iperf3Port,
		func(port string) []string { return []string{"iperf3", "-s", "-1", "-p", port} },
		func(port string) []string {
			return []string{"iperf3", "-c", r.Nodes[0].Name, "-p", port, "-n",
				fmt.Sprint(uint64(r.Step.Size)), "-J"}
		})
	if err != nil {
		return table{}, err
	}
	t := table{columns: iperf3Columns}
	received := make([]units.Bytes, len(r.Nodes))
	for i, text := range printed {
		row, bytes, err := parseIPerf3(r.pairName(i), []byte(text))
		if err != nil {
			return t, err
		}
		t.rows, received[i+1] = append(t.rows, row), bytes
	}
	t.sends = r.sends(func(node int) units.Bytes { return received[node] })
	return t, nil
}

// parseIPerf3 parses the end of a client's JSON, and the server's own count of received bytes. A
// client ends the test when it has passed all data to its socket, and the rest need not be sent any
// more.
func parseIPerf3(name string, text []byte) (row report.StackRow, received units.Bytes, err error) {
	var said struct {
		Error string `json:"error"`
		End   struct {
			Sent struct {
				Retransmits int `json:"retransmits"`
			} `json:"sum_sent"`
			Received struct {
				Seconds float64 `json:"seconds"`
				Bytes   uint64  `json:"bytes"`
				Rate    float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return row, 0, fmt.Errorf("read the JSON of iperf3 %s: %w", name, err)
	}
	got := said.End.Received
	if said.Error != "" || got.Bytes == 0 || got.Rate < 0 {
		return row, 0, fmt.Errorf("iperf3 %s: nothing was received: %s", name, said.Error)
	}
	return report.StackRow{
		Cells: []string{name, fmt.Sprintf("0.00-%.2f", got.Seconds), fmt.Sprint(got.Bytes),
			fmt.Sprintf("%.0f", got.Rate), fmt.Sprint(said.End.Sent.Retransmits)},
		Key: name, Value: got.Rate,
	}, units.Bytes(got.Bytes), nil
}
