package live

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"railbed/fabric/softswitch"
	"railbed/internal/units"
	"railbed/testkit/hosttest"
	"railbed/testkit/porttest"
)

// BenchmarkRate is the rate of a busy link, as the kernel counts the bytes that arrive at the far
// NIC, beside the requested rate. A node sends twice as much as the link carries. Times count in
// which the link was busy for sure: at their beginning more waited in the node's emulated NIC than
// they can carry. On a machine that has no time for the sender they are few. The mark is an error
// of 1 %.
func BenchmarkRate(b *testing.B) {
	hosttest.Need(b, hosttest.Netns)
	const window = 200 * time.Millisecond
	for _, test := range []struct {
		rate units.Rate
		size int
	}{{200e6, 1400}, {1e9, 1400}, {1e9, 4200}} {
		b.Run(fmt.Sprintf("%s/%d", test.rate, test.size), func(b *testing.B) {
			const settings = "\n  switch: {kind: soft}\n  links: {default: {rate: %s, delay: 10us, mtu: " +
				"%%d}}\nnodes: {default: {nic-queue: 64MB}}\n"
			s := startBench(b, fmt.Sprintf(settings, test.rate), max(1500, test.size), true)
			g := porttest.NewGenerator(b, s.Left, s.frames(test.size, onePriority))
			windows := 25 * benchRounds()
			done := make(chan struct{})
			go func() {
				defer close(done)
				g.Run(b, 2*float64(test.rate)/float64(8*test.size), time.Duration(windows+10)*window)
			}()
			time.Sleep(5 * window)
			capacity := uint64(float64(test.rate) / 8 * window.Seconds())
			count := func() (bytes uint64, at time.Time, busy bool) {
				bytes, at = s.Right.Counters(b).RxBytes, time.Now()
				return bytes, at, waitingAt(s.state(b), "h0:eth0") > int64(capacity*3/2)
			}
			var bytes uint64
			var took time.Duration
			before, then, busy := count()
			for range windows {
				time.Sleep(window)
				now, at, still := count()
				if busy && at.Sub(then) < window*5/4 {
					bytes, took = bytes+now-before, took+at.Sub(then)
				}
				before, then, busy = now, at, still
			}
			<-done
			if took > 0 {
				b.ReportMetric(deviation(bytes, took, test.rate), "%-error")
			}
			b.ReportMetric(took.Seconds(), "busy-s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// deviation returns the difference between a rate and the requested rate, in percent.
func deviation(bytes uint64, d time.Duration, want units.Rate) float64 {
	return 100 * (float64(bytes)*8/d.Seconds()/float64(want) - 1)
}

// waitingAt is the bytes that wait at a port.
func waitingAt(s *State, port string) int64 {
	i := slices.IndexFunc(s.Ports, func(p softswitch.PortState) bool { return p.Port == port })
	return s.Ports[i].Waiting()
}
