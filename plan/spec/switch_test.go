package spec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"railbed/internal/units"
)

func ref[T any](v T) *T { return &v }

var everyPriority = []int{0, 1, 2, 3, 4, 5, 6, 7}

// Settings within blocks are merged one by one, and true and false switch the blocks on and off.
func TestSwitchForSoft(t *testing.T) {
	testbed, err := Load("testdata/soft.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f := &testbed.Fabric
	leaf := Switch{
		Kind:        Soft,
		Buffer:      4e6,
		Forwarding:  L3,
		LoadBalance: Flowlet,
		FlowletGap:  100e3,
		Alpha:       units.Factor{Num: 1, Den: 2},
		Scheduler:   &Scheduler{Strict: []int{7, 6}, Weights: Ordered[int]{{"0", 1}, {"1", 2}}},
		Priorities:  Ordered[int]{{"46", 5}, {"10", 3}},
		ECN: &ECN{Kind: RED, KMin: 40e3, KMax: 160e3, PMax: units.Ratio{Num: 1, Den: 5},
			Priorities: everyPriority,
			Target:     200e3, PersistentTarget: 85e3, Interval: 200e3},
		Trim: &Trim{Size: 128, DSCP: ref(59), Queue: ref(7), Priorities: []int{4}},
		PFC: &PFC{Priorities: []int{3}, XOff: ref(units.Bytes(40e3)), XOn: ref(units.Bytes(30e3)),
			Headroom: ref(units.Bytes(20e3)), Quanta: 1000},
		GFC: &GFC{Kind: GFCBuffer, Priorities: []int{2}, B1: ref(units.Bytes(10e3)),
			BM: ref(units.Bytes(60e3)), Stages: 8},
		INT:         ref(true),
		Aggregation: &Aggregation{Slots: 64, Elements: 128, Timeout: 10e6},
	}
	if diff := cmp.Diff(leaf, f.SwitchFor("leaf1")); diff != "" {
		t.Errorf("leaf1: %s", diff)
	}
	spine := leaf
	spine.ECN = ref(*leaf.ECN)
	spine.ECN.Kind, spine.ECN.Priorities = ECNSharp, []int{0, 3}
	spine.Trim, spine.Aggregation, spine.INT = nil, nil, ref(false)
	if diff := cmp.Diff(spine, f.SwitchFor("spine1")); diff != "" {
		t.Errorf("spine1: %s", diff)
	}
	spine.LoadBalance, spine.Alpha = LeastQueue, units.Factor{Num: 1, Den: 3}
	spine.GFC = ref(*leaf.GFC)
	spine.GFC.Kind, spine.GFC.Period = GFCTime, 50e3
	spine.Trim = &Trim{Size: 96, DSCP: ref(63), Queue: ref(7), Priorities: []int{4, 0}}
	spine.Scheduler = &Scheduler{Weights: leaf.Scheduler.Weights, Zero: ZeroStrict}
	if diff := cmp.Diff(spine, f.SwitchFor("spine2")); diff != "" {
		t.Errorf("spine2: %s", diff)
	}
	// Merging must not write into the file.
	if again := f.SwitchFor("leaf1"); !cmp.Equal(leaf, again) {
		t.Errorf("leaf1 changed: %s", cmp.Diff(leaf, again))
	}
}

func TestSwitchForSoftDefaults(t *testing.T) {
	f := &Fabric{Switch: Switch{Kind: Soft}}
	want := Switch{
		Kind:        Soft,
		Buffer:      2e6,
		Forwarding:  L3,
		LoadBalance: Flow,
		FlowletGap:  50e3,
		Alpha:       units.Factor{Num: 1, Den: 1},
		Scheduler:   &Scheduler{Strict: []int{7}}, INT: ref(false),
	}
	if diff := cmp.Diff(want, f.SwitchFor("s")); diff != "" {
		t.Error(diff)
	}
	f.Switch = Switch{Kind: Soft, ECN: &ECN{}, Trim: &Trim{}, PFC: &PFC{}, GFC: &GFC{Kind: GFCTime},
		Aggregation: &Aggregation{},
		Priorities:  Ordered[int]{{"35", 1}}}
	want.Priorities = f.Switch.Priorities
	want.ECN = &ECN{Kind: RED, KMin: 40e3, KMax: 160e3, PMax: units.Ratio{Num: 1, Den: 5},
		Priorities: everyPriority,
		Target:     200e3, PersistentTarget: 85e3, Interval: 200e3}
	// DSCP 35 of rd has this priority here.
	want.Trim = &Trim{Size: 128, DSCP: ref(59), Queue: ref(7), Priorities: []int{1}}
	want.PFC = &PFC{Priorities: []int{3}, Quanta: 65535}
	want.GFC = &GFC{Kind: GFCTime, Priorities: []int{3}}
	want.Aggregation = &Aggregation{Slots: 128, Elements: 256, Timeout: 1e9}
	if diff := cmp.Diff(want, f.SwitchFor("s")); diff != "" {
		t.Error(diff)
	}
	if got := f.PacketMemory(); got != 256<<20 {
		t.Errorf("memory is %s", got)
	}
}

// An entry can switch on again what a more general entry switched off.
func TestSwitchForOnAgain(t *testing.T) {
	f := &Fabric{
		Switch:   Switch{Kind: Soft, PFC: &PFC{Priorities: []int{5}}},
		Switches: Ordered[Switch]{{"s*", Switch{PFC: &PFC{Off: true}}}, {"s1", Switch{PFC: &PFC{}}}},
	}
	if got := f.SwitchFor("s2").PFC; got != nil {
		t.Errorf("s2 has %+v", got)
	}
	if got := f.SwitchFor("s1").PFC; got == nil || got.Priorities[0] != 3 {
		t.Errorf("s1 has %+v, want the defaults", got)
	}
}

func TestLinkForSoft(t *testing.T) {
	testbed, err := Load("testdata/soft.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f := &testbed.Fabric
	one := f.LinkFor("leaf1--spine2", FabricLink)
	both := Direction{Rate: 1e9, Delay: 5e3, Overhead: 24, Jitter: 10e3, JitterKind: Exponential}
	ab, ba := both, both
	ab.GilbertElliott = &GilbertElliott{Enter: ratio(1, 1000), Leave: ratio(1, 4), Loss: ratio(9, 10),
		LossGood: ratio(1, 100000)}
	ab.DropList, ab.Reorder, ab.ReorderBy = []int{5, 6, 7}, ratio(1, 100), 100e3
	ab.BitErrorRatio = ratio(1, 1e9)
	ba.DropEvery, ba.Flap = 100, &Flap{Every: 1e9, For: 20e6}
	if diff := cmp.Diff(Link{Direction: both, MTU: 4200, Weight: 1, AToB: &ab, BToA: &ba}, one); diff != "" {
		t.Error(diff)
	}
	if other := f.LinkFor("leaf2--spine2", FabricLink); other.Weight != 2 || other.AToB.Overhead != 0 ||
		!other.AToB.Flap.Off {
		t.Errorf("leaf2--spine2 is %+v, %+v", other, *other.AToB)
	}
}

func TestParseDirection(t *testing.T) {
	got, err := ParseDirection("--set",
		"{loss: 0%, drop-list: [5, 6], flap: {every: 1s, for: 10ms}, gilbert-elliott: false}")
	want := Direction{Loss: ratio(0, 1), DropList: []int{5, 6}, Flap: &Flap{Every: 1e9, For: 10e6},
		GilbertElliott: &GilbertElliott{Off: true}, Zero: ZeroLoss}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	for text, want := range map[string]string{
		"":                      "--set:1:1: the file is empty",
		"{los: 1%}":             `--set:1:2: unknown key "los" in set; did you mean "loss"?`,
		"loss: 200%":            `--set:1:7: ratio "200%" cannot be read`,
		"{flap: {every: 1s}}":   `--set:1:2: set.flap lacks the key "for"`,
		"{drop-list: [1, 0]}":   "--set:1:17: 0 is no packet number",
		"{jitter-kind: square}": `--set:1:15: set.jitter-kind "square" does not exist`,
		"[loss]":                "--set:1:1: set is a list",
		"{rate: 1bit}":          "--set:1:8: set.rate is 1bit",
	} {
		if got, err := ParseDirection("--set", text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}
