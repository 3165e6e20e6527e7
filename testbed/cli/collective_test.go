package cli_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"railbed/testbed/hosttest"
	"railbed/testbed/verdict"
)

// ncclRow is a row as scripts that read the tables of nccl-tests take it apart.
var ncclRow = regexp.MustCompile(`^ +(\d+) +(\d+) +(float|half|int32) +(sum|max|none) +(-1|\d+) +([\d.]+) +[\d.]+ +[\d.]+ +(\d+|N/A) +([\d.]+|N/A) +[\d.N/A]+ +[\d.N/A]+ +(\d+|N/A)$`)

// TestCollective runs the command of users of nccl-tests on three nodes.
func TestCollective(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-collective"
	must(t, "up", writeFile(t, "name: "+name+"\nfabric: {topology: single-switch, params: {hosts: 3}, switch: {kind: soft, aggregation: {slots: 16}}, links: {default: {rate: 1gbit}}}\n"))
	t.Cleanup(func() { must(t, "down", name) })
	const ring = "../../workloads/collective/msccl/testdata/ring.xml"
	for _, c := range []struct {
		args  string
		ranks int
		// rows are size, count, redop, root and #wrong of both modes.
		rows []string
	}{
		{"all_reduce -b 8 -e 2M -f 512 -n 2", 3, []string{"8 2 sum -1 0 0", "4096 1024 sum -1 0 0", "2097152 524288 sum -1 0 0"}},
		{"all_reduce -b 4K -n 1 -d half -o max", 3, []string{"4096 2048 max -1 0 0"}},
		{"reduce_scatter_perf -b 100 -e 200 -i 100 -f 1 -c 0 -n 3 -w 0 --nodes h[01] -a 3", 2, []string{"96 12 sum -1 N/A N/A", "192 24 sum -1 N/A N/A"}},
		{"broadcast -b 1K -r 2 -n 1 --transport rd", 3, []string{"1024 256 none 2 0 0"}},
		{"all_reduce -b 12K -n 1 --algorithm msccl --file " + ring, 3, []string{"12288 3072 sum -1 0 N/A"}},
		{"all_reduce -b 64K -n 2 --algorithm in-network", 3, []string{"65536 16384 sum -1 0 0"}},
		{"all_reduce -b 1K -n 2 --algorithm in-network -d int32 --ip 6 -t " + name, 3, []string{"1024 256 sum -1 0 0"}},
		{"all_reduce -b 64K -n 2 --channels 2 --transport rd --algorithm tree", 3, []string{"65536 16384 sum -1 0 0"}},
		{"alltoall -b 96K -n 1 --channels 3 --transport rd", 3, []string{"98304 8192 none -1 0 N/A"}},
		{"barrier -n 3", 3, []string{"0 0 none -1 0 N/A"}},
		{"alltoall -b 96K -n 2 --transport roce --algorithm pairwise --ip 4 -G 0 -g 1", 3, []string{"98304 8192 none -1 0 N/A"}},
	} {
		printed := must(t, append([]string{"collective", "-t", name}, strings.Fields(c.args)...)...).stdout
		var rows []string
		for line := range strings.Lines(printed) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			found := ncclRow.FindStringSubmatch(strings.TrimRight(line, "\n"))
			if found == nil {
				t.Errorf("%s: the row %q is not one of nccl-tests", c.args, line)
				continue
			}
			rows = append(rows, strings.Join([]string{found[1], found[2], found[4], found[5], found[7], found[9]}, " "))
			if us, err := strconv.ParseFloat(found[6], 64); err != nil || us <= 0 {
				t.Errorf("%s: %v us, %v", c.args, us, err)
			}
		}
		if fmt.Sprint(rows) != fmt.Sprint(c.rows) {
			t.Errorf("%s: rows %q, want %q", c.args, rows, c.rows)
		}
		if want := "# Algorithm: auto (recursive-doubling to 4KiB, ring to 2MiB)\n"; strings.Contains(c.args, "-e 2M") && !strings.Contains(printed, want) {
			t.Errorf("%s: no %q in\n%s", c.args, want, printed)
		}
		for _, want := range []string{"# nThread 1 nGpus 1 minBytes ", "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : ", fmt.Sprintf("#  Rank %2d Group  0 Pid ", c.ranks-1)} {
			if !strings.Contains(printed, want) {
				t.Errorf("%s: no %q in\n%s", c.args, want, printed)
			}
		}
		if strings.Contains(printed, fmt.Sprintf("#  Rank %2d", c.ranks)) {
			t.Errorf("%s: more than %d ranks:\n%s", c.args, c.ranks, printed)
		}
	}
	for args, want := range map[string]string{
		"gather":                                            "all_gather, reduce_scatter",
		"all_reduce -g 2":                                   "-g (--ngpus) 2: a rank is a process of its own",
		"all_reduce -d float8":                              "-d float8: want one of float, bfloat16",
		"all_reduce -o json":                                "--output",
		"all_reduce -b 1X":                                  "-b 1X: want a number of bytes",
		"all_reduce -b 2M -e 1M":                            "sizes from 2MiB to 1MiB",
		"all_reduce -a 4":                                   "-a 4: want 0 to 3",
		"all_reduce -n 0":                                   "-n 0",
		"all_reduce -c -1":                                  "-1 checks",
		"all_reduce --ip 5":                                 "--ip 5",
		"all_reduce --nodes h7":                             "no such node",
		"all_reduce --algorithm star -b 1K":                 "star",
		"all_reduce --transport quic -b 1K":                 "quic",
		"all_reduce --algorithm in-network -d half":         "a switch makes sums of float and int32",
		"all_reduce --algorithm in-network --nodes h[01]":   "no switch adds up for exactly these ranks",
		"all_reduce --algorithm in-network --transport rd":  "want algorithm in-network over in-switch",
		"barrier --channels 2":                              "in 2 channels: want one of [], and",
		"all_reduce --channels -1":                          "--channels -1",
		"broadcast -r 3":                                    "root 3 of 3",
		"all_reduce --algorithm msccl":                      "and a file",
		"all_reduce --file " + ring:                         "and a file",
		"all_reduce -b 12K --algorithm msccl --file no.xml": "no.xml",
		"broadcast -b 12K --algorithm msccl --file " + ring: "is all-reduce",
		"all_reduce -b 8K --algorithm msccl --file " + ring: "want a multiple of",
		"reduce -J results.json":                            "--output json",
	} {
		got := do(t, append([]string{"collective", "-t", name}, strings.Fields(args)...)...)
		if got.code != verdict.ExitUsage || !strings.Contains(got.stderr, want) || got.stdout != "" {
			t.Errorf("%s: exit %d, %q, want %d and %q", args, got.code, got.stderr, verdict.ExitUsage, want)
		}
	}
}
