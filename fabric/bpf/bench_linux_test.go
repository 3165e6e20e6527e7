package bpf

import (
	"math/rand/v2"
	"testing"
	"time"

	"railbed/testkit/hosttest"
)

// BenchmarkReport measures the program of a fault that hits every packet, without a reader of its reports and
// with one. It prints the time of a packet in the kernel, and the share of packets that found no room.
func BenchmarkReport(b *testing.B) {
	hosttest.Need(b, hosttest.Root)
	data := soundFrame(rand.New(rand.NewPCG(1, 1)))
	data = append(data, make([]byte, 1500-len(data))...)
	for _, with := range []bool{false, true} {
		name := "unread"
		if with {
			name = "read"
		}
		b.Run(name, func(b *testing.B) {
			run := load(b, "{where: all, match: frame, drop: {}}")
			if with {
				end, ended := run.open(b), make(chan struct{})
				go func() {
					defer close(ended)
					for run.reader.Read(time.Now().Add(10*time.Millisecond), func(*Hit) {}) == nil {
					}
				}()
				defer func() { end(); <-ended }()
			}
			_, each, err := run.program.loaded.Benchmark(data, b.N, nil)
			if err != nil {
				b.Fatal(err)
			}
			counts := run.counts(b)[0]
			b.ReportMetric(float64(each.Nanoseconds()), "ns/packet")
			b.ReportMetric(100*float64(counts.Unreported)/float64(counts.Hit), "%unreported")
		})
	}
}
