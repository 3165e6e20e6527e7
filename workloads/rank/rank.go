// Package rank is the process of one rank of a workload: the railbed binary, started again inside a node.
// Main reads the rank's configuration from the coordinator, which is package worker, and runs the rank's
// Work. The Work goes through three steps:
//
//   - Process.ThroughLanes opens the rank's endpoints, each a Lane, and closes them at the end.
//   - Process.Meet exchanges addresses and memory handles with the other ranks.
//   - Process.Do does the rounds of operations with a Part, which is the rank's data and its operation.
//
// The package knows no kind of workload. The kinds are Works that the caller of Main lists.
//
// Coordinator and ranks communicate by Messages over one channel per rank, never over the network under
// test. So the emulated links carry the workload and nothing else.
package rank

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"syscall"
	"time"

	"railbed/internal/frame"
	"railbed/internal/reexec"
	"railbed/transports"
)

// Work is the part of a rank in a job. It reaches the rank as JSON.
type Work interface {
	// Run does the part, from opening the endpoints to the last message to the coordinator. Main calls it
	// once.
	Run(ctx context.Context, p *Process) error
}

// Options are the options of Main.
type Options struct {
	// Works are a value of each type of Work that the process can run.
	Works []Work
	// ShareProcessors limits the Go runtime to the rank's share of the processors. Set it where the rank is
	// a process of its own.
	ShareProcessors bool
	// BeforeOperation is called within the measured time of each round. AfterOperation receives the result
	// of a round before the rank checks it. Both are for tests. Default: nothing is called.
	BeforeOperation func(rank int, id OperationID)
	AfterOperation  func(rank int, id OperationID, result []byte)
}

// channelFD is the descriptor on which the process of a rank inherits its channel.
const channelFD = 3

// Inherited returns the channel that the parent process passed to this process on descriptor 3. Close
// ends a Read that waits.
func Inherited() (io.ReadWriteCloser, error) {
	// Only a non-blocking descriptor can be closed while a reader waits on it.
	if err := syscall.SetNonblock(channelFD, true); err != nil {
		return nil, fmt.Errorf("open channel on descriptor %d: %w (only railbed can start a worker)",
			channelFD, err)
	}
	return os.NewFile(channelFD, "channel"), nil
}

var errChannelClosed = errors.New("the channel to the coordinator closed")

// Main is the process of one rank. It reads its configuration from the channel, runs the Work of the
// configuration, closes the channel and returns the exit code. It sends errors to the coordinator. An
// error that it cannot send goes to stderr. Close of the channel must end a Read that waits.
func Main(channel io.ReadWriteCloser, stderr io.Writer, o Options) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	p := &Process{options: o, out: frame.NewWriter(channel), messages: make(chan *Message),
		timer: &waitTimer{}}
	reader := make(chan struct{})
	go func() {
		defer close(reader)
		p.read(ctx, channel, cancel)
	}()
	err := p.work(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errChannelClosed) {
		err = context.Cause(ctx)
	}
	code := 0
	if err != nil {
		code = 1
		failed := &Failed{Error: err.Error(), Peer: errors.Is(err, transports.ErrPeerFailed)}
		if p.Send(Message{Failed: failed}) != nil {
			fmt.Fprintln(stderr, "railbed worker:", err)
		}
	}
	for _, l := range p.lanes {
		l.endpoint.Close() // after the message above: the other ranks notice the close
	}
	cancel(nil)
	channel.Close()
	<-reader
	return code
}

// Process is the process of one rank, as its Work sees it.
type Process struct {
	// Config is the rank's configuration.
	Config Config

	options  Options
	out      *frame.Writer
	messages chan *Message
	lanes    []*Lane
	timer    *waitTimer // around the endpoint, if the rank has one endpoint
	busy     Idleness
	logs     []namedLog // of the parts of the algorithm
	// concurrent is set if several goroutines wait, so that busy measures how long the rank waits.
	concurrent bool
	// setBusyPoll is SetBusyPoll of the endpoint, or nil if the endpoint has none.
	setBusyPoll func(time.Duration)
}

// read passes messages to next until the channel ends. Then it cancels the process's context.
func (p *Process) read(ctx context.Context, channel io.Reader, cancel context.CancelCauseFunc) {
	in := frame.NewReader(channel)
	for {
		m, err := ReadMessage(in)
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
			_ = p.Send(*m) // if this fails, the next read returns the reason
			continue
		}
		select {
		case p.messages <- m:
		case <-ctx.Done():
			return
		}
	}
}

// Send sends a message to the coordinator. It is for a Work that does not use ThroughLanes, which
// reports the end of the rank with a Finished of its own.
func (p *Process) Send(m Message) error { return p.out.WriteJSON(frame.Message, m) }

// next waits for the coordinator's next message.
func (p *Process) next(ctx context.Context) (*Message, error) {
	select {
	case m := <-p.messages:
		return m, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *Process) work(ctx context.Context) error {
	m, err := p.next(ctx)
	if err != nil {
		return err
	}
	if m.Config == nil {
		return errors.New("the coordinator's first message is not a configuration")
	}
	p.Config = *m.Config
	if p.Config.Node != "" {
		reexec.Name(p.Config.Node, fmt.Sprintf("rank%d", p.Config.Rank))
	}
	work, err := p.Config.Work.among(p.options.Works)
	if err != nil {
		return err
	}
	if p.options.ShareProcessors {
		shareProcessors(&p.Config)
	}
	return work.Run(ctx, p)
}

// shareProcessors limits the Go runtime of this process to the rank's share of the processors.
// Threads of one rank that wake each other on another rank's processor cost both ranks more than
// they gain. shareProcessors does so over TCP and past the kernel. On the kernel's path, the engines of the
// other transports wait for system calls, and work beside the rank.
func shareProcessors(c *Config) {
	if c.Transport == TCP || c.Bypass {
		runtime.GOMAXPROCS(max(1, runtime.NumCPU()/max(1, c.Ranks)))
	}
}

// Assignment is a Work in a message, with the name of its type. The sender sets Work. The receiver's
// Main finds the type among its Works.
type Assignment struct {
	Work Work

	received *namedWork
}

// namedWork is the JSON of an Assignment.
type namedWork struct {
	Type string          `json:"type"`
	Work json.RawMessage `json:"work"`
}

// MarshalJSON implements json.Marshaler.
func (a Assignment) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(a.Work)
	if err != nil || a.Work == nil {
		return text, err
	}
	return json.Marshal(namedWork{fmt.Sprintf("%T", a.Work), text})
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *Assignment) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &a.received) }

// among returns the received work as a value of its type, which is one of the types of works.
func (a *Assignment) among(works []Work) (Work, error) {
	if a.received == nil {
		return nil, errors.New("the configuration names no work")
	}
	for _, work := range works {
		if fmt.Sprintf("%T", work) == a.received.Type {
			value := reflect.New(reflect.TypeOf(work))
			err := json.Unmarshal(a.received.Work, value.Interface())
			return value.Elem().Interface().(Work), err
		}
	}
	return nil, fmt.Errorf("this worker has no work of type %q", a.received.Type)
}
