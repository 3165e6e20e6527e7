package queue

import (
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

// loaded is a switch of 32 ports with everything on, and a port of it in whose
// queues some packets wait.
func loaded(tb testing.TB, ecn string) (*Port, []*packet.Packet) {
	sw := softSwitch(32<<20, 32)
	all := []int{0, 1, 2, 3, 4, 5, 6, 7}
	sw.Soft.ECN = &plan.ECN{
		Kind: ecn, KMin: 1000, KMax: 400_000, PMax: units.Ratio{Num: 1, Den: 5}, Priorities: all,
		Target:           units.Duration(200 * time.Microsecond),
		PersistentTarget: units.Duration(85 * time.Microsecond),
		Interval:         units.Duration(200 * time.Microsecond),
	}
	sw.Soft.Trim = &plan.Trim{Size: 128, DSCP: trimDSCP, Queue: 7, Priorities: []int{4}}
	sw.Soft.Scheduler.Strict, sw.Soft.Scheduler.Weights = []int{7}, [spec.Priorities]int{1, 2, 3, 4, 5, 6, 7}
	withPFC(sw, plan.PortPFC{XOff: 30_000, XOn: 20_000, Headroom: 20_000}, 3)
	_, ports := memory(tb, sw, silent{})
	p := ports[0]
	p.SetLink(0, plan.Direction{Rate: 10e9, Queue: 32 << 20})
	packets := make([]*packet.Packet, 64)
	for i := range packets {
		packets[i] = frameOf(1400, uint8(i%8))
		packets[i].Ingress, packets[i].Flow = int32(i%31+1), uint64(i)
	}
	for _, one := range packets[:32] {
		p.Enqueue(0, one)
	}
	return p, packets[32:]
}

type silent struct{}

func (silent) Pause(int, uint8, bool)  {}
func (silent) Stage(int, uint8, uint8) {}
func (silent) ReportAt(clock.Time)     {}

// pass is one packet in and one out, each of them new to ECN.
func pass(p *Port, one *packet.Packet, i int) *packet.Packet {
	now := clock.Time(i) * 300
	one.Ordinal = uint64(i)
	if one.Headers.ECN == wire.CE {
		wire.IPv4(one.Data[one.Headers.L3:]).RewriteECN(wire.ECT0)
		one.Headers.ECN = wire.ECT0
	}
	p.Enqueue(now, one)
	return p.Dequeue(now)
}

// No packet costs an allocation: marked, paced, paused, trimmed or dropped.
func TestNothingIsAllocatedForAPacket(t *testing.T) {
	for _, ecn := range []string{spec.RED, spec.ECNSharp} {
		p, spare := loaded(t, ecn)
		i, words := 0, 0
		p.memory.signals = counted{&words}
		p.Limit(0, 5, 1e9)
		flip := func() {
			for range 100 {
				i++
				p.Pause(0, 3, i%64 < 32)
				if out := pass(p, spare[i%len(spare)], i); out != nil {
					spare[i%len(spare)] = out
				} else {
					t.Fatal("nothing is sent")
				}
			}
		}
		if n := testing.AllocsPerRun(100, flip); n != 0 {
			t.Errorf("%s: %.1f allocations in 100 packets", ecn, n)
		}
	}
	// A full switch trims and drops.
	p, spare := loaded(t, spec.RED)
	p.Flush(func(*packet.Packet) {})
	p.memory.used = p.memory.shared - 200
	one, data := frameOf(1400, 4), make([]byte, 1400)
	copy(data, one.Data)
	again := *one
	trimmed, dropped := 0, 0
	if n := testing.AllocsPerRun(1000, func() {
		*one = again
		copy(one.Data, data)
		o := p.Enqueue(0, one)
		trimmed += count(one.Trimmed)
		dropped += count(p.Enqueue(0, spare[1]).Dropped)
		if !o.Dropped {
			p.Dequeue(0)
		}
	}); n != 0 || trimmed < 900 || dropped < 900 {
		t.Errorf("%.1f allocations for a trimmed and a dropped packet; %d trimmed, %d dropped", n, trimmed,
			dropped)
	}
}

type counted struct{ words *int }

func (c counted) Pause(int, uint8, bool)  { *c.words++ }
func (c counted) Stage(int, uint8, uint8) { *c.words++ }
func (c counted) ReportAt(clock.Time)     { *c.words++ }

// BenchmarkPass is Enqueue and Dequeue of a packet with everything on.
func BenchmarkPass(b *testing.B) {
	for _, ecn := range []string{spec.RED, spec.ECNSharp} {
		b.Run(ecn, func(b *testing.B) {
			p, spare := loaded(b, ecn)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				at := i % len(spare)
				spare[at] = pass(p, spare[at], i)
			}
		})
	}
	b.Run("nic", func(b *testing.B) {
		p, one := NewNIC(1<<20), frameOf(1400, 3)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			p.Enqueue(clock.Time(i), one)
			p.Dequeue(clock.Time(i))
		}
	})
}

// BenchmarkTrim is a packet that is trimmed, with its UDP checksum.
func BenchmarkTrim(b *testing.B) {
	p, _ := loaded(b, spec.RED)
	p.Flush(func(*packet.Packet) {})
	p.memory.used = p.memory.shared - 1000
	one, again := frameOf(1400, 4), frameOf(1400, 4)
	b.ReportAllocs()
	for b.Loop() {
		data := one.Data[:1400]
		*one = *again
		one.Data = data
		copy(data[:42], again.Data)
		p.Enqueue(0, one)
		if p.Dequeue(0) == nil || !one.Trimmed {
			b.Fatal("not trimmed")
		}
	}
}
