package nodes

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper starts processes and collects every child that ends. It is for the first process of a node
// with a PID namespace or a kernel of its own.
type Reaper struct {
	mu      sync.Mutex // held while a process is started, so that its end is noticed
	waiting map[int]chan syscall.WaitStatus
}

// NewReaper begins to reap, until this process ends.
func NewReaper() *Reaper {
	r := &Reaper{waiting: map[int]chan syscall.WaitStatus{}}
	go r.reap()
	return r
}

// Start starts a process. Its status is sent on the channel when it ends.
func (r *Reaper) Start(path string, args []string, attributes *syscall.ProcAttr) (pid int,
	ended <-chan syscall.WaitStatus, err error) {
	end := make(chan syscall.WaitStatus, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, _, err = syscall.StartProcess(path, args, attributes)
	if err == nil {
		r.waiting[pid] = end
	}
	return pid, end, err
}

// reap collects children. With no child left wait4 fails with ECHILD at once, so reap sleeps until
// the next SIGCHLD.
func (r *Reaper) reap() {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			<-children
		default:
			r.mu.Lock()
			if ended := r.waiting[pid]; ended != nil {
				ended <- status
				delete(r.waiting, pid)
			}
			r.mu.Unlock()
		}
	}
}

// ExitOf converts a status to an Exit.
func ExitOf(status syscall.WaitStatus) Exit {
	if status.Signaled() {
		return Exit{Code: 128 + int(status.Signal()), Signal: status.Signal()}
	}
	return Exit{Code: status.ExitStatus()}
}
