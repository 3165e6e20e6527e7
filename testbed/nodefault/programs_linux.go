package nodefault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"railbed/plan/spec"
)

// crash kills programs. A crash of whole nodes first takes the links of the nodes down.
type crash struct {
	counted
	acting
	release map[string]func(context.Context) error // by node
}

func (k *crash) begin(ctx context.Context, node string) (uint64, error) {
	if !k.fault.OfPrograms() {
		release, err := k.host.Unplug(ctx, node)
		if err != nil {
			return 0, err
		}
		k.release[node] = release
	}
	killed, err := k.signal(ctx, node, syscall.SIGKILL)
	if err != nil {
		err = errors.Join(err, k.end(ctx, node))
	}
	return killed, err
}

// end takes the links up. The programs stay dead.
func (k *crash) end(ctx context.Context, node string) error {
	if release := k.release[node]; release != nil {
		delete(k.release, node)
		return release(ctx)
	}
	return nil
}

// hang stops programs with SIGSTOP. The node's kernel still answers.
type hang struct {
	counted
	acting
}

func (k *hang) begin(ctx context.Context, node string) (uint64, error) {
	return k.signal(ctx, node, syscall.SIGSTOP)
}

func (k *hang) end(ctx context.Context, node string) error {
	_, err := k.signal(ctx, node, syscall.SIGCONT)
	return err
}

// signal signals the processes of a node that the fault selects, and returns their number. A process inside
// the node sends the signals.
func (a *acting) signal(ctx context.Context, node string, signal syscall.Signal) (processes uint64,
	err error) {
	rank := ""
	if a.fault.Rank != nil {
		rank = strconv.Itoa(*a.fault.Rank)
	}
	count, err := a.within(ctx, node, signalPart, strconv.Itoa(int(signal)), a.fault.Program, rank)
	if err != nil {
		return 0, fmt.Errorf("signal the programs of %s: %w", node, err)
	}
	return uint64(count), nil
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

// signalPart is the name of the part of the executable that signals processes of a node.
const signalPart = "signal"

// pidNamespace identifies the PID namespace of this process.
func pidNamespace() (string, error) { return os.Readlink("/proc/self/ns/pid") }

// signalMain is the main function of the part. Its arguments are the PID namespace of the caller, the signal,
// and the name and the rank of programs. If the part runs in that namespace, it sends no signal: it would
// reach processes outside the node.
func signalMain(args []string) int {
	fail := func(text string, values ...any) int {
		fmt.Printf(text+"\n", values...)
		return 1
	}
	if len(args) != 4 {
		return fail("%d arguments, want a PID namespace, a signal, a name and a rank", len(args))
	}
	number, err := strconv.Atoi(args[1])
	if err != nil {
		return fail("signal %q: want a number", args[1])
	}
	if err := inNode(args[0]); err != nil {
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
