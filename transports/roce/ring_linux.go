package roce

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/infiniband"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/datagram"
)

const (
	// ringBytes is the size of a ring for unread packets: seven peers' windows at a path MTU of
	// 4,096.
	ringBytes = 4 << 20
	ringBlock = 64 << 10
	// slotOverhead is the number of bytes that the kernel puts before a packet in its slot
	// (tpacket_rcv, for a socket of type SOCK_DGRAM).
	slotOverhead = 80
	// Of linux/filter.h.
	packetType = 1<<32 - 0x1000 + 4 // SKF_AD_OFF + SKF_AD_PKTTYPE
	// mostWhole is the most uncut packets that are taken at a time.
	mostWhole = 8
	// lo is the index of the loopback device of every network.
	lo = 1
)

// ring is a packet socket that receives packets as IP does. It has one packet for each slot of
// memory that it shares with the kernel (TPACKET_V2). So reading a packet costs no system call, and
// no copy but the kernel's into the ring. A packet longer than a slot, which the kernel has not
// cut, waits in the socket.
type ring struct {
	fd     int
	memory []byte
	slots  []uint32 // offsets of the slots
	next   int
	taken  int // slots before next that are still being read
	whole  [mostWhole][]byte
	used   int // of whole
	header datagram.Header
	vector unix.Iovec
	// overruns counts packets lost because the ring was full of unread ones.
	overruns atomic.Uint64
	closing  sync.Mutex // against lost
}

// openRing opens a ring for the address's packets of at most size bytes that the filter passes.
// Without a NIC's name it receives from all interfaces.
func openRing(addr netip.Addr, nic string, size int, filter []unix.SockFilter) (r *ring, err error) {
	index := 0
	switch {
	case nic != "":
		found, err := net.InterfaceByName(nic)
		if err != nil {
			return nil, fmt.Errorf("open packet socket: %w", err)
		}
		index = found.Index
	case addr.IsLoopback(): // packets for it from other interfaces are forged
		index = lo
	}
	r = &ring{fd: -1}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		0); err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := errors.Join(
		unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2),
		unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_COPY_THRESH, 1),
		unix.SetsockoptSockFprog(r.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program),
	); err != nil {
		return nil, fmt.Errorf("prepare packet socket: %w", err)
	}
	if unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, ringBytes) != nil {
		_ = unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, ringBytes) // less only costs speed
	}
	if err := r.allocate(size); err != nil {
		return nil, err
	}
	// Bind last, so that no packet arrives before the ring exists. A packet socket for one protocol
	// does not receive outgoing packets.
	protocol := uint16(unix.ETH_P_IP)
	if addr.Is6() {
		protocol = unix.ETH_P_IPV6
	}
	if err := unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: bits.ReverseBytes16(protocol),
		Ifindex: index}); err != nil {
		return nil, fmt.Errorf("bind packet socket: %w", err)
	}
	return r, nil
}

// allocate makes slots for packets of so many bytes.
func (r *ring) allocate(size int) (err error) {
	const align = unix.TPACKET_ALIGNMENT
	slot := (slotOverhead + size + align - 1) &^ (align - 1)
	perBlock, blocks := ringBlock/slot, ringBytes/ringBlock
	request := unix.TpacketReq{Block_size: ringBlock, Block_nr: uint32(blocks), Frame_size: uint32(slot),
		Frame_nr: uint32(perBlock * blocks)}
	if err := unix.SetsockoptTpacketReq(r.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &request); err != nil {
		return fmt.Errorf("make ring of %d blocks of %d bytes: %w", blocks, ringBlock, err)
	}
	if r.memory, err = unix.Mmap(r.fd, 0, ringBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map ring of %d bytes: %w", ringBytes, err)
	}
	for block := range blocks {
		for i := range perBlock {
			r.slots = append(r.slots, uint32(block*ringBlock+i*slot))
		}
	}
	return nil
}

// take returns the next packet from its IP header on, or nil. whole is set if the kernel has not
// cut it yet, or has joined it. The data is valid until free.
func (r *ring) take() (data []byte, whole bool, err error) {
	for r.taken < len(r.slots) {
		at := r.slots[r.next]
		slot := (*unix.Tpacket2Hdr)(unsafe.Pointer(&r.memory[at]))
		// The kernel sets the status last. Loading it atomically orders the reads of the slot after
		// it.
		status := atomic.LoadUint32(&slot.Status)
		if status&unix.TP_STATUS_USER == 0 {
			return nil, false, nil
		}
		if status&unix.TP_STATUS_COPY != 0 && r.used == mostWhole {
			return nil, false, nil // until these are free
		}
		transports.AfterRead()
		r.taken++
		if r.next++; r.next == len(r.slots) {
			r.next = 0
		}
		switch {
		case status&unix.TP_STATUS_COPY != 0:
			if data, err = r.receive(); data != nil || err != nil {
				return data, true, err
			}
		case slot.Snaplen < slot.Len: // the socket was full, too
			r.overruns.Add(1)
		default:
			// Only packets that were on no wire yet lack their checksum.
			return r.memory[at+uint32(slot.Net):][:slot.Len:slot.Len],
				status&unix.TP_STATUS_CSUMNOTREADY != 0, nil
		}
	}
	return nil, false, nil
}

// receive reads a packet that is longer than a slot.
func (r *ring) receive() ([]byte, error) {
	into := &r.whole[r.used]
	if *into == nil {
		*into = make([]byte, 1<<16+wire.IPv6Len)
	}
	r.vector.Base = &(*into)[0]
	r.vector.SetLen(len(*into))
	r.header = datagram.Header{}
	r.header.Iov = &r.vector
	r.header.SetIovlen(1)
	n, errno := datagram.Receive(r.fd, unsafe.Slice(&r.header, 1))
	switch {
	case errno != 0:
		return nil, errno
	case n == 0:
		return nil, nil
	}
	r.used++
	return (*into)[:r.header.N], nil
}

// free returns all taken packets' slots to the kernel.
func (r *ring) free() {
	for ; r.taken > 0; r.taken-- {
		i := r.next - r.taken
		if i < 0 {
			i += len(r.slots)
		}
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&r.memory[r.slots[i]])), unix.TP_STATUS_KERNEL)
	}
	r.used = 0
}

// lost is the number of packets that found no room. It is safe for concurrent use.
func (r *ring) lost() uint64 {
	r.closing.Lock()
	defer r.closing.Unlock()
	if stats, err := unix.GetsockoptTpacketStats(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		r.overruns.Add(uint64(stats.Drops)) // reading resets them
	}
	return r.overruns.Load()
}

// clearError clears the socket error that remains after its interface was down: until then a wait for
// the socket ends at once.
func (r *ring) clearError() {
	if atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.memory[r.slots[r.next]]))) == unix.TP_STATUS_KERNEL {
		_, _ = unix.GetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	}
}

func (r *ring) close() error {
	r.lost()
	r.closing.Lock()
	defer r.closing.Unlock()
	var errs []error
	if r.memory != nil {
		errs = append(errs, unix.Munmap(r.memory)) // before the socket to which it belongs
	}
	if r.fd >= 0 {
		errs = append(errs, unix.Close(r.fd))
	}
	r.memory, r.fd = nil, -1
	return errors.Join(errs...)
}

// filterOf returns the classic BPF program that passes UDP packets to an address's RoCE port, for
// the queue pairs of a block and for the general services. It drops packets with options or
// extension headers, and fragments: RoCE has none.
func filterOf(addr netip.Addr, block uint32) []unix.SockFilter {
	type rule struct {
		size  uint16 // of the loaded value
		at    uint32
		mask  uint32 // 0 is all of it
		value uint32
	}
	rules := []rule{{unix.BPF_B, packetType, 0, unix.PACKET_HOST}}
	to, at, udp := addr.AsSlice(), uint32(16), uint32(wire.IPv4MinLen)
	if addr.Is4() {
		rules = append(rules, rule{unix.BPF_B, 0, 0, 4<<4 | wire.IPv4MinLen/4},
			rule{unix.BPF_B, 9, 0, wire.ProtocolUDP}, rule{unix.BPF_H, 6, 0x3FFF, 0})
	} else {
		at, udp = 24, wire.IPv6Len
		rules = append(rules, rule{unix.BPF_B, 0, 0xF0, 6 << 4}, rule{unix.BPF_B, 6, 0, wire.ProtocolUDP})
	}
	rules = append(rules, rule{unix.BPF_H, udp + 2, 0, infiniband.Port})
	for ; len(to) > 0; to, at = to[4:], at+4 {
		rules = append(rules, rule{unix.BPF_W, at, 0,
			uint32(to[0])<<24 | uint32(to[1])<<16 | uint32(to[2])<<8 | uint32(to[3])})
	}
	var program []unix.SockFilter
	add := func(code uint16, k uint32) { program = append(program, unix.SockFilter{Code: code, K: k}) }
	var refuse []int // jumps to the end
	for _, r := range rules {
		add(unix.BPF_LD|r.size|unix.BPF_ABS, r.at)
		if r.mask != 0 {
			add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, r.mask)
		}
		refuse = append(refuse, len(program))
		add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, r.value)
	}
	add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, udp+wire.UDPLen+4) // the queue pair
	add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, uint32(infiniband.MaxQPN))
	add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, uint32(infiniband.GSI))
	program[len(program)-1].Jt = 2
	add(unix.BPF_ALU|unix.BPF_RSH|unix.BPF_K, blockBits)
	refuse = append(refuse, len(program))
	add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, block)
	add(unix.BPF_RET|unix.BPF_K, 1<<18) // all of it
	add(unix.BPF_RET|unix.BPF_K, 0)
	for _, i := range refuse {
		program[i].Jf = uint8(len(program) - 2 - i)
	}
	return program
}
