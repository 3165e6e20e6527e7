package follow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/internal/wire"
)

// slowdown counts the congestion signals for the senders of a node.
type slowdown struct {
	// notices counts the congestion notifications that came to the node's NICs, by name: CNPs of RoCEv2,
	// acknowledgements of TCP with ECE, and acknowledgements of reliable datagrams that report marked
	// packets.
	notices map[string]int
	marks   map[int]*marks // of the node's packets, by the tap of the port that set them
	packets int            // that the node sent with parts of messages
	faults  map[string]int // how many of the node's packets each fault marked
}

// marks counts the packets that a port marked. least and most are the bytes in the port's queue at these
// times.
type marks struct {
	count       int
	least, most int64
}

// restrain counts a packet that a port marked or that notifies a sender of congestion. It passes TCP segments
// at NICs on to window.
func (f *Follower) restrain(p *evidence.Packet, packet int32) {
	q := &f.r.Packets[packet]
	if q.Flow < 0 {
		return
	}
	flow := &f.r.Flows[q.Flow]
	if p.Verdict == "mark" && flow.From != "" {
		s := f.slowdown(flow.From)
		m := s.marks[p.Tap.Index]
		if m == nil {
			m = &marks{least: p.Depth}
			s.marks[p.Tap.Index] = m
		}
		m.count++
		m.least, m.most = min(m.least, p.Depth), max(m.most, p.Depth)
	}
	if !p.Tap.NIC || p.Event {
		return
	}
	if p.Direction == evidence.Out {
		if q.Message >= 0 && flow.From != "" {
			f.slowdown(flow.From).packets++
		}
	} else if notice := noticeOf(p); notice != "" && p.Direction == evidence.In {
		f.slowdown(p.Tap.Node).notices[notice]++
	}
	if p.Proto == evidence.ProtoTCP && !p.Fragment {
		f.window(p, packet)
	}
}

// markByFault counts a packet that a fault marked.
func (f *Follower) markByFault(p *evidence.Packet) {
	if p.Verdict != "mark" || p.Flow == nil {
		return
	}
	if from := f.owners[p.Flow.Src.Addr()].Node; from != "" {
		f.slowdown(from).faults[reasonOf(p)]++
	}
}

func (f *Follower) slowdown(node string) *slowdown {
	s := f.r.slowed[node]
	if s == nil {
		s = &slowdown{notices: map[string]int{}, marks: map[int]*marks{}, faults: map[string]int{}}
		f.r.slowed[node] = s
	}
	return s
}

// noticeOf returns the name of the congestion notification that a packet carries, or "".
func noticeOf(p *evidence.Packet) string {
	switch {
	case p.RoCE != nil && p.RoCE.BTH.Opcode == infiniband.CNP:
		return "CNPs"
	case p.Proto == evidence.ProtoTCP && p.ECE && !p.SYN:
		return "acknowledgements with ECE"
	case p.RD != nil && p.RD.Type == wire.RDAck && p.RD.Clear():
		ack := p.RD.Bytes.Ack()
		for i := range int(ack.Echoes) {
			if p.RD.Bytes.AckEcho(i).Marked > 0 {
				return "acknowledgements of marked packets"
			}
		}
	}
	return ""
}

// An answer mentions notifications if there were at least fewest of them, and at least one for each rarest
// packets. A CNP can halve the rate of DCQCN, and the rate takes hundreds of packets to recover.
const (
	fewest = 5
	rarest = 1000
)

// throttled names the nodes whose CPU limit throttled their programs for more than a tenth of the recording.
// Without such nodes it returns "".
func (r *Recording) throttled(c *Cause) (text string) {
	took := time.Duration(r.End - r.Start).Seconds()
	for _, node := range c.Where {
		if n := r.kernels[node]; n.Throttled > took/10 {
			limit := fmt.Sprintf("the limit of %g CPUs of %s", r.cpus[node], node)
			if c.at.by != "" {
				limit = "it"
			} else if r.cpus[node] == 0 {
				limit = "a fault that slowed " + node
			}
			text += fmt.Sprintf("; %s held its programs back for %s", limit,
				units.Took(time.Duration(n.Throttled*1e9)))
		}
	}
	return text
}

// lacking says why programs of a cause's nodes had no processor, if that sets a node apart. The cause is then
// at this node.
func (w *why) lacking(c *Cause) string {
	if c.at.by != "" || w.r.lacking == nil {
		return ""
	}
	apart := w.r.lacking.Greedy
	if apart == "" && len(c.Where) == 1 {
		apart = c.Where[0]
	}
	text := w.r.lacking.Of(apart)
	at := slices.Index(c.Where, apart)
	if text == "" || at < 0 {
		return ""
	}
	c.focused = true
	c.Where = slices.Insert(slices.Delete(c.Where, at, at+1), 0, apart)
	return "; " + text
}

// marker returns the fault that marked at least half of all marked packets of senders, and the number of
// packets that it marked. Without such a fault it returns "". It also returns "" if congestion notifications
// did not slow the senders down.
func (r *Recording) marker(senders []string) (fault string, count int) {
	faults, others := map[string]int{}, 0
	for _, sender := range senders {
		if s := r.slowed[sender]; s != nil {
			for fault, marked := range s.faults {
				faults[fault] += marked
				others += marked
			}
			for _, m := range s.marks {
				others += m.count
			}
		}
	}
	for _, one := range slices.Sorted(maps.Keys(faults)) {
		if faults[one]*2 >= others && faults[one] > count {
			fault, count = one, faults[one]
		}
	}
	if fault == "" || r.notified(senders) == "" {
		return "", 0
	}
	return fault, count
}

// notified lists the congestion notifications that the senders received. Without enough of them it returns
// "".
func (r *Recording) notified(senders []string) (text string) {
	notices, packets := map[string]int{}, 0
	for _, sender := range senders {
		if s := r.slowed[sender]; s != nil {
			packets += s.packets
			for notice, count := range s.notices {
				notices[notice] += count
			}
		}
	}
	for _, notice := range slices.Sorted(maps.Keys(notices)) {
		if notices[notice] >= fewest && notices[notice]*rarest >= packets {
			text += fmt.Sprintf("%s %d %s", map[bool]string{true: ",",
				false: "; congestion control slowed it down after"}[text != ""], notices[notice], notice)
		}
	}
	return text
}

// congestionSignals lists the congestion notifications that the senders received, and the ports that marked
// their packets, most marks first. Without enough notifications it returns "". It lists at most four ports,
// and no port with fewer than a tenth of the first port's marks.
func (r *Recording) congestionSignals(senders []string) string {
	text := r.notified(senders)
	if text == "" {
		return ""
	}
	if fault, count := r.marker(senders); fault != "" {
		return text + plural.Text(": "+fault+" marked %d packets", count)
	}
	all := map[int]*marks{}
	for _, sender := range senders {
		s := r.slowed[sender]
		if s == nil {
			continue
		}
		for tap, m := range s.marks {
			if sum := all[tap]; sum == nil {
				copied := *m
				all[tap] = &copied
			} else {
				sum.count += m.count
				sum.least, sum.most = min(sum.least, m.least), max(sum.most, m.most)
			}
		}
	}
	taps := slices.SortedFunc(maps.Keys(all), func(a, b int) int {
		return cmp.Or(cmp.Compare(all[b].count, all[a].count), cmp.Compare(a, b))
	})
	for i, tap := range taps[:min(len(taps), 4)] {
		m := all[tap]
		if m.count*10 < all[taps[0]].count {
			break
		}
		text += plural.Text("%s %s marked %d packets with %s in its queue",
			map[bool]string{true: ":", false: ","}[i == 0], r.Taps[tap].Name(), m.count,
			between(m.least, m.most))
	}
	return text
}

// between formats a range of bytes.
func between(least, most int64) string {
	if least == most {
		return size(most)
	}
	return size(least) + " to " + size(most)
}

// size formats bytes with three significant digits.
func size(bytes int64) string {
	scaled, unit := float64(bytes), "B"
	for _, next := range []string{"KB", "MB", "GB"} {
		if scaled < 1000 {
			break
		}
		scaled, unit = scaled/1000, next
	}
	return strconv.FormatFloat(scaled, 'g', 3, 64) + unit
}
