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

// patternLen is the period of a rank's data in elements. It is a prime above 2^16. Slices and
// chunks have round lengths, so data moved by a whole number of slices or chunks meets other
// values.
const patternLen = 65537

// PatternConfig selects the rank whose data a pattern is, and the operation that combines it.
type PatternConfig struct {
	Rank, Ranks int
	Type        element.Type // default element.Float32
	Op          element.Op   // default element.Sum
}

// Pattern is the data of a collective: numbers that are pseudo-random by rank, position and
// iteration. They are chosen so that the result over all ranks is exact in whatever order an
// operation combines them, and results are compared bit by bit. A missing, doubled or misplaced
// slice, and a slice of another rank or of an earlier iteration, change the result. The exception
// is a doubled slice of a maximum or minimum, which cannot change it.
//
//   - For a sum: whole numbers from 1 on, whose sum over all ranks has no more digits than the type
//     has: 24 bits of a float32, 8 of a bfloat16. So there are at most 255 ranks of bfloat16 and
//     2,047 of half. With many ranks, only some ranks have a value at a given position, so that
//     these ranks have more than a few numbers to draw from.
//   - For an average of floating-point numbers: numbers that become such whole numbers when they
//     are multiplied by the rounded 1/n.
//   - For a maximum or minimum: whole numbers of both signs.
//   - Without combination: any bits except all zeros.
type Pattern struct {
	config   PatternConfig
	limit    uint64    // values are 1 to limit
	every    int       // of so many ranks in a row one has a value; up to 1: all
	before   []float64 // the number that an average makes i+1, or 0
	own      []byte
	expected []byte
}

// NewPattern returns the pattern of one rank. There can be 1 to 2^20 ranks.
func NewPattern(c PatternConfig) (*Pattern, error) {
	p, err := newData(c)
	if err == nil && p.config.Op != element.None {
		p.expect()
	}
	return p, err
}

// Check returns an error that says why the pattern does not exist, or nil.
func (c PatternConfig) Check() error {
	_, err := c.values()
	return err
}

// newData returns a pattern without its expected results.
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

// fewValues is the least number of values that tell the data of different positions apart.
const fewValues = 8

// values determines the numbers from which the data is drawn.
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
		return nil, fmt.Errorf("make data of type %s: no numbers have a %s over %d ranks that is "+
			"exact in any order", c.Type, c.Op, c.Ranks)
	}
	return p, nil
}

// weigh finds, for each whole number, the number that gives it when multiplied by 1/n: the quotient
// or a neighbour of it. It reports whether there is any.
func (p *Pattern) weigh() (found bool) {
	t := p.config.Type
	scale := element.Scale(t, p.config.Ranks)
	p.limit = min(p.limit, 1<<12) // a table of 4,096 is enough
	for want := range p.limit {
		want := float32(want + 1)
		before := 0.0
		for _, off := range []float64{0, 0.6, -0.6} {
			// A neighbour is 0.5 to 1 times 2^(1-digits) away. The neighbour is the number nearest
			// to this value.
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

// draw returns a rank's value at a position, and the whole number that an average adds for it.
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

// append appends a rank's element at a position.
func (p *Pattern) append(to []byte, rank, place int) []byte {
	if p.config.Op != element.None {
		value, _ := p.draw(rank, place)
		return element.Append(p.config.Type, to, value)
	}
	return appendBits(to, p.config.Type.Size(), mix(uint64(rank)<<32|uint64(place)))
}

// appendBits appends an element of random bits, not all of them 0.
func appendBits(to []byte, size int, random uint64) []byte {
	high, _ := bits.Mul64(random, 1<<(8*size)-1)
	for high++; size > 0; size-- {
		to = append(to, byte(high))
		high >>= 8
	}
	return to
}

// expect computes the results over all ranks' elements.
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

// shifted returns the position in the pattern at which an iteration starts.
func shifted(iteration int) int { return int(mix(^uint64(iteration)) % patternLen) }

// Fill sets memory to the rank's data for an iteration. The memory begins with element from of the
// whole buffer.
func (p *Pattern) Fill(memory []byte, iteration, from int) {
	p.over(memory, p.own, iteration, from, func(part, own []byte) { copy(part, own) })
}

// Wrong counts the elements of a result that differ from the operation's result over all ranks. The
// memory begins with element from of the whole result.
func (p *Pattern) Wrong(result []byte, iteration, from int) (wrong uint64) {
	p.over(result, p.expected, iteration, from, func(part, want []byte) {
		wrong += different(part, want, p.config.Type.Size())
	})
	return wrong
}

// over visits memory together with the corresponding part of a table.
func (p *Pattern) over(memory, table []byte, iteration, from int, visit func(part, table []byte)) {
	at := (shifted(iteration) + from) % patternLen * p.config.Type.Size()
	for len(memory) > 0 {
		n := min(len(memory), len(table)-at)
		visit(memory[:n], table[at:at+n])
		memory, at = memory[n:], 0
	}
}

// different counts the elements of the given size that differ between a and b.
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

// WrongOf counts the elements of a result that differ from a rank's data. The memory begins with
// element from of the whole result.
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

// Pattern returns the configuration of the pattern for one rank of a program.
func (p *Program) Pattern(rank int) PatternConfig {
	return PatternConfig{Rank: rank, Ranks: len(p.schedule.Ranks), Type: p.data.Type, Op: p.data.Op}
}

// Fill sets the rank's input in a mode to its data for an iteration.
func (r *Runner) Fill(p *Pattern, mode Mode, iteration int) {
	input, from := r.Buffer(mode, schedule.Input)
	p.Fill(input, iteration, from)
}

// Wrong counts the elements of the rank's output in a mode that differ from the operation's result.
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
				break // not the root
			}
			from, to := program.Span(rank, schedule.Input)
			wrong += p.WrongOf(rank, output[from*size:to*size], iteration, from)
		}
		return wrong
	}
	return p.Wrong(output, iteration, from)
}
