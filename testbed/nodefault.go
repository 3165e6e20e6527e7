package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"railbed/plan/spec"
)

// KillPrograms kills all programs of a node, and returns the number of their processes. Their kernel still
// tells their peers, unless the node's links are down.
func (t *Testbed) KillPrograms(ctx context.Context, node string) (processes int, err error) {
	return t.signalAll(ctx, node, syscall.SIGKILL)
}

// Hang stops all programs of a node with SIGSTOP. It returns the number of their processes. The node's kernel
// still answers.
func (t *Testbed) Hang(ctx context.Context, node string) (processes int, err error) {
	return t.signalAll(ctx, node, syscall.SIGSTOP)
}

// Resume continues the programs of a node after Hang.
func (t *Testbed) Resume(ctx context.Context, node string) error {
	_, err := t.signalAll(ctx, node, syscall.SIGCONT)
	return err
}

// signalAll signals all processes of a node and returns their number. A process inside the node sends the
// signals.
func (t *Testbed) signalAll(ctx context.Context, node string, signal syscall.Signal) (processes int,
	err error) {
	n := t.Node(node)
	if n.Plan() == nil {
		return 0, fmt.Errorf("node %q: %w", node, ErrNoSuchObject)
	}
	outside := "" // a virtual machine has its own kernel, so there is no namespace to compare with
	if n.Plan().Runtime != spec.VM {
		if outside, err = pidNamespace(); err != nil {
			return 0, err
		}
	}
	var printed bytes.Buffer
	cmd := n.Part(ctx, signalPart, strconv.Itoa(int(signal)), outside)
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("signal the programs of %s: %w: %s", node, err, bytes.TrimSpace(printed.Bytes()))
	}
	return strconv.Atoi(string(bytes.TrimSpace(printed.Bytes())))
}

// signalPart is the name of the part of the executable that signals all processes of a node but itself.
const signalPart = "signal"

// pidNamespace identifies the PID namespace of this process.
func pidNamespace() (string, error) { return os.Readlink("/proc/self/ns/pid") }

// signalMain is the main function of the part. Its arguments are the signal and the PID namespace of the
// caller. If the part runs in that namespace, it sends no signal: it would reach processes outside the node.
func signalMain(args []string) int {
	fail := func(text string, values ...any) int {
		fmt.Printf(text+"\n", values...)
		return 1
	}
	if len(args) != 2 {
		return fail("%d arguments, want a signal and a PID namespace", len(args))
	}
	number, err := strconv.Atoi(args[0])
	if err != nil {
		return fail("signal %q: want a number", args[0])
	}
	// The parent is outside, so it has no number here. In a virtual machine it is the guest's agent.
	if args[1] != "" && os.Getppid() > 1 {
		return fail("the parent, process %d, is in the node's PID namespace", os.Getppid())
	}
	if own, err := pidNamespace(); err != nil || own == args[1] {
		return fail("the node has no PID namespace of its own: %s, %v", own, err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fail("%v", err)
	}
	processes := 0
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid <= 1 || pid == os.Getpid() {
			continue
		}
		// Threads of a kernel, and processes that have ended, have no command line.
		if line, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline"); err == nil && len(line) > 0 {
			processes++
		}
	}
	// -1 signals all processes of the namespace except PID 1 and the caller (kill(2)).
	if err := syscall.Kill(-1, syscall.Signal(number)); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fail("%v", err)
	}
	fmt.Println(processes)
	return 0
}
