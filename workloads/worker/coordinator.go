package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"railbed/internal/frame"
	"railbed/workloads/rank"
)

const (
	// causeGrace is how long the coordinator looks for the cause after a rank's end: the neighbours
	// of a dead worker often report their failure before its own end is seen.
	causeGrace = 2 * time.Second
	// launchesAtOnce limits how many workers start at the same time.
	launchesAtOnce = 16
)

// RankError is the error of a job that failed because of one rank.
type RankError struct {
	Rank int
	Node string
	Err  error
}

// Error implements error.
func (e *RankError) Error() string { return fmt.Sprintf("rank %d on %s: %v", e.Rank, e.Node, e.Err) }

// Unwrap returns the reason.
func (e *RankError) Unwrap() error { return e.Err }

// Run runs a job to its end: it starts one worker per rank and lets the workers exchange their
// addresses. It starts each operation when all ranks are ready for it, and collects the results. If
// a worker fails, Run ends all workers and returns a RankError for the worker that failed first. If
// ctx or the job's timeout ends, the error lists the ranks that Run was waiting for. When Run
// returns, all workers have exited. progress may be nil. Run calls it from one goroutine, after
// each round.
func Run(ctx context.Context, job Job, l Launcher, progress func(Progress)) (*Result, error) {
	job, err := job.withDefaults()
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	ctx, cancel := context.WithTimeout(ctx, job.Timeout)
	defer cancel()
	c := &coordinator{
		job:      job,
		progress: progress,
		events:   make(chan event),
		stopped:  make(chan struct{}),
		workers:  make([]*workerProcess, len(job.Ranks)),
		gone:     make(chan struct{}, len(job.Ranks)),
	}
	ctx, stop, err := c.arbitrate(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("run workload %s: %w", job.Name, err)
	}
	err = c.launch(ctx, l)
	var result *Result
	if err == nil {
		c.goroutines.Go(c.watch)
		result, err = c.conduct(ctx)
	}
	err = errors.Join(err, c.end(err != nil), stop())
	if err != nil {
		return nil, fmt.Errorf("run workload %s: %w", job.Name, err)
	}
	return result, nil
}

// workerProcess is one rank as the coordinator sees it.
type workerProcess struct {
	process Process
	out     chan []byte   // read by the goroutine that writes to the worker
	ended   chan struct{} // closed when Wait returned
	status  error         // of Wait; read after ended
	pulse   pulse
}

// event is a message from a rank, or the end of its channel.
type event struct {
	rank    int
	message *rank.Message
	err     error
}

type coordinator struct {
	job      Job
	lossy    bool // parts of sums may be left out
	progress func(Progress)
	workers  []*workerProcess
	events   chan event
	gone     chan struct{} // receives one value per worker that has ended
	stopped  chan struct{} // closed when the coordinator takes no more events
	// early holds messages that ranks sent before the other ranks had sent the message before.
	early      map[int]*rank.Message
	goroutines sync.WaitGroup
}

func (c *coordinator) rankError(rank int, err error) error {
	return &RankError{Rank: rank, Node: c.job.Ranks[rank].Node, Err: err}
}

// launch starts all workers, or returns the error of the first worker that does not start.
func (c *coordinator) launch(ctx context.Context, l Launcher) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(launchesAtOnce)
	for i, rank := range c.job.Ranks {
		group.Go(func() error {
			number := rank.Rank
			if len(c.job.Numbers) > 0 {
				number = c.job.Numbers[i]
			}
			process, err := l.Launch(ctx, rank.Node, append(Args(), "RANK="+strconv.Itoa(number)))
			if err != nil {
				return c.rankError(i, fmt.Errorf("start worker: %w", err))
			}
			// At most the configuration, the table, a start and the end are on their way at once,
			// so sending never blocks.
			w := &workerProcess{process: process, out: make(chan []byte, 4), ended: make(chan struct{}),
				pulse: pulse{ask: make(chan struct{}, 1)}}
			c.workers[i] = w
			c.goroutines.Go(func() { c.read(i, w) })
			c.goroutines.Go(func() { c.write(i, w) })
			c.goroutines.Go(func() {
				w.status = process.Wait()
				close(w.ended)
				c.gone <- struct{}{}
			})
			return nil
		})
	}
	return group.Wait()
}

func (c *coordinator) read(from int, w *workerProcess) {
	in := frame.NewReader(w.process.Channel())
	for {
		m, err := rank.ReadMessage(in)
		if err == nil && w.pulse.take(m) {
			continue
		}
		select {
		case c.events <- event{rank: from, message: m, err: err}:
		case <-c.stopped:
			return
		}
		// After its last message a worker may close the channel.
		if err != nil || m.Finished != nil {
			return
		}
	}
}

// broadcast sends one message to all, encoded once.
func (c *coordinator) broadcast(m rank.Message) error {
	payload, err := json.Marshal(m)
	if err != nil {
		return err
	}
	for _, w := range c.workers {
		w.out <- payload
	}
	return nil
}

// conduct takes the workers through the job.
func (c *coordinator) conduct(ctx context.Context) (*Result, error) {
	configs := make([]*rank.Config, len(c.workers))
	for i, w := range c.workers {
		configs[i] = c.job.config(i)
		payload, err := json.Marshal(rank.Message{Config: configs[i]})
		if err != nil {
			return nil, err
		}
		w.out <- payload
	}
	c.lossy = configs[0].Lossy()
	result := &Result{
		Name: c.job.Name, Kind: c.job.Kind, Algorithm: c.job.Chosen(), Transport: c.job.Transport,
		Ranks: len(c.job.Ranks), PerRank: make([]RankResult, len(c.job.Ranks)),
	}
	result.Own = c.job.Work.results(&c.job)
	for i, r := range c.job.Ranks {
		result.PerRank[i] = RankResult{Rank: i, Node: r.Node, NIC: r.NIC, SecondNIC: r.SecondNIC,
			Addr: c.job.addr(r), Port: configs[i].Port}
	}
	table := make([]rank.Rendezvous, len(c.workers))
	err := c.await(ctx, "rendezvous", func(rank int, m *rank.Message) bool {
		if m.Ready == nil {
			return false
		}
		table[rank], result.PerRank[rank].PID = *m.Ready, m.Ready.PID
		return true
	})
	if err != nil {
		return nil, err
	}
	if err := c.broadcast(rank.Message{Table: table}); err != nil {
		return nil, err
	}
	rounds := configs[0].Rounds()
	for i := range rounds {
		if err := c.round(ctx, &rounds[i], result); err != nil {
			return nil, err
		}
		p := Progress{Done: i + 1, Total: len(rounds), Operation: result.Operations[i], Ranks: result.PerRank}
		if i+1 == len(rounds) || rounds[i+1].Size != rounds[i].Size {
			result.addRow(c.job, rounds, rounds[i].Size)
			p.Row = &result.Rows[len(result.Rows)-1]
		}
		c.progress(p)
	}
	if err := c.broadcast(rank.Message{End: &struct{}{}}); err != nil {
		return nil, err
	}
	err = c.await(ctx, "end", func(rank int, m *rank.Message) bool {
		if m.Finished == nil {
			return false
		}
		r := &result.PerRank[rank]
		r.Stream, r.Flows, r.DeviceBound, r.Engines, r.Pace = m.Finished.Stream, m.Finished.Flows,
			m.Finished.DeviceBound, m.Finished.Engines, m.Finished.Pace
		r.Life, r.QueuePairs, r.Repeats = m.Finished.Life, m.Finished.QueuePairs, m.Finished.Repeats
		r.addChannels(c.job, m.Finished.Channels)
		r.SlowestAnswer = time.Duration(c.workers[rank].pulse.slowest.Load())
		return true
	})
	return result, err
}

// round starts a round when all ranks are ready and adds up their results.
func (c *coordinator) round(ctx context.Context, r *rank.Round, result *Result) error {
	id := r.OperationID
	o := Operation{Index: id.Index, Mode: id.Mode, Size: c.job.sizes()[r.Size], Count: r.Count,
		Timed: r.Timed, Checked: r.Check}
	times, dones := make([]time.Duration, len(c.job.Ranks)), make([]rank.Done, len(c.job.Ranks))
	name := fmt.Sprintf("%v operation %d", o.Mode, o.Index)
	err := c.await(ctx, "data of "+name, func(_ int, m *rank.Message) bool {
		return m.Prepared != nil && *m.Prepared == id
	})
	if err != nil {
		return err
	}
	released := time.Now()
	if err := c.broadcast(rank.Message{Start: &id}); err != nil {
		return err
	}
	if c.lossy {
		if err := c.gatherLosses(ctx, id, name); err != nil {
			return err
		}
	}
	err = c.await(ctx, "result of "+name, func(rank int, m *rank.Message) bool {
		if m.Done == nil || m.Done.OperationID != id {
			return false
		}
		o.add(*m.Done)
		times[rank], dones[rank] = m.Done.Time, *m.Done
		r := &result.PerRank[rank]
		r.Wrong += m.Done.Wrong
		r.Payload.Add(m.Done.Before)
		r.Payload.Add(m.Done.Traffic)
		r.Warmup.Add(m.Done.Before)
		if o.Timed {
			r.Timed, r.Waited = r.Timed+m.Done.Time, r.Waited+m.Done.Waited
		} else {
			r.Warmup.Add(m.Done.Traffic)
		}
		return true
	})
	if err != nil {
		return err
	}
	ended := time.Now()
	o.Time = c.job.average().of(times) / time.Duration(r.Count)
	if result.Own != nil {
		if err := result.Own.add(&o, dones, released, ended); err != nil {
			return fmt.Errorf("result of %s: %w", name, err)
		}
	}
	result.Operations = append(result.Operations, o)
	if o.Timed && !slices.ContainsFunc(dones, func(d rank.Done) bool {
		return !within(&d, released, ended, clockMargin)
	}) {
		result.keepSpans(&o, dones)
	}
	return nil
}

// gatherLosses collects each rank's losses and sends all of them to all ranks.
func (c *coordinator) gatherLosses(ctx context.Context, id rank.OperationID, name string) error {
	lost := rank.Losses{OperationID: id}
	err := c.await(ctx, "losses of "+name, func(_ int, m *rank.Message) bool {
		if m.Reduced == nil || m.Reduced.OperationID != id {
			return false
		}
		lost.Losses = append(lost.Losses, m.Reduced.Losses...)
		return true
	})
	if err != nil {
		return err
	}
	return c.broadcast(rank.Message{Lost: &lost})
}

func (o *Operation) add(d rank.Done) {
	if start := time.Unix(0, d.Start); o.Start.IsZero() || start.Before(o.Start) {
		o.Start = start
	}
	o.Wrong += d.Wrong
	o.Short = max(o.Short, d.Short)
	o.Missing += d.Traffic.Missing
}

// await waits until take has accepted one message from each rank.
func (c *coordinator) await(ctx context.Context, what string,
	take func(rank int, m *rank.Message) bool) error {
	waiting := make(map[int]bool)
	accept := func(rank int, m *rank.Message) error {
		if !take(rank, m) {
			return c.rankError(rank, fmt.Errorf("want the %s, got another message", what))
		}
		delete(waiting, rank)
		return nil
	}
	early := c.early
	c.early = make(map[int]*rank.Message)
	for i := range c.workers {
		waiting[i] = true
		if m := early[i]; m != nil {
			if err := accept(i, m); err != nil {
				return err
			}
		}
	}
	for len(waiting) > 0 {
		select {
		case e := <-c.events:
			if err, _ := c.failure(e); err != nil {
				return c.cause(e)
			}
			if !waiting[e.rank] && c.early[e.rank] == nil {
				c.early[e.rank] = e.message
				continue
			}
			if err := accept(e.rank, e.message); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for the %s of %s: %w", what, c.names(waiting), c.contextError(ctx))
		}
	}
	return nil
}

func (c *coordinator) contextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("timeout of %v or an earlier deadline: %w", c.job.Timeout, ctx.Err())
	}
	if cause := context.Cause(ctx); errors.Is(cause, errArbiter) {
		return cause
	}
	return ctx.Err()
}

// names lists ranks for people, and only the first few if there are many.
func (c *coordinator) names(ranks map[int]bool) string {
	const most = 4
	var names []string
	for i, r := range c.job.Ranks {
		if ranks[i] {
			names = append(names, fmt.Sprintf("rank %d on %s", i, r.Node))
		}
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// failure returns the error that an event reports, if any, and whether the error only follows from
// the failure of another rank.
func (c *coordinator) failure(e event) (err error, follows bool) {
	switch {
	case e.err != nil:
		return c.rankError(e.rank, c.endOf(e.rank, e.err)), false
	case e.message.Failed != nil:
		return c.rankError(e.rank, errors.New(e.message.Failed.Error)), e.message.Failed.Peer
	}
	return nil, false
}

// endOf returns the error with which a worker's channel and process ended.
func (c *coordinator) endOf(rank int, err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.New("the worker ended without an error message")
	}
	w := c.workers[rank]
	select {
	case <-w.ended:
		if w.status != nil {
			return fmt.Errorf("%w: %w", err, w.status)
		}
	case <-time.After(causeGrace):
	}
	return err
}

// cause returns the first cause after a failure. A rank that failed by itself comes before a rank
// that lost its peer.
func (c *coordinator) cause(first event) error {
	err, follows := c.failure(first)
	grace := time.NewTimer(causeGrace)
	defer grace.Stop()
	ended := map[int]bool{first.rank: true}
	for follows {
		select {
		case e := <-c.events:
			better, alsoFollows := c.failure(e)
			// The end of the channel after a worker's last message is not a new failure.
			if better != nil && !alsoFollows && !ended[e.rank] {
				return better
			}
			ended[e.rank] = ended[e.rank] || better != nil
		case <-grace.C:
			if rank := c.silentRank(); rank >= 0 {
				return c.rankError(rank, errSilent)
			}
			return err
		}
	}
	return err
}
