package port_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/testkit/hosttest"
	"railbed/testkit/porttest"
)

// forwarder moves frames between two ports in one thread.
type forwarder struct {
	spin   time.Duration // how long an idle one looks at its ports before it waits
	stop   atomic.Bool
	done   sync.WaitGroup
	thread atomic.Int32
	err    error
}

// cpu is the time that the forwarder's thread has worked or spun.
func (f *forwarder) cpu() time.Duration { return porttest.ThreadTime(int(f.thread.Load())) }

const spinTime = 50 * time.Microsecond

func startForwarder(b testing.TB, left, right port.Port, spin time.Duration) *forwarder {
	f := &forwarder{spin: spin}
	f.done.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f.thread.Store(int32(unix.Gettid()))
		f.err = f.forward(left, right)
	})
	b.Cleanup(func() {
		f.stop.Store(true)
		f.done.Wait()
		if f.err != nil {
			b.Error(f.err)
		}
	})
	for f.thread.Load() == 0 {
		runtime.Gosched()
	}
	return f
}

func (f *forwarder) forward(left, right port.Port) error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(epoll)
	for _, p := range []port.Port{left, right} {
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, p.Fd(),
			&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(p.Fd())}); err != nil {
			return err
		}
	}
	const batch = 32
	frames, data := make([]port.Frame, batch), make([][]byte, batch)
	memory := make([]byte, batch*left.Description().Room())
	for i := range frames {
		frames[i].Data = memory[i*left.Description().Room():][:0:left.Description().Room()]
	}
	move := func(from, to port.Port) (int, error) {
		n, err := from.Receive(frames)
		if n == 0 || err != nil {
			return n, err
		}
		for i := range n {
			data[i] = frames[i].Data
		}
		if _, err := to.Send(data[:n]); err != nil {
			return n, err
		}
		return n, to.Flush()
	}
	var events [2]unix.EpollEvent
	var idle time.Time
	for !f.stop.Load() {
		n, err := move(left, right)
		if err != nil {
			return err
		}
		m, err := move(right, left)
		if err != nil {
			return err
		}
		switch {
		case n+m > 0:
			idle = time.Time{}
		case idle.IsZero():
			idle = time.Now()
		case time.Since(idle) >= f.spin:
			if _, err := unix.EpollWait(epoll, events[:], 20); err != nil && err != unix.EINTR {
				return err
			}
			idle = time.Time{}
		}
	}
	return nil
}

// saturate reports what arrives when the source sends all it can, and what that
// costs.
func saturate(b *testing.B, p porttest.Pair, g *porttest.Generator) {
	const d = time.Second
	s := p.Saturate(b, g, d)
	b.ReportMetric(s.Rate, "saturated-frames/s")
	b.ReportMetric(float64(s.Sender), "sender-ns/frame")
	if p.CPU != nil {
		b.ReportMetric(float64(s.Switch), "forwarder-ns/frame")
	}
}

// benchSizes are the frames of the benchmarks, in bytes.
var benchSizes = []int{64, 1400, 4200}

// BenchmarkForward is two nodes on a switch with two ports: one thread that
// moves frames between two ports of a driver, and the peers that the marks name.
func BenchmarkForward(b *testing.B) {
	hosttest.Need(b, hosttest.Root)
	for _, contender := range contenders {
		for _, size := range benchSizes {
			b.Run(fmt.Sprintf("%s/%d", contender.name, size), func(b *testing.B) {
				p := contender.connect(b, max(1500, size))
				g := porttest.NewGenerator(b, p.Left, porttest.PlainFrames(size))
				p.Trial(b, g, 1000, 50*time.Millisecond)
				for range b.N {
					saturate(b, p, g)
					b.ReportMetric(p.Throughput(b, g), "frames/s")
				}
			})
		}
	}
}

// BenchmarkRoundTrip is a UDP ping-pong between two nodes. Each operation is a
// round trip; the median is the figure to compare.
func BenchmarkRoundTrip(b *testing.B) {
	hosttest.Need(b, hosttest.Root)
	for _, contender := range contenders {
		b.Run(contender.name, func(b *testing.B) {
			e := contender.connect(b, 1500).NewPingPong(b, nil)
			b.ResetTimer()
			times := e.Run(b.N)
			b.StopTimer()
			b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "median-ns")
			b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
		})
	}
}

// BenchmarkCost measures the thread's time for a frame, without waiting. The node sends a burst
// into the port's ring, the port receives it, and another port sends it to its node.
func BenchmarkCost(b *testing.B) {
	hosttest.Need(b, hosttest.Root)
	for _, driver := range []port.Driver{port.Packet, port.XDP, port.Tap} {
		for _, size := range benchSizes {
			b.Run(fmt.Sprintf("%s/%d", driver, size), func(b *testing.B) { benchmarkCost(b, driver, size) })
		}
	}
}

func benchmarkCost(b *testing.B, driver port.Driver, size int) {
	const burst = porttest.GeneratorBatch
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	left := porttest.NewRig(b, driver, porttest.Settings{MTU: max(1500, size), Number: 0})
	right := porttest.NewRig(b, driver, porttest.Settings{MTU: max(1500, size), Number: 1})
	from, to := left.Port(b, port.Options{}), right.Port(b, port.Options{})
	g := porttest.NewGenerator(b, left, porttest.PlainFrames(size))
	room := from.Description().Room()
	frames, data, memory := make([]port.Frame, burst), make([][]byte, burst), make([]byte, burst*room)
	for i := range frames {
		frames[i].Data = memory[i*room:][:0:room]
	}
	var node, receive, send time.Duration
	me := unix.Gettid()
	b.ResetTimer()
	for range b.N {
		t0 := porttest.ThreadTime(me)
		if n, err := g.Send(); n != burst || err != nil {
			b.Fatal(n, err)
		}
		t1 := porttest.ThreadTime(me)
		n := 0
		for n < burst {
			got, err := from.Receive(frames[n:])
			if err != nil || got == 0 {
				b.Fatalf("%d of %d frames, %v", n, burst, err)
			}
			n += got
		}
		t2 := porttest.ThreadTime(me)
		for i := range frames {
			data[i] = frames[i].Data
		}
		if n, err := to.Send(data); n != burst || err != nil {
			b.Fatal(n, err)
		}
		if err := to.Flush(); err != nil {
			b.Fatal(err)
		}
		t3 := porttest.ThreadTime(me)
		node, receive, send = node+t1-t0, receive+t2-t1, send+t3-t2
	}
	per := float64(b.N * burst)
	b.ReportMetric(float64(node)/per, "node-ns/frame")
	b.ReportMetric(float64(receive)/per, "receive-ns/frame")
	b.ReportMetric(float64(send)/per, "send-ns/frame")
}
