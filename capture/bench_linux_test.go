package capture

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/capture/pcapng"
	"railbed/internal/feed"
)

// BenchmarkTaps floods a router with small datagrams and records its four
// ports. It reports the packets that were recorded and lost, per second; what
// the sender reaches depends on the same CPUs.
func BenchmarkTaps(b *testing.B) {
	for name, open := range map[string]func() (io.WriteCloser, error){
		"discard": func() (io.WriteCloser, error) { return os.OpenFile(os.DevNull, os.O_WRONLY, 0) },
		"file": func() (io.WriteCloser, error) {
			return os.Create(filepath.Join(b.TempDir(), "x.pcapng"))
		},
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

// BenchmarkSoftPath measures the recorder's time for a packet that crosses a soft switch between
// two nodes. The recorder reads the switch's records from the feed, and the packets from the packet
// sockets at both NICs.
func BenchmarkSoftPath(b *testing.B) {
	for _, size := range []int{100, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w, taps, options := fed(b, 64<<20, "eth0", "p0", "p1", "eth0")
			r, err := newRecorder(taps, make([]*ring, len(taps)), options, io.Discard)
			if err != nil {
				b.Fatal(err)
			}
			defer r.close()
			data := make([]byte, size)
			copy(data[12:], []byte{0x08, 0x00, 0x45, 0, byte((size - 14) >> 8), byte(size - 14)})
			at := time.Now().UnixNano()
			tell := func(tap uint16, event feed.Event, serial int, snap int) {
				w.Write(&feed.Record{Time: at, Tap: tap, Event: event, Serial: uint64(serial), Length: size,
					Data: data[:min(size, snap)]})
			}
			// The thread's own time, because the spool's writer runs beside it.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var before, after unix.Rusage
			unix.Getrusage(unix.RUSAGE_THREAD, &before)
			b.ResetTimer()
			for i := range b.N {
				binary.BigEndian.PutUint32(data[50:], uint32(i))
				at += 4000
				p := captured{time: at, length: size, flags: pcapng.Outbound, data: data}
				r.add(0, &p, 0)
				tell(0, feed.Enter, i+1, feed.PassSnap)
				tell(1, feed.Receive, i+1, size)
				tell(2, feed.Send, i+1, size)
				tell(3, feed.Leave, i+1, feed.PassSnap)
				p.flags = pcapng.Inbound
				r.add(3, &p, 0)
				if i%1000 == 999 {
					if _, err := r.readSoft(0); err != nil {
						b.Fatal(err)
					}
					r.order.release(at - int64(80*time.Millisecond))
				}
			}
			unix.Getrusage(unix.RUSAGE_THREAD, &after)
			took := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
			b.ReportMetric(float64(took)/float64(b.N), "cpu-ns/op")
		})
	}
}
