package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"railbed/internal/frame"
	"railbed/nodes"
)

const (
	// outputPatience is how long Wait waits, after the command's end, for a reader that does not
	// read the command's output.
	outputPatience = time.Second
	// sizeTick is how often a terminal's size is read: the kernel signals a change only to the
	// terminal's own processes, and those are in the guest.
	sizeTick  = 200 * time.Millisecond
	chunkSize = 32 << 10
)

// Start implements nodes.Node.
func (n *node) Start(ctx context.Context, command nodes.Command) (nodes.Process, error) {
	name := n.config.Node.Name
	if len(command.Args) == 0 {
		return nil, fmt.Errorf("start command in %s: no program named", name)
	}
	if err := n.usable(); err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", command.Args[0], name, err)
	}
	p := &process{node: n, id: n.ids.Add(1), done: make(chan struct{})}
	err := p.start(ctx, command)
	if err != nil {
		p.abandon()
		return nil, fmt.Errorf("start %s in %s: %w", command.Args[0], name, n.gone(err))
	}
	go p.watch()
	return p, nil
}

// process is a command in a guest.
type process struct {
	node *node
	id   uint64
	pid  int

	control *yamux.Stream
	frames  *frame.Writer
	inputs  []*relay
	outputs map[descriptor]*relay
	screen  int // a descriptor of the terminal, or 0

	done chan struct{}
	exit nodes.Exit
	err  error
}

// relay connects one stream of a command with the host's file.
type relay struct {
	file   *os.File
	stream *yamux.Stream

	mu      sync.Mutex // guards the fields below
	bytes   int64
	writing bool          // a write to the host's reader is in progress
	moved   chan struct{} // closed and made anew when bytes change, closed at the end
	ended   bool
}

// start opens the streams, and requests the command.
func (p *process) start(ctx context.Context, command nodes.Command) error {
	request := &startRequest{
		ID: p.id, Args: command.Args, Self: command.Self, Dir: command.Dir,
		DirHas:    command.DirHas,
		Unlimited: command.Unlimited,
		Env:       nodes.Environment(p.node.config, nodes.ProgramDir, command.Env),
	}
	if command.Terminal && command.Stdin != nil {
		size, err := p.useTerminal(command.Stdin)
		if err != nil {
			return fmt.Errorf("use terminal: %w", err)
		}
		request.Terminal = &size
	}
	p.outputs = map[descriptor]*relay{}
	for _, carry := range carriedBy(command) {
		made, err := p.carry(carry.what, carry.file)
		if err != nil {
			return err
		}
		request.Carried = append(request.Carried, carry.what)
		if carry.what.output() {
			p.outputs[carry.what] = made
		} else {
			p.inputs = append(p.inputs, made)
		}
	}
	var err error
	if p.control, err = p.node.open(hello{Start: request}); err != nil {
		return err
	}
	p.frames = frame.NewWriter(p.control)
	if deadline, limited := ctx.Deadline(); limited {
		if err := p.control.SetReadDeadline(deadline); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = p.control.SetReadDeadline(time.Now()) })
	var began started
	err = answer(frame.NewReader(p.control), frame.Started, &began)
	if !stop() {
		return awaited(ctx, err)
	}
	if err != nil {
		return err
	}
	p.pid = began.PID
	return p.control.SetReadDeadline(time.Time{})
}

// carry is a descriptor of a command with the host's file for it.
type carry struct {
	what descriptor
	file *os.File
}

// carriedBy returns the streams of a command. A terminal has one stream each way, whatever file it
// is connected to.
func carriedBy(command nodes.Command) []carry {
	all := []carry{
		{stdin, command.Stdin}, {stdout, command.Stdout}, {stderr, command.Stderr},
		{channelIn, command.Channel}, {channelOut, command.Channel},
	}
	if command.Terminal {
		all[1].file, all[2].file = command.Stdin, nil
	}
	var some []carry
	for _, c := range all {
		if c.file != nil {
			some = append(some, c)
		}
	}
	return some
}

// carry opens the stream for one of the caller's files, which it duplicates.
func (p *process) carry(what descriptor, file *os.File) (*relay, error) {
	duplicate, err := duplicateOf(file)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", what, err)
	}
	// Closing a file ends a pending read only if reads do not block. A file for output may be
	// another process's terminal, and keeps its mode.
	if !what.output() {
		if err := unix.SetNonblock(duplicate, true); err != nil {
			return nil, errors.Join(fmt.Errorf("duplicate %s: %w", what, err), unix.Close(duplicate))
		}
	}
	r := &relay{file: os.NewFile(uintptr(duplicate), string(what)), moved: make(chan struct{})}
	if r.stream, err = p.node.open(hello{Carry: &carried{ID: p.id, What: what}}); err != nil {
		return nil, errors.Join(err, r.file.Close())
	}
	return r, nil
}

// duplicateOf duplicates a file and keeps its mode, unlike File.Fd.
func duplicateOf(file *os.File) (duplicate int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if wrong := raw.Control(func(fd uintptr) {
		duplicate, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
	}); wrong != nil {
		return 0, wrong
	}
	return duplicate, err
}

// abandon undoes a failed start.
func (p *process) abandon() {
	all := p.inputs
	for _, output := range p.outputs {
		all = append(all, output)
	}
	for _, r := range all {
		r.file.Close()
		r.stream.Close()
	}
	if p.control != nil {
		p.control.Close()
	}
	if p.screen != 0 {
		unix.Close(p.screen)
	}
}

// useTerminal leaves the processing of characters to the guest's terminal, and returns the
// terminal's size.
func (p *process) useTerminal(screen *os.File) (size sizeRequest, err error) {
	if p.screen, err = duplicateOf(screen); err != nil {
		return size, err
	}
	if _, err = term.MakeRaw(p.screen); err != nil {
		return size, err
	}
	return sizeOf(p.screen)
}

func sizeOf(screen int) (sizeRequest, error) {
	size, err := unix.IoctlGetWinsize(screen, unix.TIOCGWINSZ)
	if err != nil {
		return sizeRequest{}, err
	}
	return sizeRequest{Rows: size.Row, Cols: size.Col}, nil
}

// followSize passes on changes of the terminal's size until the command has ended.
func (p *process) followSize() {
	defer unix.Close(p.screen)
	tick := time.NewTicker(sizeTick)
	defer tick.Stop()
	known, _ := sizeOf(p.screen)
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
		}
		if size, err := sizeOf(p.screen); err == nil && size != known {
			known = size
			_ = p.frames.WriteJSON(frame.WindowSize, size) // an error means that the command ends
		}
	}
}

// watch carries bytes, and waits for the command's end.
func (p *process) watch() {
	for _, input := range p.inputs {
		go input.send()
	}
	for _, output := range p.outputs {
		go output.receive()
	}
	if p.screen != 0 {
		go p.followSize()
	}
	defer close(p.done)
	var end exited
	err := answer(frame.NewReader(p.control), frame.Exit, &end)
	p.control.Close()
	for what, sent := range end.Sent {
		if output := p.outputs[what]; output != nil {
			output.await(sent)
		}
	}
	for _, input := range p.inputs { // input that no process will read
		input.file.Close()
		input.stream.Close()
	}
	p.exit = end.Exit
	if err == nil {
		return
	}
	// The guest is gone, and all its processes were killed.
	p.exit = nodes.Exit{Code: 128 + int(syscall.SIGKILL), Signal: syscall.SIGKILL}
	for _, output := range p.outputs {
		output.await(-1)
	}
	if p.node.usable() == nil {
		p.err = fmt.Errorf("wait for process %d of %s: %w", p.pid, p.node.config.Node.Name, p.node.gone(err))
	}
}

// send carries bytes from the host to the guest, until the file or the command ends.
func (r *relay) send() {
	_, _ = io.CopyBuffer(struct{ io.Writer }{r.stream}, struct{ io.Reader }{r.file}, make([]byte, chunkSize))
	r.stream.Close()
}

// receive carries bytes from the guest to the host. It ends when every process of the guest has
// closed the descriptor, or when the host's reader is gone. The guest's next write then fails.
func (r *relay) receive() {
	buffer := make([]byte, chunkSize)
	for {
		n, err := r.stream.Read(buffer)
		if n > 0 {
			r.mu.Lock()
			r.writing = true
			r.mu.Unlock()
			if _, wrong := r.file.Write(buffer[:n]); wrong != nil {
				err = wrong
			}
			r.count(n, false)
		}
		if err != nil {
			break
		}
	}
	// A socket also carries the other direction, which continues.
	if raw, err := r.file.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) }) // a pipe is closed
	}
	r.file.Close()
	r.stream.Close()
	r.count(0, true)
}

func (r *relay) count(n int, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += int64(n)
	r.writing = false
	close(r.moved)
	if r.ended = ended; !ended {
		r.moved = make(chan struct{})
	}
}

// await waits until so many bytes have arrived, or, if bytes is negative, until the stream has
// ended. It stops waiting for a reader that does not read.
func (r *relay) await(bytes int64) {
	timer := time.NewTimer(outputPatience)
	defer timer.Stop()
	for {
		r.mu.Lock()
		done, writing, moved := r.ended || bytes >= 0 && r.bytes >= bytes, r.writing, r.moved
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-moved:
			timer.Reset(outputPatience)
		case <-timer.C:
			if writing {
				return
			}
			timer.Reset(outputPatience) // a guest may pause for longer
		}
	}
}

// Pid implements nodes.Process. It is the process id in the guest.
func (p *process) Pid() int { return p.pid }

// Signal implements nodes.Process.
func (p *process) Signal(signal syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	payload, err := json.Marshal(signalRequest{Signal: int(signal)})
	if err == nil {
		err = p.frames.Write(frame.Signal, payload)
	}
	if err != nil && !errors.Is(err, yamux.ErrStreamClosed) && !p.node.session.IsClosed() {
		return fmt.Errorf("signal process %d of %s: %w", p.pid, p.node.config.Node.Name, err)
	}
	return nil
}

// KillGroup implements nodes.GroupKiller. It does nothing: processes that a leader leaves in a
// guest stay there.
func (p *process) KillGroup() {}

// Wait implements nodes.Process.
func (p *process) Wait() (nodes.Exit, error) {
	<-p.done
	return p.exit, p.err
}
