package probe

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/capture/layers"
	"railbed/capture/pcapng"
	"railbed/internal/wire"
	"railbed/testbed"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

func TestMain(m *testing.M) {
	testbed.Init(Parts())
	os.Exit(hosttest.Main(m))
}

const fabric = `
name: probe-recorded
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 1, hosts-per-leaf: 1}
  switch: {kind: soft, int: true}
  links: {default: {rate: 100mbit, delay: 500us}}
`

// TestProbesAreOnTheWire: a recording of all ports has every probe at each of the eight taps, as
// one packet. Each switch adds one hop. The last tap has the hops of the report.
func TestProbesAreOnTheWire(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	tb, err := testbed.Up(t.Context(), plantest.Compile(t, fabric), testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tb.Close()
	var file bytes.Buffer
	recording, err := tb.Capture(t.Context(),
		supervisor.CaptureRequest{At: []string{"all"}, Filter: "udp port 61441"}, &file)
	if err != nil {
		t.Fatal(err)
	}
	const count = 5
	report, err := Run(t.Context(), tb,
		Options{From: "h0", To: "h1", Count: count, Interval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	stats, err := recording.Stop()
	if err != nil || stats.Dropped() > 0 {
		t.Fatalf("%v; %d packets missed", err, stats.Dropped())
	}
	if report.Arrived != count || len(report.Paths) != 1 {
		t.Fatalf("%+v", report)
	}
	hops := map[uint64][]int{}         // by packet id, how many each record shows
	last := map[uint64][]wire.INTHop{} // by sequence number, of the longest one
	reader, err := pcapng.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	for {
		p, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		decoded := gopacket.NewPacket(p.Data, golayers.LayerTypeEthernet, gopacket.Default)
		layer, found := decoded.Layer(layers.LayerTypeINT).(*layers.INT)
		if !found {
			t.Fatalf("a packet without telemetry: %v", decoded)
		}
		hops[p.ID] = append(hops[p.ID], len(layer.Hops))
		if seq := wire.INTProbe(layer.Payload).Seq(); len(layer.Hops) > len(last[seq]) {
			last[seq] = slices.Clone(layer.Hops)
		}
	}
	if len(hops) != count {
		t.Errorf("%d packets recorded, want %d", len(hops), count)
	}
	for id, seen := range hops {
		slices.Sort(seen)
		if want := []int{0, 0, 1, 1, 2, 2, 3, 3}; !slices.Equal(seen, want) {
			t.Errorf("packet %x shows %v hops at its taps, want %v", id, seen, want)
		}
	}
	for _, one := range report.Paths[0].Probes {
		for i, reading := range one.Reports {
			hop := last[one.Seq][i]
			if time.Duration(hop.EgressTime) != reading.Departure || hop.QueueBytes != reading.Queue ||
				hop.Utilisation != reading.Use {
				t.Errorf("probe %d, hop %d: reported %+v, recorded %+v", one.Seq, i, reading, hop)
			}
		}
	}
}

// TestProbesOfNICs sends probes by one NIC and to one NIC. Each rail has one switch, so the switch of
// the path is the NIC's. Some of the flows would take the other rail if the kernel chose.
func TestProbesOfNICs(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	tb, err := testbed.Up(t.Context(), plantest.Compile(t, `
name: probe-nics
fabric: {topology: rail-optimized, params: {servers: 2, rails: 2, spines: 0}, switch: {kind: soft, int: true}}
`), testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tb.Close()
	for _, c := range []struct{ from, to, by string }{
		{"h0:eth0", "h1:eth0", "leaf1"}, {"h0:eth1", "h1:eth1", "leaf2"}, {"h0:eth1", "h1", "leaf2"},
		{"h1:eth0", "h0", "leaf1"}, {"h1", "h0:eth1", "leaf2"},
	} {
		for _, v6 := range []bool{false, true} {
			r, err := Run(t.Context(), tb, Options{From: c.from, To: c.to, Count: 8, Flows: 8,
				Interval: time.Millisecond, IPv6: v6})
			if err != nil || r.Arrived != 8 || len(r.Paths) != 1 || r.Paths[0].Hops[0].Switch != c.by {
				t.Errorf("%s to %s, IPv6 %t: %v, %+v, want 8 probes over %s", c.from, c.to, v6, err, r, c.by)
			}
		}
	}
}

// TestReport counts a probe once, tells paths apart, and sums a hop up.
func TestReport(t *testing.T) {
	p := plantest.Compile(t, fabric)
	r := newReport(p, &Options{From: "h0", To: "h1", Count: 6})
	hop := func(node uint32, out uint16, queue uint32, at uint64) wire.INTHop {
		return wire.INTHop{Node: node, Egress: out, Queue: 3, QueueBytes: queue, EgressTime: at,
			Utilisation: queue}
	}
	for _, one := range []arrival{
		{Seq: 2, Hops: []wire.INTHop{hop(1, 1, 10, 100), hop(3, 1, 0, 300)}},
		{Seq: 0, Hops: []wire.INTHop{hop(1, 1, 30, 1000), hop(3, 1, 0, 1900)}},
		{Seq: 1, Hops: []wire.INTHop{hop(1, 1, 20, 500), hop(3, 1, 0, 1000)}, Full: true},
		{Seq: 1, Hops: []wire.INTHop{hop(1, 1, 99, 500), hop(3, 1, 0, 1000)}},
		{Seq: 3, Hops: []wire.INTHop{hop(9, 7, 0, 0)}},
	} {
		r.add(one)
	}
	r.finish()
	if r.Arrived != 4 || r.Doubled != 1 || r.Full != 1 || len(r.Paths) != 2 {
		t.Fatalf("%+v", r)
	}
	want := []Hop{{"leaf1", "p0", "p1"}, {"spine1", "p0", "p1"}}
	if diff := cmp.Diff(want, r.Paths[0].Hops); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Hop{{"switch 9", "0", "7"}}, r.Paths[1].Hops); diff != "" {
		t.Error(diff)
	}
	if got := []uint64{r.Paths[0].Probes[0].Seq, r.Paths[0].Probes[1].Seq,
		r.Paths[0].Probes[2].Seq}; !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Errorf("probes %v", got)
	}
	if s := r.Paths[0].Summary(0); s != (Summary{Queue: 20, WorstQueue: 30, Use: 30, Priority: 3}) {
		t.Errorf("%+v", s)
	}
	if s := r.Paths[0].Summary(1); s != (Summary{Since: 500, WorstSince: 900, Priority: 3}) {
		t.Errorf("%+v", s)
	}
}
