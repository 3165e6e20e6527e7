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

// KillStarted kills the running supervisors that this process has started, whatever they are doing,
// and returns the names of their testbeds. The kernel removes these testbeds. rundir.Sweep removes
// the rest.
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
		// The data read below belong to the process of the descriptor, because a child keeps its
		// number until it is waited for.
		name, ours := startedSupervisor(pid)
		if ours && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil {
			killed = append(killed, name)
		}
		unix.Close(fd)
	}
	return killed, nil
}

// startedSupervisor reports whether a process is a supervisor and a child of this process, and
// returns the name of its testbed.
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

// testbedOf returns the name of the testbed whose supervisor a process is, or "".
func testbedOf(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	words := strings.Split(string(line), "\x00")
	if err != nil || len(words) < 2 || words[0] != reexec.Argv(supervisor.Part)[0] {
		return ""
	}
	return words[1]
}

// Supervisor identifies the process of a testbed's supervisor for as long as it is open, also if
// the supervisor no longer answers. Kill can be called concurrently with Close and after it.
type Supervisor struct{ process *os.Process }

// FindSupervisor asks the kernel for the process that serves a testbed. It does not find a
// supervisor that is still starting or is ending, because such a supervisor does not serve.
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
	process, err := os.FindProcess(server.PID) // this holds the process by a pidfd
	if err != nil {
		return nil, fmt.Errorf("find supervisor of %s: %w", name, err)
	}
	// While the lock is held the listener exists. The process number was therefore still the
	// supervisor's when the descriptor was opened.
	if !dir.Running() {
		return nil, errors.Join(fmt.Errorf("find supervisor of %s: %w", name, ErrNotRunning),
			process.Release())
	}
	return &Supervisor{process: process}, nil
}

// dialTimeout is for a supervisor that accepts no connections any more, if the kernel's queue of
// waiting clients is full.
const dialTimeout = time.Second

// Kill kills the supervisor and with it the testbed. If the supervisor has ended, Kill returns no
// error.
func (s *Supervisor) Kill() error {
	if err := s.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill supervisor: %w", err)
	}
	return nil
}

// Stopped reports whether a signal or a debugger has stopped the supervisor.
func (s *Supervisor) Stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.process.Pid))
	end := bytes.LastIndexByte(stat, ')')
	return err == nil && end > 0 && len(stat) > end+2 && strings.ContainsRune("Tt", rune(stat[end+2]))
}

// Pid returns the process number of the supervisor.
func (s *Supervisor) Pid() int { return s.process.Pid }

// Close releases the process.
func (s *Supervisor) Close() error { return s.process.Release() }
