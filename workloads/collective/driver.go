package collective

import (
	"context"
	"fmt"

	"railbed/transports"
)

// driver posts requests as the endpoint accepts them, and passes completions on.
type driver struct {
	endpoint transports.Endpoint
	// rank returns the rank of a peer, if the peer takes part.
	rank    func(transports.Peer) (int, bool)
	names   []int                // of ranks in errors; nil uses the ranks themselves
	pending []transports.Request // not accepted by the endpoint yet
	batch   [64]transports.Completion
}

// turn posts as many requests as the endpoint accepts, and handles the completions.
func (d *driver) turn(ctx context.Context, handle func(transports.Completion) error) error {
	if err := d.postPending(ctx); err != nil {
		return err
	}
	n := d.endpoint.Poll(d.batch[:])
	if n == 0 {
		return d.endpoint.Wait(ctx)
	}
	for _, c := range d.batch[:n] {
		if err := d.take(c, handle); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// post posts as many requests as the endpoint accepts. If some are left, it waits for room.
func (d *driver) post(ctx context.Context, handle func(transports.Completion) error) error {
	if err := d.postPending(ctx); err != nil || len(d.pending) == 0 {
		return err
	}
	return d.turn(ctx, handle)
}

// take handles a completion, or returns the failure of a peer or of a request. A peer that does not
// take part may fail.
func (d *driver) take(c transports.Completion, handle func(transports.Completion) error) error {
	if c.Op != transports.OpPeerDown && c.Err == nil {
		return handle(c)
	}
	rank, known := d.rank(c.Peer)
	switch {
	case known:
		return fmt.Errorf("rank %d: %w", d.name(rank), c.Err)
	case c.Op == transports.OpPeerDown:
		return nil
	}
	return c.Err
}

// rankIn returns a function that looks up the rank of a peer.
func rankIn(ranks map[transports.Peer]int) func(transports.Peer) (int, bool) {
	return func(p transports.Peer) (rank int, known bool) {
		rank, known = ranks[p]
		return rank, known
	}
}

// name returns the rank's number in errors.
func (d *driver) name(rank int) int {
	if len(d.names) == 0 {
		return rank
	}
	return d.names[rank]
}

func (d *driver) postPending(ctx context.Context) error {
	n, err := d.endpoint.Post(ctx, d.pending)
	if err != nil {
		return err
	}
	left := copy(d.pending, d.pending[n:])
	clear(d.pending[left:])
	d.pending = d.pending[:left]
	return nil
}
