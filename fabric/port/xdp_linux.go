package port

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/internal/verdict"
)

// xdpPort receives as packetPort does and sends through an AF_XDP socket in copy mode. Sending
// takes a third less time than with sendmmsg, because the kernel finds lengths and addresses in
// shared memory and does not parse each frame.
//
// Sending needs no XDP program. So it needs no right to load BPF and has no limit on the MTU: a
// frame longer than a chunk takes several descriptors (XDP_USE_SG, Linux 6.6). Receiving would need
// both. In copy mode it would also cost the node a copy into pages with head room before the copy
// into our memory.
type xdpPort struct {
	*packetPort
	xsk  int
	umem []byte
	ring []byte // the send ring
	done []byte // the completion ring

	producer, consumer         *uint32
	doneProducer, doneConsumer *uint32
	descriptors                []unix.XDPDesc
	lengths                    []uint32 // of the frame whose last descriptor is at this index
	chunk                      int

	// Positions count descriptors since the start and wrap around. The kernel publishes its
	// position only with a frame that it sent, so consumed may be ahead of *consumer.
	produced, consumed uint32
}

// sendFrames is the number of largest frames that the send ring holds.
const sendFrames = 32

// xdpGeometry returns the layout of a send ring for frames of an MTU. Chunks are at most a page, as
// the kernel requires, and their number is a power of two.
func xdpGeometry(mtu int) (chunks, chunk int) {
	chunk = 2048
	if mtu+HeaderLen+TagLen > chunk {
		chunk = 4096
	}
	perFrame := (mtu + HeaderLen + TagLen + chunk - 1) / chunk
	return 1 << bits.Len(uint(sendFrames*perFrame-1)), chunk
}

// openXDP opens a packet socket and an AF_XDP socket on an interface of the calling thread's
// namespace. The memory of the second counts against this process's limit for locked memory, not
// against the limit of the process that receives the port.
func openXDP(name string, options Options) (h *Handle, err error) {
	h, err = openPacket(name, options)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
			h = nil
		}
	}()
	h.Description.Driver = XDP
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return h, noXDP(name, "open AF_XDP socket", err)
	}
	h.Files = append(h.Files, os.NewFile(uintptr(fd), "xdp "+name))
	chunks, chunk := xdpGeometry(h.Description.MTU)
	h.Description.SendSlots, h.Description.SendSlotBytes = chunks, chunk
	memory, err := kernel.Memory("memory "+name, 0)
	if err != nil {
		return h, fmt.Errorf("open port %s: %w", name, err)
	}
	h.Files = append(h.Files, memory)
	if err := memory.Truncate(int64(chunks * chunk)); err != nil {
		return h, fmt.Errorf("make memory of port %s: %w", name, err)
	}
	return h, bindXDP(fd, int(memory.Fd()), h.Description)
}

// bindXDP sets up the socket's memory and rings, and binds it to the interface.
func bindXDP(fd, memory int, d Description) error {
	umem, err := unix.Mmap(memory, 0, d.SendSlots*d.SendSlotBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("map memory of port %s: %w", d.Name, err)
	}
	defer unix.Munmap(umem) // the kernel keeps the pages
	register := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&umem[0]))), Len: uint64(len(umem)),
		Size: uint32(d.SendSlotBytes)}
	if _, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_UMEM_REG,
		uintptr(unsafe.Pointer(&register)), unsafe.Sizeof(register), 0); errno != 0 {
		return noXDP(d.Name, fmt.Sprintf("register %d bytes of memory", len(umem)), errno)
	}
	// The fill ring is for receiving, but the kernel always requires one.
	for _, ring := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_TX_RING} {
		if err := unix.SetsockoptInt(fd, unix.SOL_XDP, ring, d.SendSlots); err != nil {
			return noXDP(d.Name, fmt.Sprintf("make ring %d of %d", ring, d.SendSlots), err)
		}
	}
	address := &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(d.Index)}
	if d.MTU+HeaderLen+TagLen > d.SendSlotBytes {
		address.Flags |= unix.XDP_USE_SG
	}
	if err := unix.Bind(fd, address); err != nil {
		return noXDP(d.Name, "bind AF_XDP socket", err)
	}
	// Allow more than 32 descriptors at a time, for frames that take several (Linux 6.17).
	// Otherwise the kernel must be called again.
	_ = unix.SetsockoptInt(fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, d.SendSlots)
	return nil
}

func noXDP(name, what string, err error) error {
	remedy := "use the driver packet, become root, or use a kernel with CONFIG_XDP_SOCKETS (Linux 6.6 or " +
		"later for an MTU above 4,078)"
	if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) {
		remedy = "use the driver packet, or raise the limit of locked memory (ulimit -l)"
	}
	return &verdict.UnsupportedError{Feature: "af-xdp",
		Reason: fmt.Sprintf("open port %s: %s: %v", name, what, err), Remedy: remedy}
}

// newXDP maps the memory that openXDP created.
func newXDP(d Description, packet, xsk, memory int) (p *xdpPort, err error) {
	chunks, chunk := xdpGeometry(d.MTU)
	if chunks != d.SendSlots || chunk != d.SendSlotBytes {
		return nil, fmt.Errorf("describe port %s: %d chunks of %d bytes for sending, want %d of %d bytes",
			d.Name, d.SendSlots, d.SendSlotBytes, chunks, chunk)
	}
	receive, err := newPacket(d, packet)
	if err != nil {
		return nil, err
	}
	p = &xdpPort{packetPort: receive, xsk: xsk, chunk: chunk, lengths: make([]uint32, chunks)}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.unmap(), unix.Munmap(p.memory))
			p = nil
		}
	}()
	var offsets unix.XDPMmapOffsets
	size := uint32(unsafe.Sizeof(offsets))
	if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(xsk), unix.SOL_XDP, unix.XDP_MMAP_OFFSETS,
		uintptr(unsafe.Pointer(&offsets)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
		return p, fmt.Errorf("make port %s: find rings: %w", d.Name, errno)
	}
	const shared, both = unix.MAP_SHARED | unix.MAP_POPULATE, unix.PROT_READ | unix.PROT_WRITE
	descriptor := int(unsafe.Sizeof(unix.XDPDesc{}))
	if p.umem, err = unix.Mmap(memory, 0, chunks*chunk, both, shared); err != nil {
		return p, fmt.Errorf("map memory of port %s: %w", d.Name, err)
	}
	if p.ring, err = unix.Mmap(xsk, unix.XDP_PGOFF_TX_RING, int(offsets.Tx.Desc)+chunks*descriptor, both,
		shared); err != nil {
		return p, fmt.Errorf("map send ring of port %s: %w", d.Name, err)
	}
	if p.done, err = unix.Mmap(xsk, unix.XDP_UMEM_PGOFF_COMPLETION_RING, int(offsets.Cr.Desc)+chunks*8, both,
		shared); err != nil {
		return p, fmt.Errorf("map completion ring of port %s: %w", d.Name, err)
	}
	p.producer = (*uint32)(unsafe.Pointer(&p.ring[offsets.Tx.Producer]))
	p.consumer = (*uint32)(unsafe.Pointer(&p.ring[offsets.Tx.Consumer]))
	p.descriptors = unsafe.Slice((*unix.XDPDesc)(unsafe.Pointer(&p.ring[offsets.Tx.Desc])), chunks)
	p.doneProducer = (*uint32)(unsafe.Pointer(&p.done[offsets.Cr.Producer]))
	p.doneConsumer = (*uint32)(unsafe.Pointer(&p.done[offsets.Cr.Consumer]))
	p.produced = atomic.LoadUint32(p.producer)
	p.consumed = atomic.LoadUint32(p.consumer)
	return p, unix.Close(memory) // the mapping stays
}

// Send implements Port.
func (p *xdpPort) Send(frames [][]byte) (taken int, err error) {
	if p.ring == nil {
		return 0, os.ErrClosed
	}
	for taken < len(frames) {
		before := p.produced
		placed, bytes := 0, 0
		for _, frame := range frames[taken:] {
			if len(frame) < HeaderLen || !frameFits(frame, len(frame), p.description.MTU) {
				p.counts.failed.Add(1)
			} else if p.place(frame) {
				placed++
				bytes += len(frame)
			} else {
				break
			}
			taken++
		}
		atomic.StoreUint32(p.producer, p.produced)
		p.counts.sent(placed, bytes)
		full, err := p.push(before)
		if full || err != nil {
			return taken, err
		}
	}
	return taken, nil
}

// Flush implements Port: it pushes frames that the kernel left in the ring.
func (p *xdpPort) Flush() error {
	if p.ring == nil || p.produced == p.consumed {
		return nil
	}
	_, err := p.push(p.produced)
	return err
}

// place puts a frame into the ring if there is room. A descriptor's position is its chunk's
// position: when the kernel has consumed a descriptor it has copied the chunk, so completions add
// no information.
func (p *xdpPort) place(frame []byte) bool {
	chunks := uint32(len(p.descriptors))
	need := uint32(1)
	if len(frame) > p.chunk {
		need = uint32((len(frame) + p.chunk - 1) / p.chunk)
	}
	if chunks-(p.produced-p.consumed) < need {
		return false
	}
	for length := uint32(len(frame)); ; {
		slot := p.produced & (chunks - 1)
		at := int(slot) * p.chunk
		n := copy(p.umem[at:at+p.chunk], frame)
		frame = frame[n:]
		d := &p.descriptors[slot]
		d.Addr, d.Len, d.Options = uint64(at), uint32(n), 0
		p.produced++
		if len(frame) == 0 {
			p.lengths[slot] = length
			return true
		}
		d.Options = unix.XDP_PKT_CONTD
	}
}

// push makes the kernel send the frames in the ring, and reports whether frames remain there for
// lack of memory. Frames from position before on are lost if the interface is down.
func (p *xdpPort) push(before uint32) (full bool, err error) {
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(p.xsk), 0, 0, unix.MSG_DONTWAIT, 0, 0)
		atomic.StoreUint32(p.doneConsumer, atomic.LoadUint32(p.doneProducer))
		switch errno {
		case 0:
			p.consumed = p.produced
			return false, nil
		case unix.EINTR:
		case unix.EBUSY: // one frame was consumed and dropped, the frames before it were sent
			if !p.dropOne() {
				return false, nil
			}
		case unix.EAGAIN: // after 32 descriptors, or for lack of memory
			if !p.progress() {
				return true, nil
			}
		case unix.ENETDOWN, unix.ENXIO: // the kernel examined no frame
			for p.produced != before {
				p.produced--
				p.uncount(p.produced)
			}
			atomic.StoreUint32(p.producer, p.produced)
			return false, nil
		default:
			return false, fmt.Errorf("send on %s: %w", p.description.Name, errno)
		}
	}
}

// progress reads the kernel's published position.
func (p *xdpPort) progress() bool {
	published := atomic.LoadUint32(p.consumer)
	if int32(published-p.consumed) <= 0 {
		return false
	}
	p.consumed = published
	return true
}

// dropOne counts the frame that the kernel consumed and did not send. It is the last of the frames
// that the kernel published or, if it published none, the next one.
func (p *xdpPort) dropOne() bool {
	if !p.progress() {
		if p.consumed == p.produced {
			return false
		}
		for p.descriptor(p.consumed).Options&unix.XDP_PKT_CONTD != 0 {
			p.consumed++
		}
		p.consumed++
	}
	p.uncount(p.consumed - 1)
	return true
}

// uncount counts the frame with this last descriptor as failed.
func (p *xdpPort) uncount(position uint32) {
	if p.descriptor(position).Options&unix.XDP_PKT_CONTD != 0 {
		return
	}
	length := p.lengths[position&uint32(len(p.lengths)-1)]
	p.counts.outFrames.Add(^uint64(0))
	p.counts.outBytes.Add(-uint64(length))
	p.counts.failed.Add(1)
}

func (p *xdpPort) descriptor(position uint32) *unix.XDPDesc {
	return &p.descriptors[position&uint32(len(p.descriptors)-1)]
}

// unmap releases the memory for sending.
func (p *xdpPort) unmap() error {
	var errs []error
	for _, memory := range []*[]byte{&p.ring, &p.done, &p.umem} {
		if *memory != nil {
			errs = append(errs, unix.Munmap(*memory))
			*memory = nil
		}
	}
	p.descriptors = nil
	return errors.Join(errs...)
}

// Close implements Port.
func (p *xdpPort) Close() error {
	var errs []error
	if p.ring != nil {
		errs = append(errs, p.unmap(), unix.Close(p.xsk))
	}
	return errors.Join(append(errs, p.packetPort.Close())...)
}
