package worker

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"railbed/transports"
)

// Several collectives share a rank's endpoint, each by a share of its own: bits of the
// immediate data and of requests' IDs say whose they are. One endpoint and not one for each
// group of ranks, because that is what a NIC is, and because rd has ports for 16 endpoints
// of an address only.
const (
	shareBits  = 11 // of the immediate, below its first bit
	numberBits = 31 - shareBits
	maxShares  = 1 << shareBits
	idBits     = 48 // of the ID, which is signed
)

// shares divide an endpoint. What comes is handed out by pump.
type shares struct {
	endpoint transports.Endpoint
	of       []*share
	work     *work
}

// work is how long none of several goroutines had anything to do: all of them waited, for other
// ranks or for time to pass.
type work struct {
	mu     sync.Mutex
	busy   int
	since  time.Time // that none was
	waited time.Duration
}

// begin is of a time in which nobody works yet.
func (w *work) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy, w.since, w.waited = 0, time.Now(), 0
}

// add is that one begins to work, or ends with -1. Of no work it does nothing.
func (w *work) add(one int) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy == 0 {
		w.waited += time.Since(w.since)
	}
	if w.busy += one; w.busy == 0 {
		w.since = time.Now()
	}
}

// late is that time had passed so long ago for one who waited for it.
func (w *work) late(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy == 0 {
		w.waited -= by
	}
}

// end is how long nobody worked since the begin.
func (w *work) end() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy == 0 {
		w.waited += time.Since(w.since)
	}
	return w.waited
}

// share is the endpoint for one user, who has numbers up to 2^20 in immediate data beside
// their first bit, and IDs that are signed numbers of 48 bits. It implements Poll, Wait and
// Post; the rest is the whole endpoint's.
type share struct {
	transports.Endpoint
	index  uint32
	work   *work
	short  atomic.Bool // of room, since the latest Post
	wake   chan struct{}
	buffer []transports.Request

	mu      sync.Mutex
	arrived []transports.Completion
}

func newShares(e transports.Endpoint, count int, w *work) (*shares, error) {
	if count > maxShares {
		return nil, fmt.Errorf("share endpoint: %d users, want at most %d", count, maxShares)
	}
	s := &shares{endpoint: e, work: w}
	for i := range count {
		s.of = append(s.of, &share{Endpoint: e, index: uint32(i), work: w, wake: make(chan struct{}, 1)})
	}
	return s, nil
}

// pump hands out what comes until ctx ends. Its error is the endpoint's.
func (s *shares) pump(ctx context.Context) error {
	var batch [64]transports.Completion
	for ctx.Err() == nil {
		n := s.endpoint.Poll(batch[:])
		if n == 0 {
			if err := s.endpoint.Wait(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			continue
		}
		for _, c := range batch[:n] {
			if err := s.deliver(c); err != nil {
				return err
			}
		}
		for _, to := range s.of {
			if to.short.Swap(false) {
				to.notify()
			}
		}
	}
	return nil
}

// during hands out what comes while something is done. Where the endpoint fails, its error is
// the one: what users of shares say follows from it.
func (s *shares) during(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	pumping, stop := context.WithCancel(ctx)
	pumped := make(chan error, 1)
	go func() {
		err := s.pump(pumping)
		if err != nil {
			fail(err)
		}
		pumped <- err
	}()
	err := do(ctx)
	stop()
	return cmp.Or(<-pumped, err)
}

// during does it with several endpoints.
func during(ctx context.Context, all []*shares, do func(ctx context.Context) error) error {
	if len(all) == 0 {
		return do(ctx)
	}
	return all[0].during(ctx, func(ctx context.Context) error { return during(ctx, all[1:], do) })
}

// deliver gives a completion to its share, and the end of a peer to all.
func (s *shares) deliver(c transports.Completion) error {
	var index uint32
	switch c.Op {
	case transports.OpPeerDown:
		for _, to := range s.of {
			to.take(c)
		}
		return nil
	case transports.OpReceive:
		index = c.Imm >> numberBits & (maxShares - 1)
		c.Imm &^= (maxShares - 1) << numberBits
	default:
		index = uint32(c.ID >> idBits)
		c.ID = uint64(int64(c.ID<<(64-idBits)) >> (64 - idBits))
	}
	if int(index) >= len(s.of) {
		return fmt.Errorf("a message of share %d, of %d", index, len(s.of))
	}
	s.of[index].take(c)
	return nil
}

func (s *share) take(c transports.Completion) {
	s.mu.Lock()
	s.arrived = append(s.arrived, c)
	s.mu.Unlock()
	s.notify()
}

func (s *share) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Post implements transports.Endpoint.
func (s *share) Post(ctx context.Context, requests []transports.Request) (int, error) {
	s.buffer = append(s.buffer[:0], requests...)
	defer clear(s.buffer)
	for i := range s.buffer {
		r := &s.buffer[i]
		if r.Imm>>numberBits&(maxShares-1) != 0 || r.ID != uint64(int64(r.ID<<(64-idBits))>>(64-idBits)) {
			return i, fmt.Errorf("post request %d: immediate %#x or ID %d is too large for a share", i, r.Imm,
				r.ID)
		}
		r.Imm |= s.index << numberBits
		r.ID = r.ID&(1<<idBits-1) | uint64(s.index)<<idBits
	}
	s.short.Store(true) // before, so that room that comes meanwhile is told
	n, err := s.Endpoint.Post(ctx, s.buffer)
	if n == len(requests) {
		s.short.Store(false)
	}
	return n, err
}

// Poll implements transports.Endpoint.
func (s *share) Poll(completions []transports.Completion) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := copy(completions, s.arrived)
	left := copy(s.arrived, s.arrived[n:])
	clear(s.arrived[left:])
	s.arrived = s.arrived[:left]
	return n
}

// Wait implements transports.Endpoint. It returns too when there is room again. Who calls it
// works, and does not meanwhile.
func (s *share) Wait(ctx context.Context) error {
	s.mu.Lock()
	any := len(s.arrived) > 0
	s.mu.Unlock()
	if any {
		return nil
	}
	s.work.add(-1)
	defer s.work.add(1)
	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
