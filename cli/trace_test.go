package cli_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"railbed/internal/hosttest"
)

// TestTraceHasSteps holds that the trace of a ring all-reduce of n ranks has 2(n-1) steps of each rank, on
// the rank's node. They follow each other in the rank's operation.
func TestTraceHasSteps(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const ranks = 4
	dir := t.TempDir()
	file := writeFile(t, "name: cli-trace\nfabric: {topology: single-switch, params: {hosts: 4}, "+
		"switch: {kind: soft}}\nsteps:\n  - capture: {at: [all], file: run.pcapng, snaplen: 338B}\n"+
		"  - workload: {name: ar, kind: all-reduce, algorithm: ring, transport: rd, size: 64KiB, "+
		"iterations: 1}\n")
	out := filepath.Join(dir, "out")
	do(t, "run", file, "--out", out)
	must(t, "trace", out, "--file", filepath.Join(dir, "trace.json"))
	var trace struct {
		TraceEvents []struct {
			Name, Ph string
			PID, TID int
			TS, Dur  float64
			Args     map[string]any
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(dir, "trace.json"))), &trace); err != nil {
		t.Fatal(err)
	}
	processes, tracks := map[int]string{}, map[int]string{}
	type part struct{ from, to float64 }
	operations, steps := map[string]part{}, map[string]part{}
	for _, e := range trace.TraceEvents {
		switch on := processes[e.PID] + " " + tracks[e.TID]; {
		case e.Name == "process_name":
			processes[e.PID] = e.Args["name"].(string)
		case e.Name == "thread_name":
			tracks[e.TID] = e.Args["name"].(string)
		case e.Ph == "X" && e.Name == "ar: the operation":
			operations[on] = part{e.TS, e.TS + e.Dur}
		case e.Ph == "X":
			steps[on+", "+e.Name] = part{e.TS, e.TS + e.Dur}
		}
	}
	const count, near = 2 * (ranks - 1), 1 // microseconds
	for rank := range ranks {
		on := fmt.Sprintf("h%d rank %d", rank, rank)
		o, has := operations[on]
		end := o.from
		for i := range count {
			s, is := steps[fmt.Sprintf("%s, step %d of %d", on, i+1, count)]
			if !has || !is || s.from < end-near || s.to < s.from || s.to > o.to+near ||
				i > 0 && s.from > end+near {
				t.Errorf("%s: step %d is %+v (%v) after %v, in the operation %+v (%v)", on, i+1, s, is,
					end, o, has)
			}
			end = s.to
		}
	}
}
