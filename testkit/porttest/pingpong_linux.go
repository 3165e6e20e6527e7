package porttest

import (
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
)

// lockThread keeps the goroutine on its thread until the returned function is
// called.
func lockThread() (unlock func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// PingPong is a UDP echo between the nodes of a pair.
type PingPong struct {
	t     testing.TB
	conns [2]*net.UDPConn
	stop  atomic.Bool
	done  chan struct{}
}

// Hop is a node's address, and the station to which the node sends packets for the other node.
type Hop struct {
	Addr netip.Addr // IPv4
	Next kernel.MAC
}

// NewPingPong gives the nodes addresses and starts the echo at the right node. With nil hops both
// nodes get addresses in one subnet.
func (p Pair) NewPingPong(t testing.TB, hops *[2]Hop) *PingPong {
	t.Helper()
	if hops == nil {
		hops = &[2]Hop{{netip.MustParseAddr("192.0.2.1"), p.Right.MAC()},
			{netip.MustParseAddr("192.0.2.2"), p.Left.MAC()}}
	}
	e := &PingPong{t: t, done: make(chan struct{})}
	for i, r := range []*Rig{p.Left, p.Right} {
		batch := kernel.NewBatch("node", nil)
		// wide enough to contain the other node's address
		batch.AddAddress(NICName, NICIndex, netip.PrefixFrom(hops[i].Addr, 8))
		batch.AddNeighbor(NICName, kernel.Neighbor{Index: NICIndex, Addr: hops[1-i].Addr, MAC: hops[i].Next})
		err := r.Node.Do(func() (err error) {
			conn, err := kernel.Open()
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := conn.Do(batch); err != nil {
				return err
			}
			e.conns[i], err = net.DialUDP("udp4", udp(hops[i].Addr), udp(hops[1-i].Addr))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	go e.echo()
	t.Cleanup(e.close)
	return e
}

func udp(a netip.Addr) *net.UDPAddr { return net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 7000)) }

// echo is the far node: blocking calls on a thread of its own, as in a C program.
func (e *PingPong) echo() {
	defer close(e.done)
	defer lockThread()()
	buf := make([]byte, 64)
	file, err := e.conns[1].File()
	if err != nil {
		return
	}
	defer file.Close()
	fd := int(file.Fd())
	if limitWait(fd) != nil {
		return
	}
	for !e.stop.Load() {
		if n, err := unix.Read(fd, buf); err == nil {
			_, _ = unix.Write(fd, buf[:n])
		}
	}
}

// limitWait limits how long a socket's Read waits.
func limitWait(fd int) error {
	timeout := unix.NsecToTimeval(int64(200 * time.Millisecond))
	return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
}

// Run measures round trips of a datagram of 22 bytes, in a frame of 64, one after the other. It
// returns the sorted times of the datagrams that returned.
func (e *PingPong) Run(count int) []time.Duration {
	t := e.t
	t.Helper()
	defer lockThread()()
	file, err := e.conns[0].File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd := int(file.Fd())
	if err := limitWait(fd); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 22)
	times := make([]time.Duration, 0, count)
	for range count {
		start := time.Now()
		if _, err := unix.Write(fd, buf); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Read(fd, buf); err == nil {
			times = append(times, time.Since(start))
		}
	}
	if lost := count - len(times); lost > count/100+5 || len(times) == 0 {
		t.Fatalf("%d of %d datagrams were lost", lost, count)
	}
	slices.Sort(times)
	return times
}

// close stops the far node.
func (e *PingPong) close() {
	e.stop.Store(true)
	<-e.done
	e.conns[0].Close()
	e.conns[1].Close()
}
