package port

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Trunk is one packet socket for all interfaces of a network namespace: ports without a descriptor
// of their own. It works like the driver Packet, and differs if there are many ports:
//
//   - The kernel closes packet sockets one after the other, and waits for all
//     processors twice for each, 25 ms in all (packet_set_ring and
//     packet_release: synchronize_net). A killed process with 256 of them takes
//     six seconds to end, and the interfaces' namespace lives as long. A trunk
//     takes 25 ms.
//   - All ports share one ring, so a flooded port may fill it for the others.
//     The losses are then not counted by port.
//   - An interface that is deleted and recreated with its index is the same
//     port.
//
// One thread uses it at a time; another thread may only call Stats meanwhile. No method waits, and
// only Stats allocates memory.
type Trunk struct {
	packet *packetPort
	ports  []trunkPort
	number map[int32]int // port number by interface index
	names  [sendBatch]unix.RawSockaddrLinklayer
}

// trunkPort is one interface.
type trunkPort struct {
	mtu    int
	name   unix.RawSockaddrLinklayer // send address
	counts counters
}

// TrunkPort identifies the interface of a port.
type TrunkPort struct {
	Index int `json:"index"`
	MTU   int `json:"mtu"`
}

// everyInterface is the name of a trunk in its description.
const everyInterface = "*"

// trunkQueue limits the bytes of kernel memory for sent frames that wait in the receiving stacks.
// It needs CAP_NET_ADMIN on the host; otherwise the limit is net.core.wmem_max.
const trunkQueue = 8 << 20

// OpenTrunk opens the trunk of the calling thread's network namespace. MTU is the largest MTU of
// its interfaces; RingBytes is as in Options.
func OpenTrunk(mtu, ringBytes int) (*Handle, error) {
	if mtu < 1 || mtu > maxMTU {
		return nil, fmt.Errorf("open trunk: mtu %d is not between 1 and %d", mtu, maxMTU)
	}
	if ringBytes <= 0 {
		ringBytes = DefaultRingBytes
	}
	h, err := openPacket(everyInterface, Options{MTU: mtu, RingBytes: ringBytes})
	if err != nil {
		return nil, err
	}
	fd := int(h.Files[0].Fd())
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, trunkQueue) != nil {
		// without the right, the kernel sets its own limit
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, trunkQueue)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open trunk: %w", err), h.Close())
	}
	return h, nil
}

// Trunk makes a trunk of the handle, which is empty afterwards. Ports are numbered in the given
// order. It needs no privilege.
func (h *Handle) Trunk(ports []TrunkPort) (*Trunk, error) {
	if h.Description.Name != everyInterface {
		return nil, errors.Join(fmt.Errorf("make trunk: the handle is for port %s, want a trunk's handle",
			h.Description.Name), h.Close())
	}
	made, err := h.Port()
	if err != nil {
		return nil, err
	}
	t := &Trunk{packet: made.(*packetPort), ports: make([]trunkPort, len(ports)),
		number: make(map[int32]int, len(ports))}
	for i, port := range ports {
		t.ports[i].mtu = port.MTU
		t.ports[i].name = unix.RawSockaddrLinklayer{Family: unix.AF_PACKET, Ifindex: int32(port.Index)}
		t.number[int32(port.Index)] = i
	}
	for i := range t.names {
		t.packet.messages[i].header.Name = (*byte)(unsafe.Pointer(&t.names[i]))
		t.packet.messages[i].header.Namelen = uint32(unsafe.Sizeof(t.names[i]))
	}
	return t, nil
}

// Fd is the descriptor for epoll, as in Port.Fd.
func (t *Trunk) Fd() int { return t.packet.fd }

// Room returns the least capacity of a Frame's Data.
func (t *Trunk) Room() int { return t.packet.description.Room() }

// Description describes port number i. Its Slots count the slots of the shared ring.
func (t *Trunk) Description(i int) Description {
	d := t.packet.description
	d.Index, d.MTU = int(t.ports[i].name.Ifindex), t.ports[i].mtu
	return d
}

// addressAt is the offset of the sender's address in a slot (TPACKET2_HDRLEN less the address).
const addressAt = (int(unsafe.Sizeof(unix.Tpacket2Hdr{})) + slotAlign - 1) &^ (slotAlign - 1)

// Receive fills frames and the numbers of their ports, and returns the number of frames. Frames
// from other interfaces are ignored. After an error no more frames will arrive.
func (t *Trunk) Receive(frames []Frame, ports []int) (n int, err error) {
	p := t.packet
	if p.memory == nil {
		return 0, os.ErrClosed
	}
	for range p.description.Slots {
		if n == len(frames) {
			break
		}
		frame := &frames[n]
		var slot *unix.Tpacket2Hdr
		if slot, err = p.ready(frame); slot == nil {
			break
		}
		from := (*unix.RawSockaddrLinklayer)(unsafe.Add(unsafe.Pointer(slot), addressAt))
		if number, ours := t.number[from.Ifindex]; ours {
			port := &t.ports[number]
			if p.take(slot, frame, port.mtu, &port.counts) {
				port.counts.received(1, len(frame.Data))
				ports[n] = number
				n++
			}
		}
		p.release(slot)
	}
	return n, err
}

// Send passes frames to the kernel, in order, each for its port, and returns the number of accepted
// frames. These are sent, or counted as SendFailed. Send accepts less than all if the kernel's
// queue is full.
func (t *Trunk) Send(frames [][]byte, ports []int) (taken int, err error) {
	p := t.packet
	if p.fd < 0 {
		return 0, os.ErrClosed
	}
	for taken < len(frames) {
		batch := frames[taken:min(taken+sendBatch, len(frames))]
		to := ports[taken:][:len(batch)]
		for i, frame := range batch {
			if len(frame) == 0 {
				batch = batch[:i]
				break
			}
			p.vectors[i].Base = &frame[0]
			p.vectors[i].SetLen(len(frame))
			t.names[i] = t.ports[to[i]].name
		}
		if len(batch) == 0 { // the first frame is empty
			t.ports[to[0]].counts.failed.Add(1)
			taken++
			continue
		}
		sent, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(p.fd),
			uintptr(unsafe.Pointer(&p.messages[0])), uintptr(len(batch)), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			for i, frame := range batch[:sent] {
				t.ports[to[i]].counts.sent(1, len(frame))
			}
			taken += int(sent)
		case unix.EINTR:
		case unix.EAGAIN:
			return taken, nil
		case unix.ENOBUFS, unix.EMSGSIZE, unix.EINVAL, unix.ENOMEM, unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
			// The first frame of the batch is lost: its interface is down or gone, its receiver's
			// queue is full, or its length is invalid.
			t.ports[to[0]].counts.failed.Add(1)
			taken++
		default:
			return taken, fmt.Errorf("send on trunk: %w", errno)
		}
	}
	return taken, nil
}

// Recover clears an error that epoll reported. No such error ends a trunk.
func (t *Trunk) Recover() error {
	_, err := unix.GetsockoptInt(t.packet.fd, unix.SOL_SOCKET, unix.SO_ERROR) // reading clears it
	return err
}

// Stats returns the counts of port number i since the trunk was made, without the frames that the
// shared ring had no room for.
func (t *Trunk) Stats(i int) Stats { return t.ports[i].counts.read() }

// Dropped counts the frames of all ports that the ring had no room for.
func (t *Trunk) Dropped() (uint64, error) {
	stats, err := t.packet.Stats()
	return stats.KernelDropped, err
}

// Close releases memory and descriptor. A second Close does nothing.
func (t *Trunk) Close() error { return t.packet.Close() }
