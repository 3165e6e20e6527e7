package port_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/testkit/hosttest"
	"railbed/testkit/porttest"
)

// The commands and constants of linux/bpf.h that this file needs.
const (
	bpfMapCreate, bpfMapUpdate, bpfProgLoad, bpfLinkCreate = 0, 2, 5, 28

	bpfMapTypeXSKMap  = 17
	bpfProgTypeXDP    = 6
	bpfAttachXDP      = 37
	bpfProgHasFrags   = 1 << 5
	xdpFlagsGeneric   = 1 << 1
	xdpFlagsNative    = 1 << 2
	bpfRedirectMapFun = 51
)

func bpf(command int, attributes unsafe.Pointer, size uintptr) (int, error) {
	r, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attributes), size)
	if errno != 0 {
		return -1, errno
	}
	return int(r), nil
}

// redirect attaches a program to an interface of the calling thread's namespace
// that sends every frame to the socket, and returns its descriptors.
func redirect(index, socket int, flags uint32) (fds []int, err error) {
	create := struct{ kind, key, value, entries uint32 }{bpfMapTypeXSKMap, 4, 4, 1}
	table, err := bpf(bpfMapCreate, unsafe.Pointer(&create), unsafe.Sizeof(create))
	if err != nil {
		return nil, fmt.Errorf("make map: %w", err)
	}
	fds = append(fds, table)
	key, value := uint32(0), uint32(socket)
	update := struct {
		table, _          uint32
		key, value, flags uint64
	}{table: uint32(table), key: uint64(uintptr(unsafe.Pointer(&key))),
		value: uint64(uintptr(unsafe.Pointer(&value)))}
	if _, err := bpf(bpfMapUpdate, unsafe.Pointer(&update), unsafe.Sizeof(update)); err != nil {
		return fds, fmt.Errorf("put socket into map: %w", err)
	}
	program := []uint64{
		0x18 | 1<<8 | 1<<12 | uint64(uint32(table))<<32, 0, // r1 = map
		0xB7 | 2<<8, // r2 = 0
		0xB7 | 3<<8, // r3 = 0
		0x85 | bpfRedirectMapFun<<32,
		0x95, // return r0
	}
	license := []byte("GPL\x00")
	load := struct {
		kind, count              uint32
		instructions, license    uint64
		logLevel, logSize        uint32
		log                      uint64
		kernelVersion, progFlags uint32
	}{kind: bpfProgTypeXDP, count: uint32(len(program)),
		instructions: uint64(uintptr(unsafe.Pointer(&program[0]))),
		license:      uint64(uintptr(unsafe.Pointer(&license[0]))), progFlags: bpfProgHasFrags}
	loaded, err := bpf(bpfProgLoad, unsafe.Pointer(&load), unsafe.Sizeof(load))
	if err != nil {
		return fds, fmt.Errorf("load program: %w", err)
	}
	fds = append(fds, loaded)
	attach := struct{ program, index, kind, flags uint32 }{uint32(loaded), uint32(index), bpfAttachXDP, flags}
	link, err := bpf(bpfLinkCreate, unsafe.Pointer(&attach), unsafe.Sizeof(attach))
	runtime.KeepAlive(program)
	runtime.KeepAlive(license)
	if err != nil {
		return fds, fmt.Errorf("attach program: %w", err)
	}
	return append(fds, link), nil
}

// BenchmarkReceiveAFXDP measures the cost of receiving through AF_XDP, natively and generically,
// beside the packet socket's ring of BenchmarkCost. Its result is the reason why the drivers do not
// receive through AF_XDP.
func BenchmarkReceiveAFXDP(b *testing.B) {
	hosttest.Need(b, hosttest.Root)
	for _, mode := range []struct {
		name  string
		flags uint32
	}{{"native", xdpFlagsNative}, {"generic", xdpFlagsGeneric}} {
		for _, size := range []int{64, 1400} { // longer ones take several descriptors
			b.Run(fmt.Sprintf("%s/%d", mode.name, size), func(b *testing.B) {
				benchmarkReceiveAFXDP(b, size, mode.flags)
			})
		}
	}
}

func benchmarkReceiveAFXDP(b *testing.B, size int, flags uint32) {
	const chunks, chunk = 512, 2048
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := porttest.NewRig(b, port.Packet, porttest.Settings{})
	umem, err := unix.Mmap(-1, 0, chunks*chunk, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Munmap(umem)
	var fd int
	var fds []int
	var fill, rx []byte
	var offsets unix.XDPMmapOffsets
	err = r.Switch.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		register := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&umem[0]))), Len: uint64(len(umem)),
			Size: chunk}
		if _, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_UMEM_REG,
			uintptr(unsafe.Pointer(&register)), unsafe.Sizeof(register), 0); errno != 0 {
			return errno
		}
		for _, ring := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING} {
			if err := unix.SetsockoptInt(fd, unix.SOL_XDP, ring, chunks); err != nil {
				return err
			}
		}
		length := uint32(unsafe.Sizeof(offsets))
		if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_MMAP_OFFSETS,
			uintptr(unsafe.Pointer(&offsets)), uintptr(unsafe.Pointer(&length)), 0); errno != 0 {
			return errno
		}
		if fill, err = unix.Mmap(fd, unix.XDP_UMEM_PGOFF_FILL_RING, int(offsets.Fr.Desc)+chunks*8,
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
			return err
		}
		if rx, err = unix.Mmap(fd, unix.XDP_PGOFF_RX_RING, int(offsets.Rx.Desc)+chunks*16,
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY,
			Ifindex: uint32(r.PortIndex())}); err != nil {
			return err
		}
		fds, err = redirect(r.PortIndex(), fd, flags)
		return err
	})
	defer func() {
		for _, fd := range append(fds, fd) {
			unix.Close(fd)
		}
		unix.Munmap(fill)
		unix.Munmap(rx)
	}()
	if err != nil {
		b.Fatal(err)
	}
	filled := (*uint32)(unsafe.Pointer(&fill[offsets.Fr.Producer]))
	addresses := unsafe.Slice((*uint64)(unsafe.Pointer(&fill[offsets.Fr.Desc])), chunks)
	produced := (*uint32)(unsafe.Pointer(&rx[offsets.Rx.Producer]))
	consumed := (*uint32)(unsafe.Pointer(&rx[offsets.Rx.Consumer]))
	descriptors := unsafe.Slice((*unix.XDPDesc)(unsafe.Pointer(&rx[offsets.Rx.Desc])), chunks)
	for i := range addresses {
		addresses[i] = uint64(i * chunk)
	}
	atomic.StoreUint32(filled, chunks)

	g := porttest.NewGenerator(b, r, porttest.PlainFrames(size))
	memory := make([]byte, chunk)
	var node, receive time.Duration
	me := unix.Gettid()
	b.ResetTimer()
	for range b.N {
		t0 := porttest.ThreadTime(me)
		if n, err := g.Send(); n != porttest.GeneratorBatch || err != nil {
			b.Fatal(n, err)
		}
		t1 := porttest.ThreadTime(me)
		got, first, fillAt := atomic.LoadUint32(produced), *consumed, *filled
		for at := first; at != got; at++ {
			d := descriptors[at%chunks]
			copy(memory, umem[d.Addr:d.Addr+uint64(d.Len)])
			addresses[fillAt%chunks] = d.Addr &^ (chunk - 1)
			fillAt++
		}
		atomic.StoreUint32(consumed, got)
		atomic.StoreUint32(filled, fillAt)
		t2 := porttest.ThreadTime(me)
		if got-first != porttest.GeneratorBatch {
			b.Fatalf("%d of %d frames came", got-first, porttest.GeneratorBatch)
		}
		node, receive = node+t1-t0, receive+t2-t1
	}
	per := float64(b.N * porttest.GeneratorBatch)
	b.ReportMetric(float64(node)/per, "node-ns/frame")
	b.ReportMetric(float64(receive)/per, "receive-ns/frame")
}
