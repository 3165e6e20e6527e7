package porttest

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/internal/wire"
	"railbed/testkit/hosttest"
)

// ThreadTime returns a thread's CPU time. It uses the clock that pthread_getcpuclockid would return
// for a thread, or clock_getcpuclockid for a process.
func ThreadTime(thread int) time.Duration { return cpuTime(thread, perThread) }

// ProcessTime returns the CPU time of all threads of a process.
func ProcessTime(process int) time.Duration { return cpuTime(process, 0) }

const perThread = 4

func cpuTime(id, kind int) time.Duration {
	const scheduler = 2
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^id<<3|kind|scheduler), &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// Generator sends frames on a node's NIC by the fastest driver, so that the generator does not
// limit a measured switch.
type Generator struct {
	port   port.Port
	frames [][]byte
	next   int // of frames, in the next call of Run
}

// GeneratorBatch is the number of frames that a Generator sends at once.
const GeneratorBatch = 32

// NewGenerator opens a generator on the rig's NIC. It sends the given frames repeatedly, and each of them
// equally often, also at rates at which a batch is not full.
func NewGenerator(t testing.TB, r *Rig, frames [][]byte) *Generator {
	t.Helper()
	g := &Generator{frames: frames}
	err := r.Node.Do(func() error {
		handle, err := port.Open(port.XDP, NICName, port.Options{RingBytes: 1})
		if err == nil {
			g.port, err = handle.Port()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.port.Close() })
	return g
}

// PlainFrames returns a batch of frames of a size from rig 0 to rig 1, with an EtherType of no
// protocol.
func PlainFrames(size int) [][]byte {
	frame := make([]byte, size)
	copy(frame, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0x88, 0xB5})
	return slices.Repeat([][]byte{frame}, GeneratorBatch)
}

// Datagram fills a frame with an IPv4 datagram without content.
func Datagram(frame []byte, dst, src wire.MAC, ip wire.IPv4Fields) {
	clear(frame)
	wire.Ethernet(frame).Encode(&wire.EthernetFields{Dst: dst, Src: src, EtherType: wire.EtherTypeIPv4})
	ip.TotalLength, ip.TTL, ip.Protocol = uint16(len(frame)-wire.EthernetLen), 64, wire.ProtocolUDP
	wire.IPv4(frame[wire.EthernetLen:]).Encode(&ip)
	wire.UDP(frame[wire.EthernetLen+wire.IPv4MinLen:]).Encode(&wire.UDPFields{
		SrcPort: 7000, DstPort: 7000, Length: uint16(len(frame) - wire.EthernetLen - wire.IPv4MinLen),
	})
}

// Send offers all frames once and returns the number of its frames that the NIC accepted.
func (g *Generator) Send() (int, error) { return g.port.Send(g.frames) }

// Run offers frames at a rate, 0 for as many as possible, and returns their number.
func (g *Generator) Run(t testing.TB, rate float64, d time.Duration) (offered int) {
	start := time.Now()
	for {
		elapsed := time.Since(start)
		if elapsed >= d {
			return offered
		}
		batch := g.frames[g.next:]
		if rate > 0 {
			due := int(rate*elapsed.Seconds()) - offered
			if due <= 0 {
				continue
			}
			batch = batch[:min(due, len(batch))]
		}
		taken, err := g.port.Send(batch)
		if err != nil {
			t.Fatal(err)
		}
		offered += taken
		g.next = (g.next + taken) % len(g.frames)
	}
}

// Pair is two nodes and the switch that connects them.
type Pair struct {
	Left, Right *Rig
	// CPU returns the time that the program between the nodes has worked or spun; nil for the
	// kernel's own switches.
	CPU func() time.Duration
	// Process is the PID of that program, or 0 if there is none or it is this process.
	Process int
}

// Part pins the program between the nodes to the machine's last core. Saturate and Throughput send
// on the first core; on a busy machine both could otherwise run on the same core.
func (p Pair) Part(t testing.TB) {
	t.Helper()
	if p.Process == 0 {
		return
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Process))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name())
		if err := hosttest.KeepOn(id, runtime.NumCPU()-1); err != nil {
			t.Fatalf("keep thread %d on a core: %v", id, err)
		}
	}
}

// Trial offers frames at a rate, 0 for as many as possible. It returns the numbers of offered and
// delivered frames.
func (p Pair) Trial(t testing.TB, g *Generator, rate float64, d time.Duration) (offered, delivered int) {
	before := p.Right.Counters(t).RxPackets
	offered = g.Run(t, rate, d)
	for last := uint64(0); ; { // until no more arrive
		time.Sleep(5 * time.Millisecond)
		now := p.Right.Counters(t).RxPackets
		if now == last {
			return offered, int(now - before)
		}
		last = now
	}
}

// Throughput returns the highest rate with at most 0.1 % loss, searched as in RFC 2544, in frames a
// second. It may repeat a trial, because other programs use the machine.
func (p Pair) Throughput(t testing.TB, g *Generator) float64 {
	const trial, steps, loss, tries = 100 * time.Millisecond, 8, 0.001, 5
	defer hosttest.OnFirstCore(t)()
	offered, _ := p.Trial(t, g, 0, trial)
	low, high := 0.0, float64(offered)/trial.Seconds()*1.05
	for range steps {
		rate := (low + high) / 2
		passed := false
		for try := 0; try < tries && !passed; try++ {
			offered, delivered := p.Trial(t, g, rate, trial)
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

// Saturation is the result of a node sending as fast as it can.
type Saturation struct {
	Rate   float64       // frames a second that arrive
	Sender time.Duration // CPU time for each offered frame, at the sender
	Switch time.Duration // and for each that arrives, at the program between the nodes
}

// Saturate offers frames as fast as the generator can.
func (p Pair) Saturate(t testing.TB, g *Generator, d time.Duration) (s Saturation) {
	defer hosttest.OnFirstCore(t)()
	begin := ThreadTime(unix.Gettid())
	var working time.Duration
	if p.CPU != nil {
		working = p.CPU()
	}
	offered, delivered := p.Trial(t, g, 0, d)
	if delivered == 0 {
		t.Fatal("nothing arrives")
	}
	if p.CPU != nil {
		s.Switch = (p.CPU() - working) / time.Duration(delivered)
	}
	s.Sender = (ThreadTime(unix.Gettid()) - begin) / time.Duration(offered)
	s.Rate = float64(delivered) / d.Seconds()
	return s
}
