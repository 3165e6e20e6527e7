// Package port moves Ethernet frames between a node's NIC and the software
// switch.
//
// A port is one or two open descriptors. Whoever has the right opens them, in
// the node's or the switch's network namespace, and may hand them to another
// process over a unix socket; that process needs no privilege to make a Port of
// them. There are three drivers: a packet socket on the switch's end of a veth,
// the same with AF_XDP for sending, and a tap device that is itself the node's
// NIC. They behave alike; porttest is their conformance suite, and Default says
// which one is fastest where.
//
// What the interface's own stack would do with a node's frames is not this
// package's concern: the switch's end of a veth has no addresses and no IPv6.
package port

import (
	"errors"
	"fmt"
)

// Driver is a way in and out of a NIC.
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
	// Data begins where the caller wants the frame; its capacity is at least
	// Description.Room. Receive sets its length.
	Data []byte
	// Stamp is when the frame came, in nanoseconds of CLOCK_REALTIME: when the
	// kernel put it into the ring, or, with Tap, when Receive took it out.
	Stamp int64
}

// Port sends and receives frames. One thread uses it at a time; only Stats may
// be called from another one meanwhile. No method waits and none but Stats
// allocates memory.
type Port interface {
	// Receive fills frames and returns how many came: 0 at once when none
	// waits. Frames that it cannot give whole and finished are dropped and
	// counted, and it looks at no more than one ring's worth of them in a call.
	// An error means that nothing will come any more.
	Receive(frames []Frame) (int, error)

	// Send gives frames to the kernel, in order, and returns how many it took;
	// these are sent, or counted as SendFailed. It takes less than all when the
	// kernel's queue is full: drop the rest, or try again a little later. The
	// memory is the caller's again when Send returns.
	Send(frames [][]byte) (int, error)

	// Flush starts what Send took and the kernel left in the queue. Call it
	// after each round of Sends; it costs nothing when nothing was left.
	Flush() error

	// Fd is what epoll waits for: readable when a frame waits, level or edge
	// triggered. Whether it is writable means nothing. After EPOLLERR or
	// EPOLLHUP call Recover, or epoll reports the same for ever.
	Fd() int

	// Recover takes note of an error that epoll reported. It is nil when the
	// interface went down, from which it may come back by itself, and ErrGone
	// when the interface was deleted.
	Recover() error

	// Stats are the counts since the port was made. It makes system calls that
	// take microseconds: call it some times a second, not once a batch.
	Stats() (Stats, error)

	// Description is what the port was made from.
	Description() Description

	// Close gives memory and descriptors back. A second Close does nothing.
	Close() error
}

// ErrGone means that the interface was deleted and the port is of no more use.
var ErrGone = errors.New("interface is gone")

// Stats are counts of frames, and of bytes without preamble and FCS.
type Stats struct {
	Received      uint64 `json:"received"`
	ReceivedBytes uint64 `json:"received_bytes"`
	Sent          uint64 `json:"sent"`
	SentBytes     uint64 `json:"sent_bytes"`

	// KernelDropped were lost before Receive could see them: the ring was full.
	KernelDropped uint64 `json:"kernel_dropped"`
	// Truncated were longer than the MTU allows, and dropped.
	Truncated uint64 `json:"truncated"`
	// Refused came with work that the sender's offloads left undone and that
	// cannot be done here: segmentation, or an unknown checksum. Dropped. So
	// are frames without a whole Ethernet header.
	Refused uint64 `json:"refused"`
	// ChecksumsCompleted came without their transport checksum, because the
	// sender's checksum offload was on, and were given it. They count as
	// Received as well.
	ChecksumsCompleted uint64 `json:"checksums_completed"`
	// SendFailed were taken by Send and not sent: the interface was down, or
	// they were longer than the MTU allows, or the kernel had no memory.
	SendFailed uint64 `json:"send_failed"`
}

// Lengths in bytes.
const (
	HeaderLen = 14 // two addresses and a type
	TagLen    = 4  // an 802.1Q tag
	// slack is how much longer than the largest frame a frame's memory is, so
	// that a longer frame is noticed and not cut in silence.
	slack = 2
)

// Description is what a process needs beside the descriptors to make a Port. It
// travels as JSON.
type Description struct {
	Driver Driver `json:"driver"`
	Name   string `json:"name"`  // of the interface, in its namespace
	Index  int    `json:"index"` // of the interface, in its namespace
	// MTU is the largest payload of a frame. A frame is at most HeaderLen
	// longer, and TagLen more when it carries an 802.1Q or 802.1ad tag.
	MTU int `json:"mtu"`
	// Slots is how many frames wait in the kernel at most, each in SlotBytes of
	// ring memory. Tap frames wait in ordinary kernel memory, of which SlotBytes
	// is then an estimate.
	Slots     int `json:"slots"`
	SlotBytes int `json:"slot_bytes"`
	// SendSlots of SendSlotBytes are locked memory for sending, with XDP.
	SendSlots     int `json:"send_slots,omitempty"`
	SendSlotBytes int `json:"send_slot_bytes,omitempty"`
	// KernelStamps says that Frame.Stamp is taken by the kernel on arrival.
	KernelStamps bool `json:"kernel_stamps"`
	// MemoryPoll says that Receive sees in memory, without a system call, that
	// no frame waits.
	MemoryPoll bool `json:"memory_poll"`
	// Reason is why the port does without the fastest driver: that of OpenBest, or
	// of who opened a trunk.
	Reason string `json:"reason,omitempty"`
}

// Room is the least capacity of a Frame's Data.
func (d Description) Room() int { return d.MTU + HeaderLen + TagLen + slack }

// Memory is what frames in the port's queues may take, in bytes.
func (d Description) Memory() int { return d.Slots*d.SlotBytes + d.SendSlots*d.SendSlotBytes }

// Options say how to open a port.
type Options struct {
	// MTU of the interface. A tap gets it (0 is 1,500); an interface that
	// exists must have it (0 is whatever it has).
	MTU int
	// RingBytes is about how much kernel memory holds received frames; 0 is
	// DefaultRingBytes. At least MinSlots frames always fit.
	RingBytes int
	// Index and MAC are those of a tap that Open makes; zero lets the kernel
	// choose.
	Index int
	MAC   [6]byte
}

// DefaultRingBytes is the ring of a port unless its Options say otherwise: 64
// MiB for 128 ports. It holds 320 frames of MTU 1,500: a thread that receives
// half a million frames a second may stall for 0.6 ms. Where there are few
// ports, give them more.
const DefaultRingBytes = 512 << 10

// MinSlots is how many frames a ring holds at least, whatever its size.
const MinSlots = 64

// maxMTU bounds what Options may ask for: the largest IP packet.
const maxMTU = 65535

// DescriptorsPerPort is the most descriptors that a port of the driver keeps
// open in the process that uses it.
func DescriptorsPerPort(driver Driver) int {
	switch driver {
	case Packet:
		return 1
	case Tap:
		return 2 // the device, and the namespace's counters
	default:
		return 2 // a packet socket and an AF_XDP socket
	}
}

// check reports what makes a description, which may come from another process,
// unusable.
func (d Description) check() error {
	switch {
	case d.MTU < 1 || d.MTU > maxMTU:
		return fmt.Errorf("describe port %s: mtu %d is not between 1 and %d", d.Name, d.MTU, maxMTU)
	case d.Slots < 1 || d.SlotBytes < 1 || d.Slots > 1<<20 || d.SlotBytes > 1<<20:
		return fmt.Errorf("describe port %s: %d slots of %d bytes", d.Name, d.Slots, d.SlotBytes)
	}
	return nil
}

// frameFits reports whether a frame of this length is within the MTU. Data is
// at least a header of it.
func frameFits(data []byte, length, mtu int) bool {
	return length <= mtu+HeaderLen || length <= mtu+HeaderLen+TagLen && isTag(data)
}

// isTag reports whether the frame's type is that of an 802.1Q or 802.1ad tag.
func isTag(data []byte) bool {
	return data[12] == 0x81 && data[13] == 0x00 || data[12] == 0x88 && data[13] == 0xA8
}
