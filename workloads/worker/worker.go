// Package worker runs collectives as real processes, one per rank: Main is
// the process, the railbed binary started again inside a node, and Run is the
// coordinator that starts them, lets them meet, and collects their results.
//
// Both speak over one channel per worker, never over the network under test,
// so that the emulated links carry the workload and nothing else.
package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"railbed/testbed/frame"
	"railbed/transports"
	"railbed/workloads/collective"
)

// ChannelFD is the descriptor on which a worker process inherits its channel.
const ChannelFD = 3

// Inherited is the channel that this process was started with.
func Inherited() (Channel, error) {
	// Only a descriptor that does not block is closed under a reader.
	if err := syscall.SetNonblock(ChannelFD, true); err != nil {
		return nil, fmt.Errorf("open channel on descriptor %d: %w (workers are started by railbed)", ChannelFD, err)
	}
	return os.NewFile(ChannelFD, "channel"), nil
}

// Main is the process of one rank: it takes its configuration from the
// channel, does what that says and returns the exit code. It closes the
// channel. Errors go to the coordinator; stderr gets those that cannot.
func Main(channel Channel, stderr io.Writer) int {
	return run(channel, stderr, hooks{})
}

// hooks are for this package's tests.
type hooks struct {
	// afterOperation sees a result before it is checked.
	afterOperation func(rank int, id operationID, result []float32)
}

var errChannelClosed = errors.New("the channel to the coordinator closed")

func run(channel Channel, stderr io.Writer, h hooks) int {
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
	if w.endpoint != nil {
		w.endpoint.Close() // after the words above: the other ranks notice it
	}
	cancel(nil)
	channel.Close()
	<-reader
	return code
}

// rank is one worker.
type rank struct {
	hooks    hooks
	out      *frame.Writer
	messages chan *message
	config   workerConfig
	endpoint endpoint
	// peers holds the rank of each peer of the endpoint.
	peers map[transports.Peer]int
}

// read hands messages over until the channel ends, and then ends the worker.
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
	if w.config.Kind == arbiterKind {
		return w.arbitrate(ctx)
	}
	if !known(w.config.Kind, w.config.Algorithm) {
		return fmt.Errorf("%s by %s is not something this worker does", w.config.Kind, w.config.Algorithm)
	}
	endpoint, err := open(&w.config, func(p transports.Peer) int { return w.peers[p] })
	if err != nil {
		return err
	}
	w.endpoint = endpoint
	if err := w.collective(ctx); err != nil {
		return err
	}
	return w.finish()
}

// finish closes the endpoint and reports what it did over its whole life.
func (w *rank) finish() error {
	if err := w.endpoint.Close(); err != nil {
		return err
	}
	finished := w.endpoint.account(w.peers)
	finished.DeviceBound = w.endpoint.DeviceBound()
	return w.send(message{Finished: finished})
}

// collective meets the other ranks and does the operations.
func (w *rank) collective(ctx context.Context) error {
	b, err := w.config.allocate()
	if err != nil {
		return err
	}
	own := rendezvous{Address: w.endpoint.Address()}
	if own.Input, err = w.register(b.input); err != nil {
		return err
	}
	if own.Output, err = w.register(b.output); err != nil {
		return err
	}
	if own.Work, err = w.register(b.work); err != nil {
		return err
	}
	if err := w.send(message{Ready: &own}); err != nil {
		return err
	}
	m, err := w.next(ctx)
	if err != nil {
		return err
	}
	if len(m.Table) != w.config.Ranks {
		return fmt.Errorf("table of %d ranks, want %d", len(m.Table), w.config.Ranks)
	}
	p, err := w.join(m.Table, b)
	if err != nil {
		return err
	}
	for index := range w.config.operations() {
		if err := w.operation(ctx, p, b.output, w.config.operation(index)); err != nil {
			return err
		}
	}
	m, err = w.next(ctx)
	if err == nil && m.End == nil {
		err = errors.New("the coordinator sent something else than the end")
	}
	return err
}

func (w *rank) register(elements []float32) ([]byte, error) {
	if len(elements) == 0 {
		return nil, nil // nothing will be written there
	}
	region, err := w.endpoint.Register(collective.Bytes(elements), transports.RemoteWrite)
	if err != nil {
		return nil, err
	}
	return region.Remote(), nil
}

// operation does one operation: the data before and the check after are
// outside the time that it reports.
func (w *rank) operation(ctx context.Context, p part, output []float32, id operationID) error {
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
	start := time.Now()
	done.Traffic, err = p.operate(ctx, id)
	done.Time = time.Since(start)
	if err != nil {
		return err
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
	done.Wrong, done.Short = p.check(id, lost)
	return w.send(message{Done: done})
}

// losses tells what this rank lost and returns what all did.
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
