package usage

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/testkit/hosttest"
)

var _ = hosttest.MarkPackage(hosttest.AsNobody)

func TestMain(m *testing.M) { os.Exit(hosttest.MainInUserNS(m)) }

// inside runs fn in a new network namespace whose loopback is up and has the settings.
func inside(t *testing.T, fn func() error, settings ...func(*kernel.Batch, *kernel.Namespace)) {
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
	for _, set := range settings {
		set(batch, space)
	}
	err = errors.Join(conn.Do(batch), conn.Close(), space.Do(fn))
	if err = errors.Join(err, space.Close()); err != nil {
		t.Fatal(err)
	}
}

// This test causes and counts each drop.
func TestReadStack(t *testing.T) {
	inside(t, func() error {
		before, _, err := ReadStack()
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
			after, _, err := ReadStack()
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
		if after, _, err := ReadStack(); err != nil || after.Drops[UDPNoSocket] == 0 ||
			after.Drops[UDPNoSocket] > 2 {
			t.Errorf("nobody listens: %+v, %v", after, err)
		}
		return fullListener(t)
	})
}

// A sender that does not block gets EAGAIN while its buffer is full, and sends the datagram again. The kernel
// counts each EAGAIN in SndbufErrors and in OutDiscards, but no datagram is lost.
func TestRefusedSendsAreNoDrops(t *testing.T) {
	inside(t, func() error {
		reader, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer reader.Close()
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		to := &unix.SockaddrInet4{Port: reader.LocalAddr().(*net.UDPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4608); err != nil {
			return err
		}
		const sent = 60 // that fit the buffer of the receiver
		refused := uint64(0)
		for done := 0; done < sent; {
			switch err := unix.Sendto(fd, make([]byte, 1000), 0, to); {
			case errors.Is(err, unix.EAGAIN):
				refused++
				poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
				_, _ = unix.Poll(poll, 1000) // a signal may interrupt it
			case err != nil:
				return err
			default:
				done++
			}
		}
		if got := waiting(t, reader); got != sent || refused == 0 {
			t.Errorf("%d of %d arrived, %d sends were refused", got, sent, refused)
		}
		if got := counter(t, "Udp:", "SndbufErrors"); got < refused {
			t.Errorf("the kernel counts %d refused sends, want at least %d", got, refused)
		}
		after, _, err := ReadStack()
		if len(after.Drops) != 0 {
			t.Errorf("%v, but nothing was lost", after.Drops)
		}
		return err
	}, func(b *kernel.Batch, _ *kernel.Namespace) {
		b.SetTBF("lo", 1, kernel.Root, kernel.Handle(1, 0),
			kernel.TBF{Rate: 1e6, Burst: 5000, Limit: 1 << 20})
	})
}

// counter returns a counter of /proc/thread-self/net/snmp.
func counter(t *testing.T, line, name string) (value uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for row := range strings.Lines(string(text)) {
		fields := strings.Fields(row)
		switch at := slices.Index(names, name); {
		case len(fields) == 0 || fields[0] != line:
		case names == nil:
			names = fields
		case at > 0:
			value, err = strconv.ParseUint(fields[at], 10, 64)
		}
	}
	if err != nil || names == nil {
		t.Fatalf("counter %s %s: %v", line, name, err)
	}
	return value
}

// A NIC without a carrier sends none of the packets that a program has for it. The loopback sends all, and
// packets to groups count apart.
func TestReadOutput(t *testing.T) {
	inside(t, func() error {
		send := func(to string, count int) (Output, Output, error) {
			_, before, err := ReadStack()
			if err != nil {
				return before, before, err
			}
			writer, err := net.Dial("udp", to)
			if err != nil {
				return before, before, err
			}
			for range count {
				_, _ = writer.Write([]byte("x")) // may return the error of an earlier one
			}
			_, after, read := ReadStack()
			return before, after, errors.Join(read, writer.Close())
		}
		for _, c := range []struct {
			to             string
			unsent, groups uint64
		}{{"127.0.0.1:9", 0, 0}, {"10.0.1.9:9", 7, 0}, {"[fd00::9]:9", 7, 0}, {"10.0.1.255:9", 7, 7}} {
			before, after, err := send(c.to, 7)
			if err != nil {
				return err
			}
			// The kernel itself sends to groups at any time.
			own := after.Groups - before.Groups - c.groups
			if got := after.Unsent(before); got < c.unsent || got > c.unsent+own {
				t.Errorf("%s: %d unsent, want %d: %+v after %+v", c.to, got, c.unsent, after, before)
			}
		}
		return nil
	}, func(b *kernel.Batch, space *kernel.Namespace) {
		end := func(name string, index int) kernel.VethEnd {
			return kernel.VethEnd{Namespace: space, Name: name, Index: index, MTU: 1500,
				MAC: kernel.MAC{2, 0, 0, 0, 0, byte(index)}}
		}
		b.AddVeth(end("nic", 11), end("peer", 12), 0) // the peer stays down
		b.SetUp("nic", 11, true)
		b.AddAddress("nic", 11, netip.MustParsePrefix("10.0.1.1/24"))
		b.AddAddress("nic", 11, netip.MustParsePrefix("fd00::1/64"))
	})
}

// Packets that a stack would forward are dropped for several reasons. The TTL ended, there is no route, or
// the packet is larger than the next MTU. Each reason is counted alone.
func TestForwardingDrops(t *testing.T) {
	const left, leftPeer, right, rightPeer = 11, 12, 13, 14
	inside(t, func() error {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		send := func(ttl, to byte, size int) error {
			return unix.Sendto(fd, datagram(ttl, to, size), 0, &unix.SockaddrLinklayer{Ifindex: leftPeer})
		}
		// dropped sends packets, and waits until the kernel has counted as many for a reason, or a second.
		dropped := func(count uint64, reason string, ttl, to byte, size int) (before, after Stack,
			err error) {
			before, _, err = ReadStack()
			for range count {
				err = cmp.Or(err, send(ttl, to, size))
			}
			if err != nil {
				return before, after, err
			}
			for range 1000 {
				after, _, err = ReadStack()
				if err != nil || after.Drops[reason]-before.Drops[reason] >= count {
					break
				}
				time.Sleep(time.Millisecond)
			}
			return before, after, err
		}
		// The kernel discards packets that are sent by an interface that is not running yet.
		hosttest.Eventually(t, "a first packet", func() error {
			before, after, err := dropped(1, IPNoRoute, 64, 3, 100)
			if err == nil && after.Drops[IPNoRoute] == before.Drops[IPNoRoute] {
				err = errors.New("it did not arrive")
			}
			return err
		})
		for _, c := range []struct {
			reason string
			ttl    byte
			to     byte // 10.0.TO.9
			size   int
		}{{IPReceive, 1, 2, 100}, {IPNoRoute, 64, 3, 100}, {IPTooBig, 64, 2, 1400}} {
			const sent = 3
			before, after, err := dropped(sent, c.reason, c.ttl, c.to, c.size)
			if err != nil {
				return err
			}
			for _, reason := range Reasons {
				want := uint64(0)
				if reason == c.reason {
					want = sent
				}
				if got := after.Drops[reason] - before.Drops[reason]; got != want {
					t.Errorf("%s: %d more of %s, want %d", c.reason, got, reason, want)
				}
			}
		}
		return nil
	}, func(b *kernel.Batch, space *kernel.Namespace) {
		end := func(name string, index, mtu int) kernel.VethEnd {
			return kernel.VethEnd{Namespace: space, Name: name, Index: index, MTU: mtu,
				MAC: kernel.MAC{2, 0, 0, 0, 0, byte(index)}}
		}
		b.AddVeth(end("left", left, 1500), end("leftpeer", leftPeer, 1500), 0)
		b.AddVeth(end("right", right, 600), end("rightpeer", rightPeer, 600), 0)
		for name, index := range map[string]int{"left": left, "leftpeer": leftPeer, "right": right,
			"rightpeer": rightPeer} {
			b.SetUp(name, index, true)
		}
		b.AddAddress("left", left, netip.MustParsePrefix("10.0.1.1/24"))
		b.AddAddress("right", right, netip.MustParsePrefix("10.0.2.1/24"))
	})
}

// datagram returns the frame of a UDP datagram to 10.0.TO.9 that no router may fragment.
func datagram(ttl, to byte, size int) []byte {
	ip := make([]byte, size)
	copy(ip, []byte{0x45, 0, byte(size >> 8), byte(size), 0, 1, 0x40, 0, ttl, 17, 0, 0, 10, 0, 1, 2,
		10, 0, to, 9,
		0x30, 0x39, 0, 9, byte((size - 20) >> 8), byte(size - 20)})
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(ip[i])<<8 | uint32(ip[i+1])
	}
	sum = ^(sum&0xffff + sum>>16)
	ip[10], ip[11] = byte(sum>>8), byte(sum)
	return append([]byte{2, 0, 0, 0, 0, 11, 2, 0, 0, 0, 0, 12, 8, 0}, ip...)
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
	if after, _, err := ReadStack(); err != nil || after.Drops[TCPListenQueue] == 0 {
		t.Errorf("a full listener: %+v, %v", after, err)
	}
	return nil
}

// Two loops on one processor take it in turns, so that each runs and waits for half of the time.
func TestProcessorTimeOfPrograms(t *testing.T) {
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
