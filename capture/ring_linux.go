package capture

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"railbed/capture/pcapng"
)

// TPACKET_V3 layout (linux/if_packet.h). A block begins with a descriptor, which holds the status,
// the packet count and the offset of the first packet at its offsets 8 to 20. Each packet begins
// with a tpacket3_hdr, and the sockaddr_ll follows at offset 48.
const (
	blockStatus = 8
	blockCount  = 12
	blockFirst  = 16
	blockNumber = 24 // 64 bits: counts the blocks that the kernel opened, from 1

	packetNext   = 0
	packetSec    = 4
	packetNsec   = 8
	packetSnap   = 12
	packetLen    = 16
	packetStatus = 20
	packetMAC    = 24
	packetType   = 48 + 10 // sll_pkttype

	// packetOverhead is the number of ring bytes that a packet needs beside its data: headers,
	// address and alignment.
	packetOverhead = 112
)

const (
	statusUser            = 1      // TP_STATUS_USER
	statusLosing          = 1 << 2 // TP_STATUS_LOSING
	statusChecksumPending = 1 << 3 // TP_STATUS_CSUMNOTREADY
	statusGSO             = 1 << 8 // TP_STATUS_GSO_TCP

	flagChecksumPending pcapng.Flags = 1 << 9
	flagSegmentation    pcapng.Flags = 1 << 11
)

const (
	packetHost      = 0
	packetBroadcast = 1
	packetMulticast = 2
	packetOtherHost = 3
	packetOutgoing  = 4
)

// Ring sizes in bytes.
const (
	minBlock = 16 << 10
	maxBlock = 256 << 10
	minRing  = 4 * minBlock
)

// ring is one tap's socket and its mapped memory.
type ring struct {
	fd      int
	index   int // of the interface in its namespace
	mtu     int
	memory  []byte
	block   int // bytes of a block
	blocks  int
	current int    // the block to read next
	number  uint64 // number of the block read last
	dropped uint64
}

// openRing opens a socket on an interface of the calling thread's namespace. The socket receives
// nothing until activate.
func openRing(port string) (r *ring, err error) {
	// Protocol 0: the socket receives nothing until its ring and filter are in place.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	r = &ring{fd: fd}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	request, err := unix.NewIfreq(port)
	if err != nil {
		return r, fmt.Errorf("name interface %q: %w", port, err)
	}
	if err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return r, fmt.Errorf("find interface %q: %w", port, err)
	}
	r.index = int(request.Uint32())
	if err = unix.IoctlIfreq(fd, unix.SIOCGIFMTU, request); err != nil {
		return r, fmt.Errorf("read mtu of %q: %w", port, err)
	}
	r.mtu = int(request.Uint32())
	if err = unix.IoctlIfreq(fd, unix.SIOCGIFHWADDR, request); err != nil {
		return r, fmt.Errorf("read hardware type of %q: %w", port, err)
	}
	// Uint16 is the address family field, here the ARPHRD_ type.
	if hardware := request.Uint16(); hardware != unix.ARPHRD_ETHER && hardware != unix.ARPHRD_LOOPBACK {
		return r, fmt.Errorf("capture %q: hardware type %d is not Ethernet", port, hardware)
	}
	return r, nil
}

// setup attaches the program and maps a ring of about size bytes. The kernel closes a block of the
// ring after the timeout, in milliseconds.
func (r *ring) setup(program []bpf.RawInstruction, snapLen, size int, timeout uint32) error {
	filter := make([]unix.SockFilter, len(program))
	for i, instruction := range program {
		filter[i] = unix.SockFilter{Code: instruction.Op, Jt: instruction.Jt, Jf: instruction.Jf,
			K: instruction.K}
	}
	if err := unix.SetsockoptSockFprog(r.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		return fmt.Errorf("attach filter: %w", err)
	}
	// Without this option the kernel stamps a packet when the packet reaches the ring. With it the
	// kernel stamps packets as they enter the receive path and as they leave the device's queue,
	// both by the real-time clock.
	if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("ask for time stamps: %w", err)
	}
	if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V3); err != nil {
		return fmt.Errorf("ask for TPACKET_V3: %w", err)
	}
	r.block = blockSize(size, min(snapLen, r.mtu+22))
	r.blocks = max(size/r.block, 2)
	const frame = 2048 // the kernel wants a frame size; TPACKET_V3 packs packets regardless of it
	request := unix.TpacketReq3{
		Block_size: uint32(r.block), Block_nr: uint32(r.blocks),
		Frame_size: frame, Frame_nr: uint32(r.block / frame * r.blocks),
		Retire_blk_tov: timeout,
	}
	if err := unix.SetsockoptTpacketReq3(r.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &request); err != nil {
		return fmt.Errorf("make ring of %d blocks of %d bytes: %w", r.blocks, r.block, err)
	}
	memory, err := unix.Mmap(r.fd, 0, r.block*r.blocks, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map ring of %d bytes: %w", r.block*r.blocks, err)
	}
	r.memory = memory
	return nil
}

// blockSize returns a power of two that holds the largest packet and, if size allows, divides the
// ring into at least eight blocks.
func blockSize(size, packet int) int {
	want := max(minBlock, packet+2*packetOverhead)
	least := 1 << bits.Len(uint(want-1))
	most := 1 << (bits.Len(uint(size/8)) - 1)
	return max(least, min(most, maxBlock))
}

// activate binds the socket, which starts the receiving.
func (r *ring) activate() error {
	const all = unix.ETH_P_ALL
	address := &unix.SockaddrLinklayer{Protocol: all>>8 | all<<8&0xFF00, Ifindex: r.index}
	if err := unix.Bind(r.fd, address); err != nil {
		return fmt.Errorf("bind packet socket to interface %d: %w", r.index, err)
	}
	return nil
}

// captured is a packet in the ring. Its data is valid until drain's fn returns.
type captured struct {
	time    int64
	length  int
	flags   pcapng.Flags
	data    []byte
	dropped uint64 // packets lost since the previous packet, as far as known
}

// drain passes the packets of up to the given number of closed blocks to fn, in order, and returns
// the blocks to the kernel. It reports whether there may be more packets. It allocates nothing per
// packet.
func (r *ring) drain(blocks int, fn func(*captured)) (more bool, err error) {
	var packet captured
	for range blocks {
		block := r.memory[r.current*r.block : (r.current+1)*r.block]
		status := (*uint32)(unsafe.Pointer(&block[blockStatus]))
		// The kernel sets the status last. The atomic load orders the reads of the block after it.
		state := atomic.LoadUint32(status)
		if state&statusUser == 0 {
			return false, nil
		}
		// TPACKET_V3 reports losses by block. The ring drops packets while no block is free, so the
		// lost packets came before the block's first packet.
		lost := uint64(0)
		if state&statusLosing != 0 {
			before := r.dropped
			if err := r.countDrops(); err != nil {
				return false, err
			}
			lost = r.dropped - before
		}
		packet.dropped = lost
		if err := r.walk(block, &packet, func(p *captured) bool { fn(p); return true }); err != nil {
			return false, err
		}
		r.number = *(*uint64)(unsafe.Pointer(&block[blockNumber]))
		atomic.StoreUint32(status, 0)
		r.current = (r.current + 1) % r.blocks
	}
	return true, nil
}

// drainOpen passes to fn the packets, up to a time, of the block that the kernel has not closed
// yet. The kernel's timer closes a block, and may be late when the hypervisor takes the processor
// away. Nothing may be read from the ring after drainOpen.
func (r *ring) drainOpen(until int64, fn func(*captured)) {
	block := r.memory[r.current*r.block : (r.current+1)*r.block]
	// A free block that is not open still has its former content.
	if atomic.LoadUint64((*uint64)(unsafe.Pointer(&block[blockNumber]))) != r.number+1 {
		return
	}
	packet, latest := captured{}, int64(0)
	// The kernel counts a packet before the packet is complete. Such a packet arrives just now,
	// after the time until. It still has the header of a former packet, about which walk may return
	// an error.
	_ = r.walk(block, &packet, func(p *captured) bool {
		if p.time > until || p.time < latest {
			return false
		}
		latest = p.time
		fn(p)
		return true
	})
}

// walk passes the packets of a block to fn until fn returns false.
func (r *ring) walk(block []byte, packet *captured, fn func(*captured) bool) error {
	at := word(block, blockFirst)
	for range atomic.LoadUint32((*uint32)(unsafe.Pointer(&block[blockCount]))) {
		if int(at)+packetOverhead > len(block) {
			return fmt.Errorf("read ring: packet at %d of a block of %d bytes", at, len(block))
		}
		header := block[at:]
		mac, snap := int(half(header, packetMAC)), int(word(header, packetSnap))
		if mac+snap > len(header) {
			return fmt.Errorf("read ring: packet of %d bytes passes its block", snap)
		}
		packet.time = int64(word(header, packetSec))*1e9 + int64(word(header, packetNsec))
		packet.length = int(word(header, packetLen))
		packet.flags = packetFlags(header[packetType], word(header, packetStatus))
		packet.data = header[mac : mac+snap]
		if !fn(packet) {
			return nil
		}
		packet.dropped = 0
		at += word(header, packetNext)
	}
	return nil
}

func word(b []byte, at int) uint32 { return *(*uint32)(unsafe.Pointer(&b[at])) }
func half(b []byte, at int) uint16 { return *(*uint16)(unsafe.Pointer(&b[at])) }

func packetFlags(packetType byte, state uint32) pcapng.Flags {
	flags := pcapng.Inbound
	switch packetType {
	case packetOutgoing:
		flags = pcapng.Outbound
	case packetHost:
		flags |= pcapng.Unicast
	case packetMulticast:
		flags |= pcapng.Multicast
	case packetBroadcast:
		flags |= pcapng.Broadcast
	case packetOtherHost:
		flags |= pcapng.Promiscuous
	}
	if state&statusChecksumPending != 0 {
		flags |= flagChecksumPending
	}
	if state&statusGSO != 0 {
		flags |= flagSegmentation
	}
	return flags
}

// countDrops adds the drops since the last call. The kernel resets its counter at each reading.
func (r *ring) countDrops() error {
	stats, err := unix.GetsockoptTpacketStatsV3(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return fmt.Errorf("read packet statistics: %w", err)
	}
	r.dropped += uint64(stats.Drops)
	return nil
}

// close unmaps the ring's memory before it closes the socket, because the memory belongs to the
// socket.
func (r *ring) close() error {
	var unmap error
	if r.memory != nil {
		unmap = unix.Munmap(r.memory)
		r.memory = nil
	}
	return errors.Join(unmap, unix.Close(r.fd))
}

// ringsAtOnce is how many rings are set up or closed at a time. Each call waits about 10 ms for a
// grace period of the kernel's RCU (packet_set_ring, packet_release), and many calls can wait for
// the same one.
const ringsAtOnce = 64

// eachRing calls fn for every ring, concurrently, and waits for all calls.
func eachRing(rings []*ring, fn func(int, *ring) error) error {
	var group errgroup.Group
	group.SetLimit(ringsAtOnce)
	for i, r := range rings {
		if r != nil {
			group.Go(func() error { return fn(i, r) })
		}
	}
	return group.Wait()
}
