package ranks

// maxHoles bounds the gaps of one TCP flow that are remembered.
const maxHoles = 256

// stream follows the sequence numbers of one TCP flow at one tap, and distinguishes bytes seen for
// the first time from repeated bytes.
type stream struct {
	started bool
	initial uint32 // sequence number of the SYN
	synced  bool   // a SYN was seen
	// low and next bound the part of the stream that was reached, counted without wrapping. holes
	// are parts in between that were not seen.
	low, next int64
	holes     []hole
	before    int64 // bytes of holes of previous connections
	overflow  bool
	fresh     uint64
	repeated  uint64
}

type hole struct{ from, to int64 }

// add adds a segment.
func (s *stream) add(sequence uint32, length int, syn bool) {
	if syn {
		if s.synced && s.initial == sequence {
			return // a repeated SYN
		}
		// A new connection on the same ports starts a new stream.
		s.before = s.unseen()
		s.started, s.synced, s.initial = true, true, sequence
		s.holes = s.holes[:0]
		s.next = int64(sequence) + 1
		s.low = s.next
		return
	}
	if length == 0 {
		return
	}
	if !s.started {
		s.started = true
		s.next = int64(sequence)
		s.low = s.next
	}
	from := s.next + int64(int32(sequence-uint32(s.next)))
	to := from + int64(length)
	repeated := int64(length)
	if to > s.next {
		if from > s.next {
			s.open(hole{s.next, from})
		}
		repeated -= to - max(from, s.next)
		s.next = to
	}
	if from < s.low && !s.synced {
		// The capture began in the middle of the stream, with segments out of order.
		end := min(to, s.low)
		repeated -= end - from
		if end < s.low {
			s.open(hole{end, s.low})
		}
		s.low = from
	}
	repeated -= s.fill(from, to)
	s.repeated += uint64(repeated)
	s.fresh += uint64(int64(length) - repeated)
}

func (s *stream) open(h hole) {
	if len(s.holes) >= maxHoles {
		s.overflow = true
		return
	}
	s.holes = append(s.holes, h)
}

// fill closes holes with a segment, and returns how many of its bytes were in them.
func (s *stream) fill(from, to int64) (filled int64) {
	for i := 0; i < len(s.holes); i++ {
		h := s.holes[i]
		left, right := max(h.from, from), min(h.to, to)
		if left >= right {
			continue
		}
		filled += right - left
		s.holes[i].to = left
		if right < h.to {
			s.open(hole{right, h.to})
		}
		if s.holes[i].from == s.holes[i].to {
			last := len(s.holes) - 1
			s.holes[i] = s.holes[last]
			s.holes = s.holes[:last]
			i--
		}
	}
	return filled
}

// unseen returns the number of bytes within the stream that were never seen.
func (s *stream) unseen() int64 {
	bytes := s.before
	for _, h := range s.holes {
		bytes += h.to - h.from
	}
	return bytes
}
