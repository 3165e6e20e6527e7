package tcp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/testkit/hosttest"
	"railbed/testkit/transportstest"
	"railbed/transports"
)

func TestConformanceBusyPoll(t *testing.T) {
	hosttest.Long(t)
	transportstest.Suite{
		Open: func(t testing.TB) transports.Endpoint {
			e := open(t, Config{PeerTimeout: 3 * time.Second})
			e.SetBusyPoll(100 * time.Microsecond)
			return e
		},
	}.Run(t)
}

// TestBusyPollLooksAtConnections: at those that live, and Wait ends with its context however long
// it may look.
func TestBusyPollLooksAtConnections(t *testing.T) {
	a, b := open(t, Config{}), open(t, Config{})
	ab, _ := transportstest.Pair(t, a, b)
	transportstest.Exchange(t, a, ab, b)
	var memory [maxWatched]unix.PollFd
	for name, e := range map[string]*Endpoint{"sender": a, "receiver": b} {
		if watched, _ := e.busy.begin(memory[:0]); len(watched) != 0 {
			t.Errorf("%s: looks at %v unasked", name, watched)
		}
		e.SetBusyPoll(time.Hour)
		if watched, d := e.busy.begin(memory[:0]); len(watched) != 1 || d != time.Hour {
			t.Errorf("%s: looks at %v for %v", name, watched, d)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := b.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait ended with %v", err)
	}
	a.Close()
	if c := transportstest.Next(t, b); c.Op != transports.OpPeerDown {
		t.Errorf("the end of a peer is %+v", c)
	}
	for name, e := range map[string]*Endpoint{"sender": a, "receiver": b} {
		hosttest.Eventually(t, "the end of "+name, func() error {
			e.busy.mu.Lock()
			defer e.busy.mu.Unlock()
			if left := e.busy.watched; len(left) != 0 {
				return fmt.Errorf("it still looks at %v", left)
			}
			return nil
		})
	}
}

// TestBusyPollInVain: who looks in vain looks ever more rarely, until something comes in time.
func TestBusyPollInVain(t *testing.T) {
	b := busyPoll{time: time.Second, watched: []int32{0}}
	looks := func(waits int) (n int) {
		var memory [maxWatched]unix.PollFd
		for range waits {
			if _, d := b.begin(memory[:0]); d > 0 {
				n++
				b.end(false)
			}
		}
		return n
	}
	// One look, then 1, 3, 7, 15, 31 and 63 Waits without one between the next.
	if n := looks(1 + 2 + 4 + 8 + 16 + 32 + 64); n != 7 {
		t.Errorf("%d looks in 127 Waits, want 7", n)
	}
	if n := looks(640); n != 10 {
		t.Errorf("%d looks in 640 Waits, want 10", n)
	}
	b.end(true)
	if n := looks(3); n != 2 {
		t.Errorf("%d looks in 3 Waits after one that was not in vain, want 2", n)
	}
	b.watched = make([]int32, maxWatched+1)
	if n := looks(200); n != 0 {
		t.Errorf("%d looks at more connections than are looked at", n)
	}
}
