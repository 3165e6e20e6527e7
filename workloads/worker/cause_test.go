package worker

import (
	"context"
	"errors"
	"io"
	"testing"
)

// TestCauseIsTheRankThatDied passes the coordinator the events after a worker was killed, in the
// order that hides the cause: its neighbours' events come first.
func TestCauseIsTheRankThatDied(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	c := &coordinator{job: job(4, 4), events: make(chan event, 8)}
	for range c.job.Ranks {
		c.workers = append(c.workers, &workerProcess{ended: ended, status: errors.New("signal: killed")})
	}
	lost := func(rank int) event {
		return event{rank: rank, message: &message{Failed: &workerFailed{Error: "peer failed", Peer: true}}}
	}
	c.events <- lost(1)
	c.events <- event{rank: 1, err: io.EOF} // the channel of a rank that has already reported its failure
	c.events <- lost(3)
	c.events <- event{rank: 3, err: io.EOF}
	c.events <- event{rank: 2, err: io.EOF}
	err := c.await(t.Context(), "result", func(int, *message) bool { return true })
	var rank *RankError
	if !errors.As(err, &rank) || rank.Rank != 2 || rank.Node != "h2" {
		t.Errorf("the cause is %v, want rank 2", err)
	}

	// If no rank died, the cause is the first rank that lost its peer.
	c.events <- lost(1)
	c.events <- event{rank: 1, err: io.EOF}
	if err := c.await(t.Context(), "result", nil); !errors.As(err, &rank) || rank.Rank != 1 {
		t.Errorf("the cause is %v, want rank 1", err)
	}
}

// TestProtocolOrder checks that a rank which is ahead by one message waits. A rank that is ahead by
// two messages, or sends another message, broke the protocol.
func TestProtocolOrder(t *testing.T) {
	c := &coordinator{job: job(2, 4), events: make(chan event, 8), workers: make([]*workerProcess, 2)}
	done := &message{Done: &operationDone{}}
	prepared := &message{Prepared: &operationID{Index: 1}}
	isDone := func(_ int, m *message) bool { return m.Done != nil }
	isPrepared := func(_ int, m *message) bool { return m.Prepared != nil }
	for _, e := range []event{{rank: 0, message: done}, {rank: 0, message: prepared},
		{rank: 1, message: done}, {rank: 1, message: prepared}} {
		c.events <- e
	}
	if err := errors.Join(c.await(t.Context(), "result", isDone),
		c.await(t.Context(), "data", isPrepared)); err != nil {
		t.Error(err)
	}
	for _, e := range []event{{rank: 0, message: done}, {rank: 0, message: prepared},
		{rank: 0, message: prepared}} {
		c.events <- e
	}
	var rank *RankError
	if err := c.await(t.Context(), "result", isDone); !errors.As(err, &rank) || rank.Rank != 0 {
		t.Errorf("a rank two messages ahead: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.early = nil
	if err := c.await(ctx, "result", isDone); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that is cancelled: %v", err)
	}
}
