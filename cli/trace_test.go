package cli_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"railbed/testkit/hosttest"
)

// tracePart is a slice of a trace, in microseconds.
type tracePart struct{ from, to float64 }

// tracedRun runs steps on four hosts and returns the slices of its trace by process and track, then by name,
// and the directory of the run.
func tracedRun(t *testing.T, steps string) (tracks map[string]map[string][]tracePart, out string) {
	t.Helper()
	hosttest.Need(t, hosttest.Testbed)
	dir := t.TempDir()
	file := writeFile(t, "name: cli-trace\nfabric: {topology: single-switch, params: {hosts: 4}, "+
		"switch: {kind: soft}}\nsteps:\n  - capture: {at: [all], file: run.pcapng, snaplen: 338B}\n  - "+
		steps)
	out = filepath.Join(dir, "out")
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
	processes, threads := map[int]string{}, map[int]string{}
	tracks = map[string]map[string][]tracePart{}
	for _, e := range trace.TraceEvents {
		switch on := processes[e.PID] + " " + threads[e.TID]; {
		case e.Name == "process_name":
			processes[e.PID] = e.Args["name"].(string)
		case e.Name == "thread_name":
			threads[e.TID] = e.Args["name"].(string)
		case e.Ph == "X":
			if tracks[on] == nil {
				tracks[on] = map[string][]tracePart{}
			}
			tracks[on][e.Name] = append(tracks[on][e.Name], tracePart{e.TS, e.TS + e.Dur})
		}
	}
	return tracks, out
}

// followEachOther requires so many steps on a track, which follow each other in a part.
func followEachOther(t *testing.T, track map[string][]tracePart, in tracePart, count int) {
	t.Helper()
	const near = 1 // microseconds
	end := in.from
	for i := range count {
		name := fmt.Sprintf("step %d of %d", i+1, count)
		if len(track[name]) != 1 {
			t.Errorf("%d times %s, want it once", len(track[name]), name)
			return
		}
		s := track[name][0]
		if s.from < end-near || s.to < s.from || s.to > in.to+near || i > 0 && s.from > end+near {
			t.Errorf("%s is %+v after %v, in %+v", name, s, end, in)
		}
		end = s.to
	}
}

// TestTraceHasSteps holds that the trace of a ring all-reduce of n ranks has 2(n-1) steps of each rank, on
// the rank's node. They follow each other in the rank's operation.
func TestTraceHasSteps(t *testing.T) {
	tracks, _ := tracedRun(t, "workload: {name: ar, kind: all-reduce, algorithm: ring, transport: rd, "+
		"size: 64KiB, iterations: 1}\n")
	for rank := range 4 {
		track := tracks[fmt.Sprintf("h%d rank %d", rank, rank)]
		operation := track["ar: the operation"]
		if len(operation) != 1 {
			t.Errorf("rank %d has the operations %+v", rank, operation)
			continue
		}
		followEachOther(t, track, operation[0], 2*(4-1))
	}
}

// TestTraceHasTasks holds the same of the sum of gradients in a training job. The job's computations are on
// tracks of their own, and railbed why names the step of a message.
func TestTraceHasTasks(t *testing.T) {
	tracks, out := tracedRun(t, "training: {name: job, iterations: 2, model: {layers: 2, hidden: 64, "+
		"sequence: 32, dp: 4, bucket: 25MB, tflops: 0.01}}\n")
	for rank := range 4 {
		track := tracks[fmt.Sprintf("h%d rank %d, dp", rank, rank)]
		var sums []tracePart
		for name, parts := range track {
			if strings.HasPrefix(name, "job: ") {
				sums = append(sums, parts...)
			}
		}
		if len(sums) != 1 {
			t.Errorf("rank %d has %d sums of gradients, want one: %v", rank, len(sums), track)
			continue
		}
		followEachOther(t, track, sums[0], 2*(4-1))
		if computed := tracks[fmt.Sprintf("h%d rank %d, compute", rank, rank)]; len(computed) == 0 {
			t.Errorf("rank %d has no computations", rank)
		}
	}
	if why := must(t, "why", out).stdout; !strings.Contains(why, "job: the last of 2 iterations began at ") {
		t.Errorf("railbed why printed:\n%s", why)
	}
}
