package softswitch

import (
	"testing"
	"time"

	"railbed/fabric/softswitch/queue"
	"railbed/internal/clock"
)

// ledger computes the bytes in each queue of each port, from the packets that enter and leave. It
// compares them with the depths in the observations of packets that enter.
type ledger struct {
	t       *testing.T
	bytes   map[int]*[queue.Priorities]int64
	trimmed int
	express int // trimmed ones that found heads before them
}

// Observe implements Observer.
func (l *ledger) Observe(o *Observation) {
	if l.bytes[o.Port] == nil {
		l.bytes[o.Port] = new([queue.Priorities]int64)
	}
	waiting, length := &l.bytes[o.Port][o.Queue], int64(len(o.Packet.Data))
	switch o.Kind {
	case Queued:
		if o.Depth != *waiting {
			l.t.Errorf("port %d at %v: a packet (verdict %d) entered queue %d and found %d bytes, said to "+
				"be %d", o.Port, o.Time, o.Verdict, o.Queue, *waiting, o.Depth)
		}
		if o.Verdict == Trimmed {
			l.trimmed++
			if o.Depth > 0 {
				l.express++
			}
		}
		*waiting += length
	case Sent:
		*waiting -= length
	}
}

// TestDepthOfTrimmed sends more to one node than its link carries. A head that
// enters the express queue finds what waits there, not in the queue that had no
// room for the packet.
func TestDepthOfTrimmed(t *testing.T) {
	seen := &ledger{t: t, bytes: map[int]*[queue.Priorities]int64{}}
	r := newRig(t, single(5, "  switch: {kind: soft, buffer: 64KB, trim: {size: 128B}, ecn: {kmin: 8KB, "+
		"kmax: 16KB}}\n  links: {default: {rate: 1gbit}}\n"), seen)
	for i := range r.engine.PortCount() {
		r.engine.Observe(i, true)
	}
	for i := range 100 {
		for from := range 4 {
			r.send(clock.Time(i*12_200), flow{from: from, to: 4, port: uint16(from), dscp: 35}, 1400)
		}
	}
	r.drain(time.Second)
	r.balance()
	if seen.trimmed == 0 || seen.express == 0 {
		t.Errorf("%d packets were trimmed, %d of them found others in the express queue", seen.trimmed,
			seen.express)
	}
}
