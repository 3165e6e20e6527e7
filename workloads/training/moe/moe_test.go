package moe

import (
	"fmt"
	"math"
	"testing"
)

// exchange performs an exchange among all ranks. A function may change messages on their way.
func exchange(c Config, ranks []*Rank, iteration int,
	change func(combine bool, from, to int, messages []byte)) {
	l := c.Load()
	crossed := func(combine bool, each int, count func(from, to int) int, made [][]byte) [][]byte {
		came, at := make([][]byte, c.Ranks), make([]int, c.Ranks)
		for to := range came {
			for from := range made {
				n := count(from, to) * each
				block := append([]byte(nil), made[from][at[from]:][:n]...)
				at[from] += n
				if change != nil {
					change(combine, from, to, block)
				}
				came[to] = append(came[to], block...)
			}
		}
		return came
	}
	made := make([][]byte, c.Ranks)
	for rank, r := range ranks {
		r.Fill(iteration)
		for _, n := range l.Pairs[rank] {
			made[rank] = append(made[rank], make([]byte, n*c.DispatchBytes())...)
		}
		r.Pack(made[rank])
	}
	came := crossed(false, c.DispatchBytes(), func(from, to int) int { return l.Pairs[from][to] }, made)
	back := make([][]byte, c.Ranks)
	for rank, r := range ranks {
		dispatched = append(dispatched[:rank], r.WrongDispatched(came[rank]))
		back[rank] = make([]byte, len(came[rank])/c.DispatchBytes()*c.CombineBytes())
		r.Compute(came[rank], back[rank])
	}
	for rank, came := range crossed(true, c.CombineBytes(), func(from, to int) int {
		return l.Pairs[to][from]
	}, back) {
		ranks[rank].Merge(came)
	}
}

// dispatched holds the errors that the latest exchange found before experts computed.
var dispatched []uint64

func newRanks(c Config) (ranks []*Rank) {
	for rank := range c.Ranks {
		ranks = append(ranks, NewRank(c, rank))
	}
	return ranks
}

// TestExchange checks that all results are right and close to the results without rounding. Damaged
// messages, messages of another rank and old messages are counted.
func TestExchange(t *testing.T) {
	for _, c := range []Config{
		{Ranks: 1, Experts: 4, Tokens: 3, Hidden: 128, TopK: 2, Seed: 1},
		{Ranks: 3, Experts: 12, Tokens: 40, Hidden: 256, TopK: 4, Skew: 1.2, Seed: 2},
		{Ranks: 5, Experts: 5, Tokens: 16, Hidden: 384, TopK: 5, Skew: 4, Seed: 3},
	} {
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		ranks := newRanks(c)
		var e Error
		for iteration := range 3 {
			exchange(c, ranks, iteration, nil)
			for rank, r := range ranks {
				wrong, far := r.WrongCombined()
				if e.Add(far); wrong != 0 || dispatched[rank] != 0 {
					t.Errorf("%+v, rank %d: %d wrong elements, %d wrong bytes", c, rank, wrong,
						dispatched[rank])
				}
			}
		}
		// A uniform error of FP8's three bits of mantissa is about 2.5 %.
		if e.Relative() < 0.015 || e.Relative() > 0.04 || e.Most < 0.5 || e.Most > 1 {
			t.Errorf("%+v: error %v, %v of what it may be", c, e.Relative(), e.Most)
		}
	}
	c := Config{Ranks: 3, Experts: 6, Tokens: 8, Hidden: 128, TopK: 3, Seed: 4}
	for name, change := range map[string]func(combine bool, from, to int, messages []byte){
		"a value":    func(combine bool, from, to int, m []byte) { m[21] ^= 0x40 },
		"a scale":    func(combine bool, from, to int, m []byte) { m[c.DispatchBytes()-1] ^= 1 },
		"an expert":  func(combine bool, from, to int, m []byte) { m[12] ^= 1 },
		"two tokens": func(combine bool, from, to int, m []byte) { copy(m, m[len(m)/2:]) },
		"NaN":        func(combine bool, from, to int, m []byte) { m[30], m[31] = 0xFF, 0x7F },
	} {
		for _, back := range []bool{false, true} {
			ranks := newRanks(c)
			exchange(c, ranks, 0, func(combine bool, from, to int, messages []byte) {
				if combine == back && from == 0 && to == 1 {
					change(combine, from, to, messages)
				}
			})
			var bytes, elements uint64
			for rank, r := range ranks {
				wrong, _ := r.WrongCombined()
				bytes, elements = bytes+dispatched[rank], elements+wrong
			}
			if back && (bytes > 0 || elements == 0) || !back && (bytes == 0 || elements == 0) {
				t.Errorf("%s, on its way back %v: %d bytes, %d elements are wrong", name, back, bytes,
					elements)
			}
		}
	}
	ranks := newRanks(c)
	exchange(c, ranks, 0, nil)
	for _, r := range ranks {
		r.iteration++
		if wrong, _ := r.WrongCombined(); wrong < uint64(c.Tokens*c.Hidden*9/10) {
			t.Errorf("the result of an iteration before has %d wrong elements", wrong)
		}
	}
}

// TestRoutes checks that experts of a token are different, that weights add up to one, and that
// popularity follows Zipf.
func TestRoutes(t *testing.T) {
	c := Config{Ranks: 4, Experts: 16, Tokens: 8000, Hidden: 128, TopK: 1, Skew: 1, Seed: 9}
	l := c.Load()
	harmonic := 0.0
	for k := range c.Experts {
		harmonic += 1 / float64(k+1)
	}
	_, tokens, times := l.Hottest()
	if want := float64(c.Ranks*c.Tokens) / harmonic; math.Abs(float64(tokens)-want) > 0.03*want ||
		math.Abs(times-float64(c.Experts)/harmonic) > 0.2 {
		t.Errorf("the hottest has %d tokens, %v times the mean, want %v", tokens, times, want)
	}
	c.TopK, c.Tokens = 5, 200
	for _, skew := range []float64{0, 0.5, 4} {
		c.Skew = skew
		l, sum := c.Load(), 0
		for rank := range c.Ranks {
			route := c.route(rank, c.popularity())
			for token := range c.Tokens {
				seen, weights := map[int]bool{}, float32(0)
				for _, chosen := range route[token*c.TopK:][:c.TopK] {
					seen[chosen.expert] = true
					weights += chosen.weight
				}
				if len(seen) != c.TopK || math.Abs(float64(weights)-1) > 1e-6 {
					t.Fatalf("skew %v: a token has experts %v, weights of %v", skew, seen, weights)
				}
			}
			for to, n := range l.Pairs[rank] {
				sum += n
				if dispatch, combine := c.Bytes(&l, rank, to); dispatch != n*(128+4+16) ||
					combine != l.Pairs[to][rank]*256 {
					t.Errorf("rank %d sends rank %d %d and %d bytes for %d", rank, to, dispatch, combine, n)
				}
			}
		}
		if sum != c.Ranks*c.Tokens*c.TopK {
			t.Errorf("skew %v: %d messages", skew, sum)
		}
	}
	if a, b := fmt.Sprint(c.route(1, c.popularity())[:9]),
		fmt.Sprint(c.route(2, c.popularity())[:9]); a == b {
		t.Errorf("two ranks choose alike: %s", a)
	}
}

// TestCheck checks that invalid configurations are refused.
func TestCheck(t *testing.T) {
	right := Config{Ranks: 4, Experts: 8, Tokens: 16, Hidden: 256, TopK: 2, Skew: 1}
	if err := right.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"experts": func(c *Config) { c.Experts = 9 }, "no experts": func(c *Config) { c.Experts = 0 },
		"top-k":  func(c *Config) { c.TopK = 9 },
		"tokens": func(c *Config) { c.Tokens = 0 }, "hidden": func(c *Config) { c.Hidden = 200 },
		"skew": func(c *Config) {
			c.Skew = math.NaN()
		},
		"values": func(c *Config) { c.Tokens, c.Hidden = maxTokens, maxHidden },
	} {
		c := right
		if change(&c); c.Check() == nil {
			t.Errorf("%s: %+v is right", name, c)
		}
	}
}

func BenchmarkRank(b *testing.B) {
	c := Config{Ranks: 2, Experts: 16, Tokens: 32, Hidden: 2048, TopK: 4, Seed: 1}
	r := NewRank(c, 0)
	l := c.Load()
	messages := make([]byte, (l.Pairs[0][0]+l.Pairs[0][1])*c.DispatchBytes())
	r.Fill(0)
	b.SetBytes(int64(2 * c.Tokens * c.Hidden))
	for b.Loop() {
		r.Pack(messages)
	}
}
