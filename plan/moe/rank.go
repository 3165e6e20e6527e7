package moe

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"

	"railbed/internal/element"
)

// Rank is one rank's tokens and experts.
//
// An exchange is Fill, Pack, messages to experts, Compute, messages back, Merge. Messages for
// a rank, and from one, follow each other in the order of tokens, and of a token in that of its
// choices; ranks in their order.
type Rank struct {
	config    Config
	rank      int
	routes    [][]choice // by rank
	iteration int
	values    []float32 // of one token
	mapped    []float32 // the same after it crossed
	codes     []byte
	scales    []float32
	tokens    []uint16 // bfloat16
	sum       []float32
	result    []byte
}

// NewRank is one of a right configuration.
func NewRank(c Config, rank int) *Rank {
	r := &Rank{
		config: c,
		rank:   rank,
		routes: make([][]choice, c.Ranks),
		values: make([]float32, c.Hidden),
		mapped: make([]float32, c.Hidden),
		codes:  make([]byte, c.Hidden),
		scales: make([]float32, c.Hidden/Block),
		tokens: make([]uint16, c.Tokens*c.Hidden),
		sum:    make([]float32, c.Hidden), result: make([]byte, 2*c.Tokens*c.Hidden),
	}
	popularity := c.popularity()
	for other := range r.routes {
		r.routes[other] = c.route(other, popularity)
	}
	return r
}

// Result are the tokens that Merge made, in bfloat16.
func (r *Rank) Result() []byte { return r.result }

// factor is what an expert multiplies values with: each one of 64 others, so that what the
// wrong one made is wrong.
func factor(expert int) float32 { return 1 + float32(expert%64)/64 }

// token sets values to those of a token in an iteration, which bfloat16 has exactly. Blocks are
// of different sizes, so that their scales are.
func (c Config) token(values []float32, rank, token, iteration int) {
	random := rand.NewPCG(c.Seed^uint64(iteration)<<32, uint64(rank)<<32|uint64(token))
	for i := 0; i < len(values); i += Block {
		size := float32(math.Ldexp(1, int(random.Uint64()%16)-8-15))
		for k := 0; k < Block; k += 4 {
			for bits, v := random.Uint64(), 0; v < 4; bits, v = bits>>16, v+1 {
				values[i+k+v] = element.FromBFloat16(element.ToBFloat16(float32(int16(bits)) * size))
			}
		}
	}
}

// Fill sets the rank's tokens to those of an iteration.
func (r *Rank) Fill(iteration int) {
	r.iteration = iteration
	for token := range r.config.Tokens {
		r.config.token(r.values, r.rank, token, iteration)
		for i, v := range r.values {
			r.tokens[token*r.config.Hidden+i] = element.ToBFloat16(v)
		}
	}
}

// places are where a rank's messages begin, by the other rank.
func (r *Rank) places(each int, count func(other int) int) []int {
	at := make([]int, r.config.Ranks)
	for other := 1; other < len(at); other++ {
		at[other] = at[other-1] + count(other-1)*each
	}
	return at
}

// from counts the messages that a rank's tokens are for experts at another one.
func (r *Rank) from(rank, to int) (count int) {
	for _, chosen := range r.routes[rank] {
		if r.config.home(chosen.expert) == to {
			count++
		}
	}
	return count
}

// header says which message it is.
func header(into []byte, rank, token, slot, expert int) {
	for i, v := range []int{rank, token, slot, expert} {
		binary.LittleEndian.PutUint32(into[4*i:], uint32(v))
	}
}

// body writes codes and scales behind a header.
func (r *Rank) body(message []byte) {
	copy(message[headerBytes:], r.codes)
	at := message[headerBytes+r.config.Hidden:]
	for i, scale := range r.scales {
		binary.LittleEndian.PutUint32(at[4*i:], math.Float32bits(scale))
	}
}

// Pack makes the messages to experts.
func (r *Rank) Pack(messages []byte) {
	c := &r.config
	at := r.places(c.DispatchBytes(), func(other int) int { return r.from(r.rank, other) })
	for token := range c.Tokens {
		for i, v := range r.tokens[token*c.Hidden:][:c.Hidden] {
			r.values[i] = element.FromBFloat16(v)
		}
		quantise(r.values, r.codes, r.scales)
		for slot, chosen := range r.routes[r.rank][token*c.TopK:][:c.TopK] {
			to := &at[c.home(chosen.expert)]
			message := messages[*to:][:c.DispatchBytes()]
			*to += len(message)
			header(message, r.rank, token, slot, chosen.expert)
			r.body(message)
		}
	}
}

// Compute has the rank's experts make messages back of those that came.
func (r *Rank) Compute(came, messages []byte) {
	c := &r.config
	for len(came) > 0 {
		message := came[:c.DispatchBytes()]
		came = came[len(message):]
		at := message[headerBytes+c.Hidden:]
		for i := range r.scales {
			r.scales[i] = math.Float32frombits(binary.LittleEndian.Uint32(at[4*i:]))
		}
		dequantise(message[headerBytes:][:c.Hidden], r.scales, r.values)
		by := factor(int(binary.LittleEndian.Uint32(message[12:])))
		for i, v := range r.values {
			binary.LittleEndian.PutUint16(messages[2*i:], element.ToBFloat16(v*by))
		}
		messages = messages[c.CombineBytes():]
	}
}

// Merge adds what came back up, weighted, in the order of each token's choices.
func (r *Rank) Merge(came []byte) {
	c := &r.config
	at := r.places(c.CombineBytes(), func(other int) int { return r.from(r.rank, other) })
	for token := range c.Tokens {
		clear(r.sum)
		for _, chosen := range r.routes[r.rank][token*c.TopK:][:c.TopK] {
			from := &at[c.home(chosen.expert)]
			message := came[*from:][:c.CombineBytes()]
			*from += len(message)
			for i := range r.sum {
				part := element.FromBFloat16(binary.LittleEndian.Uint16(message[2*i:]))
				r.sum[i] += float32(part * chosen.weight)
			}
		}
		for i, v := range r.sum {
			binary.LittleEndian.PutUint16(r.result[2*(token*c.Hidden+i):], element.ToBFloat16(v))
		}
	}
}

// WrongDispatched counts the bytes of messages to the rank's experts that are not what their
// senders had.
func (r *Rank) WrongDispatched(came []byte) (wrong uint64) {
	c := &r.config
	want := make([]byte, c.DispatchBytes())
	for rank, route := range r.routes {
		made := -1 // the token that codes and scales are of
		for i, chosen := range route {
			if c.home(chosen.expert) != r.rank {
				continue
			}
			if token := i / c.TopK; made != token {
				made = token
				c.token(r.values, rank, token, r.iteration)
				quantise(r.values, r.codes, r.scales)
				r.body(want)
			}
			header(want, rank, made, i%c.TopK, chosen.expert)
			message := came[:len(want)]
			came = came[len(want):]
			if !bytes.Equal(message, want) {
				for k := range want {
					if message[k] != want[k] {
						wrong++
					}
				}
			}
		}
	}
	return wrong
}

// Error is how far results are from what tokens would be that had crossed without being
// rounded.
type Error struct {
	// Squares is the sum of the squares of differences, and Of that of what is exact.
	Squares float64 `json:"squares"`
	Of      float64 `json:"of"`
	// Most is the greatest difference, in parts of the one that may be: see bound.
	Most float64 `json:"most"`
}

// Add takes another rank's in.
func (e *Error) Add(other Error) {
	e.Squares, e.Of, e.Most = e.Squares+other.Squares, e.Of+other.Of, max(e.Most, other.Most)
}

// Relative is the root of the mean square of differences, by that of what is exact.
func (e Error) Relative() float64 {
	if e.Of == 0 {
		return 0
	}
	return math.Sqrt(e.Squares / e.Of)
}

// bound is how far a result may be from a value times a factor: FP8 rounds by a sixteenth of a
// value at most, or half a step of the smallest values, which are a scale's 2^-9; bfloat16
// twice by 2^-9 of what it rounds, and float32 by less than as much again.
func bound(value, scale, by float64) float64 {
	code := max(math.Abs(value)/16, scale/1024)
	return by * (code + (math.Abs(value)+code)/128)
}

// WrongCombined counts the elements of the result that are not, to the last bit, what the
// same steps give here, or that are farther from the exact one than they may be.
func (r *Rank) WrongCombined() (wrong uint64, e Error) {
	c := &r.config
	for token := range c.Tokens {
		c.token(r.values, r.rank, token, r.iteration)
		quantise(r.values, r.codes, r.scales)
		dequantise(r.codes, r.scales, r.mapped)
		clear(r.sum)
		by := 0.0
		for _, chosen := range r.routes[r.rank][token*c.TopK:][:c.TopK] {
			times := factor(chosen.expert)
			by += float64(times) * float64(chosen.weight)
			for i, v := range r.mapped {
				part := element.FromBFloat16(element.ToBFloat16(v * times))
				r.sum[i] += float32(part * chosen.weight)
			}
		}
		for i, v := range r.sum {
			got := binary.LittleEndian.Uint16(r.result[2*(token*c.Hidden+i):])
			exact := float64(r.values[i]) * by
			difference := float64(element.FromBFloat16(got)) - exact
			if math.IsNaN(difference) || math.IsInf(difference, 0) {
				wrong++
				continue
			}
			part := math.Abs(difference) / bound(float64(r.values[i]), float64(r.scales[i/Block]), by)
			if got != element.ToBFloat16(v) || !(part <= 1) {
				wrong++
			}
			e.Squares += difference * difference
			e.Of += exact * exact
			e.Most = max(e.Most, part)
		}
	}
	return wrong, e
}
