package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"railbed/internal/frame"
	"railbed/internal/reexec"
	"railbed/nodes"
)

const (
	// drainTime is how long output is still read after the command's end.
	// What it wrote is there at once; only a process that it left behind with
	// its descriptors makes the wait run out.
	drainTime = 100 * time.Millisecond
	chunkSize = 32 << 10
	// channelAhead is how many frames for a command's channel wait for it.
	channelAhead = 4096
)

// endOfInput is what ends the input of a command on a terminal (VEOF, Ctrl-D).
var endOfInput = []byte{4}

// serveExec runs one command for one connection.
func (s *supervisor) serveExec(c *frameConn) {
	var request ExecRequest
	if err := c.request(&request); err != nil {
		c.fail(err)
		return
	}
	node, known := s.nodes[request.Node]
	if !known {
		c.fail(fmt.Errorf("node %q: %w; the nodes are %s", request.Node, ErrNoSuchObject, s.nodeNames()))
		return
	}
	if !request.Self {
		if err := s.openInside(request.Node); err != nil {
			c.fail(err)
			return
		}
	}
	pipes, err := openPipes(request)
	if err != nil {
		c.fail(err)
		return
	}
	defer pipes.close()
	args, self := request.Args, request.Self
	if !self && len(args) > 0 && args[0] == Command {
		args, self = reexec.Argv(CommandPart, args[1:]...), true
	}
	process, err := node.Start(context.Background(), nodes.Command{
		Args: args, Self: self, Env: request.Env, Dir: request.Dir,
		Stdin: pipes.child[0], Stdout: pipes.child[1], Stderr: pipes.child[2], Channel: pipes.child[3],
		Terminal: request.Terminal != nil,
	})
	pipes.closeChild()
	if err != nil {
		c.fail(err)
		return
	}
	command := strings.Join(request.Args, " ")
	s.events.add("process.start", request.Node, fmt.Sprintf("%d %s", process.Pid(), command))
	exit, stopped, err := s.relay(c, process, pipes)
	s.events.add("process.exit", request.Node, fmt.Sprintf("%d code %d", process.Pid(), exit.Code))
	answer := ExecExit{Exit: exit, Stopped: stopped}
	if err != nil {
		answer.Error = err.Error()
	}
	_ = c.WriteJSON(frame.Exit, answer) // the client may be gone
}

func (s *supervisor) nodeNames() string {
	const shown = 8
	var names []string
	for i, n := range s.plan.Nodes {
		if i == shown {
			names = append(names, "...")
			break
		}
		names = append(names, n.Name)
	}
	return strings.Join(names, ", ")
}

// relay carries bytes both ways until the command has ended. Stopped is
// ExecExit's.
func (s *supervisor) relay(c *frameConn, process nodes.Process, pipes *pipes) (exit nodes.Exit,
	stopped string, err error) {
	if err := c.WriteJSON(frame.Started, ExecStarted{PID: process.Pid()}); err != nil {
		terminate(process)
		exit, err = process.Wait()
		return exit, "", err
	}
	unread := newWindow(frame.ChannelAhead)
	var looked sync.Once
	look := func() { looked.Do(func() { stopped = stoppedMember(process) }) }
	go func() {
		// Reading ends with the client, or when the connection is closed
		// after the Exit frame; then the command has ended already, and what
		// it left running is meant to.
		if err := fromClient(c, process, pipes, unread, look); err != nil && !unread.isOpen() {
			terminate(process)
		}
	}()
	var outputs sync.WaitGroup
	for _, output := range []struct {
		file *os.File
		kind frame.Type
	}{{pipes.stdout, frame.Stdout}, {pipes.stderr, frame.Stderr}, {pipes.channel, frame.Channel}} {
		if output.file != nil {
			outputs.Go(func() { toClient(c, output.file, output.kind, unread) })
		}
	}
	exit, err = process.Wait()
	unread.open() // what is left is little, and nobody may be there to read it
	pipes.setReadDeadline(time.Now().Add(drainTime))
	outputs.Wait()
	looked.Do(func() {}) // from here on stopped is not written
	return exit, stopped, err
}

// window bounds how many frames are sent that the receiver has not taken.
type window struct {
	tokens chan struct{}
	opened chan struct{}
}

func newWindow(size int) *window {
	w := &window{tokens: make(chan struct{}, size), opened: make(chan struct{})}
	for range size {
		w.tokens <- struct{}{}
	}
	return w
}

// wait waits until a frame may be sent.
func (w *window) wait() {
	select {
	case <-w.tokens:
	case <-w.opened:
	}
}

// taken lets one more frame pass. More than were sent is the receiver's error.
func (w *window) taken() error {
	select {
	case w.tokens <- struct{}{}:
		return nil
	default:
		if w.isOpen() {
			return nil
		}
		return errors.New("client took more messages of the command's channel than it got")
	}
}

// open ends the waiting. It is called once.
func (w *window) open() { close(w.opened) }

func (w *window) isOpen() bool {
	select {
	case <-w.opened:
		return true
	default:
		return false
	}
}

// toClient sends what the command writes as frames of one kind; those of its
// channel wait for unread. A terminal whose other side is closed reads as EIO;
// that is its end of file.
func toClient(c *frameConn, from *os.File, kind frame.Type, unread *window) {
	buffer := make([]byte, chunkSize)
	for {
		if kind == frame.Channel {
			unread.wait()
		}
		n, err := from.Read(buffer)
		if n > 0 && c.Write(kind, buffer[:n]) != nil {
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			drain(c, from, kind, buffer)
		}
		if err != nil {
			break
		}
	}
	if kind == frame.Channel {
		_ = c.Write(kind, nil)
	}
}

// drainMost bounds what is still read after a command's end: more than a pipe
// or socket buffer holds, so that only a writer that was left behind meets it.
const drainMost = 1 << 20

// drain sends what lies in the pipe now. With a slow client or a busy host, the
// deadline may have passed before what the command wrote was read.
func drain(c *frameConn, from *os.File, kind frame.Type, buffer []byte) {
	raw, err := from.SyscallConn()
	if err != nil {
		return
	}
	for drained := 0; drained < drainMost; {
		n := 0
		// The descriptor is non-blocking, or there would have been no deadline.
		err := raw.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), buffer) })
		if err != nil || n <= 0 || c.Write(kind, buffer[:n]) != nil {
			return
		}
		drained += n
	}
}

// fromClient handles the client's frames until it goes away. It calls look before a
// signal is passed on.
func fromClient(c *frameConn, process nodes.Process, pipes *pipes, unread *window, look func()) error {
	input, messages := make(chan []byte, frame.StdinAhead), make(chan []byte, channelAhead)
	defer close(input)
	defer close(messages)
	go func() {
		for chunk := range messages {
			_ = feed(pipes.channel, chunk)
		}
	}()
	go func() {
		for chunk := range input {
			if len(chunk) == 0 && pipes.terminal {
				chunk = endOfInput // a terminal is not closed to end its input
			}
			_ = feed(pipes.stdin, chunk) // a command that has closed its input
			if c.Write(frame.StdinTaken, nil) != nil {
				return
			}
		}
	}()
	for {
		kind, payload, err := c.Read()
		if err != nil {
			return err
		}
		switch kind {
		case frame.Stdin:
			select {
			case input <- bytes.Clone(payload):
			default:
				err = fmt.Errorf("client sent more than %d chunks of input ahead", frame.StdinAhead)
			}
		case frame.Channel:
			select {
			case messages <- bytes.Clone(payload):
			default:
				err = fmt.Errorf("client sent more than %d messages ahead on the command's channel",
					channelAhead)
			}
		case frame.ChannelTaken:
			err = unread.taken()
		case frame.WindowSize:
			err = pipes.resize(payload)
		case frame.Signal:
			var request SignalRequest
			if err = json.Unmarshal(payload, &request); err == nil {
				look()
				err = process.Signal(syscall.Signal(request.Signal))
			}
		default:
			err = fmt.Errorf("frame of type %d from the client of an exec", kind)
		}
		if err != nil {
			return err
		}
	}
}

// feed writes to the command; an empty payload closes its input. A command
// that does not read any more is its own affair, as with a shell's pipe.
func feed(to *os.File, payload []byte) error {
	if to == nil {
		return nil
	}
	if len(payload) == 0 {
		return closeInput(to)
	}
	_, err := to.Write(payload)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// closeInput ends the command's input. A socket is only half closed, because
// it also carries output.
func closeInput(file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var shutdown error
	if err := raw.Control(func(fd uintptr) { shutdown = unix.Shutdown(int(fd), unix.SHUT_WR) }); err != nil {
		return err
	}
	if errors.Is(shutdown, unix.ENOTSOCK) {
		return file.Close()
	}
	return shutdown
}

// pipes are both ends of a command's descriptors.
type pipes struct {
	stdin, stdout, stderr, channel *os.File // the supervisor's ends
	child                          [4]*os.File
	terminal                       bool
}

func openPipes(request ExecRequest) (*pipes, error) {
	p := &pipes{}
	var err error
	if request.Terminal != nil {
		err = p.openTerminal(*request.Terminal)
	} else {
		err = p.openPipes(request.Stdin)
	}
	if err == nil && request.Channel {
		p.channel, p.child[3], err = reexec.SocketPair()
	}
	if err != nil {
		p.closeChild()
		p.close()
		return nil, fmt.Errorf("open descriptors for the command: %w", err)
	}
	return p, nil
}

func (p *pipes) openPipes(stdin bool) (err error) {
	if stdin {
		if p.child[0], p.stdin, err = os.Pipe(); err != nil {
			return err
		}
	}
	if p.stdout, p.child[1], err = os.Pipe(); err != nil {
		return err
	}
	p.stderr, p.child[2], err = os.Pipe()
	return err
}

// openTerminal gives the command a terminal; the supervisor's one end is both
// input and output.
func (p *pipes) openTerminal(size WindowSize) error {
	ours, theirs, err := pty.Open()
	if err != nil {
		return err
	}
	p.terminal = true
	p.stdin, p.stdout = ours, ours
	p.child = [4]*os.File{theirs, theirs, theirs, nil}
	return pty.Setsize(ours, &pty.Winsize{Rows: size.Rows, Cols: size.Cols})
}

func (p *pipes) resize(payload []byte) error {
	var size WindowSize
	if err := json.Unmarshal(payload, &size); err != nil || !p.terminal {
		return err
	}
	return pty.Setsize(p.stdin, &pty.Winsize{Rows: size.Rows, Cols: size.Cols})
}

func (p *pipes) setReadDeadline(deadline time.Time) {
	for _, file := range []*os.File{p.stdout, p.stderr, p.channel} {
		if file != nil {
			// A terminal cannot have a deadline; it ends by itself.
			_ = file.SetReadDeadline(deadline)
		}
	}
}

func (p *pipes) closeChild() {
	for i, file := range p.child {
		if file != nil && (i == 0 || file != p.child[0]) {
			file.Close()
		}
	}
	p.child = [4]*os.File{}
}

func (p *pipes) close() {
	for _, file := range []*os.File{p.stdin, p.stdout, p.stderr, p.channel} {
		if file != nil {
			file.Close() // closed already is fine
		}
	}
}
