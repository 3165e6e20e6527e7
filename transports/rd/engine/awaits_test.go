package engine

import (
	"testing"
	"time"

	"railbed/internal/wire"
)

// An engine awaits as many packets as until its next acknowledgement, or until the first of its messages
// completes. Without a message it awaits one.
func TestAwaits(t *testing.T) {
	x := newTold(t)
	want := func(packets int, when string) {
		t.Helper()
		if got := x.b.Awaits(); got != packets {
			t.Errorf("%s: it awaits %d packets, want %d", when, got, packets)
		}
	}
	give := func(n uint32, total int) {
		b := x.piece(n, func(_ *wire.RDBase, f *wire.RDDataFields) { f.Total = uint32(total) })
		x.receiver(b, 7, false)
	}
	want(1, "without a message")
	const long = 512 * 20
	for n := range uint32(18) {
		give(n, long)
		switch sent := len(x.says()); {
		case n < 16 && sent > 0 != (n%8 == 7):
			t.Fatalf("after packet %d it sends %d packets", n, sent)
		case n < 12:
			want(8-int(n+1)%8, "in a long message")
		default:
			want(min(8-int(n+1)%8, 19-int(n)), "near its end")
		}
	}
	give(18, long)
	want(1, "before the last packet")
	give(19, long)
	want(1, "after the message")
}

// The NIC's stamp counts as a packet's arrival: the acknowledgement's delay contains the time for which
// the packet waited in the NIC's queue.
func TestStampedArrival(t *testing.T) {
	x := newTold(t)
	const waited = 300 * time.Microsecond
	stamp := x.now
	x.now = x.now.Add(waited)
	x.b.Receive(x.now, Arrival{Data: x.piece(0, func(base *wire.RDBase, _ *wire.RDDataFields) {
		base.Flags = wire.RDAckRequest
	}), Path: 7, From: x.a.addr, At: stamp})
	all := x.says()
	if len(all) != 1 || all[0].Type() != wire.RDAck {
		t.Fatalf("it sends %v, want an acknowledgement", kinds(all))
	}
	f := all[0].Ack()
	if got := time.Duration(f.Delay); got != waited {
		t.Errorf("a delay of %v, want %v", got, waited)
	}
	stamp = x.now.Add(-waited)
	x.b.Receive(x.now, Arrival{Data: x.piece(1, nil), Path: 7, From: x.a.addr, At: stamp})
	if all := x.says(); len(all) != 0 {
		t.Fatalf("it sends %v at once", kinds(all))
	}
	if got := x.b.Deadline(); got != stamp.Add(AckDelay) {
		t.Errorf("it acknowledges at %v, want %v after the stamp %v", got, AckDelay, stamp)
	}
}
