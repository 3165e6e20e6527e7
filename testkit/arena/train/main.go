// Train finds the weights of rate.Learned: an evolution strategy (Salimans and others, "Evolution
// Strategies as a Scalable Alternative to Reinforcement Learning", 2017) over the scenarios of
// arena.Training. It runs arena.HeldOut only for the table that it prints at the end.
//
//	go run ./testkit/arena/train -out transports/rd/rate/learned.weights
//
// Training can go on from weights with -from. The present weights have three parts: 120 generations without
// the emulated scenarios, then 60 with -step 0.07 -speed 0.5, then 120 with -step 0.06 -speed 0.4 -seed 2.
//
// The same flags give the same weights on the same kind of processor.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"

	"railbed/testkit/arena"
	"railbed/transports/rd/rate"
)

var (
	out         = flag.String("out", "learned.weights", "write the weights to this `FILE`")
	from        = flag.String("from", "", "begin with the weights of this `FILE`")
	generations = flag.Int("generations", 120, "number of generations: the weights are updated once in each")
	pairs       = flag.Int("pairs", 12, "pairs of opposite perturbations tried in each generation")
	step        = flag.Float64("step", 0.1, "standard deviation of the perturbations")
	speed       = flag.Float64("speed", 0.6, "factor of each update of the weights")
	seed        = flag.Uint64("seed", 1, "seed of every random draw")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
}

func run() error {
	random := rand.New(rand.NewPCG(*seed, 0x7AA1))
	best := rate.Begin(random.NormFloat64)
	if *from != "" {
		text, err := os.ReadFile(*from)
		if err != nil {
			return err
		}
		if best, err = rate.ReadPolicy(text); err != nil {
			return err
		}
	}
	fmt.Printf("NSCC: %.4f\n", mean(func(o rate.NSCCOptions) rate.Controller {
		return rate.NewNSCC(o)
	}, *seed))
	kept, most := *best, score(best, *seed)
	for g := range *generations {
		// Ever smaller steps, down to a quarter.
		move(best, random, *seed+uint64(g%4), 1-0.75*float64(g)/float64(*generations))
		if s := score(best, *seed); s > most {
			kept, most = *best, s
		}
		if g%5 == 4 {
			if err := os.WriteFile(*out, kept.Bytes(), 0o644); err != nil {
				return err
			}
			fmt.Printf("generation %d: %.4f, the best %.4f\n", g+1, score(best, *seed), most)
		}
	}
	if err := os.WriteFile(*out, kept.Bytes(), 0o644); err != nil {
		return err
	}
	table(&kept)
	return nil
}

// move tries changes of the weights and moves the weights by the results. It uses their rank, so
// that no single scenario decides.
func move(p *rate.Policy, random *rand.Rand, seed uint64, part float64) {
	changes := make([][]float32, *pairs)
	scores := make([]float64, 2**pairs)
	var work sync.WaitGroup
	slots := make(chan struct{}, 2)
	for i := range changes {
		changes[i] = make([]float32, len(p))
		for k := range p {
			changes[i][k] = float32(random.NormFloat64())
		}
		for side, sign := range []float32{1, -1} {
			tried := *p
			for k := range p {
				tried[k] += sign * float32(*step*part) * changes[i][k]
			}
			work.Go(func() {
				slots <- struct{}{}
				scores[2*i+side] = score(&tried, seed)
				<-slots
			})
		}
	}
	work.Wait()
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if scores[a] != scores[b] {
			return int(1 - 2*b2i(scores[a] < scores[b]))
		}
		return a - b
	})
	for place, i := range order {
		weight := float32(place)/float32(len(order)-1) - 0.5
		if i%2 == 1 {
			weight = -weight
		}
		for k := range p {
			p[k] += float32(*speed*part) * weight * changes[i/2][k] / float32(*pairs)
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// score is the mean score over the training scenarios.
func score(p *rate.Policy, seed uint64) float64 {
	return mean(func(o rate.NSCCOptions) rate.Controller { return rate.NewLearned(p, o) }, seed)
}

func mean(control func(rate.NSCCOptions) rate.Controller, seed uint64) float64 {
	sum, scenarios := 0.0, arena.Training(seed)
	for _, s := range scenarios {
		sum += s.Play(control).Score()
	}
	return sum / float64(len(scenarios))
}

// table compares the modes, also on scenarios that training has not used: means over five seeds.
func table(p *rate.Policy) {
	const first, seeds = 100, 5
	all := func(seed uint64) []arena.Scenario {
		return slices.Concat(arena.Training(seed), arena.HeldOut(seed))
	}
	for i, s := range all(0) {
		for _, mode := range []struct {
			name    string
			control func(rate.NSCCOptions) rate.Controller
		}{
			{"line", nil},
			{"nscc", func(o rate.NSCCOptions) rate.Controller { return rate.NewNSCC(o) }},
			{"learned", func(o rate.NSCCOptions) rate.Controller { return rate.NewLearned(p, o) }},
		} {
			var score, share, p99, repeated, depth float64
			for seed := range uint64(seeds) {
				o := all(first + seed)[i].Play(mode.control)
				score += o.Score() / seeds
				share += float64(o.Ideal) / float64(o.Time) / seeds
				p99 += o.P99.Seconds() * 1e6 / seeds
				repeated += o.Repeated / seeds
				depth += o.Depth / seeds
			}
			fmt.Printf("%-20s %-8s score %6.3f, %5.1f %% of the ideal speed, p99 of a message %5.0f us, "+
				"repeated %6.2f %%, depth %.2f BDP\n",
				s.Name, mode.name, score, 100*share, p99, 100*repeated, depth)
		}
	}
}
