package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/plan"
	"railbed/plan/spec"
)

// TestWrongAlgorithms holds that what an algorithm is not for is found before the testbed
// is brought up, with its place in the scenario and, of a file, there.
func TestWrongAlgorithms(t *testing.T) {
	allPairs, err := os.ReadFile("../collectives/all-pairs.xml")
	if err != nil {
		t.Fatal(err)
	}
	const head = "name: a\nfabric: {topology: single-switch, params: {hosts: 4}}\n"
	for name, test := range map[string]struct {
		text, file string
		want       []string
	}{
		"right": {head + "steps: [{workload: {name: w, kind: all-reduce, algorithm: msccl, file: " +
			"a.xml, size: 4KiB}}]\n", string(allPairs), nil},
		"sizes": {head + "steps: [{workload: {name: w, kind: all-reduce, algorithm: msccl, file: " +
			"a.xml, sizes: {from: 16B, to: 64B}}}]\n", string(allPairs), nil},
		"wrong file": {head + "steps: [{workload: {name: w, kind: all-reduce, algorithm: msccl, file: " +
			"a.xml, size: 4KiB}}]\n", strings.Replace(string(allPairs), `type="re"`, `type="cpy"`, 1),
			[]string{"a.yaml:3:72: ", "a.xml:1:1: check all-reduce by all-pairs"}},
		"no file": {head + "steps: [{workload: {name: w, kind: all-reduce, algorithm: msccl, file: " +
			"b.xml, size: 4KiB}}]\n", "", []string{"a.yaml:3:72: ", "b.xml cannot be read: no such file"}},
		"kind": {head + "steps: [{workload: {name: w, kind: all-to-all, algorithm: msccl, file: " +
			"a.xml, size: 4KiB}}]\n", string(allPairs),
			[]string{"a.yaml:3:72: ", "all-pairs is for all-reduce, and the workload is all-to-all"}},
		"ranks": {strings.Replace(head, "4", "5", 1) +
			"steps: [{workload: {name: w, kind: all-reduce, algorithm: msccl, file: a.xml, size: 4KiB}}]\n",
			string(allPairs), []string{"a.yaml:3:72: ", "is for 4 ranks, and the job has 5"}},
		"size": {head + "steps: [{workload: {name: w, kind: all-reduce, algorithm: msccl, file: " +
			"a.xml, size: 20B}}]\n", string(allPairs),
			[]string{"a.yaml:3:72: ", "size 20B, want a multiple of 16B"}},
		"experts": {head + "steps: [{workload: {name: w, kind: moe, moe: {experts: 6}}}]\n", "",
			[]string{"a.yaml:3:41: ", "6 experts on 4 ranks: want a multiple of the ranks"}},
		"uneven": {head + "nodes: {h0: {ranks: 2}}\nsteps: [{workload: {name: w, kind: all-reduce, " +
			"algorithm: hierarchical, size: 4KiB}}]\n", "",
			[]string{"a.yaml:4:59: ", "want the same number on each"}},
		"even, one's": {head + "steps: [{workload: {name: w, kind: all-reduce, algorithm: hierarchical, " +
			"size: 4KiB}}]\n", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "a.yaml")
			if err := errors.Join(os.WriteFile(path, []byte(test.text), 0o600),
				os.WriteFile(filepath.Join(folder, "a.xml"), []byte(test.file), 0o600)); err != nil {
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
			_, err = prepare(&Options{File: testbed, Plan: p, Path: path})
			if test.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			for _, want := range test.want {
				if !errors.Is(err, ErrAlgorithm) || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
		})
	}
}
