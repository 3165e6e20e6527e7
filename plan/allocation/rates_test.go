package allocation

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"railbed/internal/units"
	"railbed/plan"
	"railbed/testkit/plantest"
)

// TestFillExamples checks rates in networks that can be computed by hand.
func TestFillExamples(t *testing.T) {
	on := func(links ...int) (uses []use) {
		for _, l := range links {
			uses = append(uses, use{l, 1})
		}
		return uses
	}
	for name, test := range map[string]struct {
		capacity []float64
		flows    [][]use
		want     []float64
	}{
		"one link": {[]float64{12}, [][]use{on(0), on(0), on(0)}, []float64{4, 4, 4}},
		"line, one flow longer": {[]float64{1, 1, 1}, [][]use{on(0), on(0, 1), on(1), on(1), on(2)},
			[]float64{2. / 3, 1. / 3, 1. / 3, 1. / 3, 1}},
		"parking lot": {[]float64{10, 10, 10}, [][]use{on(0, 1, 2), on(0), on(1), on(2)},
			[]float64{5, 5, 5, 5}},
		"narrow end": {[]float64{10, 1}, [][]use{on(0, 1), on(0), on(0)}, []float64{1, 4.5, 4.5}},
		"half of it": {[]float64{10, 2}, [][]use{{{0, 1}, {1, 0.5}}, on(1)},
			[]float64{4. / 3, 4. / 3}},
	} {
		got, _ := fill(test.capacity, test.flows)
		for i, want := range test.want {
			if math.Abs(got[i]-want) > 1e-9 {
				t.Errorf("%s: %v, want %v", name, got, test.want)
				break
			}
		}
	}
}

// TestFillIsFair checks on random networks that no link exceeds its capacity. Each flow has a full
// link on which no flow has a higher rate.
func TestFillIsFair(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		capacity := make([]float64, 1+r.IntN(12))
		for i := range capacity {
			capacity[i] = 1 + 99*r.Float64()
		}
		flows := make([][]use, 1+r.IntN(40))
		for i := range flows {
			for _, l := range r.Perm(len(capacity))[:1+r.IntN(len(capacity))] {
				flows[i] = append(flows[i], use{l, float64(1+r.IntN(4)) / 4})
			}
		}
		rates, tight := fill(capacity, flows)
		load, most := make([]float64, len(capacity)), make([]float64, len(capacity))
		for i, uses := range flows {
			for _, u := range uses {
				load[u.Link] += rates[i] * u.Share
				most[u.Link] = max(most[u.Link], rates[i])
			}
		}
		for l, c := range capacity {
			if load[l] > c*(1+1e-6) {
				t.Errorf("seed %d: link %d carries %v of %v", seed, l, load[l], c)
			}
		}
		for i, l := range tight {
			if load[l] < capacity[l]*(1-1e-6) || rates[i] < most[l]*(1-1e-6) {
				t.Errorf("seed %d: flow %d has %v; its link %d carries %v of %v, and somebody %v", seed, i,
					rates[i], l, load[l], capacity[l], most[l])
			}
		}
	}
}

// TestMatchings checks on random pairs that each pair is in one phase and that no NIC sends or
// receives twice in a phase. The number of phases is the number that the busiest NIC needs.
func TestMatchings(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		ranks, each := 1+r.IntN(20), 1+r.IntN(3)
		nic := func(rank int) int { return rank / each }
		var pairs []Pair
		seen, sends, receives := map[Pair]bool{}, map[int]int{}, map[int]int{}
		degree := 0
		for range r.IntN(ranks * ranks) {
			p := Pair{r.IntN(ranks), r.IntN(ranks)}
			if seen[p] {
				continue
			}
			seen[p] = true
			pairs = append(pairs, p)
			sends[nic(p.From)]++
			receives[nic(p.To)]++
			degree = max(degree, sends[nic(p.From)], receives[nic(p.To)])
		}
		phases := Matchings(pairs, nic, nic)
		if len(phases) != degree {
			t.Errorf("seed %d: %d phases, want %d", seed, len(phases), degree)
		}
		for _, phase := range phases {
			from, to := map[int]bool{}, map[int]bool{}
			for _, p := range phase {
				if from[nic(p.From)] || to[nic(p.To)] || !seen[p] {
					t.Errorf("seed %d: %v shares a NIC in %v, or is twice there", seed, p, phase)
				}
				from[nic(p.From)], to[nic(p.To)] = true, true
				delete(seen, p)
			}
		}
		if len(seen) > 0 {
			t.Errorf("seed %d: %v are in no phase", seed, seen)
		}
	}
}

func compile(t testing.TB, topology, params, links string) *plan.Plan {
	return plantest.Compile(t, fmt.Sprintf("name: t\nfabric:\n  topology: %s\n  params: {%s}\n  switch: "+
		"{kind: soft}\n  links: {default: {rate: 1gbit}%s}\n", topology, params, links))
}

// TestPlans compares the rates of fabrics with closed formulas.
func TestPlans(t *testing.T) {
	const gbit = 1e9
	one := compile(t, "single-switch", "hosts: 8", "")
	blocking := compile(t, "leaf-spine", "leaves: 2, spines: 1, hosts-per-leaf: 4", "")
	full := compile(t, "leaf-spine", "leaves: 2, spines: 4, hosts-per-leaf: 4", "")
	wide := compile(t, "leaf-spine", "leaves: 4, spines: 2, hosts-per-leaf: 4", "")
	leaf := func(rank int) int { return rank / 4 }
	for name, test := range map[string]struct {
		plan    *plan.Plan
		pattern string
		want    func(from, to int) float64
	}{
		"ring, one switch":        {one, Ring, func(int, int) float64 { return gbit }},
		"all, one switch":         {one, AllToAll, func(int, int) float64 { return gbit / 7 }},
		"ring, blocking":          {blocking, Ring, func(int, int) float64 { return gbit }},
		"all, as many up as down": {full, AllToAll, func(int, int) float64 { return gbit / 7 }},
		// 16 pairs share the only link up. A host divides the rest of its link among three.
		"all, blocking": {blocking, AllToAll, func(from, to int) float64 {
			if leaf(from) != leaf(to) {
				return gbit / 16
			}
			return gbit * (1 - 4./16) / 3
		}},
		// 48 pairs leave a leaf over two links.
		"all, half": {wide, AllToAll, func(from, to int) float64 {
			if leaf(from) != leaf(to) {
				return 2 * gbit / 48
			}
			return gbit * (1 - 12*2./48) / 3
		}},
	} {
		f, err := Compute(test.plan, Options{Pattern: test.pattern, Exact: true})
		if err != nil || len(f.Phases) != 1 {
			t.Fatalf("%s: %v", name, err)
		}
		pairs, _ := Pairs(test.pattern, len(test.plan.Ranks))
		if len(f.Phases[0].Rates) != len(pairs) {
			t.Errorf("%s: %d entries", name, len(f.Phases[0].Rates))
		}
		for _, e := range f.Phases[0].Rates {
			if want := test.want(e.From, e.To); math.Abs(float64(e.Rate)-want) > 1.5 {
				t.Errorf("%s: %d to %d has %v (%s), want %v bit/s", name, e.From, e.To, e.Rate, e.Bottleneck,
					want)
			}
		}
	}
}

// TestConflictFree checks that in a phase no link exceeds its capacity and no host's link has two
// pairs. Each pair has one phase. A fabric without blocking has the full rate, and as many phases
// as there are other ranks.
func TestConflictFree(t *testing.T) {
	full := compile(t, "leaf-spine", "leaves: 2, spines: 4, hosts-per-leaf: 4", "")
	blocking := compile(t, "leaf-spine", "leaves: 2, spines: 1, hosts-per-leaf: 4", "")
	tree := compile(t, "fat-tree", "k: 4", "")
	for _, p := range []*plan.Plan{full, blocking, tree} {
		f, err := Compute(p, Options{Pattern: AllToAll, Method: ConflictFree, Exact: true})
		if err != nil || len(f.Phases) != len(p.Ranks)-1 {
			t.Fatalf("%d phases of %d ranks: %v", len(f.Phases), len(p.Ranks), err)
		}
		pairs, _ := Pairs(AllToAll, len(p.Ranks))
		n, err := newNetwork(p, pairs, Options{Exact: true})
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for i, phase := range f.Phases {
			load, users := make([]float64, len(n.capacity)), make([]int, len(n.capacity))
			for _, e := range phase.Rates {
				count++
				if p == full && e.Rate != 1_000_000_000 {
					t.Errorf("phase %d: %d to %d has %v", i, e.From, e.To, e.Rate)
				}
				for _, u := range n.uses[Pair{e.From, e.To}] {
					load[u.Link] += u.Share * float64(e.Rate)
					users[u.Link]++
				}
			}
			for l, name := range n.names {
				if load[l] > n.capacity[l]+10 ||
					users[l] > 1 && strings.Contains(name, "h") && !strings.Contains(name, "leaf") {
					t.Errorf("phase %d: %s has %v bit/s of %d", i, name, load[l], users[l])
				}
				if host := strings.Contains(name, ":eth"); host && users[l] > 1 {
					t.Errorf("phase %d: %s has %d pairs", i, name, users[l])
				}
			}
		}
		if count != len(pairs) {
			t.Errorf("%d of %d pairs", count, len(pairs))
		}
	}
}

// TestHeadroom checks that a share of each link stays free, and the default share.
func TestHeadroom(t *testing.T) {
	p := compile(t, "single-switch", "hosts: 3", "")
	for _, o := range []Options{{Pattern: Ring}, {Pattern: Ring, Headroom: units.Ratio{Num: 1, Den: 4}}} {
		f, err := Compute(p, o)
		want := units.Rate(980_000_000)
		if o.Headroom.Den == 4 {
			want = 750_000_000
		}
		if err != nil || f.From(0, 0)[1] != want || f.Phase(2, 0) != 0 || f.Phase(2, 1) != -1 {
			t.Errorf("%+v: %+v, %v", o, f, err)
		}
	}
}

// TestFile checks that a written file can be read again, conforms to the schema, and is the same
// each time, also if ranks share nodes.
func TestFile(t *testing.T) {
	p := plantest.Compile(t, "name: shared\nfabric:\n  topology: leaf-spine\n  params: {leaves: 2, spines: "+
		"2, hosts-per-leaf: 2}\n  switch: {kind: router}\nnodes: {default: {ranks: 2}}\n")
	schema, err := validator.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	compiler := validator.NewCompiler()
	if err := compiler.AddResource("rates.json", schema); err != nil {
		t.Fatal(err)
	}
	judge := compiler.MustCompile("rates.json")
	for _, method := range []string{MaxMin, ConflictFree} {
		var texts [2]bytes.Buffer
		var file *File
		for i := range texts {
			if file, err = Compute(p, Options{Pattern: AllToAll, Method: method}); err != nil {
				t.Fatal(err)
			}
			if err := file.Write(&texts[i]); err != nil {
				t.Fatal(err)
			}
		}
		if texts[0].String() != texts[1].String() {
			t.Error("two files differ")
		}
		document, err := validator.UnmarshalJSON(bytes.NewReader(texts[0].Bytes()))
		if err == nil {
			err = judge.Validate(document)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, &texts[0])
		}
		again, err := Read("rates.json", texts[0].Bytes())
		if err != nil || len(again.Phases) != len(file.Phases) ||
			!slices.Equal(again.Phases[0].Rates, file.Phases[0].Rates) {
			t.Errorf("read again: %+v, %v", again, err)
		}
		for _, e := range file.Phases[0].Rates {
			if p.Ranks[e.From].Node == p.Ranks[e.To].Node {
				t.Errorf("ranks %d and %d of one node have a rate", e.From, e.To)
			}
		}
	}
}

// TestWrongFiles checks the errors for invalid files.
func TestWrongFiles(t *testing.T) {
	for text, want := range map[string]string{
		``:                      "r.json:1:1: ",
		"{\n  \"format\": 7}":   "r.json:2:14: ",
		"{\n  \"phase\": []\n}": `unknown field "phase"`,
		`{"format":"railbed-rates/1","testbed":"t","ranks":2,"phases":[]} x`:                                                                            "text after the end",
		`{"format":"railbed-rates/2","testbed":"t","ranks":0,"phases":[]}`:                                                                              `format is "railbed-rates/2": want "railbed-rates/1"` + "\nr.json: ranks is 0: want the number of ranks, at least 1\nr.json: no phases: want at least one",
		`{"format":"railbed-rates/1","testbed":"t","ranks":2,"phases":[{"rates":[{"from":0,"to":2,"rate":"1gbit"},{"from":1,"to":0,"rate":"0bit"}]}]}`:  "phases[0].rates[0] is from rank 0 to rank 2: want two different ranks, 0 to 1\nr.json: phases[0].rates[1] has no rate",
		`{"format":"railbed-rates/1","testbed":"t","ranks":2,"phases":[{"rates":[{"from":0,"to":1,"rate":"1gbit"},{"from":0,"to":1,"rate":"2gbit"}]}]}`: "phases[0].rates[1] repeats the pair from 0 to 1",
		`{"format":"railbed-rates/1","testbed":"t","ranks":2,"phases":[{"rates":[{"from":0,"to":1,"rate":"fast"}]}]}`:                                   `rate "fast"`,
	} {
		if _, err := Read("r.json", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v\nwant %s", text, err, want)
		}
	}
}

// TestWrongOptions checks the errors for invalid options.
func TestWrongOptions(t *testing.T) {
	p := compile(t, "single-switch", "hosts: 3", "")
	for want, o := range map[string]Options{
		`rates for "star": want ring, all-to-all, tree`: {Pattern: "star"},
		`rates by "luck": want max-min or`:              {Pattern: Ring, Method: "luck"},
		"headroom 100% leaves no rate": {Pattern: Ring,
			Headroom: units.Ratio{Num: 1, Den: 1}},
	} {
		if _, err := Compute(p, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}

// FuzzRead checks that files that Read accepts can be written and read again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"format":"railbed-rates/1","testbed":"t","ranks":2,"headroom":"2%","phases":[{"rates":[{"from":0,"to":1,"rate":"1gbit","bottleneck":"{}"}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Read("f", text)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := file.Write(&out); err != nil {
			t.Fatal(err)
		}
		if _, err := Read("g", out.Bytes()); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
	})
}

// TestRoundTrip checks the time of a packet through one switch and back.
func TestRoundTrip(t *testing.T) {
	p := compile(t, "single-switch", "hosts: 4", "")
	got, err := RoundTrip(p, Options{Pattern: Ring})
	want := 2*(1514*8+ackFrame*8)*time.Nanosecond + 4*time.Duration(p.Links[0].AToB.Delay) // 1 ns a bit
	if err != nil || (got-want).Abs() > 2 {
		t.Errorf("%v, want %v: %v", got, want, err)
	}
}

// TestPairsOfAlgorithms compares with pairs worked out by hand. NCCL's trees of four ranks are 0-2,
// 2-1, 2-3 and, mirrored, 3-1, 1-2, 1-0. Of six ranks four halve and double, and the first two each
// send to another rank before.
func TestPairsOfAlgorithms(t *testing.T) {
	for _, c := range []struct {
		pattern string
		ranks   int
		want    [][2]int // in both directions
	}{
		{Tree, 4, [][2]int{{0, 1}, {0, 2}, {1, 2}, {1, 3}, {2, 3}}},
		{HalvingDoubling, 6, [][2]int{{0, 1}, {2, 3}, {1, 3}, {4, 5}, {1, 4}, {3, 5}}},
		{HalvingDoubling, 1, nil},
	} {
		pairs, err := Pairs(c.pattern, c.ranks)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range c.want {
			if !slices.Contains(pairs, Pair{p[0], p[1]}) || !slices.Contains(pairs, Pair{p[1], p[0]}) {
				t.Errorf("%s of %d ranks: %v lacks %v", c.pattern, c.ranks, pairs, p)
			}
		}
		if len(pairs) != 2*len(c.want) {
			t.Errorf("%s of %d ranks: %v, want %v both ways", c.pattern, c.ranks, pairs, c.want)
		}
	}
}

// TestAlone compares a message's time with the sum of its parts by hand, in bytes at 1 Gbit/s. The
// message crosses two such links, or the link to the receiver is ten times slower.
func TestAlone(t *testing.T) {
	const frame = 1420 + headers + 14 // a full packet with its Ethernet header
	for _, test := range []struct {
		links string
		size  units.Bytes
		bytes int
	}{
		{"", 1, 2*(1+headers+14) + 2*ackFrame},
		{"", 1420, 2*frame + 2*ackFrame},
		{"", 10 * 1420, 2*frame + 9*frame + 2*ackFrame},
		{`, "h1--*": {rate: 100mbit}`, 10 * 1420, 11*frame + 9*10*frame + 11*ackFrame},
	} {
		alone, err := Alone(compile(t, "single-switch", "hosts: 2", test.links), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := alone(0, 1, test.size), time.Duration(8*test.bytes); got != want {
			t.Errorf("%d bytes over {%s}: %v, want %v", test.size, test.links, got, want)
		}
	}
}

// TestMean: an operation takes as long as its most loaded link, and the other pairs wait for it.
func TestMean(t *testing.T) {
	leaves := compile(t, "leaf-spine", "leaves: 2, spines: 1, hosts-per-leaf: 2",
		", fabric: {rate: 10mbit}, host: {rate: 10mbit}")
	single := compile(t, "single-switch", "hosts: 3", ", host: {rate: 10mbit}")
	pairs, demand := []Pair{{0, 1}, {0, 2}, {1, 2}}, []units.Bytes{2e6, 1e6, 1e6}
	for name, c := range map[string]struct {
		p    *plan.Plan
		o    Options
		want float64
	}{
		// Four of the 12 pairs share each direction of a link between switches.
		"all-to-all": {leaves, Options{Pattern: AllToAll}, 12 * 2.5e6},
		"ring":       {leaves, Options{Pattern: Ring}, 4 * 10e6},
		// Eight pairs cross the spine in two directions, in phases that take at least four transmissions.
		"phases":  {leaves, Options{Pattern: AllToAll, Method: ConflictFree}, 12 / (4 / 10e6)},
		"demands": {single, Options{Pairs: pairs, Demand: demand}, 4e6 / (3e6 / 10e6)},
	} {
		c.o.Exact = true
		file, err := Compute(c.p, c.o)
		if err != nil {
			t.Fatal(err)
		}
		if got := file.Mean(c.o.Bytes()); math.Abs(got-c.want) > 1000 {
			t.Errorf("%s: %.0f bit/s, want %.0f", name, got, c.want)
		}
	}
}
