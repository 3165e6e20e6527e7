package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/workloads/collective/msccl"
)

func readSchedule(t *testing.T, name string) *schedule.Schedule {
	t.Helper()
	path := filepath.Join("../collective/msccl/testdata", name)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := msccl.Read(path, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestJobsOfFiles runs algorithms that come from files of MSCCL, whose schedules reach the
// workers over their channels.
func TestJobsOfFiles(t *testing.T) {
	for i, name := range []string{"allpairs.xml", "ring.xml", "gather.xml", "scatter.xml", "exchange.xml",
		"broadcast.xml", "reduce.xml"} {
		transport := []string{TCP, RD}[i%2]
		t.Run(name+"/"+transport, func(t *testing.T) {
			s := readSchedule(t, name)
			j := job(len(s.Ranks), units.Bytes(s.Chunks)*40_000)
			j.Kind, j.Algorithm, j.Transport, j.Schedule, j.InPlace = string(s.Kind), schedule.MSCCL,
				transport, s, !s.OutOfPlace
			result, err := Run(t.Context(), j, goroutines{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if result.Wrong() != 0 || (result.Row().InPlace != nil) != j.InPlace {
				t.Errorf("%d wrong elements, %+v", result.Wrong(), result.Row())
			}
			for rank, r := range result.PerRank {
				if want := uint64(len(result.Operations) * s.Counted(rank) * 40_000); r.Payload.Sent != want {
					t.Errorf("rank %d sent %d bytes, want %d", rank, r.Payload.Sent, want)
				}
			}
		})
	}
}

// TestJobsThatNoScheduleIsFor are refused before anything starts.
func TestJobsThatNoScheduleIsFor(t *testing.T) {
	allPairs, ring := readSchedule(t, "allpairs.xml"), readSchedule(t, "ring.xml")
	for name, test := range map[string]struct {
		change func(j *Job)
		want   string
	}{
		"none": {func(j *Job) { j.Schedule = nil }, "msccl needs a schedule"},
		"kind": {func(j *Job) {
			j.Kind = spec.AllGather
		}, "all-pairs is for all-reduce, and the workload is all-gather"},
		"ranks": {func(j *Job) {
			j.Ranks = job(4, 24).Ranks
		}, "all-pairs is for 3 ranks, and the job has 4"},
		"root": {func(j *Job) {
			s := *allPairs
			s.Root = 1
			j.Schedule = &s
		}, "all-pairs has root 1, and the workload has root 0"},
		"size": {func(j *Job) { j.Size = 28 },
			"all-pairs has 6 chunks of equal length: size 28B, want a multiple of 24B"},
		"in place": {func(j *Job) { j.Schedule, j.InPlace = ring, true }, "works only out of place"},
		"uneven": {func(j *Job) {
			j.Algorithm = schedule.Hierarchical
			j.Ranks[0].Node, j.Ranks[1].Node = "a", "a"
		}, "node 1 has 1 ranks and node 0 has 2"},
		"by no formula": {func(j *Job) {
			j.Algorithm, j.Kind = schedule.Hierarchical, string(schedule.Broadcast)
		}, "broadcast by hierarchical"},
	} {
		j := job(3, 24)
		j.Algorithm, j.Schedule = schedule.MSCCL, allPairs
		test.change(&j)
		if _, err := Run(t.Context(), j, goroutines{}, nil); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestUnbound holds that sockets are bound to NICs unless a node's ranks have several.
func TestUnbound(t *testing.T) {
	j := job(4, 4)
	j.Work = Collective{}
	for i, at := range []struct{ node, nic string }{{"a", "eth0"}, {"a", "eth1"}, {"b", "eth0"},
		{"b", "eth0"}} {
		j.Ranks[i].Node, j.Ranks[i].NIC = at.node, at.nic
	}
	for i, want := range []bool{true, true, false, false} {
		if c := j.config(i); c.Unbound != want || c.NIC != j.Ranks[i].NIC {
			t.Errorf("rank %d at %s: unbound %v, want %v", i, c.NIC, c.Unbound, want)
		}
	}
	if got := fmt.Sprint(plan.Rails(j.Ranks)); got != "[[0 1] [2 3]]" {
		t.Errorf("rails %s", got)
	}
	if got := plan.Rails([]plan.Rank{{Rank: 0, Node: "a"}, {Rank: 1, Node: "b"},
		{Rank: 2, Node: "a"}}); fmt.Sprint(got) != "[[0 2] [1]]" {
		t.Errorf("rails %v", got)
	}
}
