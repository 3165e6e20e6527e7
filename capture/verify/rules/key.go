package rules

import (
	"fmt"
	"net/netip"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// key identifies the packets that a rule judges together. Fields that the rule does not tell apart are
// zero.
type key struct {
	tap     int
	flow    int
	message message
	pair    [2]string
	rank    int
}

// message is a message of rd, or of RoCEv2.
type message struct {
	source, destination netip.Addr
	life                uint64
	engines             uint32 // of rd, or the destination's queue pair
	number              uint32 // of rd, or the PSN of the message's first packet
}

// keysMost bounds the keys of a rule, and thereby its memory.
const keysMost = 1 << 16

// keyer makes the keys of packets.
type keyer struct {
	per    string
	ported bool // the packets of each port have keys of their own, whatever "per" says
	roles  *evidence.Roles
	nodes  map[netip.Addr]evidence.Owner
	flows  map[int]*evidence.Flow
	// sends are flows of steps of which no packet was recorded. Their numbers in keys are negative.
	sends []*evidence.Send
	taps  *evidence.Capture
	// starts are the PSNs of the first packets of messages of RoCEv2, by port and queue pair.
	starts map[queue]infiniband.PSN
	// given counts packets that have a key. hidden counts packets of which the message is not known, and
	// forgotten the packets of keys beyond the bound.
	given, hidden, forgotten uint64
}

// queue is a queue pair as a port sees it.
type queue struct {
	tap, flow int
	pair      infiniband.QPN
}

func newKeyer(r *spec.Rule) (keyer, error) {
	switch r.Per {
	case "", spec.PerFlow, spec.PerMessage, spec.PerPort, spec.PerPair, spec.PerRank:
		return keyer{per: r.Per, flows: map[int]*evidence.Flow{}, starts: map[queue]infiniband.PSN{}}, nil
	}
	return keyer{}, fmt.Errorf("per %q: want flow, message, port, pair or rank", r.Per)
}

func (k *keyer) begin(c *evidence.Capture) { k.nodes, k.taps = evidence.OwnersOf(c.Plan), c }

// of returns the key of a packet. A packet may have none: it has no IP header or is of no message.
func (k *keyer) of(p *evidence.Packet) (of key, has bool) {
	if k.ported || k.per == spec.PerPort {
		of.tap = p.Tap.Index + 1
	}
	switch k.per {
	case spec.PerFlow:
		if p.Flow == nil {
			return of, false
		}
		of.flow = p.Flow.Index + 1
		if len(k.flows) < keysMost {
			k.flows[of.flow] = p.Flow
		}
	case spec.PerPair:
		if p.Flow == nil {
			return of, false
		}
		of.pair = [2]string{k.node(p.Flow.Src.Addr()), k.node(p.Flow.Dst.Addr())}
	case spec.PerMessage:
		of.message, has = k.messageOf(p)
		return of, has
	case spec.PerRank:
		role := k.roles.Of(p)
		of.rank = role.Rank + 1
		return of, role.Relevant && role.Rank >= 0
	}
	return of, true
}

func (k *keyer) node(addr netip.Addr) string {
	if owner, known := k.nodes[addr]; known {
		return owner.Node
	}
	return addr.String()
}

// messageOf returns the message of which a packet carries data.
func (k *keyer) messageOf(p *evidence.Packet) (m message, has bool) {
	if p.Flow == nil {
		return m, false
	}
	m.source, m.destination = p.Flow.Src.Addr(), p.Flow.Dst.Addr()
	switch {
	case p.RD != nil && p.RD.Data.Total > 0:
		m.life, m.number = p.RD.Life, uint32(p.RD.Data.Message)
		m.engines = uint32(p.RD.Source)<<8 | uint32(p.RD.Destination)
		return m, true
	case p.RoCE != nil && p.RoCE.BTH.Opcode.HasPayload():
		at := queue{p.Tap.Index, p.Flow.Index, p.RoCE.BTH.DestQP}
		if p.RoCE.BTH.Opcode.Starts() {
			if _, known := k.starts[at]; !known && len(k.starts) >= keysMost {
				k.forgotten++
				return m, false
			}
			k.starts[at] = p.RoCE.BTH.PSN
		}
		start, known := k.starts[at]
		m.engines, m.number = uint32(p.RoCE.BTH.DestQP), uint32(start)
		if !known {
			k.hidden++
		}
		return m, known
	case p.RD != nil && p.RD.Type == wire.RDData && !p.RD.Clear(), p.RDFault == evidence.RDCut,
		p.RoCEFault == evidence.RoCECut:
		k.hidden++
	}
	return m, false
}

// name returns a key for people.
func (k *keyer) name(of key) (text string) {
	if of.tap > 0 {
		text = " at " + k.taps.Taps[of.tap-1].Name
	}
	switch {
	case of.flow > 0:
		if f := k.flows[of.flow]; f != nil {
			text += fmt.Sprintf(" of %v > %v (protocol %d)", f.Src, f.Dst, f.Proto)
		}
	case of.flow < 0:
		s := k.sends[-1-of.flow]
		text += fmt.Sprintf(" of %v > %v (%s)", s.Src, s.Dst, s.Step)
	case of.pair != [2]string{}:
		text += fmt.Sprintf(" of %s > %s", of.pair[0], of.pair[1])
	case of.message != message{}:
		text += fmt.Sprintf(" of message %d from %v to %v", of.message.number, of.message.source,
			of.message.destination)
	case of.rank > 0:
		text += " of " + k.roles.Workload.Ranks[of.rank-1].Title()
	}
	return text
}

// table holds a state for each key, in the order of the keys' first packets.
type table[S any] struct {
	keyer  *keyer
	states map[key]*S
	keys   []key
	pool   []S // memory of states
}

func newTable[S any](k *keyer) table[S] { return table[S]{keyer: k, states: map[key]*S{}} }

// all returns the keys. Each rank of the workload has one, also a rank that sent nothing.
func (t *table[S]) all() []key {
	if t.keyer.per == spec.PerRank && !t.keyer.ported {
		for i := range t.keyer.roles.Workload.Ranks {
			if of := (key{rank: i + 1}); t.states[of] == nil {
				t.states[of] = new(S)
				t.keys = append(t.keys, of)
			}
		}
	}
	return t.keys
}

// of returns the state of a packet's key, or nil if the packet has no key or there are too many.
func (t *table[S]) of(p *evidence.Packet) *S {
	of, has := t.keyer.of(p)
	if !has {
		return nil
	}
	t.keyer.given++
	s := t.states[of]
	if s == nil {
		if len(t.keys) >= keysMost {
			t.keyer.forgotten++
			return nil
		}
		if len(t.pool) == 0 {
			t.pool = make([]S, min(max(1, len(t.keys)), 1024))
		}
		s, t.pool = &t.pool[0], t.pool[1:]
		t.states[of] = s
		t.keys = append(t.keys, of)
	}
	return s
}
