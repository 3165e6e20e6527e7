package live_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/testkit/hosttest"
	"railbed/transports/aggregation"
)

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
	clients := make([]*aggregation.Client, 2)
	for i, r := range p.Ranks {
		if err := spaces[r.Node].Do(func() (err error) {
			clients[i], err = aggregation.Dial(netip.AddrPortFrom(r.Addr4, 18600), job.Of(i).Addr4,
				aggregation.Of(job, i, 1), aggregation.Options{Bypass: true})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := clients[i].Close(); err != nil {
				t.Error(err)
			}
		}()
	}
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
