package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netns"
)

// Each calls fn once for every namespace, with its index, on an OS thread inside the namespace. It
// uses at most parallel threads at a time; fn must be safe for that. It stops early when ctx ends
// or a call fails, waits for the calls in progress, and returns the errors joined.
func Each(ctx context.Context, namespaces []*Namespace, parallel int, fn func(i int) error) error {
	var next atomic.Int64
	var lock sync.Mutex
	var errs []error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	work := func() error {
		for ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= len(namespaces) {
				return nil
			}
			if err := netns.Set(namespaces[i].handle); err != nil {
				return fmt.Errorf("enter network namespace: %w", err)
			}
			if err := fn(i); err != nil {
				return err
			}
		}
		return context.Cause(ctx)
	}
	var group sync.WaitGroup
	for range min(max(parallel, 1), len(namespaces)) {
		group.Go(func() {
			if err := onThread(work); err != nil {
				lock.Lock()
				defer lock.Unlock()
				if len(errs) == 0 || !errors.Is(err, context.Canceled) {
					errs = append(errs, err)
				}
				cancel()
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
