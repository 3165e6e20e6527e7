package live_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/kernel"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/transports/aggregation"
)

// dialJob makes the two workers of a job.
func dialJob(t *testing.T, p *plan.Plan, job *plan.AggregationJob, spaces map[string]*kernel.Namespace,
	change func(worker int, c *aggregation.Config)) (clients [2]*aggregation.Client) {
	t.Helper()
	for i, r := range p.Ranks {
		config := aggregation.Of(job, i, 1)
		change(i, &config)
		if err := spaces[r.Node].Do(func() (err error) {
			clients[i], err = aggregation.Dial(netip.AddrPortFrom(r.Addr4, 18600), job.Of(i).Addr4, config,
				aggregation.Options{Bypass: true})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := clients[i].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return clients
}

// Workers past the kernel sum up at the switch, also with lost packets, and a worker that waits in vain ends
// with its context.
func TestAggregationPastTheKernel(t *testing.T) {
	f, p, spaces := build(t, "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, "+
		"switch: {kind: soft, aggregation: {slots: 8, elements: 64, timeout: 5s}}, "+
		"links: {default: {rate: 100mbit, mtu: 1500, drop-every: 29}}}\nnodes: {default: {ranks: 1}}\n")
	job, err := p.AggregationFor(p.Ranks, "")
	if err != nil {
		t.Fatal(err)
	}
	clients := dialJob(t, p, job, spaces, func(int, *aggregation.Config) {})
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Bound)
	defer cancel()
	data, ended := [2][]int32{make([]int32, 10_000), make([]int32, 10_000)}, make(chan error)
	for i := range data[0] {
		data[0][i], data[1][i] = int32(i), 7
	}
	go func() { ended <- clients[1].Int32(ctx, data[1]) }()
	if err := errors.Join(clients[0].Int32(ctx, data[0]), <-ended); err != nil {
		t.Fatal(err)
	}
	for _, sums := range data {
		for i, sum := range sums {
			if sum != int32(i)+7 {
				t.Fatalf("element %d is %d, want %d", i, sum, i+7)
			}
		}
	}
	if s := nicState(t, f, "h0").Bypass; s.Sent < 157 || s.Received < 157 || s.Broken > 0 {
		t.Errorf("%+v, want the 157 chunks each way past the kernel", s)
	}
	if clients[0].Counters().Repeated == 0 {
		t.Error("no lost packet was sent again")
	}
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := clients[0].Int32(brief, data[0]); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("alone it ended with %v", err)
	}
}

// A worker whose NIC has no room for its messages ends with its context, too.
func TestAggregationAtAFullNIC(t *testing.T) {
	_, p, spaces := build(t, "name: t\ndilation: 10\nfabric: {topology: single-switch, params: {hosts: 2}, "+
		"switch: {kind: soft, aggregation: {slots: 2048, elements: 64, timeout: 5s}}, "+
		"links: {default: {rate: 10kbit, mtu: 1500}}}\nnodes: {default: {ranks: 1, nic-queue: 4KB}}\n")
	job, err := p.AggregationFor(p.Ranks, "")
	if err != nil {
		t.Fatal(err)
	}
	var client *aggregation.Client
	if err := spaces["h0"].Do(func() (err error) {
		client, err = aggregation.Dial(netip.AddrPortFrom(p.Ranks[0].Addr4, 18600), job.Of(0).Addr4,
			aggregation.Of(job, 0, 1), aggregation.Options{Bypass: true, Clock: clock.New(10)})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := client.Int32(ctx, make([]int32, 2048*64)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it ended after %v", took)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}

// A worker that reads late finds the results of all its slots, however many the job has. It repeats no update
// whose result has arrived.
func TestAggregationOfManySlots(t *testing.T) {
	const slots, elements = 8192, 16
	f, p, spaces := build(t, fmt.Sprintf("name: t\nfabric: {topology: single-switch, params: {hosts: 2}, "+
		"switch: {kind: soft, aggregation: {slots: %d, elements: %d, timeout: 5s}}, "+
		"links: {default: {rate: 1gbit, mtu: 1500}}}\nnodes: {default: {ranks: 1}}\n", slots, elements))
	job, err := p.AggregationFor(p.Ranks, "")
	if err != nil {
		t.Fatal(err)
	}
	const repeatAfter = 100 * time.Millisecond
	read := make(chan bool)
	var before aggregation.Counters // its pause
	var clients [2]*aggregation.Client
	clients = dialJob(t, p, job, spaces, func(worker int, c *aggregation.Config) {
		if worker == 0 {
			c.MaxRTO, c.Landed = repeatAfter, func(chunk int) {
				if chunk == 0 {
					before = clients[0].Counters()
					<-read
				}
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Bound)
	defer cancel()
	ended := make(chan error, 2)
	sum := func(worker int) { ended <- clients[worker].Int32(ctx, make([]int32, slots*elements)) }
	go sum(0)
	hosttest.Until(t, "the updates of worker 0", func() bool {
		return nicState(t, f, "h0").Bypass.Sent >= slots
	})
	go sum(1)
	hosttest.Until(t, "the results of all slots", func() bool {
		s := nicState(t, f, "h0").Bypass
		return s.Received+s.Overrun >= slots
	})
	time.Sleep(2 * repeatAfter)
	close(read)
	if err := errors.Join(<-ended, <-ended); err != nil {
		t.Fatal(err)
	}
	if after := clients[0].Counters(); after.Repeated != before.Repeated {
		t.Errorf("it repeated %d updates after its pause, want none", after.Repeated-before.Repeated)
	}
	if s := nicState(t, f, "h0").Bypass; s.Overrun > 0 {
		t.Errorf("%+v, want room for all results", s)
	}
}

// Slots whose results take too much memory are refused with the numbers.
func TestAggregationRefusesSlots(t *testing.T) {
	_, p, spaces := twoHosts(t, "{rate: 1gbit, mtu: 9000}")
	addr := netip.MustParseAddr(address(p, "h0"))
	err := spaces["h0"].Do(func() error {
		client, err := aggregation.Dial(netip.AddrPortFrom(addr, 18600), addr,
			aggregation.Config{FanIn: 2, Slots: 1 << 16, Elements: 2000}, aggregation.Options{Bypass: true})
		if err == nil {
			return client.Close()
		}
		return err
	})
	const want = "with 65536 slots of 8036 bytes: open queues of NIC eth0: NIC queues of 1024 and 131072 " +
		"frames of 8078 bytes take 1075793920 bytes"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
