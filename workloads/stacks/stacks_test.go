package stacks

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/nodes"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
)

// What iperf3 3.12 prints with -J, the end of it.
const iperf3Says = `{"start": {}, "intervals": [], "end": {
	"sum_sent": {"start": 0, "end": 0.3992, "seconds": 0.3992, "bytes": 4194304, "bits_per_second": 84054188.37, "retransmits": 3, "sender": true},
	"sum_received": {"start": 0, "end": 0.404766, "seconds": 0.404766, "bytes": 3807048, "bits_per_second": 75244422.70, "sender": true}}}`

func TestParseIPerf3(t *testing.T) {
	row, received, err := parseIPerf3("h1 > h0", []byte(iperf3Says))
	if err != nil || received != 3807048 || row.Value != 75244422.70 ||
		!slices.Equal(row.Cells, []string{"h1 > h0", "0.00-0.40", "3807048", "75244423", "3"}) {
		t.Errorf("got %+v, %d, %v", row, received, err)
	}
	for _, text := range []string{"", "{}", `{"error": "unable to connect to server"}`, "iperf3: error"} {
		if row, _, err := parseIPerf3("h1 > h0", []byte(text)); err == nil {
			t.Errorf("%q is read as %+v", text, row)
		}
	}
}

// What redis-benchmark 7.0.15 prints with --csv.
const redisSays = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"SET","7211.54","0.878","0.272","0.727","1.823","4.719","6.111"
"GET","9868.42","0.627","0.264","0.375","1.271","3.119","7.087"
`

func TestParseRedis(t *testing.T) {
	columns, rows, err := parseRedis("h1", redisSays)
	if err != nil || len(columns) != 8 || len(rows) != 2 || rows[0].Value != 7211.54 ||
		rows[1].Key != "h1 GET" || rows[1].Cells[2] != "0.627" {
		t.Errorf("got %q, %+v, %v", columns, rows, err)
	}
	for _, text := range []string{"", "Could not connect to Redis at h0:6379\n",
		strings.Replace(redisSays, "7211.54", "fast", 1), strings.SplitAfter(redisSays, "\n")[0]} {
		if _, rows, err := parseRedis("h1", text); err == nil || strings.Contains(err.Error(), "nil") {
			t.Errorf("%q is read as %+v, %v", text, rows, err)
		}
	}
}

// What ucx_perftest 1.13.1 prints with -f -v.
const ucxSays = `iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
  30,52.014,4967.300,4967.300,12.58,12.59,201,202
`

func TestParseUCX(t *testing.T) {
	row, err := parseUCX("h1 > h0", ucxSays)
	if err != nil || row.Key != "h1 > h0" || row.Value != 12.59 || len(row.Cells) != len(ucxColumns) ||
		row.Cells[1] != "30" {
		t.Errorf("got %+v, %v", row, err)
	}
	for _, text := range []string{"", strings.SplitAfter(ucxSays, "\n")[0],
		"connect() failed: Connection refused\n"} {
		if row, err := parseUCX("h1 > h0", text); err == nil {
			t.Errorf("%q is read as %+v", text, row)
		}
	}
}

// What fi_pingpong 1.17.0 prints.
const libfabricSays = `bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
16k     60      =60      1.8m        1.77s      1.11   14780.81       0.00
`

func TestParseLibfabric(t *testing.T) {
	row, err := parseLibfabric("h1 > h0", libfabricSays, 9)
	if err != nil || row.Value != 1.11 || len(row.Cells) != 9 || row.Cells[7] != "14780.81" {
		t.Errorf("got %+v, %v", row, err)
	}
	for _, text := range []string{"", strings.SplitAfter(libfabricSays, "\n")[0],
		"fi_getinfo: No data available\n"} {
		if row, err := parseLibfabric("h1 > h0", text, 9); err == nil {
			t.Errorf("%q is read as %+v", text, row)
		}
	}
}

const osuSays = `# OSU MPI Allreduce Latency Test
# Size Avg Latency(us) Min Latency(us) Max Latency(us) Iterations Validation
4096               6533.19      1548.34      8639.37          4 Pass
32768             23776.36     14988.92     28395.89          4 Pass
# done
`

func TestParseOSU(t *testing.T) {
	made, err := parseOSU(osuSays)
	if err != nil || len(made.rows) != 2 || made.rows[1].Key != "32768" || made.rows[1].Value != 23776.36 ||
		len(made.rows[0].Cells) != len(made.columns) {
		t.Errorf("got %+v, %v", made, err)
	}
	for _, text := range []string{"", "# done\n", strings.Replace(osuSays, "Pass", "Fail", 1)} {
		if made, err := parseOSU(text); err == nil {
			t.Errorf("%q is read as %+v", text, made)
		}
	}
}

// ranksOn are ranks 0, 1, ... on nodes.
func ranksOn(nodes ...string) (ranks []plan.Rank, all []*plan.Node) {
	for i, node := range nodes {
		ranks = append(ranks, plan.Rank{Rank: i, Node: node, NIC: "eth0"})
		if i == 0 || nodes[i-1] != node {
			all = append(all, &plan.Node{Name: node})
		}
	}
	return ranks, all
}

// The bound on the bytes that ranks send: for each size one message per iteration, and one more.
func TestMPISends(t *testing.T) {
	made, err := parseOSU(osuSays)
	if err != nil {
		t.Fatal(err)
	}
	const total = 5 * (4096 + 32768)
	for _, test := range []struct {
		test  string
		nodes []string
		want  []units.Bytes
	}{
		{spec.AllReduce, []string{"h0", "h1", "h2"}, []units.Bytes{total, total, total}},
		{spec.AllReduce, []string{"h0", "h0", "h1"}, []units.Bytes{0, 0, total}},
		{spec.AllToAll, []string{"h0", "h1", "h2"}, []units.Bytes{2 * total, 2 * total, 2 * total}},
		{spec.AllToAll, []string{"h0", "h0", "h1"}, []units.Bytes{total, total, 2 * total}},
	} {
		ranks, nodes := ranksOn(test.nodes...)
		r := &run{Job: Job{Step: &spec.Stack{Test: test.test, Iterations: 4}, Nodes: nodes}, ranks: ranks}
		if got := (mpi{}).sends(r, made); !slices.Equal(got, test.want) {
			t.Errorf("%s on %v: %d, want %d", test.test, test.nodes, got, test.want)
		}
	}
}

// What launchers say of a rank that was killed, or ended with an exit code.
func TestMPIBlames(t *testing.T) {
	ranks, there := ranksOn("h0", "h1")
	r := &run{Job: Job{Nodes: there}, ranks: ranks}
	open := mpi{died: openMPIDied}
	hydra := mpi{died: mpichDied}
	for _, test := range []struct {
		m          mpi
		says, want string
	}{
		{open, "mpirun noticed that process rank 1 with PID 0 on node h1 exited on signal 9 (Killed).\n",
			"rank 1 (h1) ended: "},
		{open, "  Process name: [[23245,1],0]\n  Exit code:    3\n", "rank 0 (h0) ended: "},
		{open, "there are not enough slots\n", "mpirun in h0: "},
		{hydra, "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 31 RUNNING AT h1\n=   " +
			"EXIT CODE: 9\n", "a rank in h1 ended: "},
	} {
		exit := &testbed.ExitError{Exit: nodes.Exit{Code: 1}, Node: "h0", Args: []string{"mpirun"},
			Stderr: []byte(test.says)}
		if err := test.m.deadRank(r, exit, nil); !strings.HasPrefix(err.Error(), test.want) ||
			!errors.Is(err, error(exit)) {
			t.Errorf("%q gives %v, want %q", test.says, err, test.want)
		}
	}
}

func TestWaitedFor(t *testing.T) {
	ranks, _ := ranksOn("h0", "h1", "h2")
	for _, test := range []struct {
		states map[string]string
		want   string
	}{
		{map[string]string{"h0": "0 S 4\n", "h1": "1 R 4\n", "h2": "2 S 4\n"}, ""},
		{map[string]string{"h0": "0 S 4\n", "h1": "1 S 3\n", "h2": "2 S 4\n"},
			"rank 1 (h1) is in call 3, others in 4"},
		{map[string]string{"h0": "0 S 4\n", "h1": "1 T 4\n", "h2": "2 S 4\n"}, "rank 1 (h1) is stopped"},
		{map[string]string{"h0": "0 S\n", "h1": "", "h2": "2 S\n"}, "rank 1 (h1) has ended"},
		{map[string]string{"h0": "0 S 4\n", "h1": "", "h2": "2 S 3\n"},
			"rank 1 (h1) has ended; rank 2 (h2) is in call 3, others in 4"},
		{map[string]string{"h0": "", "h1": "", "h2": ""}, ""},
	} {
		if got := waitedFor(ranks, test.states); got != test.want {
			t.Errorf("%v: %q, want %q", test.states, got, test.want)
		}
	}
}

func TestOlder(t *testing.T) {
	for _, test := range []struct {
		version, than string
		want          bool
	}{{"3.1", "3.1", false}, {"3.10", "3.9", false}, {"3.9", "3.10", true}, {"7.0.15", "6.2", false},
		{"4", "4.0", true}, {"4.0.2", "4.0", false}} {
		if got := older(test.version, test.than); got != test.want {
			t.Errorf("%s older than %s: %v", test.version, test.than, got)
		}
	}
}

// On a host without the programs, or with old ones, the error says what to install.
func TestFindSaysWhatToInstall(t *testing.T) {
	lacks := func(a adapter, reason string) {
		t.Helper()
		_, err := a.find(t.Context())
		var lacking *verdict.UnsupportedError
		if !errors.As(err, &lacking) ||
			lacking.Remedy != "apt-get install --no-install-recommends shell other" ||
			!strings.Contains(lacking.Reason, reason) || strings.Contains(lacking.Reason, "nil") {
			t.Errorf("got %v, want %q and what to install", err, reason)
		}
	}
	a := adapter{kind: "x", tools: []tool{{names: []string{"sh"}, debian: "shell"},
		{names: []string{"no-such-program", "cat"}, debian: "other"},
		{names: []string{"sh"}, debian: "shell"}},
		version: []string{"sh", "-c", "echo x, version 2.5.1"}, says: "version ", least: "2.5"}
	there, err := a.find(context.Background())
	if err != nil || there.version != "2.5.1" || there.commands["no-such-program"] != "cat" {
		t.Fatalf("got %+v, %v", there, err)
	}
	old, mute, absent := a, a, a
	old.least = "2.6"
	lacks(old, "2.5.1 is too old, want 2.6 or later")
	mute.says = "release "
	lacks(mute, "printed no version number")
	absent.tools = slices.Clone(a.tools)
	absent.tools[1].names = []string{"no-such-program", "nor-this"}
	lacks(absent, "no no-such-program and no nor-this")
	if _, err := Find(t.Context(), "unheard-of"); err == nil || errors.Is(err, verdict.ErrUnsupported) {
		t.Errorf("a kind without an adapter: %v", err)
	}
}

// Each kind of files has an adapter, and none is without.
func TestAdaptersAreThoseOfFiles(t *testing.T) {
	var kinds []string
	for _, a := range adapters {
		kinds = append(kinds, a.kind)
	}
	slices.Sort(kinds)
	if want := spec.StackKinds(); !slices.Equal(kinds, want) {
		t.Errorf("adapters of %v, files have %v", kinds, want)
	}
}

// What ddp.py printed with PyTorch 1.13, and a warning.
const ddpSays = `# parameters 4081
/usr/lib/python3/dist-packages/torch/nn/modules/module.py: UserWarning: of something
10 0.711855 33.736
20 0.622144 15.112
# replicas 2 equal
`

func TestParseDDP(t *testing.T) {
	made, parameters, err := parseDDP(ddpSays, 2)
	if err != nil || parameters != 4081 || len(made.rows) != 2 || made.rows[1].Key != "20" ||
		made.rows[1].Value != 15.112 || len(made.rows[0].Cells) != len(made.columns) {
		t.Errorf("got %+v, %d, %v", made, parameters, err)
	}
	for _, text := range []string{"", strings.Replace(ddpSays, "# replicas 2 equal", "", 1),
		strings.Replace(ddpSays, "4081", "some", 1), "# parameters 1\n# replicas 2 equal\n"} {
		if made, _, err := parseDDP(text, 2); err == nil {
			t.Errorf("%q is read as %+v", text, made)
		}
	}
	if _, _, err := parseDDP(ddpSays, 3); err == nil {
		t.Error("two replicas are read as three")
	}
}

// What ib_write_bw and ib_send_lat 6.06 print.
const (
	perftestSaysBandwidth = `---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      10               4.12               4.01   		   0.000064
---------------------------------------------------------------------------------------
`
	perftestSaysLatency = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 1024    10          1544.31        47329.19      2557.59  	       6519.80     	6956.87		47329.19 		47329.19
`
)

func TestParsePerftest(t *testing.T) {
	row, err := parsePerftest("h1 > h0", perftestSaysBandwidth, perftestBandwidth, false)
	if err != nil || row.Value != 4.01 || len(row.Cells) != len(perftestBandwidth) {
		t.Errorf("got %+v, %v", row, err)
	}
	if row, err = parsePerftest("h1 > h0", perftestSaysLatency, perftestLatency, true); err != nil ||
		row.Value != 2557.59 || len(row.Cells) != len(perftestLatency) {
		t.Errorf("got %+v, %v", row, err)
	}
	for _, text := range []string{"", perftestSaysLatency,
		strings.Replace(perftestSaysBandwidth, "4.01", "", 1), " #bytes     #iterations\n"} {
		if row, err := parsePerftest("h1 > h0", text, perftestBandwidth, false); err == nil {
			t.Errorf("%q is read as %+v", text, row)
		}
	}
}

// The metric is in the unit that the program's own messages in a second tell.
func TestUnitsOfMetrics(t *testing.T) {
	const message = 64 << 10
	pairs, err := parsePerftest("h1 > h0", perftestSaysBandwidth, perftestBandwidth, false)
	if err != nil {
		t.Fatal(err)
	}
	tags, err := parseUCX("h1 > h0", ucxSays)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		metric metric
		row    report.StackRow
		rate   string
		scale  float64
	}{{perftest.metric, pairs, pairs.Cells[5], 1e6}, {ucx.metric, tags, tags.Cells[8], 1}} {
		rate, err := figure(c.rate)
		unit := map[string]float64{"MB/s": 1e6, "MiB/s": 1 << 20}[c.metric.unit]
		if got := c.row.Value * unit / message; err != nil || math.Abs(got/(rate*c.scale)-1) > 0.02 {
			t.Errorf("%s: %v %s are %.1f messages in a second, and the program says %v (%v)", c.metric.name,
				c.row.Value, c.metric.unit, got, rate*c.scale, err)
		}
	}
}

// What is compared with another run is in the table.
func TestFiguresAreColumns(t *testing.T) {
	redisColumns, _, err := parseRedis("h1", redisSays)
	if err != nil {
		t.Fatal(err)
	}
	columns := slices.Concat(osuColumns, ucxColumns, ddpColumns, redisColumns, libfabricColumns,
		iperf3Columns, perftestBandwidth)
	for _, a := range adapters {
		if len(a.figures) == 0 {
			t.Errorf("of %s nothing is compared", a.kind)
		}
		for _, figure := range a.figures {
			if !slices.Contains(columns, figure) {
				t.Errorf("%s has no column %q", a.kind, figure)
			}
		}
	}
}

// If a rank exits before all ranks run, mpirun names it only in its states, which are not for
// people.
func TestMPIBlamesByStates(t *testing.T) {
	var log strings.Builder
	a := &aside{form: openMPIStates, to: &log}
	const says = "[h0:00017] [[48720,0],0] ACTIVATE PROC [[48720,1],0] STATE RUNNING AT x.c:1\nPrimary job " +
		" terminated normally\n" +
		"[h0:00017] [[48720,0],0] ACTIVATE PROC " +
		"[[48720,1],1] STATE EXITED WITH NON-ZERO STATUS AT y.c:352\n" +
		"[h0:00017] [[48720,0],0] ACTIVATE PROC [[48720,0],1] STATE ABORTED AT z.c:1\nno end of line"
	for _, b := range []byte(says) {
		if _, err := a.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	a.flush()
	if want := "Primary job  terminated normally\nno end of line"; log.String() != want {
		t.Errorf("people read %q, want %q", log.String(), want)
	}
	ranks, there := ranksOn("h0", "h1")
	r := &run{Job: Job{Nodes: there}, ranks: ranks}
	exit := &testbed.ExitError{Exit: nodes.Exit{Code: 7}, Node: "h0", Args: []string{"mpirun"},
		Stderr: []byte(log.String())}
	if err := (mpi{died: openMPIDied}).deadRank(r, exit, a.taken); !strings.HasPrefix(err.Error(),
		"rank 1 (h1) ended: ") {
		t.Errorf("got %v, want rank 1", err)
	}
}
