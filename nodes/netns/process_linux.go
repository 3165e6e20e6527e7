package netns

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"railbed/nodes"
)

// process is a command in a node; a goroutine of its own waits for it.
type process struct {
	pid  int
	done chan struct{}
	exit nodes.Exit
	err  error
}

func watch(p *os.Process) *process {
	watched := &process{pid: p.Pid, done: make(chan struct{})}
	go func() {
		defer close(watched.done)
		state, err := p.Wait()
		if err != nil {
			watched.err = fmt.Errorf("wait for process %d: %w", p.Pid, err)
			return
		}
		watched.exit = nodes.ExitOf(state.Sys().(syscall.WaitStatus))
	}()
	return watched
}

// Pid implements nodes.Process.
func (p *process) Pid() int { return p.pid }

// Signal implements nodes.Process. The kernel does not reuse a process group's number while the
// group has members, so a late signal cannot reach another group.
func (p *process) Signal(signal syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(-p.pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process group %d: %w", p.pid, err)
	}
	return nil
}

// Wait implements nodes.Process.
func (p *process) Wait() (nodes.Exit, error) {
	<-p.done
	return p.exit, p.err
}
