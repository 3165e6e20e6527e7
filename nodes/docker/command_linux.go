package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"railbed/nodes"
)

// Start implements nodes.Node.
func (c *container) Start(ctx context.Context, command nodes.Command) (nodes.Process, error) {
	if len(command.Args) == 0 {
		return nil, fmt.Errorf("start command in %s: no program named", c.config.Node.Name)
	}
	p, err := c.startIn(ctx, command, false)
	if err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", command.Args[0], c.config.Node.Name, err)
	}
	return p, nil
}

// startIn starts a command. logged gives it the container's own output.
func (c *container) startIn(ctx context.Context, command nodes.Command, logged bool) (*process, error) {
	config := c.config
	config.Node.Env = c.environment()
	asked := &startRequest{
		Args:     command.Args,
		Self:     command.Self,
		Env:      nodes.Environment(config, c.runtime.program.dir, command.Env),
		Dir:      command.Dir,
		DirHas:   command.DirHas,
		Home:     c.image.dir,
		User:     c.image.user,
		Stdin:    command.Stdin != nil,
		Stdout:   command.Stdout != nil,
		Stderr:   command.Stderr != nil,
		Channel:  command.Channel != nil,
		Terminal: command.Terminal, Logged: logged,
	}
	if command.Self {
		asked.User = "" // Railbed's own programs open raw sockets
	}
	var files []*os.File
	for _, file := range []*os.File{command.Stdin, command.Stdout, command.Stderr, command.Channel} {
		if file != nil {
			files = append(files, file)
		}
	}
	p := &process{container: c, done: make(chan struct{})}
	answers, gone, err := c.send(&request{Start: asked}, &p.id, files...)
	if err != nil {
		return nil, err
	}
	began, err := c.await(ctx, answers, gone)
	if err != nil {
		c.forget(p.id)
		if ctx.Err() != nil {
			_ = c.signal(p.id, syscall.SIGKILL) // in case it starts after all
		}
		return nil, err
	}
	p.pid, p.gone = began.PID, gone
	go p.watch(answers, gone)
	return p, nil
}

// environment returns the image's environment, with the file's over it.
func (c *container) environment() map[string]string {
	merged := map[string]string{}
	for name, value := range c.image.env {
		merged[name] = value
	}
	for name, value := range c.config.Node.Env {
		merged[name] = value
	}
	return merged
}

// send sends a request under a new number, which it stores in id.
func (c *container) send(asked *request, id *uint64, files ...*os.File) (answers chan answer,
	gone chan struct{}, err error) {
	*id = c.ids.Add(1)
	asked.ID = *id
	answers = make(chan answer, 2)
	c.mu.Lock()
	channel := c.channel
	gone = c.gone
	closed := c.closed
	c.waiting[*id] = answers
	c.mu.Unlock()
	switch {
	case closed:
		err = nodes.ErrClosed
	case channel == nil:
		err = errDied
	default:
		err = channel.send(asked, files...)
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) ||
			errors.Is(err, os.ErrClosed) {
			err = errDied // the reader notices it at once
		}
	}
	if err != nil {
		c.forget(*id)
	}
	return answers, gone, err
}

// errDied is the error of every request to a container that does not run.
var errDied = errors.New("the container does not run any more")

func (c *container) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// await waits for one answer.
func (c *container) await(ctx context.Context, answers <-chan answer, gone <-chan struct{}) (answer, error) {
	select {
	case said := <-answers:
		if said.Error != "" {
			return said, &refusal{said.Error, said.NotFound, said.NoFolder}
		}
		return said, nil
	case <-gone:
		return answer{}, errDied
	case <-ctx.Done():
		return answer{}, context.Cause(ctx)
	}
}

// ask sends a request that has one answer.
func (c *container) ask(ctx context.Context, asked request) (answer, error) {
	var id uint64
	answers, gone, err := c.send(&asked, &id)
	if err != nil {
		return answer{}, err
	}
	defer c.forget(id)
	return c.await(ctx, answers, gone)
}

func (c *container) signal(id uint64, signal syscall.Signal) error {
	c.mu.Lock()
	channel := c.channel
	c.mu.Unlock()
	if channel == nil {
		return nil
	}
	return channel.send(request{ID: id, Signal: int(signal)})
}

// Processes implements nodes.Node.
func (c *container) Processes() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	said, err := c.ask(ctx, request{Count: true})
	if errors.Is(err, errDied) || errors.Is(err, nodes.ErrClosed) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read processes of %s: %w", c.config.Node.Name, err)
	}
	return said.Count, nil
}

// process is a command in a container.
type process struct {
	container *container
	id        uint64
	pid       int
	gone      chan struct{} // of the container's run at that time

	done chan struct{}
	exit nodes.Exit
}

// watch waits for the command's end, or for the container's: then the kernel kills the command.
func (p *process) watch(answers <-chan answer, gone <-chan struct{}) {
	defer close(p.done)
	defer p.container.forget(p.id)
	select {
	case said := <-answers:
		if said.Exit != nil {
			p.exit = *said.Exit
		}
		return
	case <-gone:
	}
	select { // an answer may have arrived last
	case said := <-answers:
		if said.Exit != nil {
			p.exit = *said.Exit
			return
		}
	default:
	}
	p.exit = nodes.Exit{Code: 128 + int(syscall.SIGKILL), Signal: syscall.SIGKILL}
}

// Pid implements nodes.Process. It is the number in the container's PID namespace.
func (p *process) Pid() int { return p.pid }

// Signal implements nodes.Process.
func (p *process) Signal(signal syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := p.container.signal(p.id, signal); err != nil && !errors.Is(err, syscall.EPIPE) &&
		!errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("signal process %d: %w", p.pid, err)
	}
	return nil
}

// KillGroup implements nodes.GroupKiller.
func (p *process) KillGroup() {
	_ = p.container.signal(p.id, syscall.SIGKILL) // unless the container is gone
}

// Wait implements nodes.Process.
func (p *process) Wait() (nodes.Exit, error) {
	<-p.done
	return p.exit, nil
}
