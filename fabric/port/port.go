// Package port moves Ethernet frames between a node's NIC and the software switch.
//
// A port is one or two open descriptors. A process with the necessary right opens them, in the
// node's or the switch's network namespace, and may hand them to another process over a Unix
// socket. That process needs no privilege to make a Port of them. There are three drivers. Packet
// is a packet socket on the switch's end of a veth. XDP is the same, but sends through AF_XDP. Tap
// is a tap device that is itself the node's NIC. They behave alike; porttest is their conformance
// suite. OpenBest opens the fastest one of a veth that the host allows.
//
// This package does not handle the reaction of the interface's own stack to a node's frames: the
// switch's end of a veth has no addresses and no IPv6.
package port

import (
	"errors"
	"fmt"
)

// Driver is a way to exchange frames with a NIC.
type Driver string

// The drivers.
const (
	// AF_PACKET: mapped TPACKET_V2 receive ring, sendmmsg past the queueing discipline
	Packet Driver = "packet"
	Tap    Driver = "tap" // a tap device that is the node's NIC
	XDP    Driver = "xdp" // as Packet, but sending through AF_XDP in copy mode
)

// Frame is one Ethernet frame in the caller's memory.
type Frame struct {
	// Data is the memory for the frame; its capacity is at least Description.Room. Receive sets its
	// length.
	Data []byte
	// Stamp is the time at which the frame arrived, in nanoseconds of CLOCK_REALTIME. It is the
	// time at which the kernel put the frame into the ring or, with Tap, at which Receive took it
	// out.
	Stamp int64
}

// Port sends and receives frames. One thread uses it at a time; another thread may only call Stats
// meanwhile. No method waits, and only Stats allocates memory.
type Port interface {
	// Receive fills frames and returns their number; it returns 0 at once if none is waiting. It
	// drops and counts frames that it cannot return whole and complete. In one call it examines at
	// most one ring's worth of frames. After an error no more frames will arrive.
	Receive(frames []Frame) (int, error)

	// Send passes frames to the kernel, in order, and returns the number of accepted frames. These
	// are sent, or counted as SendFailed. Send accepts less than all if the kernel's queue is full:
	// drop the rest, or retry a little later. The memory is the caller's again when Send returns.
	Send(frames [][]byte) (int, error)

	// Flush starts the sending of frames that Send accepted and the kernel left in the queue. Call
	// it after each round of Sends; it costs nothing if nothing was left.
	Flush() error

	// Fd is the descriptor for epoll: readable when a frame is waiting, level or edge triggered.
	// Writability means nothing. After EPOLLERR or EPOLLHUP call Recover; otherwise epoll keeps
	// reporting the event.
	Fd() int

	// Recover clears an error that epoll reported. It returns nil if the interface went down,
	// because it may come up again, and ErrGone if the interface was deleted.
	Recover() error

	// Stats returns the counts since the port was made. It makes system calls that take
	// microseconds: call it a few times a second, not once a batch.
	Stats() (Stats, error)

	// Description returns the description that the port was made from.
	Description() Description

	// Close releases memory and descriptors. A second Close does nothing.
	Close() error
}

// ErrGone means that the interface was deleted and the port cannot be used any more.
var ErrGone = errors.New("interface is gone")

// Stats are counts of frames, and of bytes without preamble and FCS.
type Stats struct {
	Received      uint64 `json:"received"`
	ReceivedBytes uint64 `json:"received_bytes"`
	Sent          uint64 `json:"sent"`
	SentBytes     uint64 `json:"sent_bytes"`

	// KernelDropped counts frames that were lost before Receive, because the ring was full.
	KernelDropped uint64 `json:"kernel_dropped"`
	// Truncated counts frames that were longer than the MTU allows, and dropped.
	Truncated uint64 `json:"truncated"`
	// Refused counts dropped frames with work left by the sender's offloads that cannot be done
	// here: segmentation, or an unknown checksum. It also counts frames without a whole Ethernet
	// header.
	Refused uint64 `json:"refused"`
	// ChecksumsCompleted counts frames that arrived without their transport checksum, because the
	// sender's checksum offload was on, and got it here. They count as Received as well.
	ChecksumsCompleted uint64 `json:"checksums_completed"`
	// SendFailed counts frames that Send accepted and that were not sent. The interface was down,
	// the frame was longer than the MTU allows, or the kernel had no memory.
	SendFailed uint64 `json:"send_failed"`
}

// Lengths in bytes.
const (
	HeaderLen = 14 // two addresses and a type
	TagLen    = 4  // an 802.1Q tag
	// slack is by how much a frame's memory exceeds the largest frame, so that a longer frame is
	// noticed and not silently truncated.
	slack = 2
)

// Description is the information that a process needs, besides the descriptors, to make a Port. It
// travels as JSON.
type Description struct {
	Driver Driver `json:"driver"`
	Name   string `json:"name"`  // of the interface, in its namespace
	Index  int    `json:"index"` // of the interface, in its namespace
	// MTU is the largest payload of a frame. A frame may be HeaderLen longer, and TagLen more if it
	// carries an 802.1Q or 802.1ad tag.
	MTU int `json:"mtu"`
	// Slots is the largest number of frames waiting in the kernel, each in SlotBytes of ring
	// memory. Tap frames wait in ordinary kernel memory, so SlotBytes is then an estimate.
	Slots     int `json:"slots"`
	SlotBytes int `json:"slot_bytes"`
	// SendSlots is the number of slots of SendSlotBytes of locked memory for sending, with XDP.
	SendSlots     int `json:"send_slots,omitempty"`
	SendSlotBytes int `json:"send_slot_bytes,omitempty"`
	// KernelStamps is set if the kernel takes Frame.Stamp on arrival.
	KernelStamps bool `json:"kernel_stamps"`
	// Reason is why the port does not use the fastest driver, from OpenBest or from the code that
	// opened a trunk.
	Reason string `json:"reason,omitempty"`
}

// Room returns the least capacity of a Frame's Data.
func (d Description) Room() int { return d.MTU + HeaderLen + TagLen + slack }

// Options are the options of Open.
type Options struct {
	// MTU is the MTU of the interface. A tap is set to it (0 is 1,500); an existing interface must
	// have it (0 accepts any).
	MTU int
	// RingBytes is the approximate kernel memory for received frames; 0 is DefaultRingBytes. At
	// least MinSlots frames always fit.
	RingBytes int
	// Index and MAC are for a tap that Open creates; zero lets the kernel choose.
	Index int
	MAC   [6]byte
}

// DefaultRingBytes is the default ring size of a port: 64 MiB for 128 ports. It holds 320 frames of
// MTU 1,500, so a thread that receives half a million frames a second may stall for 0.6 ms. If
// there are few ports, give them more.
const DefaultRingBytes = 512 << 10

// MinSlots is the least number of frames in a ring, whatever its size.
const MinSlots = 64

// maxMTU is the largest MTU in Options: the largest IP packet.
const maxMTU = 65535

// check returns an error if a description, which may come from another process, is unusable.
func (d Description) check() error {
	switch {
	case d.MTU < 1 || d.MTU > maxMTU:
		return fmt.Errorf("describe port %s: mtu %d is not between 1 and %d", d.Name, d.MTU, maxMTU)
	case d.Slots < 1 || d.SlotBytes < 1 || d.Slots > 1<<20 || d.SlotBytes > 1<<20:
		return fmt.Errorf("describe port %s: %d slots of %d bytes, want 1 to %d of each", d.Name, d.Slots,
			d.SlotBytes, 1<<20)
	}
	return nil
}

// frameFits reports whether a frame of this length is within the MTU. Data holds at least its
// header.
func frameFits(data []byte, length, mtu int) bool {
	return length <= mtu+HeaderLen || length <= mtu+HeaderLen+TagLen && isTag(data)
}

// isTag reports whether the frame has an 802.1Q or 802.1ad tag.
func isTag(data []byte) bool {
	return data[12] == 0x81 && data[13] == 0x00 || data[12] == 0x88 && data[13] == 0xA8
}
