package transportstest

import (
	"context"
	"errors"
	"sync"
	"time"

	"railbed/transports"
)

// testSeveralPeers sends from every endpoint to every endpoint, itself included.
func testSeveralPeers(r *rig) {
	const nodes, rounds, size = 4, 20, 3000
	all := make([]*node, nodes)
	targets := make([]*area, nodes)
	peers := make([][]transports.Peer, nodes)
	for i := range all {
		all[i] = r.open()
		targets[i] = all[i].area(nodes * rounds * size)
	}
	for i := range all {
		for j := range all {
			peers[i] = append(peers[i], all[i].add(all[j]))
		}
	}
	for i := range all {
		for j := range all {
			for k := range rounds {
				slot := i*rounds + k
				local := make([]byte, size)
				fill(local, slot)
				all[i].post(transports.Request{ID: uint64(j*rounds + k), Op: transports.OpWriteImm,
					Peer:  peers[i][j],
					Local: local, Remote: targets[j].remote, Offset: uint64(slot * size), Imm: uint32(slot)})
			}
		}
	}
	r.until("messages of all to all", func() bool {
		for _, n := range all {
			if len(n.received) < nodes*rounds || len(n.sent) < nodes*rounds {
				return false
			}
		}
		return true
	})
	for j, n := range all {
		n.succeeded(nodes * rounds)
		for _, c := range n.received {
			if from := int(c.Imm) / rounds; c.Peer != peers[j][from] {
				r.Errorf("message of node %d came from peer %d, want %d", from, c.Peer, peers[j][from])
			}
		}
		for slot := range nodes * rounds {
			r.holds(targets[j].buf[slot*size:][:size], slot)
		}
	}
	r.quiet()
}

func testSelf(r *rig) {
	a := r.open()
	self := a.add(a)
	target := a.area(100_000)
	local := make([]byte, 100_000)
	fill(local, 5)
	a.post(transports.Request{Op: transports.OpWriteImm, Peer: self, Local: local, Remote: target.remote,
		Imm: 5})
	r.until("a message to oneself", func() bool { return len(a.received) == 1 && len(a.sent) == 1 })
	if a.received[0].Peer != self {
		r.Errorf("message from peer %d, want %d", a.received[0].Peer, self)
	}
	r.holds(target.buf, 5)
	r.quiet()
}

// testLatePeer sends before the receiver has added the sender.
func testLatePeer(r *rig) {
	a, b := r.open(), r.open()
	ab := a.add(b)
	target := b.area(5000)
	local := make([]byte, 5000)
	fill(local, 1)
	a.post(transports.Request{Op: transports.OpWriteImm, Peer: ab, Local: local, Remote: target.remote,
		Imm: 1})
	end := time.Now().Add(100 * time.Millisecond)
	r.until("a while", func() bool { return time.Now().After(end) })
	if len(b.received) != 0 {
		r.Fatalf("message from an endpoint that was not added: %+v", b.received[0])
	}
	ba := b.add(a)
	r.until("the message that waited", func() bool { return len(b.received) == 1 && len(a.sent) == 1 })
	a.succeeded(1)
	if b.received[0].Peer != ba {
		r.Errorf("message from peer %d, want %d", b.received[0].Peer, ba)
	}
	r.holds(target.buf, 1)
	r.quiet()
}

// testConcurrency posts and polls each of two endpoints from several goroutines.
func testConcurrency(r *rig) {
	a, b, ab, ba := r.pair()
	const posters, each, size = 4, 300, 700
	type side struct {
		n     *node
		peer  transports.Peer
		to    *area
		tally map[uint32]int
	}
	sides := []*side{{n: a, peer: ab, to: b.area(posters * each * size)},
		{n: b, peer: ba, to: a.area(posters * each * size)}}
	ctx, cancel := context.WithTimeout(context.Background(), r.suite.Bound)
	defer cancel()
	var posting, polling sync.WaitGroup
	var mu sync.Mutex
	pollCtx, stopPolling := context.WithCancel(ctx)
	defer stopPolling()
	for _, s := range sides {
		s.tally = make(map[uint32]int)
		for p := range posters {
			posting.Go(func() { postSlots(ctx, r, s.n, s.peer, s.to, p*each, each, size) })
		}
		for range 2 {
			polling.Go(func() {
				var batch [8]transports.Completion
				for s.n.Wait(pollCtx) == nil {
					got := s.n.Poll(batch[:])
					mu.Lock()
					for _, c := range batch[:got] {
						if c.Err != nil {
							r.Errorf("completion: %v", c.Err)
						}
						s.tally[uint32(c.Op)<<24|c.Imm|uint32(c.ID)]++
					}
					mu.Unlock()
				}
			})
		}
	}
	posting.Wait()
	complete := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(sides[0].tally) >= 2*posters*each && len(sides[1].tally) >= 2*posters*each
	}
	for !complete() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // for duplicates
	stopPolling()
	polling.Wait()
	for _, s := range sides {
		if len(s.tally) != 2*posters*each {
			r.Errorf("%d different completions, want %d", len(s.tally), 2*posters*each)
		}
		for key, count := range s.tally {
			if count != 1 {
				r.Errorf("completion %#x came %d times, want once", key, count)
			}
		}
		for slot := range posters * each {
			r.holds(s.to.buf[slot*size:][:size], slot)
		}
	}
}

// postSlots posts count messages, each to its slot of the area.
func postSlots(ctx context.Context, r *rig, n *node, peer transports.Peer, to *area, first, count, size int) {
	for slot := first; slot < first+count; {
		local := make([]byte, size)
		fill(local, slot)
		taken, err := n.Post(ctx, []transports.Request{{ID: uint64(slot), Op: transports.OpWriteImm,
			Peer:  peer,
			Local: local, Remote: to.remote, Offset: uint64(slot * size), Imm: uint32(slot)}})
		if err != nil {
			r.Errorf("post: %v", err)
			return
		}
		slot += taken
		if taken == 0 {
			time.Sleep(50 * time.Microsecond)
		}
	}
}

func testContext(r *rig) {
	a, b, ab, _ := r.pair()
	done, cancel := context.WithCancel(context.Background())
	cancel()
	request := transports.Request{Op: transports.OpWriteImm, Peer: ab}
	if n, err := a.Post(done, []transports.Request{request}); n != 0 || !errors.Is(err, context.Canceled) {
		r.Errorf("post with a context that is done: accepted %d, error %v, want 0 and Canceled", n, err)
	}
	if err := waitBounded(r, a, done); !errors.Is(err, context.Canceled) {
		r.Errorf("wait with a context that is done: %v, want Canceled", err)
	}
	start := time.Now() // before the context's time begins
	soon, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if err := waitBounded(r, a, soon); !errors.Is(err, context.DeadlineExceeded) {
		r.Errorf("wait until a deadline: %v, want DeadlineExceeded", err)
	}
	if took := time.Since(start); took < 30*time.Millisecond {
		r.Errorf("wait for 30ms returned after %v", took)
	}
	// Ready completions are reported even when the context is done.
	a.post(request)
	if err := waitBounded(r, b, context.Background()); err != nil {
		r.Errorf("wait for a message: %v", err)
	}
	if err := waitBounded(r, b, done); err != nil {
		r.Errorf("wait with a message ready: %v", err)
	}
	r.until("the message", func() bool { return len(b.received) == 1 && len(a.sent) == 1 })
	r.quiet()
}

// waitBounded is Wait that fails the case instead of hanging.
func waitBounded(r *rig, n *node, ctx context.Context) error {
	r.Helper()
	result := make(chan error, 1)
	go func() { result <- n.Wait(ctx) }()
	select {
	case err := <-result:
		return err
	case <-time.After(r.suite.Bound):
		n.Close()
		r.Fatalf("wait did not return within %v", r.suite.Bound)
		return nil
	}
}
