package tcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"railbed/transports/streams"
)

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
	if inner != nil {
		inner = fmt.Errorf("set TCP_USER_TIMEOUT: %w", inner)
	}
	return errors.Join(outer, inner)
}

// connect opens the connection that carries messages to the peer.
func (p *peer) connect() (*net.TCPConn, error) {
	config := p.endpoint.config
	options := streams.SocketOptions{Reuse: true, DSCP: config.DSCP, V6: config.Addr.Is6()}
	if p.endpoint.DeviceBound() {
		options.Device = config.Device
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
			Control:   options.Control,
		}
		conn, err := dialer.DialContext(p.Ctx, "tcp", p.To.At.String())
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
