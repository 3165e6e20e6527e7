package collective

import (
	"fmt"
	"testing"

	"railbed/plan/perf"
	"railbed/plan/schedule"
)

// BenchmarkRing measures an all-reduce over loopback TCP with all ranks in one process. busbw is in
// GB/s, as in nccl-tests.
func BenchmarkRing(b *testing.B) {
	for _, ranks := range []int{2, 4, 8} {
		for _, size := range []int{4, 64 << 10, 1 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("ranks=%d/%dKiB", ranks, size>>10), func(b *testing.B) {
				w := newWorld(b, ranks, size/floatSize, openTCP(b))
				if _, err := w.allReduce(b.Context(), OutOfPlace); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(size))
				b.ResetTimer()
				for range b.N {
					if _, err := w.allReduce(b.Context(), OutOfPlace); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				m := perf.MeasureOf(schedule.AllReduce, uint64(size), ranks, b.Elapsed(), 0)
				b.ReportMetric(m.BusBW*float64(b.N), "busbw-GB/s")
			})
		}
	}
}
