package display

import (
	"fmt"
	"strings"

	"railbed/internal/wire"
)

// Unseen is a set of reasons why a packet may have a value of a field that its record does not show. As long
// as such a value could change the result of a filter, the result is not sure.
type Unseen uint8

// Reasons.
const (
	// CutOff: the capture cut the packet off before the field.
	CutOff Unseen = 1 << iota
	// Fragmented: the packet is a fragment, and the field is in another fragment of its datagram.
	Fragmented
	// Encrypted: the field is encrypted, and the key is not known.
	Encrypted
	// Encapsulated: the packet carries a protocol that this package does not read.
	Encapsulated
	// Unrecorded: the field is no part of the packet, and the recording does not have it.
	Unrecorded

	unseenReasons = 5
)

// Each calls f for each reason of the set, the smallest first.
func (u Unseen) Each(f func(Unseen)) {
	for reason := Unseen(1); reason < 1<<unseenReasons; reason <<= 1 {
		if u&reason != 0 {
			f(reason)
		}
	}
}

// truth is the result of a part of a filter: whether the values that the record shows fulfil it (fulfilled),
// and the reasons why other values could change that.
type truth uint8

const fulfilled truth = 1

func (t truth) unseen() Unseen { return Unseen(t >> 1) }

// truthOf returns the result of a comparison of all values, with the reasons that its operands had.
func (p *Packet) truthOf(match bool) truth {
	t := truth(p.unseen) << 1
	if match {
		t |= fulfilled
	}
	return t
}

// headerSet is a set of headers, by their numbers.
type headerSet uint64

func setOf(headers ...Header) (s headerSet) {
	for _, h := range headers {
		s |= 1 << h
	}
	return s
}

// from returns the headers from one to another.
func from(first, last Header) headerSet { return 1<<(last+1) - 1<<first }

// Sets of headers that a packet can have after the place where it cannot be read further.
var (
	// anything is every header: another Ethernet frame may be inside.
	anything = from(EthernetHeader, RDRejectHeader)
	// messages are the headers of protocols over UDP.
	messages = from(TelemetryHeader, RDRejectHeader)
)

// carrier is the first protocol of a packet that this package does not read.
type carrier struct {
	form   string // of its name, with a place for the number
	number int
}

// hide notes that the packet may have headers of a set that its record does not show.
func (p *Packet) hide(reason Unseen, headers headerSet) {
	p.hiding |= headers
	for i := range p.hidden {
		if reason == 1<<i {
			p.hidden[i] |= headers
		}
	}
}

// opaque notes a protocol that this package does not read, and that may carry others.
func (p *Packet) opaque(form string, number int) {
	if p.carrier.form == "" {
		p.carrier = carrier{form, number}
	}
	p.hide(Encapsulated, anything)
}

// sealed notes a protocol that encrypts the packets that it carries.
func (p *Packet) sealed(form string, number int) {
	if p.carrier.form == "" {
		p.carrier = carrier{form, number}
	}
	p.hide(Encrypted, anything)
}

// Carrier names the protocol that hides a part of the packet, or is "".
func (p *Packet) Carrier() string {
	if !strings.Contains(p.carrier.form, "%") {
		return p.carrier.form
	}
	return fmt.Sprintf(p.carrier.form, p.carrier.number)
}

// recorded notes that a field is unknown unless the recording has it.
func (p *Packet) recorded(has bool) bool {
	if !has {
		p.unseen |= Unrecorded
	}
	return has
}

// Open decrypts the packet's reliable datagram, once.
func (p *Packet) Open(d wire.RD) (plain wire.RD, opened bool) {
	if p.plain == nil && p.Keys != nil {
		p.plain, _ = p.Keys.Open(d)
	}
	return p.plain, p.plain != nil
}

// open finds the header of an encrypted reliable datagram: it is readable, or the packet's keys decrypt it.
func (p *Packet) open(at, end int, kind wire.RDType) {
	h := RDHeaders[kind]
	if h == FrameHeader {
		return
	}
	d := wire.RD(p.captured(at, end))
	if len(d) >= wire.RDSealedLeast && wire.RDBaseLen+4*int(d.Security().Readable) >= wire.RDHeaderLen(kind) {
		shifted := at + wire.RDSecurityLen // the places of the header's fields count from the base
		if p.has(setOf(h), shifted, wire.RDHeaderLen(kind), end) {
			p.add(h, shifted, end)
		}
		return
	}
	if p.plain == nil && len(d) == end-at && d.Valid() {
		if plain, opened := p.Open(d); opened {
			p.layers = append(p.layers, Layer{Header: h, End: len(plain), plain: true})
			return
		}
	}
	if p.Keys != nil && len(d) < end-at {
		p.hide(CutOff, setOf(h))
		return
	}
	p.hide(Encrypted, setOf(h))
}
