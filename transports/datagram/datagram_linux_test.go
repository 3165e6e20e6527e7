package datagram

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/clock"
	"railbed/testkit/hosttest"
)

// open is a UDP socket at a loopback address, with its port.
func open(t *testing.T, at netip.Addr) (fd int, port uint16) {
	t.Helper()
	family, name := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if at.Is6() {
		family, name = unix.AF_INET6, &unix.SockaddrInet6{Addr: at.As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, name); err != nil {
		t.Fatal(err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	switch b := bound.(type) {
	case *unix.SockaddrInet4:
		return fd, uint16(b.Port)
	case *unix.SockaddrInet6:
		return fd, uint16(b.Port)
	}
	t.Fatalf("bound to %v", bound)
	return 0, 0
}

// TestBatch: what is sent in one call arrives, with the sender's address, over IPv4
// and IPv6; what is too long ends the call behind what went.
func TestBatch(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		at := netip.MustParseAddr(addr)
		from, _ := open(t, at)
		to, port := open(t, at)
		if err := unix.SetsockoptInt(from, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER,
			unix.IP_PMTUDISC_DO); err != nil {
			t.Fatal(err)
		}
		name := NameOf(at, port)
		headers, vectors := make([]Header, 3), make([]unix.Iovec, 3)
		for i, size := range []int{10, 20, 70_000} {
			vectors[i].Base = &make([]byte, size)[0]
			vectors[i].SetLen(size)
			h := &headers[i]
			h.Name, h.Namelen, h.Iov = (*byte)(unsafe.Pointer(&name)), NameLen(at.Is6()), &vectors[i]
			h.SetIovlen(1)
		}
		if n, errno := Send(from, headers); n != 2 || errno != unix.EMSGSIZE {
			t.Fatalf("sent %d, %v; want 2 and %v", n, errno, unix.EMSGSIZE)
		}
		names := make([]Name, 3)
		for i := range headers {
			headers[i].Name, headers[i].Namelen = (*byte)(unsafe.Pointer(&names[i])), unix.SizeofSockaddrInet6
		}
		n, errno := Receive(to, headers)
		if n != 2 || errno != 0 || headers[0].N != 10 || headers[1].N != 20 || AddrOf(&names[0]) != at {
			t.Errorf("received %d, %v: %d and %d bytes from %v", n, errno, headers[0].N, headers[1].N,
				AddrOf(&names[0]))
		}
		if n, errno := Receive(to, headers); n != 0 || errno != 0 {
			t.Errorf("received %d, %v of nothing", n, errno)
		}
	}
}

// TestWaiter: a wait ends by a datagram, by the moment that is armed and not before
// it, and by Wake, also if it came first.
func TestWaiter(t *testing.T) {
	at := netip.MustParseAddr("127.0.0.1")
	fd, port := open(t, at)
	w, err := NewWaiter(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c := clock.New(2)
	if w.Arm(c, c.Now()) {
		t.Error("a moment that has come was armed")
	}
	began := time.Now()
	if until := c.Now().Add(5 * time.Millisecond); !w.Arm(c, until) {
		t.Error("a moment to come was not armed")
	}
	if w.Wait(); time.Since(began) < 10*time.Millisecond {
		t.Errorf("5 ms at dilation 2 were over after %v", time.Since(began))
	}
	w.Arm(c, clock.Never)
	if err := unix.Sendto(fd, []byte{1}, 0,
		&unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: int(port)}); err != nil {
		t.Fatal(err)
	}
	w.Wait()
	// It is unread, and reported once: no wake-up follows until the next wait.
	var told int
	if err := w.raw.Control(func(epoll uintptr) {
		told, err = unix.Poll([]unix.PollFd{{Fd: int32(epoll), Events: unix.POLLIN}}, 0)
	}); err != nil || told != 0 {
		t.Errorf("a descriptor is watched while nobody waits: %d, %v", told, err)
	}
	w.Wait()
	w.Wake()
	w.Wait()
	woke := make(chan struct{})
	go func() {
		defer close(woke)
		time.Sleep(time.Millisecond)
		w.Wake()
	}()
	w.Wait()
	<-woke
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestWaiterMissesNothing: whatever comes at whatever moment, a datagram, a call of Wake
// or both, ends a wait, though what the last one left behind lies about.
func TestWaiterMissesNothing(t *testing.T) {
	fd, port := open(t, netip.MustParseAddr("127.0.0.1"))
	w, err := NewWaiter(fd)
	if err != nil {
		t.Fatal(err)
	}
	const datagram, wake = 1, 2
	var called atomic.Bool
	var ended atomic.Bool
	heard, done := make(chan int), make(chan struct{})
	go func() {
		defer close(done)
		c := clock.New(1)
		for header := make([]byte, 8); !ended.Load(); {
			w.Arm(c, c.Now().Add(time.Minute))
			w.Wait()
			if n, err := unix.Read(fd, header); err == nil && n == 1 {
				heard <- datagram
			}
			if called.Swap(false) {
				heard <- wake
			}
		}
	}()
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 20_000 {
		kinds := 1 + random.IntN(3)
		for range random.IntN(3000) { // up to some microseconds
			runtime.KeepAlive(round)
		}
		if kinds&datagram != 0 {
			if err := unix.Sendto(fd, []byte{1}, 0,
				&unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: int(port)}); err != nil {
				t.Fatal(err)
			}
		}
		if kinds&wake != 0 {
			called.Store(true)
			w.Wake()
		}
		for kinds != 0 {
			select {
			case kind := <-heard:
				kinds &^= kind
			case <-time.After(hosttest.Bound):
				t.Fatalf("round %d: nobody hears of %b", round, kinds)
			}
		}
	}
	ended.Store(true)
	w.Wake()
	<-done
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestWaiterKnowsItsTimer: a timer does not go off before the waiter knows when it does,
// or a wait that another goroutine arms just as it begins would not end.
func TestWaiterKnowsItsTimer(t *testing.T) {
	w, err := NewWaiter()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c := clock.New(1)
	begun, looked := make(chan struct{}), make(chan bool)
	go func() {
		for range begun {
			var n int
			for began := time.Now(); n <= 0 && time.Since(began) < time.Millisecond; { // a signal makes it -1
				n, _ = unix.Poll([]unix.PollFd{{Fd: int32(w.timer), Events: unix.POLLIN}}, 0)
			}
			looked <- n <= 0 || w.goesOff.Load() <= w.now()
		}
	}()
	defer close(begun)
	for round := range 3000 {
		w.Arm(c, clock.Never)
		begun <- struct{}{}
		w.Arm(c, c.Now().Add(time.Microsecond))
		if !<-looked {
			t.Fatalf("round %d: the timer went off, and the waiter knows of none", round)
		}
	}
}

// TestWakeBesideClose: Wake may come at any moment of Close and after it, and writes to no
// descriptor that was opened meanwhile under the number of the waiter's.
func TestWakeBesideClose(t *testing.T) {
	const wakers, rounds = 3, 300
	for round := range rounds {
		w, err := NewWaiter()
		if err != nil {
			t.Fatal(err)
		}
		var ready, ended sync.WaitGroup
		var closed atomic.Bool
		for range wakers {
			ready.Add(1)
			ended.Go(func() {
				for ready.Done(); !closed.Load(); {
					w.Wake()
					runtime.Gosched() // or on few cores each round takes a time slice
				}
				w.Wake()
			})
		}
		ready.Wait()
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		var others [3]int // as many as the waiter had, so that they have its numbers
		for i := range others {
			if others[i], err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
				t.Fatal(err)
			}
		}
		closed.Store(true)
		ended.Wait()
		for _, fd := range others {
			var count [8]byte
			if _, err := unix.Read(fd, count[:]); err != unix.EAGAIN {
				t.Errorf("round %d: descriptor %d was written to: read %v, %v", round, fd, count, err)
			}
			unix.Close(fd)
		}
		if t.Failed() {
			return
		}
	}
}
