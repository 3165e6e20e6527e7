// Package tcpanalysis finds retransmissions, duplicate acknowledgements, zero windows and more in the
// segments of TCP connections, as they passed one tap. It follows the definitions of the section "TCP
// Analysis" in Wireshark's User's Guide, and tests compare the results with tshark.
//
// Wireshark keeps one state per connection. In a capture with several taps it takes a segment at the second
// tap for a retransmission. An Analyzer is for one tap.
package tcpanalysis

import (
	"net/netip"
	"time"

	"railbed/internal/wire"
)

// Flags are the findings about a segment. Several may apply.
type Flags uint16

// Findings, by the names of Wireshark's fields below tcp.analysis.
const (
	Retransmission Flags = 1 << iota
	FastRetransmission
	SpuriousRetransmission
	OutOfOrder
	DuplicateAck
	LostSegment // an earlier segment was not seen
	KeepAlive
	KeepAliveAck
	WindowUpdate
	WindowFull
	ZeroWindow
	ZeroWindowProbe
	ZeroWindowProbeAck
	ReusedPorts
)

// Names are Wireshark's names of the findings below tcp.analysis, in the order of the flags.
var Names = []string{"retransmission", "fast_retransmission", "spurious_retransmission", "out_of_order",
	"duplicate_ack", "lost_segment", "keep_alive", "keep_alive_ack", "window_update", "window_full",
	"zero_window", "zero_window_probe", "zero_window_probe_ack", "reused_ports"}

const (
	// fastWithin is the time after an acknowledgement within which a segment is a fast retransmission.
	fastWithin = 20 * time.Millisecond
	// reorderedWithin is the time after later data within which a segment is out of order and not sent
	// again, if the round-trip time of the connection's start is not known.
	reorderedWithin = 3 * time.Millisecond
	// maxConnections bounds the memory of an Analyzer: it stays below 100 MB.
	maxConnections = 1 << 18
)

// Segment is a segment of TCP.
type Segment struct {
	Time                int64 // nanoseconds
	Source, Destination netip.Addr
	// Header is the header. Options that the capture cut off are not read.
	Header wire.TCP
	// Payload is the number of bytes after the header on the wire.
	Payload int
}

// Finding is the analysis of a segment.
type Finding struct {
	Flags Flags
	// Duplicate counts the duplicate acknowledgements so far, for DuplicateAck. Wireshark begins anew where
	// the other end acknowledged data that the tap did not see.
	Duplicate int
}

// Analyzer keeps the state of the connections at one tap. The zero value is ready. It is not safe for
// concurrent use.
type Analyzer struct {
	connections map[key]*connection
	full        bool
}

// key is a connection, with the lower end first.
type key struct{ a, b netip.AddrPort }

// connection is the state of both directions, and of the handshake.
type connection struct {
	directions [2]direction // of the segments from the lower end, and from the other
	// syn is the time of the first SYN, and rtt the time until the handshake was complete; 0 if unknown.
	syn int64
	rtt time.Duration
}

// direction is one direction of a connection. Its fields are about the segments so far.
type direction struct {
	seen       bool
	initial    uint32 // sequence number of the first segment
	next       uint32 // highest sequence number after a segment
	nextAt     int64  // time of the segment that set next
	hasNext    bool
	ack        uint32
	ackAt      int64
	window     uint16
	scale      int // shift of windows, -1 if the SYN was not seen
	last       Flags
	duplicates int
	scaled     bool // the last window was in a segment without SYN, and so is shifted
}

// Full reports whether segments of connections beyond maxConnections were left out. Their findings are
// not known.
func (a *Analyzer) Full() bool { return a.full }

// Add analyses the next segment of the tap.
func (a *Analyzer) Add(s Segment) (f Finding) {
	h := s.Header
	if len(h) < wire.TCPMinLen {
		return f
	}
	from, to := netip.AddrPortFrom(s.Source, h.SrcPort()), netip.AddrPortFrom(s.Destination, h.DstPort())
	k, lower := key{from, to}, 0
	if to.Compare(from) < 0 {
		k, lower = key{to, from}, 1
	}
	c := a.connections[k]
	opens := h.Flags()&(wire.TCPSYN|wire.TCPACK) == wire.TCPSYN
	switch {
	case c == nil && len(a.connections) == maxConnections:
		a.full = true
		return f
	case c != nil && opens && c.directions[lower].seen && c.directions[lower].initial != h.Seq():
		f.Flags |= ReusedPorts
		fallthrough
	case c == nil:
		if a.connections == nil {
			a.connections = map[key]*connection{}
		}
		c = &connection{directions: [2]direction{{scale: -1}, {scale: -1}}}
		a.connections[k] = c
	}
	c.handshake(&s)
	c.add(&s, &c.directions[lower], &c.directions[1-lower], &f)
	return f
}

// handshake measures the round-trip time of the connection's start.
func (c *connection) handshake(s *Segment) {
	switch flags := s.Header.Flags() & (wire.TCPSYN | wire.TCPACK | wire.TCPRST); {
	case flags&wire.TCPSYN != 0 && flags&wire.TCPACK == 0:
		c.syn = s.Time
	case flags == wire.TCPACK && c.syn != 0 && c.rtt == 0:
		c.rtt = time.Duration(s.Time - c.syn)
	}
}

// after reports whether sequence number x is after y (RFC 9293, 3.4).
func after(x, y uint32) bool { return int32(x-y) > 0 }

// add analyses a segment of the direction fwd.
func (c *connection) add(s *Segment, fwd, rev *direction, f *Finding) {
	h := s.Header
	seq, ack, window, flags := h.Seq(), h.Ack(), h.Window(), h.Flags()
	control := flags & (wire.TCPSYN | wire.TCPFIN | wire.TCPRST)
	if !fwd.seen {
		fwd.seen, fwd.initial = true, seq
	}
	if flags&wire.TCPSYN != 0 {
		fwd.scale, _ = h.WindowScale()
	}
	repeats := seq == fwd.next && fwd.hasNext && ack == fwd.ack && control == 0 // as in the segment before
	if s.Payload == 1 && fwd.hasNext && seq == fwd.next && rev.seen && rev.window == 0 {
		f.Flags |= ZeroWindowProbe
	} else {
		fwd.windows(s, rev, f, control, repeats)
	}
	if ack != fwd.ack {
		fwd.duplicates = 0
	}
	length := uint32(s.Payload)
	if control&(wire.TCPSYN|wire.TCPFIN) != 0 {
		length++
	}
	if length > 0 && f.Flags&KeepAlive == 0 {
		f.Flags |= c.repeated(s, fwd, rev, seq, length)
	}
	if end := seq + length; f.Flags&ZeroWindowProbe == 0 {
		if !fwd.hasNext || after(end, fwd.next) {
			fwd.next, fwd.nextAt = end, s.Time
		}
		fwd.hasNext = true
	}
	fwd.window, fwd.ack, fwd.ackAt, fwd.last = window, ack, s.Time, f.Flags
	fwd.scaled = flags&wire.TCPSYN == 0
}

// windows finds what a segment says about windows and acknowledgements. repeats is set if the segment has the
// sequence number and the acknowledgement that follow from the segment before.
func (fwd *direction) windows(s *Segment, rev *direction, f *Finding, control wire.TCPFlags, repeats bool) {
	h := s.Header
	seq, window := h.Seq(), h.Window()
	if window == 0 && control == 0 {
		f.Flags |= ZeroWindow
	}
	if fwd.hasNext && after(seq, fwd.next) && control&wire.TCPRST == 0 {
		f.Flags |= LostSegment
	}
	if s.Payload <= 1 && fwd.hasNext && seq == fwd.next-1 && control == 0 {
		f.Flags |= KeepAlive
	}
	if s.Payload > 0 {
		if rev.scale >= 0 && rev.seen && control == 0 && seq+uint32(s.Payload) == rev.ack+rev.bytes() {
			f.Flags |= WindowFull
		}
		return
	}
	switch same := window == fwd.window; {
	case !repeats:
	case window != 0 && same && rev.last&KeepAlive != 0:
		f.Flags |= KeepAliveAck
	case window == 0 && same && rev.last&ZeroWindowProbe != 0:
		f.Flags |= ZeroWindowProbeAck
	case window != 0 && same:
		fwd.duplicates++
		f.Flags, f.Duplicate = f.Flags|DuplicateAck, fwd.duplicates
	case window != 0:
		f.Flags |= WindowUpdate
	}
}

// bytes is the window that the segments of the direction last announced, in bytes.
func (d *direction) bytes() uint32 {
	if !d.scaled {
		return uint32(d.window)
	}
	return uint32(d.window) << max(0, d.scale)
}

// repeated classifies a segment with length sequence numbers that does not advance the sequence number.
func (c *connection) repeated(s *Segment, fwd, rev *direction, seq, length uint32) Flags {
	if s.Payload > 0 && rev.seen && rev.ack != 0 && !after(seq+length, rev.ack) {
		return SpuriousRetransmission | Retransmission
	}
	if !fwd.hasNext || !after(fwd.next, seq) || s.Payload > 1 && fwd.next-1 == seq {
		return 0
	}
	threshold := reorderedWithin
	if c.rtt > 0 {
		threshold = c.rtt
	}
	sinceAck := time.Duration(s.Time - rev.ackAt)
	switch {
	case rev.duplicates >= 2 && rev.ack == seq && sinceAck < fastWithin:
		return FastRetransmission | Retransmission
	case time.Duration(s.Time-fwd.nextAt) < threshold && fwd.next != seq+length:
		return OutOfOrder
	}
	return Retransmission
}
