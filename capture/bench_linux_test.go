package capture

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkTaps floods a router with small datagrams and records its four
// ports. It reports the packets that were recorded and lost, per second; what
// the sender reaches depends on the same CPUs.
func BenchmarkTaps(b *testing.B) {
	for name, open := range map[string]func() (io.WriteCloser, error){
		"discard": func() (io.WriteCloser, error) { return os.OpenFile(os.DevNull, os.O_WRONLY, 0) },
		"file":    func() (io.WriteCloser, error) { return os.Create(filepath.Join(b.TempDir(), "x.pcapng")) },
	} {
		b.Run(name, func(b *testing.B) {
			l := newLine(b)
			from, to := udp(b, l.a, "10.0.0.0:7000"), udp(b, l.b, "10.0.0.2:7000")
			connect(b, from, to)
			out, err := open()
			if err != nil {
				b.Fatal(err)
			}
			defer out.Close()
			s := start(b, l.taps(), Options{SnapLen: 256}, out)
			payload := make([]byte, 200)
			var before, after unix.Rusage
			unix.Getrusage(unix.RUSAGE_SELF, &before)
			began := time.Now()
			b.ResetTimer()
			for range b.N {
				if _, err := from.WriteTo(payload, to.LocalAddr()); err != nil {
					b.Fatal(err)
				}
			}
			took := time.Since(began).Seconds()
			stats, err := s.Stop()
			if err != nil {
				b.Fatal(err)
			}
			unix.Getrusage(unix.RUSAGE_SELF, &after)
			b.ReportMetric(float64(stats.Written())/took, "recorded/s")
			b.ReportMetric(float64(stats.Dropped())/took, "lost/s")
			if stats.Written()+stats.Dropped() < uint64(4*b.N) {
				b.Errorf("%d datagrams, %s", b.N, fmt.Sprint(stats.Taps))
			}
		})
	}
}
