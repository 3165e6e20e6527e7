package moe

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"

	"railbed/internal/element"
	"railbed/plan/spec"
)

// Rank holds the tokens and experts of a rank.
//
// An exchange is Fill, Pack, messages to experts, Compute, messages back, Merge. Messages for a
// rank, and from a rank, are in the order of tokens, and for a token in the order of its choices.
// Ranks are in their order.
type Rank struct {
	config    Config
	rank      int
	routes    [][]choice // by rank
	iteration int
	values    []float32 // of a token
	mapped    []float32 // the values after the conversion to FP8 and back
	codes     []byte
	scales    []float32
	tokens    []uint16 // bfloat16
	sum       []float32
	result    []byte
}

// NewRank returns a rank of a valid configuration.
func NewRank(c Config, rank int) *Rank {
	r := &Rank{
		config: c,
		rank:   rank,
		routes: make([][]choice, c.Ranks),
		values: make([]float32, c.Hidden),
		mapped: make([]float32, c.Hidden),
		codes:  make([]byte, c.Hidden),
		scales: make([]float32, c.Hidden/spec.TokenBlock),
		tokens: make([]uint16, c.Tokens*c.Hidden),
		sum:    make([]float32, c.Hidden), result: make([]byte, 2*c.Tokens*c.Hidden),
	}
	popularity := c.popularity()
	for other := range r.routes {
		r.routes[other] = c.route(other, popularity)
	}
	return r
}

// Result returns the tokens that Merge made, in bfloat16.
func (r *Rank) Result() []byte { return r.result }

// factor returns the factor by which an expert multiplies values. It differs among 64 consecutive
// experts, so that a result of the wrong expert is wrong.
func factor(expert int) float32 { return 1 + float32(expert%64)/64 }

// token sets values to the values of a token in an iteration. They are exact in bfloat16. Blocks
// have different magnitudes, so that their scales differ.
func (c Config) token(values []float32, rank, token, iteration int) {
	random := rand.NewPCG(c.Seed^uint64(iteration)<<32, uint64(rank)<<32|uint64(token))
	for i := 0; i < len(values); i += spec.TokenBlock {
		size := float32(math.Ldexp(1, int(random.Uint64()%16)-8-15))
		for k := 0; k < spec.TokenBlock; k += 4 {
			for bits, v := random.Uint64(), 0; v < 4; bits, v = bits>>16, v+1 {
				values[i+k+v] = element.FromBFloat16(element.ToBFloat16(float32(int16(bits)) * size))
			}
		}
	}
}

// Fill sets the rank's tokens for an iteration.
func (r *Rank) Fill(iteration int) {
	r.iteration = iteration
	for token := range r.config.Tokens {
		r.config.token(r.values, r.rank, token, iteration)
		for i, v := range r.values {
			r.tokens[token*r.config.Hidden+i] = element.ToBFloat16(v)
		}
	}
}

// places returns the offsets at which a rank's messages begin, by the other rank.
func (r *Rank) places(each int, count func(other int) int) []int {
	at := make([]int, r.config.Ranks)
	for other := 1; other < len(at); other++ {
		at[other] = at[other-1] + count(other-1)*each
	}
	return at
}

// from counts the messages from a rank's tokens to experts of another rank.
func (r *Rank) from(rank, to int) (count int) {
	for _, chosen := range r.routes[rank] {
		if r.config.home(chosen.expert) == to {
			count++
		}
	}
	return count
}

// header writes the bytes that identify a message.
func header(into []byte, rank, token, slot, expert int) {
	for i, v := range []int{rank, token, slot, expert} {
		binary.LittleEndian.PutUint32(into[4*i:], uint32(v))
	}
}

// body writes codes and scales after a header.
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

// Compute makes the results of the rank's experts from the messages that arrived.
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

// Merge adds up the results that came back, weighted, in the order of each token's choices.
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

// WrongDispatched counts the bytes of messages to the rank's experts that differ from the
// bytes that their senders made.
func (r *Rank) WrongDispatched(came []byte) (wrong uint64) {
	c := &r.config
	want := make([]byte, c.DispatchBytes())
	for rank, route := range r.routes {
		made := -1 // the token whose codes and scales are computed
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

// Error measures how far results are from the results without rounding on the way.
type Error struct {
	// Squares is the sum of the squares of differences. Of is the sum of the squares of the exact
	// values.
	Squares float64 `json:"squares"`
	Of      float64 `json:"of"`
	// Most is the largest difference, as a share of the permitted difference, see bound.
	Most float64 `json:"most"`
}

// Add adds the errors of another rank.
func (e *Error) Add(other Error) {
	e.Squares, e.Of, e.Most = e.Squares+other.Squares, e.Of+other.Of, max(e.Most, other.Most)
}

// Relative returns the root mean square of differences, divided by the root mean square of the
// exact values.
func (e Error) Relative() float64 {
	if e.Of == 0 {
		return 0
	}
	return math.Sqrt(e.Squares / e.Of)
}

// bound returns the permitted difference of a result from a value times a factor. FP8 rounds by at
// most a sixteenth of a value, or by half a step of the smallest values, which are 2^-9 of a scale.
// bfloat16 rounds twice by 2^-9 of its input. float32 rounds by less than that again.
func bound(value, scale, by float64) float64 {
	code := max(math.Abs(value)/16, scale/1024)
	return by * (code + (math.Abs(value)+code)/128)
}

// WrongCombined counts the elements of the result that are wrong. An element is wrong if it differs
// in any bit from the result of the same steps here, or if its difference from the exact value is
// not permitted.
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
			scale := float64(r.scales[i/spec.TokenBlock])
			part := math.Abs(difference) / bound(float64(r.values[i]), scale, by)
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
