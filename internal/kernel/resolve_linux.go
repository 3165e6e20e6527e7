package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Resolution is how an interface finds the hardware addresses of its neighbours in one family.
type Resolution struct {
	Index int
	IPv6  bool
	// Requests is the number of requests to a program of this host before those on the link
	// (app_probes).
	Requests int
	// QueueBytes is how much waits for one neighbour's address before packets are dropped.
	QueueBytes int
}

// Names of the neighbour tables, and attributes of include/uapi/linux/neighbour.h that x/sys/unix
// lacks.
const (
	tableARP, tableND = "arp_cache", "ndisc_cache"

	attrTableName       = 1  // NDTA_NAME
	attrTableParameters = 6  // NDTA_PARMS
	attrInterface       = 1  // NDTPA_IFINDEX
	attrRequests        = 9  // NDTPA_APP_PROBES
	attrQueueBytes      = 16 // NDTPA_QUEUE_LENBYTES

	sizeofNdtmsg = 4
)

// SetResolution changes how an interface finds the hardware addresses of neighbours. The sysctls
// with the same effect do not exist in a user namespace.
func (b *Batch) SetResolution(dev string, r Resolution) {
	table, family := tableARP, uint8(unix.AF_INET)
	if r.IPv6 {
		table, family = tableND, unix.AF_INET6
	}
	b.begin(unix.RTM_SETNEIGHTBL, 0, func() string {
		return fmt.Sprintf("ip -n %s ntable change name %s dev %s app_probes %d # queue_len_bytes %d", b.node,
			table, dev, r.Requests, r.QueueBytes)
	})
	b.u8(family, 0)
	b.u16(0)
	b.attrString(attrTableName, table)
	parameters := b.nest(attrTableParameters)
	b.attrU32(attrInterface, uint32(r.Index))
	b.attrU32(attrRequests, uint32(r.Requests))
	b.attrU32(attrQueueBytes, uint32(r.QueueBytes))
	b.unnest(parameters)
	b.end()
}

// Resolutions lists how each interface of the namespace finds hardware addresses.
func (c *Conn) Resolutions() ([]Resolution, error) {
	request := NewBatch("", nil)
	request.begin(unix.RTM_GETNEIGHTBL, unix.NLM_F_DUMP, nil)
	request.u8(unix.AF_UNSPEC, 0)
	request.u16(0)
	request.end()
	var all []Resolution
	err := c.dump("neighbour tables", request, func() { all = nil }, func(_ uint16, body []byte) error {
		if len(body) < sizeofNdtmsg {
			return fmt.Errorf("neighbour table message of %d bytes, want at least %d", len(body),
				sizeofNdtmsg)
		}
		r := Resolution{IPv6: body[0] == unix.AF_INET6}
		var inner error
		err := eachAttr(body[sizeofNdtmsg:], func(kind uint16, value []byte) {
			if kind == attrTableParameters {
				inner = eachAttr(value, r.set)
			}
		})
		if r.Index != 0 { // otherwise the defaults of new interfaces
			all = append(all, r)
		}
		return errors.Join(err, inner)
	})
	return all, err
}

// set sets the field of an attribute.
func (r *Resolution) set(kind uint16, value []byte) {
	switch kind {
	case attrInterface:
		r.Index = int(u32(value))
	case attrRequests:
		r.Requests = int(u32(value))
	case attrQueueBytes:
		r.QueueBytes = int(u32(value))
	}
}

// Resolver answers a namespace's requests for hardware addresses.
type Resolver struct {
	file  *os.File
	batch *Batch
	// buf holds a message of a multicast group. The kernel sends each neighbour in its own
	// datagram, of about 100 bytes.
	buf [512]byte
}

// NewResolver starts to receive the requests of the namespace's interfaces whose Resolution has
// Requests. The kernel makes a request when a first packet to a neighbour waits for the address.
// Node names the namespace in trace lines.
func NewResolver(ns *Namespace, node string, trace func(line string)) (*Resolver, error) {
	file, err := listen(ns, unix.RTMGRP_NEIGH)
	if err != nil {
		return nil, fmt.Errorf("listen to requests for neighbours: %w", err)
	}
	return &Resolver{file: file, batch: NewBatch(node, trace)}, nil
}

// Serve answers requests with permanent entries until Close, and then returns nil. The function
// find returns the name of the interface and the neighbour's hardware address. If find returns no
// address, or a request or an answer is lost, the kernel asks on the link, about a second after its
// request.
func (r *Resolver) Serve(find func(index int, addr netip.Addr) (dev string, mac MAC, found bool)) error {
	for {
		n, err := r.file.Read(r.buf[:])
		if err == nil {
			err = r.answer(r.buf[:n], find)
		}
		switch {
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil && !errors.Is(err, unix.ENOBUFS): // ENOBUFS: requests were lost
			return fmt.Errorf("answer requests for neighbours: %w", err)
		}
	}
}

// answer answers the requests in a datagram.
func (r *Resolver) answer(data []byte,
	find func(index int, addr netip.Addr) (dev string, mac MAC, found bool)) error {
	r.batch.Reset(r.batch.node)
	err := eachMessage(data, func(header unix.NlMsghdr, body []byte) error {
		if header.Type != unix.RTM_GETNEIGH {
			return nil
		}
		n, _, err := parseNeighbor(body)
		if err != nil {
			return err
		}
		if dev, mac, found := find(n.Index, n.Addr); found {
			n.MAC = mac
			r.batch.AddNeighbor(dev, n)
		}
		return nil
	})
	if err != nil || r.batch.Len() == 0 {
		return err
	}
	if r.batch.trace != nil {
		for _, line := range r.batch.lines {
			r.batch.trace(line())
		}
	}
	_, err = r.file.Write(r.batch.buf)
	return err
}

// Close ends the resolver. A running Serve returns. The entries stay.
func (r *Resolver) Close() error { return r.file.Close() }

// parseNeighbor returns a neighbour entry and its state (NUD_ of linux/neighbour.h). The entry has no
// address if it belongs to another family, as the forwarding entries of a bridge do.
func parseNeighbor(body []byte) (n Neighbor, state uint16, err error) {
	if len(body) < sizeofNdmsg {
		return n, 0, fmt.Errorf("neighbour message of %d bytes, want at least %d", len(body), sizeofNdmsg)
	}
	if family := body[0]; family != unix.AF_INET && family != unix.AF_INET6 {
		return n, 0, nil
	}
	n.Index = int(binary.NativeEndian.Uint32(body[4:]))
	err = eachAttr(body[sizeofNdmsg:], func(kind uint16, value []byte) {
		switch kind {
		case unix.NDA_DST:
			n.Addr, _ = netip.AddrFromSlice(value)
		case unix.NDA_LLADDR:
			copy(n.MAC[:], value)
		}
	})
	return n, binary.NativeEndian.Uint16(body[8:]), err
}
