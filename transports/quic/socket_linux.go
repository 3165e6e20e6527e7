package quic

import (
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"railbed/transports/streams"
)

// openSocket binds the socket, to a device too, if there is one.
func (e *Endpoint) openSocket(device string) (*net.UDPConn, error) {
	network := "udp4"
	if !e.config.Addr.Is4() {
		network = "udp6"
	}
	config := net.ListenConfig{Control: streams.SocketOptions{Device: device}.Control}
	at := netip.AddrPortFrom(e.config.Addr, e.config.Port)
	packets, err := config.ListenPacket(e.Ctx, network, at.String())
	if err != nil {
		return nil, err
	}
	return packets.(*net.UDPConn), nil
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
