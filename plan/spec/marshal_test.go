package spec

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"railbed/internal/units"
)

// withoutSource returns the parts of the testbed that Marshal writes.
func withoutSource(t *Testbed) *Testbed {
	plain := *t
	plain.Source = nil
	return &plain
}

func roundTrip(t testing.TB, first *Testbed) []byte {
	t.Helper()
	text, err := Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Decode("marshalled.yaml", text)
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, text)
	}
	if !reflect.DeepEqual(withoutSource(first), withoutSource(second)) {
		t.Fatalf("decoding gives another testbed from\n%s\n%+v\n%+v", text, withoutSource(first),
			withoutSource(second))
	}
	return text
}

func TestMarshalScenario(t *testing.T) {
	testbed, err := Load("testdata/scenario.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := roundTrip(t, testbed)
	want, err := os.ReadFile("testdata/scenario.marshalled")
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != string(want) {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestMarshalExplicit(t *testing.T) {
	testbed, err := Load("testdata/explicit.yaml")
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, testbed)
}

// What generate builds in Go: no Source, no defaults set.
func TestMarshalBuiltInGo(t *testing.T) {
	built := &Testbed{Name: "lab",
		Fabric: Fabric{Topology: LeafSpine,
			Params: Ordered[int]{{"leaves", 2}, {"spines", 2}, {"hosts-per-leaf", 4}},
			Links:  Ordered[Link]{{DefaultKey, Link{Direction: Direction{Rate: units.Rate(1e9)}}}}}}
	if err := built.Check(); err != nil {
		t.Fatal(err)
	}
	built.SetDefaults()
	const want = `name: lab
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 4}
  links:
    default: {rate: 1gbit}
`
	if text := roundTrip(t, built); string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// Switches of settings, on and off, and keys that are numbers.
func TestMarshalSoft(t *testing.T) {
	testbed, err := Load("testdata/soft.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(roundTrip(t, testbed))
	for _, want := range []string{"trim: true", "trim: false", "flap: false", "drop-list: []", "strict: []",
		"priorities: {46: 5, 10: 3}", "alpha: 0.5", "alpha: 1/3"} {
		if !strings.Contains(text, want) {
			t.Errorf("the file lacks %q:\n%s", want, text)
		}
	}
}

// A check that names its workload alone is written as that name.
func TestNamedChecks(t *testing.T) {
	for _, check := range []string{
		"ar", "{workload: ar, tolerance: 2%}", "{workload: ar, formula: tree-all-reduce}",
	} {
		text := "name: a\nfabric: {topology: single-switch, params: {hosts: 2}}\nsteps:\n" +
			"  - capture: {at: [all], file: a.pcapng}\n" +
			"  - workload: {name: ar, kind: all-reduce, algorithm: tree, size: 4KB}\n" +
			"checks:\n  - packets: {bytes-per-rank: " + check + "}\n"
		testbed, err := Decode("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		written, err := Marshal(testbed)
		if err != nil || !strings.Contains(string(written), "bytes-per-rank: "+check+"}") {
			t.Errorf("%s: %v\n%s", check, err, written)
		}
	}
}
