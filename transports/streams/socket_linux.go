package streams

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// SocketOptions are set on a socket before it is bound.
type SocketOptions struct {
	Device string
	Reuse  bool // several connections share the source port
	DSCP   uint8
	V6     bool // of the address, for the DSCP
}

// Control is a function for net.ListenConfig and net.Dialer.
func (o SocketOptions) Control(_, _ string, c syscall.RawConn) error {
	var err error
	outer := c.Control(func(fd uintptr) { err = o.set(int(fd)) })
	return errors.Join(outer, err)
}

func (o SocketOptions) set(fd int) error {
	if o.Device != "" {
		if err := unix.BindToDevice(fd, o.Device); err != nil {
			return fmt.Errorf("bind to device %s: %w", o.Device, err)
		}
	}
	if o.Reuse {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return fmt.Errorf("set SO_REUSEADDR: %w", err)
		}
	}
	if o.DSCP > 0 { // accepted connections inherit it
		level, option := unix.IPPROTO_IP, unix.IP_TOS
		if o.V6 {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
		}
		if err := unix.SetsockoptInt(fd, level, option, int(o.DSCP)<<2); err != nil {
			return fmt.Errorf("set the DSCP: %w", err)
		}
	}
	return nil
}
