package follow

import (
	"fmt"
	"strings"
)

// manyCopies is the part of the packets that a port sent from which copies that a fault made are the reason
// for its queue: one in so many.
const manyCopies = 5

// copies says that a fault made many of the packets that a port sent while the packet of the cause's record
// waited. Then the file asked for the cause.
func (w *why) copies(c *Cause) string {
	var wait Hop
	for _, h := range w.r.Hops(w.r.PacketOf(c.Record)) {
		if h.To.Number == c.Record {
			wait = h
		}
	}
	sent, copies, by := 0, 0, ""
	before := map[int]bool{}
	for _, p := range w.passed(c.at.tap) {
		if p.at > wait.To.Time {
			break
		}
		if p.at >= wait.From.Time {
			sent++
			if fault := w.r.duplicated(p.packet); fault != "" && before[p.packet] {
				copies, by = copies+1, fault
			}
		}
		before[p.packet] = true
	}
	if copies*manyCopies < sent || copies == 0 {
		return ""
	}
	c.Injected = true
	return fmt.Sprintf("; %d of these %d packets were copies that %s made", copies, sent, by)
}

// duplicated returns the fault that made copies of a packet, or "".
func (r *Recording) duplicated(packet int) string {
	for _, s := range r.Sights(packet) {
		if s.Verdict == "duplicate" && strings.HasPrefix(s.Reason, byFault) {
			return s.Reason
		}
	}
	return ""
}
