package transportstest

import (
	"context"
	"sync"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/transports"
)

// late is an endpoint that hands over its completions in order, but some of them late. Endpoints are
// late if their process waits for a processor. Each end of a peer is late, and so are the first
// completions.
type late struct {
	transports.Endpoint
	mu     sync.Mutex
	delays int
	held   []transports.Completion // later ones wait behind them
	due    time.Time
	closed bool
}

const (
	// lateBy ends within the time for which a case must be quiet, so that the case sees what it did
	// not wait for.
	lateBy    = quietTime / 2
	lateFirst = 20 // delays of an endpoint, not counting ends of peers
)

func (l *late) Poll(completions []transports.Completion) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) == 0 {
		l.held = make([]transports.Completion, len(completions))
		l.held = l.held[:l.Endpoint.Poll(l.held)]
		for i, c := range l.held {
			if last := i == len(l.held)-1; c.Op == transports.OpPeerDown || last && l.delays < lateFirst {
				l.delays++
				l.due = time.Now().Add(lateBy)
				n := copy(completions, l.held[:i])
				l.held = l.held[i:]
				return n
			}
		}
	} else if !l.closed && time.Now().Before(l.due) {
		return 0
	}
	n := copy(completions, l.held)
	l.held = l.held[n:]
	return n
}

func (l *late) Wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		holds, left := len(l.held) > 0, time.Until(l.due)
		l.mu.Unlock()
		switch {
		case !holds:
			return l.Endpoint.Wait(ctx)
		case left <= 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(left):
		}
	}
}

func (l *late) Close() error {
	l.mu.Lock()
	l.closed, l.due = true, time.Now()
	l.mu.Unlock()
	return l.Endpoint.Close()
}

// TestLateCompletionsConform checks that no case takes a late completion for a wrong completion.
func TestLateCompletionsConform(t *testing.T) {
	hosttest.Long(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := memorySuite(1, flaws{})
			open := s.Open
			s.Open = func(t testing.TB) transports.Endpoint { return &late{Endpoint: open(t)} }
			s.run(t, c.run)
		})
	}
}
