package roce

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"railbed/internal/infiniband"
	"railbed/internal/nicqueue"
	"railbed/internal/wire"
	"railbed/transports/datagram"
)

// A NIC holds so many packets from a device and for it: half the window of a queue pair, and the windows of
// several peers.
const (
	nicSends    = 64
	nicReceives = 1024
)

// While packets come, a device waits for several of them at once, but not for long. A packet in the middle
// of a WRITE wakes it only as the last of so many. Other packets complete something, or need an answer.
const (
	awaits    = 8
	mostAwait = time.Millisecond
)

// openNIC opens queues for the packets of the socket's block of queue pairs, whose number is in the BTH. The
// general services belong to all devices of the address. So their packets arrive by the kernel, which copies
// them to all packet sockets.
func (s *socket) openNIC(name string, mtu int) (*datagram.NIC, error) {
	const (
		destQP = 4 // of the BTH
		block  = uint32(infiniband.MaxQPN) &^ (1<<blockBits - 1)
		opcode = 24 // bits behind it
	)
	nic, err := datagram.OpenNIC(datagram.NICOptions{Name: name, Addr: s.addr, First: infiniband.Port,
		Last: infiniband.Port, Key: nicqueue.Match{At: destQP, Mask: block, Value: s.block << blockBits},
		Send: nicSends, Receive: nicReceives,
		Unsolicited: nicqueue.Match{Mask: 0xFF << opcode, Value: uint32(infiniband.WriteMiddle) << opcode}})
	if err != nil {
		return nil, fmt.Errorf("bypass the kernel: %w", err)
	}
	longest := s.headersLen() + infiniband.BTHLen + infiniband.RETHLen + mtu + infiniband.ICRCLen
	if room := len(nic.Packet()); longest > room {
		return nil, errors.Join(fmt.Errorf("bypass the kernel: packets of %d bytes, want at most the NIC's "+
			"MTU of %d", longest, room), nic.Close())
	}
	return nic, nil
}

// takeBypassing adds the packets that arrived past the kernel to the list.
func (s *socket) takeBypassing() error {
	s.nic.Return()
	for len(s.in.list) < batch {
		data, _, err := s.nic.NextPacket()
		if data == nil || err != nil {
			return err
		}
		if s.isFor(data) {
			s.parse(data, false)
		}
	}
	return nil
}

// isFor reports whether an IP packet is for the socket's address.
func (s *socket) isFor(packet []byte) bool {
	switch h4, h6 := wire.IPv4(packet), wire.IPv6(packet); {
	case s.addr.Is4():
		return h4.Valid() && h4.Dst() == s.addr.As4()
	default:
		return h6.Valid() && h6.Dst() == s.addr.As16()
	}
}

// bypass passes the n bytes of packet that were written into room to the NIC, with its headers and ICRC. It
// returns false if the packet must take the kernel's path. Then next has a copy of it.
func (s *socket) bypass(to netip.Addr, sourcePort uint16, n int, departs time.Time) bool {
	packet := s.nic.Packet()[:s.headersLen()+n]
	station, reaches := s.nic.Station(to)
	if !reaches {
		copy(s.out.buffers[s.out.count*s.out.size:], packet)
		return false
	}
	s.id++
	s.encode(packet, to, sourcePort, s.id)
	infiniband.Packet(packet[s.headersLen():]).Seal(packet[:s.headersLen()])
	s.nic.PutPacket(station, len(packet), departs)
	s.put++
	return true
}
