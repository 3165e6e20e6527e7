package aggregate

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"railbed/fabric/clock"
	"railbed/transports/aggregation"
	"railbed/transports/wire"
)

var runs = flag.Int("runs", 20_000, "random runs of the model")

// delivery is a message on its way: to the switch, or to a worker.
type delivery struct {
	worker int // to or from
	up     bool
	data   []byte
}

// model is a switch and its workers over a network that loses, doubles and
// reorders whatever it carries, in virtual time.
type model struct {
	t         testing.TB
	random    *rand.Rand
	table     *Table
	now       clock.Time
	wires     clock.Queue[delivery]
	workers   []*aggregation.Worker
	loss      float64
	twice     float64
	spread    int64 // of delays, ns
	sent      int
	most      int // messages until the run counts as stuck
	forgeries bool
}

func addressOf(worker int) [16]byte {
	return [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: byte(1 + worker)}
}

func jobOf(number uint16, workers, slots, elements int) Job {
	j := Job{Number: number, KeySeed: 0x1234567890abcdef, Slots: slots, Elements: elements, Timeout: time.Hour}
	for w := range workers {
		j.Workers = append(j.Workers, Worker{Addrs: [][16]byte{addressOf(w)}, Ports: []int{w}})
	}
	return j
}

func newModel(t testing.TB, random *rand.Rand, workers, slots, elements int) *model {
	table, err := New([]Job{jobOf(7, workers, slots, elements)})
	if err != nil {
		t.Fatal(err)
	}
	return &model{t: t, random: random, table: table, most: 2_000_000}
}

// begin makes the workers of an epoch.
func (m *model) begin(epoch uint16) {
	j := m.table.jobs[0].Job
	m.workers = nil
	for w := range j.Workers {
		one, err := aggregation.New(aggregation.Config{
			Job: j.Number, Epoch: epoch, KeySeed: j.KeySeed, Worker: w, FanIn: len(j.Workers), Slots: j.Slots, Elements: j.Elements,
			First: 3 * time.Millisecond, Longest: 20 * time.Millisecond, Patience: time.Hour,
		})
		if err != nil {
			m.t.Fatal(err)
		}
		m.workers = append(m.workers, one)
	}
}

// carry puts a message on the wire, or does not.
func (m *model) carry(worker int, up bool, data []byte) {
	m.sent++
	for range 2 {
		if m.random.Float64() >= m.loss {
			at := m.now + 1 + clock.Time(m.random.Int64N(m.spread))
			m.wires.Push(at, delivery{worker, up, append([]byte(nil), data...)})
		}
		if m.random.Float64() >= m.twice {
			break
		}
	}
}

// run goes on until all workers are done, and then until nothing is on its way.
func (m *model) run() {
	for m.sent < m.most {
		next, done := clock.Never, true
		for w, one := range m.workers {
			for message := one.Poll(m.now); message != nil; message = one.Poll(m.now) {
				m.carry(w, true, message)
				if m.forgeries {
					m.forge(message)
				}
			}
			done = done && one.Done()
			next = min(next, one.Next())
		}
		next = min(next, m.wires.Next())
		if done || next == clock.Never {
			return
		}
		m.now = max(m.now, next)
		for m.wires.Next() <= m.now {
			_, d := m.wires.Pop()
			m.arrive(d)
		}
	}
	m.t.Fatalf("not done after %d messages", m.sent)
}

func (m *model) arrive(d delivery) {
	if !d.up {
		m.workers[d.worker].Handle(m.now, d.data)
		return
	}
	m.take(&Message{Data: d.data, From: addressOf(d.worker), Port: 1000, Ingress: d.worker})
}

// take does what the switch's engine does about a message.
func (m *model) take(message *Message) Outcome {
	o := m.table.Take(m.now, message)
	switch o.Action {
	case SendAll, SendOne:
		result := make([]byte, m.table.ResultLen(&o))
		for w := range m.workers {
			if o.Action == SendAll || w == o.Worker {
				m.table.Result(&o, w, result)
				if !wire.Aggregation(result).Valid() {
					m.t.Fatalf("sent % x", result)
				}
				m.carry(w, false, result)
			}
		}
	case SendBack:
		reject := make([]byte, wire.AggregationLen)
		wire.Aggregation(reject).Encode(&o.Reject)
		m.carry(o.Worker, false, reject)
	case Drop, Keep:
	}
	return o
}

// forge sends what others could make of a message.
func (m *model) forge(message []byte) {
	for range 3 {
		forged := append([]byte(nil), message...)
		one := &Message{Data: forged, From: addressOf(m.random.IntN(len(m.workers) + 1)), Ingress: m.random.IntN(len(m.workers) + 1)}
		switch m.random.IntN(3) {
		case 0: // a stranger knows everything
			one.From = addressOf(200)
		case 1: // a spoofer does not know the key
			forged[12+m.random.IntN(4)] ^= 1 << m.random.IntN(8)
		case 2: // by another port
			one.Ingress = len(m.workers)
		}
		before := m.table.counters
		o := m.table.Take(m.now, one)
		if after := m.table.counters; o.Action == Keep || o.Action == SendAll || o.Action == SendOne || after.Updates != before.Updates {
			m.t.Fatalf("a forged message counted: %+v, % x", o, forged)
		}
	}
}

// element is what a worker sends at a place of a tensor: another number for each,
// so that a missing, doubled or misplaced one changes a sum.
func element(worker, tensor, i int) int32 {
	return int32(1)<<(5*worker)*int32(1+(i*7+tensor*3)%29) + int32(i)
}

// TestModel: whatever a network does to messages, every sum is that of every
// worker once, over tensors of any length, slot after slot, epoch after epoch.
func TestModel(t *testing.T) {
	count := *runs
	if testing.Short() {
		count /= 20
	}
	var total Counters
	for seed := range count {
		random := rand.New(rand.NewPCG(uint64(seed), 31))
		workers, slots, elements := 1+random.IntN(5), 1+random.IntN(4), 1+random.IntN(3)
		m := newModel(t, random, workers, slots, elements)
		m.loss, m.twice, m.spread = random.Float64()*0.4, random.Float64()*0.4, 1+random.Int64N(int64(10*time.Millisecond))
		m.forgeries = seed%4 == 0
		for epoch := range uint16(1 + random.IntN(2)) {
			m.begin(epoch * 3)
			for tensor := range 1 + random.IntN(3) {
				if err := m.sums(tensor, random.IntN(20), random.IntN(3)); err != nil {
					t.Fatalf("go test -run TestModel: seed %d, %d workers, %d slots of %d: %v", seed, workers, slots, elements, err)
				}
			}
		}
		c := m.table.Counters()
		total.Updates += c.Updates
		total.Repeats += c.Repeats
		total.Again += c.Again
		total.Dropped[Late] += c.Dropped[Late]
		if rejected := c.Rejected; rejected[wire.AggregationMismatch]+rejected[wire.AggregationSlotUnknown]+rejected[wire.AggregationTimeout] > 0 {
			t.Fatalf("seed %d: rejected %v", seed, rejected)
		}
	}
	if total.Updates == 0 || total.Repeats == 0 || total.Again == 0 || total.Dropped[Late] == 0 {
		t.Errorf("%+v: not everything happened", total)
	}
	t.Logf("%d runs: %d updates added, %d repeated, %d results sent again, %d late copies", count, total.Updates, total.Repeats, total.Again, total.Dropped[Late])
}

// sums sums up one tensor of a kind: integers, floats or fixed point.
func (m *model) sums(tensor, length, kind int) error {
	ints := make([][]int32, len(m.workers))
	floats := make([][]float32, len(m.workers))
	want := make([]int32, length)
	for w, one := range m.workers {
		ints[w], floats[w] = make([]int32, length), make([]float32, length)
		for i := range length {
			v := element(w, tensor, i) % (1 << 24 / int32(len(m.workers)))
			ints[w][i], floats[w][i] = v, float32(v)
			want[i] += v
		}
		var err error
		switch kind {
		case 0:
			one.Int32(m.now, ints[w])
		case 1:
			one.Float32(m.now, floats[w])
		case 2:
			err = one.Fixed(m.now, floats[w])
		}
		if err != nil {
			return err
		}
	}
	m.run()
	for w, one := range m.workers {
		if one.Err() != nil {
			return fmt.Errorf("worker %d: %w", w, one.Err())
		}
		for i := range want {
			got := ints[w][i]
			if kind > 0 {
				got = int32(floats[w][i]) // below 2^24, floats are exact
			}
			if got != want[i] {
				return fmt.Errorf("kind %d, worker %d, element %d of %d: %d, want %d", kind, w, i, length, got, want[i])
			}
		}
	}
	return nil
}
