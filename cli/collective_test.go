package cli_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"railbed/cli"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// ncclRow is a row as scripts that read the tables of nccl-tests take it apart.
var ncclRow = regexp.MustCompile(`^ +(\d+) +(\d+) +(u?int8|u?int32|u?int64|half|float|double|bfloat16|fp8_e4m3|fp8_e5m2) +(sum|prod|max|min|avg|none) +(-1|\d+) +([\d.]+) +[\d.]+ +[\d.]+ +(\d+|N/A) +([\d.]+|N/A) +[\d.N/A]+ +[\d.N/A]+ +(\d+|N/A)$`)

// TestCollective runs the command of users of nccl-tests on three nodes.
func TestCollective(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-collective"
	must(t, "up", writeFile(t, "name: "+name+"\nfabric: {topology: single-switch, params: {hosts: 3}, "+
		"switch: {kind: soft, aggregation: {slots: 16}}, links: {default: {rate: 1gbit}}}\n"))
	t.Cleanup(func() { must(t, "down", name) })
	const ring = "../workloads/collective/msccl/testdata/ring.xml"
	for _, c := range []struct {
		args  string
		ranks int
		// rows are size, count, redop, root and #wrong of both modes.
		rows []string
	}{
		{"all_reduce -b 8 -e 2M -f 512 -n 2", 3,
			[]string{"8 2 sum -1 0 0", "4096 1024 sum -1 0 0", "2097152 524288 sum -1 0 0"}},
		{"all_reduce -b 4K -n 1 -d half -o max", 3, []string{"4096 2048 max -1 0 0"}},
		{"reduce_scatter_perf -b 100 -e 200 -i 100 -f 1 -c 0 -n 3 -w 0 --nodes h[01] -a 3", 2,
			[]string{"96 12 sum -1 N/A N/A", "192 24 sum -1 N/A N/A"}},
		{"broadcast -b 1K -r 2 -n 1 --transport rd", 3, []string{"1024 256 none 2 0 0"}},
		{"all_reduce -b 12K -n 1 --algorithm msccl --file " + ring, 3, []string{"12288 3072 sum -1 0 N/A"}},
		{"all_reduce -b 64K -n 2 --algorithm in-network", 3, []string{"65536 16384 sum -1 0 0"}},
		{"all_reduce -b 1K -n 1 --algorithm in-network --switch leaf1 -d int32 -o avg --ip 6 -t " + name, 3,
			[]string{"1024 256 avg -1 0 0"}},
		{"all_reduce -b 1K -n 1 --algorithm in-network -d half -o all", 3,
			[]string{"1024 512 sum -1 0 0", "1024 512 max -1 0 0", "1024 512 min -1 0 0",
				"1024 512 avg -1 0 0"}},
		{"all_reduce -b 64K -n 2 --channels 2 --transport rd --algorithm tree", 3,
			[]string{"65536 16384 sum -1 0 0"}},
		{"alltoall -b 96K -n 1 --channels 3 --transport rd", 3, []string{"98304 8192 none -1 0 N/A"}},
		{"sendrecv -b 4K -n 2 -d f8e4m3 -R 0", 3, []string{"4096 4096 none -1 0 0"}},
		{"hypercube -b 4K -n 1 -d uint64 --nodes h[01] --transport rd", 2,
			[]string{"4096 256 none -1 0 0"}},
		{"gather_perf -b 96K -n 1 -d double -r 1 -c 2", 3, []string{"98304 4096 none 1 0 0"}},
		{"reduce_scatter -b 768 -n 1 -d fp8_e5m2 -o prod --transport roce", 3,
			[]string{"768 256 prod -1 0 0"}},
		{"barrier -n 3", 3, []string{"0 0 none -1 0 N/A"}},
		{"alltoall -b 96K -n 2 --transport roce --algorithm pairwise --ip 4 -G 0 -g 1", 3,
			[]string{"98304 8192 none -1 0 N/A"}},
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
			rows = append(rows, strings.Join(
				[]string{found[1], found[2], found[4], found[5], found[7], found[9]}, " "))
			if us, err := strconv.ParseFloat(found[6], 64); err != nil || us <= 0 {
				t.Errorf("%s: %v us, %v", c.args, us, err)
			}
		}
		if fmt.Sprint(rows) != fmt.Sprint(c.rows) {
			t.Errorf("%s: rows %q, want %q", c.args, rows, c.rows)
		}
		if want := "# Algorithm: auto (recursive-doubling to 4KiB, ring to 2MiB)\n"; strings.Contains(c.args,
			"-e 2M") && !strings.Contains(printed, want) {
			t.Errorf("%s: no %q in\n%s", c.args, want, printed)
		}
		for _, want := range []string{"# nThread 1 nGpus 1 minBytes ",
			"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : ",
			fmt.Sprintf("#  Rank %2d Group  0 Pid ", c.ranks-1)} {
			if !strings.Contains(printed, want) {
				t.Errorf("%s: no %q in\n%s", c.args, want, printed)
			}
		}
		if strings.Contains(printed, fmt.Sprintf("#  Rank %2d", c.ranks)) {
			t.Errorf("%s: more than %d ranks:\n%s", c.args, c.ranks, printed)
		}
	}
	testSweep(t, name)
	for args, want := range map[string]string{
		"all_reduce --transport tcp,rd,tcp": "tcp is there twice",
		"all_reduce --transport=":           "--transport: want tcp, rd, roce or quic",
		"gossip":                            "all_gather, reduce_scatter",
		"all_reduce -g 2":                   "-g (--ngpus) 2: want 1: a rank is a process",
		"all_reduce -d float8": "-d float8: want one of int8, uint8, int32, uint32, int64, " +
			"uint64, half, float, double, bfloat16, fp8_e4m3, fp8_e5m2, or all",
		"hypercube -b 4K":            "hypercube with 3 ranks: want a power of two",
		"hypercube --algorithm ring": "--algorithm ring of hypercube: want none",
		"all_reduce -G 5":            "-G (--cudagraph) 5: want 0: a rank's process",
		"all_reduce -R 2":            "-R (--local_register) 2: want 0 or 1: ranks",
		"all_reduce -b 1K -d int8 --algorithm in-network": "-d int8: want one of int32, half, float",
		"all_reduce -o json":                              "--output",
		"all_reduce -o xor":                               "-o xor: want one of sum, prod, max, min, avg,",
		"all_reduce -b 1K -o prod --algorithm in-network": "-o prod: want one of sum, max, min, avg, or all",
		"all_reduce -b 1X":                                "-b 1X: want a number of bytes",
		"all_reduce -b 2M -e 1M":                          "sizes from 2MiB to 1MiB",
		"all_reduce -a 4":                                 "-a 4: want 0 to 3",
		"all_reduce -n 0":                                 "-n 0",
		"all_reduce -c -1":                                "-1 checks",
		"all_reduce --ip 5":                               "--ip 5",
		"all_reduce --nodes h7":                           "no such node",
		"all_reduce --algorithm star -b 1K":               "star",
		"all_reduce --transport homa -b 1K":               "homa",
		"all_reduce --algorithm in-network --nodes h[01]": "no switch adds up for exactly these ranks",
		"all_reduce --algorithm in-network --switch leaf2": "no switch adds up for exactly these ranks at " +
			"leaf2; want leaf1",
		"all_reduce --switch leaf1":                         "--switch leaf1: want --algorithm in-network",
		"all_reduce --algorithm in-network --transport rd":  "want algorithm in-network over in-switch",
		"barrier --channels 2":                              "dissemination cannot use several channels",
		"all_reduce --channels -1":                          "--channels -1",
		"broadcast -r 3":                                    "-r 3: want a rank, 0 to 2, or all",
		"reduce -r -2":                                      "-r -2: want",
		"reduce -N 0":                                       "-N 0: want at least 1",
		"all_reduce -t 1":                                   "-t is the testbed here",
		"all_reduce -S yes":                                 "-S yes: want 0 or 1",
		"all_reduce --nthreads 2":                           "--nthreads 2: want 1: a rank is",
		"all_reduce --algorithm msccl":                      "and a file",
		"all_reduce --file " + ring:                         "and a file",
		"all_reduce -b 12K --algorithm msccl --file no.xml": "no.xml",
		"broadcast -b 12K --algorithm msccl --file " + ring: "is for all-reduce",
		"all_reduce -b 8K --algorithm msccl --file " + ring: "want a multiple of",
		"reduce -J results.json":                            "--output json",
	} {
		got := do(t, append([]string{"collective", "-t", name}, strings.Fields(args)...)...)
		if got.code != verdict.ExitUsage || !strings.Contains(got.stderr, want) || got.stdout != "" {
			t.Errorf("%s: exit %d, %q, want %d and %q", args, got.code, got.stderr, verdict.ExitUsage, want)
		}
	}
}

// testSweep measures several sizes over several transports of a testbed with three nodes at 1 Gbit/s.
func testSweep(t *testing.T, name string) {
	dir := filepath.Join(t.TempDir(), "sweep")
	const sizes = " -b 8 -e 4K -f 512 -n 1 -w 0 -c 0 --transport tcp,rd"
	printed := must(t, strings.Fields("collective all_reduce -t "+name+sizes+" --out "+dir)...).stdout
	for want, times := range map[string]int{"(Mbit/s)": 4 * 2, "GB/s": 0, "over rd\n": 3, "over tcp\n": 3,
		"# Collective test concluded": 2, "\nall_reduce: busbw by size, in ": 1, "\nsize ": 1} {
		if got := strings.Count(printed, want); got != times {
			t.Errorf("%d times %q, want %d, in\n%s", got, want, times, printed)
		}
	}
	_, table, _ := strings.Cut(printed, "busbw by size")
	rows := regexp.MustCompile(`\nsize +tcp +rd\n8B +[0-9.]+ +[0-9.]+\n4KiB +[0-9.]+ +[0-9.]+\n` +
		`average busbw of all sizes, out of place and in place: tcp [0-9.]+ [kM]bit/s, rd [0-9.]+ [kM]bit/s\n$`)
	if !rows.MatchString(table) {
		t.Errorf("the table by size is %q", table)
	}
	for file, want := range map[string]string{"sweep.html": "<svg", "sweep.json": `"size_bytes": 4096`,
		"sweep.csv": "of,number,unit,size_bytes,tcp,rd,not_counted\nall_reduce,busbw,bit/s,8,"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, no %q in %s", file, err, want, text)
		}
	}
	testSweepAverages(t, name, sizes)
	printed = must(t, strings.Fields("collective all_reduce -t "+name+sizes+" --nccl-columns")...).stdout
	for want, times := range map[string]int{"(GB/s)": 4 * 2, "bit/s": 0, "by size": 0} {
		if got := strings.Count(printed, want); got != times {
			t.Errorf("%d times %q, want %d, in\n%s", got, want, times, printed)
		}
	}
	for line := range strings.Lines(printed) {
		if !strings.HasPrefix(line, "#") && !ncclRow.MatchString(strings.TrimRight(line, "\n")) {
			t.Errorf("the row %q is not one of nccl-tests", line)
		}
	}
}

// testSweepAverages: each transport has the average of its own rows, out of place and in place, and nothing
// has an average of several transports.
func testSweepAverages(t *testing.T, name, sizes string) {
	dir := filepath.Join(t.TempDir(), "averages")
	var got struct {
		Average  *float64 `json:"avg_busbw_gb_s"`
		Averages []struct {
			Transport string
			Average   float64 `json:"avg_busbw_gb_s"`
		}
		Sweeps []struct {
			Number   string
			Lines    []string
			Averages []float64
			Rows     []struct{ Cells []struct{ Value float64 } }
		}
	}
	measure := "collective all_reduce --output json -t " + name
	text := must(t, strings.Fields(measure+sizes+" --out "+dir)...).stdout
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Average != nil || len(got.Averages) != 2 {
		t.Fatalf("%v, %v, %d averages; want one for each transport and none of all, in\n%s", err, got.Average,
			len(got.Averages), text)
	}
	csv, err := os.ReadFile(filepath.Join(dir, "sweep.csv"))
	if err != nil {
		t.Fatal(err)
	}
	for i, transport := range []string{"tcp", "rd"} {
		sum, count := 0.0, 0.0
		for _, s := range got.Sweeps {
			for _, row := range s.Rows {
				if strings.HasPrefix(s.Number, "busbw") {
					sum, count = sum+row.Cells[i].Value, count+1
				}
			}
		}
		want, table := sum/count, got.Averages[i]
		if count != 4 || table.Transport != transport || math.Abs(table.Average*8e9/want-1) > 1e-9 ||
			math.Abs(got.Sweeps[0].Averages[i]/want-1) > 1e-9 || got.Sweeps[0].Lines[i] != transport {
			t.Errorf("%s: %+v and %v, want %v bit/s over %v values", transport, table,
				got.Sweeps[0].Averages, want, count)
		}
		line := fmt.Sprintf("\nall_reduce,average busbw,bit/s,,%s,%s,\n",
			strconv.FormatFloat(got.Sweeps[0].Averages[0], 'f', -1, 64),
			strconv.FormatFloat(got.Sweeps[0].Averages[1], 'f', -1, 64))
		if !strings.Contains(string(csv), line) {
			t.Errorf("no row %q in\n%s", line, csv)
		}
	}
	text = must(t, strings.Fields(measure+" -b 8 -n 1")...).stdout
	got.Average, got.Averages = nil, nil
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Average == nil ||
		len(got.Averages) != 1 || *got.Average != got.Averages[0].Average {
		t.Errorf("%v, %v, %v: want one average of one transport", err, got.Average, got.Averages)
	}
}

// TestCollectiveOfAll: types, operations and roots in the order of nccl-tests, of which a
// collective has those that mean something to it, and one table over all.
func TestCollectiveOfAll(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-collective-all"
	must(t, "up", writeFile(t, twoHosts(name)))
	t.Cleanup(func() { must(t, "down", name) })
	for args, want := range map[string][]string{
		"reduce -b 1K -e 2K -f 2 -n 1 -d int32 -o all -r -1": {
			"1024 int32 sum 0", "2048 int32 sum 0", "1024 int32 sum 1", "2048 int32 sum 1",
			"1024 int32 prod 0", "2048 int32 prod 0", "1024 int32 prod 1", "2048 int32 prod 1",
			"1024 int32 max 0", "2048 int32 max 0", "1024 int32 max 1", "2048 int32 max 1",
			"1024 int32 min 0", "2048 int32 min 0", "1024 int32 min 1", "2048 int32 min 1",
			"1024 int32 avg 0", "2048 int32 avg 0", "1024 int32 avg 1", "2048 int32 avg 1",
		},
		"broadcast -b 1K -n 1 -d all -o all -r all -c 0": {
			"1024 int8 none 0", "1024 int8 none 1", "1024 uint8 none 0", "1024 uint8 none 1",
			"1024 int32 none 0", "1024 int32 none 1", "1024 uint32 none 0", "1024 uint32 none 1",
			"1024 int64 none 0", "1024 int64 none 1", "1024 uint64 none 0", "1024 uint64 none 1",
			"1024 half none 0", "1024 half none 1", "1024 float none 0", "1024 float none 1",
			"1024 double none 0", "1024 double none 1", "1024 bfloat16 none 0", "1024 bfloat16 none 1",
			"1024 fp8_e4m3 none 0", "1024 fp8_e4m3 none 1", "1024 fp8_e5m2 none 0", "1024 fp8_e5m2 none 1",
		},
		"all_reduce -b 1K -n 1 -d all -r all --transport rd": {"1024 int8 sum -1", "1024 uint8 sum -1",
			"1024 int32 sum -1", "1024 uint32 sum -1", "1024 int64 sum -1", "1024 uint64 sum -1",
			"1024 half sum -1", "1024 float sum -1", "1024 double sum -1", "1024 bfloat16 sum -1",
			"1024 fp8_e4m3 sum -1", "1024 fp8_e5m2 sum -1"},
		"barrier -n 1 -d all -o all -r all": {"0 float none -1"},
		"all_gather -b 1K -e 2K -f 2 -n 1 -o all -N 2 -S 1": {"1024 float none -1", "2048 float none -1",
			"1024 float none -1", "2048 float none -1"},
	} {
		printed := must(t, append([]string{"collective", "-t", name}, strings.Fields(args)...)...).stdout
		var rows []string
		for line := range strings.Lines(printed) {
			if f := strings.Fields(line); f[0] != "#" && len(f) > 4 {
				rows = append(rows, strings.Join([]string{f[0], f[2], f[3], f[4]}, " "))
				if stamp := strings.TrimRight(line[max(0, len(line)-20):], "\n"); strings.Contains(args,
					"-S 1") {
					if at, err := time.ParseInLocation(time.DateTime, stamp, time.Local); err != nil ||
						time.Since(at) > time.Hour {
						t.Errorf("%s: the row %q ends with %q, %v", args, line, stamp, err)
					}
				}
			}
		}
		if !slices.Equal(rows, want) {
			t.Errorf("%s: rows %q, want %q", args, rows, want)
		}
		for _, once := range []string{"# Using devices", "out-of-place", "# Avg bus bandwidth",
			"# Algorithm: "} {
			if n := strings.Count(printed, once); n != 1 {
				t.Errorf("%s: %d times %q in\n%s", args, n, once, printed)
			}
		}
	}
	var document cli.CollectiveReport
	printed := must(t, strings.Fields(
		"collective reduce -b 1K -n 1 -w 0 -o all -r all --output json -t "+name)...).stdout
	if err := json.Unmarshal([]byte(printed), &document); err != nil {
		t.Fatal(err)
	}
	if len(document.Rows) != 10 || len(document.Runs) != 10 || document.Name != "reduce" ||
		document.Ranks != 2 {
		t.Fatalf("the document has %d rows of %d runs: %s", len(document.Rows), len(document.Runs), printed)
	}
	for i, run := range document.Runs {
		if len(run.Rows) != 1 || run.Rows[0].Root != i%2 || run.Rows[0].Root != document.Rows[i].Root ||
			run.Rows[0].RedOp != document.Rows[i].RedOp || len(run.PerRank) != 2 {
			t.Errorf("run %d: %+v", i, run)
		}
	}
}
