package rd

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/transports"
)

// TestPathTakesNoLock checks that every engine posts, places and reports messages while another
// goroutine holds both endpoints' lock. So engines do not wait for each other on a message's path.
func TestPathTakesNoLock(t *testing.T) {
	const engines, messages = 3, 12
	a, b := open(t, Config{Engines: engines}), open(t, Config{Engines: engines})
	peer, err := a.AddPeer(b.Address())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.AddPeer(a.Address()); err != nil {
		t.Fatal(err)
	}
	const size = 3000
	memory := make([]byte, messages*size) // a place for each: several engines write at once
	region, err := b.Register(memory, transports.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	local := bytes.Repeat([]byte{7}, size)
	for _, e := range []*Endpoint{a, b} {
		e.mu.Lock()
		defer e.mu.Unlock()
	}
	passed := make(chan error, 1)
	go func() {
		passed <- func() error {
			for i := range messages {
				q := transports.Request{ID: uint64(i), Op: transports.OpWriteImm, Imm: uint32(i), Peer: peer,
					Local: local, Remote: region.Remote(), Offset: uint64(i * size)}
				if n, err := a.Post(t.Context(), []transports.Request{q}); n != 1 || err != nil {
					return fmt.Errorf("post: %d, %w", n, err)
				}
			}
			for _, e := range []*Endpoint{a, b} {
				for left := messages; left > 0; {
					if err := e.Wait(t.Context()); err != nil {
						return err
					}
					var done [messages]transports.Completion
					for _, c := range done[:e.Poll(done[:])] {
						if left--; c.Err != nil {
							return c.Err
						}
					}
				}
			}
			return nil
		}()
	}()
	select {
	case err := <-passed:
		if err != nil || !bytes.Equal(memory, bytes.Repeat(local, messages)) {
			t.Error(err)
		}
	case <-time.After(hosttest.Bound):
		t.Error("messages wait for a lock of the endpoints")
	}
	for i, w := range a.workers {
		w.mu.Lock()
		sent := w.engine.Counters().Sent
		w.mu.Unlock()
		if sent < messages/engines {
			t.Errorf("engine %d sent %d packets", i, sent)
		}
	}
}

// TestPeersUnderTraffic adds peers and regions while messages arrive. It finds deadlocks between
// the two.
func TestPeersUnderTraffic(t *testing.T) {
	a, b := open(t, Config{Addr: ownLoopback()}), open(t, Config{Addr: ownLoopback()})
	peer, err := a.AddPeer(b.Address())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.AddPeer(a.Address()); err != nil {
		t.Fatal(err)
	}
	region, err := b.Register(make([]byte, 1), transports.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	const messages = 10_000
	added := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for i := uint64(1); i < 5000; i++ {
			select {
			case <-stop:
				added <- nil
				return
			default:
			}
			stranger := address{life: i, at: ownLoopback(), port: 240, engines: 1}
			if _, err := b.AddPeer(stranger.encode()); err != nil {
				added <- err
				return
			}
			r, err := b.Register(make([]byte, 1), transports.RemoteWrite)
			if err == nil {
				err = r.Close()
			}
			if err != nil {
				added <- err
				return
			}
		}
		added <- nil
	}()
	for posted, done := 0, 0; done < messages; {
		if posted < messages {
			n, err := a.Post(t.Context(), []transports.Request{{Op: transports.OpWrite, Peer: peer,
				Local: []byte{1}, Remote: region.Remote()}})
			if err != nil {
				t.Fatal(err)
			}
			if posted += n; n > 0 {
				continue
			}
		}
		if c := nextCompletion(t, a); c.Err != nil {
			t.Fatal(c.Err)
		}
		done++
	}
	close(stop)
	select {
	case err := <-added:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(hosttest.Bound):
		t.Error("a peer waits to be added for ever")
	}
}
