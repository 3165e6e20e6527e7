package jobfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/internal/units"
	"railbed/workloads/training"
)

const simaiHead = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 2 ga: 1 " +
	"all_gpus: 4 checkpoints: 0 checkpoint_initiates: 0 pp_comm: 0\n"

const simaiFile = simaiHead + `2
embedding	-1	1000	ALLREDUCE	4096	1	NONE	0	1	NONE	0	100
mlp_layer	-1	3000	ALLGATHER	8194	2000	REDUCESCATTER	8192	1500	ALLREDUCE	65536	100
`

// names are a rank's tasks in order, each exchange with its group, kind and bytes.
func names(p *training.Program, rank int) (all []string) {
	for _, t := range p.Tasks[rank] {
		text := t.Name + " " + t.Time.String()
		if t.Kind == training.Exchange {
			o := p.Operations[t.Operation]
			text = strings.Join([]string{t.Name, o.Group, string(o.Kind), units.Bytes(o.Bytes).String()}, " ")
		}
		all = append(all, text)
	}
	return all
}

func TestSimAI(t *testing.T) {
	p, err := readSimAI("f.txt", []byte(simaiFile), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"forward embedding 1µs", "forward embedding tp all-reduce 4KiB",
		"forward mlp_layer 3µs", "forward mlp_layer tp all-gather 8196B",
		"backward mlp_layer 2µs", "backward mlp_layer tp reduce-scatter 8KiB",
		"gradient mlp_layer 1.5µs", "gradient mlp_layer dp all-reduce 64KiB",
		"backward embedding 1ns", "gradient embedding 1ns",
	}
	if got := names(p, 3); !slices.Equal(got, want) || len(p.Tasks) != 4 {
		t.Errorf("rank 3 of %d does\n%s\nwant\n%s", len(p.Tasks), strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
	for _, task := range p.Tasks[3] { // no task waits for the collective of weights' gradients
		if after := task.After; slices.Contains(after, 7) {
			t.Errorf("%s waits for the weights' gradient", task.Name)
		}
	}
	var ranks [][]int
	for _, i := range []int{3, 7} {
		ranks = append(ranks, p.Operations[p.Tasks[3][i].Operation].Ranks)
	}
	if !slices.Equal(ranks[0], []int{2, 3}) || !slices.Equal(ranks[1], []int{1, 3}) {
		t.Errorf("rank 3 is with %v, want 2 and 3 in tp, 1 and 3 in dp", ranks)
	}
	experts := strings.Replace(strings.Replace(simaiFile, "ep: 1", "ep: 2", 1), "ALLGATHER", "ALLTOALL_EP", 1)
	p, err = readSimAI("f.txt", []byte(strings.Replace(experts, "ALLREDUCE\t65536", "ALLREDUCE_DP_EP\t65536",
		1)), Options{Ranks: 8, Scale: training.Scale{Bytes: units.Factor{Num: 1, Den: 8},
		Times: units.Factor{Num: 2, Den: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(p, 5); got[2] != "forward mlp_layer 6µs" ||
		got[3] != "forward mlp_layer ep all-to-all 1KiB" ||
		got[7] != "gradient mlp_layer ep-dp all-reduce 8KiB" {
		t.Errorf("rank 5 does %q", got)
	}
	o := p.Operations[p.Tasks[5][7].Operation]
	if e := p.Operations[p.Tasks[5][3].Operation]; !slices.Equal(o.Ranks, []int{1, 5}) ||
		!slices.Equal(e.Ranks, []int{5, 7}) {
		t.Errorf("rank 5 has the experts of %v, and shares them with %v", o.Ranks, e.Ranks)
	}
}

func TestWrongSimAI(t *testing.T) {
	const layer = "l -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n"
	for _, c := range []struct{ text, want string }{
		{"", "f.txt:1: the file ends"},
		{"DATA\n1\n" + layer, `f.txt:1: the kind of the job is "DATA", want HYBRID_TRANSFORMER_FWD_IN_BCKWD`},
		{strings.Replace(simaiHead, "checkpoints: 0", "checkpoints: 2", 1) + "1\n" + layer,
			"f.txt:1: checkpoints is \"2\", want 0: recomputation"},
		{strings.Replace(simaiHead, "vpp", "speed", 1) + "1\n" + layer,
			`f.txt:1: "speed" is not known; want model_parallel_NPU_group`},
		{strings.Replace(simaiHead, "ep: 1", "ep: 3", 1) + "1\n" + layer,
			"f.txt:1: 4 ranks (all_gpus) with model_parallel_NPU_group 2, ep 3 and pp 1, want world: a " +
				"multiple of 6 up"},
		{strings.Replace(simaiHead, "all_gpus: 4", "all_gpus: many", 1) + "1\n" + layer,
			`f.txt:1: all_gpus is "many", want a whole number from 1 to`},
		{strings.Replace(simaiHead, "all_gpus: 4", "all_gpus: 8192", 1) + "1\n" + layer,
			"f.txt:1: 8192 ranks (all_gpus) with model_parallel_NPU_group 2, ep 1 and pp 1, want world: a " +
				"multiple of 2 up to 4096"},
		{strings.Replace(simaiHead, "all_gpus: 4 ", "", 1) + "1\n" + layer,
			"f.txt:1: the file has no all_gpus, want world: the number of ranks, a multiple of 2 up to 4096"},
		{strings.TrimSuffix(simaiHead, " 0\n") + "\n1\n" + layer, `f.txt:1: "pp_comm" has no value`},
		{simaiHead + "x\n" + layer, `f.txt:2: number of layers is "x"`},
		{simaiHead + "2\n" + layer, "f.txt:3: the file ends after 1 layers, want the 2"},
		{simaiHead + "1\n" + layer + "\n" + layer, "f.txt:5: more layers than the 1 of line 2"},
		{simaiHead + "1\n" + strings.TrimSuffix(layer, "1\n"), "f.txt:3: a layer of 11 words, want 12"},
		{simaiHead + "2\n" + layer + strings.Replace(layer, "NONE", "GOSSIP", 1),
			`f.txt:4: collective "GOSSIP" is not known; want NONE`},
		{simaiHead + "1\n" + strings.Replace(layer, "NONE 0", "ALLREDUCE -4", 1),
			`f.txt:3: a size of "-4", want bytes`},
		{simaiHead + "1\n" + strings.Replace(layer, "-1 1", "-1 1e9", 1),
			`f.txt:3: a time of "1e9", want ns`},
		{simaiHead + "1\n" + strings.Replace(layer, "NONE 0", "ALLREDUCE 4000000000", 1),
			"f.txt: check program: operation 0: all-reduce of 4GB, want at most 1GiB: divide bytes-scale " +
				"by 4"},
	} {
		if _, err := readSimAI("f.txt", []byte(c.text), Options{}); err == nil ||
			!strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// A chain of transfers, as htsim's gen_allreduce.py makes them, and one at its own time.
const matrixFile = `# three nodes
Nodes 3
Connections 4
Triggers 2

0->1 id 1 start 0 size 1001 send_done_trigger 1
1->2 id 2 trigger 1 size 2000 recv_done_trigger 2
2->0 id 3 trigger 2 size 3000 prio 5
2->0 start 5000000 size 16
trigger id 1 oneshot
trigger id 2 barrier count 1
`

func TestMatrix(t *testing.T) {
	p, err := readMatrix("f.cm", []byte(matrixFile), Options{Ranks: 3})
	if err != nil {
		t.Fatal(err)
	}
	cost := func(o *training.Operation) time.Duration { return time.Duration(o.Bytes) * time.Nanosecond }
	spans, err := p.Predict(cost)
	if err != nil {
		t.Fatal(err)
	}
	ends := map[uint64]training.Span{} // of who receives
	for i, task := range p.Tasks[0] {
		if o := p.Operations[task.Operation]; task.Kind == training.Exchange && o.Ranks[1] == 0 {
			ends[o.Bytes] = spans[0][i]
		}
	}
	if ends[3000].End != 1004+2000+3000 || ends[16].End != 5000+16 {
		t.Errorf("the last of the chain ends at %v, want 6004 ns; the one at its own time at %v, "+
			"want 5016 ns", ends[3000].End, ends[16].End)
	}
}

func TestWrongMatrix(t *testing.T) {
	replaced := func(old, new string) string { return strings.Replace(matrixFile, old, new, 1) }
	for _, c := range []struct{ text, want string }{
		{"", "f.cm:0: the file has no line Nodes, want the number of nodes"},
		{"Nodes 2\n0->1 start 0 size 1",
			"f.cm:2: the file has 1 connections and no line Connections, want Connections 1"},
		{replaced("Nodes 3\n", ""), `f.cm:5: connection "0->1": want a line Nodes before it`},
		{replaced("Nodes 3", "Nodes x"), `f.cm:2: Nodes is "x", want a whole number`},
		{replaced("Nodes 3", "Nodes 3 4"), "f.cm:2: Nodes has 2 values"},
		{replaced("Connections 4", "Connections 3"),
			"f.cm:11: the file has 4 connections, but Connections is 3"},
		{replaced("Triggers 2", "Triggers 1"), "f.cm:11: the file has 2 triggers, but Triggers is 1"},
		{replaced("# three", "Failures 1 #\n#"), "f.cm:1: Failures has 2 values"},
		{replaced("# three nodes", "Failures 1"), "f.cm:11: the file has failures, want none"},
		{replaced("0->1", "0->3"), `f.cm:6: a node is "3", want a whole number up to 2`},
		{replaced("0->1", "0->0"), "f.cm:6: node 0 sends to itself"},
		{replaced("start 0 size", "begin 0 size"), `f.cm:6: "begin" is not known; want start`},
		{replaced("start 0 size 1001", "size 1001"),
			"f.cm:6: the connection has both start and trigger, or neither"},
		{replaced("size 1001", "size 0"), "f.cm:6: the connection has no size, or size 0"},
		{replaced("start 0", "start -1"), `f.cm:6: start is "-1", want picoseconds`},
		{replaced("start 0", "start NaN"), `f.cm:6: start is "NaN", want picoseconds`},
		{replaced("id 2 trigger 1", "id 1 trigger 1"), "f.cm:7: id 1 occurs twice"},
		{replaced("id 2 trigger 1", "id 1 msg trigger 1"),
			"f.cm:7: a message of connection 1, which leads from 0 to 1, want the same nodes"},
		{replaced("2->0 start", "2->0 msg start"), "f.cm:9: msg without an id"},
		{replaced("0->1 id 1", "0->1 id 1 msg 0"), "f.cm:6: msg is 0, want at least 1"},
		{replaced("size 3000 prio 5", "size 3000 prio"), `f.cm:8: "prio" has no value`},
		{replaced("id 2 trigger 1", "trigger 1"), "f.cm:7: a connection with a trigger has no id"},
		{replaced("trigger id 1 oneshot", "trigger id 3 oneshot"), "f.cm:6: trigger 1 is not defined"},
		{replaced("trigger id 1 oneshot", "trigger id 1"), "f.cm:10: want a trigger with an id above 0"},
		{replaced("trigger id 1 oneshot", "trigger id 1 sometimes"), `f.cm:10: "sometimes" is not known`},
		{replaced("barrier count 1", "barrier count 2"), "f.cm:11: 1 connections fire the trigger"},
		{replaced("0->1 id 1", "2->0 id 1"),
			"f.cm:7: node 1 waits for trigger 1, which the connection of line 6 fires"},
		{replaced("start 0 size 1001", "trigger 2 size 1001"), "f.cm:6: node 0 waits for trigger 2"},
		{replaced(" send_done_trigger 1", ""),
			"f.cm:7: the connection waits for trigger 1, which no earlier connection fires"},
		{replaced("prio", "addon prio"), `f.cm:8: "addon" is not known`},
		{replaced("trigger id 1 oneshot", "flow id 1"), `f.cm:10: "flow" is not known`},
	} {
		if _, err := readMatrix("f.cm", []byte(c.text), Options{}); err == nil ||
			!strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
	const want = "f.cm:1: the job has 4 ranks, want world: 3 for the nodes that connections use, or world: 9 "
	if _, err := readMatrix("f.cm", []byte(replaced("Nodes 3", "Nodes 9")), Options{Ranks: 4}); err == nil ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestMatrixCountsUsedNodes: ranks are the nodes that connections use, for each value of Nodes.
func TestMatrixCountsUsedNodes(t *testing.T) {
	const large = "Nodes 8192\nConnections 4\n7000->12 start 0 size 100\n12->4095 start 0 size 200\n" +
		"12->7000 id 3 trigger 1 size 300\n8000->12 id 4 start 0 size 400 recv_done_trigger 1\n" +
		"Triggers 1\ntrigger id 1 oneshot\n"
	for _, c := range []struct {
		text  string
		ranks int // that the job has to have
		want  int
		bytes []uint64 // sent by the first ranks
	}{
		{large, 0, 4, []uint64{500, 0, 100, 400}},
		{large, 4, 4, []uint64{500, 0, 100, 400}},
		{"Nodes 4\nConnections 1\n1->3 start 0 size 100\n", 0, 2, []uint64{100, 0}},
		{"Nodes 4\nConnections 1\n1->3 start 0 size 100\n", 4, 4, []uint64{0, 100, 0, 0}},
	} {
		p, err := readMatrix("f.cm", []byte(c.text), Options{Ranks: c.ranks})
		if err != nil || len(p.Tasks) != c.want {
			t.Errorf("%v, want %d ranks", err, c.want)
			continue
		}
		for rank, want := range c.bytes {
			if got := p.Sent(rank); got != want {
				t.Errorf("rank %d of %d sends %d bytes, want %d", rank, c.want, got, want)
			}
		}
	}
}

// TestMatrixMessages: several lines with msg are messages of one connection, numbered or not.
func TestMatrixMessages(t *testing.T) {
	p, err := readMatrix("f.cm", []byte("Nodes 2\nConnections 4\n0->1 id 1 msg start 0 size 100\n"+
		"0->1 id 1 msg start 0 size 100\n0->1 id 1 msg 7 start 5000 size 200\n"+
		"1->0 id 2 start 0 size 8 msg\n"),
		Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Sent(0) != 400 || p.Sent(1) != 8 || len(p.Operations) != 4 {
		t.Errorf("%d and %d bytes in %d operations, want 400 and 8 in 4", p.Sent(0), p.Sent(1),
			len(p.Operations))
	}
}

// Files are read by the endings of their names.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ranks := chakraFiles(t)
	for _, c := range []struct {
		path  string
		ranks int
	}{
		{write("a.txt", []byte(simaiFile)), 4}, {write("a.cm", []byte(matrixFile)), 3},
		{write("a.0.et", ranks[0].Content), 2},
	} {
		write("a.1.et", ranks[1].Content)
		write("a.json", []byte(`{"pair": [1, 0]}`))
		if p, err := Read(c.path, Options{}); err != nil || len(p.Tasks) != c.ranks {
			t.Errorf("%s: %v, want %d ranks", c.path, err, c.ranks)
		}
	}
	for path, want := range map[string]string{
		write("b.xml", nil):         "want a file that ends in .txt (SimAI), .et or .json (Chakra), or .cm",
		filepath.Join(dir, "c.txt"): "no such file",
		write("d.et", nil):          "want the file of rank 0", filepath.Join(dir, "e.0.et"): "no such file",
	} {
		if _, err := Read(path, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	write("a.json", []byte(`{"pair": [1, x]}`))
	if _, err := Read(filepath.Join(dir, "a.0.et"), Options{}); err == nil ||
		!strings.Contains(err.Error(), "a.json:1:14: ") {
		t.Errorf("%v, want a place in a.json", err)
	}
}

func FuzzSimAI(f *testing.F) {
	f.Add([]byte(simaiFile))
	f.Add([]byte(pipelineFile(1, 2, 2, 2, 2)))
	f.Fuzz(func(t *testing.T, text []byte) { checkRead(t)(readSimAI("f.txt", text, Options{Ranks: 4})) })
}

func FuzzMatrix(f *testing.F) {
	f.Add([]byte(matrixFile))
	f.Add([]byte("Nodes 2\nConnections 1\n0->1 id 1 msg start 0 size 100\n"))
	f.Fuzz(func(t *testing.T, text []byte) { checkRead(t)(readMatrix("f.cm", text, Options{})) })
}

// checkRead holds that what was read is a program that runs to its end, or an error that
// names the file.
func checkRead(t *testing.T) func(p *training.Program, err error) {
	return func(p *training.Program, err error) {
		switch {
		case err != nil && (p != nil || !strings.HasPrefix(err.Error(), "f.")):
			t.Errorf("%v, %v", p, err)
		case err == nil && p.Check() != nil:
			t.Error(p.Check())
		}
	}
}
