package collective

import "math/bits"

// patternLen is the period of a rank's data in elements. It is a prime above
// 2^16, so that data moved by a whole number of slices or chunks, which are
// round numbers, meet other values.
const patternLen = 65537

// Pattern is the data of an all-reduce: whole numbers from 1 on that look
// random in rank, position and iteration, small enough that the sum over all
// ranks is exact in a float32. A missing, doubled or misplaced slice, one of
// another rank or of an earlier iteration changes the sum.
type Pattern struct {
	ranks    int
	shift    int // of what a value is drawn from
	own      []float32
	expected []float32
}

// NewPattern makes the pattern of one rank of several, 1 to 2^20.
func NewPattern(rank, ranks int) *Pattern {
	// Sums up to 2^24 are exact: the significand of a float32 has 24 bits.
	shift := 64 - min(24-bits.Len(uint(ranks-1)), 20)
	p := &Pattern{ranks: ranks, shift: shift, own: make([]float32, patternLen), expected: make([]float32, patternLen)}
	for r := range ranks {
		for i := range p.expected {
			value := p.value(r, i)
			p.expected[i] += value
			if r == rank {
				p.own[i] = value
			}
		}
	}
	return p
}

// value is a rank's element at a place of the pattern: at most 2^bits - 1 + 1, so
// that ranks of them are at most 2^24.
func (p *Pattern) value(rank, place int) float32 {
	return float32(mix(uint64(rank)<<32|uint64(place))>>p.shift + 1)
}

// mix is the output function of SplitMix64 (Steele, Lea and Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// shifted is where an iteration starts in the pattern.
func shifted(iteration int) int { return int(mix(^uint64(iteration)) % patternLen) }

// Fill sets a buffer to the rank's data for an iteration.
func (p *Pattern) Fill(buffer []float32, iteration int) { p.FillFrom(buffer, iteration, 0) }

// FillFrom sets a buffer that begins with element from of the whole one.
func (p *Pattern) FillFrom(buffer []float32, iteration, from int) {
	at := (shifted(iteration) + from) % patternLen
	for len(buffer) > 0 {
		n := copy(buffer, p.own[at:])
		buffer, at = buffer[n:], 0
	}
}

// Wrong counts the elements of a result that are not the sum over all ranks.
func (p *Pattern) Wrong(result []float32, iteration int) (wrong uint64) {
	return p.WrongFrom(result, iteration, 0)
}

// WrongFrom counts those of a result that begins with element from of the whole one.
func (p *Pattern) WrongFrom(result []float32, iteration, from int) (wrong uint64) {
	at := (shifted(iteration) + from) % patternLen
	for len(result) > 0 {
		part := result[:min(len(result), patternLen-at)]
		want := p.expected[at:][:len(part)]
		for i, value := range part {
			if value != want[i] {
				wrong++
			}
		}
		result, at = result[len(part):], 0
	}
	return wrong
}

// WrongOf counts the elements of a result, which begins with element from of the whole
// one, that are not what a rank gave.
func (p *Pattern) WrongOf(rank int, result []float32, iteration, from int) (wrong uint64) {
	at := shifted(iteration) + from
	for i, value := range result {
		if value != p.value(rank, (at+i)%patternLen) {
			wrong++
		}
	}
	return wrong
}
