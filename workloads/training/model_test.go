package training

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/plan/spec"
)

// model is a small one with defaults.
func model(change func(*spec.Model)) *spec.Model {
	m := &spec.Model{
		Layers:     8,
		Hidden:     64,
		Sequence:   32,
		TFLOPS:     units.Factor{Num: 1, Den: 1000},
		Efficiency: units.Ratio{Num: 1, Den: 2},
	}
	change(m)
	file := &spec.Testbed{Steps: []spec.Step{{Training: &spec.Training{Model: m}}}}
	file.SetDefaults()
	return m
}

func compile(t *testing.T, change func(*spec.Model)) (*spec.Model, *Program) {
	t.Helper()
	m := model(change)
	p, err := Compile(m, Scale{})
	if err != nil {
		t.Fatal(err)
	}
	return m, p
}

func volumes(p *Program, rank int) map[string]uint64 {
	found := map[string]uint64{}
	for _, v := range p.Volumes(rank) {
		found[v.Group] = v.Bytes
	}
	return found
}

// What ranks send are the volumes that the papers give, written down here a second time:
// b s h = 2 bytes * 32 * 64, a layer's parameters 12 h^2.
func TestVolumesAreThePapers(t *testing.T) {
	const bsh, layer = 2 * 32 * 64, 2 * 12 * 64 * 64
	for _, c := range []struct {
		name   string
		change func(*spec.Model)
		rank   int
		want   map[string]uint64
	}{
		{"data parallel", func(m *spec.Model) { m.DP = 4 }, 0,
			map[string]uint64{"dp": 8 * layer * 2 * 3 / 4}},
		{"ZeRO 1", func(m *spec.Model) {
			m.DP, m.ZeRO = 4, 1
		}, 3, map[string]uint64{"dp": 8 * layer * 2 * 3 / 4}},
		{"ZeRO 2 reduces in each micro-batch", func(m *spec.Model) {
			m.DP, m.ZeRO, m.GlobalBatch = 4, 2, 8
		}, 3, map[string]uint64{"dp": 8 * layer * (2 + 1) * 3 / 4}},
		{"ZeRO 3", func(m *spec.Model) {
			m.DP, m.ZeRO = 4, 3
		}, 1, map[string]uint64{"dp": 8 * layer * 3 * 3 / 4}},
		{"ZeRO 3, vocabulary", func(m *spec.Model) {
			m.DP, m.ZeRO, m.Vocabulary = 4, 3, 1000
		}, 1, map[string]uint64{"dp": (8*layer + 2*1000*64*2) * 3 * 3 / 4}},
		{"ZeRO 3, first stage", func(m *spec.Model) {
			m.DP, m.PP, m.ZeRO, m.Vocabulary = 4, 2, 3, 1000
		}, 1, map[string]uint64{"pp": bsh, "dp": (4*layer + 1000*64*2) * 3 * 3 / 4}},
		{"ZeRO 3, last stage", func(m *spec.Model) {
			m.DP, m.PP, m.ZeRO, m.Vocabulary = 4, 2, 3, 1000
		}, 6, map[string]uint64{"pp": bsh, "dp": (4*layer + 1000*64*2) * 3 * 3 / 4}},
		{"tensor parallel", func(m *spec.Model) { m.TP = 4 }, 2,
			map[string]uint64{"tp": 8 * 4 * bsh * 2 * 3 / 4}},
		{"sequence parallel", func(m *spec.Model) {
			m.TP, m.SP = 4, true
		}, 2, map[string]uint64{"tp": 8 * 8 * bsh * 3 / 4}},
		{"first stage", func(m *spec.Model) {
			m.PP, m.GlobalBatch = 4, 6
		}, 0, map[string]uint64{"pp": 6 * bsh}},
		{"stage between", func(m *spec.Model) {
			m.PP, m.GlobalBatch = 4, 6
		}, 2, map[string]uint64{"pp": 2 * 6 * bsh}},
		{"experts", func(m *spec.Model) { m.DP, m.EP, m.Experts, m.TopK = 4, 2, 4, 2 }, 0, map[string]uint64{
			"ep": 8 * 4 * 2 * bsh / 2, "dp": 8 * 2 * 4 * 64 * 64 * 2 * 3 / 4,
			"ep-dp": 8 * 2 * 2 * 8 * 64 * 64 * 2 / 2,
		}},
		{"all three", func(m *spec.Model) {
			m.DP, m.TP, m.PP, m.GlobalBatch = 2, 2, 2, 4
		}, 0, map[string]uint64{
			"tp": 4 * 4 * bsh * 2, "pp": 2 * bsh, "dp": 4 * layer / 2,
		}},
		{"vocabulary", func(m *spec.Model) { m.DP, m.TP, m.Vocabulary = 2, 2, 1000 }, 0, map[string]uint64{
			"tp": (8*4 + 2) * bsh, "dp": 8*layer/2 + 2*1000*64*2/2,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, p := compile(t, c.change); !maps.Equal(volumes(p, c.rank), c.want) {
				t.Errorf("rank %d sends %v, want %v", c.rank, volumes(p, c.rank), c.want)
			}
		})
	}
}

// spans are a program's in virtual time where operations take a fixed time.
func spans(t *testing.T, p *Program, cost time.Duration) (all [][]Span, whole time.Duration) {
	t.Helper()
	all, err := p.Predict(func(*Operation) time.Duration { return cost })
	if err != nil {
		t.Fatal(err)
	}
	for _, tasks := range all {
		for _, s := range tasks {
			whole = max(whole, s.End)
		}
	}
	return all, whole
}

func computed(p *Program, rank int) (sum time.Duration) {
	for _, task := range p.Tasks[rank] {
		if task.Kind == Compute {
			sum += task.Time
		}
	}
	return sum
}

// A pipeline of p stages with m micro-batches is idle for (p - 1) / m of its ideal time
// (Narayanan et al. 2021, section 2.2), and no stage holds more than p - stage
// micro-batches at once, which 1F1B is for.
func TestPipelineBubble(t *testing.T) {
	for _, shape := range []struct{ stages, micros int }{{2, 1}, {2, 4}, {4, 4}, {4, 8}, {8, 3}} {
		_, p := compile(t, func(m *spec.Model) { m.PP, m.GlobalBatch = shape.stages, shape.micros })
		all, whole := spans(t, p, 0)
		ideal := computed(p, 0)
		want := ideal + ideal*time.Duration(shape.stages-1)/time.Duration(shape.micros)
		if d := whole - want; d < -time.Microsecond || d > time.Microsecond {
			t.Errorf("%v: an iteration takes %v, want %v", shape, whole, want)
		}
		for rank, tasks := range p.Tasks {
			held, most := 0, 0
			for i := range tasks {
				if tasks[i].Kind == Compute && strings.HasPrefix(tasks[i].Name, "forward") {
					held++
				} else if tasks[i].Kind == Compute {
					held--
				}
				most = max(most, held)
			}
			if want := min(shape.stages-rank, shape.micros); most != want {
				t.Errorf("%v: stage %d holds %d micro-batches, want %d", shape, rank, most, want)
			}
		}
		if len(all) != shape.stages {
			t.Errorf("%d ranks, want %d", len(all), shape.stages)
		}
	}
}

// Gradients go while the backward pass goes on, the last bucket behind it.
// Each pair carries what its groups give it, by hand: of activations of 32 * 64 * 2 bytes, and
// of 8 layers' experts among two.
func TestDemand(t *testing.T) {
	_, p := compile(t, func(m *spec.Model) { m.DP, m.EP, m.Experts, m.TopK = 2, 2, 2, 2 })
	// Half of twice the activations goes to the experts and back, forward and backward, in each
	// layer. The 4 h^2 shared parameters of a layer go once around two ranks.
	want := units.Bytes(4*8*32*64*2 + 8*4*64*64*2)
	if got := p.Demand(); len(got) != 2 || got[0] != want || got[1] != want {
		t.Errorf("pairs %v carry %v, want %v each", p.Pairs(), got, want)
	}
}

func TestMayMiss(t *testing.T) {
	_, p := compile(t, func(m *spec.Model) { m.Layers, m.DP, m.TP, m.Bucket = 2, 3, 2, 1 })
	// By hand: each of two tensor parallel groups sums two buckets of 6 h^2 elements of two bytes
	// among three ranks; what tensor parallel ranks exchange comes whole.
	if got, want := p.MayMiss(units.Ratio{Num: 1, Den: 10}), uint64(2*2*(2*6*64*64*2/10)); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}

func TestBucketsOverlap(t *testing.T) {
	_, p := compile(t, func(m *spec.Model) { m.DP, m.Bucket = 2, 2*12*64*64*2 })
	cost := time.Millisecond
	all, whole := spans(t, p, cost)
	ends := computed(p, 0)
	var before, behind int
	for i, task := range p.Tasks[0] {
		switch {
		case task.Kind != Exchange:
		case all[0][i].End <= ends:
			before++
		default:
			behind++
		}
	}
	if before != 3 || behind != 1 || whole != ends+cost {
		t.Errorf("%d buckets went during computation and %d behind it, in %v; want 3 and 1, in %v", before,
			behind, whole, ends+cost)
	}
	if _, one := compile(t, func(m *spec.Model) { m.DP = 2 }); len(one.Operations) != 1 ||
		one.Operations[0].Bytes != 8*2*12*64*64 {
		t.Errorf("gradients below a bucket are %v, want one all-reduce of them all", one.Operations)
	}
}

// The parameters of the next layer come while one is computed, with stage 3 of ZeRO.
func TestPrefetch(t *testing.T) {
	_, p := compile(t, func(m *spec.Model) { m.DP, m.ZeRO = 2, 3 })
	_, whole := spans(t, p, time.Microsecond)
	if least := computed(p, 0) + time.Microsecond; whole < least || whole > least+2*time.Microsecond {
		t.Errorf("an iteration takes %v, want little above %v: gathers overlap", whole, least)
	}
	// So do those of the vocabulary, which are in no layer, and of experts, although tokens are
	// on their way between two computations.
	for name, change := range map[string]func(*spec.Model){
		"vocabulary": func(m *spec.Model) { m.DP, m.ZeRO, m.Vocabulary = 2, 3, 1000 },
		"experts":    func(m *spec.Model) { m.DP, m.ZeRO, m.EP, m.Experts = 4, 3, 2, 4 },
	} {
		_, p := compile(t, change)
		cost := func(o *Operation) time.Duration {
			if o.Kind == schedule.AllGather {
				return time.Microsecond
			}
			return 0
		}
		all, err := p.Predict(cost)
		if err != nil {
			t.Fatal(err)
		}
		whole, _ := p.Times(all)
		if least := computed(p, 0); whole > least+2*time.Microsecond {
			t.Errorf("%s: an iteration takes %v, want at most 2us above %v: gathers overlap", name, whole,
				least)
		}
	}
}

// Whoever waits in a circle is found before anything runs, and named.
func TestCheckFindsWhatStops(t *testing.T) {
	exchange := func(operation int, after ...int) Task {
		return Task{Name: "x", Kind: Exchange, Operation: operation, After: after}
	}
	operations := []Operation{
		{"a", 0, schedule.AllReduce, []int{0, 1}, 8},
		{"b", 0, schedule.AllReduce, []int{0, 1}, 8},
		{"a", 0, schedule.AllReduce, []int{0, 1}, 16},
	}
	for _, c := range []struct {
		name  string
		tasks [][]Task
		want  string
	}{
		{"circle", [][]Task{{exchange(0), exchange(1, 0)}, {exchange(1), exchange(0, 0)}},
			"it deadlocks: rank 0 at task 0"},
		{"other order", [][]Task{{exchange(0), exchange(2)}, {exchange(2), exchange(0)}}, "it deadlocks"},
		{"nobody there", [][]Task{{exchange(0)}, {}}, "it deadlocks: rank 0 at task 0, x"},
		{"no part in it", [][]Task{{}, {}, {exchange(0)}},
			"rank 2: task 0, x: its operation does not include the rank"},
		{"after itself", [][]Task{{exchange(0, 0)}, {exchange(0)}}, "waits for task 0"},
		{"no kind", [][]Task{{{Name: "y"}}, {}}, `kind "" is not known`},
	} {
		p := &Program{Operations: operations, Tasks: c.tasks}
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	fine := &Program{Operations: operations,
		Tasks: [][]Task{{exchange(0), exchange(1)}, {exchange(1), exchange(0)}}}
	if err := fine.Check(); err != nil {
		t.Errorf("different groups in different order: %v", err)
	}
	for _, o := range []Operation{
		{"a", 0, "gossip", []int{0, 1}, 8}, {"a", 0, schedule.AllReduce, []int{0}, 8},
		{"a", 0, schedule.AllReduce, []int{0, 0}, 8},
		{"a", 0, schedule.AllReduce, []int{0, 2}, 8}, {"a", 0, schedule.AllReduce, []int{0, 1}, 6},
		{"a", 0, schedule.AllReduce, []int{0, 1}, 0},
	} {
		if (&Program{Operations: []Operation{o}, Tasks: make([][]Task, 2)}).Check() == nil {
			t.Errorf("%v is taken", o)
		}
	}
}

// What no machine could hold is refused before it is made.
func TestCompileBounds(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*spec.Model)
		want   string
	}{
		"a batch of tokens": {func(m *spec.Model) {
			m.TP, m.GlobalBatch = 2, 1<<24
		}, "more than 1048576 tasks"},
		"tasks of all ranks": {func(m *spec.Model) {
			m.TP, m.DP, m.GlobalBatch = 2, 1024, 1<<17
		}, "more than 1048576 tasks"},
		"ranks": {func(m *spec.Model) {
			m.TP, m.DP, m.PP, m.Layers = 256, 256, 256, 256
		}, "16777216 ranks, want 1 to 4096"},
		"an activation": {func(m *spec.Model) {
			m.TP, m.MicroBatch, m.Sequence, m.Hidden = 2, 1<<20, 1<<24, 1<<20
			m.GlobalBatch = m.MicroBatch
		}, "exceed 4503599627370496 numbers"},
		"parameters": {func(m *spec.Model) {
			m.DP, m.GlobalBatch, m.Hidden, m.Layers, m.Experts = 2, 2, 1<<20, 1<<12, 1<<12
		}, "exceed 4503599627370496 numbers"},
	} {
		if _, err := Compile(model(c.change), Scale{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// Two ranks that answer each other for long, each answer once the other's came: as many streams
// as messages, which are looked at only where something happens.
func TestPredictManyStreams(t *testing.T) {
	const rounds = 30_000
	b := NewBuilder(2)
	there := b.Operation(Operation{"there", 0, schedule.Broadcast, []int{0, 1}, 4})
	last := []int{-1, -1}
	for range rounds {
		for rank := range 2 {
			wait := Task{Name: "wait", Kind: Delay, Time: time.Microsecond}
			if last[rank] >= 0 {
				wait.After = []int{last[rank]}
			}
			b.Add(rank, wait)
			b.Add(rank, Task{Name: "there", Kind: Exchange, Operation: there,
				After: []int{len(b.Tasks[rank]) - 1}})
			last[rank] = len(b.Tasks[rank]) - 1
		}
	}
	p, err := b.Done(Scale{})
	if err != nil {
		t.Fatal(err)
	}
	spans, err := p.Predict(func(*Operation) time.Duration { return time.Microsecond })
	if err != nil || spans[1][len(spans[1])-1].End != 2*rounds*time.Microsecond {
		t.Errorf("%v, %v", spans[1][len(spans[1])-1], err)
	}
}

// A job that needs more memory than allowed is refused, and the error names a scale that fits.
func TestCheckBoundsMemory(t *testing.T) {
	for _, c := range []struct {
		ranks, operations int
		want              string
	}{
		{2, 5, "rank 0 has buffers for exchanges of 5GiB, want at most 4GiB: divide bytes-scale by 2"},
		{8, 4, "all ranks have buffers for exchanges of 32GiB, want at most 16GiB: divide bytes-scale " +
			"by 2"},
	} {
		b := NewBuilder(c.ranks)
		var ranks []int
		for rank := range c.ranks {
			ranks = append(ranks, rank)
		}
		for i := range c.operations {
			for rank := range c.ranks {
				b.Add(rank, Task{Name: "x", Kind: Exchange,
					Operation: b.Operation(Operation{"a", i, schedule.AllReduce, ranks, maxBytes})})
			}
		}
		if _, err := b.Done(Scale{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
		if _, err := b.Done(Scale{Bytes: units.Factor{Num: 1, Den: 2}}); err != nil {
			t.Errorf("by the factor that fits: %v", err)
		}
	}
}

// Of has what a rank needs.
func TestOf(t *testing.T) {
	_, p := compile(t, func(m *spec.Model) { m.DP, m.PP = 2, 2 })
	part := p.Of(3)
	if slices.ContainsFunc(part.Operations, func(o Operation) bool {
		return len(o.Ranks) > 0 && !slices.Contains(o.Ranks, 3)
	}) {
		t.Errorf("operations of others are in %v", part.Operations)
	}
	if part.Sent(3) != p.Sent(3) || len(part.Tasks[0]) != 0 || len(part.Operations) != len(p.Operations) {
		t.Errorf("%d bytes, %d tasks of others", part.Sent(3), len(part.Tasks[0]))
	}
}
