package testbed

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/peer"
	"railbed/internal/reexec"
	"railbed/internal/rundir"
	"railbed/testbed/supervisor"
)

// KillStarted kills the supervisors that this process has started and that still
// run, whatever they are at, and returns the names of their testbeds. The kernel
// takes these testbeds away; rundir.Sweep removes what it does not.
func KillStarted() ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var killed []string
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		// What is read below is of the process that the descriptor names: a child
		// keeps its number until it is waited for.
		name, ours := startedSupervisor(pid)
		if ours && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil {
			killed = append(killed, name)
		}
		unix.Close(fd)
	}
	return killed, nil
}

// startedSupervisor reports whether a process is a supervisor and a child of
// this one, and the name of its testbed.
func startedSupervisor(pid int) (name string, ours bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	var state rune
	var parent int
	_, err = fmt.Sscanf(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " %c %d", &state, &parent)
	if err != nil || parent != os.Getpid() || state == 'Z' {
		return "", false
	}
	name = testbedOf(pid)
	return name, name != ""
}

// testbedOf is the name of the testbed whose supervisor a process is, or "".
func testbedOf(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	words := strings.Split(string(line), "\x00")
	if err != nil || len(words) < 2 || words[0] != reexec.Argv(supervisor.Part)[0] {
		return ""
	}
	return words[1]
}

// Supervisor names the process of a testbed's supervisor for as long as it is
// open, also when it does not answer any more.
// Kill is safe beside Close and after it.
type Supervisor struct{ process *os.Process }

// FindSupervisor asks the kernel which process serves a testbed. One that is
// still coming up, or going down, serves nothing and is not found.
func FindSupervisor(name string) (*Supervisor, error) {
	dir, err := rundir.Of(name)
	if err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout("unix", dir.Socket(), dialTimeout)
	if err != nil {
		return nil, fmt.Errorf("reach supervisor of %s: %w", name, err)
	}
	defer conn.Close()
	server, err := peer.Of(conn.(*net.UnixConn))
	if err != nil {
		return nil, fmt.Errorf("find supervisor of %s: %w", name, err)
	}
	process, err := os.FindProcess(server.PID) // which holds it by a pidfd
	if err != nil {
		return nil, fmt.Errorf("find supervisor of %s: %w", name, err)
	}
	// While the lock is held the listener lives, and the number was still its own
	// when the descriptor was opened.
	if !dir.Running() {
		return nil, errors.Join(fmt.Errorf("find supervisor of %s: %w", name, ErrNotRunning),
			process.Release())
	}
	return &Supervisor{process: process}, nil
}

// dialTimeout matters for a supervisor that does not accept any more, when more
// clients wait than the kernel lets wait.
const dialTimeout = time.Second

// Kill kills the supervisor and with it the testbed. One that has ended is no
// error.
func (s *Supervisor) Kill() error {
	if err := s.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill supervisor: %w", err)
	}
	return nil
}

// Close gives the name up.
func (s *Supervisor) Close() error { return s.process.Release() }
