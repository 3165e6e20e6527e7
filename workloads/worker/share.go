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

// Several collectives share a rank's endpoint, and each has a share of its own. Bits of the
// immediate data and of the request IDs identify the share. A rank has one endpoint rather than one
// per group of ranks, because the endpoint stands for the NIC, and because rd has ports for only 16
// endpoints per address.
const (
	shareBits  = 11 // of the immediate, below its first bit
	numberBits = 31 - shareBits
	maxShares  = 1 << shareBits
	idBits     = 48 // of the ID, which is signed
)

// shares divide an endpoint. pump delivers the completions to the shares.
type shares struct {
	endpoint transports.Endpoint
	of       []*share
	busy     *idleness
}

// idleness measures how long all of several goroutines were idle: all of them waited, for other ranks
// or for time to pass.
type idleness struct {
	mu     sync.Mutex
	busy   int
	since  time.Time // since when busy is 0
	waited time.Duration
}

// begin starts a measurement, with all goroutines idle.
func (w *idleness) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy, w.since, w.waited = 0, time.Now(), 0
}

// add counts a goroutine that becomes busy (1) or idle (-1). It does nothing on a nil idleness.
func (w *idleness) add(one int) {
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

// late subtracts the time by which a timer fired late from the idle time, if all goroutines are
// idle.
func (w *idleness) late(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy == 0 {
		w.waited -= by
	}
}

// end returns how long all goroutines were idle since begin.
func (w *idleness) end() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy == 0 {
		w.waited += time.Since(w.since)
	}
	return w.waited
}

// share is the endpoint as one user sees it. The user may set the first bit and the low 20 bits of
// the immediate data, and its IDs must be signed numbers of 48 bits. share implements Poll, Wait
// and Post. The other methods are the whole endpoint's.
type share struct {
	transports.Endpoint
	index  uint32
	busy   *idleness
	short  atomic.Bool // the latest Post found too little room
	wake   chan struct{}
	buffer []transports.Request

	mu      sync.Mutex
	arrived []transports.Completion
}

func newShares(e transports.Endpoint, count int, w *idleness) (*shares, error) {
	if count > maxShares {
		return nil, fmt.Errorf("share endpoint: %d users, want at most %d", count, maxShares)
	}
	s := &shares{endpoint: e, busy: w}
	for i := range count {
		s.of = append(s.of, &share{Endpoint: e, index: uint32(i), busy: w, wake: make(chan struct{}, 1)})
	}
	return s, nil
}

// pump delivers completions until ctx ends. Its error is the endpoint's.
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

// during delivers completions while do runs. If the endpoint fails, during returns the endpoint's
// error: the errors of the shares' users follow from it.
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

// during does the same with several endpoints.
func during(ctx context.Context, all []*shares, do func(ctx context.Context) error) error {
	if len(all) == 0 {
		return do(ctx)
	}
	return all[0].during(ctx, func(ctx context.Context) error { return during(ctx, all[1:], do) })
}

// deliver passes a completion to its share, and a peer's end to all shares.
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
	s.short.Store(true) // set before Post, so that room which becomes free meanwhile wakes the share
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

// Wait implements transports.Endpoint. It also returns when there is room again. The calling
// goroutine must be marked busy. Wait marks it idle while it waits.
func (s *share) Wait(ctx context.Context) error {
	s.mu.Lock()
	any := len(s.arrived) > 0
	s.mu.Unlock()
	if any {
		return nil
	}
	s.busy.add(-1)
	defer s.busy.add(1)
	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
