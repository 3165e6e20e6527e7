package live

import (
	"time"

	"encoding/binary"
	"math/bits"
	"sync/atomic"
)

// Whether a frame is sampled is a function of the frame alone, so that a filter in the kernel and
// the switch choose the same frames. A hash of the transport checksum, which differs for almost
// every packet of a flow, must have its low bits zero. The number of bits is chosen for each NIC by
// its receive rate.
//
// Frames without such a checksum, such as ARP, are never sampled. For UDP without a checksum the
// hash covers the low half of the payload's third word, which in RoCE has the low bits of the PSN.

// Shares of sampled frames, as masks of the hash: all, 1 of 8, 1 of 64. A frame in a narrow share
// is also in the wider ones.
var shares = [...]uint32{0, 7, 63}

const (
	// sampleMul spreads checksums whose low bits increase in steps.
	sampleMul   = 0x9E3779B1
	sampleShift = 16

	ethertypeAt = 12
	ipv4At      = 0x0800
	ipv6At      = 0x86DD
	ipv4Plain   = 0x45 // version 4, no options

	protoICMP, protoTCP, protoUDP, protoICMPv6 = 1, 6, 17, 58

	tcpChecksum, udpChecksum, icmpChecksum = 16, 6, 2
	// udpPayload is the offset of the low half of the payload's third word.
	udpPayload = 8 + 10
)

// watched reports whether a frame is in the share.
func watched(frame []byte, mask uint32) bool {
	if len(frame) < 34 {
		return false
	}
	at := 0
	var proto byte
	switch binary.BigEndian.Uint16(frame[ethertypeAt:]) {
	case ipv4At:
		if frame[14] != ipv4Plain {
			return false
		}
		proto, at = frame[23], 34
	case ipv6At:
		proto, at = frame[20], 54
	default:
		return false
	}
	v4 := at == 34
	value := uint32(0)
	switch {
	case proto == protoTCP:
		at += tcpChecksum
	case proto == protoUDP:
		if len(frame) < at+udpChecksum+2 {
			return false
		}
		if value = uint32(binary.BigEndian.Uint16(frame[at+udpChecksum:])); value == 0 {
			at += udpPayload
		}
	case proto == protoICMP && v4, proto == protoICMPv6 && !v4:
		at += icmpChecksum
	default:
		return false
	}
	if value == 0 {
		if len(frame) < at+2 {
			return false
		}
		value = uint32(binary.BigEndian.Uint16(frame[at:]))
	}
	return value*sampleMul>>sampleShift&mask == 0
}

// keyBytes are the bytes by which a frame is recognised: enough for the transport's header after
// IPv6. snapBytes is the number of bytes that the kernel keeps of it.
const (
	keyBytes  = 80
	snapBytes = 80
)

// keyOf returns a hash of a frame's first bytes.
func keyOf(frame []byte) uint64 {
	frame = frame[:min(len(frame), keyBytes)]
	key := uint64(len(frame))
	for len(frame) >= 8 {
		high, low := bits.Mul64(key^binary.LittleEndian.Uint64(frame), 0x9E3779B97F4A7C15)
		key = high ^ low
		frame = frame[8:]
	}
	for _, b := range frame {
		key = (key ^ uint64(b)) * 0x100000001B3
	}
	return key
}

// due is a sampled frame that the switch released.
type due struct {
	key uint64
	at  int64 // its due time, in nanoseconds of CLOCK_REALTIME
	nic int32
	// arrived is set if the frame arrived with its release, late by so much.
	arrived bool
	late    time.Duration
}

// dues is a lock-free queue of releases from the timing thread to the thread that matches them. One
// thread pushes, one pops.
type dues struct {
	entries [8192]due
	head    atomic.Uint64 // index of the next push
	_       [56]byte      // keeps head and tail in different cache lines
	tail    atomic.Uint64 // index of the next pop
	full    atomic.Uint64 // releases that found no room
}

func (d *dues) push(one due) {
	head := d.head.Load()
	if head-d.tail.Load() == uint64(len(d.entries)) {
		d.full.Add(1)
		return
	}
	d.entries[head%uint64(len(d.entries))] = one
	d.head.Store(head + 1)
}

func (d *dues) pop() (one due, ok bool) {
	tail := d.tail.Load()
	if tail == d.head.Load() {
		return one, false
	}
	one = d.entries[tail%uint64(len(d.entries))]
	d.tail.Store(tail + 1)
	return one, true
}
