package queue

import (
	"math/rand/v2"
	"testing"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/plan/spec"
)

// backlogged keeps some queues of a port full of packets of random lengths.
type backlogged struct {
	port   *Port
	random *rand.Rand
	sent   [Priorities]int64
	// lengths are the shortest and the longest of each queue.
	lengths [Priorities][2]int
}

func (b *backlogged) fill(q int) {
	for b.port.Depth(uint8(q)) < 1<<17 {
		low, high := b.lengths[q][0], b.lengths[q][1]
		b.port.Enqueue(0, &packet.Packet{Data: make([]byte, low+b.random.IntN(high-low+1)),
			Priority: uint8(q), Ingress: -1})
	}
}

func (b *backlogged) send(t *testing.T, now clock.Time) int {
	one := b.port.Dequeue(now)
	if one == nil {
		t.Fatal("packets wait and none is sent")
	}
	b.sent[one.Priority] += int64(len(one.Data))
	return int(one.Priority)
}

func dwrr(t *testing.T, strict []int, weights [spec.Priorities]int) *backlogged {
	sw := softSwitch(1<<30, 1)
	sw.Soft.Scheduler.Strict, sw.Soft.Scheduler.Weights = strict, weights
	_, ports := memory(t, sw, nil)
	return &backlogged{port: ports[0], random: rand.New(rand.NewPCG(3, 4))}
}

// Take any two moments between which two queues wait all the time. Divide the bytes that each queue
// sent by its weight. The two quotients differ at most by a quantum and a longest packet of each
// queue (Shreedhar and Varghese, SIGCOMM 1995, lemma 2 and theorem 3).
func TestDWRRSharesByWeight(t *testing.T) {
	weights := [spec.Priorities]int{1, 2, 5, 0, 3}
	b := dwrr(t, nil, weights)
	busy := []int{0, 1, 2, 4} // 3, 5, 6, 7 are idle and take nothing
	b.lengths = [Priorities][2]int{{64, 64}, {1518, 1518}, {64, 1518}, {}, {700, 900}}
	type moment = [Priorities]int64
	var history []moment
	for range 30_000 {
		for _, q := range busy {
			b.fill(q)
		}
		b.send(t, 0)
		history = append(history, b.sent)
	}
	for from := 0; from < len(history); from += 997 {
		for to := from; to < len(history); to += 101 {
			for _, i := range busy {
				for _, j := range busy {
					wi, wj := float64(weights[i]), float64(weights[j])
					si, sj := float64(history[to][i]-history[from][i])/wi,
						float64(history[to][j]-history[from][j])/wj
					if bound := longest + longest/wi + longest/wj; si-sj > bound {
						t.Fatalf("between packets %d and %d queues %d and %d sent %.0f and %.0f bytes a "+
							"weight, %.0f apart are allowed", from, to, i, j, si, sj, bound)
					}
				}
			}
		}
	}
}

// Max-min fairness with weights. A queue that needs less than its share gets all that it needs, and
// the others divide the rest by weight. Queue 2 of weight 5 offers a tenth of the line, so queues 0
// and 1 of weights 1 and 2 have three and six tenths. Source: Bertsekas and Gallager, Data
// Networks, section 6.5.2.
func TestDWRRIsMaxMinFair(t *testing.T) {
	b := dwrr(t, nil, [spec.Priorities]int{1, 2, 5})
	b.lengths = [Priorities][2]int{{64, 1518}, {64, 1518}, {64, 1518}}
	total, offered := int64(0), int64(0)
	for total < 50_000_000 {
		b.fill(0)
		b.fill(1)
		for offered < total/10 {
			length := 64 + b.random.IntN(1455)
			b.port.Enqueue(0, &packet.Packet{Data: make([]byte, length), Priority: 2, Ingress: -1})
			offered += int64(length)
		}
		b.send(t, 0)
		total = b.sent[0] + b.sent[1] + b.sent[2]
	}
	for q, want := range []float64{0.3, 0.6, 0.1} {
		if got := float64(b.sent[q]) / float64(total); got < want*0.999 || got > want*1.001 {
			t.Errorf("queue %d sent %.4f of all, want %.1f", q, got, want)
		}
	}
}

// Strict queues go before all others, in the order of the list.
func TestStrictQueuesGoFirst(t *testing.T) {
	b := dwrr(t, []int{2, 7}, [spec.Priorities]int{1, 1, 0, 1, 1, 1, 1, 0})
	for _, q := range []uint8{0, 7, 6, 2, 7, 2} {
		b.port.Enqueue(0, frameOf(500, q))
	}
	var order []int
	for range 6 {
		order = append(order, b.send(t, 0))
	}
	if want := [6]int{2, 2, 7, 7, 0, 6}; [6]int(order) != want {
		t.Errorf("sent %v, want %v", order, want)
	}
}

// A queue that was paused has no more than its share afterwards, and the others
// all of the line meanwhile.
func TestPausedQueueCatchesUpOnNothing(t *testing.T) {
	b := dwrr(t, nil, [spec.Priorities]int{1, 1})
	b.lengths = [Priorities][2]int{{64, 1518}, {64, 1518}}
	for i := range 20_000 {
		b.fill(0)
		b.fill(1)
		b.port.Pause(0, 1, i%100 < 50)
		if q := b.send(t, 0); q == 1 && i%100 < 50 {
			t.Fatal("a paused queue sends")
		}
	}
	// Half of the packets go half and half, and the other half all to queue 0.
	if got := float64(b.sent[1]) / float64(b.sent[0]+b.sent[1]); got < 0.24 || got > 0.26 {
		t.Errorf("the paused queue sent %.3f of all, want 1/4", got)
	}
	b.port.Pause(0, 0, true)
	b.port.Pause(0, 1, true)
	if one, next := b.port.Dequeue(5), b.port.Next(5); one != nil || next != clock.Never {
		t.Errorf("all is paused, and %v is sent, the next one at %d", one, next)
	}
}

// A frame of many quanta is sent, too, after as many turns.
func TestLongFrameIsSentAtLast(t *testing.T) {
	b := dwrr(t, nil, [spec.Priorities]int{1, 1})
	b.lengths = [Priorities][2]int{{10 * longest, 10 * longest}, {longest, longest}}
	for range 110 {
		b.fill(0)
		b.fill(1)
		b.send(t, 0)
	}
	if b.sent[0] != 100*longest || b.sent[1] != 100*longest {
		t.Errorf("sent %v bytes, want as much of each", b.sent[:2])
	}
}

// A queue that has sent all its packets loses the rest of its turn.
func TestEmptyQueueSavesNothing(t *testing.T) {
	b := dwrr(t, nil, [spec.Priorities]int{1, 1})
	put := func(q uint8, length int) { b.port.Enqueue(0, frameOf(length, q)) }
	put(0, 64)
	b.send(t, 0) // 64 of 1,518 bytes
	for range 4 {
		put(0, 1400)
		put(1, 1400)
	}
	for i := range 8 {
		// One of each in turn: the 118 bytes that are left over are never 1,400.
		if got, want := b.send(t, 0), 1-i%2; got != want {
			t.Fatalf("packet %d is of queue %d, want %d", i, got, want)
		}
	}
}
