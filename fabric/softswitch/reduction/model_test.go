package reduction

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports/aggregation"
)

var runs = flag.Int("runs", 15_000, "random runs of the model")

// delivery is a message on its way over the line of a station to the switch above it, or
// down to it.
type delivery struct {
	station int
	up      bool
	data    []byte
}

// station is a worker, or a switch, with the line to the switch above it.
type station struct {
	parent int // index of a table; -1 of the root
	table  int // of a switch; -1 of a worker
	worker int
}

// model is a tree of switches and its workers over lines that lose, duplicate and reorder messages,
// in virtual time. Workers are stations from 0 on, switches follow.
type model struct {
	t         testing.TB
	random    *rand.Rand
	tables    []*Table // the root first
	stations  []station
	now       clock.Time
	wires     clock.Queue[delivery]
	workers   []*aggregation.Worker
	loss      float64
	twice     float64
	spread    int64 // of delays, ns
	sent      int
	most      int // messages until the run counts as stuck
	forgeries bool
	drop      func(delivery) bool // besides
	// ups are partial sums that went up, by station, epoch, slot and round.
	ups map[[4]int]int
}

func addressOf(station int) [16]byte {
	return [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: byte(1 + station)}
}

func jobOf(number uint16, workers, slots, elements int) Job {
	j := Job{Number: number, KeySeed: 0x1234567890abcdef, SwitchSeed: 0xfedcba, Slots: slots,
		Elements: elements, FanIn: workers, Timeout: time.Hour}
	for w := range workers {
		j.Children = append(j.Children, Child{Station: stationOf(w), Workers: 1 << w})
	}
	return j
}

// stationOf is where a station's messages come from: its port has its number.
func stationOf(n int) Station { return Station{Addrs: [][16]byte{addressOf(n)}, Ports: []int{n}} }

// above is the station of a switch to those below it, whose ports to it have another
// number than all others.
const above = 250

// newModel makes a tree of some switches above the workers, each below a switch that was drawn;
// every switch has a child.
func newModel(t testing.TB, random *rand.Rand, workers, switches, slots, elements int) *model {
	m := &model{t: t, random: random, most: 2_000_000, ups: map[[4]int]int{}}
	jobs := make([]Job, switches)
	for i := range jobs {
		jobs[i] = jobOf(7, workers, slots, elements)
		jobs[i].Children = nil
	}
	for w := range workers { // workers with the least numbers have one for sure
		at := random.IntN(switches)
		if w < switches {
			at = switches - 1 - w
		}
		m.stations = append(m.stations, station{parent: at, table: -1, worker: w})
		jobs[at].Children = append(jobs[at].Children, Child{Station: stationOf(w), Workers: 1 << w})
	}
	for i := switches - 1; i >= 0; i-- {
		one := station{parent: -1, table: i}
		if i > 0 {
			one.parent = random.IntN(i)
			var below uint64
			for _, c := range jobs[i].Children {
				below |= c.Workers
			}
			jobs[one.parent].Children = append(jobs[one.parent].Children,
				Child{Station: stationOf(len(m.stations)), Workers: below, Switch: true})
			jobs[i].Parent = &Parent{Station: stationOf(above), Timeout: time.Hour}
		}
		m.stations = append(m.stations, one)
	}
	for _, j := range jobs {
		table, err := New([]Job{j})
		if err != nil {
			t.Fatal(err)
		}
		m.tables = append(m.tables, table)
	}
	return m
}

// begin makes the workers of an epoch.
func (m *model) begin(epoch uint16) {
	j := m.tables[0].jobs[0].Job
	m.workers = nil
	for w := range j.FanIn {
		one, err := aggregation.New(aggregation.Config{
			Job:        j.Number,
			Epoch:      epoch,
			KeySeed:    j.KeySeed,
			Worker:     w,
			FanIn:      j.FanIn,
			Slots:      j.Slots,
			Elements:   j.Elements,
			InitialRTO: 3 * time.Millisecond, MaxRTO: 20 * time.Millisecond, Patience: time.Hour,
		})
		if err != nil {
			m.t.Fatal(err)
		}
		m.workers = append(m.workers, one)
	}
}

// carry puts a message on the wire, or does not.
func (m *model) carry(station int, up bool, data []byte) {
	m.sent++
	for range 2 {
		if m.drop != nil && m.drop(delivery{station, up, data}) {
			return
		}
		if m.random.Float64() >= m.loss {
			at := m.now + 1 + clock.Time(m.random.Int64N(m.spread))
			m.wires.Push(at, delivery{station, up, append([]byte(nil), data...)})
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
					m.forge(m.stations[w].parent, w, message)
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
	s := &m.stations[d.station]
	switch {
	case d.up:
		m.take(s.parent, &Message{Data: d.data, From: addressOf(d.station), Port: 1000, Ingress: d.station})
	case s.table >= 0:
		m.take(s.table, &Message{Data: d.data, From: addressOf(above), Port: wire.PortAggregation,
			Ingress: above})
		if m.forgeries {
			m.forge(s.table, above, d.data)
		}
	default:
		m.workers[s.worker].Handle(m.now, d.data)
	}
}

// stationFor is the station that a table's child is.
func (m *model) stationFor(table, child int) int {
	return m.tables[table].jobs[0].Children[child].Ports[0]
}

// take handles a message as a switch's engine does.
func (m *model) take(at int, message *Message) Outcome {
	t := m.tables[at]
	o := t.Take(m.now, message)
	switch o.Action {
	case SendAll, SendOne:
		result := make([]byte, t.ResultLen(&o))
		for c := range t.Children(0) {
			if o.Action == SendAll || c == o.Child {
				t.Result(&o, c, result)
				if !wire.Aggregation(result).Valid() {
					m.t.Fatalf("sent % x", result)
				}
				m.carry(m.stationFor(at, c), false, result)
			}
		}
	case SendUp:
		m.sendUp(at, &o)
	case SendBack:
		reject := make([]byte, wire.AggregationLen)
		wire.Aggregation(reject).Encode(&o.Reject)
		m.carry(m.stationFor(at, o.Child), false, reject)
	case Drop, Keep:
	}
	return o
}

// sendUp sends a partial sum, the first of its round once.
func (m *model) sendUp(at int, o *Outcome) {
	partial := wire.Aggregation(make([]byte, m.tables[at].ResultLen(o)))
	m.tables[at].Partial(o, partial)
	if !partial.Valid() {
		m.t.Fatalf("sent up % x", partial)
	}
	key := [4]int{at, int(partial.Epoch()), int(partial.Slot()), int(partial.Round())}
	if again := partial.Flags()&wire.AggregationRepeat != 0; again != (m.ups[key] > 0) {
		m.t.Fatalf("%d partial sums of %v, and one more, again %t", m.ups[key], key, again)
	}
	m.ups[key]++
	for n, s := range m.stations {
		if s.table == at {
			m.carry(n, true, partial)
			if m.forgeries {
				m.forge(s.parent, n, partial)
			}
		}
	}
}

// forge sends a switch what others could make of a message that came from a station.
func (m *model) forge(at, from int, message []byte) {
	t := m.tables[at]
	for range 3 {
		forged := append([]byte(nil), message...)
		one := &Message{Data: forged, From: addressOf(from), Ingress: from}
		switch m.random.IntN(4) {
		case 0: // an unknown sender with a valid message
			one.From = addressOf(200)
		case 1: // a spoofer does not have the key
			forged[12+m.random.IntN(4)] ^= 1 << m.random.IntN(8)
		case 2: // by another port
			one.Ingress = 240
		case 3: // another station that takes part
			for one.From == addressOf(from) {
				one.From = addressOf(m.random.IntN(len(m.stations)))
				one.Ingress = int(one.From[15]) - 1
			}
		}
		before := *t.Counters(0)
		o := t.Take(m.now, one)
		if after := t.Counters(0); o.Action != Drop && o.Action != SendBack ||
			after.Updates != before.Updates || after.Results != before.Results {
			m.t.Fatalf("a forged message counted: %+v, % x", o, forged)
		}
	}
}

// contribution returns a worker's element at a position of a tensor. It is a different number for
// each, so that a missing, doubled or misplaced element changes a sum.
func contribution(worker, tensor, i int) int32 {
	return int32(1)<<(5*worker)*int32(1+(i*7+tensor*3)%29) + int32(i)
}

// TestModel: whatever a network does to messages, every sum contains every worker once. This holds
// for tensors of any length, slot after slot, epoch after epoch, with one switch and with trees of
// several.
func TestModel(t *testing.T) {
	count := *runs
	if testing.Short() {
		count /= 20
	}
	var total Counters
	for seed := range count {
		random := rand.New(rand.NewPCG(uint64(seed), 31))
		workers, switches, slots, elements := 1+random.IntN(5), 1, 1+random.IntN(4), 1+random.IntN(3)
		if seed%2 > 0 {
			switches = 1 + random.IntN(workers)
		}
		m := newModel(t, random, workers, switches, slots, elements)
		m.loss, m.twice, m.spread = random.Float64()*0.4, random.Float64()*0.4,
			1+random.Int64N(int64(10*time.Millisecond))
		m.forgeries = seed%4 < 2
		for epoch := range uint16(1 + random.IntN(2)) {
			m.begin(epoch * 3)
			for tensor := range 1 + random.IntN(3) {
				length, kind, err := random.IntN(20), random.IntN(4), error(nil)
				if kind < 2 {
					err = m.sums(tensor, length, kind)
				} else {
					err = m.combine(length)
				}
				if err != nil {
					t.Fatalf("go test -run TestModel: seed %d, %d workers, %d switches, %d slots of %d: %v",
						seed, workers, switches, slots, elements, err)
				}
			}
		}
		for _, table := range m.tables {
			c := table.Counters(0)
			total.Updates += c.Updates
			total.Repeats += c.Repeats
			total.Partials += c.Partials
			total.Reasked += c.Reasked
			total.Again += c.Again
			total.Dropped[Late] += c.Dropped[Late]
			rejected := c.Rejected
			if rejected[wire.AggregationMismatch]+rejected[wire.AggregationSlotUnknown]+
				rejected[wire.AggregationTimeout] > 0 {
				t.Fatalf("seed %d: rejected %v", seed, rejected)
			}
		}
	}
	if total.Updates == 0 || total.Repeats == 0 || total.Again == 0 || total.Partials == 0 ||
		total.Reasked == 0 || total.Dropped[Late] == 0 {
		t.Errorf("%+v: not everything happened", total)
	}
	t.Logf("%d runs: %d updates added, %d repeated, %d partial sums, %d sent up again, %d results sent "+
		"again, %d late copies",
		count, total.Updates, total.Repeats, total.Partials, total.Reasked, total.Again, total.Dropped[Late])
}

// sums sums up one tensor in fixed point: of integers, or of floats.
func (m *model) sums(tensor, length, kind int) error {
	ints := make([][]int32, len(m.workers))
	floats := make([][]float32, len(m.workers))
	want := make([]int32, length)
	for w, one := range m.workers {
		ints[w], floats[w] = make([]int32, length), make([]float32, length)
		for i := range length {
			v := contribution(w, tensor, i) % (1 << 24 / int32(len(m.workers)))
			ints[w][i], floats[w][i] = v, float32(v)
			want[i] += v
		}
		var err error
		switch kind {
		case 0:
			one.Int32(m.now, ints[w])
		case 1:
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
			if kind == 1 {
				got = int32(floats[w][i]) // below 2^24, floats are exact
			}
			if got != want[i] {
				return fmt.Errorf("kind %d, worker %d, element %d of %d: %d, want %d", kind, w, i, length,
					got, want[i])
			}
		}
	}
	return nil
}
