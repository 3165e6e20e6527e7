package collective

// Loss is the elements From to To of which a rank got no partial sum. The result lacks the elements
// that the ranks before it in the ring had added.
type Loss struct {
	Rank int `json:"rank"`
	From int `json:"from"`
	To   int `json:"to"`
	// Operation is the number of the operation, if several share a job.
	Operation int `json:"operation,omitempty"`
}

// WrongBut counts the elements of a result that differ from the sum that the losses of all ranks
// leave. Without losses that is the whole sum. If ranks lost the partial sum before them, it is the
// sum from the last such rank onwards. short counts the elements that lack a part of the sum.
// Impossible losses make every element wrong.
func (p *Pattern) WrongBut(result []float32, iteration int, lost []Loss) (wrong, short uint64) {
	return p.wrongBut(newLayout(p.config.Ranks, len(result), floatSize), result, 0, iteration, lost)
}

// wrongBut is WrongBut for a part of a result. from is the part's first element in the whole
// result.
func (p *Pattern) wrongBut(l layout, result []float32, from, iteration int, lost []Loss) (wrong,
	short uint64) {
	restart := make(map[int]int) // by element, the position on its chunk's path at which the sum begins
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
			wrong-- // it is compared here instead
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

// chunk returns the chunk of an element, or -1 if there is none.
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
