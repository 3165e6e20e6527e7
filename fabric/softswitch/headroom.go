package softswitch

import (
	"fmt"
	"sort"
	"time"

	"railbed/fabric/softswitch/queue"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/plan"
)

// kept is the buffer that a port reserves in its switch for lossless priorities.
type kept struct {
	// own are the thresholds for the port's link, worst the link for which the thresholds in force
	// are made. Until at least shrinks, worst may need more than the port's link.
	own     queue.Thresholds
	worst   plan.Hop
	shrinks clock.Time
	// above is by how much GFC's thresholds exceed own; from there they are lowered.
	above units.Bytes
}

// keeping is a port's reservation when a link of its switch changes. Own are the final thresholds.
// At covers frames of both the old and the new link, for as long as it takes to settle.
type keeping struct {
	port    *port
	link    plan.Hop
	own, at queue.Thresholds
	above   units.Bytes
	settled time.Duration
}

// hop returns the port's current link.
func (p *port) hop() plan.Hop {
	return p.hopOf(p.far.medium.Direction(), p.medium.Direction())
}

// hopOf returns the port's link with other directions.
func (p *port) hopOf(in, out plan.Direction) plan.Hop {
	return plan.Hop{MTU: p.link.plan.MTU, In: in, Out: out, ToNode: p.far.station.nic}
}

// keepPlanned records the reservations of a switch's ports from the plan.
func (s *station) keepPlanned() {
	for i, planned := range s.engine.plan.Switches[s.index].Ports {
		k := &s.ports[i].kept
		k.worst = s.ports[i].hop()
		if planned.PFC != nil {
			k.own.PFC = *planned.PFC
		}
		if planned.GFC != nil {
			k.own.GFC = *planned.GFC
		}
	}
}

// needs returns the thresholds of all ports of a switch for the given links.
func (s *station) needs(links []plan.Hop) []queue.Thresholds {
	planned, needs := &s.engine.plan.Switches[s.index], make([]queue.Thresholds, len(links))
	if planned.Soft.PFC != nil {
		for i := range needs {
			needs[i].PFC = links[i].PFC(*planned.Ports[i].PFC)
		}
	}
	if planned.Soft.GFC != nil {
		given := make([]plan.PortGFC, len(links))
		for i := range given {
			given[i] = *planned.Ports[i].GFC
		}
		for i, gfc := range planned.Soft.GFC.Ports(given, links) {
			needs[i].GFC = gfc
		}
	}
	return needs
}

// keepFor returns the reservations of a switch's ports when some of their links change, and how
// many spare bytes they need. Frames and pauses may be in flight that were sent at the old rate and
// have the old delay. As long as these can matter, a port reserves enough for both. A port with an
// unchanged link is included if its GFC thresholds depend on a changed node link.
func (s *station) keepFor(others map[*port]plan.Hop) (all []keeping, need int64) {
	links := make([]plan.Hop, len(s.ports))
	for i, p := range s.ports {
		links[i] = p.hop()
		if other, changes := others[p]; changes {
			links[i] = other
		}
	}
	soft := s.engine.plan.Switches[s.index].Soft
	for i, own := range s.needs(links) {
		p, to := s.ports[i], links[i]
		if was := &p.kept.own.GFC; to.Alike(p.hop()) && own.GFC.B1 == was.B1 && own.GFC.BM == was.BM {
			continue
		}
		one, busy := keeping{port: p, link: to, own: own, at: own}, max(p.free.Sub(s.engine.now), 0)
		if soft.GFC != nil {
			force := s.memory.Thresholds(i).GFC
			room := force.Limit + units.Bytes(
				max(s.memory.Spare()-need, 0)/int64(max(len(soft.GFC.Priorities), 1)))
			now := plan.Moment{Waits: units.Bytes(s.memory.MostGently(i)), Room: room, Busy: busy}
			one.at.GFC, one.above, one.settled = p.kept.worst.DuringGFC(to, own.GFC, force, now)
		}
		if soft.PFC != nil {
			var settled time.Duration
			one.at.PFC, settled = p.kept.worst.During(to, s.memory.Thresholds(i).PFC, busy)
			one.settled = max(one.settled, settled)
		}
		need += s.memory.Needs(i, one.at)
		all = append(all, one)
	}
	return all, need
}

// keepFor returns the reservations of the switches at the ends of a link when the link changes, or
// why they do not fit. It changes nothing.
func (e *Engine) keepFor(l *link, aToB, bToA plan.Direction) (all []keeping, err error) {
	others := map[*port]plan.Hop{l.a: l.a.hopOf(bToA, aToB), l.b: l.b.hopOf(aToB, bToA)}
	for _, p := range []*port{l.a, l.b} {
		s := p.station
		if s.memory == nil || p == l.b && s == l.a.station {
			continue
		}
		these, need := s.keepFor(others)
		if need > s.memory.Spare() {
			return nil, p.noRoom(others[p], these, need)
		}
		all = append(all, these...)
	}
	return all, nil
}

// keep applies the reservation to the port.
func (k *keeping) keep() {
	p := k.port
	p.station.memory.Set(p.engine.now, p.number, k.at)
	p.kept.worst, p.kept.own, p.kept.above = p.kept.worst.Worse(k.link), k.own, k.above
	p.shrinkAt(p.engine.now.Add(k.settled))
}

// shrinkAt plans when to reduce the reservation again.
func (p *port) shrinkAt(at clock.Time) {
	p.kept.shrinks = max(p.kept.shrinks, at)
	p.engine.events.push(event{at: p.kept.shrinks, kind: shrinks, port: int32(p.index)})
}

// shrink reduces the port's reservation to the current needs of its link, once no more bytes are
// waiting.
func (p *port) shrink() {
	e := p.engine
	if e.now < p.kept.shrinks { // the link has changed again meanwhile
		return
	}
	if p.kept.above > 0 {
		p.sink()
		return
	}
	if p.station.memory.Shrink(p.number, p.kept.own) {
		p.kept.worst = p.hop()
	} else {
		p.shrinkAt(e.now.Add(patience))
	}
}

// patience is the time between two checks whether a queue has become shorter.
const patience = time.Millisecond

// sink lowers GFC's thresholds towards the needs of the port's link. They fall at a sixteenth of
// its rate, which the senders that share it can follow, or at once to the number of waiting bytes.
func (p *port) sink() {
	e, k, link, memory := p.engine, &p.kept, p.hop(), p.station.memory
	step := max(1, units.Bytes(uint64(link.In.Rate)/8/16*uint64(patience)/uint64(time.Second)))
	waits := units.Bytes(memory.MostGently(p.number))
	k.above = min(k.above-min(k.above, step), waits-min(waits, k.own.GFC.B1))
	at := k.own
	at.GFC = at.GFC.Above(k.above)
	memory.Set(e.now, p.number, at)
	next := patience
	if k.above == 0 {
		_, _, settled := link.DuringGFC(link, k.own.GFC, k.own.GFC, plan.Moment{})
		next = max(next, settled)
	}
	p.shrinkAt(e.now.Add(next))
}

// noRoom returns the error for a link that needs more buffer than is spare.
func (p *port) noRoom(to plan.Hop, all []keeping, need int64) error {
	memory, own := p.station.memory, int64(0)
	for _, one := range all {
		own += memory.Needs(one.port.number, one.own)
	}
	fits := "no delay is short enough at these rates"
	if own <= memory.Spare() {
		fits = "frames in flight at the old rates and delays need most of it: change the direction in " +
			"which the port sends first, and delays before rates"
	} else if delay := p.mostDelay(to); delay >= 0 {
		fits = fmt.Sprintf("at these rates the delays of both directions may add up to %v", delay)
	}
	return fmt.Errorf("keep buffer for lossless priorities at %s: want %s more, have %s: %s", p.name,
		units.Bytes(need), units.Bytes(memory.Spare()), fits)
}

// mostDelay returns the longest delay of both directions of a port's link together at the new
// rates, or a negative value if no delay is short enough. The outgoing direction's part of it is at
// most its current delay.
func (p *port) mostDelay(to plan.Hop) time.Duration {
	now := time.Duration(p.medium.Direction().Delay)
	shortest := sort.Search(int(to.Feedback()), func(delay int) bool { // the shortest that does not fit
		in := plan.Direction{Rate: to.In.Rate, Overhead: to.In.Overhead}
		out := plan.Direction{Rate: to.Out.Rate, Overhead: to.Out.Overhead}
		out.Delay = units.Duration(min(time.Duration(delay), now))
		in.Delay = units.Duration(delay) - out.Delay
		_, need := p.station.keepFor(map[*port]plan.Hop{p: p.hopOf(in, out), p.far: p.far.hopOf(out, in)})
		return need > p.station.memory.Spare()
	})
	return time.Duration(shortest) - 1
}

// thresholds returns the port's thresholds in force; they are zero without lossless priorities.
func (p *port) thresholds() queue.Thresholds {
	if p.station.memory == nil {
		return queue.Thresholds{}
	}
	return p.station.memory.Thresholds(p.number)
}
