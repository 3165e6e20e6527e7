package live

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"railbed/fabric/port"
	"railbed/internal/feed"
	"railbed/internal/kernel"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
	"railbed/testkit/porttest"
)

// The switches of the benchmarks: two nodes on one layer-3 switch by links whose
// rate is no limit, plain and with everything on.
const (
	plainSwitch = `
  switch: {kind: soft}
  links: {default: {rate: 100gbit, mtu: %d}}
`
	fullSwitch = `
  switch: {kind: soft, buffer: 8MB, ecn: {kmin: 100KB, kmax: 400KB, pmax: 10%%}, pfc: {priorities: [3]}}
  links: {default: {rate: 100gbit, mtu: %d}}
`
)

// bench is a pair of nodes on soft switches in a process of their own, as a
// testbed starts them.
type bench struct {
	porttest.Pair
	plan    *plan.Plan
	process *Process
}

// startBench starts the switches of a plan with two nodes. The nodes have no
// shapers. Sink gives the nodes' NICs other addresses than the plan, so that
// their stacks refuse at once what arrives.
func startBench(t testing.TB, settings string, mtu int, sink bool) *bench {
	t.Helper()
	porttest.Need(t, port.XDP)
	p := compileTwo(t, fmt.Sprintf(settings, mtu))
	s := &bench{plan: p}
	s.Pair, _ = porttest.TwoVeths(t, mtu)
	ports := Ports{Monitors: 2}
	for i, r := range []*porttest.Rig{s.Left, s.Right} {
		ports.Ends = append(ports.Ends, plan.End{Node: p.Nodes[i].Name, Port: porttest.NICName})
		if !sink {
			setAddress(p, i, plan.MAC(r.MAC()))
		}
		r.Driver = port.XDP // the default
		ports.Own = append(ports.Own, r.Open(t, port.Options{MTU: mtu, RingBytes: 4 << 20}))
		ports.NICs = append(ports.NICs, []int{i})
		ports.Indexes = append(ports.Indexes, []int{porttest.NICIndex})
	}
	ports.Monitor = func(hand func(int, *os.File) error) error {
		for i, r := range []*porttest.Rig{s.Left, s.Right} {
			if err := r.Node.Do(func() error {
				seer, err := OpenMonitor(0)
				return errors.Join(err, hand(i, seer))
			}); err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	if s.process, err = Start(t.Context(), p, ports); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.process.Close(); err != nil {
			t.Error(err)
		}
	})
	s.Process = s.process.process.Process.Pid
	s.CPU = func() time.Duration { return porttest.ProcessTime(s.Process) }
	return s
}

func compileTwo(t testing.TB, settings string) *plan.Plan {
	t.Helper()
	return plantest.Compile(
		t, "name: bench\nfabric:\n  topology: single-switch\n  params: {hosts: 2}"+settings)
}

// setAddress changes the address of a node's NIC in the plan.
func setAddress(p *plan.Plan, node int, mac plan.MAC) {
	p.Nodes[node].NICs[0].MAC = mac
	neighbors := p.Switches[0].Ports[node].Neighbors
	for i := range neighbors {
		neighbors[i].MAC = mac
	}
}

// frames are datagrams from the first node to the second, by all priorities where
// there is one for each.
func (s *bench) frames(size int, priorities []uint8) [][]byte {
	return datagrams(size, wire.MAC(s.plan.Switches[0].Ports[0].MAC), s.plan, priorities)
}

func datagrams(size int, to wire.MAC, p *plan.Plan, priorities []uint8) (frames [][]byte) {
	for i := range porttest.GeneratorBatch {
		frame := make([]byte, size)
		porttest.Datagram(frame, to, wire.MAC{2, 0, 0, 0, 0, 0}, wire.IPv4Fields{
			DSCP: priorities[i%len(priorities)],
			ECN:  wire.ECT0,
			Src:  p.Nodes[0].Loopbacks[0].Addr().As4(),
			Dst:  p.Nodes[1].Loopbacks[0].Addr().As4(),
		})
		frames = append(frames, frame)
	}
	return frames
}

var (
	onePriority   = []uint8{0}
	allPriorities = []uint8{0, 8, 16, 24, 32, 40, 48, 56} // DSCP; the default gives each its queue
)

// record observes all ports of the switch, and reads the records.
func (s *bench) record(t testing.TB) {
	t.Helper()
	sw := &s.plan.Switches[0]
	var ends []plan.End
	for _, p := range sw.Ports {
		ends = append(ends, plan.End{Node: sw.Name, Port: p.Name})
	}
	recording, err := s.process.Record(ends, RecordOptions{Snap: 128, Events: true})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := feed.NewReader(recording.File)
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			for n := 1; n > 0; {
				if n, err = reader.Read(1<<20, func(*feed.Record) {}); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
		if err := errors.Join(recording.End(), recording.File.Close()); err != nil {
			t.Error(err)
		}
		reader.Close()
	})
}

// rival is a switch that is measured beside others.
type rival struct {
	name      string
	pair      porttest.Pair
	generator *porttest.Generator
	echo      *porttest.PingPong
	values    map[string][]float64
}

func (r *rival) note(what string, value float64) { r.values[what] = append(r.values[what], value) }

// rivals are our switch, plain and with everything on, and the peers that the
// marks name.
var rivals = []struct {
	name string
	open func(b *testing.B, mtu int) (porttest.Pair, func(size int) [][]byte)
}{
	{"switch", func(b *testing.B, mtu int) (porttest.Pair, func(int) [][]byte) {
		s := startBench(b, plainSwitch, mtu, true)
		return s.Pair, func(size int) [][]byte { return s.frames(size, onePriority) }
	}},
	{"switch-full", func(b *testing.B, mtu int) (porttest.Pair, func(int) [][]byte) {
		s := startBench(b, fullSwitch, mtu, true)
		s.record(b)
		return s.Pair, func(size int) [][]byte { return s.frames(size, allPriorities) }
	}},
	{"bridge", func(b *testing.B, mtu int) (porttest.Pair, func(int) [][]byte) {
		return peer(b, porttest.Bridge(b, mtu))
	}},
	{"ovs", func(b *testing.B, mtu int) (porttest.Pair, func(int) [][]byte) {
		return peer(b, porttest.OpenVSwitch(b, mtu))
	}},
}

// peer teaches a layer-2 peer where the address is that the frames go to: as
// behind our switch, it is not the NIC's own.
func peer(b *testing.B, p porttest.Pair) (porttest.Pair, func(int) [][]byte) {
	planned := compileTwo(b, fmt.Sprintf(plainSwitch, 1500))
	sink := wire.MAC(planned.Nodes[1].NICs[0].MAC)
	hello := make([]byte, 64)
	wire.Ethernet(hello).Encode(
		&wire.EthernetFields{Dst: wire.MAC{255, 255, 255, 255, 255, 255}, Src: sink, EtherType: 0x88B5})
	if err := p.Right.NIC(b).Send(hello); err != nil {
		b.Fatal(err)
	}
	return p, func(size int) [][]byte { return datagrams(size, sink, planned, onePriority) }
}

// benchRounds is how many times the rivals are measured in turn, for each
// operation of a benchmark: once where it is only tried.
func benchRounds() int {
	if flag.Lookup("test.benchtime").Value.String() == "1x" {
		return 1
	}
	return 5
}

// BenchmarkBesidePeers is two nodes on a switch with two ports. It measures the rate that arrives
// when a node sends all it can, the highest rate with at most 0.1 % loss, and our process's work
// for a frame. All rivals run at the same time and are measured in turn. The medians are reported,
// and the range is printed.
func BenchmarkBesidePeers(b *testing.B) {
	hosttest.Need(b, hosttest.Root)
	for _, size := range []int{64, 1400, 4200} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			all := make([]*rival, 0, len(rivals))
			for _, one := range rivals {
				r := &rival{name: one.name, values: map[string][]float64{}}
				var frames func(int) [][]byte
				r.pair, frames = one.open(b, max(1500, size))
				r.pair.Part(b)
				r.generator = porttest.NewGenerator(b, r.pair.Left, frames(size))
				r.pair.Trial(b, r.generator, 1000, 50*time.Millisecond)
				all = append(all, r)
			}
			b.ResetTimer()
			for range b.N * benchRounds() {
				for _, r := range all {
					s := r.pair.Saturate(b, r.generator, 500*time.Millisecond)
					r.note("arrive/s", s.Rate)
					r.note("sender-ns", float64(s.Sender))
					if r.pair.CPU != nil {
						r.note("cpu-ns", float64(s.Switch))
					}
					r.note("0.1%/s", r.pair.Throughput(b, r.generator))
				}
			}
			report(b, all, "arrive/s", "0.1%/s")
		})
	}
}

// BenchmarkRoundTripBesidePeers is a UDP ping-pong over the same switches.
func BenchmarkRoundTripBesidePeers(b *testing.B) {
	hosttest.Need(b, hosttest.Root)
	const trips = 3000
	s := startBench(b, plainSwitch, 1500, false)
	sw := &s.plan.Switches[0]
	hops := &[2]porttest.Hop{}
	for i := range hops {
		hops[i] = porttest.Hop{Addr: s.plan.Nodes[i].Loopbacks[0].Addr(), Next: kernel.MAC(sw.Ports[i].MAC)}
	}
	all := []*rival{{name: "switch", echo: s.NewPingPong(b, hops)}}
	s.Part(b)
	for name, open := range map[string]func(testing.TB, int) porttest.Pair{"bridge": porttest.Bridge,
		"ovs": porttest.OpenVSwitch} {
		p := open(b, 1500)
		p.Part(b)
		all = append(all, &rival{name: name, echo: p.NewPingPong(b, nil)})
	}
	for range b.N * benchRounds() {
		for _, r := range all {
			if r.values == nil {
				r.values = map[string][]float64{}
			}
			times := r.echo.Run(trips)
			r.note("rtt-ns", float64(times[len(times)/2]))
			r.note("rtt-p99-ns", float64(times[len(times)*99/100]))
		}
	}
	report(b, all, "rtt-ns")
}

// report prints each rival's medians and ranges, and the medians of the ratios of
// our switch to the peers in the same round.
func report(b *testing.B, all []*rival, ratios ...string) {
	b.Helper()
	b.ReportMetric(0, "ns/op")
	for _, r := range all {
		text := ""
		names := make([]string, 0, len(r.values))
		for what := range r.values {
			names = append(names, what)
		}
		slices.Sort(names)
		for _, what := range names {
			sorted := slices.Sorted(slices.Values(r.values[what]))
			text += fmt.Sprintf("  %s %.0f (%.0f to %.0f)", what, median(sorted), sorted[0],
				sorted[len(sorted)-1])
		}
		fmt.Printf("%s %s:%s\n", b.Name(), r.name, text)
	}
	for _, r := range all[1:] {
		for _, what := range ratios {
			var each []float64
			for i, value := range r.values[what] {
				each = append(each, all[0].values[what][i]/value)
			}
			slices.Sort(each)
			b.ReportMetric(median(each), all[0].name+":"+r.name+"-"+what)
		}
	}
}

func median(sorted []float64) float64 { return sorted[len(sorted)/2] }
