package live

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"railbed/fabric/softswitch"
	"railbed/internal/units"
	"railbed/testkit/hosttest"
	"railbed/testkit/porttest"
)

// The whole way of a frame, from a node's NIC to the other's, with marks, pauses
// and a recording of all ports, allocates nothing, and memory stays as it is.
func TestFramesAllocateNothing(t *testing.T) {
	needOwnMemory(t)
	soak(t, 3*time.Second)
}

// needOwnMemory skips where the race detector takes memory and time beside the
// switch's own; make test runs this without it as well.
func needOwnMemory(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("the race detector takes memory of its own")
	}
}

// BenchmarkSoak is the same for longer: -benchtime 60s.
func BenchmarkSoak(b *testing.B) {
	hosttest.Need(b, hosttest.Netns)
	d, err := time.ParseDuration(flag.Lookup("test.benchtime").Value.String())
	if err != nil {
		d = time.Second
	}
	soak(b, d)
	b.ReportMetric(0, "ns/op")
}

// soak offers 80 % of the switch's capacity, to a link that carries a tenth less.
func soak(t testing.TB, d time.Duration) {
	const size = 1000
	s := startBench(t, fullSwitch, 1500, true)
	s.record(t)
	g := porttest.NewGenerator(t, s.Left, s.frames(size, allPriorities))
	s.Trial(t, g, 1000, 50*time.Millisecond)
	most := s.Saturate(t, g, 500*time.Millisecond).Rate
	load := 0.8 * most
	slow := s.plan.Links[1]
	limit := func(rate units.Rate) {
		slow.AToB.Rate, slow.BToA.Rate = rate, rate
		if err := s.process.SetLink(slow.Name, slow.AToB, slow.BToA); err != nil {
			t.Fatal(err)
		}
	}
	limit(10e6)
	g.Run(t, 0, 500*time.Millisecond) // every queue is full once, and has its memory
	limit(units.Rate(0.9 * load * size * 8))
	s.Trial(t, g, load, 200*time.Millisecond)
	quiet := s.state(t)
	time.Sleep(d / 4)
	idle := s.state(t)
	s.Trial(t, g, load, d)
	after := s.state(t)

	seen, marked := softswitch.Counters{}, uint64(0)
	for i := range after.Ports {
		now, then := &after.Ports[i].Counters, &idle.Ports[i].Counters
		seen.Sent.Packets += now.Sent.Packets - then.Sent.Packets
		marked += after.Ports[i].Marks.Total() - idle.Ports[i].Marks.Total()
		seen.PausesSent[3] += now.PausesSent[3] - then.PausesSent[3]
	}
	delivered := after.Totals.Delivered - idle.Totals.Delivered
	dropped := after.Totals.Dropped - idle.Totals.Dropped
	allocated := after.Heap.Objects - idle.Heap.Objects
	alone := 4 * (idle.Heap.Objects - quiet.Heap.Objects) // by time
	t.Logf("%.0f frames/s offered for %v: %d delivered, %d dropped, %d marked, %d pauses; %d objects "+
		"allocated, %d by an idle process; heap %d to %d bytes, %d to %d packets",
		load, d, delivered, dropped, marked, seen.PausesSent[3], allocated, alone, idle.Heap.Bytes,
		after.Heap.Bytes, idle.Peak, after.Peak)
	offered := after.Ports[2].Counters.SentByPriority // by the left node
	rest := offered[4:]                               // priority 3 is paused
	if most := slices.Max(rest); slices.Min(rest) < most-most/10 {
		t.Errorf("the priorities have unequal parts of the load: %d", offered)
	}
	if marked == 0 || seen.PausesSent[3] == 0 || delivered < uint64(load*d.Seconds()/10) {
		// others may use the machine
		t.Fatalf("nothing was tried: %+v", after.Totals)
	}
	// No object belongs to a frame. The runtime counts the objects of a span when a P has used it
	// up, or at the next collection. So up to a span of each size on each P may be older.
	const spans = manyPs * 1024
	if most := alone + delivered/1000 + spans; allocated > most {
		t.Errorf("%d objects were allocated for %d frames, want at most %d", allocated, delivered, most)
	}
	if after.Heap.Bytes > idle.Heap.Bytes+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", idle.Heap.Bytes, after.Heap.Bytes)
	}
}

func (s *bench) state(t testing.TB) *State {
	t.Helper()
	state, err := s.process.State()
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// A node that sends all it can over a link that carries a hundredth takes no more
// than the packet memory, and no packet is lost sight of.
func TestOverloadIsBounded(t *testing.T) {
	needOwnMemory(t)
	const budget = 4 << 20
	s := startBench(t, "\n  memory: 4MiB\n  switch: {kind: soft, buffer: 64MB, alpha: 8}\n  links: "+
		"{default: {rate: 10mbit, mtu: %d}}\nnodes: {default: {nic-queue: 16MB}}\n", 1500, true)
	g := porttest.NewGenerator(t, s.Left, s.frames(1000, allPriorities))
	began := s.resident(t)
	for range 4 {
		g.Run(t, 0, 500*time.Millisecond)
		now := s.state(t)
		if resident := s.resident(t); resident > began+budget+4<<20 {
			t.Errorf("the process grew from %d to %d bytes, for packets in %d", began, resident, budget)
		}
		if taken := int64(now.Peak) * int64(now.Cell); taken > budget || now.Memory > budget {
			t.Errorf("packets took %d bytes of %d", taken, now.Memory)
		}
		if now.Totals.Received+now.Totals.Made !=
			now.Totals.Delivered+now.Totals.Consumed+now.Totals.Dropped+uint64(now.Held) {
			t.Errorf("packets came or went unseen: %+v, %d held", now.Totals, now.Held)
		}
	}
	if now := s.state(t); now.NICs[0].NoMemory == 0 {
		t.Errorf("the packet memory was never used up: %d packets of %d bytes at most", now.Peak, now.Cell)
	}
}

// resident returns the physical memory of the switches' process, without shared memory, in bytes.
func (s *bench) resident(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.process.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("no RssAnon in %s", text)
	}
	size, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return size << 10
}
