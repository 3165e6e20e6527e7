package roce

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/transports"
	"railbed/transports/roce/cm"
	"railbed/transports/roce/queuepair"
)

func openDevices(t *testing.T, addr string) (a, b *Device) {
	t.Helper()
	open := func() *Device {
		d, err := OpenDevice(DeviceConfig{Addr: netip.MustParseAddr(addr), MTU: 1500})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		return d
	}
	return open(), open()
}

// newPair is a queue pair of a device.
func newPair(t *testing.T, d *Device, config queuepair.Config) *QueuePair {
	t.Helper()
	q, err := d.NewQueuePair(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// next waits for a completion.
func next(t *testing.T, q *QueuePair) Completion {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var one [1]Completion
	if err := q.Completions().Wait(ctx); err != nil || q.Completions().Poll(one[:]) != 1 {
		t.Fatalf("no completion: %v", err)
	}
	return one[0]
}

// TestQueuePairs: every operation between two devices that told each other of their
// queue pairs by other means, over IPv4 and IPv6.
func TestQueuePairs(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	for _, addr := range []string{"127.0.0.1", "::1"} {
		t.Run(addr, func(t *testing.T) {
			a, b := openDevices(t, addr)
			from, to := newPair(t, a, queuepair.Config{SendPSN: 0xFFFFFE}), newPair(t, b, queuepair.Config{})
			got := make([]byte, 3000)
			if err := to.PostReceive(7, got[:1000], got[1000:]); err != nil { // before it is connected
				t.Fatal(err)
			}
			if err := to.Connect(from.Local()); err != nil {
				t.Fatal(err)
			}
			if err := from.Connect(to.Local()); err != nil {
				t.Fatal(err)
			}
			memory := make([]byte, 5000)
			region, err := b.Register(memory,
				queuepair.RemoteWrite|queuepair.RemoteRead|queuepair.RemoteAtomic)
			if err != nil {
				t.Fatal(err)
			}
			text, back := bytes.Repeat([]byte("0123456789abc"), 300)[:3000], make([]byte, 3000)
			if n, err := from.Post(
				queuepair.Request{ID: 1, Op: queuepair.SendImm, Imm: 99, Local: [][]byte{text}},
				queuepair.Request{ID: 2, Op: queuepair.Write, Address: region.Base + 1000, RKey: region.RKey,
					Local: [][]byte{text}},
				queuepair.Request{ID: 3, Op: queuepair.FetchAdd, Address: region.Base, RKey: region.RKey,
					Operand: 5},
				queuepair.Request{ID: 4, Op: queuepair.CompareSwap, Address: region.Base, RKey: region.RKey,
					Compare: 5, Operand: 77},
				queuepair.Request{ID: 5, Op: queuepair.Read, Address: region.Base + 1000, RKey: region.RKey,
					Local: [][]byte{back}},
			); n != 5 || err != nil {
				t.Fatal(n, err)
			}
			for id := uint64(1); id <= 5; id++ {
				c := next(t, from)
				if c.ID != id || c.Err != nil || c.QueuePair != from ||
					c.Op == queuepair.CompareSwap && c.Original != 5 {
					t.Errorf("%+v", c)
				}
			}
			if c := next(t, to); c.ID != 7 || c.Bytes != 3000 || c.Imm != 99 || c.Err != nil ||
				!bytes.Equal(got, text) {
				t.Errorf("%+v, %.20q", c, got)
			}
			if err := region.Await(t.Context(), func(memory []byte) bool {
				return memory[0] == 77 && bytes.Equal(memory[1000:4000], text)
			}); err != nil || !bytes.Equal(back, text) {
				t.Errorf("%v, %.20q", err, back)
			}
			// A region that is closed is none.
			region.Close()
			if _, err := from.Post(queuepair.Request{ID: 6, Op: queuepair.Write, Address: region.Base,
				RKey: region.RKey, Local: [][]byte{text}}); err != nil {
				t.Fatal(err)
			}
			if c := next(t, from); c.ID != 6 || !errors.Is(c.Err, queuepair.ErrAccess) {
				t.Errorf("%+v", c)
			}
			<-from.Ended()
			<-to.Ended()
			if _, err := from.Post(queuepair.Request{Op: queuepair.Send}); !errors.Is(err,
				queuepair.ErrAccess) || !errors.Is(to.Err(), queuepair.ErrAccess) {
				t.Errorf("%v, %v", err, to.Err())
			}
		})
	}
}

// TestDial: rdma_cm connects two queue pairs, with private data each way, refuses, and
// says when the other end is closed.
func TestDial(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	a, b := openDevices(t, "127.0.0.1")
	const port = 18515
	at := netip.AddrPortFrom(b.Addr(), port)
	listener, err := b.Listen(port)
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan *QueuePair, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- func() error {
			i, err := listener.Accept(ctx)
			if err != nil {
				return err
			}
			if !bytes.HasPrefix(i.Offer.Private, []byte("from a")) {
				return errors.New("private data " + string(i.Offer.Private))
			}
			q, err := b.NewQueuePair(queuepair.Config{RemoteReads: 2}, nil)
			if err != nil {
				return err
			}
			if err := q.PostReceive(1, make([]byte, 10)); err != nil {
				return err
			}
			granted <- q
			if err := i.Grant(ctx, q, []byte("from b")); err != nil {
				return err
			}
			if i, err = listener.Accept(ctx); err == nil {
				i.Reject()
			}
			return err
		}()
	}()
	from := newPair(t, a, queuepair.Config{MTU: 512, RemoteReads: 3})
	if private, err := from.Dial(ctx, at, []byte("from a")); err != nil ||
		!bytes.HasPrefix(private, []byte("from b")) {
		t.Fatalf("%v, %q", err, private)
	}
	if _, err := from.Post(queuepair.Request{ID: 3, Op: queuepair.Send,
		Local: [][]byte{[]byte("hello")}}); err != nil {
		t.Fatal(err)
	}
	to := <-granted
	if c, d := next(t, from), next(t, to); c.Err != nil || d.Err != nil || d.Bytes != 5 {
		t.Errorf("%+v, %+v", c, d)
	}
	if from.config.Reads != 2 || to.config.Reads != 3 {
		t.Errorf("%d and %d READs at once, want as many as the other end takes: 2 and 3", from.config.Reads,
			to.config.Reads)
	}
	var reject *cm.RejectError
	if _, err := newPair(t, a, queuepair.Config{}).Dial(ctx, at, nil); !errors.As(err, &reject) {
		t.Errorf("%v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	from.Close()
	if <-to.Ended(); !errors.Is(to.Err(), cm.ErrDisconnected) ||
		!errors.Is(from.Err(), transports.ErrClosed) {
		t.Errorf("%v, %v", to.Err(), from.Err())
	}
	listener.Close()
	if _, err := newPair(t, a, queuepair.Config{}).Dial(ctx, at, nil); !errors.As(err, &reject) {
		t.Errorf("%v", err)
	}
}
