package rocechecks

import (
	"bytes"
	"fmt"
	"slices"

	"railbed/capture/filter"
	"railbed/capture/layers"
	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/plural"
)

// side is the end at which a connection is observed.
type side uint8

const (
	// atRequester observes requests where they leave the sender's NIC, and answers that arrive
	// there.
	atRequester side = iota
	// atResponder observes requests where they arrive at the receiver's NIC, and answers that leave
	// it.
	atResponder
)

// maxFlows bounds the directions of connections that are followed.
const maxFlows = 1 << 13

// follower follows requests of connections, and their answers, at one end. In a capture without
// NICs, such as tcpdump's, the first tap that sees packets between two addresses serves as both
// ends. S is a check's state of a flow.
//
// A BTH names only the queue pair to which a packet is sent. The messages that connected two queue
// pairs tell which belong together, where they were captured. Otherwise an answer tells it if only
// one flow awaits its PSN.
type follower[S any] struct {
	capture *evidence.Capture
	side    side
	// reliable excludes the flows of unreliable connections.
	reliable bool
	// timed reports whether the check compares times with the end of the capture or of a connection. learned
	// reports whether messages that made or ended connections were read: the other end's NIC has them.
	timed, learned bool
	flows          map[pairKey]*flow[S]
	ordered        []*flow[S] // in the order in which they began
	between        map[evidence.Addresses][]*flow[S]
	reverse        map[pairKey]pairKey // each direction of a connection, by the other
	asking         map[commKey]asked
	starts         map[pairKey]beginning
	homes          map[evidence.Addresses]int // tap by two addresses, where taps are not at NICs

	damaged    uint64 // packets that arrived with a wrong ICRC, which their NIC discards
	unread     uint64
	cut        uint64 // of the unread ones, those cut too short by the capture
	remembered int    // sentPSNs
	orphans    uint64 // answers to unknown requests
	anew       uint64 // flows that continued with an unrelated PSN
	full       bool
}

// commKey names a requested connection, and the side that asked for it.
type commKey struct {
	addr [16]byte
	comm uint32
}

func newFollower[S any](side side) follower[S] {
	return follower[S]{
		side:    side,
		flows:   map[pairKey]*flow[S]{},
		between: map[evidence.Addresses][]*flow[S]{},
		reverse: map[pairKey]pairKey{},
		asking:  map[commKey]asked{}, starts: map[pairKey]beginning{}, homes: map[evidence.Addresses]int{},
	}
}

// sees reports whether a RoCEv2 packet is at the observed end.
func (v *follower[S]) sees(p *evidence.Packet) bool {
	if p.Drop != "" || p.RoCE == nil && p.RoCEFault == evidence.RoCESound || !v.here(p) {
		return false
	}
	if p.RoCE != nil {
		return true
	}
	v.unread++
	if p.RoCEFault == evidence.RoCECut {
		v.cut++
	}
	return false
}

func (v *follower[S]) here(p *evidence.Packet) bool {
	if p.Tap.NIC {
		if p.RoCEFault == evidence.RoCECut { // its opcode is not known
			return p.Direction != evidence.Unknown
		}
		asks := p.RoCE != nil && p.RoCE.BTH.Opcode.Request()
		return p.Direction != evidence.Unknown &&
			(p.Direction == evidence.Out) == (asks == (v.side == atRequester))
	}
	if slices.ContainsFunc(v.capture.Taps, func(t *evidence.Tap) bool { return t.NIC }) {
		return false
	}
	ends := p.Addresses
	if bytes.Compare(ends.Src[:], ends.Dst[:]) > 0 {
		ends = ends.Reversed()
	}
	home, known := v.homes[ends]
	if !known {
		home = p.Tap.Index
		if v.full = v.full || len(v.homes) >= maxFlows; !v.full {
			v.homes[ends] = home
		}
	}
	return home == p.Tap.Index
}

// foreign reports whether no tap is at a NIC, so that packets may be lost and reordered on both
// sides of the taps.
func (v *follower[S]) foreign() bool { return len(v.homes) > 0 }

// came reports whether a packet is whole as far as its receiver can tell. It counts packets that
// are not.
func (v *follower[S]) came(p *evidence.Packet) bool {
	if p.RoCE.ICRC() == layers.ICRCWrong {
		v.damaged++
		return false
	}
	return true
}

// walk returns the flow of a packet, and the packet's place in the flow. The place is placeNone for
// packets at other ends, damaged packets, and packets that are neither a request nor an answer of a
// connection.
func (v *follower[S]) walk(p *evidence.Packet) (*flow[S], place) {
	switch {
	case !v.sees(p):
		return nil, placeNone
	case !p.RoCE.BTH.Opcode.Response():
		return v.request(p)
	}
	if f := v.answer(p); f != nil {
		return f, placeAnswer
	}
	return nil, placeNone
}

// walkRequests is walk for checks of requests alone. It applies an answer's acknowledgement, and
// returns no flow for the answer.
func (v *follower[S]) walkRequests(p *evidence.Packet) (*flow[S], place) {
	f, place := v.walk(p)
	if place == placeAnswer {
		f.acknowledge(acknowledged(p.RoCE))
		return nil, placeNone
	}
	return f, place
}

// acknowledged returns the PSN before which an answer acknowledges all requests. A NAK names the
// PSN that it refuses. Other answers name the last PSN that they answer (IBTA, 9.7.5.2).
func acknowledged(r *evidence.RoCE) infiniband.PSN {
	if r.BTH.Opcode.Has(infiniband.HasAETH) && r.AETH.Syndrome.Kind() != infiniband.Ack {
		return r.BTH.PSN
	}
	return r.BTH.PSN.Add(1)
}

// request returns the flow of a request, and the request's place in it. Requests that arrive
// damaged do not count at the responder.
func (v *follower[S]) request(p *evidence.Packet) (*flow[S], place) {
	o := p.RoCE.BTH.Opcode
	if o.Has(infiniband.HasDETH) && p.RoCE.ICRC() != layers.ICRCWrong {
		v.learn(p)
	}
	if service := o.Service(); !o.Request() ||
		service != infiniband.RC && (service != infiniband.UC || v.reliable) ||
		v.side == atResponder && !v.came(p) {
		return nil, placeNone
	}
	key := keyOf(p)
	f := v.flows[key]
	if f == nil {
		if v.full = v.full || len(v.flows) >= maxFlows; v.full {
			return nil, placeNone
		}
		f = &flow[S]{key: key, remembered: &v.remembered,
			name: fmt.Sprintf("%s to %s QP %#06x", p.Flow.Src.Addr(), p.Flow.Dst.Addr(), uint32(key.qp))}
		v.flows[key] = f
		v.ordered = append(v.ordered, f)
		v.between[key.addresses] = append(v.between[key.addresses], f)
		f.over = true
	}
	f.nic = p.Tap
	if f.over {
		f.begin(p)
		v.begun(f, p.RoCE.BTH.PSN)
		f.add(p)
		return f, placeFirst
	}
	f.learnFrom(p)
	place := f.place(p)
	if place == placeFirst {
		v.anew++
	}
	return f, place
}

// need returns the need of the check: the packets at all NICs. In a capture without NICs it is the
// packets at the taps that serve as both ends. Packets of one NIC have one clock. Messages that connect two
// NICs need equal clocks, and so does a check that compares times of several taps.
func (v *follower[S]) need() evidence.Need {
	n := evidence.Need{Packets: filter.Transport(evidence.ProtoUDP, 0, infiniband.Port),
		Clocks: v.timed || v.learned}
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

// addAbsent adds violations that hold unless a packet is missing. They are unclear if packets were
// cut off, if answers could not be assigned, or if the taps are not at NICs.
func (v *follower[S]) addAbsent(f *evidence.Finding, lines ...string) {
	if v.cut > 0 || v.orphans > 0 || v.foreign() {
		f.Unclear = append(f.Unclear, lines...)
	} else {
		f.Absent = append(f.Absent, lines...)
	}
}

// addUnlessLost adds violations of nodes as addAbsent does. The violations would also appear if the nodes'
// kernels lost packets before the taps of their NICs. atLeast has, by tap, the least number of lost packets
// that would explain the violations. If no fewer packets were lost there, the violations are unclear.
func (v *follower[S]) addUnlessLost(f *evidence.Finding, atLeast map[*evidence.Tap]uint64, lines ...string) {
	explained := len(atLeast) > 0
	var reasons []string
	for _, tap := range v.capture.Taps {
		lost, why := v.capture.LostBefore(tap)
		if atLeast[tap] == 0 {
			continue
		}
		reasons = append(reasons, why...)
		if explained = explained && lost >= atLeast[tap]; lost > 0 && lost < atLeast[tap] {
			reasons = append(reasons, plural.Text("%d packets were lost before the tap of %s, and at least "+
				"%d are missing", lost, tap.Name, atLeast[tap]))
		}
	}
	if explained {
		f.Unclear = append(append(f.Unclear, reasons...), lines...)
		return
	}
	v.addAbsent(f, append(lines, reasons...)...)
}

// end returns when a flow ended: at the request to end its connection, or with the recording at its NIC.
func (v *follower[S]) end(f *flow[S]) int64 {
	end := v.capture.EndOf(f.nic)
	if f.closing {
		return min(f.closed, end)
	}
	return end
}

// doubts returns reasons why packets that were not seen may have existed.
func (v *follower[S]) doubts() (lines []string) {
	add := func(count uint64, what string) {
		if count > 0 {
			lines = append(lines, plural.Count(count, what))
		}
	}
	add(v.unread, "packets of RoCEv2 cannot be read: cut off by the capture, or damaged")
	add(v.orphans, "answers cannot be matched to a queue pair")
	add(v.anew, "flows continued with an unrelated PSN, as after a queue pair is created again")
	if v.full {
		lines = append(lines, "more flows than the check can follow")
	}
	return lines
}
