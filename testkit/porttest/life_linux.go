package porttest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/internal/descriptors"
	"railbed/testkit/hosttest"
)

// A port can be closed while another goroutine waits for it, and it can be closed twice. Later
// calls return an error. The number of its descriptors is as stated, and all are closed.
func closing(t *testing.T, driver port.Driver) {
	r := NewRig(t, driver, Settings{})
	before := openDescriptors(t)
	p := r.Port(t, port.Options{})
	if n := openDescriptors(t) - before; n < 1 || n > Descriptors(driver) {
		t.Errorf("%d descriptors are open, stated are %d", n, Descriptors(driver))
	}
	e := newEpoll(t, p.Fd(), 0)
	opened := openDescriptors(t)
	waited := make(chan uint32)
	go func() { waited <- e.wait(t, 300*time.Millisecond) }()
	time.Sleep(50 * time.Millisecond)
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	if events := <-waited; events&unix.EPOLLIN != 0 {
		t.Errorf("waiting ended with events %#x", events)
	}
	if _, err := p.Receive(frames(p.Description(), 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("receive after close: %v", err)
	}
	if _, err := p.Send([][]byte{pattern(1, 60)}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("send after close: %v", err)
	}
	if _, err := p.Stats(); err != nil {
		t.Errorf("statistics after close: %v", err)
	}
	if n := opened - openDescriptors(t); n < 1 || n > Descriptors(driver) {
		t.Errorf("%d descriptors were closed, want as many as were opened", n)
	}
}

// Descriptors returns the largest number of descriptors that a port of the driver keeps open.
func Descriptors(driver port.Driver) int {
	if driver == port.Packet {
		return 1
	}
	return 2 // a tap, and the namespace's counters; or a packet socket and an AF_XDP socket
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Either end may go down and come up again. Frames sent meanwhile cause no error and do not arrive
// later.
func downAndUp(t *testing.T, driver port.Driver) {
	r := NewRig(t, driver, Settings{})
	p := r.Port(t, port.Options{})
	nic := r.NIC(t)
	for round := range 3 {
		r.roundTrip(t, p, nic, 10*round)
		r.setNIC(t, false)
		n, err := p.Send([][]byte{pattern(100, 60), pattern(101, 60)})
		if err = errors.Join(err, p.Flush()); n != 2 || err != nil {
			t.Errorf("send to a NIC that is down: %d taken, %v", n, err)
		}
		r.setNIC(t, true)
		r.WaitUp(t)
		nic.clearError()
	}
	r.roundTrip(t, p, nic, 50)
	if s := stats(t, p); s.SendFailed == 0 {
		t.Errorf("nothing failed although the NIC was down: %+v", s)
	}
	if driver == port.Tap {
		return // the NIC is the only end
	}
	e := newEpoll(t, p.Fd(), 0)
	for round := range 3 {
		r.setPort(t, false)
		if e.wait(t, patience)&unix.EPOLLERR != 0 {
			if err := p.Recover(); err != nil {
				t.Fatalf("recover: %v", err)
			}
		}
		if events := e.wait(t, 20*time.Millisecond); events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			t.Fatalf("events %#x after recovering", events)
		}
		if _, err := p.Send([][]byte{pattern(100, 60)}); err != nil {
			t.Errorf("send while down: %v", err)
		}
		r.setPort(t, true)
		r.WaitUp(t)
		r.roundTrip(t, p, nic, 60+round)
	}
}

// roundTrip sends a frame in each direction.
func (r *Rig) roundTrip(t *testing.T, p port.Port, nic *NIC, number int) {
	t.Helper()
	nic.send(t, pattern(number, 60))
	got := collect(t, p, 1, func(_ int, f port.Frame) {
		if !bytes.Equal(f.Data, pattern(number, 60)) {
			t.Errorf("round %d: came as % x", number, f.Data)
		}
	})
	sendAll(t, p, pattern(number, 70))
	if data := nic.receive(t); got != 1 || !bytes.Equal(data, pattern(number, 70)) {
		t.Fatalf("round %d: %d frames came, and the node got % x: %+v", number, got, data, stats(t, p))
	}
}

// When its interface is deleted, the port returns ErrGone.
func deleted(t *testing.T, driver port.Driver) {
	r := NewRig(t, driver, Settings{})
	p := r.Port(t, port.Options{})
	e := newEpoll(t, p.Fd(), 0)
	r.deleteNIC(t)
	if events := e.wait(t, patience); events == 0 {
		t.Error("nothing woke whoever waits")
	}
	if err := p.Recover(); !errors.Is(err, port.ErrGone) {
		t.Errorf("recover: %v, want that the interface is gone", err)
	}
	if _, err := p.Stats(); err != nil {
		t.Errorf("statistics: %v", err)
	}
}

// takeEnv makes the test binary the process that receives a port.
const takeEnv = "RAILBED_PORTTEST_TAKE"

func init() {
	if os.Getenv(takeEnv) == "" {
		return
	}
	if err := echo(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// echo takes a port from descriptor 3 and returns every frame until that
// closes.
func echo() error {
	file, err := net.FileConn(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	socket := file.(*net.UnixConn)
	handle := &port.Handle{}
	handle.Files, err = descriptors.Receive(socket, &handle.Description, make([]byte, 4096), 8)
	if err != nil {
		return err
	}
	p, err := handle.Port()
	if err != nil {
		return err
	}
	if status, err := os.ReadFile("/proc/self/status"); err != nil ||
		!bytes.Contains(status, []byte("CapEff:\t0000000000000000")) {
		return fmt.Errorf("this process has capabilities, %v:\n%s", err, status)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = socket.Read(make([]byte, 1)) // until the test closes its end
		close(ended)
	}()
	batch := frames(p.Description(), 8)
	for {
		select {
		case <-ended:
			return p.Close()
		default:
		}
		n, err := p.Receive(batch)
		if err != nil {
			return err
		}
		for _, f := range batch[:n] {
			if _, err := p.Send([][]byte{f.Data}); err != nil {
				return err
			}
		}
		if err := p.Flush(); err != nil {
			return err
		}
		if n == 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

// A process without any privilege, in no namespace of the testbed, uses a port that was handed to
// it.
func handedOver(t *testing.T, driver port.Driver) {
	r := NewRig(t, driver, Settings{})
	handle := r.Open(t, port.Options{})
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "socket")
	file := os.NewFile(uintptr(fds[0]), "socket")
	conn, err := net.FileConn(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	// Pdeathsig follows the thread that started the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), takeEnv+"=1")
	child.ExtraFiles = []*os.File{theirs}
	child.Stderr = os.Stderr
	child.SysProcAttr = unprivileged()
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(theirs.Close(), descriptors.Send(conn.(*net.UnixConn),
		handle.Description, handle.Files...), handle.Close()); err != nil {
		t.Error(err)
	}
	nic := r.NIC(t)
	for i := range 50 {
		nic.send(t, pattern(i, 60+i))
		if data := nic.receive(t); !bytes.Equal(data, pattern(i, 60+i)) {
			t.Errorf("frame %d came back as %d bytes", i, len(data))
			break
		}
	}
	if err := errors.Join(conn.Close(), child.Wait()); err != nil {
		t.Errorf("the other process: %v", err)
	}
}

// unprivileged makes a child an ordinary user: user 65534 or, if this process has only one user, a user
// of another user namespace. That user has no capabilities over objects of this namespace.
func unprivileged() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if hosttest.Probe(hosttest.Root) == nil {
		attributes.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		return attributes
	}
	attributes.Cloneflags = syscall.CLONE_NEWUSER
	attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Geteuid(), Size: 1}}
	attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getegid(), Size: 1}}
	return attributes
}
