package verify

import (
	"bytes"
	"fmt"
	"slices"

	"railbed/capture/filter"
	"railbed/capture/layers"
	"railbed/internal/infiniband"
)

// roceSide is the end at which a connection is observed.
type roceSide uint8

const (
	// atRequester observes requests where they leave the sender's NIC, and answers that arrive
	// there.
	atRequester roceSide = iota
	// atResponder observes requests where they arrive at the receiver's NIC, and answers that leave
	// it.
	atResponder
)

// maxRoCEFlows bounds the directions of connections that are followed.
const maxRoCEFlows = 1 << 13

// roceFlows follows requests of connections, and their answers, at one end. In a capture without
// NICs, such as tcpdump's, the first tap that sees packets between two addresses serves as both
// ends. S is a check's state of a flow.
//
// A BTH names only the queue pair to which a packet is sent. The messages that connected two queue
// pairs tell which belong together, where they were captured. Otherwise an answer tells it if only
// one flow awaits its PSN.
type roceFlows[S any] struct {
	capture *Capture
	side    roceSide
	// reliable excludes the flows of unreliable connections.
	reliable bool
	flows    map[roceKey]*roceFlow[S]
	ordered  []*roceFlow[S] // in the order in which they began
	between  map[Addresses][]*roceFlow[S]
	mates    map[roceKey]roceKey // each direction of a connection, by the other
	asking   map[roceComm]roceAsked
	starts   map[roceKey]roceStart
	homes    map[Addresses]int // tap by two addresses, where taps are not at NICs

	damaged    uint64 // packets that arrived with a wrong ICRC, which their NIC discards
	unread     uint64
	cut        uint64 // of the unread ones, those cut too short by the capture
	remembered int    // roceSents
	orphans    uint64 // answers to unknown requests
	anew       uint64 // flows that continued with an unrelated PSN
	full       bool
}

// roceComm names a requested connection, and the side that asked for it.
type roceComm struct {
	addr [16]byte
	comm uint32
}

func newRoCEFlows[S any](side roceSide) roceFlows[S] {
	return roceFlows[S]{
		side:    side,
		flows:   map[roceKey]*roceFlow[S]{},
		between: map[Addresses][]*roceFlow[S]{},
		mates:   map[roceKey]roceKey{},
		asking:  map[roceComm]roceAsked{}, starts: map[roceKey]roceStart{}, homes: map[Addresses]int{},
	}
}

// sees reports whether a RoCEv2 packet is at the observed end.
func (v *roceFlows[S]) sees(p *Packet) bool {
	if p.Drop != "" || p.RoCE == nil && p.RoCEFault == RoCESound || !v.here(p) {
		return false
	}
	if p.RoCE != nil {
		return true
	}
	v.unread++
	if p.RoCEFault == RoCECut {
		v.cut++
	}
	return false
}

func (v *roceFlows[S]) here(p *Packet) bool {
	if p.Tap.NIC {
		if p.RoCEFault == RoCECut { // its opcode is not known
			return p.Direction != Unknown
		}
		asks := p.RoCE != nil && p.RoCE.BTH.Opcode.Request()
		return p.Direction != Unknown && (p.Direction == Out) == (asks == (v.side == atRequester))
	}
	if slices.ContainsFunc(v.capture.Taps, func(t *Tap) bool { return t.NIC }) {
		return false
	}
	ends := p.Addresses
	if bytes.Compare(ends.Src[:], ends.Dst[:]) > 0 {
		ends = ends.Reversed()
	}
	home, known := v.homes[ends]
	if !known {
		home = p.Tap.Index
		if v.full = v.full || len(v.homes) >= maxRoCEFlows; !v.full {
			v.homes[ends] = home
		}
	}
	return home == p.Tap.Index
}

// foreign reports whether no tap is at a NIC, so that packets may be lost and reordered on both
// sides of the taps.
func (v *roceFlows[S]) foreign() bool { return len(v.homes) > 0 }

// came reports whether a packet is whole as far as its receiver can tell. It counts packets that
// are not.
func (v *roceFlows[S]) came(p *Packet) bool {
	if p.RoCE.ICRC() == layers.ICRCWrong {
		v.damaged++
		return false
	}
	return true
}

// walk returns the flow of a packet, and the packet's place in the flow. The place is roceNone for
// packets at other ends, damaged packets, and packets that are neither a request nor an answer of a
// connection.
func (v *roceFlows[S]) walk(p *Packet) (*roceFlow[S], rocePlace) {
	switch {
	case !v.sees(p):
		return nil, roceNone
	case !p.RoCE.BTH.Opcode.Response():
		return v.request(p)
	}
	if f := v.answer(p); f != nil {
		return f, roceAnswer
	}
	return nil, roceNone
}

// walkRequests is walk for checks of requests alone. It applies an answer's acknowledgement, and
// returns no flow for the answer.
func (v *roceFlows[S]) walkRequests(p *Packet) (*roceFlow[S], rocePlace) {
	f, place := v.walk(p)
	if place == roceAnswer {
		f.acknowledge(acknowledged(p.RoCE))
		return nil, roceNone
	}
	return f, place
}

// acknowledged returns the PSN before which an answer acknowledges all requests. A NAK names the
// PSN that it refuses. Other answers name the last PSN that they answer (IBTA, 9.7.5.2).
func acknowledged(r *RoCE) infiniband.PSN {
	if r.BTH.Opcode.Has(infiniband.HasAETH) && r.AETH.Syndrome.Kind() != infiniband.Ack {
		return r.BTH.PSN
	}
	return r.BTH.PSN.Add(1)
}

// request returns the flow of a request, and the request's place in it. Requests that arrive
// damaged do not count at the responder.
func (v *roceFlows[S]) request(p *Packet) (*roceFlow[S], rocePlace) {
	o := p.RoCE.BTH.Opcode
	if o.Has(infiniband.HasDETH) && p.RoCE.ICRC() != layers.ICRCWrong {
		v.learn(p)
	}
	if service := o.Service(); !o.Request() ||
		service != infiniband.RC && (service != infiniband.UC || v.reliable) ||
		v.side == atResponder && !v.came(p) {
		return nil, roceNone
	}
	key := roceKeyOf(p)
	f := v.flows[key]
	if f == nil {
		if v.full = v.full || len(v.flows) >= maxRoCEFlows; v.full {
			return nil, roceNone
		}
		f = &roceFlow[S]{key: key, remembered: &v.remembered,
			name: fmt.Sprintf("%s to %s QP %#06x", p.Flow.Src.Addr(), p.Flow.Dst.Addr(), uint32(key.qp))}
		v.flows[key] = f
		v.ordered = append(v.ordered, f)
		v.between[key.addresses] = append(v.between[key.addresses], f)
		f.over = true
	}
	if f.over {
		f.begin(p)
		v.begun(f, p.RoCE.BTH.PSN)
		f.add(p)
		return f, roceFirst
	}
	f.learnFrom(p)
	place := f.place(p)
	if place == roceFirst {
		v.anew++
	}
	return f, place
}

// need returns the need of the check: the packets at all NICs. In a capture without NICs it is the
// packets at the taps that serve as both ends.
func (v *roceFlows[S]) need() Need {
	n := Need{Packets: filter.Transport(protoUDP, 0, infiniband.Port)}
	if v.capture.Plan != nil || !v.foreign() {
		n.Ports = v.capture.NICs()
		return n
	}
	for _, tap := range v.capture.Taps {
		for _, home := range v.homes {
			if home == tap.Index {
				n.Ports = append(n.Ports, tap.Name)
				break
			}
		}
	}
	return n
}

// suspect adds violations that hold unless a packet is missing. They are unclear if packets were
// cut off, if answers could not be assigned, or if the taps are not at NICs.
func (v *roceFlows[S]) suspect(f *finding, lines ...string) {
	if v.cut > 0 || v.orphans > 0 || v.foreign() {
		f.unclear = append(f.unclear, lines...)
	} else {
		f.absent = append(f.absent, lines...)
	}
}

// end returns when a flow ended: at the request to end its connection, or with the capture.
func (v *roceFlows[S]) end(f *roceFlow[S]) int64 {
	if f.closing {
		return min(f.closed, v.capture.End)
	}
	return v.capture.End
}

// doubts returns reasons why packets that were not seen may have existed.
func (v *roceFlows[S]) doubts() (lines []string) {
	add := func(count uint64, what string) {
		if count > 0 {
			lines = append(lines, fmt.Sprintf("%d %s", count, what))
		}
	}
	add(v.unread, "packets of RoCEv2 cannot be read: cut off by the capture, or damaged")
	add(v.orphans, "answers cannot be told whose they are")
	add(v.anew, "flows went on with a PSN from elsewhere, as a queue pair's next life does")
	if v.full {
		lines = append(lines, "more flows than are followed")
	}
	return lines
}
