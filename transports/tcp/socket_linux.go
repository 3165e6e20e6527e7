package tcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errNotPermitted is the error of binding to a device without permission.
var errNotPermitted = unix.EPERM

// socketOptions are set on a socket before it is bound.
type socketOptions struct {
	device string
	reuse  bool // several connections share the source port
	dscp   uint8
	v6     bool
}

func control(o socketOptions) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		outer := c.Control(func(fd uintptr) {
			if o.device != "" {
				err = wrapped("bind to device "+o.device, unix.BindToDevice(int(fd), o.device))
			}
			if o.reuse && err == nil {
				err = wrapped("set SO_REUSEADDR",
					unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
			}
			if o.dscp > 0 && err == nil { // accepted connections inherit it
				level, option := unix.IPPROTO_IP, unix.IP_TOS
				if o.v6 {
					level, option = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
				}
				err = wrapped("set the DSCP", unix.SetsockoptInt(int(fd), level, option, int(o.dscp)<<2))
			}
		})
		return errors.Join(outer, err)
	}
}

func wrapped(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// setTimeouts makes the kernel give up a peer that does not answer for the timeout.
// TCP_USER_TIMEOUT covers data in flight and a closed window. Since Linux 4.19 it also covers
// keepalive probes, which check idle connections.
func setTimeouts(conn *net.TCPConn, timeout time.Duration) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	err = conn.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: max(timeout/2, time.Second), Interval: max(timeout/8, time.Second), Count: 4,
	})
	if err != nil {
		return fmt.Errorf("set keepalive: %w", err)
	}
	var inner error
	outer := raw.Control(func(fd uintptr) {
		inner = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
			int(timeout.Milliseconds()))
	})
	return errors.Join(outer, wrapped("set TCP_USER_TIMEOUT", inner))
}

// connect opens the connection that carries messages to the peer.
func (p *peer) connect() (*net.TCPConn, error) {
	config := p.endpoint.config
	options := socketOptions{reuse: true, dscp: config.DSCP, v6: config.Addr.Is6()}
	if p.endpoint.deviceBound {
		options.device = config.Device
	}
	ports := config.SourcePorts
	if len(ports) == 0 {
		ports = []uint16{0}
	}
	var failures []error
	for _, port := range ports {
		dialer := net.Dialer{
			LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(config.Addr, port)),
			Timeout:   config.PeerTimeout,
			KeepAlive: -1,
			Control:   control(options),
		}
		conn, err := dialer.DialContext(p.endpoint.ctx, "tcp", p.to.at.String())
		if err == nil {
			tcp := conn.(*net.TCPConn)
			if err = setTimeouts(tcp, config.PeerTimeout); err == nil {
				return tcp, nil
			}
			tcp.Close()
		}
		failures = append(failures, err)
		// The port towards this peer is in use, or in TIME_WAIT.
		if !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return nil, errors.Join(failures...)
}
