package fabricchecks

import (
	"cmp"
	"slices"

	"railbed/capture/verify/evidence"
)

// splits follows packets that routers fragment on their way (RFC 791, 3.2): from one packet, or one
// fragment, to the fragments that leave a router in its place. W identifies a packet to the caller.
type splits[W any] struct {
	mtu    int // routers may fragment longer packets, 0 for none
	pieces map[evidence.DatagramKey][]*split[W]
	full   bool // some packets were forgotten
}

// split is a packet that may be fragmented, and the parts that came.
type split[W any] struct {
	evidence.Piece
	whole W
	came  parts
}

// splitsMost bounds the packets that are remembered.
const splitsMost = 1 << 16

func newSplits[W any](c *evidence.Capture) splits[W] {
	return splits[W]{mtu: c.SplitMTU(), pieces: map[evidence.DatagramKey][]*split[W]{}}
}

// begin remembers a packet that a router may fragment.
func (s *splits[W]) begin(p *evidence.Packet, whole W) {
	if s.mtu == 0 || !p.Splittable(s.mtu) {
		return
	}
	if len(s.pieces) >= splitsMost {
		clear(s.pieces)
		s.full = true
	}
	if piece, known := p.Piece(); known {
		s.pieces[piece.Key] = append(s.pieces[piece.Key], &split[W]{Piece: piece, whole: whole})
	}
}

// add takes a fragment. It returns the packet of which the fragment is a part, and whether all parts
// have come.
func (s *splits[W]) add(p *evidence.Packet) (whole W, known, complete bool) {
	if s.mtu == 0 || !p.Fragment {
		return whole, false, false
	}
	part, readable := p.Piece()
	if !readable {
		return whole, false, false
	}
	all := s.pieces[part.Key]
	for i, of := range slices.Backward(all) { // numbers of datagrams repeat
		if part.From < of.From || part.To > of.To || part.From == of.From && part.To == of.To {
			continue
		}
		if of.came.add(part.From, part.To); of.came.cover(of.From, of.To) {
			if all = slices.Delete(all, i, i+1); len(all) == 0 {
				delete(s.pieces, part.Key)
			} else {
				s.pieces[part.Key] = all
			}
			return of.whole, true, true
		}
		return of.whole, true, false
	}
	return whole, false, false
}

// parts are ranges of bytes that came.
type parts []struct{ from, to int }

func (p *parts) add(from, to int) { *p = append(*p, struct{ from, to int }{from, to}) }

// cover reports whether the parts have all bytes from one up to another.
func (p parts) cover(from, to int) bool {
	slices.SortFunc(p, func(a, b struct{ from, to int }) int { return cmp.Compare(a.from, b.from) })
	for _, part := range p {
		if part.from > from {
			return false
		}
		from = max(from, part.to)
	}
	return from >= to
}
