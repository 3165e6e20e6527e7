package testbed_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"railbed/internal/clock"
	"railbed/internal/element"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/transports/aggregation"
)

// sumPart is a part of this test binary that runs in nodes: a worker that sums
// tensors up at the switch and checks every element.
const sumPart = "sum"

// sumOrder is the request to a worker.
type sumOrder struct {
	Config aggregation.Config
	Local  netip.AddrPort
	Job    netip.Addr
	Length int
	// Dilation is the testbed's.
	Dilation uint64
}

func sum(args []string) int {
	if err := sumUp(args[0]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// contribution returns a worker's value at an index. The sum of all 4 workers is below 2^24, so
// that sums of floats are exact.
func contribution(worker, tensor, i int) int32 {
	return int32((worker+1)*(i%9973) + 131*tensor - 50_000*(i%2))
}

func sumUp(text string) error {
	var o sumOrder
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	client, err := aggregation.Dial(o.Local, o.Job, o.Config,
		aggregation.Options{Clock: clock.New(o.Dilation)})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ints, floats := make([]int32, o.Length), make([]float32, o.Length)
	if err := combine(ctx, client, &o); err != nil {
		return err
	}
	for _, tensor := range []int{0, 2} {
		for i := range ints {
			ints[i] = contribution(o.Config.Worker, tensor, i)
			floats[i] = float32(ints[i])
		}
		switch tensor {
		case 0:
			err = client.Int32(ctx, ints)
		case 2:
			err = client.Fixed(ctx, floats)
		}
		if err != nil {
			return fmt.Errorf("tensor %d: %w, %+v", tensor, err, client.Counters())
		}
		for i := range ints {
			want := int32(0)
			for w := range o.Config.FanIn {
				want += contribution(w, tensor, i)
			}
			if got := float32(ints[i]); tensor == 0 && ints[i] != want ||
				tensor > 0 && floats[i] != float32(want) {
				return fmt.Errorf("tensor %d, element %d: %v or %v, want %d", tensor, i, got, floats[i], want)
			}
		}
	}
	return json.NewEncoder(os.Stdout).Encode(client.Counters())
}

// combine performs an operation on integers of any bits. The expected result is computed from the
// ranks' values: the maximum, or sums that wrap.
func combine(ctx context.Context, client *aggregation.Client, o *sumOrder) error {
	op := []element.Op{element.Max, element.Sum}[o.Config.Epoch%2]
	var memory, want []byte
	for w := range o.Config.FanIn {
		random := rand.New(rand.NewPCG(uint64(w), uint64(o.Config.Epoch)))
		own := make([]byte, 0, 4*o.Length)
		for range o.Length {
			own = binary.NativeEndian.AppendUint32(own, random.Uint32())
		}
		if w == o.Config.Worker {
			memory = bytes.Clone(own)
		}
		if w == 0 {
			want = own
		} else {
			element.Combiner(element.Int32, op, element.Terms{})(want, want, own)
		}
	}
	if err := client.Combine(ctx, element.Int32, op, memory); err != nil {
		return fmt.Errorf("%s: %w, %+v", op, err, client.Counters())
	}
	if !bytes.Equal(memory, want) {
		return fmt.Errorf("%s of %d integers is not what ranks make of them", op, o.Length)
	}
	return nil
}

// TestAggregation: four workers in nodes sum up over real sockets and a running
// soft switch, on links that lose 1 %, with another epoch for the second round.
func TestAggregation(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const length = 100_000
	tb := upPlan(t, `
name: go-aggregation
dilation: 3
fabric:
  topology: single-switch
  params: {hosts: 4}
  switch: {kind: soft, aggregation: {slots: 32, elements: 256, timeout: 20s}}
  links: {default: {rate: 1gbit, delay: 20us, loss: 1%}}
`)
	for epoch := range uint16(2) {
		counters, err := sumAll(t, tb, epoch, length, epoch == 1)
		if err != nil {
			t.Fatal(err)
		}
		state, err := tb.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s := state.Soft.Aggregation[0]
		t.Logf("epoch %d: %+v; workers %+v", epoch, s, counters)
		// Two tensors of 391 chunks, and a third that also asks 32 slots for their scales.
		sums := uint64(epoch+1) * (3*391 + 32)
		if s.Epoch != epoch || s.Workers != 4 || s.Results != sums || s.Updates != 4*sums || s.Waiting != 0 ||
			s.Over || len(s.Rejected) != 0 {
			t.Errorf("%+v, want %d sums in epoch %d and nothing rejected", s, sums, epoch)
		}
		if s.Repeats == 0 || s.Again == 0 {
			t.Errorf("%+v: nothing was lost", s)
		}
	}
	// A worker of an earlier epoch receives an error that says so, and ends.
	if _, err := sumOne(t, tb, 2, 0, length, false); err == nil ||
		!strings.Contains(err.Error(), "the switch rejects updates: epoch-old, it is at epoch 1") {
		t.Error(err)
	}
}

// sumAll has all workers of a testbed's one job sum up at once, over IPv6 or IPv4.
func sumAll(t *testing.T, tb *testbed.Testbed, epoch uint16, length int, v6 bool) ([]aggregation.Counters,
	error) {
	t.Helper()
	var all errgroup.Group
	counters := make([]aggregation.Counters, len(tb.Plan().Switches[0].Soft.Aggregation.Jobs[0].Workers))
	for w := range counters {
		all.Go(func() (err error) {
			counters[w], err = sumOne(t, tb, w, epoch, length, v6)
			return err
		})
	}
	return counters, all.Wait()
}

// sumOne has one worker sum up.
func sumOne(t *testing.T, tb *testbed.Testbed, w int, epoch uint16, length int,
	v6 bool) (c aggregation.Counters, err error) {
	job := &tb.Plan().Switches[0].Soft.Aggregation.Jobs[0]
	rank := &job.Workers[w]
	order := sumOrder{
		Config: aggregation.Of(job, w, epoch),
		Local:  netip.AddrPortFrom(rank.Addr4, uint16(61_600+w)),
		Job:    job.Of(w).Addr4,
		Length: length, Dilation: tb.Plan().Dilation,
	}
	if v6 {
		order.Local, order.Job = netip.AddrPortFrom(rank.Addr6, uint16(61_600+w)), job.Of(w).Addr6
	}
	text, err := json.Marshal(order)
	if err != nil {
		return c, err
	}
	cmd := tb.Node(rank.Node).Part(t.Context(), sumPart, string(text))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return c, fmt.Errorf("worker %d: %w: %s", w, err, stderr.Bytes())
	}
	return c, json.Unmarshal(stdout.Bytes(), &c)
}
