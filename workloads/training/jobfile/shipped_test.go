package jobfile

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"railbed/workloads/training"
)

var update = flag.Bool("update", false, "write the traces of the scenarios again")

// shipped is where a scenario has an execution trace of Chakra for each of four ranks:
// scenarios/training/trace.yaml.
const shipped = "../../../scenarios/training/chakra"

// shippedNodes returns the nodes of a rank: two layers, forward and backward. Their tensor parallel
// halves sum their outputs. Their gradients go to the other replica while the layer before is
// computed. The optimizer waits for both.
func shippedNodes(rank int) []string {
	tp, dp := fmt.Sprintf("tp%d", rank/2), fmt.Sprintf("dp%d", rank%2)
	compute := func(id int, name string, micros int, after string) string {
		return fmt.Sprintf(`id: %d name: %q type: 4 duration_micros: %d data_deps: [%s] attr { name: "is_cpu_op" bool_val: false }`, id, name, micros, after)
	}
	reduce := func(id int, name string, bytes, after int, group string) string {
		return fmt.Sprintf(`id: %d name: %q type: 7 data_deps: %d attr { name: "is_cpu_op" bool_val: false } attr { name: "comm_type" int64_val: 0 } attr { name: "comm_size" int64_val: %d } attr { name: "pg_name" string_val: %q }`, id, name, after, bytes, group)
	}
	return []string{
		compute(1, "forward 1", 4000, ""), reduce(2, "outputs 1", 64<<10, 1, tp),
		compute(3, "forward 2", 4000, "2"), reduce(4, "outputs 2", 64<<10, 3, tp),
		compute(5, "backward 2", 8000, "4"), reduce(6, "errors 2", 64<<10, 5, tp),
		reduce(7, "gradients 2", 128<<10, 5, dp),
		compute(8, "backward 1", 8000, "6"), reduce(9, "gradients 1", 128<<10, 8, dp),
		compute(10, "optimizer", 1000, "7, 9"),
	}
}

// TestShippedTrace checks that the files contain the nodes above. With -update it writes them.
func TestShippedTrace(t *testing.T) {
	for rank := range 4 {
		name := fmt.Sprintf("%s.%d.et", shipped, rank)
		want := encoded(t, append([]string{metadata}, shippedNodes(rank)...)...)
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != string(want) {
			t.Errorf("%s: %d bytes, %v, want %d others: go test ./workloads/training/jobfile -run "+
				"TestShippedTrace -update", name, len(got), err, len(want))
		}
	}
	p, err := Read(shipped+".0.et", Options{})
	if err != nil {
		t.Fatal(err)
	}
	// By hand: two ranks send half of a buffer twice each, so all of it once.
	for rank := range 4 {
		if got := p.Sent(rank); got != 3*64<<10+2*128<<10 {
			t.Errorf("rank %d sends %d bytes", rank, got)
		}
	}
	spans, err := p.Predict(func(*training.Operation) time.Duration { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	if whole, _ := p.Times(spans); whole != 25*time.Millisecond {
		t.Errorf("without a network it takes %v, want 25ms", whole)
	}
}
