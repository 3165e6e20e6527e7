package roce

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"railbed/testbed/hosttest"
	"railbed/transports"
)

// BenchmarkGoodput is one pair on the loopback device, by message size and path MTU,
// go-back-N and selective; with the CPU time of a packet at both ends.
func BenchmarkGoodput(b *testing.B) {
	for _, c := range []Config{{MTU: 1500}, {MTU: 4200}, {MTU: 4200, Selective: true}} {
		for _, size := range []int{64, 4096, 1 << 20} {
			b.Run(fmt.Sprintf("mtu=%d/selective=%v/bytes=%d", c.MTU, c.Selective, size), func(b *testing.B) { goodput(b, c, size) })
		}
	}
}

func goodput(b *testing.B, c Config, size int) {
	hosttest.Need(b, hosttest.Root)
	c.Addr = netip.MustParseAddr("127.0.0.1")
	open := func() *Endpoint {
		e, err := Open(c)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { e.Close() })
		return e
	}
	from, to := open(), open()
	peer, err := from.AddPeer(to.Address())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := to.AddPeer(from.Address()); err != nil {
		b.Fatal(err)
	}
	region, err := to.Register(make([]byte, size), transports.RemoteWrite)
	if err != nil {
		b.Fatal(err)
	}
	request := transports.Request{Op: transports.OpWrite, Peer: peer, Local: make([]byte, size), Remote: region.Remote()}
	var before, after syscall.Rusage
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	var done [64]transports.Completion
	for posted, completed := 0, 0; completed < b.N; {
		for posted < b.N {
			n, err := from.Post(b.Context(), []transports.Request{request})
			if err != nil {
				b.Fatal(err)
			}
			if posted += n; n == 0 {
				break
			}
		}
		if err := from.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		for _, c := range done[:from.Poll(done[:])] {
			if completed++; c.Err != nil {
				b.Fatal(c.Err)
			}
		}
	}
	b.StopTimer()
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	counters := from.Counters()
	packets := float64(counters.Sent)
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(float64(cpu.Nanoseconds())/packets, "cpu-ns/packet")
	b.ReportMetric(float64(counters.Resent)/packets*100, "%resent")
}
