package collective

import (
	"railbed/internal/units"
	"railbed/transports"
)

// Loss is elements From to To of which a rank got no partial sum: what the ranks
// before it in the ring added to their chunk is not in the result.
type Loss struct {
	Rank int `json:"rank"`
	From int `json:"from"`
	To   int `json:"to"`
	// Operation is which of several that share a job it was.
	Operation int `json:"operation,omitempty"`
}

// Lost is what the latest operation lost at this rank. It is good until the next
// one.
func (r *Ring) Lost() []Loss { return r.run.lost }

// droppable is how many bytes of a message may be missing, rounded down.
func (r *Ring) droppable(step, size int) int {
	if step >= r.config.Ranks-1 {
		return 0
	}
	return int(r.config.Droppable.Of(units.Bytes(size)))
}

// lose notes the elements of a slice, which begins at from, that did not come whole,
// and makes them 0.
func (r *Ring) lose(holes []transports.Hole, landing []float32, from int) {
	for _, h := range holes {
		first := from + h.Offset/floatSize
		behind := min(from+(h.Offset+h.Bytes+floatSize-1)/floatSize, len(landing))
		clear(landing[first:behind])
		r.run.lost = append(r.run.lost, Loss{Rank: r.config.Rank, From: first, To: behind})
	}
}

// WrongBut counts the elements of a result that are not what the losses of all
// ranks leave of the sum: where nothing was lost, all of it; else the part of the
// ranks from the last on that lost what came before. It also counts those that
// were lost in part. Losses that cannot be make every element wrong.
func (p *Pattern) WrongBut(result []float32, iteration int, lost []Loss) (wrong, short uint64) {
	return p.wrongBut(newLayout(p.config.Ranks, len(result), floatSize), result, 0, iteration, lost)
}

// wrongBut is of the part of a result that begins with an element of the whole one.
func (p *Pattern) wrongBut(l layout, result []float32, from, iteration int, lost []Loss) (wrong,
	short uint64) {
	restart := make(map[int]int) // by element, the place in its chunk's way where the sum begins
	for _, loss := range lost {
		chunk := l.chunk(loss.From)
		if chunk < 0 || loss.From >= loss.To || l.chunk(loss.To-1) != chunk || loss.Rank < 0 ||
			loss.Rank >= p.config.Ranks {
			return uint64(len(result)), 0
		}
		place := (loss.Rank - l.starts(chunk) + p.config.Ranks) % p.config.Ranks
		for i := max(loss.From, from); i < min(loss.To, from+len(result)); i++ {
			restart[i] = max(restart[i], place)
		}
	}
	wrong = p.Wrong(Bytes(result), iteration, from)
	at := shifted(iteration)
	for i, place := range restart {
		n := (at + i) % patternLen
		if result[i-from] != Floats(p.expected)[n] {
			wrong-- // it is looked at here
		}
		var want float32
		for k := place; k < p.config.Ranks; k++ {
			value, _ := p.draw((l.starts(l.chunk(i))+k)%p.config.Ranks, n)
			want += float32(value)
		}
		if result[i-from] != want {
			wrong++
		}
	}
	return wrong, uint64(len(restart))
}

// chunk is the chunk of an element; -1 where there is none.
func (l layout) chunk(element int) int {
	short, long := l.count/l.ranks, l.count%l.ranks
	switch behind := long * (short + 1); {
	case element < 0 || element >= l.count:
		return -1
	case element < behind:
		return element / (short + 1)
	default:
		return long + (element-behind)/short
	}
}
