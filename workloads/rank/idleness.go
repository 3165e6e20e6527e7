package rank

import (
	"context"
	"slices"
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
	log    waitLog
}

// Wait implements transports.Endpoint.
func (t *waitTimer) Wait(ctx context.Context) error {
	begin := time.Now()
	err := t.endpoint.Wait(ctx)
	end := time.Now()
	t.waited.Add(int64(end.Sub(begin)))
	t.log.add(begin, end)
	return err
}

// Wait is a time in which a rank waited for other ranks, in ns from the begin of a round.
type Wait struct {
	From time.Duration `json:"from"`
	To   time.Duration `json:"to"`
}

// waitLog keeps the waits of a round, at most waitsKept of them. If there are more, waits that follow each
// other closely become one. It is safe for concurrent use.
type waitLog struct {
	mu    sync.Mutex
	began time.Time
	waits []Wait
	gap   time.Duration // between waits that become one
}

const (
	waitsKept = 32
	// leastGap is shorter than the handling of a message.
	leastGap = time.Microsecond
)

// begin forgets all waits and starts a round.
func (l *waitLog) begin(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.waits, l.gap = at, l.waits[:0], leastGap
}

func (l *waitLog) add(from, to time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits = joinWaits(l.waits, Wait{from.Sub(l.began), to.Sub(l.began)}, l.gap)
	for len(l.waits) > waitsKept {
		l.gap *= 2
		all := l.waits
		l.waits = l.waits[:0]
		for _, w := range all {
			l.waits = joinWaits(l.waits, w, l.gap)
		}
	}
}

// joinWaits adds a wait that begins after the others.
func joinWaits(waits []Wait, w Wait, gap time.Duration) []Wait {
	if last := len(waits) - 1; last >= 0 && w.From <= waits[last].To+gap {
		waits[last].To = max(waits[last].To, w.To)
		return waits
	}
	return append(waits, w)
}

// end returns the waits since begin.
func (l *waitLog) end() []Wait {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.waits)
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
