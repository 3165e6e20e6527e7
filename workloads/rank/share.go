package rank

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

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

// Shares are an endpoint divided among several users: see Lane.Share. During delivers the completions to
// the users.
type Shares struct {
	endpoint transports.Endpoint
	of       []*share
	busy     *Idleness
}

// share is the endpoint as one user sees it. It implements Poll, Wait and Post. The other methods are the
// whole endpoint's.
type share struct {
	transports.Endpoint
	index  uint32
	busy   *Idleness
	short  atomic.Bool // the latest Post found too little room
	wake   chan struct{}
	buffer []transports.Request

	mu      sync.Mutex
	arrived []transports.Completion
}

// Share divides the lane's endpoint among count users. From then on the rank's Idleness measures how long
// the rank waits: each user's Wait marks its goroutine idle.
func (l *Lane) Share(count int) (*Shares, error) {
	l.process.concurrent = true
	return newShares(l.bare, count, &l.process.busy)
}

func newShares(e transports.Endpoint, count int, w *Idleness) (*Shares, error) {
	if count > maxShares {
		return nil, fmt.Errorf("share endpoint: %d users, want at most %d", count, maxShares)
	}
	s := &Shares{endpoint: e, busy: w}
	for i := range count {
		s.of = append(s.of, &share{Endpoint: e, index: uint32(i), busy: w, wake: make(chan struct{}, 1)})
	}
	return s, nil
}

// Of returns the endpoint as the i-th user sees it. The user may set the first bit and the low 20 bits of
// the immediate data, and its IDs must be signed numbers of 48 bits. The goroutine that calls Wait must be
// marked busy.
func (s *Shares) Of(i int) transports.Endpoint { return s.of[i] }

// pump delivers completions until ctx ends. Its error is the endpoint's.
func (s *Shares) pump(ctx context.Context) error {
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
func (s *Shares) during(ctx context.Context, do func(ctx context.Context) error) error {
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

// During calls do and meanwhile delivers the completions of several endpoints to their users. If an
// endpoint fails, During returns the endpoint's error: the errors of its users follow from it.
func During(ctx context.Context, all []*Shares, do func(ctx context.Context) error) error {
	if len(all) == 0 {
		return do(ctx)
	}
	return all[0].during(ctx, func(ctx context.Context) error { return During(ctx, all[1:], do) })
}

// deliver passes a completion to its share, and a peer's end to all shares.
func (s *Shares) deliver(c transports.Completion) error {
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
		return fmt.Errorf("message for share %d, want 0 to %d", index, len(s.of)-1)
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
	s.busy.Add(-1)
	defer s.busy.Add(1)
	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
