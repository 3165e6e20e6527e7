package stacks

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"

	"railbed/capture/report"
	"railbed/internal/units"
)

// redis runs a server without persistence in the first node, and redis-benchmark with SET and GET
// in the other nodes at the same time.
var redis = adapter{
	kind: "redis",
	tools: []tool{
		{names: []string{"redis-server"}, debian: "redis-server"},
		{names: []string{"redis-benchmark"}, debian: "redis-tools"},
	},
	// The CSV has latencies since version 6.2.
	version: []string{"redis-server", "--version"}, says: `v=`, least: "6.2",
	metric:  metric{name: "rps", unit: "requests/s"},
	figures: []string{"rps", "p50_latency_ms", "p99_latency_ms"},
	run:     runRedis,
}

const redisPort = 6379

// redisClients is the number of connections of each benchmark.
const redisClients = 8

func runRedis(r *run) (table, error) {
	server, clients := r.Nodes[0].Name, r.Nodes[1:]
	var t table
	if err := r.serve(server, redisPort, "redis-server", "--port", fmt.Sprint(redisPort), "--bind", "* -::*",
		"--protected-mode", "no",
		"--save", "", "--appendonly", "no", "--dir", "/tmp"); err != nil {
		return t, err
	}
	printed := make([][]report.StackRow, len(clients))
	columns := make([][]string, len(clients))
	err := r.each(clients, func(i int, client string) error {
		output, err := r.output(client, "redis-benchmark", "-h", server, "-p", fmt.Sprint(redisPort), "-t",
			"set,get",
			"-n", fmt.Sprint(r.Step.Iterations), "-c", fmt.Sprint(redisClients), "-d",
			fmt.Sprint(uint64(r.Step.Size)), "--csv")
		if err != nil {
			return err
		}
		columns[i], printed[i], err = parseRedis(client, string(output))
		return err
	})
	if err != nil {
		return t, err
	}
	t.columns, t.rows = columns[0], slices.Concat(printed...)
	// A client sends each value, and the server sends it back.
	all := r.Step.Size * units.Bytes(r.Step.Iterations)
	t.sends = r.sends(func(node int) units.Bytes {
		if node == 0 {
			return all * units.Bytes(len(clients))
		}
		return all
	})
	return t, nil
}

// parseRedis parses the output of --csv: a line of column heads and a line for each test.
func parseRedis(client, text string) (columns []string, rows []report.StackRow, err error) {
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err == nil && (len(records) < 2 || len(records[0]) < 2 || records[0][1] != "rps") {
		err = errors.New("want a line of column heads with rps in column 2, and lines of tests")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("redis-benchmark in %s printed no table: %q: %w", client,
			text[:min(len(text), errorTail)], err)
	}
	for _, record := range records[1:] {
		rate, err := figure(record[1])
		if err != nil {
			return nil, nil, fmt.Errorf("redis-benchmark in %s printed a rate of %q, want a number", client,
				record[1])
		}
		name := client + " " + record[0]
		rows = append(rows, report.StackRow{Cells: append([]string{name}, record[1:]...), Key: name,
			Value: rate})
	}
	return records[0], rows, nil
}
