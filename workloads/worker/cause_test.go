package worker

import (
	"context"
	"errors"
	"io"
	"testing"

	"railbed/workloads/rank"
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
	lost := func(from int) event {
		failed := &rank.Failed{Error: "peer failed", Peer: true}
		return event{rank: from, message: &rank.Message{Failed: failed}}
	}
	c.events <- lost(1)
	c.events <- event{rank: 1, err: io.EOF} // the channel of a rank that has already reported its failure
	c.events <- lost(3)
	c.events <- event{rank: 3, err: io.EOF}
	c.events <- event{rank: 2, err: io.EOF}
	err := c.await(t.Context(), "result", func(int, *rank.Message) bool { return true })
	var failed *RankError
	if !errors.As(err, &failed) || failed.Rank != 2 || failed.Node != "h2" {
		t.Errorf("the cause is %v, want rank 2", err)
	}

	// If no rank died, the cause is the first rank that lost its peer.
	c.events <- lost(1)
	c.events <- event{rank: 1, err: io.EOF}
	if err := c.await(t.Context(), "result", nil); !errors.As(err, &failed) || failed.Rank != 1 {
		t.Errorf("the cause is %v, want rank 1", err)
	}
}

// TestProtocolOrder checks that a rank which is ahead by one message waits. A rank that is ahead by
// two messages, or sends another message, broke the protocol.
func TestProtocolOrder(t *testing.T) {
	c := &coordinator{job: job(2, 4), events: make(chan event, 8), workers: make([]*workerProcess, 2)}
	done := &rank.Message{Done: &rank.Done{}}
	prepared := &rank.Message{Prepared: &rank.OperationID{Index: 1}}
	isDone := func(_ int, m *rank.Message) bool { return m.Done != nil }
	isPrepared := func(_ int, m *rank.Message) bool { return m.Prepared != nil }
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
	var failed *RankError
	if err := c.await(t.Context(), "result", isDone); !errors.As(err, &failed) || failed.Rank != 0 {
		t.Errorf("a rank two messages ahead: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.early = nil
	if err := c.await(ctx, "result", isDone); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that is cancelled: %v", err)
	}
}
