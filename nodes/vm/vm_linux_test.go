package vm

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"railbed/internal/kernel"
	"railbed/internal/reexec"
	"railbed/internal/verdict"
	"railbed/internal/vmimage"
	"railbed/nodes"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
	"railbed/testkit/nodestest"
)

// The tests boot guests.
var _ = hosttest.MarkPackage(hosttest.Unraced, hosttest.AsNobody)

func TestMain(m *testing.M) {
	reexec.Run(reexec.Parts{Part: Main, GuestPart: GuestMain})
	if err := reexec.CloseInherited(3); err != nil {
		panic(err)
	}
	os.Exit(hosttest.MainInUserNS(m))
}

// makeGuest boots a guest without NICs.
func makeGuest(t *testing.T, r *Runtime, n plan.Node) (nodes.Node, error) {
	t.Helper()
	namespace, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() })
	n.MachineID = fmt.Sprintf("%032x", int(n.Name[0]))
	return r.Create(t.Context(), nodes.Config{
		Testbed:   "test",
		Namespace: namespace,
		Node:      n,
		Hosts:     []plan.HostEntry{{Addr: netip.MustParseAddr("10.0.0.1"), Name: "a"}},
	})
}

func newRuntime(t *testing.T) *Runtime {
	t.Helper()
	hosttest.Need(t, hosttest.Netns, hosttest.VM)
	r := &Runtime{Processor: TCG}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestConformance(t *testing.T) {
	hosttest.Long(t)
	r := newRuntime(t)
	if otherUser() == 0 {
		t.Skip("an ordinary user's guests differ in nothing that this looks at; TestGuest has one")
	}
	nodestest.Run(t, func(t *testing.T, name string) nodes.Node {
		node, err := makeGuest(t, r, plan.Node{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return node
	}, nodestest.Options{OwnKernel: true, Few: true})
}

// shell runs a script in a node, with input, and returns what it printed.
func shell(t *testing.T, n nodes.Node, script, input string) string {
	t.Helper()
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	output, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	process, err := n.Start(t.Context(),
		nodes.Command{Args: []string{"sh", "-c", script}, Stdin: in, Stdout: out, Stderr: out})
	in.Close()
	out.Close()
	if err != nil {
		feed.Close()
		t.Fatalf("%s: %v", script, err)
	}
	go func() {
		_, _ = io.WriteString(feed, input)
		feed.Close()
	}()
	text, err := io.ReadAll(output)
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := process.Wait(); err != nil || exit.Code != 0 {
		t.Fatalf("%s: %+v, %v, %s", script, exit, err, text)
	}
	return strings.TrimSpace(string(text))
}

// TestGuest checks a guest from inside, and QEMU from outside. It also checks that the guest ends
// when its channel is closed.
func TestGuest(t *testing.T) {
	hosttest.Long(t)
	r := newRuntime(t)
	made, err := makeGuest(t, r, plan.Node{Name: "a", Modules: []string{"sch-netem"}, Memory: 384 << 20,
		CPU: 1.5, Env: map[string]string{"COLOUR": "blue"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	})
	k, err := vmimage.FindKernel()
	if err != nil {
		t.Fatal(err)
	}
	const marker = "/usr/written-by-a-guest"
	for script, want := range map[string]string{
		"uname -r":                                       k.Release,
		"grep -c '^sch_netem ' /proc/modules":            "1",
		"ls -A /root /home > /tmp/list && cat /tmp/list": "/home:\n\n/root:",
		"wc -c < /etc/shadow":                            "0",
		"nproc; echo $COLOUR":                            "2\nblue",
		"awk '/MemTotal/ {print ($2 > 250000 && $2 < 393216)}' /proc/meminfo": "1",
		"echo mine > " + marker + " && cat " + marker:                         "mine",
		"ls /tmp /run | grep -c railbed; true":                                "0",
	} {
		if got := shell(t, made, script, ""); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what the guest wrote is on the host: %v", err)
	}
	// A megabyte in and out, which is more than the channel's buffers.
	long := strings.Repeat("0123456789abcdef", 1<<16)
	if got := shell(t, made, "cat > /tmp/file; cat /tmp/file", long); got != long {
		t.Errorf("%d bytes came back of %d, or others", len(got), len(long))
	}
	checkRights(t, made.(*node))
	checkTerminal(t, made)

	process, err := made.Start(t.Context(), nodes.Command{Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	made.(*node).qemu.serial.Close() // as when its owner is killed
	if exit, err := process.Wait(); err == nil || exit.Signal != syscall.SIGKILL {
		t.Errorf("without a guest: %+v, %v; want SIGKILL and a reason", exit, err)
	}
	<-made.(*node).qemu.ended
	if _, err := made.Start(t.Context(), nodes.Command{Args: []string{"true"}}); err == nil ||
		!strings.Contains(err.Error(), "the virtual machine has ended") {
		t.Errorf("start without a guest: %v", err)
	}
}

// checkRights reads what the kernel says of QEMU.
func checkRights(t *testing.T, n *node) {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(n.qemu.process.Pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		t.Fatal(err)
	}
	wanted := []string{"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000",
		"CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"}
	if user, _ := identity(TCG); user != 0 {
		wanted = append(wanted, fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d", user), "Groups:\t \n")
	}
	for _, want := range wanted {
		if !strings.Contains(string(status), want) {
			t.Errorf("QEMU's status lacks %q:\n%s", want, status)
		}
	}
	for _, namespace := range []string{"net", "pid", "mnt", "ipc", "uts"} {
		theirs, err := os.Readlink(filepath.Join(dir, "ns", namespace))
		ours, _ := os.Readlink(filepath.Join("/proc/self/ns", namespace))
		if err == nil && theirs == ours {
			t.Errorf("QEMU shares the %s namespace with us", namespace)
		}
	}
}

// checkTerminal: a terminal's size, and that the guest's does the echo and the line.
func checkTerminal(t *testing.T, n nodes.Node) {
	t.Helper()
	ours, theirs, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if err := pty.Setsize(ours, &pty.Winsize{Rows: 17, Cols: 71}); err != nil {
		t.Fatal(err)
	}
	script := "stty size; tty; read -r line; echo got $line; exit 5"
	process, err := n.Start(t.Context(),
		nodes.Command{Args: []string{"sh", "-c", script}, Stdin: theirs, Stdout: theirs, Stderr: theirs,
			Terminal: true})
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(ours, "words\r"); err != nil {
		t.Fatal(err)
	}
	exit, err := process.Wait()
	if err != nil || exit.Code != 5 {
		t.Errorf("on a terminal: %+v, %v", exit, err)
	}
	text, _ := io.ReadAll(ours) // ends with EIO
	for _, want := range []string{"17 71\r\n", "/dev/pts/", "got words\r\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the terminal shows %q, want %q in it", text, want)
		}
	}
}

// TestGuestsThatCannotBe: each says why, and nothing of them stays.
func TestGuestsThatCannotBe(t *testing.T) {
	r := newRuntime(t)
	if _, err := makeGuest(t, r, plan.Node{Name: "a", Modules: []string{"no_such"}}); !errors.Is(err,
		vmimage.ErrNoModule) || !strings.Contains(err.Error(), "load module no_such") {
		t.Errorf("a module that does not exist: %v", err)
	}
	// A guest that needs more than there is.
	var lacking *verdict.UnsupportedError
	if err := Check([]plan.Node{{Runtime: spec.VM, Memory: 1 << 50}}); !errors.As(err, &lacking) {
		t.Errorf("a petabyte of memory: %v", err)
	}
	if err := Check([]plan.Node{{Runtime: spec.Netns, Memory: 1 << 50}}); err != nil {
		t.Errorf("no guest: %v", err)
	}
	if _, err := makeGuest(t, r, plan.Node{Name: "a", CPU: 300}); err == nil ||
		!strings.Contains(err.Error(), program+" said: ") {
		t.Errorf("more processors than a machine has: %v; want QEMU's own words", err)
	}
}
