package spec

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"railbed/internal/units"
)

const overrides = `
name: a
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}
  switch: {kind: router, buffer: 1MiB}
  switches:
    default: {buffer: 2MiB}
    "spine*": {buffer: 3MiB}
    spine2: {kind: bridge}
    "*2": {buffer: 4MiB}
  links:
    # The order in the file does not matter between kinds of keys.
    "leaf1--spine2": {loss: 0%, a-to-b: {delay: 0us}}
    "leaf1--*": {delay: 3us, queue: 10KB}
    "*--spine2": {delay: 4us, b-to-a: {rate: 2gbit}}
    fabric: {rate: 40gbit, loss: 1%}
    host: {rate: 10gbit}
    default: {rate: 1gbit, delay: 1us, mtu: 9000, a-to-b: {jitter: 1us}}
nodes:
  h1: {ranks: 0, env: {B: h1}}
  "h[12]": {ranks: 3, env: {A: glob, B: glob}}
  "h*": {cpu: 2, memory: 1GiB}
  default: {ranks: 2, cpu: 1, env: {C: default}}
  h2: {memory: 0B, cpu: 0}
`

func decoded(t *testing.T, text string) *Testbed {
	t.Helper()
	testbed, err := Decode("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return testbed
}

func ratio(num, den uint64) units.Ratio { return units.Ratio{Num: num, Den: den} }

func TestLinkFor(t *testing.T) {
	f := &decoded(t, overrides).Fabric
	const us, gbit = units.Duration(1e3), units.Rate(1e9)
	for _, c := range []struct {
		name, class string
		ab, ba      Direction
	}{
		{"h0--leaf1", HostLink,
			Direction{Rate: 10 * gbit, Delay: us, Jitter: us}, Direction{Rate: 10 * gbit, Delay: us}},
		{"leaf2--spine1", FabricLink,
			Direction{Rate: 40 * gbit, Delay: us, Jitter: us, Loss: ratio(1, 100)},
			Direction{Rate: 40 * gbit, Delay: us, Loss: ratio(1, 100)}},
		// A later glob overrides an earlier one, but only in the settings that it sets.
		{"leaf1--spine1", FabricLink,
			Direction{Rate: 40 * gbit, Delay: 3 * us, Jitter: us, Loss: ratio(1, 100), Queue: 10e3},
			Direction{Rate: 40 * gbit, Delay: 3 * us, Loss: ratio(1, 100), Queue: 10e3}},
		// The name overrides both globs although it comes first. Zeros override.
		{"leaf1--spine2", FabricLink,
			Direction{Rate: 40 * gbit, Jitter: us, Loss: ratio(0, 1), Queue: 10e3},
			Direction{Rate: 2 * gbit, Delay: 4 * us, Loss: ratio(0, 1), Queue: 10e3}},
	} {
		link := f.LinkFor(c.name, c.class)
		if diff := cmp.Diff(c.ab, *link.AToB); diff != "" {
			t.Errorf("%s a to b: %s", c.name, diff)
		}
		if diff := cmp.Diff(c.ba, *link.BToA); diff != "" {
			t.Errorf("%s b to a: %s", c.name, diff)
		}
		if link.MTU != 9000 {
			t.Errorf("%s: MTU %d", c.name, link.MTU)
		}
	}
	bare := (&Fabric{}).LinkFor("a--b", HostLink)
	want := Direction{Rate: gbit}
	if bare.MTU != 1500 || !cmp.Equal(*bare.AToB, want) || !cmp.Equal(*bare.BToA, want) {
		t.Errorf("without a file: %+v %+v", bare, *bare.AToB)
	}
}

// A setting for both directions in a more specific entry overrides a setting for one direction in a
// less specific entry.
func TestLinkForBothDirectionsOfTheName(t *testing.T) {
	f := Fabric{Links: Ordered[Link]{
		{"a--b", Link{Direction: Direction{Rate: 3}}},
		{DefaultKey, Link{Direction: Direction{Rate: 1}, AToB: &Direction{Rate: 2}}},
	}}
	if link := f.LinkFor("a--b", HostLink); link.AToB.Rate != 3 || link.BToA.Rate != 3 {
		t.Errorf("got %v and %v", link.AToB.Rate, link.BToA.Rate)
	}
	if link := f.LinkFor("a--c", HostLink); link.AToB.Rate != 2 || link.BToA.Rate != 1 {
		t.Errorf("got %v and %v", link.AToB.Rate, link.BToA.Rate)
	}
}

// A direction that was decoded from JSON without its ratios, because JSON omits zero ones.
func TestOverTakesEachZeroFromItsMark(t *testing.T) {
	base := Direction{Rate: 1, Delay: 2, Jitter: 3, Loss: ratio(1, 4), Duplicate: ratio(1, 5),
		Corrupt: ratio(1, 6), Queue: 7}
	for zero, want := range map[Zeros]Direction{
		0: base,
		ZeroDelay: {Rate: 1, Jitter: 3, Loss: ratio(1, 4), Duplicate: ratio(1, 5), Corrupt: ratio(1, 6),
			Queue: 7},
		ZeroJitter: {Rate: 1, Delay: 2, Loss: ratio(1, 4), Duplicate: ratio(1, 5), Corrupt: ratio(1, 6),
			Queue: 7},
		ZeroLoss:      {Rate: 1, Delay: 2, Jitter: 3, Duplicate: ratio(1, 5), Corrupt: ratio(1, 6), Queue: 7},
		ZeroDuplicate: {Rate: 1, Delay: 2, Jitter: 3, Loss: ratio(1, 4), Corrupt: ratio(1, 6), Queue: 7},
		ZeroCorrupt:   {Rate: 1, Delay: 2, Jitter: 3, Loss: ratio(1, 4), Duplicate: ratio(1, 5), Queue: 7},
	} {
		want.Zero = zero
		if diff := cmp.Diff(want, Direction{Zero: zero}.Over(base)); diff != "" {
			t.Errorf("%d: %s", zero, diff)
		}
	}
}

// The settings of a testbed are the same after they crossed a socket as JSON.
func TestOverridesSurviveJSON(t *testing.T) {
	first := decoded(t, overrides)
	text, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	var second Testbed
	if err := json.Unmarshal(text, &second); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"leaf1--spine2", "leaf1--spine1", "h0--leaf1"} {
		a, b := first.Fabric.LinkFor(name, FabricLink), second.Fabric.LinkFor(name, FabricLink)
		if a.AToB.Loss.Float() != b.AToB.Loss.Float() || a.AToB.Delay != b.AToB.Delay ||
			a.BToA.Rate != b.BToA.Rate {
			t.Errorf("%s: %+v and %+v", name, *a.AToB, *b.AToB)
		}
	}
	for _, name := range []string{"h1", "h2"} {
		if diff := cmp.Diff(first.NodeFor(name), second.NodeFor(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestNodeFor(t *testing.T) {
	testbed := decoded(t, overrides)
	for name, want := range map[string]Node{
		"h0": {Runtime: "netns", Ranks: 2, CPU: 2, Memory: 1 << 30, Env: map[string]string{"C": "default"}},
		"h1": {Runtime: "netns", Ranks: 0, CPU: 2, Memory: 1 << 30,
			Env: map[string]string{"A": "glob", "B": "h1", "C": "default"}},
		"h2": {Runtime: "netns", Ranks: 3, Env: map[string]string{"A": "glob", "B": "glob", "C": "default"}},
		"x":  {Runtime: "netns", Ranks: 2, CPU: 1, Env: map[string]string{"C": "default"}},
	} {
		want.NICQueue = defaultNICQueue
		if diff := cmp.Diff(want, testbed.NodeFor(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if diff := cmp.Diff(Node{Runtime: "netns", Ranks: 1, NICQueue: defaultNICQueue},
		(&Testbed{}).NodeFor("h0")); diff != "" {
		t.Errorf("without a file: %s", diff)
	}
}

func TestSwitchFor(t *testing.T) {
	f := &decoded(t, overrides).Fabric
	for name, want := range map[string]Switch{
		"leaf1":  {Kind: Router, Buffer: 2 << 20},
		"spine1": {Kind: Router, Buffer: 3 << 20},
		"leaf2":  {Kind: Router, Buffer: 4 << 20},
		"spine2": {Kind: Bridge, Buffer: 4 << 20},
	} {
		if diff := cmp.Diff(want, f.SwitchFor(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if diff := cmp.Diff(Switch{Kind: Router, Buffer: 256 << 10},
		(&Fabric{Switch: Switch{Kind: Router}}).SwitchFor("s")); diff != "" {
		t.Errorf("a router: %s", diff)
	}
	if diff := cmp.Diff((&Fabric{Switch: Switch{Kind: Soft}}).SwitchFor("s"),
		(&Fabric{}).SwitchFor("s")); diff != "" {
		t.Errorf("without a file: %s", diff)
	}
}

func TestUnmatched(t *testing.T) {
	o := Ordered[int]{{DefaultKey, 0}, {"h0", 1}, {"h[2-3]", 2}, {"x*", 3}, {"leaf1--spine9", 4}, {"host", 5}}
	if got := o.Unmatched("h0", "h3", "host"); !slices.Equal(got, []string{"x*", "leaf1--spine9"}) {
		t.Errorf("got %q", got)
	}
}

func TestTarget(t *testing.T) {
	for where, want := range map[string][2]string{
		"leaf1--spine2":        {"leaf1--spine2", ""},
		"leaf1--spine2 a-to-b": {"leaf1--spine2", "a-to-b"},
		"leaf*--* b-to-a":      {"leaf*--*", "b-to-a"},
	} {
		link, direction := (&LinkChange{Where: where}).Target()
		if [2]string{link, direction} != want {
			t.Errorf("%s: got %q, %q", where, link, direction)
		}
	}
}

func TestComparison(t *testing.T) {
	for text, want := range map[string]Comparison{
		">= 600 Mbit/s": {">=", 600e6}, ">600Mbit/s": {">", 600e6}, "<= 1.5 Gbit/s": {"<=", 1.5e9},
		"< 1 GB/s":     {"<", 8e9},
		">= 12.5 MB/s": {">=", 100e6}, "> 3 kbit/s": {">", 3e3}, "< 7 bit/s": {"<", 7},
		"> 0.5 kB/s": {">", 4e3},
	} {
		got, err := ParseComparison(text)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v", text, got, err)
			continue
		}
		if again, err := ParseComparison(got.String()); err != nil || again != want {
			t.Errorf("%s prints as %s, which reads as %+v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "600 Mbit/s", "= 6 Mbit/s", ">= Mbit/s", ">= 6", ">= 6 mbit",
		">= 6 MiB/s", ">= -6 MB/s", ">= 1e3 MB/s",
		">= 0.3 bit/s", ">= 99999999999 GB/s", ">= 600 Mbit/s or so", "=> 6 MB/s"} {
		if got, err := ParseComparison(text); err == nil {
			t.Errorf("%q reads as %+v", text, got)
		}
	}
	for _, c := range []struct {
		op                 string
		below, same, above bool
	}{{">=", false, true, true}, {">", false, false, true}, {"<=", true, true, false},
		{"<", true, false, false}} {
		bound := Comparison{Op: c.op, Rate: 10}
		if bound.Holds(9) != c.below || bound.Holds(10) != c.same || bound.Holds(11) != c.above {
			t.Errorf("%s 10 bit/s: %v %v %v", c.op, bound.Holds(9), bound.Holds(10), bound.Holds(11))
		}
	}
}
