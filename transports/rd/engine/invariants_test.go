package engine

import (
	"fmt"

	"railbed/internal/wire"
)

// consistent returns an error if the engine's state contradicts itself, or exceeds its bounds.
func (e *Engine) consistent() error {
	if len(e.later) > len(e.peers)*wire.RDEngines || e.controls.count > len(e.controls.entries) ||
		len(e.active) > len(e.peers) {
		return fmt.Errorf("%d controls, %d sequence spaces active of %d peers", e.controls.count,
			len(e.active), len(e.peers))
	}
	owing := 0
	for in := e.owing; in != nil; in = in.after {
		if owing++; owing > len(e.peers)*wire.RDEngines || !in.owes {
			return fmt.Errorf("the list of those that owe acknowledgements is not one")
		}
	}
	for _, p := range e.peers {
		if p.out != nil {
			if err := p.out.consistent(); err != nil {
				return fmt.Errorf("to peer %d: %w", p.number, err)
			}
		}
		for _, in := range p.in {
			if in == nil {
				continue
			}
			if err := in.consistent(); err != nil {
				return fmt.Errorf("from peer %d, engine %d: %w", p.number, in.port, err)
			}
		}
	}
	return nil
}

func (o *outbound) consistent() error {
	if span := o.next.From(o.una); span < 0 || span > Window {
		return fmt.Errorf("packets %d to %d are outstanding", o.una, o.next)
	}
	if o.last-o.first > Messages {
		return fmt.Errorf("messages %d to %d are outstanding", o.first, o.last)
	}
	var states [done + 1]int
	open := make(map[uint32]uint32)
	for i := range PSN(Window) {
		k := &o.packets[(o.una + i).slot()]
		if inside := int32(i) < o.next.From(o.una); inside == (k.state == free) {
			return fmt.Errorf("packet %d has state %d, and %d to %d are outstanding", o.una+i, k.state, o.una,
				o.next)
		}
		states[k.state]++
		if k.state != done && k.state != free {
			open[k.message]++
			if m := &o.messages[k.message%Messages]; m.Number != k.message ||
				!m.over && k.position+uint32(k.size) > m.total {
				return fmt.Errorf("packet %d is of message %d, whose place %d has", o.una+i, k.message,
					m.Number)
			}
		}
	}
	for state, l := range map[packetState]*list{inFlight: &o.flight, isLost: &o.lost, isBusy: &o.busy} {
		if l.count != states[state] {
			return fmt.Errorf("%d packets have state %d, and %d are in its list", states[state], state,
				l.count)
		}
		var order uint64
		at := l.first
		for i := range l.count {
			k := &o.packets[at]
			if k.state != state || i == l.count-1 && at != l.final || state == inFlight && k.order <= order {
				return fmt.Errorf("the list of state %d is broken at %d", state, i)
			}
			order, at = k.order, k.after
		}
	}
	for number := o.first; number != o.last; number++ {
		m := &o.messages[number%Messages]
		if m.packets != open[number] || m.Number != number || m.missing > m.total && !m.over ||
			m.over && m.packets == 0 && m.whole() && number == o.first {
			return fmt.Errorf("message %d: %+v, %d packets are open", number, m, open[number])
		}
	}
	return nil
}

func (in *inbound) consistent() error {
	if span := in.highest.From(in.next); span < 0 || span > Window || len(in.echoes) > wire.RDMaxEchoes {
		return fmt.Errorf("packets %d to %d came, %d echoes", in.next, in.highest, len(in.echoes))
	}
	for i := range PSN(Window) {
		if psn := in.next + i; in.has(psn) && (i == 0 || psn.From(in.highest) >= 0) {
			return fmt.Errorf("packet %d has come, and next is %d, highest %d", psn, in.next, in.highest)
		}
	}
	if in.messages[in.message%Messages].stage == over {
		return fmt.Errorf("message %d is over and not forgotten", in.message)
	}
	for i := range in.messages {
		if m := &in.messages[i]; uint64(m.have)+uint64(m.missing) > uint64(m.total) ||
			m.stage == open && m.total > 0 && m.have+m.missing == m.total {
			return fmt.Errorf("message in place %d: %+v", i, m)
		}
	}
	return nil
}
