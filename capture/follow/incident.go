package follow

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"railbed/capture/report"
	"railbed/plan"
)

// incident is a time in which a step changed links or nodes, or in which a link was down.
type incident struct {
	span
	report.Act
	fatal bool // the programs of its nodes end
}

// nodeEffects are the effects of faults of nodes that make their programs send late. A clock or a full disk
// alone does not. A NIC that is down does so, too.
var nodeEffects = map[string]string{
	"crash": "ended its programs", "hang": "stopped its programs",
	"slow": "limited the processor time of its programs", "memory": "limited its memory",
	"queue-pairs": "broke its queue pairs", report.NICDownKind: "took its NIC down",
}

// incidentsOf returns the incidents of a run's steps. A fault of nodes that the file gives no end lasts as
// long as the recording.
func incidentsOf(acts []report.Act) (all []incident) {
	for _, a := range acts {
		one := incident{span{a.From.UnixNano(), math.MaxInt64}, a, a.Kind == "crash"}
		if !a.To.IsZero() {
			one.to = a.To.UnixNano()
		}
		all = append(all, one)
	}
	return all
}

// downs returns the incidents in which a link was down: those of steps, and the times around the packets that
// links lost because they were down. Such a time is from the last packet that crossed the link before to the
// first one after.
func (r *Recording) downs() (all []incident) {
	for _, one := range r.incidents {
		if len(one.Links) > 0 && one.Kind != report.SetKind {
			all = append(all, one)
		}
	}
	drops, crossed := map[string][]int64{}, map[string][]int64{}
	r.eachSight(func(s, _ *Sight) {
		if s.Verdict == "drop" && s.Reason == linkDown {
			link := r.Taps[s.Tap].Link
			drops[link] = append(drops[link], s.Time)
		}
	})
	if len(drops) == 0 {
		return all
	}
	r.eachSight(func(s, before *Sight) {
		if link := r.Taps[s.Tap].Link; before != nil && drops[link] != nil && r.crosses(before, s) {
			crossed[link] = append(crossed[link], s.Time)
		}
	})
	for link, times := range drops {
		slices.Sort(crossed[link])
		for _, at := range times {
			i, _ := slices.BinarySearch(crossed[link], at)
			one := incident{span: span{r.Start, r.End}, Act: report.Act{Kind: "down", Links: []string{link}}}
			if i > 0 {
				one.from = crossed[link][i-1]
			}
			if i < len(crossed[link]) {
				one.to = crossed[link][i]
			}
			if len(all) == 0 || all[len(all)-1].span != one.span || all[len(all)-1].Links[0] != link {
				all = append(all, one)
			}
		}
	}
	return all
}

// eachSight passes each record of a packet, and the one before it or nil.
func (r *Recording) eachSight(take func(s, before *Sight)) {
	for i := range r.Packets {
		var before *Sight
		for at := r.Packets[i].first; at >= 0; at = r.sights[at].next {
			take(&r.sights[at], before)
			before = &r.sights[at]
		}
	}
}

// Reasons of drops that a link that is down causes.
const (
	linkDown = "link-down"
	noRoute  = "no-route"
)

// downAt returns the link that was down when a packet was lost, as a cause, if that explains the loss. The
// link is then at the port that recorded the loss or at its switch, or at the packet's sender or receiver.
// Without such a link the cause is empty.
func (w *why) downAt(p *Packet, s *Sight) (at cause) {
	if s.Verdict == "drop" && s.Reason != linkDown && s.Reason != noRoute {
		return at
	}
	if w.downs == nil {
		w.downs = append([]incident{}, w.r.downs()...)
	}
	tap := &w.r.Taps[s.Tap]
	near := []string{tap.Node}
	if p.Flow >= 0 {
		near = append(near, w.r.Flows[p.Flow].From, w.r.Flows[p.Flow].To)
	}
	for _, one := range w.downs {
		if s.Time < one.from || s.Time > one.to {
			continue
		}
		for _, link := range one.Links {
			ends := w.r.links[link]
			if link == tap.Link || s.Reason != linkDown &&
				(slices.Contains(near, ends[0]) || slices.Contains(near, ends[1])) {
				return one.cause(link)
			}
		}
	}
	return at
}

// cause returns the incident as a cause at a link or node.
func (i *incident) cause(where string) cause {
	at := cause{part: Recover, tap: -1, node: where, what: "the link was down"}
	switch {
	case i.Kind == report.NICDownKind:
		at.what = i.NIC + " was down: a program in " + i.Nodes[0] + " took it down"
		if at.by = i.NIC; slices.Contains(i.Nodes, where) {
			at.part = Host
		}
		if i.Step != "" {
			at.what, at.injected = at.what+fmt.Sprintf(", by the step %q", i.Step), true
		}
	case slices.Contains(i.Nodes, where):
		at.part, at.injected, at.by = Host, true, byFault+i.Fault
		at.what = at.by + " " + nodeEffects[i.Kind]
	case i.Fault != "":
		at.what += ", because fault " + i.Fault + " " + map[bool]string{true: "crashed " +
			strings.Join(i.Nodes, ", "), false: "rebooted a switch"}[i.Kind == "crash"]
		at.injected, at.by = true, byFault+i.Fault
	case i.Step != "":
		at.what += fmt.Sprintf(", by the step %q", i.Step)
		at.injected = true
	}
	return at
}

// metAt returns the incident of a node that lasted for most of an extra time of a message, as a cause.
// Without one the cause is empty.
func (w *why) metAt(nodes []string, during span, extra int64) (at cause) {
	for i := range w.r.incidents {
		one := &w.r.incidents[i]
		lasted := min(during.to, one.to) - max(during.from, one.from)
		if lasted < 0 || lasted*2 < extra || nodeEffects[one.Kind] == "" ||
			one.Kind == report.NICDownKind && extra == 0 { // downAt compares the time of the loss
			continue
		}
		for _, node := range nodes {
			if slices.Contains(one.Nodes, node) {
				return one.cause(node)
			}
		}
	}
	return at
}

// during returns the time from a message's start to its arrival, or to the end of the recording.
func (w *why) during(m *Message) span { return span{m.Start, cmp.Or(m.Placed, w.r.End)} }

// idled returns the incident that fills most of a time in which no message was under way, as a cause.
func (w *why) idled(idle span) (at cause) {
	for i := range w.r.incidents {
		one := &w.r.incidents[i]
		if filled := min(idle.to, one.to) - max(idle.from, one.from); filled*2 <= idle.to-idle.from ||
			nodeEffects[one.Kind] == "" && len(one.Links) == 0 || one.Kind == report.SetKind {
			continue
		}
		if len(one.Nodes) > 0 {
			return one.cause(one.Nodes[0])
		}
		return one.cause(one.Links[0])
	}
	return at
}

// ended adds the faults that ended programs of senders, which then send no more messages that could be late.
func (w *why) ended(messages []int) {
	for i := range w.r.incidents {
		one := &w.r.incidents[i]
		for _, node := range one.Nodes {
			if at := one.cause(node); one.fatal && w.causes[at] == nil {
				w.endedAt(at, one, messages)
			}
		}
	}
}

func (w *why) endedAt(at cause, one *incident, messages []int) {
	last := -1
	for _, i := range messages {
		if m := &w.r.Messages[i]; w.r.Flows[m.Flow].From == at.node && m.Start <= one.to {
			last = i
		}
	}
	if last < 0 {
		return
	}
	w.add(at, last, 0, w.r.First(int(w.r.Messages[last].Packets[0])))
}

// reset returns the step that changed the settings of a tap's link in a time, as a cause of longer waits or
// transmissions. Without one the cause is empty.
func (w *why) reset(part Part, tap int, during span) (at cause) {
	for i := range w.r.incidents {
		one := &w.r.incidents[i]
		if one.Kind == report.SetKind && during.from <= one.to && during.to >= one.from &&
			slices.Contains(one.Links, w.r.Taps[tap].Link) {
			return cause{part: part, tap: tap, injected: true,
				what: fmt.Sprintf("the step %q changed the link", one.Step)}
		}
	}
	return at
}

// linkEnds returns the nodes at the ends of the links of a plan.
func linkEnds(p *plan.Plan) map[string][2]string {
	ends := map[string][2]string{}
	if p != nil {
		for i := range p.Links {
			ends[p.Links[i].Name] = [2]string{p.Links[i].A.Node, p.Links[i].B.Node}
		}
	}
	return ends
}
