package collective

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/testkit/hosttest"
)

// TestLossyAllReduce runs rings over a transport that leaves bytes out. All ranks must have the
// same result, which must be the sum less the reported losses.
func TestLossyAllReduce(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 8} {
		for seed := range uint64(4) {
			count := []int{1, 50_001, 300_000, 8192}[seed]
			t.Run(fmt.Sprintf("ranks=%d/count=%d", ranks, count), func(t *testing.T) {
				testLossyAllReduce(t, ranks, count, seed)
			})
		}
	}
}

func testLossyAllReduce(t *testing.T, ranks, count int, seed uint64) {
	runners := newRunners(t, ring(t, Ring{Ranks: ranks, Count: count,
		Droppable: units.Ratio{Num: 1, Den: 50}}), openMemory(seed))
	patterns := make([]*Pattern, ranks)
	for i := range runners {
		patterns[i] = floats(i, ranks)
	}
	missing := uint64(0)
	for iteration, mode := range []Mode{OutOfPlace, InPlace, OutOfPlace, InPlace} {
		for i, r := range runners {
			if mode == InPlace {
				patterns[i].Fill(r.config.Memory.Output, iteration, 0)
			} else {
				patterns[i].Fill(r.config.Memory.Input, iteration, 0)
			}
		}
		traffic, err := runAll(t.Context(), runners, mode)
		if err != nil {
			t.Fatal(err)
		}
		var lost []Loss
		for i, r := range runners {
			lost = append(lost, r.Lost()...)
			missing += traffic[i].Missing
		}
		for i, r := range runners {
			result := Floats(r.config.Memory.Output)
			wrong, short := patterns[i].WrongBut(result, iteration, lost)
			if wrong != 0 || short > uint64(count) || (short > 0) != (len(lost) > 0) {
				t.Fatalf("%v: rank %d has %d wrong elements of %d, and %d that lack a part", mode, i, wrong,
					count, short)
			}
			if !slices.Equal(result, Floats(runners[0].config.Memory.Output)) {
				t.Errorf("%v: rank %d has another result than rank 0", mode, i)
			}
		}
		checkLosses(t, patterns[0], Floats(runners[0].config.Memory.Output), iteration, lost)
	}
	if most := uint64(4 * (ranks - 1) * count * floatSize / 50); (missing == 0) != (most < 50) ||
		missing > most {
		t.Errorf("%d bytes of partial sums never came, of %d that need not", missing, most)
	}
}

// checkLosses makes a result and losses differ in one thing at a time.
func checkLosses(t *testing.T, p *Pattern, result []float32, iteration int, lost []Loss) {
	t.Helper()
	bad := slices.Clone(result)
	places := []int{0, len(bad) - 1, len(bad) / 2}
	for _, l := range lost {
		places = append(places, l.From, l.To-1, min(l.To, len(bad)-1))
	}
	for _, i := range places[:min(len(places), 12)] {
		bad[i]++
		if wrong, _ := p.WrongBut(bad, iteration, lost); wrong != 1 {
			t.Errorf("element %d is wrong by one, and %d are found", i, wrong)
		}
		bad[i] = result[i]
	}
	if len(lost) == 0 {
		return
	}
	for name, others := range map[string][]Loss{
		"beyond the end": {{Rank: 0, From: len(result), To: len(result) + 1}},
		"of nobody":      {{Rank: p.config.Ranks, From: 0, To: 1}},
		"of nothing":     {{Rank: 0, From: 1, To: 1}},
		"over chunks":    {{Rank: 0, From: 0, To: len(result)}},
	} {
		if wrong, _ := p.WrongBut(result, iteration, append(others, lost...)); wrong != uint64(len(result)) {
			t.Errorf("with a loss %s %d elements are wrong", name, wrong)
		}
	}
	if wrong, _ := p.WrongBut(result, iteration, nil); wrong == 0 {
		t.Error("without its losses nothing of a result is wrong")
	}
}

// TestWrongBut follows each element around the ring, as the ring does, and loses
// what it has now and then.
func TestWrongBut(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for i := range 100 {
		if !hosttest.Sampled(t, i) {
			continue
		}
		ranks, count, iteration := 2+random.IntN(6), 1+random.IntN(3000), random.IntN(100)
		l := newLayout(ranks, count, floatSize)
		data := make([][]float32, ranks)
		var pattern *Pattern
		for r := range data {
			pattern = floats(r, ranks)
			data[r] = make([]float32, count)
			pattern.Fill(Bytes(data[r]), iteration, 0)
		}
		gone := make(map[Loss]bool) // single elements
		for range random.IntN(2 * count) {
			i := random.IntN(count)
			if r := random.IntN(ranks); r != l.chunk(i) { // who begins gets nothing
				gone[Loss{Rank: r, From: i, To: i + 1}] = true
			}
		}
		result := make([]float32, count)
		short := make(map[int]bool)
		var lost []Loss
		for i := range result {
			for step := range ranks {
				r := (l.chunk(i) + step) % ranks
				if loss := (Loss{Rank: r, From: i, To: i + 1}); gone[loss] {
					lost = append(lost, loss)
					short[i] = true
					result[i] = 0
				}
				result[i] += data[r][i]
			}
		}
		last := make(map[int]Loss) // by element
		for _, loss := range lost {
			last[loss.From] = loss
		}
		random.Shuffle(len(lost), func(i, j int) { lost[i], lost[j] = lost[j], lost[i] })
		if wrong, n := pattern.WrongBut(result, iteration, lost); wrong != 0 || n != uint64(len(short)) {
			t.Fatalf("%d ranks, %d elements: %d wrong, %d of %d short", ranks, count, wrong, n, len(short))
		}
		if len(lost) == 0 {
			continue
		}
		// Of an element that was lost more than once only the last time counts.
		k := random.IntN(len(lost))
		counts := lost[k] == last[lost[k].From]
		if wrong, _ := pattern.WrongBut(result, iteration,
			slices.Delete(slices.Clone(lost), k, k+1)); (wrong == 1) != counts {
			t.Fatalf("%d elements are wrong without a loss that was the last: %v", wrong, counts)
		}
	}
}

// The chunk of an element is the one whose slices hold it.
func TestChunk(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 7} {
		for _, count := range []int{0, 1, 5, 6, 7, 8, 1000, 1001} {
			l := newLayout(ranks, count, floatSize)
			for chunk := range ranks {
				for slice := range l.slices {
					from, to := l.part(chunk, slice)
					for i := from; i < to; i++ {
						if l.chunk(i) != chunk {
							t.Fatalf("%d ranks, %d elements: %d is of chunk %d, not %d", ranks, count, i,
								chunk, l.chunk(i))
						}
					}
				}
			}
			if l.chunk(-1) != -1 || l.chunk(count) != -1 {
				t.Errorf("%d ranks, %d elements: there are others", ranks, count)
			}
		}
	}
}

// TestScatter runs rings that stop half way, over a transport that leaves bytes out. Each rank must
// have its chunk of the sum, less the losses on the chunk's path. A loss that is not reported must
// be found.
func TestScatter(t *testing.T) {
	for seed, c := range []struct{ ranks, count int }{{2, 10}, {3, 50_001}, {4, 300_000}, {5, 3}, {8, 8192}} {
		runners := newRunners(t, ring(t, Ring{Ranks: c.ranks, Count: c.count,
			Droppable: units.Ratio{Num: 1, Den: 50}, Scatter: true}), openMemory(uint64(seed)))
		patterns := make([]*Pattern, c.ranks)
		for i := range runners {
			patterns[i] = floats(i, c.ranks)
		}
		for iteration := range 3 {
			for i, r := range runners {
				patterns[i].Fill(r.config.Memory.Input, iteration, 0)
			}
			traffic, err := runAll(t.Context(), runners, OutOfPlace)
			if err != nil {
				t.Fatal(err)
			}
			var lost []Loss
			for _, r := range runners {
				lost = append(lost, r.Lost()...)
			}
			behind, found := 0, uint64(0)
			for i, r := range runners {
				result, from := r.Buffer(OutOfPlace, schedule.Output)
				to := from + len(Floats(result))
				if from != behind {
					t.Errorf("rank %d has elements from %d on, want %d", i, from, behind)
				}
				behind = to
				if wrong, _ := r.Wrong(patterns[i], OutOfPlace, iteration, lost); wrong != 0 {
					t.Errorf("%+v: rank %d has %d wrong elements of %d", c, i, wrong, to-from)
				}
				wrong, _ := r.Wrong(patterns[i], OutOfPlace, iteration, nil)
				found += wrong
				if sent, chunk := traffic[i].Sent+traffic[i].Missing,
					(c.count/c.ranks)*floatSize; sent > uint64(
					(c.ranks-1)*(chunk+2*floatSize)+c.count*floatSize/50) {
					t.Errorf("%+v: rank %d sent %d bytes, of chunks of %d", c, i, sent, chunk)
				}
			}
			if behind != c.count || (found > 0) != (len(lost) > 0) {
				t.Errorf("%+v: %d elements in all, %d of them wrong without %d losses", c, behind, found,
					len(lost))
			}
		}
	}
}
