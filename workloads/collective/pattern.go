package collective

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/bits"

	"railbed/internal/element"
	"railbed/plan/schedule"
)

// patternLen is the period of a rank's data in elements. It is a prime above
// 2^16, so that data moved by a whole number of slices or chunks, which are
// round numbers, meet other values.
const patternLen = 65537

// PatternConfig is whose data a pattern is, and what is made of it.
type PatternConfig struct {
	Rank, Ranks int
	Type        element.Type // default element.Float32
	Op          element.Op   // default element.Sum
}

// Pattern is the data of a collective: numbers that look random in rank, position and
// iteration, such that what an operation makes of those of all ranks is exact, in
// whatever order it adds them up. So results are compared bit by bit. A missing, doubled
// or misplaced slice, one of another rank or of an earlier iteration changes the result;
// of a maximum or minimum a doubled one cannot.
//
//   - For a sum: whole numbers from 1 on, whose sum over all ranks has no more digits
//     than the type has: 24 bits of a float32, 8 of a bfloat16. So there are at most 255
//     ranks of bfloat16 and 2,047 of half. Of many ranks all but some have nothing at a
//     place, so that the others have more than a few numbers to choose from.
//   - For an average of floating-point numbers: such as become whole numbers like that
//     when they are multiplied by the rounded 1/n.
//   - For a maximum or minimum: whole numbers of both signs.
//   - Where nothing is combined: any bits but zeros.
type Pattern struct {
	config   PatternConfig
	limit    uint64    // values are drawn from so many
	every    int       // of so many neighbours one has a value at a place; up to 1 means all
	before   []float64 // of an average of floating-point numbers: of value i what becomes i+1; 0 is nothing
	own      []byte
	expected []byte
}

// NewPattern makes the pattern of one rank of several, 1 to 2^20.
func NewPattern(c PatternConfig) (*Pattern, error) {
	p, err := newData(c)
	if err == nil && p.config.Op != element.None {
		p.expect()
	}
	return p, err
}

// Check says why there is no such pattern.
func (c PatternConfig) Check() error {
	_, err := c.values()
	return err
}

// newData makes a pattern's data alone.
func newData(c PatternConfig) (*Pattern, error) {
	p, err := c.values()
	if err != nil {
		return nil, err
	}
	for place := range patternLen {
		p.own = p.append(p.own, c.Rank, place)
	}
	return p, nil
}

// fewValues are too few to tell data of one place from those of another.
const fewValues = 8

// values finds what the data can be drawn from.
func (c PatternConfig) values() (*Pattern, error) {
	c.Type, c.Op = cmp.Or(c.Type, element.Float32), cmp.Or(c.Op, element.Sum)
	p := &Pattern{config: c}
	most := uint64(1)<<c.Type.Digits() - 1
	switch p.limit = most; c.Op {
	case element.Sum, element.Average:
		if p.limit = most / uint64(c.Ranks); p.limit > 0 && p.limit < fewValues {
			p.every = (fewValues*c.Ranks + int(most) - 1) / int(most)
			p.limit = most / uint64((c.Ranks+p.every-1)/p.every)
		}
	}
	if c.Type.Size() == 0 || p.limit == 0 ||
		c.Op == element.Average && c.Type != element.Int32 && !p.weigh() {
		return nil, fmt.Errorf("make data of type %s: there are no numbers of which the %s of %d ranks is "+
			"exact in any order", c.Type, c.Op, c.Ranks)
	}
	return p, nil
}

// weigh finds what becomes a whole number when it is multiplied by 1/n, the quotient or a
// neighbour of it, and says whether there is one.
func (p *Pattern) weigh() (found bool) {
	t := p.config.Type
	scale := element.Scale(t, p.config.Ranks)
	p.limit = min(p.limit, 1<<12) // a table of so many is enough
	for want := range p.limit {
		want := float32(want + 1)
		before := 0.0
		for _, off := range []float64{0, 0.6, -0.6} {
			// A neighbour is half to once 2^(1-digits) away: this much is nearest to it.
			value := element.At(t, element.Append(t, nil,
				float64(want/scale)*(1+math.Ldexp(off, 1-t.Digits()))), 0)
			if element.Scaled(t, float32(value), scale) == want {
				before, found = value, true
				break
			}
		}
		p.before = append(p.before, before)
	}
	return found
}

// draw is a rank's value at a place, and what an average counts of it.
func (p *Pattern) draw(rank, place int) (value, counts float64) {
	if p.every > 1 && (rank+place)%p.every != 0 {
		return 0, 0
	}
	random := mix(uint64(rank)<<32 | uint64(place))
	high, _ := bits.Mul64(random, p.limit)
	switch {
	case p.before != nil:
		for p.before[high] == 0 {
			high = (high + 1) % p.limit
		}
		return p.before[high], float64(high + 1)
	case (p.config.Op == element.Max || p.config.Op == element.Min) && random&1 != 0:
		return -float64(high + 1), 0
	}
	return float64(high + 1), float64(high + 1)
}

// append appends a rank's element at a place.
func (p *Pattern) append(to []byte, rank, place int) []byte {
	if p.config.Op != element.None {
		value, _ := p.draw(rank, place)
		return element.Append(p.config.Type, to, value)
	}
	return appendBits(to, p.config.Type.Size(), mix(uint64(rank)<<32|uint64(place)))
}

// appendBits appends an element of random bits, not all of which are 0.
func appendBits(to []byte, size int, random uint64) []byte {
	high, _ := bits.Mul64(random, 1<<(8*size)-1)
	for high++; size > 0; size-- {
		to = append(to, byte(high))
		high >>= 8
	}
	return to
}

// expect computes what is made of all ranks' elements.
func (p *Pattern) expect() {
	results := make([]float64, patternLen)
	for rank := range p.config.Ranks {
		for place := range results {
			value, counts := p.draw(rank, place)
			switch r := &results[place]; {
			case p.config.Op == element.Max && (rank == 0 || value > *r),
				p.config.Op == element.Min && (rank == 0 || value < *r):
				*r = value
			case p.config.Op == element.Sum || p.config.Op == element.Average:
				*r += counts
			}
		}
	}
	for _, result := range results {
		if p.config.Op == element.Average && p.config.Type == element.Int32 {
			result = float64(int(result) / p.config.Ranks)
		}
		p.expected = element.Append(p.config.Type, p.expected, result)
	}
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

// Fill sets memory, which begins with element from of the whole buffer, to the rank's data
// for an iteration.
func (p *Pattern) Fill(memory []byte, iteration, from int) {
	p.over(memory, p.own, iteration, from, func(part, own []byte) { copy(part, own) })
}

// Wrong counts the elements of a result, which begins with element from of the whole one,
// that are not what the operation makes of all ranks'.
func (p *Pattern) Wrong(result []byte, iteration, from int) (wrong uint64) {
	p.over(result, p.expected, iteration, from, func(part, want []byte) {
		wrong += different(part, want, p.config.Type.Size())
	})
	return wrong
}

// over goes over memory together with what a table has for it.
func (p *Pattern) over(memory, table []byte, iteration, from int, visit func(part, table []byte)) {
	at := (shifted(iteration) + from) % patternLen * p.config.Type.Size()
	for len(memory) > 0 {
		n := min(len(memory), len(table)-at)
		visit(memory[:n], table[at:at+n])
		memory, at = memory[n:], 0
	}
}

// different counts elements of so many bytes that are not the same in both.
func different(a, b []byte, size int) (count uint64) {
	if bytes.Equal(a, b) {
		return 0
	}
	for i := 0; i < len(a); i += size {
		if !bytes.Equal(a[i:i+size], b[i:i+size]) {
			count++
		}
	}
	return count
}

// WrongOf counts the elements of a result, which begins with element from of the whole
// one, that are not what a rank gave.
func (p *Pattern) WrongOf(rank int, result []byte, iteration, from int) (wrong uint64) {
	at, size := shifted(iteration)+from, p.config.Type.Size()
	var want [8]byte
	for i := range len(result) / size {
		if !bytes.Equal(result[i*size:][:size], p.append(want[:0], rank, (at+i)%patternLen)) {
			wrong++
		}
	}
	return wrong
}

// Pattern is whose data NewPattern has to make for one rank of a program.
func (p *Program) Pattern(rank int) PatternConfig {
	return PatternConfig{Rank: rank, Ranks: len(p.schedule.Ranks), Type: p.data.Type, Op: p.data.Op}
}

// Fill sets the rank's input in a mode to its data for an iteration.
func (r *Runner) Fill(p *Pattern, mode Mode, iteration int) {
	input, from := r.Buffer(mode, schedule.Input)
	p.Fill(input, iteration, from)
}

// Wrong counts the elements of the rank's output in a mode that are not what the operation
// gives, looking at each.
func (r *Runner) Wrong(p *Pattern, mode Mode, iteration int) (wrong uint64) {
	output, from := r.Buffer(mode, schedule.Output)
	program := r.config.Program
	size := program.data.Type.Size()
	switch program.schedule.Kind {
	case schedule.Broadcast, schedule.Scatter:
		return p.WrongOf(program.schedule.Root, output, iteration, from)
	case schedule.AllToAll:
		each := program.data.Count / len(program.schedule.Ranks)
		for rank := range program.schedule.Ranks {
			wrong += p.WrongOf(rank, output[rank*each*size:(rank+1)*each*size], iteration, r.config.Rank*each)
		}
		return wrong
	case schedule.AllGather, schedule.Gather:
		for rank := range program.schedule.Ranks {
			if len(output) == 0 {
				break // it is not the root
			}
			from, to := program.Span(rank, schedule.Input)
			wrong += p.WrongOf(rank, output[from*size:to*size], iteration, from)
		}
		return wrong
	}
	return p.Wrong(output, iteration, from)
}
