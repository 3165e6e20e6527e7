package follow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"railbed/internal/units"
	"railbed/plan/topology"
)

// starter is a node that sent first after times in which no message was under way.
type starter struct {
	node     string
	waited   int64
	squares  float64 // of seconds
	times    int
	worst    int // message that began after the longest of these times
	most     int64
	from, to int64 // when the first and the last of these messages began
}

// idleTime is a time in which no message was under way, and the message that ended it.
type idleTime struct {
	span
	message int
}

// idleTimes returns the times between messages, in their order.
func (r *Recording) idleTimes(messages []int) (all []idleTime) {
	order := slices.Clone(messages)
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(r.Messages[a].Start, r.Messages[b].Start)
	})
	busy := int64(0) // until when some message is under way
	for _, i := range order {
		m := &r.Messages[i]
		if busy > 0 && m.Start > busy {
			all = append(all, idleTime{span{busy, m.Start}, i})
		}
		busy = max(busy, m.Start, m.Placed)
	}
	return all
}

// starters returns the nodes that ended times without any message, ordered by these times, and the sum of
// all of them. It adds causes for times that are longer than most others because of an incident.
func (w *why) starters(messages []int) (all []starter, idle int64) {
	r := w.r
	times := r.idleTimes(messages)
	lengths := make([]int64, len(times))
	for i, p := range times {
		lengths[i] = p.to - p.from
	}
	slices.Sort(lengths)
	at := map[string]int{}
	for _, p := range times {
		gap, usual := p.to-p.from, lengths[len(lengths)/2]
		m := &r.Messages[p.message]
		if met := w.idled(p.span); met.what != "" && gap > 2*usual+slack {
			w.addWith(met, p.message, gap-usual, r.First(int(m.Packets[0])), "no message under way")
			continue
		}
		node := r.Flows[m.Flow].From
		if node == "" {
			continue
		}
		n, known := at[node]
		if !known {
			n = len(all)
			at[node] = n
			all = append(all, starter{node: node, from: m.Start})
		}
		s := &all[n]
		s.waited += gap
		s.squares += time.Duration(gap).Seconds() * time.Duration(gap).Seconds()
		s.times++
		s.to = m.Start
		if gap > s.most {
			s.worst, s.most = p.message, gap
		}
		idle += gap
	}
	slices.SortFunc(all, func(a, b starter) int {
		return cmp.Or(cmp.Compare(b.waited, a.waited), topology.CompareNames(a.node, b.node))
	})
	return all, idle
}

// Time in which no message was under way is a cause from one part in so many on. Between operations programs
// compute, and within an operation they have only to send.
const (
	idleBetween = 5
	idleWithin  = 20
)

// late adds the time in which no message was under way, if it is long: then the programs kept the network
// waiting. It names the nodes that sent the next message.
func (w *why) late(messages []int) {
	all, idle := w.starters(messages)
	first, last := w.r.End, w.r.Start
	for _, i := range messages {
		m := &w.r.Messages[i]
		first, last = min(first, m.Start), max(last, m.Start, m.Placed)
	}
	if len(all) == 0 || idle < (last-first)/w.idle {
		return
	}
	s := &all[0]
	var waits []string
	for i, s := range all[:min(len(all), 6)] {
		cpus := ""
		if share := w.r.cpus[s.node]; share > 0 {
			cpus = fmt.Sprintf(" with %g CPUs", share)
		}
		waits = append(waits, fmt.Sprintf("%s%s (%d%%%s)", s.node, cpus, (s.waited*100+idle/2)/idle,
			map[bool]string{true: " of this time"}[i == 0]))
	}
	text := fmt.Sprintf("no message was under way for %s of %s, while the network waited for %s",
		units.Took(w.r.Own(idle)), units.Took(w.r.Own(last-first)), strings.Join(waits, ", "))
	c := &Cause{Part: Host.String(), What: text, Extra: w.r.Own(idle), From: w.r.Own(s.from - w.r.Start),
		Worst: w.r.Messages[s.worst].Number, Most: w.r.Own(s.most),
		Record: w.r.First(int(w.r.Messages[s.worst].Packets[0])), at: cause{part: Host, tap: -1,
			node: s.node, what: text}}
	for _, s := range all {
		c.Messages += s.times
		c.weight += s.squares
		c.Where = append(c.Where, s.node)
		c.From, c.To = min(c.From, w.r.Own(s.from-w.r.Start)), max(c.To, w.r.Own(s.to-w.r.Start))
	}
	c.between, c.focused = true, len(all) > 1 && s.waited*2 > idle
	w.causes[c.at] = c
}
