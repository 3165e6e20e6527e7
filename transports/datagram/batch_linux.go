package datagram

import (
	"math/bits"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/transports"
)

// Header is struct mmsghdr of recvmmsg(2) and sendmmsg(2): one datagram of a batch, and the number
// N of its bytes that were moved.
type Header struct {
	unix.Msghdr
	N uint32
	_ [4]byte
}

// Name is an address and port as system calls take it. An IPv4 name uses the first 16 bytes.
type Name = unix.RawSockaddrInet6

// NameOf returns the name of an address and port.
func NameOf(at netip.Addr, port uint16) (name Name) {
	if at.Is4() {
		four := (*unix.RawSockaddrInet4)(unsafe.Pointer(&name))
		four.Family, four.Addr, four.Port = unix.AF_INET, at.As4(), bits.ReverseBytes16(port)
		return name
	}
	name.Family, name.Addr, name.Port = unix.AF_INET6, at.As16(), bits.ReverseBytes16(port)
	return name
}

// AddrOf returns the address of a name.
func AddrOf(name *Name) netip.Addr {
	if name.Family == unix.AF_INET {
		return netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr)
	}
	return netip.AddrFrom16(name.Addr)
}

// NameLen is the length in bytes of an IPv4 or IPv6 name.
func NameLen(v6 bool) uint32 {
	if v6 {
		return unix.SizeofSockaddrInet6
	}
	return unix.SizeofSockaddrInet4
}

// Receive reads the datagrams that are ready, at most one for each header. It never waits and
// returns 0 when there is none. Receive and Send make their system calls without notifying Go's
// runtime. A notification would wake the runtime's monitor each time, which took a third of the CPU
// time on a slow link.
func Receive(fd int, headers []Header) (n int, errno unix.Errno) {
	got, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&headers[0])),
		uintptr(len(headers)), 0, 0, 0)
	switch errno {
	case 0:
		transports.AfterRead()
		return int(got), 0
	case unix.EAGAIN, unix.EINTR:
		return 0, 0
	}
	return 0, errno
}

// sendWait is how long Send waits for room in a full send buffer.
const sendWait = time.Millisecond

// Send passes datagrams to the kernel, in order. A datagram that the network refuses is lost and
// counts as sent. Send stops at any other error and returns the number of datagrams that it sent
// before. If the send buffer stays full for a millisecond, the error is EAGAIN.
func Send(fd int, headers []Header) (sent int, errno unix.Errno) {
	transports.BeforeWrite()
	for sent < len(headers) {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd),
			uintptr(unsafe.Pointer(&headers[sent])), uintptr(len(headers)-sent), 0, 0, 0)
		switch {
		case errno == 0:
			sent += int(n)
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			fds := [...]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			timeout := unix.NsecToTimespec(int64(sendWait))
			if n, err := unix.Ppoll(fds[:], &timeout, nil); err == nil && n == 0 {
				return sent, unix.EAGAIN
			}
		case refusedByNetwork(errno):
			sent++
		default:
			return sent, errno
		}
	}
	return sent, 0
}

// refusedByNetwork reports whether an error concerns one datagram, which is lost.
func refusedByNetwork(errno unix.Errno) bool {
	switch errno {
	case unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.ECONNREFUSED, unix.ENETUNREACH, unix.EHOSTUNREACH,
		unix.ENETDOWN, unix.EHOSTDOWN, unix.EADDRNOTAVAIL:
		return true
	}
	return false
}
