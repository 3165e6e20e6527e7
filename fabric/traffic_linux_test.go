package fabric

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// stream opens a TCP connection between two namespaces.
func stream(t testing.TB, from, to *kernel.Namespace, addr string) (near, far net.Conn) {
	t.Helper()
	err := to.Do(func() error {
		listener, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
		if err != nil {
			return err
		}
		defer listener.Close()
		err = from.Do(func() (err error) {
			near, err = net.DialTCP(listener.Addr().Network(), nil, listener.Addr().(*net.TCPAddr))
			return err
		})
		if err != nil {
			return err
		}
		far, err = listener.Accept()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// tap is a packet socket on an interface, for both directions.
func tap(t *testing.T, ns *kernel.Namespace, index int) (fd int) {
	t.Helper()
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8
	err := ns.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			all); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// longest drains a tap and returns how many frames it held and the longest.
func longest(t *testing.T, fd int) (frames, length int) {
	t.Helper()
	for {
		n, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_TRUNC)
		if errors.Is(err, unix.EAGAIN) {
			return frames, length
		}
		if err != nil {
			t.Fatal(err)
		}
		frames++
		length = max(length, n)
	}
}

// TestAFrameIsOnePacket sends in every way in which a stack hands over more
// than a packet at a time, and looks at the frames at both ends of a link.
func TestAFrameIsOnePacket(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	p := leafSpine(t, 1, 1, 2)
	f, ns := build(t, p)
	l := f.links[0]
	near, far := tap(t, ns["h0"], endIndex(firstIndex, 0, true)),
		tap(t, ns["leaf1"], endIndex(firstIndex, 0, false))
	const frame = 14 + 1500

	a, b := stream(t, ns["h0"], ns["h1"], addrs(p, "h1")[0].String())
	var reader sync.WaitGroup
	reader.Go(func() { _, _ = io.CopyN(io.Discard, b, 200_000) })
	if _, err := a.Write(make([]byte, 200_000)); err != nil { // one write, 137 segments
		t.Fatal(err)
	}
	reader.Wait()
	for where, fd := range map[string]int{"h0:eth0": near, "leaf1:p0": far} {
		if frames, length := longest(t, fd); length != frame || frames < 100 {
			t.Errorf("TCP at %s of %s: %d frames, the longest %d bytes, want %d", where, l.Name, frames,
				length, frame)
		}
	}
	// UDP with UDP_SEGMENT: ten packets in one system call.
	const payload = 1000
	err := ns["h0"].Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, payload); err != nil {
			return err
		}
		return unix.Sendto(fd, make([]byte, 10*payload), 0,
			&unix.SockaddrInet4{Port: 9, Addr: addrs(p, "h1")[0].As4()})
	})
	if err != nil {
		t.Fatal(err)
	}
	for where, fd := range map[string]int{"h0:eth0": near, "leaf1:p0": far} {
		all := 0
		hosttest.Until(t, "ten packets at "+where, func() bool {
			frames, length := longest(t, fd)
			if length > frame {
				t.Errorf("UDP_SEGMENT at %s: a frame of %d bytes", where, length)
			}
			all += frames
			return all >= 10
		})
	}
}

// BenchmarkRate measures the throughput of one TCP connection over a shaped link, as the far NIC
// counts it: 100 % is the requested rate.
func BenchmarkRate(b *testing.B) {
	hosttest.Need(b, hosttest.Netns)
	for _, rate := range []string{"10mbit", "100mbit", "1gbit"} {
		for _, mtu := range []int{1500, 9000} {
			b.Run(fmt.Sprintf("rate=%s/mtu=%d", rate, mtu), func(b *testing.B) { achieved(b, rate, mtu) })
		}
	}
}

func achieved(b *testing.B, rate string, mtu int) {
	const window = 500 * time.Millisecond
	p := plantest.Compile(b, fmt.Sprintf("name: t\nfabric: {topology: single-switch, params: {hosts: 2}, "+
		"switch: {kind: router}, links: {default: {rate: %s, mtu: %d}}}\n", rate, mtu))
	f, ns := build(b, p)
	near, far := stream(b, ns["h0"], ns["h1"], addrs(p, "h1")[0].String())
	var group sync.WaitGroup
	group.Go(func() { _, _ = io.Copy(io.Discard, far) })
	group.Go(func() {
		for chunk := make([]byte, 64<<10); ; {
			if _, err := near.Write(chunk); err != nil {
				return
			}
		}
	})
	defer group.Wait()
	defer near.Close()
	defer far.Close()
	received := func() (uint64, time.Time) {
		links, err := f.Links(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		return links[1].A.Counters.RxBytes, time.Now()
	}
	var bits, seconds float64
	for b.Loop() {
		b.StopTimer()
		bytes, start := received()
		b.StartTimer()
		time.Sleep(window)
		b.StopTimer()
		after, end := received()
		bits, seconds = bits+8*float64(after-bytes), seconds+end.Sub(start).Seconds()
		b.StartTimer()
	}
	b.ReportMetric(100*bits/seconds/float64(directionOf(p).Rate), "%asked")
}

func directionOf(p *plan.Plan) plan.Direction { return p.Links[0].AToB }
