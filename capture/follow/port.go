package follow

import (
	"cmp"
	"fmt"
	"slices"

	"railbed/internal/units"
	"railbed/plan/topology"
)

// passage is a packet that a port sends.
type passage struct {
	at, due int64
	came    int64 // when the packet was due to enter the port's switch, 0 if that was not recorded
	packet  int
	queue   int8
}

// passed returns the packets that a port sent, in the order of time.
func (w *why) passed(port int) []passage {
	if all, known := w.passing[port]; known {
		return all
	}
	var all []passage
	for i := range w.r.Packets {
		came := int64(0)
		for _, s := range w.r.Sights(i) {
			switch {
			case w.r.Taps[s.Tap].Node != w.r.Taps[port].Node || s.Event || s.Verdict == "drop":
			case !s.Out:
				came = s.Due
			case s.Tap == port:
				all = append(all, passage{s.Time, s.Due, came, i, s.Queue})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b passage) int { return cmp.Compare(a.at, b.at) })
	w.passing[port] = all
	return all
}

// Bounds from which a port counts as slow. A packet shows a slow port if it waited, and if the gap to the
// previous packet is more than slowFactor times the gap at the link's rate. On a slow link this holds for
// nearly all packets that waited.
const (
	slowest    = 20 // packets
	slowShare  = 4  // one in so many of the packets that waited
	slowFactor = 1.5
)

// pace says that a port sent more slowly than its link's rate while packets waited. If the port did not, pace
// returns "".
func (w *why) pace(port int) string {
	lane := &w.r.lanes[port]
	if !lane.known || lane.rate == 0 || !w.r.Taps[port].whole || w.r.Taps[port].NIC {
		return ""
	}
	all := w.passed(port)
	var waited, slow int
	var bits, took float64
	var from int64
	for i := 1; i < len(all); i++ {
		before, p := &all[i-1], &all[i]
		if p.came == 0 || p.came > before.due || w.r.pausedFor(line{port, p.queue}, before.due, p.due) > 0 {
			continue
		}
		waited++
		wants := lane.serialise(w.r.Packets[before.packet].Length)
		if gap := p.due - before.due; float64(gap) > slowFactor*float64(wants) {
			if slow++; slow == 1 {
				from = before.due
			}
			bits += float64(int64(w.r.Packets[before.packet].Length)+lane.overhead) * 8
			took += float64(gap) / float64(w.r.Dilation)
		}
	}
	if slow < slowest || slow*slowShare < waited {
		return ""
	}
	return fmt.Sprintf("; from %s on it sent %s, and its link has %s", units.Took(w.r.Own(from-w.r.Start)),
		units.BitRate(bits/took*1e9), units.BitRate(float64(lane.rate)))
}

// filled names the port of asker's switch whose queue was fullest while asker paused its peer. The measure is
// the sum of bytes times waiting time. If the other ports have more than 40 % of the total, the text says
// that several queues filled.
func (w *why) filled(asker int) string {
	paused := w.r.lanes[asker].far // the port that asker stopped
	held := map[int]int64{}
	for i := range w.r.Taps {
		if w.r.Taps[i].Node == w.r.Taps[asker].Node && i != asker {
			for _, p := range w.passed(i) {
				if p.came > 0 && w.r.pausedFor(line{paused, p.queue}, p.came, p.due) > 0 {
					held[i] += (p.due - p.came) * int64(w.r.Packets[p.packet].Length)
				}
			}
		}
	}
	port, most, total := -1, int64(0), int64(0)
	for i := range w.r.Taps {
		total += held[i]
		if held[i] > most {
			port, most = i, held[i]
		}
	}
	if port < 0 {
		return "queues of its switch filled"
	}
	text := fmt.Sprintf("the queue of %s filled", w.r.Taps[port].Name())
	if most*10 < total*6 {
		text = "queues of its switch filled, most of all the queue of " + w.r.Taps[port].Name()
	}
	if far := w.r.lanes[port].far; far >= 0 && w.r.Taps[far].NIC {
		text += ", to " + w.r.Taps[far].Node
	}
	return text + w.pace(port)
}

// packetsAhead names the senders whose packets the port sent while the packet of the cause's record waited.
func (w *why) packetsAhead(c *Cause) string {
	port := c.at.tap
	var wait Hop
	for _, h := range w.r.Hops(w.r.PacketOf(c.Record)) {
		if h.To.Number == c.Record {
			wait = h
		}
	}
	bytes := map[string]int64{}
	var total int64
	for _, p := range w.passed(port) {
		if p.at < wait.From.Time || p.at > wait.To.Time {
			continue
		}
		q := &w.r.Packets[p.packet]
		if q.Flow >= 0 {
			bytes[cmp.Or(w.r.Flows[q.Flow].From, w.r.Flows[q.Flow].Src.Addr().String())] += int64(q.Length)
			total += int64(q.Length)
		}
	}
	var senders []string
	for sender := range bytes {
		senders = append(senders, sender)
	}
	slices.SortFunc(senders, func(a, b string) int {
		return cmp.Or(cmp.Compare(bytes[b], bytes[a]), topology.CompareNames(a, b))
	})
	text := ""
	for i, sender := range senders[:min(len(senders), 6)] {
		text += map[bool]string{true: ", behind packets from ", false: ", "}[i == 0]
		text += fmt.Sprintf("%s (%d%%)", sender, (bytes[sender]*100+total/2)/total)
	}
	return text
}
