package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"railbed/transports/roce"
	"railbed/transports/roce/queuepair"
)

// Latency is a row of a latency test: times of half a round trip in microseconds. For a run with a
// duration only the average is known.
type Latency struct {
	Bytes      int     `json:"bytes"`
	Iterations uint64  `json:"iterations"`
	Min        float64 `json:"min"`
	Max        float64 `json:"max"`
	Typical    float64 `json:"typical"`
	Average    float64 `json:"average"`
	Deviation  float64 `json:"deviation"`
	P99        float64 `json:"p99"`
	P999       float64 `json:"p99_9"`
	// PerSecond is the number of round trips a second in a run with a duration.
	PerSecond float64 `json:"per_second,omitempty"`
}

// latencies runs a latency test: a message goes back and forth.
func (r *run) latencies(ctx context.Context) error {
	c := r.config
	if c.Test == WriteLat {
		stop, err := r.guard()
		if err != nil {
			return err
		}
		defer stop()
	}
	r.print.latencyHeader()
	for _, size := range c.sizes() {
		pong, err := r.pingPong(ctx, size)
		if err != nil {
			return err
		}
		row := pong.row(size, c)
		r.result.Latency = append(r.result.Latency, row)
		r.print.latency(&row)
	}
	if c.Test == SendLat { // the other tests end without it
		return r.sync()
	}
	return nil
}

// guard ends the run when the peer closes the dialogue early. The dialogue has no further messages,
// so only its end shows that the peer writes no more.
func (r *run) guard() (stop func(), err error) {
	r.talk.conn.SetDeadline(time.Time{})
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, r.talk.conn)
		select {
		case <-ended:
		case <-time.After(2 * time.Second): // its last packets are in flight
			r.device.Close()
		}
	}()
	return func() { close(ended) }, nil
}

// pingPong is the round trips of one size.
type pingPong struct {
	posted      []int64
	began, over int64
	rounds      uint64 // of a duration, within its margins
}

func (r *run) pingPong(ctx context.Context, size int) (*pingPong, error) {
	c, p := r.config, r.pairs[0]
	p.resize(size)
	if c.Test == SendLat {
		for range c.RxDepth {
			if err := p.receive(size); err != nil {
				return nil, err
			}
		}
		if err := r.sync(); err != nil {
			return nil, err
		}
	}
	if c.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Duration)
		defer cancel()
	}
	// The server of a WRITE test begins, the client of a SEND test.
	first := r.talk.client == (c.Test == SendLat)
	pong := &pingPong{began: now() + int64(c.Margin), over: math.MaxInt64}
	if c.Duration > 0 {
		pong.over = now() + int64(c.Duration)
	} else {
		pong.posted = make([]int64, 0, c.Iterations)
	}
	for round := 0; ; round++ {
		at := now()
		if c.Duration > 0 && at >= pong.over || c.Duration == 0 && round == c.Iterations {
			break
		}
		if round > 0 || !first {
			if err := r.await(ctx, p, size, byte(round+btoi(!first))); overtime(err, c) {
				break
			} else if err != nil {
				return nil, err
			}
		}
		if c.Duration == 0 {
			pong.posted = append(pong.posted, now())
		} else if at >= pong.began && at < pong.over-int64(c.Margin) {
			pong.rounds++
		}
		if c.Test == WriteLat {
			p.local[size-1] = byte(round + 1)
		}
		if _, err := p.Post(p.requests[0]); err != nil {
			return nil, err
		}
		if c.Test == WriteLat {
			if err := r.sentOne(ctx, p); overtime(err, c) {
				break
			} else if err != nil {
				return nil, err
			}
		}
	}
	if first && c.Duration == 0 {
		if err := r.await(ctx, p, size, byte(c.Iterations)); err != nil {
			return nil, err
		}
	}
	for c.Test == SendLat && c.Duration == 0 && p.done < c.Iterations {
		if err := r.reapOne(ctx, p, size); err != nil {
			return nil, err
		}
	}
	return pong, nil
}

// overtime reports whether err says that a duration ended.
func overtime(err error, c *Config) bool {
	return c.Duration > 0 && errors.Is(err, context.DeadlineExceeded)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// await waits for the message of a round.
func (r *run) await(ctx context.Context, p *pair, size int, want byte) error {
	if r.config.Test == WriteLat {
		broken := false
		err := p.region.Await(ctx, func(memory []byte) bool {
			if memory[size-1] == want {
				return true
			}
			select {
			case <-p.Ended():
				broken = true
			default:
			}
			return broken
		})
		if broken {
			return fmt.Errorf("%w: %w", errBroken, p.Err())
		}
		return err
	}
	for before := p.received; p.received == before; {
		if err := r.reapOne(ctx, p, size); err != nil {
			return err
		}
	}
	return nil
}

// sentOne waits until the peer has received the latest message.
func (r *run) sentOne(ctx context.Context, p *pair) error {
	for before := p.done; p.done == before; {
		if err := r.reapOne(ctx, p, 0); err != nil {
			return err
		}
	}
	return nil
}

// reapOne takes one completion.
func (r *run) reapOne(ctx context.Context, p *pair, size int) error {
	var one [1]roce.Completion
	for r.completions.Poll(one[:]) == 0 {
		if err := r.completions.Wait(ctx); err != nil {
			return err
		}
	}
	switch {
	case one[0].Err != nil:
		return fmt.Errorf("%v: %w", one[0].Op, errors.Join(one[0].Err, p.Err()))
	case one[0].Op == queuepair.Receive:
		if p.received++; r.config.Duration > 0 || p.received+r.config.RxDepth <= r.config.Iterations {
			return p.receive(size)
		}
	default:
		p.done++
	}
	return nil
}

// row computes the results as print_report_lat of perftest does. It leaves the two longest of the
// sorted times out of all figures but the maximum, which is the shorter of the two. Differences to
// the average are truncated to whole numbers.
func (p *pingPong) row(size int, c *Config) Latency {
	row := Latency{Bytes: size}
	if c.Duration > 0 {
		row.Iterations = p.rounds
		if sample := float64(c.Duration - 2*c.Margin); p.rounds > 0 {
			row.Average, row.PerSecond = sample/1e3/2/float64(p.rounds), float64(p.rounds)/(sample/1e9)
		}
		return row
	}
	const tail = 2
	row.Iterations = uint64(c.Iterations)
	var times []float64
	for i := range p.posted[1:] {
		times = append(times, float64(p.posted[i+1]-p.posted[i])/2e3)
	}
	slices.Sort(times)
	n := len(times) - tail
	row.Min, row.Max, row.Typical = times[0], times[n], times[n/2]
	if (n-1)%2 != 0 {
		row.Typical = (times[n/2] + times[n/2-1]) / 2
	}
	for _, t := range times[:n] {
		row.Average += t / float64(n)
	}
	squares := 0.0
	for _, t := range times[:n] {
		squares += math.Pow(math.Trunc(row.Average-t), 2)
	}
	row.Deviation = math.Sqrt(squares / float64(n))
	row.P99, row.P999 = times[int(math.Ceil(float64(n)*0.99))], times[int(math.Ceil(float64(n)*0.999))]
	return row
}
