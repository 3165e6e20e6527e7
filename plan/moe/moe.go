// Package moe is the exchange of a mixture of experts, whose experts are spread over ranks:
// each token goes to the experts that a gate chose for it (dispatch), and what these make of it
// comes back and is added up, weighted by the gate (combine). What is sent is that of DeepEP's
// low-latency kernels: for each token and expert that it goes to a message of 16 bytes that say
// which token it is, the token in FP8, and a float32 for each 128 values that these are
// multiplied with; and back a token in bfloat16.
//
// All of it follows from a Config, so that each rank knows what every other one sends, and can
// compute by itself what must come.
//
// The package is pure; its functions are safe for concurrent use, a Rank's methods are not.
package moe

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Block is how many values have one scale.
const Block = 128

// headerBytes are those of a message before the token: which it is.
const headerBytes = 16

// Limits of a Config.
const (
	MaxExperts = 1024
	MaxTokens  = 1 << 14
	MaxHidden  = 1 << 15
	MaxTopK    = 64
	// MaxValues is that of the values that a rank sends, all copies counted.
	MaxValues = 1 << 27
)

// Config is what all ranks have in common.
type Config struct {
	Ranks int `json:"ranks"`
	// Experts are in all; the same number is at each rank, in order.
	Experts int `json:"experts"`
	Tokens  int `json:"tokens"` // of each rank
	Hidden  int `json:"hidden"` // values of a token, a multiple of Block
	TopK    int `json:"top_k"`  // experts of a token, all different
	// Skew is the exponent of Zipf's law, by which the k-th most popular expert is drawn in
	// proportion to 1/k^Skew; 0 is that all are alike. Seed says who is how popular, and
	// draws.
	Skew float64 `json:"skew"`
	Seed uint64  `json:"seed"`
}

// Check says what is wrong with a configuration.
func (c Config) Check() error {
	switch {
	case c.Ranks < 1 || c.Experts < 1 || c.Experts > MaxExperts || c.Experts%c.Ranks != 0:
		return fmt.Errorf("%d experts on %d ranks: want as many on each, and at most %d", c.Experts, c.Ranks,
			MaxExperts)
	case c.TopK < 1 || c.TopK > min(c.Experts, MaxTopK):
		return fmt.Errorf("%d experts for each token, of %d: want 1 to %d", c.TopK, c.Experts,
			min(c.Experts, MaxTopK))
	case c.Tokens < 1 || c.Tokens > MaxTokens:
		return fmt.Errorf("%d tokens: want 1 to %d", c.Tokens, MaxTokens)
	case c.Hidden < Block || c.Hidden > MaxHidden || c.Hidden%Block != 0:
		return fmt.Errorf("%d values of a token: want a multiple of %d up to %d", c.Hidden, Block, MaxHidden)
	case c.Tokens*c.TopK*c.Hidden > MaxValues:
		return fmt.Errorf("%d values that a rank sends: want at most %d, so fewer tokens, values or "+
			"experts for each", c.Tokens*c.TopK*c.Hidden, MaxValues)
	case !(c.Skew >= 0 && c.Skew <= 4):
		return fmt.Errorf("a skew of %v: want 0 to 4", c.Skew)
	}
	return nil
}

// DispatchBytes is the length of a message to an expert, and CombineBytes of the one back.
func (c Config) DispatchBytes() int { return headerBytes + c.Hidden + c.Hidden/Block*4 }

// CombineBytes is the length of a message from an expert.
func (c Config) CombineBytes() int { return 2 * c.Hidden }

// home is the rank of an expert.
func (c Config) home(expert int) int { return expert / (c.Experts / c.Ranks) }

// choice is one of the experts of a token, and its weight.
type choice struct {
	expert int
	weight float32
}

// weightOne is the weight of the most popular expert.
const weightOne = 1 << 32

// popularity are the weights of experts in a draw, whole numbers so that draws are the same
// everywhere.
func (c Config) popularity() []uint64 {
	weights := make([]uint64, c.Experts)
	for k, expert := range rand.New(rand.NewPCG(c.Seed, 0)).Perm(c.Experts) {
		weights[expert] = max(1, uint64(math.Round(weightOne*math.Pow(float64(k+1), -c.Skew))))
	}
	return weights
}

// route are the choices of all tokens of a rank, TopK for each: experts are drawn without
// putting them back, and weights are uniform numbers whose sum is 1.
func (c Config) route(rank int, popularity []uint64) []choice {
	random := rand.New(rand.NewPCG(c.Seed, uint64(rank)+1))
	choices := make([]choice, 0, c.Tokens*c.TopK)
	left := make([]uint64, c.Experts)
	var whole uint64
	for _, weight := range popularity {
		whole += weight
	}
	for range c.Tokens {
		copy(left, popularity)
		sum, own := whole, choices[len(choices):]
		var weights float32
		for range c.TopK {
			at, expert := random.Uint64N(sum), 0
			for ; at >= left[expert]; expert++ {
				at -= left[expert]
			}
			sum -= left[expert]
			left[expert] = 0
			weight := float32(random.Uint32()>>8+1) / (1 << 24)
			weights += weight
			own = append(own, choice{expert, weight})
		}
		for i := range own {
			own[i].weight /= weights
		}
		choices = choices[:len(choices)+c.TopK]
	}
	return choices
}

// Load is what the gates of all ranks chose.
type Load struct {
	Pairs   [][]int // messages to experts, by the rank of the token and that of the expert
	Experts []int   // tokens of each
}

// Load is that of the configuration, which has to be right.
func (c Config) Load() Load {
	l := Load{Pairs: make([][]int, c.Ranks), Experts: make([]int, c.Experts)}
	popularity := c.popularity()
	for rank := range l.Pairs {
		l.Pairs[rank] = make([]int, c.Ranks)
		for _, chosen := range c.route(rank, popularity) {
			l.Pairs[rank][c.home(chosen.expert)]++
			l.Experts[chosen.expert]++
		}
	}
	return l
}

// Hottest is the expert with the most tokens, and how many times as many these are as the
// mean's.
func (l Load) Hottest() (expert, tokens int, times float64) {
	sum := 0
	for e, t := range l.Experts {
		sum += t
		if t > tokens {
			expert, tokens = e, t
		}
	}
	return expert, tokens, float64(tokens) * float64(len(l.Experts)) / float64(max(sum, 1))
}

// Bytes is what a rank sends another one in one exchange: messages to its experts, and those
// of its own experts back.
func (c Config) Bytes(l *Load, from, to int) (dispatch, combine int) {
	return l.Pairs[from][to] * c.DispatchBytes(), l.Pairs[to][from] * c.CombineBytes()
}
