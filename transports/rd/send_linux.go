package rd

import (
	"fmt"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/wire"
	"railbed/plan/spec"
	"railbed/transports/datagram"
	"railbed/transports/rd/engine"
)

// sendBatch is memory for one call of sendmmsg.
type sendBatch struct {
	headers  [batch]datagram.Header
	names    [batch]datagram.Name
	vectors  [2 * batch]unix.Iovec
	controls [batch]datagram.Control
	first    [batch + 1]int // by header, the index of its first packet; after the last, the number of packets
	count    int            // of headers
	used     int            // of vectors
}

func (b *sendBatch) init() {
	for i := range b.headers {
		b.headers[i].Name = (*byte)(unsafe.Pointer(&b.names[i]))
	}
}

// send sends packets to their peers. Packets that the network refuses are lost. Only an error of
// the sockets themselves is returned.
func (s *socket) send(packets []engine.Packet, peers []datagram.Name) error {
	for len(packets) > 0 {
		if queued := s.put(packets, peers); queued > 0 {
			packets = packets[queued:]
			continue
		}
		path, n := s.pathOf(&packets[0]), 1
		for n < len(packets) && !packets[n].Control && packets[n].Path == path {
			n++
		}
		if err := s.sendBy(s.paths[path], packets[:n], peers); err != nil {
			return err
		}
		packets = packets[n:]
	}
	if s.nic != nil {
		return s.nic.Post()
	}
	return nil
}

// put passes the first packets to the NIC, past the kernel, and returns their number.
func (s *socket) put(packets []engine.Packet, peers []datagram.Name) (n int) {
	if s.nic == nil {
		return 0
	}
	for n < len(packets) && s.nic.Room() > 0 {
		p := &packets[n]
		to := p.To
		if p.Peer >= 0 {
			to = datagram.AddrOf(&peers[p.Peer])
		}
		station, reaches := s.nic.Station(to)
		if !reaches {
			break
		}
		out := datagram.Outgoing{To: to, Station: station, SrcPort: s.firstPath + uint16(s.pathOf(p)),
			DstPort: wire.PortRD + uint16(p.Port), DSCP: s.dscp, ECN: wire.ECT0, Header: p.Header,
			Payload: p.Payload}
		if p.Departs > 0 {
			out.Departs = s.clock.Real(p.Departs)
		}
		if p.Control {
			out.DSCP, out.ECN = spec.DSCPRdControl, wire.NotECT
		}
		s.nic.Put(&out)
		n++
	}
	return n
}

// canSend returns how many packets can be sent, at most the size of a batch.
func (s *socket) canSend() int {
	if s.nic == nil {
		return batch
	}
	return min(batch, s.nic.Room())
}

// rest prepares a wait for a number of packets or, if the NIC's queue was full, for room there. It returns
// false if the worker must not wait.
func (s *socket) rest(packets int, full bool) bool {
	return s.nic == nil || s.nic.Rest(packets, full)
}

// wake ends the wait. waited is false if there was none after all.
func (s *socket) wake(waited bool) {
	if s.nic != nil {
		s.nic.Wake(waited && s.waiter.Readable(s.nic.Bell()))
		s.readable = s.readable || waited && s.waiter.Readable(s.receiver)
	}
}

// pathOf returns the path of a packet. Control packets use all paths in turn.
func (s *socket) pathOf(p *engine.Packet) int {
	if p.Path >= 0 {
		return p.Path
	}
	s.turn = (s.turn + 1) % len(s.paths)
	return s.turn
}

// sendBy sends packets by one path.
func (s *socket) sendBy(fd int, packets []engine.Packet, peers []datagram.Name) error {
	b := &s.batch
	b.count, b.used = 0, 0
	for at := 0; at < len(packets); {
		b.first[b.count] = at
		at += s.add(packets[at:], peers)
	}
	b.first[b.count] = len(packets)
	for sent := 0; sent < b.count; {
		n, errno := datagram.Send(fd, b.headers[sent:b.count])
		sent += n
		switch {
		case errno == 0:
		case errno == unix.EAGAIN:
			return nil // packets that are not sent count as lost and are detected as such
		case !s.whole && b.first[sent+1]-b.first[sent] > 1 && datagram.CutsNothing(errno):
			s.whole = true
			return s.sendBy(fd, packets[b.first[sent]:], peers)
		default:
			return fmt.Errorf("send: %w", errno)
		}
	}
	return nil
}

// add makes one message of the first packets, as many as the kernel can cut out of it, and returns
// their number. Where the kernel cuts nothing, the number is 1.
func (s *socket) add(packets []engine.Packet, peers []datagram.Name) int {
	b, first := &s.batch, &packets[0]
	h, name := &b.headers[b.count], &b.names[b.count]
	if first.Peer >= 0 {
		*name = peers[first.Peer]
	} else {
		*name = datagram.NameOf(first.To, 0)
	}
	name.Port = bits.ReverseBytes16(wire.PortRD + uint16(first.Port))
	h.Namelen = datagram.NameLen(s.v6)
	h.Iov = &b.vectors[b.used]
	from, n := b.used, 0
	size, bytes := len(first.Header)+len(first.Payload), 0
	for n < len(packets) {
		p := &packets[n]
		length := len(p.Header) + len(p.Payload)
		if n > 0 && (p.Control || p.Peer != first.Peer || p.Port != first.Port || length > size ||
			bytes+length > datagram.MostCutBytes || n == datagram.MostCut) {
			break
		}
		b.vector(p.Header)
		b.vector(p.Payload)
		bytes += length
		n++
		if first.Control || s.whole || length < size { // a shorter packet must be the last
			break
		}
	}
	h.SetIovlen(b.used - from)
	c := &b.controls[b.count]
	switch {
	case first.Control:
		c.TrafficClass(h, s.v6, spec.DSCPRdControl<<2)
	case n > 1:
		c.Cut(h, size)
	default:
		c.None(h)
	}
	b.count++
	return n
}

func (b *sendBatch) vector(data []byte) {
	if len(data) > 0 {
		b.vectors[b.used].Base = &data[0]
		b.vectors[b.used].SetLen(len(data))
		b.used++
	}
}
