package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"railbed/internal/units"
	"railbed/nodes/cgroup"
	"railbed/plan/spec"
	"railbed/testbed/supervisor"
)

// Programs selects processes of a node. The zero Programs selects all.
type Programs struct {
	// Name is a glob of the names of programs: the base name of the command's first word. Default: all.
	Name string
	// Rank selects the processes of a rank: of a workload of Railbed, or with the rank in
	// OMPI_COMM_WORLD_RANK, PMI_RANK or RANK of their environment. Nil selects all.
	Rank *int
}

// KillPrograms kills programs of a node, and returns the number of their processes. Their kernel still closes
// their connections, unless the node's links are down.
func (t *Testbed) KillPrograms(ctx context.Context, node string, which Programs) (processes int, err error) {
	return t.signal(ctx, node, which, syscall.SIGKILL)
}

// Hang stops programs of a node with SIGSTOP. It returns the number of their processes. The node's kernel
// still answers.
func (t *Testbed) Hang(ctx context.Context, node string, which Programs) (processes int, err error) {
	return t.signal(ctx, node, which, syscall.SIGSTOP)
}

// Slow limits the processor time of a node to a number of cores, or restores the file's limit with 0. A
// fault of the file must slow the node, because only such nodes have a control group.
func (t *Testbed) Slow(ctx context.Context, node string, cpu float64) error {
	return t.call(ctx, http.MethodPost, "/v1/slow", supervisor.SlowRequest{Node: node, CPU: cpu}, nil)
}

// LimitMemory limits the memory of a node's programs, or restores the file's limit with 0. A fault of the
// file must limit the node's memory, because only such nodes have a control group. LimitMemory returns what
// limits of the node's memory did before the change.
func (t *Testbed) LimitMemory(ctx context.Context, node string, limit units.Bytes) (
	cgroup.MemoryEvents, error) {
	return t.memory(ctx, supervisor.MemoryRequest{Node: node, Limit: &limit})
}

// MemoryEvents returns what limits of a node's memory did so far. As for LimitMemory, a fault of the file
// must limit the node's memory.
func (t *Testbed) MemoryEvents(ctx context.Context, node string) (cgroup.MemoryEvents, error) {
	return t.memory(ctx, supervisor.MemoryRequest{Node: node})
}

func (t *Testbed) memory(ctx context.Context, request supervisor.MemoryRequest) (
	events cgroup.MemoryEvents, err error) {
	err = t.call(ctx, http.MethodPost, "/v1/memory", request, &events)
	return events, err
}

// Resume continues programs of a node after Hang.
func (t *Testbed) Resume(ctx context.Context, node string, which Programs) error {
	_, err := t.signal(ctx, node, which, syscall.SIGCONT)
	return err
}

// signal signals processes of a node and returns their number. A process inside the node sends the signals.
func (t *Testbed) signal(ctx context.Context, node string, which Programs, signal syscall.Signal) (
	processes int, err error) {
	outside, err := t.outsideOf(node)
	if err != nil {
		return 0, err
	}
	rank := ""
	if which.Rank != nil {
		rank = strconv.Itoa(*which.Rank)
	}
	count, err := t.within(ctx, node, signalPart, strconv.Itoa(int(signal)), outside, which.Name, rank)
	if err != nil {
		return 0, fmt.Errorf("signal the programs of %s: %w", node, err)
	}
	return int(count), nil
}

// outsideOf identifies the PID namespace of this process, for inNode. For a virtual machine it is empty.
func (t *Testbed) outsideOf(node string) (string, error) {
	if n := t.Node(node).Plan(); n != nil && n.Runtime == spec.VM {
		return "", nil
	}
	return pidNamespace()
}

// inNode returns an error if this process is not in a node. outside is the PID namespace of the process that
// started it in the node, or empty for a virtual machine, which has its own kernel and so no such namespace.
func inNode(outside string) error {
	// The parent is outside, so it has no number here. In a virtual machine it is the guest's agent.
	parent := os.Getppid()
	switch {
	case outside == "" && parent != 1:
		return fmt.Errorf("the parent is process %d, and not the first process of a virtual machine", parent)
	case outside == "":
		return nil
	case parent > 1:
		return fmt.Errorf("the parent, process %d, is in the node's PID namespace", parent)
	}
	if own, err := pidNamespace(); err != nil || own == outside {
		return fmt.Errorf("the node has no PID namespace of its own: %s, %v", own, err)
	}
	return nil
}

// within runs a part of the executable in a node, and returns the number that the part prints.
func (t *Testbed) within(ctx context.Context, node, part string, args ...string) (number int64, err error) {
	n := t.Node(node)
	if n.Plan() == nil {
		return 0, fmt.Errorf("node %q: %w", node, ErrNoSuchObject)
	}
	var printed bytes.Buffer
	cmd := n.Part(ctx, part, args...)
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, bytes.TrimSpace(printed.Bytes()))
	}
	return strconv.ParseInt(string(bytes.TrimSpace(printed.Bytes())), 10, 64)
}

// signalPart is the name of the part of the executable that signals processes of a node.
const signalPart = "signal"

// pidNamespace identifies the PID namespace of this process.
func pidNamespace() (string, error) { return os.Readlink("/proc/self/ns/pid") }

// signalMain is the main function of the part. Its arguments are the signal, the PID namespace of the caller,
// and the name and rank of Programs. If the part runs in that namespace, it sends no signal: it would reach
// processes outside the node.
func signalMain(args []string) int {
	fail := func(text string, values ...any) int {
		fmt.Printf(text+"\n", values...)
		return 1
	}
	if len(args) != 4 {
		return fail("%d arguments, want a signal, a PID namespace, a name and a rank", len(args))
	}
	number, err := strconv.Atoi(args[0])
	if err != nil {
		return fail("signal %q: want a number", args[0])
	}
	if err := inNode(args[1]); err != nil {
		return fail("%v", err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fail("%v", err)
	}
	name, rank := args[2], args[3]
	var processes []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid <= 1 || pid == os.Getpid() {
			continue
		}
		if selected(entry.Name(), name, rank) {
			processes = append(processes, pid)
		}
	}
	targets := processes
	if name == "" && rank == "" {
		targets = []int{-1} // all processes of the namespace except PID 1 and the caller (kill(2))
	}
	for _, pid := range targets {
		if err := syscall.Kill(pid, syscall.Signal(number)); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fail("%v", err)
		}
	}
	fmt.Println(len(processes))
	return 0
}

// rankWords are the environment variables in which launchers pass a process its rank.
var rankWords = []string{"RANK=", "OMPI_COMM_WORLD_RANK=", "PMI_RANK="}

// selected reports whether a process has a name and a rank. Threads of a kernel, and processes that have
// ended, have no command line, and are never selected.
func selected(pid, name, rank string) bool {
	line, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil || len(line) == 0 {
		return false
	}
	words := strings.Split(string(line), "\x00")
	if name != "" && !spec.Match(name, path.Base(words[0])) {
		return false
	}
	if rank == "" {
		return true
	}
	environment, _ := os.ReadFile("/proc/" + pid + "/environ") // it may have ended
	words = append(words, strings.Split(string(environment), "\x00")...)
	return slices.ContainsFunc(rankWords, func(word string) bool { return slices.Contains(words, word+rank) })
}
