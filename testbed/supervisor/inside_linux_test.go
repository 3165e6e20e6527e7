package supervisor

import (
	"io"
	"net"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"railbed/testkit/hosttest"
)

// The connection of a program of another user is closed, and the next program is served.
func TestOtherUsersAreRefused(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	listener, err := net.Listen("unix", "@railbed-test-own-user")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		own := ownUser{listener}
		for {
			conn, err := own.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("heard"))
			conn.Close()
		}
	}()
	heard := func() string {
		conn, err := net.Dial("unix", listener.Addr().String())
		if err != nil {
			t.Error(err)
			return ""
		}
		defer conn.Close()
		said, _ := io.ReadAll(conn) // a reset is an end
		return string(said)
	}
	other := make(chan string)
	go func() {
		// The thread runs as UID 65534 from here on, and ends with the goroutine.
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); errno != 0 {
			t.Error(errno)
		}
		other <- heard()
	}()
	if said := <-other; said != "" {
		t.Errorf("nobody is told %q", said)
	}
	if said := heard(); said != "heard" {
		t.Errorf("the own user is told %q", said)
	}
}
