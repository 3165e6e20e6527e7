package evidence

import (
	"net/netip"
	"slices"

	"railbed/capture/display"
	"railbed/capture/layers"
	"railbed/capture/pcapng"
	"railbed/internal/wire"
)

// Direction is the direction in which a packet passed its tap.
type Direction uint8

// Directions.
const (
	Unknown Direction = iota
	In                // received by the port
	Out               // sent by the port
)

// IP protocol numbers.
const (
	ProtoTCP = wire.ProtocolTCP
	ProtoUDP = wire.ProtocolUDP
)

// Packet is one decoded packet.
type Packet struct {
	// Number is the number of the record in the capture, from 1, as Wireshark's frame.number.
	Number int
	// Origin is the record's place in one of several recordings.
	Origin    pcapng.Origin
	Tap       *Tap
	Direction Direction
	Time      int64  // nanoseconds since 1970
	ID        uint64 // the same at every tap
	Length    int    // bytes on the wire, without FCS
	// Drop is the reason if a switch recorded that it dropped the packet here, and "" otherwise.
	Drop string
	// Verdict is the action that a switch recorded for the packet: drop, mark, trim, pause, resume,
	// slow, or "" for none. Those of a fault are drop, delay, duplicate, corrupt, truncate and mark. Fault is
	// its name. Reason is the recorded reason.
	Verdict, Reason, Fault string
	// Depth is the number of bytes that waited in the queue, -1 where it is not recorded.
	Depth int64
	// Queue is the queue's priority, -1 where it is not recorded.
	Queue int
	// Due is the time at which the packet was due here: Time less its lateness. Timed reports whether the
	// lateness was recorded.
	Due   int64
	Timed bool
	// Event reports whether the packet does not pass the tap but enters or leaves a queue there.
	// Only checks that are Watchers receive events.
	Event bool

	Type  uint16 // Ethernet type, after VLAN tags
	Tags  int    // VLAN tags
	PCP   int    // priority of the outer tag if its VLAN is 0, else -1
	Group bool   // sent to a group Ethernet address
	// Foreign reports whether the packet was sent to another Ethernet address than the port's, so that
	// the port discards it.
	Foreign  bool
	IP       int   // 4, 6, or 0 for other packets
	TTL      uint8 // of IPv4, or the hop limit
	DSCP     uint8
	ECN      wire.ECN
	Fragment bool
	Proto    uint8 // above IP
	// Addresses are zero for packets other than IP.
	Addresses Addresses
	// PFC is the content of a PFC frame.
	PFC *wire.PFCFields
	// Flow is set for IP packets. It is nil for other packets, and when there are more flows than
	// the decoder distinguishes.
	Flow *Flow
	// Seq, Payload, SYN, FIN and PSH are fields of TCP. Payload is set for UDP too. Payload is the
	// length on the wire, regardless of the captured length.
	Seq      uint32
	Payload  int
	SYN, FIN bool
	PSH      bool
	// ACK says that Ack is set. Window is in units of the receiver's scale, of which Scale is the logarithm
	// that a SYN announces, or -1. ECE is the receiver's echo of congestion.
	ACK, ECE bool
	Ack      uint32
	Window   uint16
	Scale    int8
	// Segment is the captured part of TCP's payload. It is valid until the next packet.
	Segment []byte
	// RD is the reliable datagram that the packet carries. It is nil for other packets, and where
	// RDFault names why the datagram cannot be read.
	RD      *RD
	RDFault RDFault
	// RoCE is the RoCEv2 packet that the packet carries. It is nil for other packets, and where
	// RoCEFault names why the RoCEv2 packet cannot be read.
	RoCE      *RoCE
	RoCEFault RoCEFault

	// Aggregation is the header of a message to or from a switch that aggregates. It is nil for other
	// packets, and where the header is incomplete.
	Aggregation wire.Aggregation

	raw     *pcapng.Packet
	capture *Capture
	// shown reports whether a check displayed the packet.
	shown bool
	data  []byte // as captured
	key   flowKey
	pfc   wire.PFCFields
	rd    RD
}

// Identity returns a hash of the parts of the packet that no switch changes. Equal packets have the
// same hash.
func (p *Packet) Identity() uint64 { return layers.Identity(p.data, p.Length) }

// Display returns the packet for display filters. It is valid until the check returns.
func (p *Packet) Display() *display.Packet {
	if !p.shown {
		p.shown = true
		p.capture.dissected.AddSegment()
	}
	return &p.capture.dissected
}

// Analyse gives the packets for display filters the fields below tcp.analysis. A check that reads such fields
// calls Analyse before the first packet. Of each tap, the check displays all packets or none.
func (c *Capture) Analyse() { c.dissected.Analyse() }

// Numbered reports whether the packet's ID is the recording's own, which the packet has at each tap and in
// each record of it.
func (p *Packet) Numbered() bool { return p.raw.Has&pcapng.HasID != 0 }

// Spoiled reports whether the packet is a record of a fault that changed it, so that switches or its receiver
// may refuse it, or that it arrives elsewhere.
func (p *Packet) Spoiled() bool {
	return p.Fault != "" && slices.Contains(spoils, p.Verdict)
}

var spoils = []string{"corrupt", "truncate", "trim", "rewrite", "misroute"}

// Unsound reports whether an IP router refuses the packet: its IPv4 header has a wrong checksum, or the IP
// packet is longer than the frame (RFC 1812, 5.2.2).
func (p *Packet) Unsound() bool {
	b, length := p.network()
	switch {
	case len(b) < wire.IPv4MinLen:
		return false
	case p.Type == wire.EtherTypeIPv4:
		h := wire.IPv4(b)
		return h.HeaderLength() < wire.IPv4MinLen || h.HeaderLength() <= len(h) && !h.ChecksumValid() ||
			int(h.TotalLength()) > length
	case p.Type == wire.EtherTypeIPv6:
		return wire.IPv6Len+int(wire.IPv6(b).PayloadLength()) > length
	}
	return false
}

// network returns the captured bytes behind the Ethernet header and the tags, and their number on the wire.
func (p *Packet) network() (b []byte, length int) {
	at := wire.EthernetLen + p.Tags*wire.TagLen
	return p.data[min(at, len(p.data)):], p.Length - at
}

// Control reports whether the packet is a MAC control frame, which the receiving port consumes.
func (p *Packet) Control() bool { return p.Type == wire.EtherTypeMACControl }

// Flow is a sequence of packets with the same addresses, protocol and ports:
// one direction of a connection.
type Flow struct {
	Index int // counts flows in the order of their first packets
	Src   netip.AddrPort
	Dst   netip.AddrPort
	Proto uint8
}

// Addresses are the addresses of an IP packet as bytes, for keys of maps. IPv4 addresses are the last four
// bytes.
type Addresses struct{ Src, Dst [16]byte }

// Reversed returns the addresses of a packet in the other direction.
func (a Addresses) Reversed() Addresses { return Addresses{Src: a.Dst, Dst: a.Src} }

// flowKey has no pointers and no padding, so that it hashes as plain memory.
type flowKey struct {
	Addresses
	sport, dport uint16
	proto        uint8
	version      uint8
	_            [2]byte
}

// maxFlows bounds the flows of a capture, and thereby the memory of checks per flow.
const maxFlows = 1 << 17

// headersMost has room for the headers that the decoder reads: Ethernet, two tags, and IPv4 and TCP with
// options. If one of them cannot be read although so much was captured, it is wrong.
const headersMost = wire.EthernetLen + 2*wire.TagLen + 60 + 60

// ordinalsKept is the number of packets that are remembered to recognise repeats, in captures whose
// packets have no ids.
const ordinalsKept = 1 << 16

// decoder turns captured bytes into packets. It allocates for new flows only.
type decoder struct {
	capture  *Capture
	packet   Packet
	roce     RoCE // of the packet
	flows    map[flowKey]*Flow
	ordinals *layers.Ordinals
	// renumber replaces ids that each of several recordings made of its own packets.
	renumber bool
}

func newDecoder(c *Capture) *decoder {
	return &decoder{capture: c, flows: make(map[flowKey]*Flow),
		renumber: c.several() && c.Plan != nil && !c.Plan.Soft()}
}

// decode reads the headers of a packet. Fields that cannot be read stay zero, and the packet is
// counted.
func (d *decoder) decode(raw *pcapng.Packet) *Packet {
	p := &d.packet
	*p = Packet{Number: raw.Number, Origin: raw.Origin, Tap: d.capture.Taps[raw.Interface], Time: raw.Time,
		Due: raw.Time, Length: raw.Length, ID: raw.ID, Depth: -1, Queue: -1, PCP: -1, raw: raw,
		capture: d.capture, data: raw.Data}
	if raw.Has&pcapng.HasQueue != 0 {
		p.Queue = int(raw.Queue)
	}
	shown := &d.capture.dissected
	shown.Dissect(raw, &p.Tap.described, raw.Number, d.capture.First)
	if note, annotated := shown.Annotation(); annotated {
		p.annotate(note, statedDirection(raw))
		p.Tap.annotates = p.Tap.annotates || note.Name == "" || note.HasLate
		p.Tap.seen.Count(note.Verdict)
	}
	p.Foreign = raw.Has&pcapng.HasFlags != 0 && raw.Flags&pcapng.ReceptionMask == pcapng.Promiscuous
	if !p.Tap.ethernet {
		return p
	}
	if !d.headers(shown.Layers()) {
		d.capture.Undecoded++
		if len(raw.Data) < min(raw.Length, headersMost) {
			d.capture.Cut++
		}
	}
	if raw.Has&pcapng.HasDropCount != 0 && !d.capture.Railbed { // Railbed's captures count them at the end
		p.Tap.dropped += raw.DropCount
	}
	d.identify()
	if p.Tags > 0 {
		if tag := wire.Tag(raw.Data[wire.EthernetLen-2:]); tag.VLAN() == 0 {
			p.PCP = int(tag.Priority())
		}
	}
	p.Direction = d.direction(raw)
	if p.Event {
		p.Direction = Unknown
	}
	if p.Control() && len(raw.Data) >= 14 {
		if frame := wire.PFC(raw.Data[14:]); frame.Valid() {
			p.pfc.Enable = frame.Enable()
			for q := range p.pfc.Quanta {
				p.pfc.Quanta[q] = frame.Quanta(q)
			}
			p.PFC = &p.pfc
		}
	}
	if raw.Has&pcapng.HasID == 0 || d.renumber && p.Direction != Unknown {
		if d.ordinals == nil {
			d.ordinals = layers.NewOrdinals(ordinalsKept)
		}
		identity := layers.Identity(raw.Data, raw.Length)
		p.ID = d.ordinals.ID(identity, uint64(raw.Interface)<<2|uint64(p.Direction), raw.Time)
		if p.ID != identity {
			d.capture.equal++
		}
	}
	return p
}

// annotate takes a switch's record of the packet.
func (p *Packet) annotate(note pcapng.Annotation, passes Direction) {
	p.Verdict, p.Reason, p.Fault = note.Verdict, note.Reason, note.Name
	p.Event = p.Fault != "" && passes == Unknown && note.Verdict != "drop"
	switch note.Verdict {
	case "drop":
		if p.Drop = note.Reason; p.Drop == "" {
			p.Drop = "unknown"
		}
	case "enqueue":
		p.Event = true
	case "dequeue": // at a switch, dequeuing is sending
		p.Event = passes == Unknown
	}
	if note.HasDepth {
		p.Depth = note.Depth
	}
	if note.HasLate {
		p.Due, p.Timed = p.Time-int64(note.Late), true
	}
}

// identify gives an IP packet its flow.
func (d *decoder) identify() {
	p := &d.packet
	if p.IP != 0 {
		p.key.proto, p.Addresses = p.Proto, p.key.Addresses
		p.Flow = d.flow()
	}
	if p.Flow == nil { // too many flows: the contents of this flow are not decoded
		p.RD, p.RDFault, p.RoCE, p.RoCEFault, p.Aggregation = nil, RDSound, nil, RoCESound, nil
	}
}

func (d *decoder) flow() *Flow {
	key := &d.packet.key
	if f, known := d.flows[*key]; known {
		return f
	}
	if len(d.flows) >= maxFlows {
		d.capture.FlowsFull = true
		return nil
	}
	f := &Flow{Index: len(d.flows), Proto: key.proto}
	src, dst := netip.AddrFrom16(key.Src), netip.AddrFrom16(key.Dst)
	if key.version == 4 {
		src, dst = netip.AddrFrom4([4]byte(key.Src[12:])), netip.AddrFrom4([4]byte(key.Dst[12:]))
	}
	f.Src, f.Dst = netip.AddrPortFrom(src, key.sport), netip.AddrPortFrom(dst, key.dport)
	d.flows[*key] = f
	return f
}

// direction returns the direction that the capture states, or else derives it from the port's
// address.
func (d *decoder) direction(raw *pcapng.Packet) Direction {
	if stated := statedDirection(raw); stated != Unknown {
		return stated
	}
	if tap := d.packet.Tap; tap.hasMAC && len(raw.Data) >= 12 {
		if [6]byte(raw.Data[6:12]) == tap.mac {
			return Out
		}
		return In
	}
	return Unknown
}

// statedDirection returns the direction that the capture states.
func statedDirection(raw *pcapng.Packet) Direction {
	if raw.Has&pcapng.HasFlags != 0 {
		switch raw.Flags & pcapng.DirectionMask {
		case pcapng.Inbound:
			return In
		case pcapng.Outbound:
			return Out
		}
	}
	return Unknown
}
