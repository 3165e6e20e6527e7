package doctor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"railbed/internal/reexec"
)

// Parts of this program in which it is executed again.
const (
	partNothing = "doctor-nothing" // Exits with 0. The parent tries the clone flags.
	partEnter   = "doctor-enter"   // As an ordinary user: continues in namespaces as partInside.
	partInside  = "doctor-inside"  // In namespaces: tries the features named as arguments.
	partTry     = "doctor-try"     // On the host: tries the features named as arguments.
)

// exitRefused is the exit code of partEnter if the kernel refuses the namespaces. A crash of a Go
// program exits with 2.
const exitRefused = 125

// UID of the ordinary user as which root tries the features of ordinary users.
const nobody = 65534

// probeTimeout bounds one trial. The slowest trials ask programs for their version. tshark takes about a
// second on a busy machine, and more than five where eight programs wait for each CPU.
const probeTimeout = 30 * time.Second

const namespaces = syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
	syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS

// errUnknown marks a trial that does not show whether the feature is there.
var errUnknown = errors.New("not known")

// outcome is a line that a child writes.
type outcome struct {
	Feature string
	Result  Result
	Detail  string
	Remedy  string // "" stands for the feature's remedy
}

// remedied is an error with its own remedy.
type remedied struct {
	error
	remedy string
}

// takeOver runs the part that argv[0] names, if it is one of the doctor's. An init calls it, so a
// program that asks for a feature does not run its own main again in the child.
func takeOver() {
	for part, play := range map[string]func([]string) int{
		partNothing: func([]string) int { return 0 },
		partEnter:   enter,
		partInside:  inside,
		partTry:     tryHere,
	} {
		if os.Args[0] == reexec.Argv(part)[0] {
			os.Exit(play(os.Args[1:]))
		}
	}
}

// enter continues in namespaces and returns the exit code of the child there.
func enter(features []string) int {
	command := again(partInside, features...)
	enterNamespaces(command, true)
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL // an init runs on the main thread
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	err := command.Run()
	var status *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return max(status.ExitCode(), 1)
	}
	fmt.Fprintln(os.Stderr, cloneError(err))
	return exitRefused
}

// inside tries the features in namespaces, so that nothing that they do reaches the host.
func inside(features []string) int {
	if err := reexec.LeaveMountTree(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitRefused
	}
	// Mounted as in a testbed. In a container /proc is read-only below /proc/sys. If proc cannot be
	// mounted, proc-mount reports it.
	_ = syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, "")
	return tryHere(features)
}

// again returns a command that executes this program again in a part.
func again(part string, args ...string) *exec.Cmd {
	command := exec.Command(reexec.Self)
	command.Args = reexec.Argv(part, args...)
	command.SysProcAttr = &syscall.SysProcAttr{}
	return command
}

// enterNamespaces gives the command its own namespaces. user reports whether a user namespace is
// among them.
func enterNamespaces(command *exec.Cmd, user bool) {
	command.SysProcAttr.Cloneflags |= namespaces
	if user {
		enterUserNamespace(command)
	}
}

// enterUserNamespace makes the command root of a user namespace.
func enterUserNamespace(command *exec.Cmd) {
	command.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
	command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
}

// dropRoot makes the command run as an ordinary user if this program is root.
func dropRoot(command *exec.Cmd) {
	if os.Geteuid() == 0 {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
}

// cloneError names the step that the kernel refused when a child did not start.
func cloneError(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("clone: %w", err)
}

// tryAll tries the features in one child after another. A feature that hangs or ends its child is
// unknown, and the next child continues with the others.
func tryAll(ctx context.Context, where place, features []string, outcomes map[string]outcome) {
	for len(features) > 0 && ctx.Err() == nil {
		got, err := tryInChild(ctx, where, features)
		for _, o := range got {
			outcomes[o.Feature] = o
		}
		features = features[len(got):]
		if len(features) == 0 {
			return
		}
		var refused *startError
		if errors.As(err, &refused) {
			for _, name := range features {
				outcomes[name] = outcome{Feature: name, Result: Missing,
					Detail: "needs namespaces: " + refused.Error()}
			}
			return
		}
		outcomes[features[0]] = outcome{Feature: features[0], Result: Unknown,
			Detail: "the trial did not end: " + err.Error()}
		features = features[1:]
	}
}

// startError means that no child could be started in the place.
type startError struct{ err error }

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// tryInChild returns the outcomes of one child, in order, and the reason if some are missing.
func tryInChild(ctx context.Context, where place, features []string) ([]outcome, error) {
	command := again(partTry, features...)
	switch where {
	case inNamespaces:
		command = again(partInside, features...)
		enterNamespaces(command, os.Geteuid() != 0)
	case asOrdinaryUser:
		command = again(partEnter, features...)
		dropRoot(command)
	}
	answers, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open pipe: %w", err)
	}
	defer answers.Close()
	complaints := &firstLine{}
	command.Stdout, command.Stderr = write, complaints
	command.WaitDelay = time.Second // a grandchild may hold stderr open
	// The kernel sends the parent-death signal when the thread that started the child ends, so this
	// thread is kept until the child has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	err = command.Start()
	write.Close()
	if err != nil {
		return nil, &startError{cloneError(err)}
	}
	stop := context.AfterFunc(ctx, func() { command.Process.Kill() })
	defer stop()
	got, err := readOutcomes(answers, len(features))
	if err != nil {
		command.Process.Kill()
	}
	ended := command.Wait()
	if command.ProcessState.ExitCode() == exitRefused {
		return nil, &startError{errors.New(complaints.text)}
	}
	if err != nil {
		return got, errors.Join(err, ended)
	}
	return got, nil
}

// readOutcomes reads count lines, each within probeTimeout.
func readOutcomes(answers *os.File, count int) ([]outcome, error) {
	var got []outcome
	decoder := json.NewDecoder(bufio.NewReader(answers))
	for len(got) < count {
		if err := answers.SetReadDeadline(time.Now().Add(probeTimeout)); err != nil {
			return got, fmt.Errorf("set deadline of pipe: %w", err)
		}
		var o outcome
		if err := decoder.Decode(&o); err != nil {
			return got, fmt.Errorf("read outcome: %w", err)
		}
		got = append(got, o)
	}
	return got, nil
}

// firstLine keeps the first line written to it.
type firstLine struct{ text string }

func (f *firstLine) Write(p []byte) (int, error) {
	if f.text == "" {
		f.text, _, _ = strings.Cut(string(p), "\n")
	}
	return len(p), nil
}

// tryHere runs in the child. It tries each feature and writes an outcome for it.
func tryHere(names []string) int {
	encoder := json.NewEncoder(os.Stdout)
	for _, name := range names {
		index := slices.IndexFunc(features, func(f feature) bool { return f.name == name })
		if index < 0 {
			fmt.Fprintf(os.Stderr, "probe %q: no such feature\n", name)
			return 1
		}
		answer := outcome{Feature: name, Result: OK}
		detail, err := features[index].try()
		answer.Detail = detail
		if err != nil {
			answer.Result, answer.Detail = Missing, err.Error()
		}
		var other *remedied
		if errors.As(err, &other) {
			answer.Remedy = other.remedy
		}
		if errors.Is(err, errUnknown) {
			answer.Result = Unknown
		}
		if err := encoder.Encode(answer); err != nil {
			return 1 // the parent has closed the pipe
		}
	}
	return 0
}
