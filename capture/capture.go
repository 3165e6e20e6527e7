// Package capture records the packets at the ports of a testbed into one pcapng stream.
//
// A tap is a packet socket with a memory-mapped ring (TPACKET_V3), opened in the port's network
// namespace. One thread reads all taps. It gives each packet an id that is the same at every tap
// that the packet crosses, and writes the packets in the order of their timestamps. The kernel
// counts the packets that a tap loses, and the stream and Stats report these counts.
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

// Tap is a port whose sent and received packets are recorded.
type Tap struct {
	Node string // the node's or switch's name
	Port string // the interface's name in NS
	Link string // the link's name; becomes part of the interface's description
	NIC  bool   // the port belongs to a node's NIC, not to a switch
	// Ranks are the ranks that use the NIC. They become part of the interface's description.
	Ranks []int
	// Bypass is set if programs reach the NIC past their node's kernel. It becomes part of the description.
	Bypass bool
	NS     *kernel.Namespace
	// Soft is set if the port belongs to a soft switch. All its packets come through Options.Feed,
	// and NS is not used.
	Soft bool
	// Fed is set if records of the port come through Options.Feed under Number. For a soft switch's
	// port these are all its records. For an emulated NIC they are the packets that it drops and
	// the pauses that it follows. For a port of the kernel they are the packets that faults hit.
	Fed    bool
	Number uint16
}

// Name returns "node:port", the interface's name in the stream.
func (t Tap) Name() string { return t.Node + ":" + t.Port }

// Options are the options of a capture. The zero value records whole packets without limits.
type Options struct {
	// Filter is a pcap-filter(7) expression, in the subset that package filter compiles. Empty
	// records everything.
	Filter string
	// SnapLen is the number of bytes kept of each packet; 0 keeps all. The packet's length on the
	// wire is recorded in any case.
	SnapLen int
	// Limit is the maximum number of bytes to write; 0 is no limit. Packets past the limit are
	// counted and not written.
	Limit int64
	// Memory is the size in bytes of the rings and the waiting packets of all taps together. The
	// default is 64 MiB, or 256 MiB if the host gives the capture's threads no priority. It is
	// larger for some hundreds of taps, because each tap needs a ring of a minimum size. A value
	// too small for the taps is an error.
	Memory int
	// Dilation is the factor by which the testbed's time is slower than real time. Default 1.
	// Timestamps are in real time; the section header carries the factor.
	Dilation uint64
	// Feed is the feed with the packets of soft switches' ports, or with those that faults of kernel links
	// and switches hit. It already has its writer. The capture maps the file; the caller still owns it.
	Feed *os.File `json:"-"`
	// Serials is set if the feed's records have serials: they are of soft switches.
	Serials bool
	// Reasons are the names of the reasons in records, indexed by number.
	Reasons []string
	// Events is set if soft switches also record the packets that enter their queues. Such a record
	// has verdict=enqueue and no direction. The record of sending a packet that waited has
	// verdict=dequeue. Stats counts both records.
	Events bool
	// Epoch is the real time at which the testbed's own time was zero. Default: the time at which
	// the capture started.
	Epoch time.Time
	// Plan is the hash of the testbed's plan and Testbed its name, both words without spaces. The
	// section header carries them, so that a capture names its testbed. Empty if they are not
	// known.
	Plan    string
	Testbed string
	// Outside returns, by tap, the number of packets lost between the tap and the next tap since
	// the capture started. No tap sees such losses: for example, losses in the kernel's queues
	// before a soft switch. It is called once, when the recording ends. Nil leaves the count out.
	Outside func() []uint64 `json:"-"`
}

// Stats are the counts of a finished capture.
type Stats struct {
	Taps []TapStats `json:"taps"`
	// Start and End bound the capture. Every tap was recorded from Start to End, and the stream
	// holds no packet outside that time.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Bytes is the length of the stream.
	Bytes int64 `json:"bytes"`
	// Unordered is the number of packets written after a packet with a later timestamp. The kernel
	// delivered them later than the hold-back window, or memory ran short.
	Unordered uint64 `json:"unordered"`
	// ClockStepped is the sum of all steps of CLOCK_REALTIME during the capture. After a step, the
	// timestamp of a packet no longer shows whether the packet belongs to the recording. Packets
	// that are left out then count as Dropped.
	ClockStepped time.Duration `json:"clock_stepped_ns,omitempty"`
}

// TapStats counts packets that passed the filter. Received is Dropped plus
// Limited plus Written.
type TapStats struct {
	Tap      string `json:"tap"` // "node:port"
	Received uint64 `json:"received"`
	Dropped  uint64 `json:"dropped"` // lost: the ring was full, or the packet was not read or sorted in time
	Limited  uint64 `json:"limited"` // not written because of Options.Limit
	Written  uint64 `json:"written"`
	// Outside is the count that Options.Outside returned. The stream holds it as isb_osdrop. It is
	// not part of Received.
	Outside uint64 `json:"lost_outside,omitempty"`
}

// Dropped returns the number of packets that all taps together lost.
func (s Stats) Dropped() (total uint64) {
	for _, t := range s.Taps {
		total += t.Dropped
	}
	return total
}

// Written returns the number of packets of all taps in the stream.
func (s Stats) Written() (total uint64) {
	for _, t := range s.Taps {
		total += t.Written
	}
	return total
}

// Limited returns the number of packets of all taps that were not written because of Options.Limit.
func (s Stats) Limited() (total uint64) {
	for _, t := range s.Taps {
		total += t.Limited
	}
	return total
}

// snap returns the number of bytes that the filter's program returns for a packet that it accepts.
func (o Options) snap() int {
	if o.SnapLen == 0 {
		return defaultSnap
	}
	return o.SnapLen
}

// defaultSnap is tcpdump's default, larger than any frame.
const defaultSnap = 256 << 10

func (o Options) validate(taps []Tap) error {
	switch {
	case len(taps) == 0:
		return errors.New("no taps, want at least 1")
	case o.Feed == nil && slices.ContainsFunc(taps, func(t Tap) bool { return t.Soft }):
		return errors.New("taps of soft switches need Options.Feed, which is nil")
	case o.SnapLen < 0 || o.Limit < 0 || o.Memory < 0:
		return fmt.Errorf("snap length %d, limit %d, memory %d: want none below 0",
			o.SnapLen, o.Limit, o.Memory)
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

// minSnapLen has room for Ethernet, a VLAN tag, IPv6 and the headers that checks read of a data
// packet. These are UDP, telemetry and the header of a reliable datagram, which is longer than
// TCP's with its options. The telemetry has as many hops as packets have room for in a testbed
// (INTRoom of package plan). With less, checks would miss headers that they read, and packet ids
// would miss bytes that tell packets apart.
const minSnapLen = wire.EthernetLen + wire.TagLen + wire.IPv6Len + wire.UDPLen + intRoom + wire.RDDataLen

// intRoom is the length of a telemetry block of 8 hops of 24 bytes.
const intRoom = wire.INTLen + 8*24
