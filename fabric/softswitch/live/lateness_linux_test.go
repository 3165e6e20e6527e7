package live_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"railbed/fabric"
	"railbed/fabric/link"
	"railbed/fabric/softswitch/live"
	"railbed/internal/kernel"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// twoHosts builds two nodes on one soft switch.
func twoHosts(b testing.TB, links string) (*fabric.Fabric, *plan.Plan, map[string]*kernel.Namespace) {
	b.Helper()
	return build(b, fmt.Sprintf("name: bench\nfabric: {topology: single-switch, params: {hosts: "+
		"2}, switch: {kind: soft}, links: {default: %s}}\nnodes: {default: {nic-path: bypass}}\n", links))
}

// build builds the fabric of a file, with a namespace for each node.
func build(b testing.TB, file string) (*fabric.Fabric, *plan.Plan, map[string]*kernel.Namespace) {
	b.Helper()
	hosttest.Need(b, hosttest.Netns)
	p := plantest.Compile(b, file)
	spaces := map[string]*kernel.Namespace{}
	for _, name := range fabric.Namespaces(p) {
		ns, err := kernel.NewNamespace()
		if err != nil {
			b.Fatal(err)
		}
		spaces[name] = ns
		b.Cleanup(func() { spaces[name].Close() })
	}
	calibration, err := link.LoadCalibration(filepath.Join(b.TempDir(), "calibration.json"))
	if err != nil {
		b.Fatal(err)
	}
	f, err := fabric.Build(context.Background(), p, spaces, fabric.Options{Calibration: calibration})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := f.Close(); err != nil {
			b.Error(err)
		}
	})
	return f, p, spaces
}

// address is the first address of a node's NIC.
func address(p *plan.Plan, node string) string {
	for _, n := range p.Nodes {
		if n.Name == node {
			return n.NICs[0].Addrs[0].Addr().String()
		}
	}
	return ""
}

// busyCore keeps a core busy until the benchmark ends, in a process and session
// of its own, as a workload is.
func busyCore(b *testing.B) {
	b.Helper()
	hog := exec.Command("setsid", "sh", "-c", "while :; do :; done")
	if err := hog.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = hog.Process.Kill()
		_ = hog.Wait()
	})
}

// datagrams sends one of 1,200 bytes every interval, for a time.
func datagrams(b testing.TB, from *kernel.Namespace, to string, interval, total time.Duration) {
	b.Helper()
	err := from.Do(func() error {
		conn, err := net.Dial("udp", net.JoinHostPort(to, "9"))
		if err != nil {
			return err
		}
		defer conn.Close()
		data := make([]byte, 1200)
		for began, sent := time.Now(), 0; time.Since(began) < total; {
			for ; time.Duration(sent)*interval < time.Since(began); sent++ {
				data[0], data[1], data[2] = byte(sent), byte(sent>>8), byte(sent>>16)
				_, _ = conn.Write(data) // refused: there is no listener
			}
			time.Sleep(interval / 2)
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLateness is how long after it was due a frame is at the far node, as
// the kernel there stamps it, with the other cores idle, and with one busy.
func BenchmarkLateness(b *testing.B) {
	for _, busy := range []bool{false, true} {
		for _, perSecond := range []int{1000, 10_000} {
			b.Run(fmt.Sprintf("busy-core=%v/packets=%d", busy, perSecond), func(b *testing.B) {
				if busy {
					busyCore(b)
				}
				f, p, spaces := twoHosts(b, "{delay: 1ms}")
				for b.Loop() {
					datagrams(b, spaces["h0"], address(p, "h1"), time.Second/time.Duration(perSecond),
						2*time.Second)
				}
				_, state, err := f.State(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				reportTiming(b, state)
			})
		}
	}
}

func reportTiming(b *testing.B, s *live.State) {
	t := s.Timing
	micros := func(d time.Duration) float64 { return float64(d) / 1e3 }
	b.ReportMetric(micros(t.Arrivals.P50), "p50-us")
	b.ReportMetric(micros(t.Arrivals.P99), "p99-us")
	b.ReportMetric(micros(t.Arrivals.Worst), "worst-us")
	b.ReportMetric(micros(s.Late.P99), "released-p99-us")
	b.ReportMetric(float64(t.Arrivals.Frames), "frames")
	b.ReportMetric(100*float64(t.Thread.Ran)/float64(t.Thread.Since), "%cpu")
	b.ReportMetric(100*float64(t.Thread.Waited)/float64(t.Thread.Since), "%waited")
	b.ReportMetric(micros(t.Thread.Spin), "spin-us")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSoftRate measures the throughput of one TCP connection over a soft switch's link, as the
// switch counts sent bytes: 100 % is the requested rate.
func BenchmarkSoftRate(b *testing.B) {
	for _, rate := range []string{"10mbit", "100mbit", "1gbit"} {
		b.Run("rate="+rate, func(b *testing.B) {
			f, p, spaces := twoHosts(b, fmt.Sprintf("{rate: %s, delay: 100us}", rate))
			near, far := stream(b, spaces["h0"], spaces["h1"], address(p, "h1"))
			var group sync.WaitGroup
			group.Go(func() { _, _ = io.Copy(io.Discard, far) })
			group.Go(func() {
				for chunk := make([]byte, 64<<10); ; {
					if _, err := near.Write(chunk); err != nil {
						return
					}
				}
			})
			time.Sleep(300 * time.Millisecond) // past slow start
			var sent, asked float64
			for b.Loop() {
				before, began := sentTo(b, f, "h1")
				time.Sleep(time.Second)
				after, ended := sentTo(b, f, "h1")
				sent += 8 * float64(after-before)
				asked += float64(p.Links[0].AToB.Rate) * ended.Sub(began).Seconds()
			}
			near.Close()
			far.Close()
			group.Wait()
			_, state, err := f.State(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			reportTiming(b, state)
			b.ReportMetric(100*sent/asked, "%asked")
		})
	}
}

// sentTo is the bytes that the switch sent to a node.
func sentTo(b *testing.B, f *fabric.Fabric, node string) (uint64, time.Time) {
	b.Helper()
	links, err := f.Links(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	for _, l := range links {
		switch {
		case strings.HasPrefix(l.A.Node, node):
			return l.B.Soft.Counters.Sent.Bytes, time.Now()
		case strings.HasPrefix(l.B.Node, node):
			return l.A.Soft.Counters.Sent.Bytes, time.Now()
		}
	}
	b.Fatalf("no link to %s", node)
	return 0, time.Time{}
}

// stream opens a TCP connection between two namespaces.
func stream(b *testing.B, from, to *kernel.Namespace, addr string) (near, far net.Conn) {
	b.Helper()
	err := to.Do(func() error {
		listener, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
		if err != nil {
			return err
		}
		defer listener.Close()
		if err := from.Do(func() (err error) {
			near, err = net.Dial("tcp", listener.Addr().String())
			return err
		}); err != nil {
			return err
		}
		far, err = listener.Accept()
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return near, far
}
