package transportstest

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"railbed/transports"
)

// pieces cuts bytes into a request's Local and More.
func pieces(q *transports.Request, local []byte, lengths ...int) {
	q.Local, local = local[:lengths[0]:lengths[0]], local[lengths[0]:]
	for _, n := range lengths[1:] {
		q.More, local = append(q.More, local[:n:n]), local[n:]
	}
	if len(local) > 0 {
		q.More = append(q.More, local)
	}
}

// testGatherLists sends messages of several pieces, whose list is reused as soon as Post has
// returned.
func testGatherLists(r *rig) {
	a, b, ab, _ := r.pair()
	const size = 70_001
	sixteen := make([]int, transports.MaxPieces-1)
	for i := range sixteen {
		sixteen[i] = 1 + i*7
	}
	target := b.area(size)
	for i, lengths := range [][]int{{1}, {0}, {0, 0, 1, 0}, {4096, 4096}, {1, 60_000, 0, 3}, {size},
		{size - 1, 0}, sixteen, {1471, 1473, 1, 9000}} {
		local := make([]byte, size)
		fill(local, i)
		q := transports.Request{ID: uint64(i), Op: transports.OpWriteImm, Peer: ab, Remote: target.remote,
			Imm: uint32(i)}
		pieces(&q, local, lengths...)
		a.post(q)
		clear(q.More)
		r.until("a message of pieces", func() bool { return len(b.received) > i && len(a.sent) > i })
		if b.received[i].Bytes != size || a.sent[i].Bytes != size {
			r.Errorf("pieces %v: received %+v, completed %+v, want %d bytes", lengths, b.received[i],
				a.sent[i], size)
		}
		r.holds(target.buf, i)
		target.untouched(0, 0)
		clear(target.buf)
	}
	empty := transports.Request{ID: 9, Op: transports.OpWriteImm, Peer: ab,
		More: make([][]byte, transports.MaxPieces-1)}
	a.post(empty)
	r.until("an empty message of pieces", func() bool { return len(b.received) > 9 && len(a.sent) > 9 })
	a.succeeded(10)
	empty.More = make([][]byte, transports.MaxPieces)
	if n, err := a.Post(context.Background(), []transports.Request{empty}); n != 0 || err == nil {
		r.Errorf("post of %d pieces: accepted %d, error %v, want 0 and an error", 1+len(empty.More), n, err)
	}
	r.quiet()
}

// testUnsignaled sends bursts of messages and waits for the last of each burst only. With or before
// its completion, the completions of all earlier messages must arrive. Each message has a place of
// its own, as some transports place several at a time.
func testUnsignaled(r *rig) {
	a, b, ab, _ := r.pair()
	const most, largest = 200, 1 << 16
	target := b.area(most * largest)
	local := make([]byte, largest)
	size := func(i int) int { return []int{largest, 0, 100}[i%3] }
	sent := 0
	for round, burst := range []int{1, 2, 65, most, 3} {
		fill(local, round)
		for i := range burst {
			a.post(transports.Request{ID: uint64(sent), Op: transports.OpWriteImm, Peer: ab,
				Local:  local[:size(i)],
				Remote: target.remote, Offset: uint64(i * largest), Imm: uint32(sent),
				Unsignaled: i < burst-1})
			sent++
		}
		r.until("unsignaled messages and one that is waited for", func() bool {
			return len(a.sent) >= sent && len(b.received) >= sent
		})
		for i := range burst {
			r.holds(target.buf[i*largest:][:size(i)], round)
		}
	}
	a.succeeded(sent)
	r.quiet()
}

// testInline changes the bytes of inline messages as soon as Post has returned.
func testInline(r *rig) {
	a, b, ab, _ := r.pair()
	const count, size = 600, transports.MaxInline
	target := b.area(count * size)
	local := make([]byte, size)
	for i := range count {
		n := []int{size, 0, 1, i % size}[i%4]
		fill(local, i)
		q := transports.Request{ID: uint64(i), Op: transports.OpWriteImm, Peer: ab, Inline: true,
			Remote: target.remote, Offset: uint64(i * size), Imm: uint32(i)}
		pieces(&q, local[:n], n/3, n/2)
		a.post(q)
		clear(local)
	}
	r.until("inline messages", func() bool { return len(b.received) >= count && len(a.sent) >= count })
	a.succeeded(count)
	for i := range count {
		n := []int{size, 0, 1, i % size}[i%4]
		r.holds(target.buf[i*size:][:n], i)
		target.untouched(i*size+n, (i+1)*size)
	}
	long := transports.Request{Op: transports.OpWrite, Peer: ab, Inline: true, Local: local,
		More: [][]byte{{1}}, Remote: target.remote}
	if n, err := a.Post(context.Background(), []transports.Request{long}); n != 0 || err == nil {
		r.Errorf("inline post of %d bytes: accepted %d, error %v, want 0 and an error", long.Size(), n, err)
	}
	r.quiet()
}

// canceling is a set of requests, some of them canceled, each with a place of its own.
type canceling struct {
	a, b    *node
	target  *area
	size    int
	cancels []context.CancelCauseFunc
	ended   []transports.Completion // by request
	late    []int                   // number of immediates at b when a request ended
}

var errTired = errors.New("tired of it")

func (r *rig) canceling(a, b *node, to transports.Peer, count, size int) (*canceling, []transports.Request) {
	c := &canceling{a: a, b: b, target: b.area(count * size), size: size,
		ended: make([]transports.Completion, count), late: make([]int, count)}
	var requests []transports.Request
	for i := range count {
		ctx, cancel := context.WithCancelCause(context.Background())
		r.Cleanup(func() { cancel(nil) })
		c.cancels = append(c.cancels, cancel)
		local := make([]byte, size)
		fill(local, i)
		requests = append(requests, transports.Request{ID: uint64(i), Op: transports.OpWriteImm, Peer: to,
			Local:  local,
			Remote: c.target.remote, Offset: uint64(i * size), Imm: uint32(i), Context: ctx})
	}
	return c, requests
}

// record records the requests that ended since the last call. It resets the memory of canceled requests,
// which must then stay untouched.
func (c *canceling) record() {
	r := c.a.rig
	for _, s := range c.a.sent {
		if c.ended[s.ID].Op != 0 {
			continue
		}
		for c.b.poll() { // immediates delivered before
		}
		if c.ended[s.ID], c.late[s.ID] = s, len(c.b.received); s.Err == nil {
			r.holds(c.target.buf[int(s.ID)*c.size:][:c.size], int(s.ID))
			continue
		}
		if !errors.Is(s.Err, transports.ErrCanceled) || !errors.Is(s.Err, errTired) || s.Bytes != 0 {
			r.Errorf("canceled request %d: %+v, want an error that is ErrCanceled and the cause", s.ID, s)
		}
		place := c.target.buf[int(s.ID)*c.size:][:c.size]
		for i := range place {
			place[i] = canary
		}
	}
}

// check checks at the end that each request ended once, and that canceled requests had no effect
// after their end. It returns how many were canceled.
func (c *canceling) check() (canceled int) {
	r := c.a.rig
	r.until("the immediates of all requests that succeeded", func() bool {
		c.record()
		delivered := make([]bool, len(c.ended))
		for _, got := range c.b.received {
			delivered[got.Imm] = true
		}
		for i, end := range c.ended {
			if end.Err == nil && !delivered[i] {
				return false
			}
		}
		return true
	})
	r.quiet()
	c.record()
	if len(c.a.sent) != len(c.ended) {
		r.Errorf("%d requests have %d completions, want one each", len(c.ended), len(c.a.sent))
	}
	told := make([]int, len(c.ended))
	for at, got := range c.b.received {
		if told[got.Imm]++; told[got.Imm] > 1 {
			r.Errorf("immediate %d was delivered twice", got.Imm)
		}
		if end := c.ended[got.Imm]; end.Err != nil && at >= c.late[got.Imm] {
			r.Errorf("the immediate of request %d was delivered after it was canceled", got.Imm)
		}
	}
	for i, end := range c.ended {
		if end.Err != nil {
			canceled++
			c.target.untouched(i*c.size, (i+1)*c.size)
		} else if told[i] != 1 {
			r.Errorf("request %d succeeded, and its immediate was delivered %d times, want once", i, told[i])
		}
	}
	return canceled
}

// testCancelWaiting cancels requests to an endpoint that does not accept them yet. They are so long
// that no transport can have begun all of them.
func testCancelWaiting(r *rig) {
	a, b := r.open(), r.open()
	ab := a.add(b)
	const count, size = 48, 512 << 10
	c, requests := r.canceling(a, b, ab, count, size)
	a.post(requests...)
	end := time.Now().Add(50 * time.Millisecond)
	r.until("a while", func() bool { return time.Now().After(end) })
	for i := 0; i < count; i += 2 {
		c.cancels[i](errTired)
	}
	r.until("the first to end", func() bool { c.record(); return len(a.sent) > 0 })
	b.add(a)
	r.until("all requests", func() bool { c.record(); return len(a.sent) >= count })
	if n := c.check(); n == 0 || n > count/2 {
		r.Errorf("%d of %d requests completed as canceled, want 1 to %d", n, count, count/2)
	}
	for i := 1; i < count; i += 2 {
		if err := c.ended[i].Err; err != nil {
			r.Errorf("request %d was not canceled, and failed: %v", i, err)
		}
	}
	q := requests[0]
	if n, err := a.Post(context.Background(), []transports.Request{q}); n != 0 ||
		!errors.Is(err, transports.ErrCanceled) {
		r.Errorf("post of a request whose context is done: accepted %d, error %v, want 0 and ErrCanceled", n,
			err)
	}
	q.Context = nil // later requests may use the places of canceled ones
	a.post(q)
	r.until("a message after the canceled messages", func() bool { return len(a.sent) > count })
	r.holds(c.target.buf[:size], 0)
}

// testCancelMoving cancels requests at any moment of their transfer.
func testCancelMoving(r *rig) {
	a, b, ab, _ := r.pair()
	random := rand.New(rand.NewPCG(1, 1))
	const rounds, count, size = 20, 24, 40_000
	canceled := 0
	for range rounds {
		a.sent, b.received = nil, nil
		c, requests := r.canceling(a, b, ab, count, size)
		for i := range requests {
			pieces(&requests[i], requests[i].Local, size/2)
		}
		order := random.Perm(count)
		for n, i := range order {
			a.post(requests[i])
			if random.IntN(2) == 0 {
				c.cancels[order[random.IntN(n+1)]](errTired)
			}
			if random.IntN(3) == 0 {
				r.pollAll()
				c.record()
			}
		}
		r.until("all requests", func() bool { c.record(); return len(a.sent) >= count })
		canceled += c.check()
	}
	r.Logf("%d of %d requests completed as canceled", canceled, rounds*count)
}
