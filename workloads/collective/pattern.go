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
// iteration. The result over all ranks is exact for each order in which an operation combines them. The
// bound of every comparison is therefore 0: results are compared bit by bit. A missing, doubled or
// misplaced slice changes the result. So does a slice of another rank or of an earlier iteration. The
// exception is a doubled slice of a maximum or minimum, which cannot change it.
//
//   - For integers: any bits but 0, because sums and products are exact modulo 2^w. Factors are odd
//     and not 1, so that each of them changes a product. The average of n integers shows a fault only
//     if the fault changes the quotient by n.
//   - For a sum: whole numbers from 1 on. Their sum over all ranks has at most Type.Digits binary
//     digits, such as 8 for bfloat16 and 3 for fp8_e5m2. With many ranks, only some ranks have a
//     value at a given position, so that these ranks have more than a few numbers to draw from. Types
//     of 8 bits have few whole numbers. Their numbers are also multiplied by a power of two that
//     depends on the position.
//   - For an average of floating-point numbers: numbers that become such whole numbers when they
//     are multiplied by the rounded 1/n.
//   - For a product: powers of two of both signs, except 1, whose product is in range. At each
//     position one rank's number has random digits besides.
//   - For a maximum or minimum: numbers of both signs.
//   - Without combination: any bits except all zeros.
type Pattern struct {
	config   PatternConfig
	limit    uint64    // Whole numbers are 1 to limit, exponents of factors 0 to limit.
	every    int       // Of so many ranks in a row one has a value. Up to 1: all have one.
	least    int       // The least exponent of the power of two that multiplies a number.
	powers   uint64    // The number of these exponents, or 0.
	before   []float64 // The number that an average makes i+1, or 0.
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

const (
	// fewValues is the least number of values for which the data of different positions differ.
	fewValues = 8
	// fewFactors is the same for whole numbers that are also multiplied by a power of two, and
	// fewExponents for powers of two that also have signs.
	fewFactors   = 2
	fewExponents = 3
)

// values determines the numbers from which the data is drawn.
func (c PatternConfig) values() (*Pattern, error) {
	c.Type, c.Op = cmp.Or(c.Type, element.Float32), cmp.Or(c.Op, element.Sum)
	p := &Pattern{config: c}
	most := uint64(math.MaxUint64) >> (64 - c.Type.Digits())
	least, highest := c.Type.Exponents()
	if p.limit = most; c.Type.Size() == 1 && !c.Type.Integer() && c.Op != element.Average {
		p.least, p.powers = least, uint64(highest-c.Type.Digits()-least+1)
	}
	exists := c.Type.Size() > 0
	switch {
	case c.Type.Integer():
		exists = c.Op != element.Average || uint64(c.Ranks) <= most
	case c.Op == element.Product:
		p.divide(uint64(max(highest-1, 0)), fewExponents)
	case c.Op == element.Sum && p.powers > 0:
		p.divide(most, fewFactors)
	case c.Op == element.Sum:
		p.divide(most, fewValues)
	case c.Op == element.Average && exists:
		p.divide(most, fewValues)
		exists = p.weigh()
	}
	if !exists {
		return nil, fmt.Errorf("make data of type %s: no numbers have a %s over %d ranks that is "+
			"exact in any order", c.Type, c.Op, c.Ranks)
	}
	return p, nil
}

// divide gives each rank that has a value a part of the total that all of them may have together. If
// the parts were too few, fewer ranks have a value.
func (p *Pattern) divide(total, few uint64) {
	ranks := uint64(p.config.Ranks)
	if p.limit = total / ranks; p.limit < few {
		every := min((few*ranks+total-1)/max(total, 1), ranks)
		p.every, p.limit = int(every), total/((ranks+every-1)/every)
	}
}

// weigh finds, for each whole number, the number that gives it when multiplied by 1/n: the quotient
// or a neighbour of it. It reports whether there is any.
func (p *Pattern) weigh() (found bool) {
	t := p.config.Type
	scale := element.Scale(t, p.config.Ranks)
	p.limit = min(p.limit, 1<<12) // a table of 4,096 is enough
	for want := range p.limit {
		want := float64(want + 1)
		before := 0.0
		for _, off := range []float64{0, 0.6, -0.6} {
			// A neighbour is 0.5 to 1 times 2^(1-digits) away. The neighbour is the number nearest
			// to this value.
			value := element.At(t, element.Append(t, nil, want/scale*(1+math.Ldexp(off, 1-t.Digits()))), 0)
			if element.Scaled(t, value, scale) == want {
				before, found = value, true
				break
			}
		}
		p.before = append(p.before, before)
	}
	return found
}

// none returns the number that changes no result.
func (p *Pattern) none() float64 {
	if p.config.Op == element.Product {
		return 1
	}
	return 0
}

// draw returns a rank's floating-point number at a position, and the number that counts for it in the
// result: of an average, the whole number.
func (p *Pattern) draw(rank, place int) (value, counts float64) {
	random := mix(uint64(rank)<<32 | uint64(place))
	value = p.none()
	if p.every <= 1 || (rank+place)%p.every == 0 {
		value, counts = p.drawn(random, place)
		if p.before != nil {
			return value, counts
		}
	}
	if p.config.Op == element.Product && place%p.config.Ranks == rank {
		digits := uint64(1) << (p.config.Type.Digits() - 1)
		value *= 1 + float64(random/2%digits)/float64(digits)
	}
	return value, value
}

// drawn returns a number of a rank that has one at a position, and what an average adds for it.
func (p *Pattern) drawn(random uint64, place int) (value, counts float64) {
	high, _ := bits.Mul64(random, p.limit)
	switch p.config.Op {
	case element.Average:
		for p.before[high] == 0 {
			high = (high + 1) % p.limit
		}
		return p.before[high], float64(high + 1)
	case element.Product:
		exponent, _ := bits.Mul64(random, p.limit+1)
		value = math.Ldexp(1, int(exponent))
		if exponent == 0 || random&1 != 0 {
			value = -value
		}
		return value, value
	}
	value = float64(high + 1)
	power := mix(uint64(place))
	if p.config.Op != element.Sum {
		if random&1 != 0 {
			value = -value
		}
		power = random >> 1
	}
	if p.powers > 0 {
		value = math.Ldexp(value, p.least+int(power%p.powers))
	}
	return value, value
}

// integer returns the bits of a rank's integer at a position. Only the lowest bits count.
func (p *Pattern) integer(rank, place int) uint64 {
	random := mix(uint64(rank)<<32 | uint64(place))
	if p.config.Op != element.Product {
		return someBits(p.config.Type.Size(), random)
	}
	unused := 64 - 8*p.config.Type.Size()
	if random |= 1; random<<unused == 1<<unused {
		random |= 2
	}
	return random
}

// append appends a rank's element at a position.
func (p *Pattern) append(to []byte, rank, place int) []byte {
	switch t := p.config.Type; {
	case p.config.Op == element.None:
		return appendBits(to, t.Size(), mix(uint64(rank)<<32|uint64(place)))
	case t.Integer():
		return element.AppendBits(t, to, p.integer(rank, place))
	}
	value, _ := p.draw(rank, place)
	return element.Append(p.config.Type, to, value)
}

// someBits makes random bits of an element those of a number from 1 on.
func someBits(size int, random uint64) uint64 {
	high, _ := bits.Mul64(random, 1<<(8*size)-1)
	return high + 1
}

// appendBits appends an element of random bits, not all of them 0.
func appendBits(to []byte, size int, random uint64) []byte {
	for high := someBits(size, random); size > 0; size-- {
		to = append(to, byte(high))
		high >>= 8
	}
	return to
}

// expect computes the results over all ranks' elements.
func (p *Pattern) expect() {
	if p.config.Type.Integer() {
		p.expectIntegers()
		return
	}
	results := make([]float64, patternLen)
	for rank := range p.config.Ranks {
		for place := range results {
			_, counts := p.draw(rank, place)
			switch r := &results[place]; {
			case rank == 0, p.config.Op == element.Max && counts > *r,
				p.config.Op == element.Min && counts < *r:
				*r = counts
			case p.config.Op == element.Product:
				*r *= counts
			case p.config.Op == element.Sum || p.config.Op == element.Average:
				*r += counts
			}
		}
	}
	for _, result := range results {
		p.expected = element.Append(p.config.Type, p.expected, result)
	}
}

// expectIntegers computes the results of integers with 64 bits.
func (p *Pattern) expectIntegers() {
	unused := 64 - 8*p.config.Type.Size()
	signed := p.config.Type.Digits()%8 != 0
	extended := func(bits uint64) uint64 { // to 64 bits
		if signed {
			return uint64(int64(bits<<unused) >> unused)
		}
		return bits << unused >> unused
	}
	less := func(a, b uint64) bool { return signed && int64(a) < int64(b) || !signed && a < b }
	results := make([]uint64, patternLen)
	for rank := range p.config.Ranks {
		for place := range results {
			value := extended(p.integer(rank, place))
			switch r := &results[place]; {
			case rank == 0, p.config.Op == element.Max && less(*r, value),
				p.config.Op == element.Min && less(value, *r):
				*r = value
			case p.config.Op == element.Product:
				*r *= value
			case p.config.Op == element.Sum || p.config.Op == element.Average:
				*r += value
			}
		}
	}
	for _, result := range results {
		if n := p.config.Ranks; p.config.Op == element.Average && signed {
			result = uint64(int64(extended(result)) / int64(n))
		} else if p.config.Op == element.Average {
			result = extended(result) / uint64(n)
		}
		p.expected = element.AppendBits(p.config.Type, p.expected, result)
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

// Pattern returns the configuration of the pattern of the rank's data.
func (r *Runner) Pattern() PatternConfig {
	return PatternConfig{Rank: r.config.Rank, Ranks: r.traits.ranks, Type: r.traits.data, Op: r.traits.op}
}

// Fill sets the rank's input in a mode to its data for an iteration.
func (r *Runner) Fill(p *Pattern, mode Mode, iteration int) {
	input, from := r.Buffer(mode, schedule.Input)
	p.Fill(input, iteration, from)
}

// Wrong counts the elements of the rank's output in a mode that differ from the operation's result, less
// the losses of all ranks. short counts the elements that lack a part of the result.
func (r *Runner) Wrong(p *Pattern, mode Mode, iteration int, lost []Loss) (wrong, short uint64) {
	output, from := r.Buffer(mode, schedule.Output)
	return r.config.Algorithm.wrong(p, r.config.Rank, output, from, iteration, lost)
}

// wrong implements Algorithm.
func (p *Program) wrong(data *Pattern, rank int, output []byte, from, iteration int, _ []Loss) (wrong,
	short uint64) {
	s, size := p.schedule, p.data.Type.Size()
	if s.Kind.Combines() {
		return data.Wrong(output, iteration, from), 0
	}
	for chunk := range s.Chunks {
		if s.Has(rank, schedule.Output, chunk) {
			of, other := s.Source(rank, chunk)
			first, end := divide(0, p.data.Count, s.Chunks, chunk)
			at, _ := divide(0, p.data.Count, s.Chunks, other)
			wrong += data.WrongOf(of, output[(first-from)*size:(end-from)*size], iteration, at)
		}
	}
	return wrong, 0
}
