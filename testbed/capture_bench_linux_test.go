package testbed_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/testbed"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// floodPart sends datagrams to an address and receives its peer's datagrams, until it is ended.
const floodPart = "flood"

func flood(args []string) int {
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(args[0]), 9))
	conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: 9})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		for buffer := make([]byte, 9000); ; {
			_, _ = conn.Read(buffer) // a refusal of the peer, which starts later, is no end
		}
	}()
	for payload := make([]byte, 1400); ; {
		_, _ = conn.WriteTo(payload, to) // a full queue loses it, as a faster sender's
	}
}

// quick is the quickstart's fabric without its rates. The CPUs limit it.
const quick = `
name: go-cost
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 4, striped: 1}
  switch: {kind: soft, load-balance: flow}
  links:
    default: {rate: 100gbit, delay: 10us, mtu: 9000}
`

// snap is the default snap length of a scenario's captures.
const snap = 576

// BenchmarkRecordingCost measures how many packets the quickstart's fabric delivers at full load, while
// every node sends all that it can. The modes are no recording, a recording of every port, a recording of
// the nodes' NICs, and a dumpcap at each of the NICs. They take turns, a second and a half each. A
// recording's packets go to a file and have at most snap bytes.
func BenchmarkRecordingCost(b *testing.B) {
	hosttest.Need(b, hosttest.Testbed, hosttest.Tshark)
	tb, err := testbed.Up(b.Context(), plantest.Compile(b, quick), testbed.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer tb.Close()
	for i, node := range tb.Plan().Nodes {
		to := tb.Plan().Nodes[(i+1)%len(tb.Plan().Nodes)].Loopbacks[0].Addr()
		if err := tb.Node(node.Name).Part(b.Context(), floodPart, to.String()).Start(); err != nil {
			b.Fatal(err)
		}
	}
	modes := []struct {
		name  string
		start func(testing.TB, *testbed.Testbed) (stop func() string)
	}{
		{"none", func(testing.TB, *testbed.Testbed) func() string { return func() string { return "" } }},
		{"all", recordedAt("all")},
		{"nics", recordedAt("nics")},
		{"dumpcap", dumpcaps},
	}
	rates := map[string][]float64{}
	for b.Loop() {
		for _, mode := range modes {
			stop := mode.start(b, tb)
			time.Sleep(300 * time.Millisecond)
			rate := deliveredIn(b, tb, 1500*time.Millisecond)
			b.Logf("%-8s %7.0f packets/s %s", mode.name, rate, stop())
			rates[mode.name] = append(rates[mode.name], rate)
		}
	}
	for _, mode := range modes {
		slices.Sort(rates[mode.name])
		middle := rates[mode.name][len(rates[mode.name])/2]
		b.ReportMetric(middle, "packets/s-"+mode.name)
		if mode.name != "none" {
			none := rates["none"][len(rates["none"])/2]
			b.ReportMetric(100*(1-middle/none), "%-cost-"+mode.name)
		}
	}
}

// recordedAt starts a recording of the named taps.
func recordedAt(taps string) func(testing.TB, *testbed.Testbed) func() string {
	return func(t testing.TB, tb *testbed.Testbed) func() string {
		file, err := os.Create(filepath.Join(t.TempDir(), "x.pcapng"))
		if err != nil {
			t.Fatal(err)
		}
		request := supervisor.CaptureRequest{At: []string{taps}, SnapLen: snap}
		recording, err := tb.Capture(t.Context(), request, file)
		if err != nil {
			t.Fatal(err)
		}
		return func() string {
			stats, err := recording.Stop()
			if err != nil {
				t.Fatal(err)
			}
			os.Remove(file.Name())
			file.Close()
			return fmt.Sprintf("%d records, %d lost", stats.Written(), stats.Dropped())
		}
	}
}

// dumpcaps starts dumpcap at the NIC of every node.
func dumpcaps(t testing.TB, tb *testbed.Testbed) func() string {
	ctx, end := context.WithCancel(t.Context())
	dir, err := os.MkdirTemp("/var/tmp", "dumpcap") // nodes have a /tmp of their own
	if err != nil {
		t.Fatal(err)
	}
	var running []*testbed.Cmd
	var said []*strings.Builder
	for _, node := range tb.Plan().Nodes {
		cmd := tb.Node(node.Name).Command(ctx, "dumpcap", "-q", "-i", "eth0", "-s", strconv.Itoa(snap), "-w",
			filepath.Join(dir, node.Name+".pcapng"))
		said = append(said, new(strings.Builder))
		cmd.Stderr = said[len(said)-1]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	return func() string {
		for _, cmd := range running {
			_ = cmd.Signal(syscall.SIGINT)
		}
		var last string
		for i, cmd := range running {
			_ = cmd.Wait()
			last = said[i].String()
		}
		end()
		os.RemoveAll(dir)
		lines := strings.Split(strings.TrimSpace(last), "\n")
		return lines[len(lines)-1]
	}
}

// deliveredIn counts what the nodes' NICs receive per second.
func deliveredIn(t testing.TB, tb *testbed.Testbed, during time.Duration) float64 {
	t.Helper()
	delivered := func() (packets uint64) {
		state, err := tb.Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range state.Links {
			if tb.Plan().Node(link.A.Node) != nil {
				packets += link.A.Counters.RxPackets
			}
		}
		return packets
	}
	before, began := delivered(), time.Now()
	time.Sleep(during)
	after, took := delivered(), time.Since(began)
	return float64(after-before) / took.Seconds()
}
