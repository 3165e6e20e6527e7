package testbed_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"railbed/internal/reexec"
	"railbed/internal/rundir"
	"railbed/testkit/hosttest"
)

// intruderPart is another user of the host, or a program in a node, that tries to get at a
// testbed. It prints a line for each attempt that succeeds.
const intruderPart = "intruder"

// targets lists the objects that an intruder tries to reach.
type targets struct {
	Sockets []string // to connect to
	Files   []string // to read, or to list
	Writes  []string // to make a file at
	Signals []int    // processes to end
	Asked   []string // sockets to send a request to
}

func intruder(args []string) int {
	var at targets
	if err := json.Unmarshal([]byte(args[0]), &at); err != nil {
		fmt.Println(err)
		return 1
	}
	for _, socket := range at.Sockets {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			fmt.Println("connected to", socket)
		}
	}
	for _, path := range at.Files {
		if file, err := os.Open(path); err == nil {
			file.Close()
			fmt.Println("opened", path)
		}
		if target, err := os.Readlink(path); err == nil {
			fmt.Println("followed", path, "to", target)
		}
	}
	for _, path := range at.Writes {
		if file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
			file.Close()
			fmt.Println("wrote", path)
		}
	}
	for _, pid := range at.Signals {
		if syscall.Kill(pid, 0) == nil {
			fmt.Println("may signal process", pid)
		}
	}
	for _, socket := range at.Asked {
		if asked(socket) {
			fmt.Println("got an answer from", socket)
		}
	}
	fmt.Println("tried all")
	return 0
}

// asked reports whether a testbed's socket answers a request.
func asked(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /v1/events HTTP/1.0\r\n\r\n")
	n, _ := conn.Read(make([]byte, 1))
	return n > 0
}

func (at targets) argv(t *testing.T) []string {
	t.Helper()
	text, err := json.Marshal(at)
	if err != nil {
		t.Fatal(err)
	}
	return reexec.Argv(intruderPart, string(text))
}

// of are a testbed's socket, files and processes, as the host has them.
func of(t *testing.T, name string, supervisor int) targets {
	t.Helper()
	dir, err := rundir.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	proc := fmt.Sprintf("/proc/%d/", supervisor)
	return targets{
		Sockets: []string{dir.Socket()},
		Files: []string{dir.Path, dir.Log(), dir.Path + "/lock", proc + "environ", proc + "root",
			proc + "fd", proc + "ns/net", proc + "mem"},
		Writes:  []string{dir.Path + "/planted", dir.Log(), proc + "oom_score_adj"},
		Signals: []int{supervisor},
	}
}

// as runs the intruder on the host as another user.
func (at targets) as(t *testing.T, uid uint32) string {
	t.Helper()
	command := &exec.Cmd{Path: reexec.Self, Args: at.argv(t),
		SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return string(output)
}

// Another user of the host reaches nothing of a testbed, and its owner all of it.
func TestOtherUsersReachNothing(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	tb := up(t, "go-intruder")
	state, err := tb.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := of(t, tb.Name(), state.PID)
	at.Files = append(at.Files, state.Nodes[0].NamespacePath)
	if said := at.as(t, 61002); said != "tried all\n" {
		t.Errorf("user 61002:\n%s", said)
	}
	// The same attempts succeed for the owner, so that they are attempts.
	said := at.as(t, 0)
	for _, want := range append(append(append([]string{}, at.Sockets...), at.Writes...), at.Files...) {
		if !strings.Contains(said, " "+want) {
			t.Errorf("the owner fails at %s:\n%s", want, said)
		}
	}
	if !strings.Contains(said, "may signal process") {
		t.Errorf("the owner may not signal the supervisor:\n%s", said)
	}
}

// A program of a node that runs as the node's root sees and signals no process outside its node. It
// finds no socket of the host by path or by abstract name.
func TestNodesSeeNoOthers(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	tb := up(t, "go-inside")
	state, err := tb.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := tb.Node("h1").Command(t.Context(), "sleep", "4243")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Kill()
	abstract, err := net.Listen("unix", "@railbed-test-of-the-host")
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	planted, err := os.MkdirTemp("", "redteam") // of the host's /tmp
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(planted)
	at := of(t, tb.Name(), state.PID)
	at.Sockets = append(at.Sockets, abstract.Addr().String(), "/run/docker.sock", "/var/run/docker.sock",
		"/run/dbus/system_bus_socket", "/run/systemd/private")
	at.Files = append(at.Files, planted)
	at.Writes = append(at.Writes, planted+"/planted")
	at.Signals = append(at.Signals, os.Getpid())
	// The same attempts succeed for root outside, so that they are attempts.
	outside := at.as(t, 0)
	for _, want := range []string{abstract.Addr().String(), at.Sockets[0], planted,
		fmt.Sprintf("process %d", state.PID)} {
		if !strings.Contains(outside, " "+want+"\n") {
			t.Errorf("outside the node the attempt at %s fails:\n%s", want, outside)
		}
	}
	if err := os.Remove(planted + "/planted"); err != nil {
		t.Fatal(err)
	}
	said, err := tb.Node("h0").Part(t.Context(), intruderPart, at.argv(t)[1:]...).Output()
	if err != nil || string(said) != "tried all\n" {
		t.Errorf("%v:\n%s", err, said)
	}
	lines, err := tb.Node("h0").Command(t.Context(), "sh", "-c",
		`for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$f; echo; done`).Output()
	if err != nil || strings.Contains(string(lines), "4243") ||
		strings.Contains(string(lines), "softswitch") {
		t.Errorf("%v: h0 sees the processes\n%s", err, lines)
	}
}

// TestNodesRootFindsNothingBelowItsMounts: root of a node removes the node's own mounts.
func TestNodesRootFindsNothingBelowItsMounts(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	tb := up(t, "go-below")
	planted, err := os.MkdirTemp("", "redteam") // of the host's /tmp
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(planted)
	found, err := tb.Node("h0").Command(t.Context(), "sh", "-c", `
for dir in /run /tmp /sys /.host /proc; do
	while umount -l $dir 2>/dev/null; do :; done
	ls -A $dir 2>/dev/null | grep -vx mount # /run/mount, which umount makes
done; echo tried all`).CombinedOutput()
	if err != nil || string(found) != "tried all\n" {
		t.Errorf("%v: below its mounts the node has\n%s", err, found)
	}
	// The programs of the host are still there, and the other node has its view.
	said, err := tb.Node("h1").Command(t.Context(), "sh", "-c",
		"ls -d /proc/1 /run /usr/bin; ls /.host").Output()
	if string(said) != "/proc/1\n/run\n/usr/bin\n" {
		t.Errorf("%v: h1 has %q", err, said)
	}
}

// TestSocketRefusesTheTestbedsOwnProcesses: a program of a node that found the testbed's socket, here with
// the host's files, commands nothing through it.
func TestSocketRefusesTheTestbedsOwnProcesses(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	tb := up(t, "go-own-socket")
	state, err := tb.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := targets{Asked: of(t, tb.Name(), state.PID).Sockets}
	if said := at.as(t, 0); !strings.Contains(said, "got an answer from") {
		t.Errorf("the owner: %s", said)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-t", fmt.Sprint(state.PID), "-p", "bash", "-c",
		`exec -a "$1" "$0" "${@:2}"`, self}, at.argv(t)...)
	if said, err := exec.Command("nsenter", args...).CombinedOutput(); string(said) != "tried all\n" {
		t.Errorf("inside the testbed's PID namespace: %v\n%s", err, said)
	}
}
