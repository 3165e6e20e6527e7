package quic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// openSocket binds a socket to the device too, and without it where that is not permitted.
func openSocket(ctx context.Context, c *Config) (socket *net.UDPConn, deviceBound bool, err error) {
	network := "udp4"
	if !c.Addr.Is4() {
		network = "udp6"
	}
	for _, device := range []string{c.Device, ""} {
		config := net.ListenConfig{Control: bindTo(device)}
		at := netip.AddrPortFrom(c.Addr, c.Port)
		var packets net.PacketConn
		packets, err = config.ListenPacket(ctx, network, at.String())
		if err == nil {
			return packets.(*net.UDPConn), device != "", nil
		}
		if device == "" || !errors.Is(err, unix.EPERM) {
			break
		}
	}
	return nil, false, err
}

// bindTo returns a function that binds a socket to a device, if there is one.
func bindTo(device string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		if device == "" {
			return nil
		}
		var err error
		outer := c.Control(func(fd uintptr) {
			if err = unix.BindToDevice(int(fd), device); err != nil {
				err = fmt.Errorf("bind to device %s: %w", device, err)
			}
		})
		return errors.Join(outer, err)
	}
}

// socket loses the packets that the kernel has no route for, as a link that is down does. quic-go ends
// the connection when a write fails.
type socket struct{ *net.UDPConn }

func (s socket) WriteMsgUDP(b, oob []byte, to *net.UDPAddr) (n, oobn int, err error) {
	n, oobn, err = s.UDPConn.WriteMsgUDP(b, oob, to)
	for _, lost := range []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN} {
		if errors.Is(err, lost) {
			return len(b), len(oob), nil
		}
	}
	return n, oobn, err
}
