package hosttest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// ordinaryUID is the ordinary user under which root tests what ordinary users can do.
const ordinaryUID = 65534

// stageEnv contains the stage of a re-executed test binary, which reads it before any of its tests
// or its TestMain runs.
const stageEnv = "RAILBED_HOSTTEST_STAGE"

const (
	stageNothing   = "nothing"   // Exit 0: the parent tried the clone flags.
	stageNamespace = "namespace" // As an ordinary user: exit 0 in namespaces of its own.
	stageTest      = "test"      // As an ordinary user: run the arguments in namespaces of its own.
	stageInside    = "inside"    // In these namespaces: run the test.
	stageIsolated  = "isolated"  // As an ordinary user: run the whole binary in namespaces.
)

// init takes over a re-executed test binary. It has to be an init because a
// package that only calls Need has no TestMain to hook into.
func init() {
	// A program built with -race sleeps for a second before it exits, so that
	// other threads can still be caught. Tests that execute themselves again
	// many times, as supervisors and workers, cannot wait for each.
	if _, set := os.LookupEnv("GORACE"); !set {
		os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	switch os.Getenv(stageEnv) {
	case stageNothing:
		os.Exit(0)
	case stageNamespace:
		exit(inNamespaces(child(stageNothing)).Run())
	case stageTest:
		inside := inNamespaces(child(stageInside, os.Args[1:]...))
		inside.Stdout, inside.Stderr = os.Stdout, os.Stderr
		exit(inside.Run())
	}
}

// exit ends a stage with its child's exit code, or prints the errno of the refused clone as a line
// on stderr.
func exit(err error) {
	var status *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &status):
		os.Exit(max(status.ExitCode(), 1))
	}
	fmt.Fprintln(os.Stderr, unshareError(err))
	os.Exit(1)
}

// child returns a command that runs this test binary again, in a stage.
func child(stage string, args ...string) *exec.Cmd {
	command := exec.Command("/proc/self/exe", args...)
	command.Env = append(os.Environ(), stageEnv+"="+stage)
	return command
}

// ordinaryUser makes the command run as an ordinary user: root drops to ordinaryUID. Root of
// MainInUserNS already is an ordinary user.
func ordinaryUser(command *exec.Cmd) *exec.Cmd {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 && os.Getenv(stageEnv) != stageIsolated {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: ordinaryUID, Gid: ordinaryUID}
	}
	return command
}

// inNamespaces makes the command root of a user namespace, in new namespaces
// of the other kinds.
func inNamespaces(command *exec.Cmd) *exec.Cmd {
	command.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig:   syscall.SIGKILL,
		Cloneflags:  syscall.CLONE_NEWUSER | namespaces,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	return command
}

var skipLine = regexp.MustCompile(`(?m)^\s+\S+_test\.go:\d+: (cannot run here: .*)$`)

// InUserNS runs the calling test a second time, alone. The second run is root of an ordinary user's
// user namespace, with network, mount, PID, IPC and UTS namespaces of its own. If the caller is
// root, the ordinary user is ordinaryUID. InUserNS returns true in the second run. In the first process
// it returns false once the second run has ended, and marks the test as failed or skipped as the
// second was. So a test begins:
//
//	if !hosttest.InUserNS(t) {
//		return
//	}
//
// It is for top-level tests. The directory of the package must be readable by everybody if the test
// opens files in it.
func InUserNS(t *testing.T) bool {
	t.Helper()
	if os.Getenv(stageEnv) == stageInside {
		return true
	}
	Need(t, UserNS)
	// The kernel sends the parent-death signal when the thread that started
	// the child ends; this keeps the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command := ordinaryUser(
		child(stageTest, "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v", "-test.count=1"))
	output, err := command.CombinedOutput()
	second(t, "in a user namespace", output, err)
	return false
}

// second marks the test as failed or skipped as its second run was. It fails the test if the second
// run did not run it.
func second(t *testing.T, where string, output []byte, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v\n%s", where, err, output)
	}
	if skipped := skipLine.FindSubmatch(output); skipped != nil {
		t.Skip(string(skipped[1]))
	}
	if !strings.Contains(string(output), "--- PASS: "+t.Name()) {
		t.Fatalf("%s: the test did not run\n%s", where, output)
	}
}

// MainInUserNS is Main for packages whose tests need the right to make namespaces, but no other
// right of root. If an ordinary user starts it and the host allows user namespaces, it runs the
// binary again. The second run is root of a user namespace with network, mount, IPC and UTS
// namespaces of its own. Root runs the tests directly. The PID namespace stays the host's: the
// first process of a new PID namespace would inherit every orphan.
func MainInUserNS(m *testing.M) int {
	if os.Geteuid() == 0 || Probe(UserNS) != nil {
		return Main(m)
	}
	command := inNamespaces(child(stageIsolated, os.Args[1:]...))
	command.SysProcAttr.Cloneflags &^= syscall.CLONE_NEWPID
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	runtime.LockOSThread() // see InUserNS
	defer runtime.UnlockOSThread()
	err := command.Run()
	var status *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return max(status.ExitCode(), 1)
	}
	fmt.Fprintln(os.Stderr, unshareError(err))
	return 1
}
