package worker

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"railbed/testbed"
)

// Nodes starts workers in the nodes of a testbed. It is safe for concurrent use.
type Nodes struct {
	testbed *testbed.Testbed
	output  func(node string) (stdout, stderr io.Writer, err error)
	// life ends the remaining workers at Close.
	life    context.Context
	end     context.CancelFunc
	workers sync.WaitGroup
}

// NewNodes returns a launcher. Its workers end when ctx ends, and at Close. output returns the
// writers for the standard output and standard error of a node's workers.
func NewNodes(ctx context.Context, tb *testbed.Testbed,
	output func(node string) (stdout, stderr io.Writer, err error)) *Nodes {
	n := &Nodes{testbed: tb, output: output}
	n.life, n.end = context.WithCancel(ctx)
	return n
}

// Close ends the remaining workers and returns when they have exited.
func (n *Nodes) Close() {
	n.end()
	n.workers.Wait()
}

// Launch implements Launcher.
func (n *Nodes) Launch(ctx context.Context, node string, args []string) (Process, error) {
	stdout, stderr, err := n.output(node)
	if err != nil {
		return nil, err
	}
	life, kill := context.WithCancel(n.life)
	cmd := n.testbed.Node(node).Part(life, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	channel := cmd.Channel()
	stop := context.AfterFunc(ctx, kill)
	err = cmd.Start()
	stop()
	if err != nil {
		kill()
		return nil, err
	}
	p := &nodeProcess{cmd: cmd, kill: kill}
	p.read, p.write = io.Pipe()
	p.channel = channel
	n.workers.Go(func() {
		_, err := io.Copy(p.write, channel)
		p.write.CloseWithError(err)
	})
	n.workers.Go(func() {
		cmd.Wait() // the coordinator calls Wait for the status
		kill()
	})
	return p, nil
}

// nodeProcess is a worker in a node. Its channel goes through a pipe, because closing the channel
// must end a Read that waits.
type nodeProcess struct {
	cmd     *testbed.Cmd
	kill    context.CancelFunc
	channel io.ReadWriteCloser
	read    *io.PipeReader
	write   *io.PipeWriter
}

// Channel implements Process.
func (p *nodeProcess) Channel() io.ReadWriteCloser { return pipedChannel{p} }

// Wait implements Process.
func (p *nodeProcess) Wait() error { return p.cmd.Wait() }

// killGrace is how long a killed worker's node has to report that the worker has exited.
const killGrace = 5 * time.Second

// Kill implements Process. Wait returns only when the worker has exited, so that its resources,
// above all its ports, are free.
func (p *nodeProcess) Kill() error {
	if p.cmd.Kill() != nil {
		p.kill() // the supervisor then ends the worker, at an unknown time
		return nil
	}
	time.AfterFunc(killGrace, p.kill)
	return nil
}

type pipedChannel struct{ *nodeProcess }

func (c pipedChannel) Read(b []byte) (int, error)  { return c.read.Read(b) }
func (c pipedChannel) Write(b []byte) (int, error) { return c.channel.Write(b) }

func (c pipedChannel) Close() error {
	return errors.Join(c.read.Close(), c.channel.Close())
}
