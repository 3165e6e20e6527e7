// Package worker runs collectives as real processes, one per rank. Run is the coordinator: it
// starts the worker processes, lets them exchange their addresses, and collects their results. Main
// is the worker process: the railbed binary, started again inside a node.
//
// Coordinator and workers communicate over one channel per worker, never over the network under
// test. So the emulated links carry the workload and nothing else.
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"railbed/internal/frame"
	"railbed/transports"
	"railbed/workloads/collective"
)

// channelFD is the descriptor on which a worker process inherits its channel.
const channelFD = 3

// Inherited returns the channel that the parent process passed to this process on descriptor
// ChannelFD.
func Inherited() (channel, error) {
	// Only a non-blocking descriptor can be closed while a reader waits on it.
	if err := syscall.SetNonblock(channelFD, true); err != nil {
		return nil, fmt.Errorf("open channel on descriptor %d: %w (workers are started by railbed)",
			channelFD, err)
	}
	return os.NewFile(channelFD, "channel"), nil
}

// Main is the process of one rank. It reads its configuration from the channel, does what the
// configuration says, closes the channel and returns the exit code. It sends errors to the
// coordinator. An error that it cannot send goes to stderr.
func Main(channel channel, stderr io.Writer) int {
	return run(channel, stderr, hooks{configured: shareProcessors})
}

// shareProcessors limits the Go runtime of this process to the rank's share of the processors.
// Threads of one rank that wake each other on another rank's processor cost both ranks more than
// they gain. shareProcessors does so only over TCP: the other transports have an engine that works
// beside the rank.
func shareProcessors(c *workerConfig) {
	if c.Transport == TCP {
		runtime.GOMAXPROCS(max(1, runtime.NumCPU()/max(1, c.Ranks)))
	}
}

// hooks are functions that run only where a rank is a process of its own, or only in this package's
// tests.
type hooks struct {
	// configured is called before the rank opens any endpoint.
	configured func(*workerConfig)
	// beforeOperation is called within the measured time of a round.
	beforeOperation func(rank int, id operationID)
	// afterOperation receives a result before the rank checks it.
	afterOperation func(rank int, id operationID, result []byte)
}

var errChannelClosed = errors.New("the channel to the coordinator closed")

func run(channel channel, stderr io.Writer, h hooks) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	w := &rank{hooks: h, out: frame.NewWriter(channel), messages: make(chan *message)}
	reader := make(chan struct{})
	go func() {
		defer close(reader)
		w.read(ctx, channel, cancel)
	}()
	err := w.work(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errChannelClosed) {
		err = context.Cause(ctx)
	}
	code := 0
	if err != nil {
		code = 1
		failed := &workerFailed{Error: err.Error(), Peer: errors.Is(err, transports.ErrPeerFailed)}
		if w.send(message{Failed: failed}) != nil {
			fmt.Fprintln(stderr, "railbed worker:", err)
		}
	}
	for _, l := range w.lanes {
		l.endpoint.Close() // after the message above: the other ranks notice the close
	}
	cancel(nil)
	channel.Close()
	<-reader
	return code
}

// rank is one worker process.
type rank struct {
	hooks    hooks
	out      *frame.Writer
	messages chan *message
	config   workerConfig
	timer    *waitTimer // the endpoint, if the rank has one endpoint
	busy     idleness
	// concurrent is set if several goroutines wait, so that busy measures how long the rank waits.
	concurrent bool
	// counting is set if the users of the endpoints add their waiting to busy themselves.
	counting bool
	lane             // used by a rank without channels
	lanes    []*lane // one per channel, or only the embedded lane
	// setBusyPoll is SetBusyPoll of the endpoint, or nil if the endpoint has none.
	setBusyPoll func(time.Duration)
}

// read passes messages to next until the channel ends. Then it cancels the worker's context.
func (w *rank) read(ctx context.Context, channel io.Reader, cancel context.CancelCauseFunc) {
	in := frame.NewReader(channel)
	for {
		m, err := readMessage(in)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				err = fmt.Errorf("%w: %w", errChannelClosed, err)
			} else {
				err = errChannelClosed
			}
			cancel(err)
			return
		}
		if m.Alive != nil {
			_ = w.send(*m) // if this fails, the next read returns the reason
			continue
		}
		select {
		case w.messages <- m:
		case <-ctx.Done():
			return
		}
	}
}

func (w *rank) send(m message) error { return w.out.WriteJSON(frame.Message, m) }

// next waits for the coordinator's next message.
func (w *rank) next(ctx context.Context) (*message, error) {
	select {
	case m := <-w.messages:
		return m, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (w *rank) work(ctx context.Context) error {
	m, err := w.next(ctx)
	if err != nil {
		return err
	}
	if m.Config == nil {
		return errors.New("the first message is no configuration")
	}
	w.config = *m.Config
	if w.config.Work.rankWork == nil {
		return errors.New("the configuration has no work")
	}
	if w.hooks.configured != nil {
		w.hooks.configured(&w.config)
	}
	w.timer = &waitTimer{}
	return w.config.Work.run(ctx, w)
}

// meet sends this rank's rendezvous to the coordinator and returns the table of all ranks'
// rendezvous.
func (w *rank) meet(ctx context.Context, own *rendezvous) ([]rendezvous, error) {
	if own.PID = os.Getpid(); w.endpoint != nil {
		own.Address = w.endpoint.Address()
	}
	if err := w.send(message{Ready: own}); err != nil {
		return nil, err
	}
	m, err := w.next(ctx)
	if err != nil {
		return nil, err
	}
	if len(m.Table) != w.config.Ranks {
		return nil, fmt.Errorf("table of %d ranks, want %d", len(m.Table), w.config.Ranks)
	}
	return m.Table, nil
}

// end waits for the coordinator's message that all ranks are done.
func (w *rank) end(ctx context.Context) error {
	m, err := w.next(ctx)
	if err == nil && m.End == nil {
		err = errors.New("the coordinator sent something else than the end")
	}
	return err
}

// Parameters of Sweep.BusyPoll: the largest result of an operation for which a rank polls, and the
// polling time. Up to this size a message arrives sooner than a sleep and a wake-up take.
const (
	busyPollBytes = 32 << 10
	busyPollTime  = 100 * time.Microsecond
)

// round does the operations of a round. The time that it reports includes neither filling the data
// before them nor the check after them.
func (w *rank) round(ctx context.Context, p part, output []byte, r *round) error {
	id := r.operationID
	p.fill(id)
	if err := w.send(message{Prepared: &id}); err != nil {
		return err
	}
	m, err := w.next(ctx)
	if err != nil {
		return err
	}
	if m.Start == nil || *m.Start != id {
		return fmt.Errorf("the coordinator did not start operation %d", id.Index)
	}
	done := &operationDone{operationID: id}
	last := r.before + r.count - 1
	if w.setBusyPoll != nil && w.config.BusyPoll && last > 0 && len(output) <= busyPollBytes {
		w.setBusyPoll(busyPollTime)
		defer w.setBusyPoll(0)
	}
	for i := range r.before {
		t, err := p.operate(ctx, id, i < last)
		if err != nil {
			return err
		}
		addTraffic(&done.Before, t)
	}
	start, waited := time.Now(), w.timer.waited.Load()
	w.busy.begin()
	w.busy.add(1)
	if w.hooks.beforeOperation != nil {
		w.hooks.beforeOperation(w.config.Rank, id)
	}
	for i := range r.count {
		t, err := p.operate(ctx, id, r.before+i < last)
		if err != nil {
			return err
		}
		addTraffic(&done.Traffic, t)
	}
	done.Time, done.Waited = time.Since(start), time.Duration(w.timer.waited.Load()-waited)
	if w.concurrent {
		done.Waited = w.busy.end()
	}
	done.Start = start.UnixNano()
	if w.hooks.afterOperation != nil {
		w.hooks.afterOperation(w.config.Rank, id, output)
	}
	var lost []collective.Loss
	if w.config.lossy() {
		if lost, err = w.losses(ctx, p, id); err != nil {
			return err
		}
	}
	if r.check {
		done.Wrong, done.Short = p.check(id, lost)
	}
	if p, more := p.(teller); more {
		own, err := p.tell()
		if err != nil {
			return err
		}
		if done.Own, err = json.Marshal(own); err != nil {
			return err
		}
	}
	return w.send(message{Done: done})
}

// losses sends this rank's losses to the coordinator and returns the losses of all ranks.
func (w *rank) losses(ctx context.Context, p part, id operationID) ([]collective.Loss, error) {
	if err := w.send(message{Reduced: &losses{operationID: id, Losses: p.lost()}}); err != nil {
		return nil, err
	}
	m, err := w.next(ctx)
	if err != nil {
		return nil, err
	}
	if m.Lost == nil || m.Lost.operationID != id {
		return nil, fmt.Errorf("the coordinator did not say what operation %d lost", id.Index)
	}
	return m.Lost.Losses, nil
}
