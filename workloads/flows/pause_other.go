//go:build !linux

package flows

import (
	"context"
	"time"
)

type pauses struct{}

func newPauses() pauses { return pauses{} }

func (pauses) until(ctx context.Context, due time.Time) {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (pauses) close() {}
