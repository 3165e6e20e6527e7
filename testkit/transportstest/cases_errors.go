package transportstest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"railbed/transports"
)

func testMalformedRequests(r *rig) {
	a, b, ab, _ := r.pair()
	target := b.area(100)
	good := transports.Request{Op: transports.OpWriteImm, Peer: ab, Local: make([]byte, 10),
		Remote: target.remote, Imm: 7}
	posted := 0
	for name, change := range map[string]func(*transports.Request){
		"operation 0":  func(q *transports.Request) { q.Op = 0 },
		"RECEIVE":      func(q *transports.Request) { q.Op = transports.OpReceive },
		"PEER_DOWN":    func(q *transports.Request) { q.Op = transports.OpPeerDown },
		"unknown peer": func(q *transports.Request) { q.Peer = 1 << 20 },
	} {
		bad := good
		change(&bad)
		good.ID = uint64(posted)
		n, err := a.Post(context.Background(), []transports.Request{good, bad, good})
		if n != 1 || err == nil {
			r.Errorf("post of a good request and one with %s: accepted %d, error %v, want 1 and an error",
				name, n, err)
		}
		posted += n
		r.until("the good request", func() bool { return len(a.sent) == posted && len(b.received) == posted })
	}
	a.succeeded(posted)
	r.quiet()
}

// testRefusedAccess posts messages that must not be placed. Each request has its own pair, because
// a transport may fail the peer with the request.
func testRefusedAccess(r *rig) {
	const size = 1000
	for name, change := range map[string]func(q *transports.Request, owner, other *node){
		"offset past the end": func(q *transports.Request, _, _ *node) { q.Offset = size },
		"one byte too long": func(q *transports.Request, _, _ *node) {
			q.Offset = size - uint64(len(q.Local)) + 1
		},
		"offset far away":    func(q *transports.Request, _, _ *node) { q.Offset = 1 << 40 },
		"offset that wraps":  func(q *transports.Request, _, _ *node) { q.Offset = ^uint64(0) - 5 },
		"longer than region": func(q *transports.Request, _, _ *node) { q.Local = make([]byte, size+1) },
		"no handle":          func(q *transports.Request, _, _ *node) { q.Remote = nil },
		"half a handle": func(q *transports.Request, _, _ *node) {
			q.Remote = q.Remote[:len(q.Remote)/2]
		},
		"handle too long": func(q *transports.Request, _, _ *node) {
			q.Remote = append(bytes.Clone(q.Remote), 0)
		},
		"zero handle": func(q *transports.Request, _, _ *node) {
			q.Remote = make([]byte, len(q.Remote))
		},
		"first bit of handle": func(q *transports.Request, _, _ *node) { flip(q, 0) },
		"last bit of handle":  func(q *transports.Request, _, _ *node) { flip(q, 8*len(q.Remote)-1) },
		"region not writable": func(q *transports.Request, owner, _ *node) {
			q.Remote = owner.areaWith(size, 0).remote
		},
		"region of the sender": func(q *transports.Request, _, other *node) {
			q.Remote = other.area(size).remote
		},
	} {
		a, b, ab, _ := r.pair()
		target := b.area(size)
		request := transports.Request{Op: transports.OpWriteImm, Peer: ab, Local: make([]byte, 16),
			Remote: target.remote, Imm: 1}
		change(&request, b, a)
		err := a.outcome(request)
		if !errors.Is(err, transports.ErrAccess) {
			r.Errorf("%s: got %v, want an error that is ErrAccess", name, err)
			continue
		}
		if text := err.Error(); !strings.Contains(text, "WRITE_IMM") {
			r.Errorf("%s: error does not name the operation: %s", name, text)
		}
		target.untouched(0, size)
		if len(b.received) != 0 {
			r.Errorf("%s: the immediate was delivered", name)
		}
		a.Close()
		b.Close()
	}
}

func flip(q *transports.Request, bit int) {
	q.Remote = bytes.Clone(q.Remote)
	q.Remote[bit/8] ^= 1 << (bit % 8)
}

// outcome returns the result of a request, from Post or from its completion. It returns after the
// end of the peer if the request failed with its peer.
func (n *node) outcome(request transports.Request) error {
	n.rig.Helper()
	before := len(n.sent)
	taken, err := n.Post(context.Background(), []transports.Request{request})
	if taken == 0 && err != nil {
		return err
	}
	if taken != 1 || err != nil {
		n.rig.Fatalf("post of one request: accepted %d, error %v, want 1 and no error", taken, err)
	}
	n.rig.until("the end of a request", func() bool { return len(n.sent) > before })
	switch err = n.sent[before].Err; {
	case errors.Is(err, transports.ErrPeerFailed):
		n.rig.until("the end of the peer", func() bool { return n.isDown(request.Peer) })
		n.rig.quiet()
	case errors.Is(err, transports.ErrAccess):
		n.rig.quietUnlessDown() // a transport may fail the peer with the request, at both ends
	default:
		n.rig.quiet()
	}
	return err
}

func testRevokedRegion(r *rig) {
	a, b, ab, _ := r.pair()
	const size = 100_000
	target := b.area(size)
	local := make([]byte, size)
	fill(local, 1)
	if err := a.outcome(transports.Request{Op: transports.OpWrite, Peer: ab, Local: local,
		Remote: target.remote}); err != nil {
		r.Fatalf("write to a region: %v", err)
	}
	for range 2 {
		if err := target.region.Close(); err != nil {
			r.Errorf("close region: %v", err)
		}
	}
	fill(local, 2)
	r.refused(a.outcome(transports.Request{Op: transports.OpWrite, Peer: ab, Local: local,
		Remote: target.remote}))
	r.holds(target.buf, 1)
}

// flood posts to a peer that stops polling until the sender is held back, and returns how many
// requests were accepted. It waits long enough to exclude that a busy machine just does not run the
// peer. Each request has a place of its own: messages that write the same bytes are not ordered.
func (n *node) flood(to *node, peer transports.Peer) int {
	n.rig.Helper()
	const size, places = 1 << 13, 1 << 11
	target := to.area(size * places)
	local := make([]byte, size)
	to.deaf = true
	posted := 0
	for refused := time.Now(); time.Since(refused) < 300*time.Millisecond; n.rig.pollAll() {
		taken, err := n.Post(context.Background(),
			[]transports.Request{{ID: uint64(posted), Op: transports.OpWriteImm,
				Peer: peer, Local: local, Remote: target.remote, Offset: uint64(posted % places * size)}})
		if err != nil {
			n.rig.Fatalf("post: %v", err)
		}
		if posted += taken; taken > 0 {
			refused = time.Now()
		}
	}
	return posted
}

// testDeadPeer kills a peer with many outstanding requests. It checks that all of them end, that
// the death is reported last and once, and that other peers are not affected.
func testDeadPeer(r *rig) {
	a, b, ab, _ := r.pair()
	c := r.open()
	ac := a.add(c)
	c.add(a)
	posted := a.flood(b, ab)
	r.suite.Kill(r.TB, b.Endpoint)
	r.until("the end of everything that was outstanding", func() bool {
		return len(a.sent) >= posted && len(a.down) > 0
	})
	r.quiet()
	failed := 0
	seen := make(map[uint64]bool)
	for _, s := range a.sent {
		if seen[s.ID] {
			r.Errorf("request %d completed twice", s.ID)
		}
		seen[s.ID] = true
		if s.Err != nil {
			failed++
			if !errors.Is(s.Err, transports.ErrPeerFailed) {
				r.Errorf("request %d to a dead peer: %v, want ErrPeerFailed", s.ID, s.Err)
			}
		}
	}
	if len(seen) != posted || failed == 0 {
		r.Errorf("%d of %d requests to a dead peer completed, %d with an error, want all, some with an error",
			len(seen), posted, failed)
	}
	if len(a.down) != 1 || a.down[0].Peer != ab || !errors.Is(a.down[0].Err, transports.ErrPeerFailed) {
		r.Errorf("the death was reported as %+v, want once for peer %d", a.down, ab)
	}
	if n, err := a.Post(context.Background(),
		[]transports.Request{{Op: transports.OpWrite, Peer: ab}}); n != 0 ||
		!errors.Is(err, transports.ErrPeerFailed) {
		r.Errorf("post to a dead peer: accepted %d, error %v, want 0 and ErrPeerFailed", n, err)
	}
	if err := a.outcome(transports.Request{ID: 1 << 32, Op: transports.OpWriteImm, Peer: ac}); err != nil {
		r.Errorf("write to a living peer: %v", err)
	}
}

// testDeadSender kills a peer that the endpoint also sends to, and checks the receiving end.
func testDeadSender(r *rig) {
	a, b, ab, ba := r.pair()
	a.post(transports.Request{Op: transports.OpWriteImm, Peer: ab})
	b.post(transports.Request{Op: transports.OpWriteImm, Peer: ba})
	r.until("a message each way", func() bool {
		return len(a.received) == 1 && len(b.received) == 1 && len(a.sent) == 1 && len(b.sent) == 1
	})
	a.deaf = true
	r.suite.Kill(r.TB, a.Endpoint)
	r.until("the end of a request to the dead", func() bool {
		n, err := b.Post(context.Background(),
			[]transports.Request{{ID: 1, Op: transports.OpWrite, Peer: ba}})
		if err != nil {
			if n != 0 || !errors.Is(err, transports.ErrPeerFailed) {
				r.Fatalf("post to a dead peer: accepted %d, error %v, want 0 and ErrPeerFailed", n, err)
			}
			return len(b.down) > 0
		}
		return false
	})
	if len(b.down) != 1 || b.down[0].Peer != ba {
		r.Errorf("the death was reported as %+v, want once for peer %d", b.down, ba)
	}
}

func testUnreachablePeer(r *rig) {
	a, b := r.open(), r.open()
	r.suite.Kill(r.TB, b.Endpoint)
	b.deaf = true
	err := a.outcome(transports.Request{Op: transports.OpWriteImm, Peer: a.add(b)})
	if !errors.Is(err, transports.ErrPeerFailed) {
		r.Errorf("write to a peer that is gone: %v, want ErrPeerFailed", err)
	}
}

func testClose(r *rig) {
	a, b, ab, _ := r.pair()
	posted := a.flood(b, ab)
	idle := r.open()
	woken := make(chan error, 1)
	go func() { woken <- idle.Wait(context.Background()) }()
	time.Sleep(10 * time.Millisecond)
	for range 2 {
		if err := errors.Join(a.Close(), idle.Close()); err != nil {
			r.Errorf("close: %v", err)
		}
	}
	select {
	case err := <-woken:
		if !errors.Is(err, transports.ErrClosed) {
			r.Errorf("wait ended by close: %v, want ErrClosed", err)
		}
	case <-time.After(r.suite.Bound):
		r.Fatalf("a wait did not end within %v after close", r.suite.Bound)
	}
	for a.poll() {
	}
	failed := 0
	for _, c := range a.sent {
		if c.Err != nil {
			failed++
			if !errors.Is(c.Err, transports.ErrClosed) {
				r.Errorf("request %d ended by close: %v, want ErrClosed", c.ID, c.Err)
			}
		}
	}
	if len(a.sent) != posted || failed == 0 {
		r.Errorf("%d of %d requests completed, %d with an error, want all, some with an error",
			len(a.sent), posted, failed)
	}
	closedCalls(r, a, ab)
}

// testCloseOfReceiver closes an endpoint that received from several peers and never sent to them.
func testCloseOfReceiver(r *rig) {
	a := r.open()
	var senders []*node
	for range 3 {
		b := r.open()
		ba := b.add(a)
		a.add(b)
		b.post(transports.Request{Op: transports.OpWriteImm, Peer: ba})
		r.until("a message", func() bool { return len(b.sent) == 1 })
		senders = append(senders, b)
	}
	closed := make(chan error, 1)
	go func() { closed <- a.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			r.Errorf("close: %v", err)
		}
	case <-time.After(r.suite.Bound):
		r.Errorf("close did not end within %v", r.suite.Bound)
		for _, b := range senders {
			b.Close()
		}
	}
}

// testCloseBesidePosts closes endpoints while other goroutines post to them.
func testCloseBesidePosts(r *rig) {
	const rounds, posters = 10, 2
	b := r.open()
	for range rounds {
		a := r.open()
		ab := a.add(b)
		b.add(a)
		var posting sync.WaitGroup
		for range posters {
			posting.Go(func() {
				var err error
				for err == nil {
					_, err = a.Post(context.Background(),
						[]transports.Request{{Op: transports.OpWriteImm, Peer: ab}})
					runtime.Gosched()
				}
				if !errors.Is(err, transports.ErrClosed) {
					r.Errorf("post during close: %v, want ErrClosed", err)
				}
			})
		}
		time.Sleep(time.Millisecond)
		if err := a.Close(); err != nil {
			r.Errorf("close during posts: %v", err)
		}
		posting.Wait()
	}
}

// closedCalls checks the result of each method of a closed endpoint.
func closedCalls(r *rig, a *node, peer transports.Peer) {
	ctx := context.Background()
	if n, err := a.Post(ctx, []transports.Request{{Op: transports.OpWrite, Peer: peer}}); n != 0 ||
		!errors.Is(err, transports.ErrClosed) {
		r.Errorf("post to a closed endpoint: accepted %d, error %v, want 0 and ErrClosed", n, err)
	}
	if _, err := a.Register(make([]byte, 1), transports.RemoteWrite); !errors.Is(err, transports.ErrClosed) {
		r.Errorf("register with a closed endpoint: %v, want ErrClosed", err)
	}
	if _, err := a.AddPeer(a.Address()); !errors.Is(err, transports.ErrClosed) {
		r.Errorf("add peer to a closed endpoint: %v, want ErrClosed", err)
	}
	if err := waitBounded(r, a, ctx); !errors.Is(err, transports.ErrClosed) {
		r.Errorf("wait on a closed endpoint: %v, want ErrClosed", err)
	}
}

// testNothingLeft closes endpoints after and during communication, and counts goroutines and
// descriptors.
func testNothingLeft(r *rig) {
	r.suite.Open(r.TB).Close() // for objects that the first endpoint of a process makes for good
	goroutines, files := runtime.NumGoroutine(), openFiles()
	for range 5 {
		a, b, ab, ba := r.pair()
		target := b.area(1 << 16)
		a.post(transports.Request{Op: transports.OpWriteImm, Peer: ab, Local: make([]byte, 1<<16),
			Remote: target.remote})
		b.post(transports.Request{Op: transports.OpWriteImm, Peer: ba})
		r.until("messages", func() bool { return len(a.received) > 0 && len(b.received) > 0 })
		unreachable := r.open()
		gone := a.add(unreachable)
		unreachable.Close()
		// The endpoint may know of the end already; that is as good.
		if _, err := a.Post(context.Background(),
			[]transports.Request{{Op: transports.OpWriteImm, Peer: gone}}); err != nil &&
			!errors.Is(err, transports.ErrPeerFailed) {
			r.Errorf("post to a peer that closed: %v", err)
		}
		a.Close()
		b.Close()
	}
	deadline := time.Now().Add(r.suite.Bound)
	for runtime.NumGoroutine() > goroutines || openFiles() > files {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			stacks = stacks[:runtime.Stack(stacks, true)]
			r.Fatalf("goroutines: %d, were %d; descriptors: %d, were %d\n%s",
				runtime.NumGoroutine(), goroutines, openFiles(), files, stacks)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// openFiles counts the process's descriptors; 0 if the system cannot tell.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
