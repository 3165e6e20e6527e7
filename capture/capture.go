// Package capture records the packets at the ports of a testbed into one
// pcapng stream.
//
// A tap is a packet socket with a memory-mapped ring (TPACKET_V3), opened in
// the port's network namespace. One thread reads all taps, gives each packet
// an id that is the same at every tap it crosses, and writes the packets in
// the order of their time. What a tap loses is counted by the kernel and
// stated in the stream and in Stats.
package capture

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"railbed/capture/pcapng"
	"railbed/internal/kernel"
	"railbed/internal/wire"
)

// Tap is a port whose packets are recorded, both those it sends and those it
// receives.
type Tap struct {
	Node string // the node's or switch's name
	Port string // the interface's name in NS
	Link string // the link's name; becomes the interface's description
	NIC  bool   // a node's NIC, as against a switch's port
	NS   *kernel.Namespace
	// Soft says that the port is a soft switch's, all of whose packets come by
	// Options.Feed. NS is not used then.
	Soft bool
	// Fed says that records come by Options.Feed under Number: all of a soft
	// switch's, and what an emulated NIC drops and obeys.
	Fed    bool
	Number uint16
}

// Name is "node:port", the interface's name in the stream.
func (t Tap) Name() string { return t.Node + ":" + t.Port }

// Options of a capture. The zero value records whole packets without limits.
type Options struct {
	// Filter is a pcap-filter(7) expression, of the part that package filter
	// compiles. Empty records everything.
	Filter string
	// SnapLen is how many bytes of each packet are kept; 0 keeps all. The
	// length on the wire is recorded in any case.
	SnapLen int
	// Limit is how many bytes are written at most; 0 is no limit. Packets
	// after it are counted and not written.
	Limit int64
	// Memory is the bytes for rings and waiting packets of all taps together.
	// Default 64 MiB, or 256 MiB where the host gives the capture's threads no
	// priority, and more for some hundreds of taps, each of which needs a
	// least ring. A value too small for the taps is an error.
	Memory int
	// Dilation is by how much the testbed's time is slower than real time.
	// Default 1. Stamps are real; the section header carries the factor.
	Dilation uint64
	// Feed brings the packets of soft switches' ports, and has its writer. The
	// capture maps it; the file remains the caller's.
	Feed *os.File `json:"-"`
	// Reasons are the names of soft switches' reasons, by their number.
	Reasons []string
	// Events says that soft switches record what enters their queues as well.
	// Such a record says verdict=enqueue and has no direction, and the sending
	// of a packet that waited says verdict=dequeue; Stats counts both.
	Events bool
	// Epoch is the real time at which the testbed's own time was zero.
	// Default: when the capture started.
	Epoch time.Time
	// Plan is the hash of the testbed's plan and Testbed its name, words without
	// spaces; the section header carries them, so that a reader can tell which
	// testbed a capture is of. Empty where they are not known.
	Plan    string
	Testbed string
	// Outside returns, by tap, how many packets were lost since the capture started
	// on the way between the tap and the next one, where no tap sees them: in the
	// kernel's queues before a soft switch, for one. It is called once, when the
	// recording ends. Nil leaves the count out.
	Outside func() []uint64 `json:"-"`
}

// Stats is what a finished capture holds.
type Stats struct {
	Taps []TapStats `json:"taps"`
	// Start and End bound the capture: every tap was recorded from Start to
	// End, and no packet outside is in the stream.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Bytes is the length of the stream.
	Bytes int64 `json:"bytes"`
	// Unordered is how many packets were written after a later one, because
	// they came out of the kernel later than the hold-back window or memory
	// ran short.
	Unordered uint64 `json:"unordered"`
	// ClockStepped is by how much CLOCK_REALTIME was set while the capture lasted,
	// all steps together. After a step the time of a packet no longer shows
	// whether the packet belongs to the recording. Packets that are left out then count
	// as Dropped.
	ClockStepped time.Duration `json:"clock_stepped_ns,omitempty"`
}

// TapStats counts packets that passed the filter. Received is Dropped plus
// Limited plus Written.
type TapStats struct {
	Tap      string `json:"tap"` // "node:port"
	Received uint64 `json:"received"`
	Dropped  uint64 `json:"dropped"` // lost because the ring was full, or could not be read or placed in time
	Limited  uint64 `json:"limited"` // not written because of Options.Limit
	Written  uint64 `json:"written"`
	// Outside is what Options.Outside counted. It is in the stream as isb_osdrop, and
	// no part of Received.
	Outside uint64 `json:"lost_outside,omitempty"`
}

// Dropped is the packets that all taps together lost.
func (s Stats) Dropped() (total uint64) {
	for _, t := range s.Taps {
		total += t.Dropped
	}
	return total
}

// Written is the packets of all taps that are in the stream.
func (s Stats) Written() (total uint64) {
	for _, t := range s.Taps {
		total += t.Written
	}
	return total
}

// Limited is the packets that the limit kept out of the stream.
func (s Stats) Limited() (total uint64) {
	for _, t := range s.Taps {
		total += t.Limited
	}
	return total
}

// snap is the number of bytes that the filter's program returns.
func (o Options) snap() int {
	if o.SnapLen == 0 {
		return defaultSnap
	}
	return o.SnapLen
}

// defaultSnap is tcpdump's, above any frame.
const defaultSnap = 256 << 10

func (o Options) validate(taps []Tap) error {
	switch {
	case len(taps) == 0:
		return errors.New("no taps")
	case o.Feed == nil && slices.ContainsFunc(taps, func(t Tap) bool { return t.Soft }):
		return errors.New("taps of soft switches and no feed")
	case o.SnapLen < 0 || o.Limit < 0 || o.Memory < 0:
		return fmt.Errorf("negative snap length %d, limit %d or memory %d", o.SnapLen, o.Limit, o.Memory)
	case o.SnapLen > 0 && o.SnapLen < minSnapLen:
		return fmt.Errorf("snap length %d cuts into the headers, want at least %d", o.SnapLen, minSnapLen)
	}
	for _, word := range []string{o.Plan, o.Testbed} {
		if word != "" && !pcapng.IsWord(word) {
			return fmt.Errorf("plan %q and testbed %q of a capture: want words of printable ASCII without "+
				"spaces", o.Plan, o.Testbed)
		}
	}
	return nil
}

// minSnapLen holds Ethernet, a VLAN tag, IPv6 and what is behind it that checks read
// of data: UDP, telemetry of as many hops as packets have room for in a testbed
// (package plan says so as INTRoom) and the header of a reliable datagram, which is longer than TCP's with
// its options. Less would take from the checks what they read and from packet ids
// what tells packets apart.
const minSnapLen = wire.EthernetLen + wire.TagLen + wire.IPv6Len + wire.UDPLen + intRoom + wire.RDDataLen

// intRoom is the block of 8 hops of 24 bytes.
const intRoom = wire.INTLen + 8*24
