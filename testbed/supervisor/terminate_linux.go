package supervisor

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"railbed/nodes"
)

// execGrace is how long the processes of a command's group may take to end after SIGHUP and
// SIGTERM, when its client disconnected. They are killed after that.
const execGrace = 2 * time.Second

// terminate ends a command and the rest of its process group, as the end of its terminal would, and
// returns when they have ended or were killed. Processes that started a session of their own stay,
// as on any machine.
func terminate(process nodes.Process) {
	deadline := time.Now().Add(execGrace)
	nodes.Terminate(process, execGrace)
	if elsewhere, is := process.(nodes.GroupKiller); is {
		elsewhere.KillGroup()
		return
	}
	for {
		members := groupMembers(process.Pid())
		if len(members) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, pid := range members {
				killMember(pid, process.Pid())
			}
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// groupMembers returns the processes, except zombies, of the group of a leader that has ended.
// While the group has members its number is not reused. If a process has that number as its PID,
// the group therefore belongs to another command.
func groupMembers(group int) []int {
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", group)); err == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var members []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && inGroup(pid, group) {
			members = append(members, pid)
		}
	}
	return members
}

// inGroup reports whether a process belongs to a group and is not a zombie.
func inGroup(pid, group int) bool {
	_, state, of, err := processStat(pid)
	return err == nil && of == group && state != 'Z' && state != 'X'
}

// processStat reads a process's name, state and process group from /proc/PID/stat. The second
// field, in parentheses, may contain any characters (proc_pid_stat(5)).
func processStat(pid int) (name string, state rune, group int, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, 0, err // the process has ended
	}
	from, to := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	var parent int
	_, err = fmt.Sscanf(string(stat[to+1:]), " %c %d %d", &state, &parent, &group)
	return string(stat[from+1 : to]), state, group, err
}

// stoppedMember returns the name of a process of a command's group that a signal has stopped. It
// returns "" if there is none, or if the command is not a process of the supervisor's PID
// namespace.
func stoppedMember(process nodes.Process) string {
	if _, elsewhere := process.(nodes.GroupKiller); elsewhere {
		return ""
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return ""
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if name, state, group, err := processStat(pid); err == nil && group == process.Pid() && state == 'T' {
			return name
		}
	}
	return ""
}

// killMember kills a process of the group. It uses a descriptor, so the signal cannot reach another
// process with the same number.
func killMember(pid, group int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // the process has ended
	}
	defer unix.Close(fd)
	if inGroup(pid, group) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // an error means that it has ended
	}
}
