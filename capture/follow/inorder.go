package follow

import (
	"cmp"
	"slices"
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
