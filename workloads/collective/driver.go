package collective

import (
	"context"

	"railbed/transports"
)

// driver posts requests as the endpoint takes them and hands out what completes.
type driver struct {
	endpoint transports.Endpoint
	pending  []transports.Request // not taken by the endpoint yet
	batch    [64]transports.Completion
}

// turn posts what can be posted, and handles what has happened.
func (d *driver) turn(ctx context.Context, handle func(transports.Completion) error) error {
	if err := d.postPending(ctx); err != nil {
		return err
	}
	n := d.endpoint.Poll(d.batch[:])
	if n == 0 {
		return d.endpoint.Wait(ctx)
	}
	for _, c := range d.batch[:n] {
		if err := handle(c); err != nil {
			return err
		}
	}
	return ctx.Err()
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
