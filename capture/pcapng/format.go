// Package pcapng writes and reads packet captures.
//
// The writer makes the blocks of draft-ietf-opsawg-pcapng that Railbed needs. gopacket's writer
// lacks per-packet flags, packet ids, queues and comments. The reader accepts pcapng and pcap files
// of any program, in either byte order and any time resolution, in bounded memory. It returns an
// error if a file ends in the middle of a block.
package pcapng

import (
	"errors"
)

// ErrTruncated is matched by the error for a file that ends within a block or record. All packets
// before that block were read.
var ErrTruncated = errors.New("file is truncated")

// ErrFormat is matched by the error for a file that violates the format.
var ErrFormat = errors.New("not a valid capture")

// LinkEthernet is the link type of Ethernet frames without FCS.
const LinkEthernet = 1

// Limits of the reader. Wireshark, too, reads blocks of at most 16 MiB. The other limits keep a
// hostile file from filling memory with tables.
const (
	maxBlock       = 16 << 20
	maxInterfaces  = 1 << 16
	maxTableText   = 16 << 20 // names, comments and filters kept, over the whole file
	maxPacketNotes = 64       // comments of one packet
	maxParts       = 1 << 16  // files of recordings in several files
)

// Block types (draft-ietf-opsawg-pcapng, section 11.1).
const (
	blockSection    = 0x0A0D0D0A
	blockInterface  = 1
	blockOldPacket  = 2
	blockSimple     = 3
	blockStatistics = 5
	blockEnhanced   = 6
)

const (
	byteOrderMagic = 0x1A2B3C4D
	sectionUnknown = 0xFFFFFFFFFFFFFFFF // section length not given
	endianFixedLen = 12                 // block type, two lengths
)

// Option codes.
const (
	optEnd     = 0
	optComment = 1

	shbHardware    = 2
	shbOS          = 3
	shbApplication = 4

	ifName        = 2
	ifDescription = 3
	ifMAC         = 6
	ifSpeed       = 8
	ifTsResol     = 9
	ifFilter      = 11
	ifOS          = 12
	ifTsOffset    = 14
	ifHardware    = 15

	epbFlags     = 2
	epbDropCount = 4
	epbPacketID  = 5
	epbQueue     = 6

	isbStart        = 2
	isbEnd          = 3
	isbReceived     = 4
	isbDropped      = 5
	isbFilterAccept = 6
	isbOSDrop       = 7
	isbDelivered    = 8
)

// Section is the text of the section header. Empty fields are not written.
type Section struct {
	Hardware    string
	OS          string
	Application string
	Comments    []string
}

// Interface describes an interface at which packets were captured.
type Interface struct {
	Name        string // Railbed writes "node:port"
	Description string // Railbed writes a TapDescription
	Hardware    string // Railbed writes HardwareNIC or HardwareSwitchPort
	OS          string
	Filter      string // a pcap-filter(7) expression; empty for none
	MAC         [6]byte
	HasMAC      bool
	Speed       uint64 // bit/s; 0 for unknown
	SnapLen     uint32 // bytes kept of a packet; 0 for no limit
	LinkType    uint16 // LinkEthernet and others of the LINKTYPE_ registry
	Comments    []string
}

// Hardware descriptions by which a reader of a Railbed capture tells NICs from switch ports.
const (
	HardwareNIC        = "railbed nic"
	HardwareSwitchPort = "railbed switch port"
)

// Flags is the epb_flags word.
type Flags uint32

// Directions and reception types of Flags.
const (
	Inbound       Flags = 1
	Outbound      Flags = 2
	DirectionMask Flags = 3

	Unicast       Flags = 1 << 2
	Multicast     Flags = 2 << 2
	Broadcast     Flags = 3 << 2
	Promiscuous   Flags = 4 << 2
	ReceptionMask Flags = 7 << 2
)

// Fields is the set of optional fields that a Packet or Statistics has.
type Fields uint16

// Optional fields.
const (
	HasFlags Fields = 1 << iota
	HasDropCount
	HasID
	HasQueue
	HasTime // Packet, set by the reader; absent only for simple packet blocks
	HasStart
	HasEnd
	HasReceived
	HasDropped
	HasAccepted
	HasOSDropped
	HasDelivered
)

// Packet is one captured packet.
type Packet struct {
	// Number counts the packets that a Reader returns, from 1, as Wireshark's frame.number. A Writer does not
	// use it.
	Number int
	// Origin is set by a Merger only.
	Origin    Origin
	Interface int   // index in the order in which interfaces were added
	Time      int64 // nanoseconds since 1970-01-01 UTC
	Length    int   // bytes on the wire, at least len(Data)
	Data      []byte
	Has       Fields
	Flags     Flags
	DropCount uint64 // packets lost between the interface's previous packet and this one
	ID        uint64 // the same at every interface that the packet crossed
	Queue     uint32
	Comments  [][]byte
}

// Statistics are an interface's counts at the end of a capture. Times are in nanoseconds since
// 1970.
type Statistics struct {
	Interface int
	Time      int64 // time of the counts
	Has       Fields
	Start     int64  // capture start
	End       int64  // capture end
	Received  uint64 // packets that the interface received
	Dropped   uint64 // of these, lost for lack of room
	Accepted  uint64 // packets that the filter accepted
	OSDropped uint64 // packets that the operating system lost
	Delivered uint64 // packets written
	Comments  []string
	// Recorded is set by a Merger only.
	Recorded *Recorded
}

// Recorded describes the packets of an interface in one of a Merger's recordings.
type Recorded struct {
	Recording int    // index
	Name      string // of the recording
	Filter    string
	SnapLen   uint32
	Packets   uint64 // read
	// First and Last are the least and the greatest time of these packets, 0 without any. Ethernet frames to
	// groups do not count: the kernels of idle nodes send some, too.
	First, Last int64
	Notes       TapNote // counted from the annotations of packets
	// Unordered is the number of packets of the recording that are earlier than the packet before them.
	Unordered uint64
	// Broken is the reason why packets are missing from the end or the middle of the recording, or "".
	Broken   string
	ethernet bool
}

func splitTime(ns int64) (high, low uint32) {
	return uint32(uint64(ns) >> 32), uint32(uint64(ns))
}
