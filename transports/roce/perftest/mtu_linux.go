package perftest

import (
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// pathMTU is the MTU of a connection's route, or 0 if the kernel does not tell. The MTU of the NIC
// with the local address would be wrong: a node's own address may be one of its loopback device.
// That device's MTU is not the MTU of any link.
func pathMTU(conn net.Conn) int {
	with, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := with.SyscallConn()
	if err != nil {
		return 0
	}
	level, option := unix.IPPROTO_IP, unix.IP_MTU
	if at, err := netip.ParseAddrPort(conn.LocalAddr().String()); err == nil && at.Addr().Unmap().Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	mtu := 0
	if raw.Control(func(fd uintptr) {
		if mtu, err = unix.GetsockoptInt(int(fd), level, option); err != nil {
			mtu = 0
		}
	}) != nil {
		return 0
	}
	return mtu
}
