package port

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// packetPort is a packet socket on the switch's end of a veth.
//
// Frames arrive through a mapped ring of version 2. Version 3 packs frames of any length and holds
// five times as many small ones, but passes them on by blocks, which a timer of a millisecond or
// more closes. Frames are sent with sendmmsg, not with a transmit ring. A transmit ring gives the
// kernel references into the ring. The kernel declares a slot free as soon as the node's stack
// orphans the packet (ip_rcv does), although its payload may still wait in a socket. If the slot is
// then overwritten, the socket gets a packet that the sender never sent.
type packetPort struct {
	description Description
	fd          int
	memory      []byte
	block       int // bytes of a block
	perBlock    int // frames in a block

	at      int // offset of the next slot to read
	inBlock int // its number in its block

	messages [sendBatch]mmsghdr
	vectors  [sendBatch]unix.Iovec

	counts  counters
	statsMu sync.Mutex
	dropped uint64 // guarded by statsMu: the kernel counts from zero after each reading
}

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

const (
	// sendBatch is how many frames go into one system call. The node's stack receives them within
	// the call, which takes a microsecond or two for each; meanwhile the thread does nothing else.
	sendBatch = 32

	// slotOverhead is the space that the kernel uses before a frame in its slot: header, address,
	// and room to align the network header. That is tpacket_rcv's netoff, which lies after the
	// Ethernet header.
	slotOverhead = 80 - HeaderLen
	slotAlign    = unix.TPACKET_ALIGNMENT
	ringBlock    = 64 << 10
)

const (
	statusUser         = 1 // TP_STATUS_USER
	statusUnfinished   = unix.TP_STATUS_CSUMNOTREADY
	statusSegmentation = unix.TP_STATUS_GSO_TCP
	statusTag          = unix.TP_STATUS_VLAN_VALID
)

// packetGeometry returns the layout of a ring of about size bytes. Its slots hold a frame of the
// MTU with a tag that the kernel left in it.
func packetGeometry(mtu, size int) (slot, perBlock, blocks, block int) {
	slot = (slotOverhead + mtu + HeaderLen + TagLen + slack + slotAlign - 1) &^ (slotAlign - 1)
	block = ringBlock
	if slot > block {
		block = 1 << bits.Len(uint(slot-1))
	}
	perBlock = block / slot
	slots := max(size/slot, MinSlots)
	return slot, perBlock, (slots + perBlock - 1) / perBlock, block
}

// openPacket opens a packet socket with its ring on an interface of the calling thread's namespace
// or, for a trunk, on all of them.
func openPacket(name string, options Options) (h *Handle, err error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket for %s: %w", name, needRaw(err))
	}
	h = &Handle{Files: []*os.File{os.NewFile(uintptr(fd), "packet "+name)}}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
			h = nil
		}
	}()
	index, mtu := 0, options.MTU
	if name != everyInterface {
		if index, mtu, err = interfaceOf(fd, name); err != nil {
			return h, err
		}
	}
	if options.MTU != 0 && options.MTU != mtu {
		return h, fmt.Errorf("open port %s: interface has mtu %d, want %d", name, mtu, options.MTU)
	}
	slot, perBlock, blocks, block := packetGeometry(mtu, options.RingBytes)
	h.Description = Description{
		Driver: Packet, Name: name, Index: index, MTU: mtu,
		Slots: perBlock * blocks, SlotBytes: slot, KernelStamps: true,
	}
	for _, option := range []struct {
		name  string
		value int
		what  string
	}{
		{"PACKET_VERSION", unix.PACKET_VERSION, "TPACKET_V2"},
		{"PACKET_IGNORE_OUTGOING", unix.PACKET_IGNORE_OUTGOING, "ignore sent frames (Linux 4.20)"},
		{"PACKET_QDISC_BYPASS", unix.PACKET_QDISC_BYPASS,
			"bypass the queueing discipline (Linux 3.14)"},
	} {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, option.value, 1); err != nil {
			return h, fmt.Errorf("open port %s: set %s (%s): %w", name, option.name, option.what, err)
		}
	}
	request := unix.TpacketReq{
		Block_size: uint32(block), Block_nr: uint32(blocks),
		Frame_size: uint32(slot), Frame_nr: uint32(perBlock * blocks),
	}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &request); err != nil {
		return h, fmt.Errorf("open port %s: make ring of %d blocks of %d bytes: %w", name, blocks, block, err)
	}
	// Bind comes last, so that no frame arrives before there is a ring for it.
	const all = unix.ETH_P_ALL
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all>>8 | all<<8&0xFF00,
		Ifindex: index}); err != nil {
		return h, fmt.Errorf("bind packet socket to %s: %w", name, err)
	}
	return h, nil
}

// newPacket maps the ring of a socket that openPacket made.
func newPacket(d Description, fd int) (*packetPort, error) {
	slot, perBlock, _, block := packetGeometry(d.MTU, d.Slots*d.SlotBytes)
	if slot != d.SlotBytes || d.Slots%perBlock != 0 {
		return nil, fmt.Errorf("describe port %s: %d slots of %d bytes, want a multiple of %d of %d bytes",
			d.Name, d.Slots, d.SlotBytes, perBlock, slot)
	}
	size := d.Slots / perBlock * block
	memory, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map ring of %d bytes of port %s: %w", size, d.Name, err)
	}
	p := &packetPort{description: d, fd: fd, memory: memory, block: block, perBlock: perBlock}
	for i := range p.messages {
		p.messages[i].header.Iov = &p.vectors[i]
		p.messages[i].header.SetIovlen(1)
	}
	return p, nil
}

func (p *packetPort) Description() Description { return p.description }
func (p *packetPort) Fd() int                  { return p.fd }
func (p *packetPort) Flush() error             { return nil }

// Receive implements Port.
func (p *packetPort) Receive(frames []Frame) (n int, err error) {
	if p.memory == nil {
		return 0, os.ErrClosed
	}
	bytes := 0
	for range p.description.Slots {
		if n == len(frames) {
			break
		}
		frame := &frames[n]
		var slot *unix.Tpacket2Hdr
		if slot, err = p.ready(frame); slot == nil {
			break
		}
		if p.take(slot, frame, p.description.MTU, &p.counts) {
			bytes += len(frame.Data)
			n++
		}
		p.release(slot)
	}
	p.counts.received(n, bytes)
	return n, err
}

// ready returns the next slot to read, for a frame. It returns nil while the kernel has not filled
// the slot, and an error if the frame's memory is too small for the port.
func (p *packetPort) ready(frame *Frame) (*unix.Tpacket2Hdr, error) {
	slot := (*unix.Tpacket2Hdr)(unsafe.Pointer(&p.memory[p.at]))
	// The kernel sets the status last. Loading it atomically orders the later reads of the slot.
	if atomic.LoadUint32(&slot.Status)&statusUser == 0 {
		return nil, nil
	}
	if cap(frame.Data) < p.description.Room() {
		return nil, smallFrame(p.description, *frame)
	}
	return slot, nil
}

// release returns the slot to the kernel and moves to the next one. The space of a block after its
// last slot is not used.
func (p *packetPort) release(slot *unix.Tpacket2Hdr) {
	atomic.StoreUint32(&slot.Status, 0)
	p.inBlock++
	p.at += p.description.SlotBytes
	if p.inBlock == p.perBlock {
		p.inBlock = 0
		p.at = (p.at + p.block - 1) &^ (p.block - 1)
		if p.at >= len(p.memory) {
			p.at = 0
		}
	}
}

// take copies the frame of a slot and reports whether it is whole and no longer than the MTU
// allows.
func (p *packetPort) take(header *unix.Tpacket2Hdr, frame *Frame, mtu int, counts *counters) bool {
	status := header.Status // the kernel does not change it before it has the slot again
	mac, length := int(header.Mac), int(header.Snaplen)
	switch {
	case header.Snaplen < header.Len, length > p.description.SlotBytes-mac:
		counts.truncated.Add(1)
		return false
	case length < HeaderLen:
		counts.refused.Add(1)
		return false
	}
	source := p.memory[p.at+mac : p.at+mac+length]
	data := frame.Data[:cap(frame.Data)]
	if status&statusTag == 0 {
		data = data[:copy(data, source)]
	} else {
		// The kernel removed the tag from the frame; it is put back after the addresses. Kernels
		// before 3.14 do not report its type.
		kind := uint16(unix.ETH_P_8021Q)
		if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			kind = header.Vlan_tpid
		}
		if length+TagLen > len(data) {
			counts.truncated.Add(1)
			return false
		}
		copy(data, source[:12])
		data[12], data[13] = byte(kind>>8), byte(kind)
		data[14], data[15] = byte(header.Vlan_tci>>8), byte(header.Vlan_tci)
		data = data[:16+copy(data[16:], source[12:])]
	}
	switch {
	case status&statusSegmentation != 0:
		counts.refused.Add(1)
		return false
	case !frameFits(data, len(data), mtu):
		counts.truncated.Add(1)
		return false
	case status&statusUnfinished != 0:
		if !completeChecksum(data) {
			counts.refused.Add(1)
			return false
		}
		counts.completed.Add(1)
	}
	frame.Data = data
	frame.Stamp = int64(header.Sec)*1e9 + int64(header.Nsec)
	return true
}

// Send implements Port.
func (p *packetPort) Send(frames [][]byte) (taken int, err error) {
	if p.fd < 0 {
		return 0, os.ErrClosed
	}
	for taken < len(frames) {
		batch := frames[taken:min(taken+sendBatch, len(frames))]
		for i, frame := range batch {
			if len(frame) == 0 {
				batch = batch[:i]
				break
			}
			p.vectors[i].Base = &frame[0]
			p.vectors[i].SetLen(len(frame))
		}
		if len(batch) == 0 { // the first frame is empty
			p.counts.failed.Add(1)
			taken++
			continue
		}
		// A raw call, because the runtime would take the processor from a thread that stays in a
		// call for 20 us. MSG_DONTWAIT never sleeps.
		sent, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(p.fd),
			uintptr(unsafe.Pointer(&p.messages[0])), uintptr(len(batch)), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			bytes := 0
			for _, frame := range batch[:sent] {
				bytes += len(frame)
			}
			p.counts.sent(int(sent), bytes)
			taken += int(sent)
		case unix.EINTR:
		case unix.EAGAIN:
			return taken, nil
		case unix.ENOBUFS, unix.EMSGSIZE, unix.EINVAL, unix.ENOMEM:
			// The first frame of the batch is lost: its receiver was down or had a full queue, or
			// its length is invalid. The next may not be.
			p.counts.failed.Add(1)
			taken++
		case unix.ENETDOWN, unix.ENXIO:
			p.counts.failed.Add(uint64(len(batch)))
			taken += len(batch)
		default:
			return taken, fmt.Errorf("send on %s: %w", p.description.Name, errno)
		}
	}
	return taken, nil
}

// Recover implements Port.
func (p *packetPort) Recover() error {
	// Reading the error clears it. ENETDOWN means down or deleted; but a socket of a deleted
	// interface is bound to index -1.
	pending, err := unix.GetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return fmt.Errorf("read error of port %s: %w", p.description.Name, err)
	}
	address, err := unix.Getsockname(p.fd)
	if err != nil {
		return fmt.Errorf("read address of port %s: %w", p.description.Name, err)
	}
	if link, ok := address.(*unix.SockaddrLinklayer); ok && link.Ifindex != p.description.Index {
		return fmt.Errorf("port %s: %w", p.description.Name, ErrGone)
	}
	if pending == 0 || unix.Errno(pending) == unix.ENETDOWN {
		return nil
	}
	return fmt.Errorf("port %s: %w", p.description.Name, unix.Errno(pending))
}

// Stats implements Port.
func (p *packetPort) Stats() (Stats, error) {
	p.statsMu.Lock()
	defer p.statsMu.Unlock()
	stats := p.counts.read()
	if p.fd < 0 {
		stats.KernelDropped = p.dropped
		return stats, nil
	}
	kernel, err := unix.GetsockoptTpacketStats(p.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return stats, fmt.Errorf("read statistics of port %s: %w", p.description.Name, err)
	}
	p.dropped += uint64(kernel.Drops)
	stats.KernelDropped = p.dropped
	return stats, nil
}

// Close implements Port.
func (p *packetPort) Close() error {
	p.statsMu.Lock()
	defer p.statsMu.Unlock()
	if p.fd < 0 {
		return nil
	}
	err := unix.Munmap(p.memory) // before the socket that owns the memory
	p.memory = nil
	err = errors.Join(err, unix.Close(p.fd))
	p.fd = -1
	return err
}
