package collective

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"railbed/internal/element"
	"railbed/plan/perf"
	"railbed/plan/schedule"
)

// BenchmarkRing measures an all-reduce over loopback TCP with all ranks in one process. busbw is in
// GB/s, as in nccl-tests.
func BenchmarkRing(b *testing.B) {
	for _, ranks := range []int{2, 4, 8} {
		for _, size := range []int{4, 64 << 10, 1 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("ranks=%d/%dKiB", ranks, size>>10), func(b *testing.B) {
				runners := newRunners(b, ring(b, Ring{Ranks: ranks, Count: size / floatSize}), openTCP(b))
				if _, err := runAll(b.Context(), runners, OutOfPlace); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(size))
				b.ResetTimer()
				for range b.N {
					if _, err := runAll(b.Context(), runners, OutOfPlace); err != nil {
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

// BenchmarkExchangeWrong checks the output of one rank of an all-to-all again and again, as each rank does
// after each operation. The time for a rank does not grow with the ranks. It did when each check summed the
// inputs of all ranks ("summed").
func BenchmarkExchangeWrong(b *testing.B) {
	for _, ranks := range []int{64, 256, 1024} {
		m := Even(ranks, 4*ranks)
		e, err := NewExchange(ExchangeConfig{Matrix: m})
		if err != nil {
			b.Fatal(err)
		}
		rank := ranks - 1
		p, err := NewPattern(PatternConfig{Rank: rank, Ranks: ranks, Type: element.Float32, Op: element.None})
		if err != nil {
			b.Fatal(err)
		}
		output := make([]byte, e.Lengths(rank).Output)
		summed := func() (wrong uint64) {
			rest := output
			for from, row := range m {
				block := e.size * row[rank]
				wrong += p.WrongOf(from, rest[:block], 0, total(row[:rank]))
				rest = rest[block:]
			}
			return wrong
		}
		if got, _ := e.wrong(p, rank, output, 0, 0, nil); got != summed() {
			b.Fatalf("%d elements are wrong, want %d", got, summed())
		}
		for name, check := range map[string]func() uint64{"summed": summed, "prefix": func() uint64 {
			wrong, _ := e.wrong(p, rank, output, 0, 0, nil)
			return wrong
		}} {
			b.Run(fmt.Sprintf("ranks=%d/%s", ranks, name), func(b *testing.B) {
				for b.Loop() {
					check()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*ranks), "ns/rank")
			})
		}
	}
}

// BenchmarkStepLog measures what logs of steps cost. Operations with and without logs take turns over
// loopback TCP, with all ranks in one process. The metrics are the throughput with logs, as a part of the
// throughput without, and the same for the operations in a second of processor time.
func BenchmarkStepLog(b *testing.B) {
	const ranks = 4
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20, 16 << 20} {
		d := Data{Count: size / floatSize}
		for name, a := range map[string]Algorithm{"ring": ring(b, Ring{Ranks: ranks, Count: d.Count}),
			"halving-doubling": program(b, schedule.AllReduce, "halving-doubling", ranks, 0, d)} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) {
				runners := newRunners(b, a, openTCP(b))
				log := func(rank int) **StepLog { return &runners[rank].config.Steps }
				benchmarkLogs(b, log, ranks, func() error {
					_, err := runAll(b.Context(), runners, OutOfPlace)
					return err
				})
			})
		}
	}
}

// benchmarkLogs does operations of some ranks, every second of them without the ranks' logs.
func benchmarkLogs(b *testing.B, log func(rank int) **StepLog, ranks int, operate func() error) {
	logs := make([]*StepLog, ranks)
	for i := range logs {
		logs[i] = *log(i)
	}
	var times [2][]time.Duration // with logs, without
	var processor [2]time.Duration
	if err := operate(); err != nil { // connects
		b.Fatal(err)
	}
	for round := 0; b.Loop(); round++ {
		for k := range times {
			without := (k + round) % 2
			for i := range logs {
				if *log(i) = logs[i]; without == 1 {
					*log(i) = nil
				}
			}
			began, used := time.Now(), processorTime(b)
			if err := operate(); err != nil {
				b.Fatal(err)
			}
			times[without] = append(times[without], time.Since(began))
			processor[without] += processorTime(b) - used
		}
	}
	for k := range times {
		slices.Sort(times[k])
	}
	middle := len(times[0]) / 2
	b.ReportMetric(float64(times[1][middle])/float64(times[0][middle]), "x-throughput")
	b.ReportMetric(float64(processor[1])/float64(processor[0]), "x-per-cpu-s")
}

// processorTime returns the processor time of this process.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAmounts counts the messages of all ranks of a program whose messages need no permission.
func BenchmarkAmounts(b *testing.B) {
	for _, ranks := range []int{4, 16} {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				p := program(b, schedule.AllToAll, schedule.Direct, ranks, 0, Data{Count: 1024 * ranks})
				b.StartTimer()
				for rank := range ranks {
					Amounts(p, rank, 1)
				}
			}
		})
	}
}
