package follow

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"railbed/internal/units"
)

// discards finds the packets that receivers discarded because they came before an earlier packet.
//
// A receiver of RoCEv2 with go-back-N takes packets in the order of their PSNs only (IBTA 9.7.4.1): the
// sender sends discarded packets again. A receiver with selective repeat keeps packets that come early, and
// their sender does not send them again. A recording does not name the kind of a queue pair. So the follower
// takes it for go-back-N if at least half of the PSNs that came early came again in their order.
func (f *Follower) discards() {
	for _, s := range f.streams {
		if s.bits == psnBits {
			f.discardsOf(s)
		}
	}
}

func (f *Follower) discardsOf(s *stream) {
	r := f.r
	var came []int32
	for _, m := range s.messages {
		for _, p := range r.Messages[m].Packets {
			if r.Packets[p].Arrived > 0 {
				came = append(came, p)
			}
		}
	}
	slices.SortStableFunc(came, func(a, b int32) int {
		return cmp.Compare(r.Packets[a].Arrived, r.Packets[b].Arrived)
	})
	next := s.after(0)
	var early []int32
	awaited := map[int32]int64{}
	accepted := 0 // of the early positions
	waits := map[int64]bool{}
	for _, p := range came {
		switch at := r.Packets[p].bytes; {
		case at.from > next:
			early, awaited[p], waits[at.from] = append(early, p), next, true
		case at.from == next:
			if next = s.after(at.to); waits[at.from] {
				accepted++
			}
		}
	}
	if len(early) == 0 || accepted*2 < len(waits) {
		return
	}
	copies := map[int64][]int32{}
	for _, m := range s.messages {
		for _, p := range r.Messages[m].Packets {
			copies[r.Packets[p].bytes.from] = append(copies[r.Packets[p].bytes.from], p)
		}
	}
	for _, p := range early {
		for _, q := range copies[awaited[p]] {
			if r.Sent(int(q)) < r.Sent(int(p)) {
				r.Packets[p].behind = q
			}
		}
	}
}

// recovering describes the recovery from losses of the message that a cause delayed most, if the two ends
// took at least a tenth of the delay for it. A receiver can send a NAK as soon as a packet comes early, and a
// sender can send again as soon as the NAK comes. Both wait for a processor.
func (w *why) recovering(c *Cause) string {
	r := w.r
	m := &r.Messages[c.Worst-1]
	noticed := map[int32]int64{} // when the receiver had the first early packet, by the missing packet
	for i := range r.Packets {
		q := &r.Packets[i]
		during := q.Arrived >= m.Start && q.Arrived <= m.Placed
		if first := noticed[q.behind]; q.Discarded() && q.Flow == m.Flow && during &&
			(first == 0 || q.Arrived < first) {
			noticed[q.behind] = q.Arrived
		}
	}
	var asking, sending int64
	for missing, at := range noticed {
		nak := r.later(at, func(q *Packet) bool {
			return q.asks && q.PSN == r.Packets[missing].PSN && r.answersTo(q.Flow, m.Flow)
		})
		if nak < 0 || r.Packets[nak].Arrived == 0 {
			continue
		}
		asking += r.Sent(nak) - at
		came := r.Packets[nak].Arrived
		again := r.later(came, func(q *Packet) bool {
			return q.Flow == m.Flow && q.Message >= 0 && q.PSN == r.Packets[missing].PSN
		})
		if again >= 0 {
			sending += r.Sent(again) - came
		}
	}
	if took := r.Own(asking + sending); took == 0 || took*10 < c.Most {
		return ""
	}
	f := &r.Flows[m.Flow]
	return fmt.Sprintf("; for message %d, %s took %s to ask for missing packets, and %s %s to send them "+
		"again",
		c.Worst, cmp.Or(f.To, f.Dst.Addr().String()), units.Took(r.Own(asking)), w.sender(m),
		units.Took(r.Own(sending)))
}

// awaited returns the packet for which a packet was discarded, or the packet itself.
func (r *Recording) awaited(packet int32) int32 {
	if q := &r.Packets[packet]; q.Discarded() {
		return q.behind
	}
	return packet
}

// later returns the first packet that was sent from a time on and for which a condition holds, or -1. Packets
// are in the order in which they were sent.
func (r *Recording) later(from int64, is func(q *Packet) bool) int {
	i := sort.Search(len(r.Packets), func(i int) bool { return r.Sent(i) >= from })
	for ; i < len(r.Packets); i++ {
		if is(&r.Packets[i]) {
			return i
		}
	}
	return -1
}

// answersTo reports whether a flow goes between the same addresses as another one, in the other direction.
func (r *Recording) answersTo(back, flow int) bool {
	return back >= 0 && r.Flows[back].Src.Addr() == r.Flows[flow].Dst.Addr() &&
		r.Flows[back].Dst.Addr() == r.Flows[flow].Src.Addr()
}
