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
	// drainTime is how long output is still read after the command's end. The command's own output
	// is there at once. Only a process that the command left behind with its descriptors uses the
	// whole time.
	drainTime = 100 * time.Millisecond
	chunkSize = 32 << 10
	// channelAhead is the number of frames for a command's channel that are buffered.
	channelAhead = 4096
)

// endOfInput ends the input of a command on a terminal (VEOF, Ctrl-D).
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
		c.fail(s.noNode(request.Node))
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
		Args: args, Self: self, Env: request.Env, Dir: request.Dir, DirHas: request.DirHas,
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

func (s *supervisor) noNode(name string) error {
	switch {
	case len(s.plan.Nodes) == 0:
		return fmt.Errorf("node %q: %w; the testbed has only switches, and programs run in nodes; "+
			"want hosts: in its file", name, ErrNoSuchObject)
	case s.plan.Switch(name) != nil:
		return fmt.Errorf("%s is a switch, and programs run in nodes, such as %s: %w; railbed capture and "+
			"railbed link act on switches", name, s.nodeNames(), ErrNoSuchObject)
	}
	return fmt.Errorf("node %q: %w; the nodes are %s", name, ErrNoSuchObject, s.nodeNames())
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

// relay passes data in both directions until the command has ended. stopped is the value for
// ExecExit.
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
		// Reading ends with the client, or when the connection is closed after the Exit frame. In
		// the second case the command has ended already, and processes that it left behind continue
		// to run.
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
	unread.open() // the rest is short, and the client may have stopped reading
	pipes.setReadDeadline(time.Now().Add(drainTime))
	outputs.Wait()
	looked.Do(func() {}) // from here on stopped is not written
	return exit, stopped, err
}

// window bounds the number of frames that are sent and not yet taken by the receiver.
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

// taken allows one more frame. It returns an error if the receiver reports more frames than were
// sent.
func (w *window) taken() error {
	select {
	case w.tokens <- struct{}{}:
		return nil
	default:
		if w.isOpen() {
			return nil
		}
		return errors.New("client acknowledged more messages of the command's channel than were sent")
	}
}

// open ends the waiting for good. It must be called only once.
func (w *window) open() { close(w.opened) }

func (w *window) isOpen() bool {
	select {
	case <-w.opened:
		return true
	default:
		return false
	}
}

// toClient sends the command's output as frames of one kind. Frames of its channel wait for unread.
// Reads from a terminal whose other side is closed return EIO, which is its end of file.
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

// drainMost bounds the output that is still read after a command's end. It is more than a pipe or
// socket buffer holds, so only a process that was left behind reaches it.
const drainMost = 1 << 20

// drain sends the data that are in the pipe now. With a slow client or a busy host the deadline may
// have passed before the command's output was read.
func drain(c *frameConn, from *os.File, kind frame.Type, buffer []byte) {
	raw, err := from.SyscallConn()
	if err != nil {
		return
	}
	for drained := 0; drained < drainMost; {
		n := 0
		// The descriptor is non-blocking, because it had a deadline.
		err := raw.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), buffer) })
		if err != nil || n <= 0 || c.Write(kind, buffer[:n]) != nil {
			return
		}
		drained += n
	}
}

// fromClient handles the client's frames until the connection ends. It calls look before it passes
// a signal on.
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
				chunk = endOfInput // the end of input does not close a terminal
			}
			_ = feed(pipes.stdin, chunk) // the command may have closed its input
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
			err = fmt.Errorf(
				"client of exec sent a frame of type %d, want input, a message, a window size or a signal",
				kind)
		}
		if err != nil {
			return err
		}
	}
}

// feed writes to the command. An empty payload closes its input. A command that no longer reads is
// not an error, as with a shell's pipe.
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

// closeInput ends the command's input. It closes a socket only halfway, because the socket also
// carries output.
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

// pipes holds both ends of a command's descriptors.
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

// openTerminal gives the command a terminal. The supervisor's single end is both input and output.
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
			// A terminal cannot have a deadline. Reads from it end by themselves.
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
			file.Close() // it may be closed already
		}
	}
}
