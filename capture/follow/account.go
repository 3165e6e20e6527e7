package follow

import (
	"cmp"
	"slices"

	"railbed/plan"
)

// line is a tap and a priority that can be paused.
type line struct {
	tap      int
	priority int8
}

// span is a time in nanoseconds since 1970.
type span struct{ from, to int64 }

// lane is the direction of a link in which a port sends.
type lane struct {
	far         int // the tap at the other end, -1 if there is none
	known       bool
	rate, delay int64 // bit/s, 0 for no limit; ns of the capture's clock
	overhead    int64 // bytes
	dilation    int64
}

// serialise returns the time that a frame takes on the wire.
func (w *lane) serialise(length int) int64 {
	if !w.known || w.rate == 0 {
		return 0
	}
	bits := float64(int64(length)+w.overhead) * 8
	return int64(bits * 1e9 / float64(w.rate) * float64(w.dilation))
}

// lanesOf returns the links behind the taps.
func lanesOf(p *plan.Plan, taps []Tap, dilation int64) []lane {
	at := map[plan.End]int{}
	for i, tap := range taps {
		at[plan.End{Node: tap.Node, Port: tap.Port}] = i
	}
	lanes := make([]lane, len(taps))
	for i := range lanes {
		lanes[i].far = -1
	}
	if p == nil {
		return lanes
	}
	set := func(from, to plan.End, d plan.Direction) {
		i, known := at[from]
		if !known {
			return
		}
		far, seen := at[to]
		if !seen {
			far = -1
		}
		lanes[i] = lane{far: far, known: true, rate: int64(d.Rate), delay: int64(d.Delay) * dilation,
			overhead: int64(d.Overhead), dilation: dilation}
	}
	for i := range p.Links {
		link := &p.Links[i]
		set(link.A, link.B, link.AToB)
		set(link.B, link.A, link.BToA)
	}
	return lanes
}

// Hop is the time between two records of a packet.
type Hop struct {
	From, To Sight
	// Link is set if the hop is over a link. Otherwise it is within a node or switch, or unseen.
	Link bool
	Account
}

// Hops returns the hops of a packet.
func (r *Recording) Hops(packet int) []Hop { return r.hops(r.Sights(packet), r.Packets[packet].Length) }

func (r *Recording) hops(sights []Sight, length int) (hops []Hop) {
	r.settle(sights, length)
	priority := priorityOf(sights)
	for i := 1; i < len(sights); i++ {
		from, to := &sights[i-1], &sights[i]
		hop := Hop{From: *from, To: *to}
		took := to.Due - from.Due
		hop.Account[Emulator] = (to.Time - to.Due) - (from.Time - from.Due)
		switch {
		case r.crosses(from, to):
			hop.Link = true
			r.cross(&hop, priority, took, length)
			r.addWait(hops, &hop, length)
		case r.Taps[from.Tap].Node == r.Taps[to.Tap].Node:
			r.wait(&hop.Account, line{to.Tap, priority}, from.Due, to.Due)
		default:
			hop.Account[Unseen] = took
		}
		hops = append(hops, hop)
	}
	return hops
}

// settle sets the time at which a packet was due at a NIC, which records no lateness. A frame from a soft
// switch is due when it has crossed the link.
func (r *Recording) settle(sights []Sight, length int) {
	for i := 1; i < len(sights); i++ {
		from, to := &sights[i-1], &sights[i]
		if _, held := r.heldBack[from.Number]; held {
			continue // by an unknown time
		}
		if from.timed && !to.timed && r.crosses(from, to) {
			w := &r.lanes[from.Tap]
			to.Due = min(to.Time, from.Due+w.serialise(length)+w.delay)
		}
	}
}

// crosses reports whether two records are at the two ends of a link.
func (r *Recording) crosses(from, to *Sight) bool {
	return from.Out && !to.Out && !to.Event && r.lanes[from.Tap].far == to.Tap
}

// cross accounts for a link.
func (r *Recording) cross(hop *Hop, priority int8, took int64, length int) {
	w := &r.lanes[hop.From.Tap]
	serialise := min(max(took, 0), w.serialise(length))
	propagate := min(max(took-serialise, 0), w.delay)
	hop.Account[Serialise], hop.Account[Propagate] = serialise, propagate
	rest := took - serialise - propagate
	held, is := r.heldBack[hop.From.Number]
	switch {
	case is: // after it had left the queue, which the NIC has behind its tap
		left := min(max(held.due, hop.From.Due), hop.From.Due+max(rest, 0))
		r.wait(&hop.Account, line{hop.From.Tap, priority}, hop.From.Due, left)
		hop.Account[Fault] = rest - (left - hop.From.Due)
	case r.Taps[hop.From.Tap].NIC && hop.To.timed:
		// The emulated NIC holds the frame behind the tap.
		r.wait(&hop.Account, line{hop.From.Tap, priority}, hop.From.Due, hop.From.Due+rest)
	case hop.From.timed && hop.To.timed:
		hop.Account[Propagate] += rest // jitter
	default:
		hop.Account[Emulator] += rest
	}
}

// addWait accounts for links of kernel switches, which hold a packet before the tap of the sending port. What
// the link took less than its rate and delay is in the wait before it.
func (r *Recording) addWait(before []Hop, hop *Hop, length int) {
	if hop.From.timed || len(before) == 0 {
		return
	}
	w, waited := &r.lanes[hop.From.Tap], &before[len(before)-1].Account
	for _, part := range []struct {
		Part
		want int64
	}{{Serialise, w.serialise(length)}, {Propagate, w.delay}} {
		moved := min(max(part.want-hop.Account[part.Part], 0), max(waited[Queue], 0))
		waited[Queue] -= moved
		waited[part.Part] += moved
	}
}

// priorityOf returns the priority of a packet's queues, -1 if it was not recorded.
func priorityOf(sights []Sight) int8 {
	for i := range sights {
		if sights[i].Queue >= 0 {
			return sights[i].Queue
		}
	}
	return -1
}

// wait accounts for a wait at a port.
func (r *Recording) wait(a *Account, at line, from, to int64) {
	a[Pause] = r.pausedFor(at, from, to)
	a[Queue] = to - from - a[Pause]
}

// pausedFor returns for how long of a time a port had to hold a priority.
func (r *Recording) pausedFor(at line, from, to int64) (ns int64) {
	spans := r.paused[at]
	first, _ := slices.BinarySearchFunc(spans, from, func(s span, at int64) int {
		if s.to <= at {
			return -1
		}
		return 1
	})
	for _, s := range spans[first:] {
		if s.from >= to {
			break
		}
		ns += min(s.to, to) - max(s.from, from)
	}
	return ns
}

// pause adds a pause that begins. A pause of no length ends the pause before it.
func (r *Recording) pause(at line, from, length int64) {
	spans := r.paused[at]
	if last := len(spans) - 1; last >= 0 && spans[last].to > from {
		if length > 0 && spans[last].from <= from {
			spans[last].to = from + length
			return
		}
		spans[last].to = max(from, spans[last].from)
	}
	if length > 0 {
		r.paused[at] = append(spans, span{from, from + length})
	}
}

// account fills in the messages' times.
func (r *Recording) account() {
	for i := range r.Messages {
		m := &r.Messages[i]
		r.place(m)
		if m.Critical < 0 {
			continue
		}
		if m.round > 0 {
			r.accountExchange(m)
			continue
		}
		var busy, again int64
		times := r.recoveries(m)
		last := times[len(times)-1]
		for _, one := range times[:len(times)-1] {
			again += one.to - one.from
		}
		for _, p := range m.Packets {
			q := &r.Packets[p]
			if at := r.sights[q.first]; at.Time < last.from && !q.Again {
				busy += r.lanes[at.Tap].serialise(q.Length)
			}
		}
		before := last.from - m.Start
		m.Account[Serialise] = min(busy, before)
		again = min(again, before-m.Account[Serialise])
		m.Account[Host] = before - m.Account[Serialise] - again
		m.Account[Recover] = again + last.to - last.from
		for _, hop := range r.arrival(m.Critical) {
			m.Account.Add(&hop.Account)
		}
	}
}

// way returns the hops that decided when a message was placed.
func (r *Recording) way(m *Message) []Hop {
	if m.round > 0 {
		return append(r.arrival(r.contributed(m)), r.arrival(m.Critical)...)
	}
	return r.arrival(m.Critical)
}

// arrival returns the hops of a packet up to the record at which it arrived.
func (r *Recording) arrival(packet int) []Hop {
	sights := r.Sights(packet)
	for i := range sights {
		if sights[i].Time == r.Packets[packet].Arrived && r.arrives(&r.Packets[packet], &sights[i]) {
			return r.hops(sights[:i+1], r.Packets[packet].Length)
		}
	}
	return nil
}

// place finds the packet that brought the last missing byte, and counts.
func (r *Recording) place(m *Message) {
	m.Critical, m.Start = -1, r.Sent(int(m.Packets[0]))
	order := make([]int32, 0, len(m.Packets))
	sent := map[int64]bool{}
	for _, p := range m.Packets {
		q := &r.Packets[p]
		m.Start = min(m.Start, r.Sent(int(p)))
		if sent[q.bytes.from] {
			m.Again++
			q.Again = true
		}
		sent[q.bytes.from] = true
		if q.Arrived == 0 {
			if r.Sees(m.Flow, r.Sent(int(p))) {
				m.Lost++
			}
			continue
		}
		if !q.Discarded() {
			order = append(order, p)
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		return cmp.Compare(r.Packets[a].Arrived, r.Packets[b].Arrived)
	})
	var have []span
	for _, p := range order {
		q := &r.Packets[p]
		have = join(have, span{max(q.bytes.from, m.bytes.from), q.bytes.to})
		if m.bytes.to > 0 && have[0].from <= m.bytes.from && have[0].to >= m.bytes.to {
			m.Placed, m.Critical = q.Arrived, int(p)
			return
		}
	}
}

// join adds a range to ranges that are in order and disjoint.
func join(have []span, s span) []span {
	at, _ := slices.BinarySearchFunc(have, s.from, func(h span, from int64) int {
		if h.to < from {
			return -1
		}
		return 1
	})
	end := at
	for ; end < len(have) && have[end].from <= s.to; end++ {
		s.from, s.to = min(s.from, have[end].from), max(s.to, have[end].to)
	}
	return slices.Replace(have, at, end, s)
}
