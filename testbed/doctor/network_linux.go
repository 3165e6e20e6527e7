package doctor

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func tryVeth() error {
	_, err := addVeth()
	return err
}

// tryOffloads disables TCP segmentation offload by the oldest call, which every kernel has, and
// reads it back.
func tryOffloads() (string, error) {
	const getTSO, setTSO = 0x1e, 0x1f // ETHTOOL_GTSO, ETHTOOL_STSO
	link, err := addVeth()
	if err != nil {
		return "", err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	// struct ethtool_value, and the part of struct ifreq that points to it.
	value := struct{ command, data uint32 }{setTSO, 0}
	call := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(call.name[:], link.Name)
	for _, command := range []uint32{setTSO, getTSO} {
		value.command = command
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
			uintptr(unsafe.Pointer(&call))); errno != 0 {
			return "", fmt.Errorf("ethtool command %#x: %w", command, errno)
		}
	}
	if value.data != 0 {
		return "", fmt.Errorf("segmentation offload is on after it was switched off")
	}
	return "", nil
}

func tryTap() (string, error) {
	file, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	call, err := unix.NewIfreq(newLinkName())
	if err != nil {
		return "", err
	}
	call.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(int(file.Fd()), unix.TUNSETIFF, call); err != nil {
		return "", fmt.Errorf("make tap: %w", err)
	}
	return "", nil
}

// tryPsched reads the clock of the packet scheduler. The fourth word is the resolution of its timer
// in ticks per second, 10^9 for a high-resolution timer (net/sched/sch_api.c, psched_show).
func tryPsched() (string, error) {
	text, err := os.ReadFile("/proc/net/psched")
	if err != nil {
		return "", err
	}
	words := strings.Fields(string(text))
	if len(words) != 4 {
		return "", fmt.Errorf("read /proc/net/psched: %q, want 4 words: %w", text, errUnknown)
	}
	if words[3] != "3b9aca00" {
		return "", fmt.Errorf("timer has 0x%s ticks per second, want 10^9", words[3])
	}
	return "1 ns", nil
}

func tryIPv6() (string, error) {
	if err := setSysctls("0", "net/ipv6/conf/lo/disable_ipv6"); err != nil {
		return "", err
	}
	if err := setUp("lo"); err != nil {
		return "", err
	}
	socket, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		return "", err
	}
	return "", socket.Close()
}

func tryForwarding() (string, error) {
	return "", setSysctls("1", "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")
}

func tryECMPHash() (string, error) {
	return "", setSysctls("1", "net/ipv4/fib_multipath_hash_policy", "net/ipv6/fib_multipath_hash_policy")
}

func tryECMPSeed() (string, error) {
	const path = "/proc/sys/net/ipv4/fib_multipath_hash_seed"
	if err := os.WriteFile(path, []byte("7"), 0); err != nil {
		return "", err
	}
	return "", nil
}

// setSysctls writes the value to each sysctl and reads it back.
func setSysctls(value string, names ...string) error {
	for _, name := range names {
		path := filepath.Join("/proc/sys", name)
		if err := os.WriteFile(path, []byte(value), 0); err != nil {
			return err
		}
		got, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(got)) != value {
			return fmt.Errorf("set %s: kernel has %q, want %q", path, strings.TrimSpace(string(got)), value)
		}
	}
	return nil
}

func tryPacketSocket() (string, error) {
	// Protocol 0: the socket receives nothing until it is bound.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open packet socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V3); err != nil {
		return "", fmt.Errorf("set TPACKET_V3: %w", err)
	}
	ring := unix.TpacketReq3{Block_size: 1 << 16, Block_nr: 2, Frame_size: 1 << 11, Frame_nr: 2 << 5,
		Retire_blk_tov: 10}
	if err := unix.SetsockoptTpacketReq3(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &ring); err != nil {
		return "", fmt.Errorf("set ring: %w", err)
	}
	memory, err := unix.Mmap(fd, 0, 2<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return "", fmt.Errorf("map ring: %w", err)
	}
	return "", unix.Munmap(memory)
}

func tryReceiveBufferForce() (string, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
		return "", fmt.Errorf("set 8 MiB: %w", err)
	}
	return "", nil
}

func tryXDPSocket() (string, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open AF_XDP socket: %w", err)
	}
	defer unix.Close(fd)
	const chunk, chunks = 4096, 16
	memory, err := unix.Mmap(-1, 0, chunk*chunks, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return "", fmt.Errorf("map memory: %w", err)
	}
	defer unix.Munmap(memory)
	region := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&memory[0]))), Len: chunk * chunks,
		Size: chunk}
	if _, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_UMEM_REG,
		uintptr(unsafe.Pointer(&region)), unsafe.Sizeof(region), 0); errno != 0 {
		return "", fmt.Errorf("register memory: %w", errno)
	}
	return "", nil
}

// Program types of <linux/bpf.h>.
const (
	bpfSchedCLS = unix.BPF_PROG_TYPE_SCHED_CLS
	bpfXDP      = unix.BPF_PROG_TYPE_XDP
)

// tryBPF loads the program "return 0".
func tryBPF(kind uint32) func() (string, error) {
	return func() (string, error) {
		instructions := [2]uint64{
			unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K, // r0 = 0
			unix.BPF_JMP | unix.BPF_EXIT,
		}
		license := []byte("Apache-2.0\x00")
		// The start of union bpf_attr for BPF_PROG_LOAD.
		attributes := struct {
			kind, count           uint32
			instructions, license unsafe.Pointer
			logLevel, logSize     uint32
			logBuf                uint64
			kernelVersion, flags  uint32
		}{kind: kind, count: 2, instructions: unsafe.Pointer(&instructions),
			license: unsafe.Pointer(&license[0])}
		fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD,
			uintptr(unsafe.Pointer(&attributes)), unsafe.Sizeof(attributes))
		if errno != 0 {
			return "", fmt.Errorf("load program: %w", errno)
		}
		return "", unix.Close(int(fd))
	}
}
