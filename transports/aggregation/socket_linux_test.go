package aggregation

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"railbed/testkit/hosttest"
)

// asReceiver is set in the process of this test that is stopped.
const asReceiver = "RAILBED_TEST_RECEIVER"

// TestWaitsEndWithArrivals: a process that is stopped while it waits has waited until its datagram
// came, and not until it went on.
func TestWaitsEndWithArrivals(t *testing.T) {
	if os.Getenv(asReceiver) != "" {
		receiveOne(t)
		return
	}
	receiver := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	receiver.Env = append(os.Environ(), asReceiver+"=1")
	output, err := receiver.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now() // before it can wait
	if err := receiver.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = receiver.Process.Kill() // it has ended unless the test failed
		_ = receiver.Wait()
	}()
	said := bufio.NewReader(output)
	var address string
	if _, err := fmt.Fscanln(said, &address); err != nil {
		t.Fatal(err)
	}
	started := time.Since(begin)
	time.Sleep(20 * time.Millisecond) // until it waits
	if err := receiver.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(receiver.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil ||
		!status.Stopped() {
		t.Fatalf("status %v, %v", status, err)
	}
	conn, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	sent := time.Since(begin)
	time.Sleep(started + 4*heldUp) // more than the doubt about when its wait began
	if err := receiver.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	var waited time.Duration
	if _, err := fmt.Fscanln(said, &waited); err != nil {
		t.Fatal(err)
	}
	if waited > sent+heldUp {
		t.Errorf("it waited %v for what came after %v at most", waited, sent)
	}
}

// receiveOne says where it receives, and then how long it waited, in ns.
func receiveOne(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s, err := newSocket(conn, 16)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(conn.LocalAddr())
	if err := s.until(time.Now().Add(hosttest.Bound)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.receive(); err != nil {
		t.Fatal(err)
	}
	fmt.Println(int64(s.waited()))
}
