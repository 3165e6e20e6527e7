package display

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// FieldNamed returns a field, or nil if there is none of the name.
func FieldNamed(name string) *Field { return fieldsByName[name] }

// Bits returns the width of a number's field in its header, and 64 for a number that is in no header.
func (f *Field) Bits() int { return f.bits }

// Number returns the first value of a number's field. It reports whether the packet has the field, and why
// that may not be sure, as Filter.Judge does.
func (f *Field) Number(p *Packet) (n uint64, has bool, unseen Unseen) {
	p.unseen = 0
	p.left = f.read(p, p.left[:0])
	if len(p.left) == 0 {
		return 0, false, p.unseen
	}
	return uint64(p.left[0].n), true, p.unseen
}

// AppendKey appends the first value of the field, so that equal values of fields of one kind have equal
// bytes. The values of numbers have one width. It reports the same as Number.
func (f *Field) AppendKey(p *Packet, to []byte) (key []byte, has bool, unseen Unseen) {
	p.unseen = 0
	p.left = f.read(p, p.left[:0])
	switch {
	case len(p.left) == 0:
		return to, false, p.unseen
	case f.Kind.isNumber():
		return binary.BigEndian.AppendUint64(to, uint64(p.left[0].n)), true, p.unseen
	}
	to = binary.BigEndian.AppendUint32(to, uint32(len(p.left[0].b)))
	return append(to, p.left[0].b...), true, p.unseen
}

// Comparable reports whether values of two fields can be equal.
func (f *Field) Comparable(other *Field) bool {
	return f.Kind == other.Kind || f.Kind.isNumber() && other.Kind.isNumber()
}

// IsCount reports whether the field is a number without unit, so that values can be added and ordered.
func (f *Field) IsCount() bool { return f.Kind == Unsigned || f.Kind == Boolean }

// Texts returns a packet's values of the field, in the form of filters. The value of a protocol is its name.
func (f *Field) Texts(p *Packet) (all []string) {
	for _, v := range f.values(p, nil) {
		all = append(all, f.written(v))
	}
	return all
}

// written returns a value as it stands in a filter.
func (f *Field) written(v value) string {
	switch f.Kind {
	case Protocol:
		return f.Name
	case Boolean, Unsigned:
		return strconv.FormatUint(uint64(v.n), 10)
	case Seconds:
		return seconds(v.n)
	case IPv4, IPv6:
		addr, _ := netip.AddrFromSlice(v.b)
		return addr.String()
	case Text:
		return string(v.b)
	}
	return net.HardwareAddr(v.b).String()
}

func seconds(ns int64) string {
	sign := ""
	if ns < 0 {
		sign, ns = "-", -ns
	}
	return fmt.Sprintf("%s%d.%09d", sign, ns/1e9, ns%1e9)
}

// Summary is a packet in one line for people.
type Summary struct {
	Number int `json:"number"`
	// Time is the time of the record in nanoseconds since 1970.
	Time time.Duration `json:"time_ns"`
	// Since is Time counted from the capture's first packet.
	Since time.Duration `json:"since_ns"`
	// SinceMessage is Time counted from the start of the packet's message, nil if the packet has none or its
	// run is not known.
	SinceMessage *time.Duration `json:"since_message_ns,omitempty"`
	Tap          string         `json:"tap"`
	// Direction is in if the tap's port received the packet, out if it sent the packet, or "".
	Direction string `json:"direction,omitempty"`
	// Source and Destination are IP addresses, with ports where there are ports, or Ethernet addresses.
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Protocol    string `json:"protocol"`
	Length      int    `json:"length"` // bytes on the wire, without FCS
	// Info has the type and the numbers of the innermost header.
	Info string `json:"info"`
	// Record is a switch's record of the packet, or "".
	Record string `json:"record,omitempty"`
}

// names are the protocols that a summary has, the outermost first.
var names = map[Header]string{
	EthernetHeader:   "Ethernet",
	ARPHeader:        "ARP",
	ControlHeader:    "MAC control",
	IPv4Header:       "IPv4",
	IPv6Header:       "IPv6",
	ICMPHeader:       "ICMP",
	ICMPv6Header:     "ICMPv6",
	UDPHeader:        "UDP",
	TCPHeader:        "TCP",
	TelemetryHeader:  "INT",
	InfinibandHeader: "RoCEv2",
	RDHeader:         "RD",

	GFCHeader:         "GFC",
	AggregationHeader: "AGG",
}

// Summary returns the packet's line.
func (p *Packet) Summary() Summary {
	s := Summary{Number: p.Number, Time: time.Duration(p.Raw.Time),
		Since: time.Duration(p.Raw.Time - p.first),
		Tap:   p.Interface.Name, Length: p.Raw.Length, Record: p.record()}
	if p.context.Message > 0 {
		since := time.Duration(p.Raw.Time - p.context.Start)
		s.SinceMessage = &since
	}
	s.Direction = [...]string{"", "in", "out", ""}[p.Raw.Flags&3]
	quoting, tags := false, ""
	for _, l := range p.layers {
		if name, has := names[l.Header]; has && !quoting {
			s.Protocol = name
		}
		switch l.Header {
		case EthernetHeader:
			s.Source, s.Destination = net.HardwareAddr(p.Raw.Data[l.At+6:l.At+12]).String(),
				net.HardwareAddr(p.Raw.Data[l.At:l.At+6]).String()
		case VLANHeader:
			tags += fmt.Sprintf("vlan %d ", p.u16(l.At)&0xFFF)
		case IPv4Header:
			if !quoting {
				s.Source, s.Destination = p.addresses(l.At+12, 4)
			}
		case IPv6Header:
			if !quoting {
				s.Source, s.Destination = p.addresses(l.At+8, 16)
			}
		case UDPHeader, TCPHeader:
			if !quoting {
				s.Source = withPort(s.Source, p.u16(l.At))
				s.Destination = withPort(s.Destination, p.u16(l.At+2))
			}
		case ICMPHeader, ICMPv6Header: // the packet that it quotes follows
			quoting = true
		}
	}
	if s.Protocol == "" { // no header is known
		s.Protocol = p.Carrier()
	}
	s.Info = strings.TrimSuffix(tags+p.info(), " ")
	return s
}

func (p *Packet) addresses(at, size int) (source, destination string) {
	a, _ := netip.AddrFromSlice(p.Raw.Data[at : at+size])
	b, _ := netip.AddrFromSlice(p.Raw.Data[at+size : at+2*size])
	return a.String(), b.String()
}

func withPort(address string, port int) string { return net.JoinHostPort(address, strconv.Itoa(port)) }

// record returns a switch's record of the packet.
func (p *Packet) record() string {
	if !p.annotated {
		return ""
	}
	words := []string{p.note.Verdict}
	if p.note.Reason != "" {
		words = append(words, p.note.Reason)
	}
	if p.note.Name != "" {
		words = append(words, p.note.Name)
	}
	if p.note.HasDepth {
		words = append(words, fmt.Sprintf("depth %d", p.note.Depth))
	}
	if p.note.HasLate {
		words = append(words, "late "+p.note.Late.String())
	}
	return strings.TrimSpace(strings.Join(words, " "))
}

// info describes the innermost header that the package knows.
func (p *Packet) info() string {
	var text string
	length := 0 // of rd
	for _, l := range p.layers {
		d := p.bytes(l)[l.At:]
		switch l.Header {
		case ARPHeader:
			if a := wire.ARP(d); a.Valid() {
				text = fmt.Sprintf("operation %d", p.u16(l.At+6))
			}
		case ICMPHeader, ICMPv6Header:
			return fmt.Sprintf("type %d code %d", d[0], d[1])
		case TCPHeader:
			text = tcpInfo(wire.TCP(d), l.End-l.At)
		case UDPHeader:
			text = fmt.Sprintf("length %d", p.u16(l.At+4)-wire.UDPLen)
		case BTHHeader:
			text = fmt.Sprintf("%s qp %#x psn %d", infiniband.Opcode(d[0]), p.u24(l.At+5), p.u24(l.At+9))
		case AETHHeader:
			text += fmt.Sprintf(" syndrome %#x msn %d", d[0], p.u24(l.At+1))
		case AggregationOursHeader:
			f := wire.Aggregation(d).Fields()
			text = fmt.Sprintf("kind %d job %d epoch %d slot %d round %d worker %d of %d", f.Kind, f.Job,
				f.Epoch, f.Slot, f.Round, f.Worker, f.FanIn)
		case RDHeader:
			base := wire.RD(d).Base()
			length = int(base.Length)
			text = fmt.Sprintf("%s %d > %d psn %d", base.Type, base.Source, base.Destination, base.PSN)
			if base.Flags&wire.RDRepeat != 0 {
				text += " repeat"
			}
		case RDDataHeader:
			f := wire.RD(d).Data()
			text += fmt.Sprintf(" message %d bytes %d to %d of %d", f.Message, f.Position,
				int(f.Position)+length, f.Total)
		}
	}
	return text
}

func (p *Packet) u24(at int) int { return int(p.Raw.Data[at])<<16 | p.u16(at+1) }

// tcpInfo returns the flags, the numbers and the payload length of a TCP segment of a length, as tcpdump
// orders them.
func tcpInfo(segment wire.TCP, length int) string {
	var flags []string
	for _, f := range []struct {
		flag wire.TCPFlags
		name string
	}{{wire.TCPSYN, "syn"}, {wire.TCPFIN, "fin"}, {wire.TCPRST, "reset"}, {wire.TCPPSH, "push"},
		{wire.TCPACK, "ack"}, {wire.TCPURG, "urg"}, {wire.TCPECE, "ece"}, {wire.TCPCWR, "cwr"}} {
		if segment.Flags()&f.flag != 0 {
			flags = append(flags, f.name)
		}
	}
	return fmt.Sprintf("%s seq %d ack %d len %d", strings.Join(flags, ","), segment.Seq(), segment.Ack(),
		max(length-segment.HeaderLength(), 0))
}
