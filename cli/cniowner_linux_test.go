package cli_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"railbed/internal/rundir"
	"railbed/testkit/hosttest"
)

// The plugin runs as root. It sends no request to a testbed whose directory belongs to another user
// than the configuration names.
func TestCNIRefusesAnotherUsersDirectory(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	const victim, attacker = 61001, 61002
	root := filepath.Join(t.TempDir(), fmt.Sprintf("railbed-%d", victim))
	dir := rundir.Dir{Name: "t", Path: filepath.Join(root, "t")}
	if err := os.MkdirAll(dir.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", dir.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	asked := make(chan bool, 16)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			asked <- true
			conn.Close()
		}
	}()
	lock, err := os.Create(filepath.Join(dir.Path, "lock")) // as a supervisor has it
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{root, dir.Path} {
		if err := os.Chown(path, attacker, attacker); err != nil {
			t.Fatal(err)
		}
	}
	c := newContainer(t, "other-user")
	for _, owner := range []int{0, victim} {
		config := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"n","type":"railbed","testbed":"t","directory":%q,"owner":%d}`, dir.Path, owner)
		code, _, answer := call(t, "ADD", c, config)
		if code == 0 || !strings.Contains(answer.Msg, "belongs to user 61002") {
			t.Errorf("owner %d: exit code %d, %+v", owner, code, answer)
		}
	}
	if len(asked) > 0 {
		t.Error("the plugin connected to user 61002's socket")
	}
}
