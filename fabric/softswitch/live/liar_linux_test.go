package live_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/fabric"
	"railbed/internal/kernel"
	"railbed/internal/nicqueue"
	"railbed/testkit/hosttest"
)

// liar is a program that keeps to no format: it has the descriptors and the memory that a NIC gives.
type liar struct {
	conn            *net.UnixConn
	memory          []byte
	fd              int // of the memory
	device, program int // doorbells
}

// Offsets of counters in the shared memory, as package nicqueue has them.
const (
	sendPosted   = 0
	sendTaken    = 64
	programRests = 320
)

func (l *liar) counter(at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&l.memory[at])) }

// describe writes a descriptor of the queue for sending.
func (l *liar) describe(i int, departs int64, length uint32) {
	at := l.memory[4096+16*i:]
	binary.NativeEndian.PutUint64(at, uint64(departs))
	binary.NativeEndian.PutUint32(at[8:], length)
}

func (l *liar) close() {
	unix.Munmap(l.memory)
	for _, fd := range []int{l.fd, l.device, l.program} {
		unix.Close(fd)
	}
	l.conn.Close()
}

var lies = nicqueue.Request{NIC: "eth0", First: 1, Last: 9,
	Geometry: nicqueue.Geometry{Send: 16, Receive: 16, Room: 1514}}

// connect connects to the NICs of a node.
func connect(space *kernel.Namespace) (conn *net.UnixConn, err error) {
	err = space.Do(func() (err error) {
		conn, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: "@railbed-nic", Net: "unixpacket"})
		return err
	})
	return conn, err
}

// openLiar asks for queues.
func openLiar(t *testing.T, space *kernel.Namespace, r nicqueue.Request) *liar {
	t.Helper()
	conn, err := connect(space)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err == nil {
		_, err = conn.Write(text)
	}
	rights := make([]byte, unix.CmsgSpace(12))
	answer := make([]byte, 1000)
	n := 0
	if err == nil {
		n, _, _, _, err = conn.ReadMsgUnix(answer, rights)
	}
	messages, parseErr := unix.ParseSocketControlMessage(rights)
	if err != nil || parseErr != nil || len(messages) != 1 {
		t.Fatalf("%s: %v, %v", answer[:n], err, parseErr)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	var info unix.Stat_t
	if err := unix.Fstat(fds[0], &info); err != nil {
		t.Fatal(err)
	}
	memory, err := unix.Mmap(fds[0], 0, int(info.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return &liar{conn, memory, fds[0], fds[1], fds[2]}
}

// wantQueues waits until a node's NIC has so many pairs of queues.
func wantQueues(t *testing.T, f *fabric.Fabric, node string, want int) {
	t.Helper()
	hosttest.Eventually(t, "the number of queues", func() error {
		if s := nicState(t, f, node).Bypass; s.Queues != want {
			return fmt.Errorf("%+v, want %d pairs of queues", s, want)
		}
		return nil
	})
}

// wantPass requires that a datagram passes between two programs that keep to the format.
func wantPass(t *testing.T, from, to bypassing, name string) {
	t.Helper()
	from.send(t, to.addr, bypassPort, time.Time{}, []byte(name))
	if got := to.receive(t); string(got) != name {
		t.Errorf("%q came, want %q", got, name)
	}
}

// A program that writes nonsense into the shared memory, changes its size, and rings as often as it can,
// harms only itself.
func TestBypassLiarHarmsItself(t *testing.T) {
	f, p, spaces := twoHosts(t, "{rate: 100mbit, mtu: 1500}")
	left, right := openBypass(t, p, spaces, "h0"), openBypass(t, p, spaces, "h1")
	draw := rand.New(rand.NewPCG(3, 8))
	for round := range 40 {
		l := openLiar(t, spaces["h0"], lies)
		for _, size := range []int64{0, 1 << 30} {
			if err := unix.Ftruncate(l.fd, size); err == nil {
				t.Errorf("a program can change the memory that the NIC has mapped to %d bytes", size)
			}
		}
		if _, err := unix.FcntlInt(uintptr(l.fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
			t.Error("a program can seal the memory that the NIC has mapped")
		}
		for range 200 {
			at := draw.IntN((4096+32*16)/8) * 8
			if round%2 == 0 {
				at = draw.IntN(8) * 64 // the counters
			}
			binary.NativeEndian.PutUint64(l.memory[at:], draw.Uint64()>>draw.IntN(64))
			if _, err := unix.Write(l.device, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
				t.Fatal(err)
			}
		}
		if round%3 == 0 { // pages that are gone come back as zeros
			if err := unix.Fallocate(l.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0,
				int64(len(l.memory))); err != nil {
				t.Fatal(err)
			}
		}
		wantPass(t, left, right, fmt.Sprintf("datagram %d", round))
		l.close()
		wantQueues(t, f, "h0", 1)
	}
	if s := nicState(t, f, "h0").Bypass; s.Broken == 0 {
		t.Errorf("%+v, want broken queues counted", s)
	}
}

// A program cannot make the NICs wait for its doorbell. It fills the doorbell and lets writes block, or shuts
// it down.
func TestBypassDoorbellBlocksNoOther(t *testing.T) {
	f, p, spaces := twoHosts(t, "{rate: 100mbit, mtu: 1500}")
	left, right := openBypass(t, p, spaces, "h0"), openBypass(t, p, spaces, "h1")
	for name, spoil := range map[string]func(l *liar) error{
		"full": func(l *liar) error {
			_, _ = unix.Write(l.program, binary.NativeEndian.AppendUint64(nil, ^uint64(1)))
			return unix.SetNonblock(l.program, false)
		},
		"shut down": func(l *liar) error {
			_ = unix.Shutdown(l.program, unix.SHUT_RDWR)
			return unix.Close(l.program)
		},
	} {
		l := openLiar(t, spaces["h1"], lies)
		if err := spoil(l); err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			l.counter(programRests).Store(1)
			left.send(t, right.addr, 5, time.Time{}, []byte{byte(i)})
		}
		wantPass(t, left, right, name)
		if name == "shut down" {
			l.program = -1
		}
		l.close()
		wantQueues(t, f, "h1", 1) // the ports are free
	}
}

// A program posts while it closes its queues, without end, or posts frames for a time far ahead. It takes
// neither the NICs' time nor their packet memory from others.
func TestBypassMemoryIsBounded(t *testing.T) {
	f, p, spaces := twoHosts(t, "{rate: 100mbit, mtu: 1500}")
	left, right := openBypass(t, p, spaces, "h0"), openBypass(t, p, spaces, "h1")
	for round := range 4 {
		l := openLiar(t, spaces["h0"], lies)
		stop, stopped := make(chan bool), make(chan bool)
		for i := range 16 {
			l.describe(i, 0, 60)
		}
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					l.counter(sendPosted).Store(l.counter(sendTaken).Load() + 16)
				}
			}
		}()
		l.conn.Close()
		wantPass(t, left, right, fmt.Sprintf("beside endless posting %d", round))
		wantQueues(t, f, "h0", 1)
		close(stop)
		<-stopped
		l.close()
	}
	// Frames that leave after hours, in many queues one after the other.
	late := lies
	late.Geometry.Send = 64
	for round := range uint16(200) {
		late.First, late.Last = 100+round, 100+round
		l := openLiar(t, spaces["h0"], late)
		for i := range 64 {
			l.describe(i, 1<<62, 60)
		}
		l.counter(sendPosted).Store(64)
		if _, err := unix.Write(l.device, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
		l.close()
	}
	wantQueues(t, f, "h0", 1)
	wantPass(t, left, right, "beside late frames")
	_, s, err := f.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const most = 5000 // 4,096 of a queue that ended, and the rest of all
	if s.Peak > most {
		t.Errorf("%d packets were in use at once, want at most %d", s.Peak, most)
	}
}

// A program that is stopped keeps its queues and disturbs no other. When it is killed, the frames that it had
// posted leave, and the switches keep nothing of it.
func TestBypassKilledProgram(t *testing.T) {
	f, p, spaces := twoHosts(t, "{rate: 100mbit, mtu: 1500}")
	left, right := openBypass(t, p, spaces, "h0"), openBypass(t, p, spaces, "h1")
	maps := mappedQueues(t)
	l := openLiar(t, spaces["h0"], lies)
	holder := holderOf(t, l)
	if err := holder.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	l.describe(0, 0, 13)           // shorter than an Ethernet header
	l.counter(sendPosted).Store(1) // taken
	wantPass(t, left, right, "beside a stopped program")
	wantQueues(t, f, "h0", 2)
	l.counter(sendPosted).Store(1 << 40) // broken
	l.close()                            // the stopped process has them too
	wantPass(t, left, right, "beside a stopped program with broken queues")
	if err := holder.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantQueues(t, f, "h0", 1)
	wantPass(t, left, right, "after its end")
	if s := nicState(t, f, "h0").Bypass; s.Refused != 1 || s.Broken != 1 {
		t.Errorf("%+v, want one refused frame and one broken pair", s)
	}
	hosttest.Eventually(t, "the end of the memory", func() error {
		if now := mappedQueues(t); now != maps {
			return fmt.Errorf("the switches map the memory of %d queues, want %d", now, maps)
		}
		return nil
	})
	// The ports are free again.
	again := openLiar(t, spaces["h0"], lies)
	again.close()
}

// holderOf starts a process that has the descriptors of a program.
func holderOf(t *testing.T, l *liar) *os.Process {
	t.Helper()
	conn, err := l.conn.File()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	command := exec.Command("sleep", "600")
	command.ExtraFiles = []*os.File{conn}
	for _, fd := range []int{l.fd, l.device, l.program} {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		file := os.NewFile(uintptr(own), "held")
		defer file.Close()
		command.ExtraFiles = append(command.ExtraFiles, file)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return command.Process
}

// mappedQueues returns the number of queues whose memory the process of the switches maps.
func mappedQueues(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", switches(t)))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "/memfd:railbed-nic")
}

// switches returns the process of the soft switches, which is a child of this process.
func switches(t *testing.T) (pid int) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that ended
		}
		for child := range strings.FieldsSeq(string(text)) {
			line, err := os.ReadFile("/proc/" + child + "/cmdline")
			if err == nil && strings.HasPrefix(string(line), "railbed:softswitch\x00") {
				if _, err := fmt.Sscan(child, &pid); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if pid == 0 {
		t.Fatal("no process of soft switches")
	}
	return pid
}

// The queues of a NIC have a bounded memory together.
func TestBypassQueueMemoryIsBounded(t *testing.T) {
	f, _, spaces := twoHosts(t, "{rate: 100mbit, mtu: 9000}")
	large := lies
	large.Geometry = nicqueue.Geometry{Send: 1, Receive: nicqueue.MaxReceive, Room: 31 * 64} // 250 MiB
	for i := range uint16(16) {
		large.First, large.Last = 100+i, 100+i
		defer openLiar(t, spaces["h0"], large).close()
	}
	if opened, err := openOne(spaces["h0"]); err != nil {
		t.Errorf("small queues beside large ones: %v, %v", opened, err)
	}
	err := spaces["h0"].Do(func() error {
		large.First, large.Last = 200, 200
		queues, err := nicqueue.Open(large)
		if err == nil {
			queues.Close()
		}
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "want at most 4294967296") {
		t.Errorf("%v, want a refusal", err)
	}
	wantQueues(t, f, "h0", 16)
}

// A node whose programs open connections without end takes none from other nodes. When descriptors have been
// short, programs get queues again.
func TestBypassConnectionsAreBounded(t *testing.T) {
	f, p, spaces := twoHosts(t, "{rate: 100mbit, mtu: 1500}")
	left := openBypass(t, p, spaces, "h0")
	var conns []*net.UnixConn
	closeAll := func() {
		for _, conn := range conns {
			conn.Close()
		}
		conns = nil
	}
	defer closeAll()
	const most = 256 // of a node with one NIC
	for range most {
		conn, err := connect(spaces["h0"])
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	_, err := openOne(spaces["h0"])
	if err == nil || !strings.Contains(err.Error(), "which is the most") {
		t.Errorf("%v, want a refusal", err)
	}
	right := openBypass(t, p, spaces, "h1")
	wantPass(t, left, right, "beside connections")
	closeAll()
	wantOpen(t, spaces["h0"])

	var limit unix.Rlimit
	pid := switches(t)
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 10 // fewer than are open
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &low, nil); err != nil {
		t.Fatal(err)
	}
	conn, err := connect(spaces["h0"])
	if err != nil {
		t.Fatal(err)
	}
	conns = append(conns, conn)
	time.Sleep(200 * time.Millisecond) // longer than the switches pause
	wantPass(t, left, right, "without descriptors")
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	wantOpen(t, spaces["h0"])
	wantQueues(t, f, "h0", 1)
}

// openOne opens and closes queues.
func openOne(space *kernel.Namespace) (opened bool, err error) {
	err = space.Do(func() error {
		program, err := nicqueue.Open(lies)
		if err != nil {
			return err
		}
		opened = true
		return program.Close()
	})
	return opened, err
}

// wantOpen waits until a node's programs get queues.
func wantOpen(t *testing.T, space *kernel.Namespace) {
	t.Helper()
	hosttest.Eventually(t, "queues", func() error {
		_, err := openOne(space)
		return err
	})
}

// A program gets only frames for the UDP ports that it asked for, and no frames of another program's ports.
// Its neighbours in the node keep theirs.
func TestBypassSteersByPort(t *testing.T) {
	_, p, spaces := twoHosts(t, "{rate: 100mbit, mtu: 1500}")
	left, right := openBypass(t, p, spaces, "h0"), openBypass(t, p, spaces, "h1")
	l := openLiar(t, spaces["h1"], lies)
	defer l.close()
	for i := range 50 {
		wantPass(t, left, right, fmt.Sprint(i))
	}
	const receivePost = 192
	if n := l.counter(receivePost).Load(); n != 0 {
		t.Errorf("a program got %d frames of another program's port", n)
	}
	greedy := lies
	greedy.First, greedy.Last = 0, 65535
	err := spaces["h1"].Do(func() error {
		program, err := nicqueue.Open(greedy)
		if err == nil {
			program.Close()
		}
		return err
	})
	if !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("%v, want %v", err, unix.EADDRINUSE)
	}
}
