package testbed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"railbed/internal/kernel"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
	"railbed/testkit/porttest"
)

// floodFile has two nodes on a soft switch by links whose rate is no limit.
const floodFile = `
name: bench-flood
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {rate: 100gbit, mtu: %d}}
`

// program is a command of a node.
type program interface {
	Start() error
	Wait() error
}

// flooded is a pair of nodes and the switch between them.
type flooded struct {
	name string
	// iperf3 returns the program in a node, and where it prints.
	iperf3 func(ctx context.Context, node int, args ...string) (program, *bytes.Buffer)
	server string // the second node's address
	values map[string][]float64
}

func floodedTestbed(b *testing.B, mtu int) *flooded {
	tb, err := testbed.Up(b.Context(), plantest.Compile(b, fmt.Sprintf(floodFile, mtu)), testbed.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { tb.Close() })
	return &flooded{name: "ours", server: tb.Plan().Nodes[1].Loopbacks[0].Addr().String(),
		values: map[string][]float64{},
		iperf3: func(ctx context.Context, node int, args ...string) (program, *bytes.Buffer) {
			var out bytes.Buffer
			cmd := tb.Node(fmt.Sprintf("h%d", node)).Command(ctx, "iperf3", args...)
			cmd.Stdout = &out
			return cmd, &out
		}}
}

// inNamespace is a command that starts in a network namespace.
type inNamespace struct {
	*exec.Cmd
	ns *kernel.Namespace
}

func (c inNamespace) Start() error { return c.ns.Do(c.Cmd.Start) }

func floodedPair(b *testing.B, name string, p porttest.Pair) *flooded {
	p.NewPingPong(b, nil) // sets addresses
	return &flooded{name: name, server: "192.0.2.2", values: map[string][]float64{},
		iperf3: func(ctx context.Context, node int, args ...string) (program, *bytes.Buffer) {
			var out bytes.Buffer
			cmd := exec.CommandContext(ctx, "iperf3", args...)
			cmd.Stdout = &out
			return inNamespace{cmd, []*porttest.Rig{p.Left, p.Right}[node].Node}, &out
		}}
}

// run runs iperf3 between the nodes and returns its report. A flood can take so much of the control
// connection that iperf3 gives up or hangs, so run tries a few times.
func (f *flooded) run(b *testing.B, args ...string) (report iperf3Report) {
	b.Helper()
	var err error
	for range 5 {
		if report, err = f.try(b, args...); err == nil {
			return report
		}
		b.Logf("%s: iperf3 %v: %v", f.name, args, err)
	}
	b.Fatal("iperf3 failed five times")
	return report
}

func (f *flooded) try(b *testing.B, args ...string) (report iperf3Report, err error) {
	ctx, cancel := context.WithTimeout(b.Context(), 15*time.Second)
	defer cancel()
	server, _ := f.iperf3(ctx, 1, "-s")
	if err := server.Start(); err != nil {
		return report, err
	}
	defer func() {
		cancel()
		_ = server.Wait()
	}()
	time.Sleep(200 * time.Millisecond)
	client, out := f.iperf3(ctx, 0, append([]string{"-J", "-c", f.server}, args...)...)
	if err := client.Start(); err != nil {
		return report, err
	}
	if err := client.Wait(); err != nil {
		return report, fmt.Errorf("%w: %s", err, out)
	}
	err = json.Unmarshal(out.Bytes(), &report)
	if err == nil && report.Error != "" {
		err = errors.New(report.Error)
	}
	return report, err
}

// iperf3Report is the part of iperf3's report that is used.
type iperf3Report struct {
	Error string
	End   struct {
		Sum struct { // of datagrams
			Packets     float64
			LostPackets float64 `json:"lost_packets"`
			Seconds     float64
		}
		SumReceived struct {
			BitsPerSecond float64 `json:"bits_per_second"`
		} `json:"sum_received"`
	}
}

// BenchmarkFloodBesidePeers is iperf3 between two nodes, by UDP as fast as it sends and by TCP. It
// reports the datagrams that arrive in a second at the program, and the rate of TCP. The switches
// take turns.
func BenchmarkFloodBesidePeers(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.Testbed, hosttest.IPerf3)
	rounds := 5
	if flag.Lookup("test.benchtime").Value.String() == "1x" {
		rounds = 1
	}
	for _, mtu := range []int{4200, 1500} {
		b.Run(fmt.Sprintf("mtu=%d", mtu), func(b *testing.B) {
			all := []*flooded{floodedTestbed(b, mtu), floodedPair(b, "ovs", porttest.OpenVSwitch(b, mtu)),
				floodedPair(b, "bridge", porttest.Bridge(b, mtu))}
			sizes := []string{"64", "1400", "4096"}
			if mtu < 4096 {
				sizes = sizes[:2]
			}
			for range b.N * rounds {
				for _, f := range all {
					for _, size := range sizes {
						sum := f.run(b, "-u", "-b0", "-t2", "-l", size).End.Sum
						f.note(size+"B/s", (sum.Packets-sum.LostPackets)/sum.Seconds)
						f.note(size+"B-sent/s", sum.Packets/sum.Seconds)
					}
					f.note("tcp-mbit/s", f.run(b, "-t2").End.SumReceived.BitsPerSecond/1e6)
				}
			}
			b.ReportMetric(0, "ns/op")
			for _, f := range all {
				f.print(b)
			}
		})
	}
}

func (f *flooded) note(what string, value float64) { f.values[what] = append(f.values[what], value) }

// print prints medians and ranges.
func (f *flooded) print(b *testing.B) {
	var names []string
	for what := range f.values {
		names = append(names, what)
	}
	slices.Sort(names)
	text := ""
	for _, what := range names {
		sorted := slices.Sorted(slices.Values(f.values[what]))
		text += fmt.Sprintf("  %s %.0f (%.0f to %.0f)", what, sorted[len(sorted)/2], sorted[0],
			sorted[len(sorted)-1])
	}
	fmt.Printf("%s %s:%s\n", b.Name(), f.name, text)
}
