package roce

import (
	"fmt"
	"net/netip"
	"time"

	"railbed/internal/infiniband"
	"railbed/internal/nicqueue"
	"railbed/transports/datagram"
)

// A NIC holds so many packets from a device, and for it: several peers' windows at a path MTU of 4,096.
const (
	nicSends    = 64
	nicReceives = 1024
)

// openNIC opens queues for the packets of the socket's block of queue pairs, whose number is in the BTH. The
// general services belong to all devices of the address. So their packets arrive by the kernel, which copies
// them to all packet sockets.
func (s *socket) openNIC(name string) (*datagram.NIC, error) {
	const (
		destQP = 4 // of the BTH
		block  = uint32(infiniband.MaxQPN) &^ (1<<blockBits - 1)
	)
	nic, err := datagram.OpenNIC(datagram.NICOptions{Name: name, Addr: s.addr, First: infiniband.Port,
		Last: infiniband.Port, Key: nicqueue.Match{At: destQP, Mask: block, Value: s.block << blockBits},
		Send: nicSends, Receive: nicReceives})
	if err != nil {
		return nil, fmt.Errorf("bypass the kernel: %w", err)
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
		s.parse(data, false)
	}
	return nil
}

// bypass passes the n bytes of packet that were written into room to the NIC, with its headers and ICRC. It
// returns false if the packet must take the kernel's path. Then room has copied it.
func (s *socket) bypass(to netip.Addr, sourcePort uint16, n int) bool {
	packet := s.nic.Packet()[:s.headersLen()+n]
	if !s.nic.Reaches(to) {
		copy(s.out.buffers[s.out.count*s.out.size:], packet)
		return false
	}
	s.id++
	s.encode(packet, to, sourcePort, s.id)
	infiniband.Packet(packet[s.headersLen():]).Seal(packet[:s.headersLen()])
	s.nic.PutPacket(to, len(packet), time.Time{})
	s.put++
	return true
}
