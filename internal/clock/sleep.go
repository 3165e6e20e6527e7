package clock

import (
	"context"
	"time"
)

// Sleep waits for a real duration or until ctx ends. It reports whether the whole time has passed.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
