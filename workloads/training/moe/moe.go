// Package moe implements the exchange of a mixture of experts that are spread over ranks. Each
// token goes to the experts that a gate chose for it (dispatch). Their results come back and are
// added up, weighted by the gate (combine).
//
// The messages have the format of DeepEP's low-latency kernels. For each token and each of its
// experts, the dispatch message has 16 bytes that identify the token, the token in FP8, and a
// float32 scale for each 128 values. The combine message is a token in bfloat16.
//
// A Config determines the whole exchange. Each rank therefore knows the messages of every other
// rank, and can compute the messages that must arrive.
//
// The package is pure. Its functions are safe for concurrent use. The methods of Rank are not.
package moe

import (
	"fmt"
	"math"
	"math/rand/v2"

	"railbed/plan/spec"
)

// headerBytes is the length of the part of a message that identifies it, before the token.
const headerBytes = 16

// Limits of a Config.
const (
	maxExperts = 1024
	maxTokens  = 1 << 14
	maxHidden  = 1 << 15
	maxTopK    = 64
	// maxValues bounds the values that a rank sends, all copies counted.
	maxValues = 1 << 27
)

// Config is the configuration that all ranks share.
type Config struct {
	Ranks int `json:"ranks"`
	// Experts is the total number of experts. Each rank has the same number of them, in order.
	Experts int `json:"experts"`
	Tokens  int `json:"tokens"` // of each rank
	Hidden  int `json:"hidden"` // values of a token, a multiple of spec.TokenBlock
	TopK    int `json:"top_k"`  // experts of a token, all different
	// Skew is the exponent of Zipf's law. The k-th most popular expert is drawn in proportion to
	// 1/k^Skew. With 0 all experts are equally popular. Seed decides the order of popularity and
	// the draws.
	Skew float64 `json:"skew"`
	Seed uint64  `json:"seed"`
}

// ConfigOf returns the configuration of a mixture of a file on a number of ranks.
func ConfigOf(m *spec.MoE, ranks int, seed uint64) Config {
	return Config{Ranks: ranks, Experts: m.Experts, Tokens: m.Tokens, Hidden: m.Hidden, TopK: m.TopK,
		Skew: m.Skew.Float(), Seed: seed}
}

// Check returns an error for an invalid configuration.
func (c Config) Check() error {
	switch {
	case c.Ranks < 1 || c.Experts < 1 || c.Experts > maxExperts || c.Experts%c.Ranks != 0:
		return fmt.Errorf("%d experts on %d ranks: want a multiple of the ranks, at most %d", c.Experts,
			c.Ranks, maxExperts)
	case c.TopK < 1 || c.TopK > min(c.Experts, maxTopK):
		return fmt.Errorf("%d of %d experts for each token: want 1 to %d", c.TopK, c.Experts,
			min(c.Experts, maxTopK))
	case c.Tokens < 1 || c.Tokens > maxTokens:
		return fmt.Errorf("%d tokens: want 1 to %d", c.Tokens, maxTokens)
	case c.Hidden < spec.TokenBlock || c.Hidden > maxHidden || c.Hidden%spec.TokenBlock != 0:
		return fmt.Errorf("%d values of a token: want a multiple of %d up to %d", c.Hidden, spec.TokenBlock,
			maxHidden)
	case c.Tokens*c.TopK*c.Hidden > maxValues:
		return fmt.Errorf("a rank sends %d values: want at most %d, by fewer tokens, or fewer values or "+
			"experts for each token", c.Tokens*c.TopK*c.Hidden, maxValues)
	case !(c.Skew >= 0 && c.Skew <= 4):
		return fmt.Errorf("a skew of %v: want 0 to 4", c.Skew)
	}
	return nil
}

// DispatchBytes is the length of a message to an expert.
func (c Config) DispatchBytes() int { return headerBytes + c.Hidden + c.Hidden/spec.TokenBlock*4 }

// CombineBytes is the length of a message from an expert.
func (c Config) CombineBytes() int { return 2 * c.Hidden }

// home returns the rank of an expert.
func (c Config) home(expert int) int { return expert / (c.Experts / c.Ranks) }

// choice is one of the experts of a token, and its weight.
type choice struct {
	expert int
	weight float32
}

// weightOne is the weight of the most popular expert.
const weightOne = 1 << 32

// popularity returns the weights of experts in a draw. They are whole numbers so that draws are the
// same everywhere.
func (c Config) popularity() []uint64 {
	weights := make([]uint64, c.Experts)
	for k, expert := range rand.New(rand.NewPCG(c.Seed, 0)).Perm(c.Experts) {
		weights[expert] = max(1, uint64(math.Round(weightOne*math.Pow(float64(k+1), -c.Skew))))
	}
	return weights
}

// route returns the choices of all tokens of a rank, TopK for each. Experts are drawn without
// replacement. Weights are uniform random numbers, scaled to a sum of 1.
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

// Load is the load that results from the choices of all ranks' gates.
type Load struct {
	Pairs   [][]int // messages to experts, by the rank of the token and the rank of the expert
	Experts []int   // tokens of each expert
}

// Load returns the load of a valid configuration.
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

// Hottest returns the expert with the most tokens, its number of tokens, and the ratio of that
// number to the mean.
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

// Bytes returns the bytes that a rank sends to another in one exchange. dispatch counts messages to
// the other rank's experts, and combine the results of its own experts.
func (c Config) Bytes(l *Load, from, to int) (dispatch, combine int) {
	return l.Pairs[from][to] * c.DispatchBytes(), l.Pairs[to][from] * c.CombineBytes()
}
