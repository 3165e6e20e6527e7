package perftest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"railbed/transports/roce"
	"railbed/transports/roce/queuepair"
)

// Bandwidth is a row of a bandwidth test. If both ends send, it is of both together.
type Bandwidth struct {
	Bytes      int    `json:"bytes"`
	Iterations uint64 `json:"iterations"`
	// Peak and Average are in MiB/s, or in Gb/s with Config.Gigabits.
	Peak    float64 `json:"peak"`
	Average float64 `json:"average"`
	// Messages is in millions a second.
	Messages float64 `json:"messages"`
}

// measure runs the test once all queue pairs are connected.
func (r *run) measure(ctx context.Context) error {
	if r.config.Test.Latency() {
		return r.latencies(ctx)
	}
	r.print.bandwidthHeader()
	c := r.config
	sends := r.talk.client || c.Bidirectional
	receives := c.Test == SendBW && (!r.talk.client || c.Bidirectional)
	if !sends && !receives {
		return r.watch()
	}
	var mine Report
	for _, size := range c.sizes() {
		if err := r.begin(size, receives); err != nil {
			return err
		}
		e := exchange{run: r, size: size, sends: sends, receives: receives}
		err := e.carryOut(ctx)
		if err != nil {
			return err
		}
		mine = e.report()
		if err := r.end(size, mine, e.closing); err != nil {
			return err
		}
		if e.closing {
			return nil
		}
	}
	if !c.Bidirectional && c.Test != SendBW {
		if err := r.sync(); err != nil {
			return err
		}
		if _, err := r.talk.report(mine); err != nil {
			return err
		}
	}
	return r.sync()
}

// watch is the server's part of a test that the client carries out alone: it receives the report.
func (r *run) watch() error {
	if err := r.sync(); err != nil {
		return err
	}
	theirs, err := r.talk.report(Report{})
	if err != nil {
		return err
	}
	r.row(theirs, theirs.Average < 0.1)
	if err := r.verifyAll(int(min(theirs.Size, uint64(len(r.pairs[0].local))))); err != nil {
		return err
	}
	return r.sync()
}

// sync waits for the other end.
func (r *run) sync() error { return r.talk.wait(&r.pairs[0].mine) }

// begin prepares a size, and waits for the other end if that takes part.
func (r *run) begin(size int, receives bool) error {
	for _, p := range r.pairs {
		p.resize(size)
		for range r.config.RxDepth {
			if !receives {
				break
			}
			if err := p.receive(size); err != nil {
				return err
			}
		}
	}
	if r.config.Bidirectional || r.config.Test == SendBW {
		return r.sync()
	}
	return nil
}

// receive posts a receive.
func (p *pair) receive(size int) error {
	return p.PostReceive(uint64(p.index), p.shared[:size])
}

// end ends a size. closed is set if the other end has sent its last message already.
func (r *run) end(size int, mine Report, closed bool) error {
	c := r.config
	small := mine.Average < 0.1
	if c.All && c.Bidirectional && c.Test != SendBW {
		if err := r.sync(); err != nil {
			return err
		}
	}
	if c.Bidirectional && (c.Test != SendBW || c.Duration == 0) {
		theirs, err := r.talk.report(mine)
		if err != nil {
			return err
		}
		mine.Peak, mine.Average, mine.Messages = mine.Peak+theirs.Peak, mine.Average+theirs.Average,
			mine.Messages+theirs.Messages
	}
	if err := r.verifyAll(size); err != nil {
		return err
	}
	r.row(mine, small)
	if c.All && c.Test == SendBW && !closed {
		return r.sync()
	}
	return nil
}

// row records and prints one row.
func (r *run) row(one Report, small bool) {
	b := Bandwidth{Bytes: int(one.Size), Iterations: one.Iterations, Peak: one.Peak, Average: one.Average,
		Messages: one.Messages}
	r.result.Bandwidth = append(r.result.Bandwidth, b)
	r.print.bandwidth(&b, small)
}

// exchange is the transfer of all messages of one size.
type exchange struct {
	*run
	size            int
	sends, receives bool
	total           int  // messages each way; 0 for a duration
	closing         bool // the peer has sent its last message

	posted, completed   []int64 // times of messages sent or received; for the peak
	nPosted, nCompleted int
	began, first, last  int64
	counted             int   // messages within a duration's margins
	from, until, stop   int64 // for a duration: measured from from until until; ends at stop
}

var errBroken = errors.New("the queue pair is broken")

// carryOut sends and receives all messages.
func (e *exchange) carryOut(ctx context.Context) error {
	c := e.config
	if c.Duration == 0 {
		e.total = c.Iterations * c.QueuePairs
	}
	if !c.NoPeak {
		e.posted, e.completed = make([]int64, e.total), make([]int64, e.total)
	}
	var closed chan error
	if c.Duration > 0 {
		if e.sends {
			e.start(now())
		}
		if !c.Infinitely {
			ctx2, cancel := context.WithTimeout(ctx, c.Duration+patience)
			defer cancel()
			ctx = ctx2
		}
		if !e.sends { // until the client says that it is done
			closed = make(chan error, 1)
			go func() { closed <- e.sync() }()
		}
	}
	e.began = now()
	e.first = e.began
	for {
		if e.sends {
			if err := e.post(); err != nil {
				return err
			}
		}
		if at := now(); c.Infinitely && e.stop > 0 && at >= e.stop {
			one := e.report()
			e.row(one, one.Average < 0.1)
			e.start(at)
		}
		ended, err := e.ended(closed)
		if ended || err != nil {
			return err
		}
		if err := e.reap(ctx, closed); err != nil {
			return err
		}
	}
}

// start sets the margins of a duration that begins at a time.
func (e *exchange) start(at int64) {
	c := e.config
	e.counted = 0
	e.from, e.stop = at+int64(c.Margin), at+int64(c.Duration)
	e.until = e.stop - int64(c.Margin)
}

// ended reports whether the exchange is done.
func (e *exchange) ended(closed chan error) (bool, error) {
	if closed != nil {
		select {
		case err := <-closed:
			e.closing = true
			return true, err
		default:
			return false, nil
		}
	}
	if e.total == 0 {
		return now() >= e.stop, nil
	}
	for _, p := range e.pairs {
		if e.sends && p.done < e.config.Iterations || e.receives && p.received < e.config.Iterations {
			return false, nil
		}
	}
	return true, nil
}

// post posts as many requests as there is room for.
func (e *exchange) post() error {
	c := e.config
	for _, p := range e.pairs {
		n := c.TxDepth - (p.sent - p.done)
		if e.total > 0 {
			n = min(n, c.Iterations-p.sent)
		}
		if c.PostList > 1 && n > c.PostList {
			n -= n % c.PostList
		}
		if n == 0 {
			continue
		}
		at := now()
		if _, err := p.Post(p.requests[:n]...); err != nil {
			return err
		}
		p.sent += n
		for i := range n {
			if e.posted != nil {
				e.posted[e.nPosted+i] = at
			}
		}
		e.nPosted += n
	}
	return nil
}

// reap waits for completions, and counts them.
func (e *exchange) reap(ctx context.Context, closed chan error) error {
	if e.total == 0 { // to check the time and the other end's last message
		brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		if err := e.completions.Wait(brief); errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil
		} else if err != nil {
			return err
		}
	} else if err := e.completions.Wait(ctx); err != nil {
		return err
	}
	n := e.completions.Poll(e.done[:])
	at := now()
	for i := range e.done[:n] {
		if err := e.completion(&e.done[i], at); err != nil {
			return err
		}
	}
	return nil
}

func (e *exchange) completion(c *roce.Completion, at int64) error {
	p := e.pairs[c.ID]
	came := c.Op == queuepair.Receive
	switch {
	case c.Err != nil:
		if why := p.Err(); why != nil {
			return fmt.Errorf("%v: %w", c.Op, why)
		}
		return fmt.Errorf("%v: %w", c.Op, c.Err)
	case came:
		if p.received++; e.receives && (e.total == 0 || p.received+e.config.RxDepth <= e.config.Iterations) {
			if err := p.receive(e.size); err != nil {
				return err
			}
		}
		if p.received == 1 && e.total == 0 && !e.sends {
			e.start(at)
		}
		if e.nPosted == 0 && !e.sends { // a receiver's time begins with the first message
			e.first = at
			e.nPosted = 1
		}
	default:
		p.done++
	}
	if came != e.sends { // the direction that is measured
		e.last = at
		if e.completed != nil && e.nCompleted < len(e.completed) {
			e.completed[e.nCompleted] = at
			if !e.sends {
				e.posted[e.nCompleted] = at
			}
		}
		e.nCompleted++
		if at >= e.from && at < e.until {
			e.counted++
		}
	}
	return nil
}

// report computes the results as print_report_bw of perftest does. The time runs from the first
// request to the last completion. The peak is the best rate between any request and any later
// moderated completion.
func (e *exchange) report() Report {
	unit := float64(1 << 20)
	if e.config.Gigabits {
		unit = 125e6
	}
	messages, took := e.nCompleted, e.last-e.first
	if took == 0 { // all arrived at once
		took = e.last - e.began
	}
	if e.total == 0 {
		messages, took = e.counted, e.until-e.from
	}
	r := Report{Size: uint64(e.size), Iterations: uint64(messages)}
	if took > 0 {
		seconds := float64(took) / 1e9
		r.Average, r.Messages = float64(messages)*float64(e.size)/seconds/unit, float64(messages)/seconds/1e6
	}
	if best := peak(e.posted, e.completed, e.config.CQModeration); best > 0 {
		r.Peak = float64(e.size) / best * 1e9 / unit
	}
	return r
}

// peak returns the least time of a message, in nanoseconds, between a request and a moderated
// completion. It returns 0 if no times were recorded.
func peak(posted, completed []int64, moderation int) (best float64) {
	n := len(posted)
	for i := range n {
		for j := (i/moderation+1)*moderation - 1; ; j += moderation {
			j = min(j, n-1)
			if t := float64(completed[j]-posted[i]) / float64(j-i+1); t > 0 && (best == 0 || t < best) {
				best = t
			}
			if j == n-1 {
				break
			}
		}
	}
	return best
}
