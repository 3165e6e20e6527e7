package collective

import (
	"strings"
	"testing"
	"time"

	"railbed/workloads/collective/schedule"
)

// The lines are what the format strings of nccl-tests (src/common.cu) give.
func TestTableLooksLikeNCCLTests(t *testing.T) {
	const want = `#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
     8388608       2097152     float     sum      -1    123.4   67.98  118.97      0    23.40    1.00    2.00      3
  1073741824     268435456     float     sum      -1   278945    3.85    6.74      0      N/A     N/A     N/A    N/A
# Out of bounds values : 3 FAILED
# Avg bus bandwidth    : 42.57
#
`
	rows := []Row{
		{Size: 8388608, Count: 2097152, Type: "float", RedOp: "sum", Root: -1,
			OutOfPlace: Measure{Time: 123.4, AlgBW: 67.98, BusBW: 118.97}, InPlace: &Measure{Time: 23.4, AlgBW: 1, BusBW: 2, Wrong: 3}},
		{Size: 1 << 30, Count: 1 << 28, Type: "float", RedOp: "sum", Root: -1,
			OutOfPlace: Measure{Time: 278945.2, AlgBW: 3.85, BusBW: 6.74}},
	}
	var got strings.Builder
	if err := WriteTable(&got, rows); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("table:\n%swant:\n%s", got.String(), want)
	}
}

// The factors are those of nccl-tests, doc/PERFORMANCE.md.
func TestAllReduceMeasure(t *testing.T) {
	for _, c := range []struct {
		ranks int
		busBW float64
	}{{1, 0}, {2, 2}, {4, 3}, {8, 3.5}} {
		m := MeasureOf(schedule.AllReduce, 2e9, c.ranks, time.Second, 0)
		if m.Time != 1e6 || m.AlgBW != 2 || m.BusBW != c.busBW {
			t.Errorf("2 GB over %d ranks in 1 s: %+v, want busbw %v", c.ranks, m, c.busBW)
		}
	}
	if m := MeasureOf(schedule.AllReduce, 0, 4, 0, 0); m.BusBW != 0 || m.AlgBW != 0 {
		t.Errorf("nothing in no time: %+v", m)
	}
}

func TestAllToAllMeasure(t *testing.T) {
	for _, c := range []struct {
		ranks int
		busBW float64
	}{{1, 0}, {2, 1}, {4, 1.5}, {8, 1.75}} {
		m := MeasureOf("all-to-all", 2e9, c.ranks, time.Second, 0)
		if m.Time != 1e6 || m.AlgBW != 2 || m.BusBW != c.busBW {
			t.Errorf("2 GB over %d ranks in 1 s: %+v, want busbw %v", c.ranks, m, c.busBW)
		}
	}
}
