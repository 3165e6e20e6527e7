package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"railbed/internal/clock"
	"railbed/internal/frame"
	"railbed/internal/wire"
	"railbed/plan/spec"
	"railbed/transports/rd/privacy"
	"railbed/transports/rd/rate/arbiter"
	"railbed/workloads/rank"
)

const (
	// slotBytes is the number of bytes sent in a slot: a few packets, so that a host need not run
	// for each packet.
	slotBytes = 16 << 10
	// slotPercent is the length of a slot in percent of the time that slotBytes take. The rest is
	// for headers and other hosts' acknowledgements.
	slotPercent = 110
	// maxArbiters is how many arbiters may run at once.
	maxArbiters = 128
)

var (
	// errArbiter is the error of a job whose arbiter failed.
	errArbiter = errors.New("the job's arbiter failed")
	// errSilentArbiter is the error of an arbiter whose process exists but does nothing.
	errSilentArbiter = errors.New("it does not answer: its process is stopped, or gets no processor")
)

// arbitrated reports whether the job needs an arbiter.
func (j Job) arbitrated() bool { return j.RD != nil && j.RD.Control == spec.ControlArbiter }

// arbiterAt returns the address of the job's arbiter.
func (j Job) arbiterAt() netip.AddrPort {
	return netip.AddrPortFrom(j.addr(j.Ranks[0]), wire.PortArbiter+uint16(j.Ordinal%maxArbiters))
}

// slotTime returns the length of a slot in real time, for the slowest NIC.
func (j Job) slotTime() (time.Duration, error) {
	var slot time.Duration
	for _, d := range j.Sends {
		slot = max(slot, d.Rate.SerialisationTime(slotBytes*slotPercent/100))
	}
	if slot == 0 {
		return 0, errors.New("an arbiter needs the rates of the ranks' links, which are missing")
	}
	return clock.Dilation(j.Dilation).Wait(slot), nil
}

// arbitrate starts the job's arbiter, if the job needs one. stop ends the arbiter and waits until
// it has exited. If the arbiter exits by itself, the returned context ends with the reason.
func (c *coordinator) arbitrate(ctx context.Context, l Launcher) (within context.Context, stop func() error,
	err error) {
	if !c.job.arbitrated() {
		return ctx, func() error { return nil }, nil
	}
	slot, err := c.job.slotTime()
	if err != nil {
		return ctx, nil, err
	}
	process, err := l.Launch(ctx, c.job.Ranks[0].Node, Args())
	if err != nil {
		return ctx, nil, fmt.Errorf("start arbiter: %w", err)
	}
	channel := process.Channel()
	within, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	quit := make(chan struct{})
	go func() {
		err := process.Wait()
		select {
		case <-quit:
		default:
			cancel(fmt.Errorf("%w: it ended: %w", errArbiter, cmp.Or(err, io.EOF)))
		}
		ended <- err
	}()
	stop = func() error {
		close(quit)
		channel.Close()
		select {
		case <-ended:
		case <-time.After(arbiterGrace):
			_ = process.Kill() // the next line waits for the exit even if Kill fails
			<-ended
		}
		cancel(nil)
		return nil
	}
	at := c.job.arbiterAt()
	config := &rank.Config{
		Work:            rank.Assignment{Work: arbiterWork{}},
		PlaceConfig:     rank.PlaceConfig{Ranks: len(c.job.Ranks), Addr: at.Addr(), Port: at.Port()},
		TransportConfig: rank.TransportConfig{SlotTime: slot, Secret: c.job.Secret},
	}
	left := context.AfterFunc(ctx, func() { channel.Close() })
	defer left()
	err = frame.NewWriter(channel).WriteJSON(frame.Message, rank.Message{Config: config})
	if err == nil {
		var m *rank.Message
		if m, err = rank.ReadMessage(frame.NewReader(channel)); err == nil && m.Failed != nil {
			err = errors.New(m.Failed.Error)
		}
	}
	if err != nil {
		return ctx, nil, errors.Join(fmt.Errorf("start arbiter: %w", err), stop())
	}
	go watchArbiter(channel, c.job.Silence, quit, cancel)
	return within, stop, nil
}

// watchArbiter asks a ready arbiter whether it is alive. If the arbiter does not answer for
// silence, watchArbiter ends the job, as the coordinator's watch does.
func watchArbiter(channel io.ReadWriter, silence time.Duration, quit <-chan struct{},
	fail context.CancelCauseFunc) {
	var unheard atomic.Int32
	go func() {
		in := frame.NewReader(channel)
		for {
			if _, err := rank.ReadMessage(in); err != nil {
				return // the goroutine that waits for the process reports its exit
			}
			unheard.Store(0)
		}
	}()
	out := frame.NewWriter(channel)
	ticker := time.NewTicker(silence / silenceParts)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-quit:
			return
		}
		if unheard.Add(1) > silenceParts {
			fail(fmt.Errorf("%w: %w", errArbiter, errSilentArbiter))
			return
		}
		if out.Write(frame.Message, question) != nil {
			return
		}
	}
}

// arbiterGrace is how long an arbiter has to exit after its channel was closed.
const arbiterGrace = 2 * time.Second

// arbiterWork is the work of the arbiter, a process in rank 0's node besides the rank's own process.
// It communicates with the ranks over the testbed's network, as it would have to in a cluster.
type arbiterWork struct{}

// Run implements rank.Work. It serves until the channel closes.
func (arbiterWork) Run(ctx context.Context, w *rank.Process) error {
	life, end := context.WithCancel(ctx)
	defer end()
	o := arbiter.Options{Hosts: w.Config.Ranks, Slot: slotBytes, Time: w.Config.SlotTime}
	if w.Config.Secret != nil {
		secret, err := privacy.New(w.Config.Secret)
		if err != nil {
			return fmt.Errorf("serve arbiter: %w", err)
		}
		clear(w.Config.Secret)
		o.Secret = secret
	}
	if err := w.Send(rank.Message{Ready: &rank.Rendezvous{}}); err != nil {
		return err
	}
	return arbiter.Serve(life, netip.AddrPortFrom(w.Config.Addr, w.Config.Port), o)
}
