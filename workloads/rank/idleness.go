package rank

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Busy returns the rank's Idleness. A Work that waits in several goroutines counts them there.
func (p *Process) Busy() *Idleness { return &p.busy }

// SetWaited sets the time for which the rank has waited for others over its whole life. It is for a Work
// that uses no Lane.
func (p *Process) SetWaited(waited time.Duration) { p.timer.waited.Store(int64(waited)) }

// waitTimer is an endpoint that measures how long its rank has waited for other ranks.
type waitTimer struct {
	endpoint
	waited atomic.Int64 // in ns
}

// Wait implements transports.Endpoint.
func (t *waitTimer) Wait(ctx context.Context) error {
	begin := time.Now()
	err := t.endpoint.Wait(ctx)
	t.waited.Add(int64(time.Since(begin)))
	return err
}

// busyEndpoint is the endpoint of a lane. It marks its goroutine idle while the goroutine waits.
type busyEndpoint struct {
	endpoint
	busy *Idleness
}

// Wait implements transports.Endpoint.
func (e *busyEndpoint) Wait(ctx context.Context) error {
	e.busy.Add(-1)
	defer e.busy.Add(1)
	return e.endpoint.Wait(ctx)
}

// Idleness measures the time in which all of a rank's goroutines were idle: all of them waited, for other
// ranks or for time to pass. The goroutine that calls Part.Operate is marked busy. Methods are safe for
// concurrent use.
type Idleness struct {
	mu     sync.Mutex
	busy   int
	since  time.Time // since when busy is 0
	waited time.Duration
}

// begin starts a measurement, with all goroutines idle.
func (w *Idleness) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy, w.since, w.waited = 0, time.Now(), 0
}

// Add counts a goroutine that becomes busy (1) or idle (-1). It does nothing on a nil Idleness.
func (w *Idleness) Add(one int) {
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

// Late subtracts the time by which a timer fired late from the idle time, if all goroutines are
// idle.
func (w *Idleness) Late(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy == 0 {
		w.waited -= by
	}
}

// end returns how long all goroutines were idle since begin.
func (w *Idleness) end() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy == 0 {
		w.waited += time.Since(w.since)
	}
	return w.waited
}
