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
	"railbed/internal/units"
	"railbed/nodes/cgroup"
	"railbed/plan"
)

// ErrClosed is returned by Start after Close.
var ErrClosed = errors.New("node is closed")

// ErrNotFound is wrapped by Start when the program is not in the node.
var ErrNotFound = errors.New("program not found in the node")

// ErrNoFolder is wrapped by Start when the node lacks the directory of the command, or the entry of the
// directory that the command wants.
var ErrNoFolder = errors.New("no such directory in the node")

// Runtime makes nodes of one kind.
type Runtime interface {
	// Create makes the node that config describes. Nothing runs in it yet.
	Create(ctx context.Context, config Config) (Node, error)
}

// Config describes a node to a runtime.
type Config struct {
	Testbed string
	Node    plan.Node
	Hosts   []plan.HostEntry
	// Namespace is the node's network namespace. It stays the caller's.
	Namespace *kernel.Namespace
	// Cgroup limits the node; nil is no limit. The group exists already, and is closed with the
	// node.
	Cgroup *cgroup.Group
	// Dilation is the plan's time dilation, for a node with a kernel of its own.
	Dilation uint64
	// Trace is called with each change of the node's network, as the equivalent ip or tc line. It
	// may be nil.
	Trace func(line string)
	// Nice is the nice value of the node's programs, 0 to 19.
	Nice int
}

// Node is one server of the testbed. Its methods are safe for concurrent use.
type Node interface {
	// Start starts a command. ctx bounds the start, not the command.
	Start(ctx context.Context, command Command) (Process, error)
	// Processes counts the live processes in the node, including processes that commands left
	// behind, without the runtime's own processes.
	Processes() (int, error)
	// Close kills all processes in the node and waits until it is gone.
	Close() error
}

// MemoryLimiter is a node that limits the memory of its programs itself: its engine or its own kernel does.
// The memory of other nodes is limited by their cgroup.Group, which is a MemoryLimiter, too.
type MemoryLimiter interface {
	// Squeeze limits the memory of the node's programs from now on. If they have too much then, they are
	// killed, the largest first. 0 restores the limit of the file, and nil changes nothing. Squeeze returns
	// what limits of the node's memory did before.
	Squeeze(limit *units.Bytes) (cgroup.MemoryEvents, error)
}

// CPULimiter is MemoryLimiter for the processor time.
type CPULimiter interface {
	// SetCPU limits the processor time from now on to a number of cores. 0 restores the limit of the file.
	SetCPU(cores float64) error
}

// Command is a program to start in a node. The caller keeps its files and may close them once Start
// has returned.
type Command struct {
	// Args is the argument vector. Args[0] without a slash is looked up in
	// the PATH of Env, inside the node.
	Args []string
	// Self starts the running executable instead of looking Args[0] up.
	Self bool
	// Env is added to the node's own environment and wins over it.
	Env []string
	// Dir is the working directory. If the node does not have it, it is "/".
	Dir string
	// DirHas is an entry that Dir must have in the node, such as "." or a file of the host's directory of
	// that name. Otherwise Start returns ErrNoFolder. Default: any directory will do.
	DirHas string
	// Stdin, Stdout and Stderr are the standard streams; nil is /dev/null.
	Stdin, Stdout, Stderr *os.File
	// Channel becomes descriptor 3; nil leaves it closed.
	Channel *os.File
	// Unlimited starts the command outside the node's control group, so that limits of the node cannot
	// stop or kill it. Containers always have the limits of their engine. Default false.
	Unlimited bool
	// Terminal is true if Stdin is a terminal. That terminal becomes the controlling terminal.
	Terminal bool
}

// Exit describes the end of a process: by a signal if Signal is not zero, else with Code.
type Exit struct {
	Code   int            `json:"code"`
	Signal syscall.Signal `json:"signal,omitempty"`
}

// Process is a started command. It leads a process group of its own, and with a terminal a session.
type Process interface {
	// Pid is the process id in the supervisor's PID namespace, or in the node's own kernel.
	Pid() int
	// Signal signals the process's whole group. It is no error if the process has ended.
	Signal(signal syscall.Signal) error
	// Wait waits for the end. It may be called by several goroutines.
	Wait() (Exit, error)
}

// GroupKiller is a process whose id is not of the supervisor's PID namespace. KillGroup kills the
// rest of its group after its leader has ended.
type GroupKiller interface {
	KillGroup()
}

// Terminate signals the process to end, with SIGHUP as its terminal would and with SIGTERM. It
// kills the process after the grace time. It returns when the process has ended.
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
