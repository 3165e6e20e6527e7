package usage

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/hosttest"
	"railbed/internal/kernel"
)

func TestMain(m *testing.M) { os.Exit(hosttest.MainInUserNS(m)) }

// inside runs fn in a new network namespace whose loopback is up.
func inside(t *testing.T, fn func() error) {
	t.Helper()
	hosttest.Need(t, hosttest.Netns)
	space, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := kernel.OpenIn(space)
	if err != nil {
		t.Fatal(err)
	}
	batch := kernel.NewBatch("test", nil)
	batch.SetUp("lo", 1, true)
	err = errors.Join(conn.Do(batch), conn.Close(), space.Do(fn))
	if err = errors.Join(err, space.Close()); err != nil {
		t.Fatal(err)
	}
}

// This test causes and counts each drop.
func TestReadStack(t *testing.T) {
	inside(t, func() error {
		before, err := ReadStack()
		if err != nil || before.Received != 0 || len(before.Drops) != 0 {
			t.Errorf("a new namespace: %+v, %v", before, err)
		}
		const sent = 400
		for _, network := range []string{"udp4", "udp6"} {
			address := map[string]string{"udp4": "127.0.0.1:0", "udp6": "[::1]:0"}[network]
			reader, err := net.ListenPacket(network, address)
			if err != nil {
				return err
			}
			defer reader.Close()
			if err := reader.(*net.UDPConn).SetReadBuffer(8192); err != nil {
				return err
			}
			writer, err := net.Dial(network, reader.LocalAddr().String())
			if err != nil {
				return err
			}
			defer writer.Close()
			for range sent {
				if _, err := writer.Write(make([]byte, 1000)); err != nil {
					return err
				}
			}
			lost := uint64(sent - waiting(t, reader))
			after, err := ReadStack()
			if err != nil {
				return err
			}
			if got := after.Drops[UDPReceiveBuffer] - before.Drops[UDPReceiveBuffer]; got != lost ||
				lost == 0 ||
				after.Received-before.Received != sent || len(after.Drops) != 1 {
				t.Errorf("%s: %+v after %+v, want %d lost of %d", network, after, before, lost, sent)
			}
			before = after
		}
		writer, err := net.Dial("udp4", "127.0.0.1:9")
		if err != nil {
			return err
		}
		defer writer.Close()
		_, _ = writer.Write([]byte("x"))
		_, _ = writer.Write([]byte("x")) // may return the first one's error
		if after, err := ReadStack(); err != nil || after.Drops[UDPNoSocket] == 0 ||
			after.Drops[UDPNoSocket] > 2 {
			t.Errorf("nobody listens: %+v, %v", after, err)
		}
		return fullListener(t)
	})
}

// waiting returns how many datagrams wait in a socket.
func waiting(t *testing.T, reader net.PacketConn) (n int) {
	t.Helper()
	if err := reader.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for buffer := make([]byte, 2000); ; n++ {
		if _, _, err := reader.ReadFrom(buffer); err != nil {
			return n
		}
	}
}

// fullListener connects to a listener that accepts nothing and has room for one connection.
func fullListener(t *testing.T) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	at := unix.SockaddrInet4{Port: 7, Addr: [4]byte{127, 0, 0, 1}}
	if err := errors.Join(unix.Bind(fd, &at), unix.Listen(fd, 0)); err != nil {
		return err
	}
	for range 4 {
		client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer unix.Close(client)
		if err := unix.Connect(client, &at); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			return err
		}
	}
	if after, err := ReadStack(); err != nil || after.Drops[TCPListenQueue] == 0 {
		t.Errorf("a full listener: %+v, %v", after, err)
	}
	return nil
}

// Two loops on one processor take it in turns, so that each runs and waits for half of the time.
func TestPrograms(t *testing.T) {
	var book Book
	inside(t, func() error {
		own, known := namespaceOf("/proc/thread-self")
		if !known {
			return errors.New("no namespace")
		}
		spaces := map[uint64]bool{own: true}
		began := time.Now()
		var loops []*exec.Cmd
		cpus, err := anyCPU()
		if err != nil {
			return err
		}
		for range 2 {
			loop := exec.Command("sh", "-c", "while :; do :; done")
			loop.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := loop.Start(); err != nil {
				return err
			}
			loops = append(loops, loop)
			if err := unix.SchedSetaffinity(loop.Process.Pid, &cpus); err != nil {
				return err
			}
		}
		time.Sleep(300 * time.Millisecond)
		first, err := book.Read(spaces)
		time.Sleep(300 * time.Millisecond)
		second, err2 := book.Read(spaces)
		took := time.Since(began)
		for _, loop := range loops {
			err = errors.Join(err, loop.Process.Kill())
			_ = loop.Wait()
		}
		if err = errors.Join(err, err2); err != nil {
			return err
		}
		third, err := book.Read(spaces)
		a, b, c := first[own], second[own], third[own]
		if a.Ran == 0 || b.Ran <= a.Ran || b.Ran > took+took/5 || b.Waited < took/4 ||
			b.Ran+b.Waited > 2*took+
				took/5 {
			t.Errorf("after %s: %+v, then %+v", took, a, b)
		}
		if c != b {
			t.Errorf("the loops have ended: %+v, was %+v", c, b)
		}
		return err
	})
}

// anyCPU is the set of one CPU of those that this process may use.
func anyCPU() (one unix.CPUSet, err error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return one, err
	}
	for cpu := range 64 * len(all) {
		if all.IsSet(cpu) {
			one.Set(cpu)
			return one, nil
		}
	}
	return one, errors.New("no CPU of " + strconv.Itoa(runtime.NumCPU()))
}

func TestParseSchedstat(t *testing.T) {
	// From Documentation/scheduler/sched-stats.rst: time on the CPU, time on a run queue, timeslices.
	want := Programs{Ran: 123456789, Waited: 42}
	if got, valid := parseSchedstat("123456789 42 7\n"); !valid || got != want {
		t.Errorf("got %+v, %v", got, valid)
	}
	for _, text := range []string{"", "1 2", "a 2 3", "1 b 3", "0 0 0 0"} {
		if got, valid := parseSchedstat(text); valid {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
