package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/testbed/plan"
	"railbed/testbed/plan/rates"
	"railbed/testbed/spec"
)

// plannedAllToAll is an all-to-all at computed rates.
const plannedAllToAll = `name: a
fabric: {topology: single-switch, params: {hosts: 4}, links: {default: {rate: 100mbit}}}
steps: [{workload: {name: w, kind: all-to-all, algorithm: ALGORITHM, transport: rd, size: 4KiB, rd: {control: offline RATES}}}]
`

// TestRatesOfAllToAll holds that an all-to-all gets rates of its pattern: in one phase for
// all pairs at once, or in conflict-free ones; and that a file in phases is refused where
// the algorithm has one.
func TestRatesOfAllToAll(t *testing.T) {
	compile := func(algorithm, file string) *Options {
		text := strings.NewReplacer("ALGORITHM", algorithm, "RATES", file).Replace(plannedAllToAll)
		path := filepath.Join(t.TempDir(), "a.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		testbed, err := spec.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Compile(testbed)
		if err != nil {
			t.Fatal(err)
		}
		return &Options{File: testbed, Plan: p, Path: path}
	}
	for algorithm, want := range map[string]struct {
		phases, pairs int
		rate          uint64
	}{"direct": {1, 12, 98_000_000 / 3}, "pairwise": {3, 4, 98_000_000}} {
		found, err := workloadRates(compile(algorithm, ""))
		if err != nil {
			t.Fatal(err)
		}
		f := found[0]
		if f.Pattern != rates.AllToAll || len(f.Phases) != want.phases || len(f.Phases[0].Rates) != want.pairs || uint64(f.Phases[0].Rates[0].Rate) != want.rate {
			t.Errorf("%s: %+v", algorithm, f)
		}
	}
	o := compile("direct", ", rates: r.json")
	found, err := workloadRates(compile("pairwise", ""))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(filepath.Dir(o.Path), "r.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := found[0].Write(file); err != nil {
		t.Fatal(err)
	}
	if _, err := workloadRates(o); !errors.Is(err, ErrRates) || !strings.Contains(err.Error(), "a.yaml:3:") || !strings.Contains(err.Error(), "want algorithm: pairwise") {
		t.Errorf("phases of an algorithm that has one: %v", err)
	}
}
