package rd

import (
	"fmt"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/wire"
	"railbed/transports/datagram"
	"railbed/transports/rd/engine"
)

// arrivals is memory for the datagrams that one call receives.
type arrivals struct {
	list     []engine.Arrival
	headers  []datagram.Header
	vectors  []unix.Iovec
	names    []datagram.Name
	controls []receiveControl
	buffers  []byte
	size     int // of one buffer
	stride   int // from one buffer to the next
}

// receiveControl has room for the requested control messages: the type of service, and the length
// of joined datagrams.
type receiveControl [2 * 24]byte

// newArrivals makes memory for n datagrams of a size. If the socket joins datagrams, each of the n
// buffers can hold several.
func newArrivals(n, size int, joins bool) *arrivals {
	stride := (size + 63) &^ 63
	if joins {
		// More than an IP packet carries. Most buffers hold one datagram, at their beginning. If
		// the stride were a power of two, these beginnings would share few sets of the caches.
		size = 1 << 16
		stride = size + 69*64
	}
	a := &arrivals{
		list:     make([]engine.Arrival, 0, n),
		headers:  make([]datagram.Header, n),
		vectors:  make([]unix.Iovec, n),
		names:    make([]datagram.Name, n),
		controls: make([]receiveControl, n), buffers: make([]byte, n*stride), size: size, stride: stride,
	}
	for i := range n {
		a.vectors[i].Base = &a.buffers[i*stride]
		a.vectors[i].SetLen(size)
		h := &a.headers[i].Msghdr
		h.Name = (*byte)(unsafe.Pointer(&a.names[i]))
		h.Iov = &a.vectors[i]
		h.SetIovlen(1)
		h.Control = &a.controls[i][0]
	}
	return a
}

// seldom is the number of rounds between two looks at the socket of a worker with a NIC's queues, unless a
// wait finds it readable.
const seldom = 64

// receive reads the datagrams that are ready.
func (s *socket) receive(a *arrivals) error {
	a.list = a.list[:0]
	if s.nic != nil {
		// The kernel's datagrams are few. They come when the queue is empty, and now and then.
		if s.polls--; s.polls >= 0 {
			if err := s.take(a); err != nil || len(a.list) > 0 || !s.readable {
				return err
			}
		}
		s.polls, s.readable = seldom, false
	}
	for i := range a.headers {
		a.headers[i].Namelen = unix.SizeofSockaddrInet6
		a.headers[i].SetControllen(len(receiveControl{}))
	}
	n, errno := datagram.Receive(s.receiver, a.headers)
	if errno != 0 {
		return fmt.Errorf("receive: %w", errno)
	}
	for i := range n {
		h := &a.headers[i]
		arrival := engine.Arrival{From: datagram.AddrOf(&a.names[i]),
			Path: bits.ReverseBytes16(a.names[i].Port)}
		var each int
		arrival.Marked, each = a.controls[i].read(int(h.Controllen))
		a.add(arrival, a.buffers[i*a.stride:][:h.N:h.N], each)
	}
	return nil
}

// take takes the datagrams that arrived past the kernel.
func (s *socket) take(a *arrivals) error {
	s.nic.Return()
	for len(a.list) < cap(a.list) {
		in := &s.incoming
		if more, err := s.nic.Next(in); !more {
			return err
		}
		a.add(engine.Arrival{From: in.From, Path: in.Port, Marked: in.Marked, At: s.clock.Of(in.Arrived)},
			in.Data, 0)
	}
	return nil
}

// add appends the datagrams that arrived joined in data. Each has the length each, except for the
// last. If each is 0, data is one datagram.
func (a *arrivals) add(arrival engine.Arrival, data []byte, each int) {
	for more := true; more; {
		one := data
		if more = each > 0 && len(data) > each; more {
			one, data = data[:each:each], data[each:]
		}
		arrival.Data = one
		if block := wire.INT(one); len(one) > 0 && one[0]&0x80 == 0 && block.Valid() {
			arrival.Data = one[block.Len():]
		}
		a.list = append(a.list, arrival)
	}
}

// read parses control messages. marked is true if the datagram arrived with congestion experienced.
// That mark is in the lowest bits of the type of service or traffic class, which is a byte or an
// integer of the host's byte order. each is the length of each joined datagram, 0 for a single one.
func (c *receiveControl) read(length int) (marked bool, each int) {
	for at := 0; at+unix.SizeofCmsghdr < min(length, len(c)); {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&c[at]))
		value := c[at+unix.SizeofCmsghdr:]
		switch {
		case h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO:
			each = int(*(*int32)(unsafe.Pointer(&value[0])))
		case h.Level == unix.IPPROTO_IPV6:
			marked = *(*int32)(unsafe.Pointer(&value[0]))&3 == 3
		default:
			marked = value[0]&3 == 3
		}
		at += unix.CmsgSpace(int(h.Len) - unix.SizeofCmsghdr)
	}
	return marked, each
}
