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
	// afterReduce sees a result before it is checked.
	afterReduce func(rank int, id operationID, result []float32)
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
	input    []float32
	output   []float32
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
	if w.config.Kind != AllReduce || w.config.Algorithm != Ring {
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
	count := int(w.config.Size) / collective.ElementSize
	w.input, w.output = make([]float32, count), make([]float32, count)
	own := rendezvous{Address: w.endpoint.Address()}
	var err error
	if own.Input, err = w.register(w.input); err != nil {
		return err
	}
	if own.Output, err = w.register(w.output); err != nil {
		return err
	}
	if err := w.send(message{Ready: &own}); err != nil {
		return err
	}
	ring, err := w.meet(ctx)
	if err != nil {
		return err
	}
	pattern := collective.NewPattern(w.config.Rank, w.config.Ranks)
	for index := range w.config.operations() {
		if err := w.operation(ctx, ring, pattern, w.config.operation(index)); err != nil {
			return err
		}
	}
	m, err := w.next(ctx)
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

// meet waits for the table and makes the ring from it.
func (w *rank) meet(ctx context.Context) (*collective.Ring, error) {
	m, err := w.next(ctx)
	if err != nil {
		return nil, err
	}
	n := w.config.Ranks
	if len(m.Table) != n {
		return nil, fmt.Errorf("table of %d ranks, want %d", len(m.Table), n)
	}
	next, prev := (w.config.Rank+1)%n, (w.config.Rank+n-1)%n
	config := collective.RingConfig{
		Endpoint: w.endpoint, Rank: w.config.Rank, Ranks: n,
		Input: w.input, Output: w.output,
		NextInput: m.Table[next].Input, NextOutput: m.Table[next].Output,
	}
	if w.config.lossy() {
		config.Droppable = w.config.RD.Droppable
	}
	w.peers = make(map[transports.Peer]int)
	for _, neighbour := range []struct {
		rank int
		peer *transports.Peer
	}{{next, &config.Next}, {prev, &config.Prev}} {
		if *neighbour.peer, err = w.endpoint.AddPeer(m.Table[neighbour.rank].Address); err != nil {
			return nil, err
		}
		w.peers[*neighbour.peer] = neighbour.rank
	}
	return collective.NewRing(config)
}

// operation does one all-reduce: the data before and the check after are
// outside the time that it reports.
func (w *rank) operation(ctx context.Context, ring *collective.Ring, pattern *collective.Pattern, id operationID) error {
	if id.Mode == collective.InPlace {
		pattern.Fill(w.output, id.Index)
	} else {
		pattern.Fill(w.input, id.Index)
	}
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
	done.Traffic, err = ring.AllReduce(ctx, id.Mode)
	done.Time = time.Since(start)
	if err != nil {
		return err
	}
	done.Start = start.UnixNano()
	if w.hooks.afterReduce != nil {
		w.hooks.afterReduce(w.config.Rank, id, w.output)
	}
	if !w.config.lossy() {
		done.Wrong = pattern.Wrong(w.output, id.Index)
		return w.send(message{Done: done})
	}
	lost, err := w.losses(ctx, ring, id)
	if err != nil {
		return err
	}
	done.Wrong, done.Short = pattern.WrongBut(w.output, id.Index, lost)
	return w.send(message{Done: done})
}

// losses tells what this rank lost and returns what all did.
func (w *rank) losses(ctx context.Context, ring *collective.Ring, id operationID) ([]collective.Loss, error) {
	if err := w.send(message{Reduced: &losses{operationID: id, Losses: ring.Lost()}}); err != nil {
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
