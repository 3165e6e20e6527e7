package arbiter

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"railbed/plan/spec"
)

// express gives a socket's packets the class of rd's control packets, so that they do not wait
// behind data.
func express(conn *net.UDPConn, at netip.Addr) error {
	level, option := unix.IPPROTO_IP, unix.IP_TOS
	if at.Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), level, option, spec.DSCPRdControl<<2)
	})
	if err != nil {
		return err
	}
	return failed
}
