package perf

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"railbed/plan/schedule"
)

// The lines follow the format strings of nccl-tests (2.19.6, src/util.cu).
func TestTableLooksLikeNCCLTests(t *testing.T) {
	const want = `# Using devices
#  Rank  0 Group  0 Pid     12 on         h0 device  0 [eth0] 10.0.0.1 over tcp
#  Rank  1 Group  0 Pid 123456 on         h1 device  1 [eth1] 10.0.0.3 over tcp
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
     8388608       2097152     float     sum      -1   123.40   67.98  118.97       0    23.40    1.00    2.00       3
           8             2     float    none       0    12.00    0.00    0.00    N/A    12.30    0.00    0.00    N/A
  1073741824     268435456     float     sum      -1   278945   12345  123456       0      N/A     N/A     N/A     N/A
# Out of bounds values : 3 FAILED
# Avg bus bandwidth    : 24715.5 
#
# Collective test concluded: all_reduce
`
	rows := []Row{
		{Size: 8388608, Count: 2097152, Type: "float", RedOp: "sum", Root: -1,
			OutOfPlace: Measure{Time: 123.4, AlgBW: 67.98, BusBW: 118.97},
			InPlace:    &Measure{Time: 23.4, AlgBW: 1, BusBW: 2, Wrong: 3}},
		{Size: 8, Count: 2, Type: "float", RedOp: "none", OutOfPlace: Measure{Time: 12, Unchecked: true},
			InPlace: &Measure{Time: 12.3, Unchecked: true}},
		{Size: 1 << 30, Count: 1 << 28, Type: "float", RedOp: "sum", Root: -1,
			OutOfPlace: Measure{Time: 278945.2, AlgBW: 12345.4, BusBW: 123456.3}},
	}
	var got strings.Builder
	table := NewNCCLTable(&got)
	errs := []error{table.Devices([]Device{{PID: 12, Host: "h0", NIC: "eth0", Detail: "10.0.0.1 over tcp"},
		{Rank: 1, PID: 123456, Host: "h1", Index: 1, NIC: "eth1", Detail: "10.0.0.3 over tcp"}}),
		table.Header()}
	for i := range rows {
		errs = append(errs, table.Row(&rows[i]))
	}
	if err := errors.Join(append(errs, table.Close("all_reduce"))...); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("table:\n%swant:\n%s", got.String(), want)
	}
}

// The factors come from nccl-tests, doc/PERFORMANCE.md.
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

// TestTableWithTimes: with a clock the lines equal nccl-tests' with -S 1.
func TestTableWithTimes(t *testing.T) {
	const want = `#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong           timestamp
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)           %Y-%m-%d %H:%M:%S
           8             2     float     sum       0    12.00    1.00    1.00       0    12.00    1.00    1.00       0  2026-11-23 04:05:06
`
	m := Measure{Time: 12, AlgBW: 1, BusBW: 1}
	var got strings.Builder
	table := NewNCCLTable(&got)
	table.Clock = func() time.Time { return time.Date(2026, 11, 23, 4, 5, 6, 7, time.UTC) }
	if err := errors.Join(table.Header(),
		table.Row(&Row{Size: 8, Count: 2, Type: "float", RedOp: "sum", OutOfPlace: m,
			InPlace: &m})); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("table:\n%swant:\n%s", got.String(), want)
	}
}

// TestSmallNumbers: nccl-tests prints 0.00 or 0.01 for the bandwidths of slow links. Here they have the
// digits that the column has room for, and stay numbers for programs. Numbers from 1 on are formatted as in
// nccl-tests.
func TestSmallNumbers(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0.00", 0.0044: "0.0044", 0.01234: "0.0123", 0.999: "0.9990", 0.00006: "0.0001",
		0.00002: "0.0000", 1: "1.00", 12.345: "12.35", 123.45: "123.45", 1234.5: "1234.5", 123456: "123456",
		1234567: "1e+06",
	} {
		got := ncclBandwidth(value)
		if back, err := strconv.ParseFloat(got, 64); got != want || err != nil || len(got) > 6 {
			t.Errorf("Bandwidth(%v) = %q, %v; want %q", value, got, back, want)
		}
	}
	if got := ncclTime(0.25); got != "0.25000" {
		t.Errorf("ncclTime(0.25) = %q", got)
	}
}

// TestSlowRates: at emulated rates each cell has four significant digits in the unit of the header, without
// an exponent, from the smallest size to the largest. nccl-tests has the same columns.
func TestSlowRates(t *testing.T) {
	const want = `#
#                                                                   out-of-place                                  in-place                  
#       size         count      type   redop    root        time       algbw       busbw  #wrong        time       algbw       busbw  #wrong 
#        (B)    (elements)                                  (us)    (Mbit/s)    (Mbit/s)                (us)    (Mbit/s)    (Mbit/s)         
           8             2     float     sum      -1       11360    0.005634    0.009859       0       11360    0.005634    0.009859       2
     4194304       1048576     float     sum      -1      747700       44.88       78.53       0         N/A         N/A         N/A     N/A
    67108864      16777216     float     sum      -1    12000000       44.74       78.29     N/A      0.1235        1800        3150       0
# Out of bounds values : 2 FAILED
# Avg bus bandwidth    : 661.4 Mbit/s
#
# Collective test concluded: all_reduce
`
	small := Measure{Time: 11360, AlgBW: 0.005634e6 / 8e9, BusBW: 0.0098592e6 / 8e9}
	wrong := small
	wrong.Wrong = 2
	rows := []Row{
		{Size: 8, Count: 2, Type: "float", RedOp: "sum", Root: -1, OutOfPlace: small, InPlace: &wrong},
		{Size: 4 << 20, Count: 1 << 20, Type: "float", RedOp: "sum", Root: -1,
			OutOfPlace: Measure{Time: 747700, AlgBW: 44.876e6 / 8e9, BusBW: 78.533e6 / 8e9}},
		{Size: 64 << 20, Count: 16 << 20, Type: "float", RedOp: "sum", Root: -1,
			OutOfPlace: Measure{Time: 12e6, AlgBW: 44.739e6 / 8e9, BusBW: 78.293e6 / 8e9, Unchecked: true},
			InPlace:    &Measure{Time: 0.12346, AlgBW: 1800e6 / 8e9, BusBW: 3150e6 / 8e9}},
	}
	var got strings.Builder
	table := NewTable(&got, UnitOf(rows))
	errs := []error{table.Header()}
	for i := range rows {
		errs = append(errs, table.Row(&rows[i]))
	}
	if err := errors.Join(append(errs, table.Close("all_reduce"))...); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("table:\n%swant:\n%s", got.String(), want)
	}
}
