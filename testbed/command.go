package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"railbed/internal/frame"
	"railbed/internal/reexec"
	"railbed/nodes"
	"railbed/plan"
	"railbed/testbed/supervisor"
)

// Node is a node of a running testbed.
type Node struct {
	testbed *Testbed
	name    string
}

// Node returns the node with a name. An unknown name is an error only when the node is used.
func (t *Testbed) Node(name string) *Node { return &Node{testbed: t, name: name} }

// Name returns the node's name.
func (n *Node) Name() string { return n.name }

// Plan returns the node in the plan, or nil.
func (n *Node) Plan() *plan.Node { return n.testbed.Plan().Node(n.name) }

// Command returns a command in the node, which is started like an exec.Cmd. The end of ctx ends the
// command.
func (n *Node) Command(ctx context.Context, name string, args ...string) *Cmd {
	return &Cmd{node: n, ctx: ctx, Args: append([]string{name}, args...)}
}

// Part returns a part of this executable (see Init), to be started in the node.
func (n *Node) Part(ctx context.Context, part string, args ...string) *Cmd {
	return &Cmd{node: n, ctx: ctx, Args: reexec.Argv(part, args...), self: true}
}

// ExitError reports that a command did not exit with 0.
type ExitError struct {
	nodes.Exit
	Node string
	Args []string
	// Stderr is the end of the command's standard error, if Output collected it.
	Stderr []byte
}

// Error implements error.
func (e *ExitError) Error() string {
	how := fmt.Sprintf("exit code %d", e.Code)
	if e.Signal != 0 {
		how = fmt.Sprintf("signal %d (%v)", int(e.Signal), e.Signal)
	}
	text := fmt.Sprintf("%s in %s: %s", e.Args[0], e.Node, how)
	if len(e.Stderr) > 0 {
		text += ": " + string(bytes.TrimSpace(e.Stderr))
	}
	return text
}

var errNotStarted = errors.New("command was not started")

// Cmd mirrors exec.Cmd for a command in a node. It can be used once.
type Cmd struct {
	Args []string
	// Env is added to the node's environment.
	Env []string
	// Dir is the working directory. If the node does not see it, the directory is "/".
	Dir string
	// DirHas is an entry that Dir must have in the node: "." for the directory itself, or a file that shows
	// that the node sees the host's directory. If the node lacks the entry, Start returns ErrNoFolder.
	// Default: none.
	DirHas string
	// Stdin is empty if it is nil. The output to a nil Stdout or Stderr is dropped. Writers are
	// called from one goroutine.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Terminal gives the command a terminal. Resize changes its size.
	Terminal *supervisor.WindowSize

	node *Node
	ctx  context.Context
	self bool

	conn    *frames
	channel *channel
	granted chan struct{} // one token per Stdin frame that may be sent
	done    chan struct{}
	exit    nodes.Exit
	stopped string
	err     error
}

// Channel returns the stream on the command's descriptor 3. It must be called before Start. Reads
// end when the command has closed its side.
func (c *Cmd) Channel() io.ReadWriteCloser {
	if c.channel == nil {
		c.channel = newChannel()
	}
	return c.channel
}

// Start starts the command. If it returns an error, nothing was started.
func (c *Cmd) Start() error {
	request := supervisor.ExecRequest{
		Node: c.node.name, Args: c.Args, Self: c.self, Env: c.Env, Dir: c.Dir, DirHas: c.DirHas,
		Stdin: c.Stdin != nil, Channel: c.channel != nil, Terminal: c.Terminal,
	}
	conn, err := c.node.testbed.upgrade(c.ctx, "/v1/exec", request)
	if err != nil {
		if c.channel != nil {
			c.channel.end()
		}
		return err
	}
	c.conn = conn
	c.done = make(chan struct{})
	if c.channel != nil {
		c.channel.attach(conn)
	}
	c.granted = make(chan struct{}, frame.StdinAhead)
	for range frame.StdinAhead {
		c.granted <- struct{}{}
	}
	// When the connection is closed, the supervisor ends the command.
	stop := context.AfterFunc(c.ctx, func() { conn.Close() })
	go func() {
		defer close(c.done)
		defer conn.Close()
		defer stop()
		c.err = c.receive()
		if c.channel != nil {
			c.channel.end()
		}
	}()
	if c.Stdin != nil {
		go c.sendStdin()
	}
	return nil
}

// receive handles the supervisor's frames until the last frame.
func (c *Cmd) receive() error {
	for {
		kind, payload, err := c.conn.Read()
		if err != nil {
			if c.ctx.Err() != nil {
				return context.Cause(c.ctx)
			}
			return fmt.Errorf("%s in %s: connection to the supervisor lost: %w", c.Args[0], c.node.name, err)
		}
		switch kind {
		case frame.Stdout:
			err = deliver(c.Stdout, payload)
		case frame.Stderr:
			err = deliver(c.Stderr, payload)
		case frame.Channel:
			c.channel.receive(payload)
		case frame.StdinTaken:
			c.granted <- struct{}{}
		case frame.Exit:
			return c.finish(payload)
		}
		if err != nil {
			return err
		}
	}
}

func deliver(w io.Writer, payload []byte) error {
	if w == nil {
		return nil
	}
	_, err := w.Write(payload)
	return err
}

func (c *Cmd) finish(payload []byte) error {
	var exit supervisor.ExecExit
	if err := json.Unmarshal(payload, &exit); err != nil {
		return err
	}
	c.exit, c.stopped = exit.Exit, exit.Stopped
	if exit.Error != "" {
		return errors.New(exit.Error)
	}
	if exit.Code != 0 || exit.Signal != 0 {
		return &ExitError{Exit: exit.Exit, Node: c.node.name, Args: c.Args}
	}
	return nil
}

func (c *Cmd) sendStdin() {
	buffer := make([]byte, 32<<10)
	for {
		n, err := c.Stdin.Read(buffer)
		if n > 0 && !c.sendChunk(buffer[:n]) {
			return
		}
		if err != nil {
			c.sendChunk(nil)
			return
		}
	}
}

func (c *Cmd) sendChunk(chunk []byte) bool {
	select {
	case <-c.granted:
	case <-c.done:
		return false
	}
	return c.conn.Write(frame.Stdin, chunk) == nil
}

// Signal sends a signal to the command's process group.
func (c *Cmd) Signal(signal syscall.Signal) error {
	if c.conn == nil {
		return errNotStarted
	}
	return c.conn.WriteJSON(frame.Signal, supervisor.SignalRequest{Signal: int(signal)})
}

// Resize changes the size of the command's terminal.
func (c *Cmd) Resize(size supervisor.WindowSize) error {
	return c.conn.WriteJSON(frame.WindowSize, size)
}

// Wait waits for the end of the command and of its output. It returns an *ExitError if the command
// failed.
func (c *Cmd) Wait() error {
	if c.done == nil {
		return errNotStarted
	}
	<-c.done
	return c.err
}

// Stopped returns the name of a process of the command's group that a signal such as SIGSTOP had
// stopped when Signal was first called. It returns "" if there is none, and in nodes whose runtime
// has its own PID namespace or kernel (docker, vm). The result is known after Wait has returned.
func (c *Cmd) Stopped() string { return c.stopped }

// Kill kills the command without waiting for its end.
func (c *Cmd) Kill() error { return c.Signal(syscall.SIGKILL) }

// Run starts the command and waits for it.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output.
func (c *Cmd) Output() ([]byte, error) {
	var stdout, stderr bytes.Buffer
	c.Stdout = &stdout
	if c.Stderr == nil {
		c.Stderr = &stderr
	}
	err := c.Run()
	var exit *ExitError
	if errors.As(err, &exit) {
		exit.Stderr = stderr.Bytes()
	}
	return stdout.Bytes(), err
}

// CombinedOutput runs the command and returns both outputs in the order of their arrival.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	var both bytes.Buffer
	c.Stdout, c.Stderr = &both, &both
	err := c.Run()
	return both.Bytes(), err
}

// channel is the client's side of a command's descriptor 3. At most frame.ChannelAhead frames have
// arrived and are not read, apart from the data that the command left at its end. The supervisor
// sends more only after the client reports frames that were read. A worker whose channel is not
// read therefore waits, and does not delay other output.
type channel struct {
	mu      sync.Mutex
	arrived *sync.Cond
	buffer  bytes.Buffer
	// unread holds the lengths of the frames in buffer. The first is less what was read of it.
	unread []int
	ended  bool
	conn   *frames
}

func newChannel() *channel {
	c := &channel{}
	c.arrived = sync.NewCond(&c.mu)
	return c
}

func (c *channel) attach(conn *frames) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
}

func (c *channel) receive(payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(payload) > 0 {
		c.buffer.Write(payload)
		c.unread = append(c.unread, len(payload))
	}
	c.ended = c.ended || len(payload) == 0
	c.arrived.Broadcast()
}

func (c *channel) end() { c.receive(nil) }

// Read implements io.Reader.
func (c *channel) Read(p []byte) (int, error) {
	n, taken, err := c.take(p)
	conn := c.connection()
	for range taken {
		// A closed connection needs no further reports.
		if conn.Write(frame.ChannelTaken, nil) != nil {
			break
		}
	}
	return n, err
}

// take waits for bytes, and returns how many frames they complete.
func (c *channel) take(p []byte) (n, taken int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.buffer.Len() == 0 && !c.ended {
		c.arrived.Wait()
	}
	n, err = c.buffer.Read(p)
	left := n
	for taken < len(c.unread) && left >= c.unread[taken] {
		left -= c.unread[taken]
		taken++
	}
	if c.unread = c.unread[taken:]; left > 0 {
		c.unread[0] -= left
	}
	return n, taken, err
}

// Write implements io.Writer.
func (c *channel) Write(p []byte) (int, error) {
	conn := c.connection()
	if conn == nil {
		return 0, net.ErrClosed
	}
	for sent := 0; sent < len(p); {
		n := min(len(p)-sent, frame.MaxPayload)
		if err := conn.Write(frame.Channel, p[sent:sent+n]); err != nil {
			return sent, err
		}
		sent += n
	}
	return len(p), nil
}

// Close closes the direction to the command.
func (c *channel) Close() error {
	conn := c.connection()
	if conn == nil {
		return nil
	}
	if err := conn.Write(frame.Channel, nil); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (c *channel) connection() *frames {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}
