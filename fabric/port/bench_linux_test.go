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
	"railbed/fabric/port/porttest"
	"railbed/testbed/hosttest"
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
func (f *forwarder) cpu() time.Duration { return threadTime(int(f.thread.Load())) }

// threadTime is a thread's CPU time, by the clock that pthread_getcpuclockid
// would return.
func threadTime(thread int) time.Duration {
	const perThread, scheduler = 4, 2
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^thread<<3|perThread|scheduler), &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

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
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, p.Fd(), &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(p.Fd())}); err != nil {
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

// generator sends frames on a node's NIC, by the fastest way there is, so that
// it is not what limits a switch.
type generator struct {
	port   port.Port
	frames [][]byte
}

const generatorBatch = 32

func newGenerator(b testing.TB, r *porttest.Rig, size int) *generator {
	b.Helper()
	g := &generator{frames: make([][]byte, generatorBatch)}
	err := r.Node.Do(func() error {
		handle, err := port.Open(port.XDP, porttest.NICName, port.Options{RingBytes: 1})
		if err == nil {
			g.port, err = handle.Port()
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { g.port.Close() })
	frame := make([]byte, size)
	copy(frame, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0x88, 0xB5})
	for i := range g.frames {
		g.frames[i] = frame
	}
	return g
}

// run offers frames at a rate, 0 for as many as it can, and returns how many.
func (g *generator) run(b testing.TB, rate float64, d time.Duration) (offered int) {
	start := time.Now()
	for {
		elapsed := time.Since(start)
		if elapsed >= d {
			return offered
		}
		n := generatorBatch
		if rate > 0 {
			n = min(n, int(rate*elapsed.Seconds())-offered)
			if n <= 0 {
				continue
			}
		}
		taken, err := g.port.Send(g.frames[:n])
		if err != nil {
			b.Fatal(err)
		}
		offered += taken
	}
}

// pair is two nodes and what connects them.
type pair struct {
	left, right *porttest.Rig
	forwarder   *forwarder // nil for other programs
}

func (p pair) trial(b testing.TB, g *generator, rate float64, d time.Duration) (offered, delivered int) {
	before := p.right.Counters(b).RxPackets
	offered = g.run(b, rate, d)
	for last := uint64(0); ; { // until no more come
		time.Sleep(5 * time.Millisecond)
		now := p.right.Counters(b).RxPackets
		if now == last {
			return offered, int(now - before)
		}
		last = now
	}
}

// throughput is the highest rate with at most 0.1 % loss, as RFC 2544 searches
// for it, in frames a second. A trial may be repeated, because others use the
// machine.
func (p pair) throughput(b testing.TB, g *generator) float64 {
	const trial, steps, loss, tries = 100 * time.Millisecond, 8, 0.001, 5
	offered, _ := p.trial(b, g, 0, trial)
	low, high := 0.0, float64(offered)/trial.Seconds()*1.05
	for range steps {
		rate := (low + high) / 2
		passed := false
		for try := 0; try < tries && !passed; try++ {
			offered, delivered := p.trial(b, g, rate, trial)
			if passed = float64(offered-delivered) <= loss*float64(offered); passed {
				low = max(low, float64(offered)/trial.Seconds())
			}
		}
		if !passed {
			high = rate
		} else if low < rate*0.97 { // the generator's own limit
			break
		}
	}
	return low
}

// saturate offers all that the generator can, and reports what arrives and what
// it costs.
func (p pair) saturate(b *testing.B, g *generator) {
	const trials, d = 5, 200 * time.Millisecond
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var offered, delivered int
	var sending, forwarding time.Duration
	for range trials {
		start := threadTime(unix.Gettid())
		var forwarded time.Duration
		if p.forwarder != nil {
			forwarded = p.forwarder.cpu()
		}
		n, m := p.trial(b, g, 0, d)
		if p.forwarder != nil {
			forwarding += p.forwarder.cpu() - forwarded
		}
		sending += threadTime(unix.Gettid()) - start
		offered, delivered = offered+n, delivered+m
	}
	b.ReportMetric(float64(delivered)/(trials*d.Seconds()), "saturated-frames/s")
	b.ReportMetric(float64(sending)/float64(offered), "sender-ns/frame")
	if p.forwarder != nil {
		b.ReportMetric(float64(forwarding)/float64(delivered), "forwarder-ns/frame")
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
				g := newGenerator(b, p.left, size)
				p.trial(b, g, 1000, 50*time.Millisecond)
				for range b.N {
					p.saturate(b, g)
					b.ReportMetric(p.throughput(b, g), "frames/s")
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
		b.Run(contender.name, func(b *testing.B) { contender.connect(b, 1500).pingPong(b) })
	}
}

// BenchmarkCost is what a frame costs the thread that does it, without waiting:
// the node sends a burst into the port's ring, then the port receives it, then
// it is sent through another port to its node.
func BenchmarkCost(b *testing.B) {
	hosttest.Need(b, hosttest.Root)
	for _, driver := range []port.Driver{port.Packet, port.XDP, port.Tap} {
		for _, size := range benchSizes {
			b.Run(fmt.Sprintf("%s/%d", driver, size), func(b *testing.B) { benchmarkCost(b, driver, size) })
		}
	}
}

func benchmarkCost(b *testing.B, driver port.Driver, size int) {
	const burst = generatorBatch
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	left := porttest.NewRig(b, driver, porttest.Settings{MTU: max(1500, size), Number: 0})
	right := porttest.NewRig(b, driver, porttest.Settings{MTU: max(1500, size), Number: 1})
	from, to := left.Port(b, port.Options{}), right.Port(b, port.Options{})
	g := newGenerator(b, left, size)
	room := from.Description().Room()
	frames, data, memory := make([]port.Frame, burst), make([][]byte, burst), make([]byte, burst*room)
	for i := range frames {
		frames[i].Data = memory[i*room:][:0:room]
	}
	var node, receive, send time.Duration
	me := unix.Gettid()
	b.ResetTimer()
	for range b.N {
		t0 := threadTime(me)
		if n, err := g.port.Send(g.frames); n != burst || err != nil {
			b.Fatal(n, err)
		}
		t1 := threadTime(me)
		n := 0
		for n < burst {
			got, err := from.Receive(frames[n:])
			if err != nil || got == 0 {
				b.Fatalf("%d of %d frames, %v", n, burst, err)
			}
			n += got
		}
		t2 := threadTime(me)
		for i := range frames {
			data[i] = frames[i].Data
		}
		if n, err := to.Send(data); n != burst || err != nil {
			b.Fatal(n, err)
		}
		if err := to.Flush(); err != nil {
			b.Fatal(err)
		}
		t3 := threadTime(me)
		node, receive, send = node+t1-t0, receive+t2-t1, send+t3-t2
	}
	per := float64(b.N * burst)
	b.ReportMetric(float64(node)/per, "node-ns/frame")
	b.ReportMetric(float64(receive)/per, "receive-ns/frame")
	b.ReportMetric(float64(send)/per, "send-ns/frame")
}
