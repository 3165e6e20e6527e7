package follow

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/plan/topology"
)

// connection is a direction of a TCP connection.
type connection struct{ from, to netip.AddrPort }

func (c connection) compare(d connection) int {
	return cmp.Or(c.from.Compare(d.from), c.to.Compare(d.to))
}

// window follows the receive window of a direction of a TCP connection, as its sender sees the window.
type window struct {
	scale int8   // -1 while the receiver's SYN is unknown
	large uint32 // the largest payload of a segment

	next  uint32 // the sequence number after the last byte sent
	right uint32 // the right edge of the window
	began bool   // next is set
	known bool   // right is set

	// full is the time at which the sender had filled the window. opened is the time at which an
	// acknowledgement opened the window again. 0 stands for neither.
	full, opened int64
	filler       int32  // the packet that filled it
	free         uint32 // the largest window that the receiver offered
	wait         *closure
	flight       flight
}

// closure is the time for which a window blocked a sender during one write. It does not include the time
// until the last packet of the window arrived: a larger window would only have let more packets queue behind
// that packet.
type closure struct {
	what     string // fullWindow or fewInFlight
	from, to string // nodes
	waited   int64
	within   int64  // of this, between two packets of the message
	offered  uint32 // the largest window until then
	longest  int64
	message  int // of the segment after the longest wait
	record   int // the record of this segment
}

// take adds a wait for a window that ended with a segment.
func (c *closure) take(waited int64, offered uint32, message, record int) {
	c.waited, c.offered = c.waited+waited, max(c.offered, offered)
	if waited > c.longest {
		c.longest, c.message, c.record = waited, message, record
	}
}

// resumes is a bound on the time from the opening of a window to the sender's next segment. Half of the time
// for which the sender waited is added to it. If the segment comes later, the sender had no data to send.
const resumes = int64(300 * time.Microsecond)

// window updates the window of a connection from a TCP segment that is recorded at a NIC.
func (f *Follower) window(p *evidence.Packet, packet int32) {
	out := p.Direction == evidence.Out
	to := connection{p.Flow.Src, p.Flow.Dst}
	if !out {
		to = connection{to.to, to.from}
	}
	w := f.windows[to]
	if w == nil {
		w = &window{scale: -1}
		f.windows[to] = w
	}
	if out && p.SYN { // another connection with the same ports
		f.endWait(w)
		f.endFlight(&w.flight)
		*w = window{scale: w.scale}
	}
	if out {
		if p.Payload > 0 && f.r.Packets[packet].Message >= 0 {
			f.sent(w, p, packet)
		}
		return
	}
	if p.SYN { // without the option there is no scale
		w.scale = max(p.Scale, 0)
	}
	if !p.ACK || p.SYN || w.scale < 0 {
		return
	}
	offered := uint32(p.Window) << w.scale
	right := p.Ack + offered
	w.flight.acknowledged(p)
	if !w.known || int32(right-w.right) > 0 {
		w.known, w.right = true, right
	}
	w.free = max(w.free, offered)
	if w.full > 0 && w.opened == 0 && int32(w.right-w.next) >= int32(min(w.large, w.free/2)) {
		w.opened = p.Time
	}
}

// sent updates a window from a segment with data that the sender sent.
func (f *Follower) sent(w *window, p *evidence.Packet, packet int32) {
	end := p.Seq + uint32(p.Payload)
	if w.began && int32(end-w.next) <= 0 {
		w.flight.slow() // a retransmission
		return
	}
	f.newSegment(w, p, packet)
	q := &f.r.Packets[packet]
	flow := &f.r.Flows[q.Flow]
	if waited := w.opened - f.r.Packets[w.filler].Arrived; w.full > 0 && waited > 0 && waited < w.opened &&
		p.Time-w.opened <= resumes+waited/2 && flow.From != "" {
		c := w.wait
		if c == nil {
			c = &closure{what: fullWindow, from: flow.From, to: flow.To}
			w.wait = c
		}
		c.take(waited, w.free, q.Message, p.Number)
		if m := &f.r.Messages[q.Message]; len(m.Packets) > 1 {
			m.held += waited
		}
	}
	w.began, w.next, w.large = true, end, max(w.large, uint32(p.Payload))
	w.full, w.opened = 0, 0
	if w.known && int32(w.right-w.next) < int32(min(w.large, w.free/2)) {
		w.full, w.filler = p.Time, packet
	} else if p.PSH && uint32(p.Payload) < w.large {
		f.endWait(w)
	}
}

// endWait ends the closure of a write.
func (f *Follower) endWait(w *window) {
	if w.wait != nil {
		f.r.closed = append(f.r.closed, *w.wait)
		w.wait = nil
	}
}

// fullWindow is the cause of a sender that waited for a receiver's window.
const fullWindow = "the TCP receive window was full"

// offer has the times for which senders waited for the window of a receiver.
type offer struct {
	senders map[string]int64 // how long each waited
	most    uint32           // the largest window that the receiver offered
}

// windows adds a cause for each receiver whose full windows blocked senders, and for each sender with few
// bytes in flight.
func (w *why) windows(messages []int) {
	chosen := map[int]bool{}
	for _, i := range messages {
		chosen[i] = true
	}
	w.offers, w.flights = map[string]*offer{}, map[string]uint32{}
	for _, c := range w.r.closed {
		if !chosen[c.message] {
			continue
		}
		if c.what == fewInFlight {
			w.add(cause{part: Host, tap: -1, node: c.from, what: c.what}, c.message, c.waited, c.record)
			w.flights[c.from] = max(w.flights[c.from], c.offered)
			continue
		}
		ended := w.r.Sent(w.r.PacketOf(c.record))
		if at := w.metAt([]string{c.to}, span{ended - c.longest, ended}, c.longest); at.what != "" {
			w.addWith(at, c.message, c.waited, c.record, fullWindow)
			continue
		}
		to := cmp.Or(c.to, w.r.Flows[w.r.Messages[c.message].Flow].Dst.Addr().String())
		w.add(cause{part: Host, tap: -1, node: to, what: fullWindow}, c.message, c.waited, c.record)
		of := w.offers[to]
		if of == nil {
			of = &offer{senders: map[string]int64{}}
			w.offers[to] = of
		}
		of.senders[c.from] += c.waited
		of.most = max(of.most, c.offered)
	}
}

// waiters names the senders that waited for the windows of receivers, the longest wait first.
func (w *why) waiters(receivers []string) string {
	waited := map[string]int64{}
	var most uint32
	for _, to := range receivers {
		most = max(most, w.offers[to].most)
		for sender, time := range w.offers[to].senders {
			waited[sender] += time
		}
	}
	senders := slices.SortedFunc(maps.Keys(waited), func(a, b string) int {
		return cmp.Or(cmp.Compare(waited[b], waited[a]), topology.CompareNames(a, b))
	})
	return fmt.Sprintf(" (at most %s), so that %s had to wait", size(int64(most)),
		strings.Join(senders, ", "))
}
