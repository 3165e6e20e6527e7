package testbed_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"railbed/internal/rundir"
	"railbed/testbed"
	"railbed/testkit/hosttest"
)

// listenAs listens at a path as another user. The socket is root's, so that the credentials
// of the listener alone say who serves.
func listenAs(t *testing.T, path string, uid int) net.Listener {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread stays another user's, and ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid),
			^uintptr(0)); errno != 0 {
			done <- errno
			return
		}
		done <- unix.Listen(fd, 8)
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	listener, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// A program of another user that serves a testbed's socket is asked nothing.
func TestAnotherUsersSupervisorIsAskedNothing(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir, lock, err := rundir.Claim("go-other-user")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir.Path)
	defer lock.Close()
	asked := make(chan string, 16)
	serve := func(uid int) func() {
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- r.URL.Path
			fmt.Fprintln(w, "{}")
		})}
		listener := listenAs(t, dir.Socket(), uid)
		go server.Serve(listener)
		return func() {
			server.Close()
			os.Remove(dir.Socket())
		}
	}
	end := serve(61002)
	if _, err := testbed.Open(t.Context(), dir.Name); err == nil ||
		!strings.Contains(err.Error(), "of user 61002; want user 0") {
		t.Errorf("another user's: %v", err)
	}
	if len(asked) > 0 {
		t.Errorf("user 61002 is asked for %s", <-asked)
	}
	if _, err := testbed.OpenDir(t.Context(), dir, 61002); err != nil &&
		strings.Contains(err.Error(), "want user") {
		t.Errorf("a user that the configuration names: %v", err)
	}
	end()
	end = serve(0)
	defer end()
	if _, err := testbed.Open(t.Context(), dir.Name); err != nil &&
		strings.Contains(err.Error(), "want user") {
		t.Errorf("the own user: %v", err)
	}
}
