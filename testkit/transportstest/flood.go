package transportstest

import (
	"syscall"
	"testing"
	"time"

	"railbed/transports"
)

// Flood makes a benchmark post b.N requests as fast as the endpoint accepts them, and waits until
// all have completed. It returns the CPU time that this process used meanwhile.
func Flood(b *testing.B, e transports.Endpoint, request transports.Request) time.Duration {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	before := CPUTime()
	var done [64]transports.Completion
	requests := [1]transports.Request{request}
	for posted, completed := 0, 0; completed < b.N; {
		for posted < b.N {
			n, err := e.Post(b.Context(), requests[:])
			if err != nil {
				b.Fatal(err)
			}
			if posted += n; n == 0 {
				break
			}
		}
		if err := e.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		for _, c := range done[:e.Poll(done[:])] {
			if completed++; c.Err != nil {
				b.Fatal(c.Err)
			}
		}
	}
	b.StopTimer()
	return CPUTime() - before
}

// CPUTime is the CPU time that this process has used so far, the kernel's share included.
func CPUTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
