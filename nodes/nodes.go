// Package nodes defines Node, one server of the testbed: its processes, identity and isolation,
// behind one interface for every runtime.
//
// A node owns the processes that are started in it. Package fabric builds its network, in the
// network namespace that the node is given.
package nodes

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"railbed/internal/kernel"
	"railbed/nodes/cgroup"
	"railbed/plan"
)

// ErrClosed is returned by Start after Close.
var ErrClosed = errors.New("node is closed")

// ErrNotFound is wrapped by Start when the program is not in the node.
var ErrNotFound = errors.New("program not found in the node")

// Runtime makes nodes of one kind.
type Runtime interface {
	// Create makes the node that config describes. Nothing runs in it yet.
	Create(ctx context.Context, config Config) (Node, error)
}

// Config is all that a runtime knows of a node.
type Config struct {
	Testbed string
	Node    plan.Node
	Hosts   []plan.HostEntry
	// Namespace is the node's network; it stays the caller's.
	Namespace *kernel.Namespace
	// Cgroup limits the node; nil is no limit. It is made already, and closed
	// with the node.
	Cgroup *cgroup.Group
	// Dilation is the plan's, for a node whose kernel is not the host's.
	Dilation uint64
	// Trace gets each change of the node's network as the ip or tc line that equals
	// it; nil traces nothing.
	Trace func(line string)
	// Nice is the nice value of the node's programs, 0 to 19.
	Nice int
}

// Node is one server of the testbed. Its methods are safe for concurrent use.
type Node interface {
	// Start starts a command. ctx bounds the start, not the command.
	Start(ctx context.Context, command Command) (Process, error)
	// Processes counts the processes that are alive in the node, those that
	// commands left behind included and the runtime's own excluded.
	Processes() (int, error)
	// Close kills everything in the node and waits until it is gone.
	Close() error
}

// Command is a program to start in a node. The caller keeps its files and may
// close them once Start has returned.
type Command struct {
	// Args is the argument vector. Args[0] without a slash is looked up in
	// the PATH of Env, inside the node.
	Args []string
	// Self starts the running executable instead of looking Args[0] up.
	Self bool
	// Env is added to the node's own environment and wins over it.
	Env []string
	// Dir is the working directory; one that the node does not have falls
	// back to "/".
	Dir string
	// Stdin, Stdout and Stderr; nil is /dev/null.
	Stdin, Stdout, Stderr *os.File
	// Channel becomes descriptor 3; nil leaves it closed.
	Channel *os.File
	// Terminal says that Stdin is a terminal that becomes the controlling one.
	Terminal bool
}

// Exit is how a process ended: by a signal when Signal is not zero, else with
// Code.
type Exit struct {
	Code   int            `json:"code"`
	Signal syscall.Signal `json:"signal,omitempty"`
}

// Process is a started command, leader of a process group of its own, and with a
// terminal of a session.
type Process interface {
	// Pid is the process id as the supervisor sees it, or as a kernel of the node's
	// own does.
	Pid() int
	// Signal signals the process's whole group. A process that has ended is no
	// error.
	Signal(signal syscall.Signal) error
	// Wait waits for the end. It may be called by several goroutines.
	Wait() (Exit, error)
}

// GroupKiller is a process whose number is not the supervisor's: it kills what its
// ended leader has left of the group by itself.
type GroupKiller interface {
	KillGroup()
}

// Terminate asks the process to end, with SIGHUP as its terminal would and
// SIGTERM, and kills it when it has not ended after the grace time. It returns
// when the process has ended.
func Terminate(p Process, grace time.Duration) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Wait()
	}()
	p.Signal(syscall.SIGHUP)
	p.Signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-ended:
		return
	case <-timer.C:
	}
	p.Signal(syscall.SIGKILL)
	<-ended
}
