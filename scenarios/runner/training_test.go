package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"railbed/plan/spec"
)

// TestPlacementsAreDecidedBefore checks that the ranks of jobs are chosen before anything runs.
// While a background job runs, no other job gets its ranks, and after a wait for it all ranks are
// free again.
func TestPlacementsAreDecidedBefore(t *testing.T) {
	o := load(t, "../training/two-jobs.yaml")
	steps, err := prepare(&o)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range steps {
		job, is := s.(*trainingStep)
		if !is {
			continue
		}
		var nodes []string
		for place, r := range job.plan.Ranks {
			if nodes = append(nodes, r.Node); r.Rank != place {
				t.Errorf("rank %d at place %d", r.Rank, place)
			}
		}
		got[job.Name] = strings.Join(nodes, " ")
	}
	want := map[string]string{"packed-a": "h0 h1 h2 h3", "packed-b": "h4 h5 h6 h7", "spread-a": "h0 h4 h1 h5",
		"spread-b": "h2 h6 h3 h7"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What a job needs and the testbed has not is an error with its place, before anything runs.
func TestJobsThatCannotBeOnTheTestbed(t *testing.T) {
	const head = "name: t\nfabric: {topology: single-switch, params: {hosts: 2}}\nsteps:\n"
	for _, c := range []struct{ name, steps, want string }{
		{"too many ranks", "  - training: {name: a, model: {layers: 4, hidden: 64, sequence: 32, tflops: " +
			"1, dp: 3}}\n", "file.yaml:4:5: training job: place 3 ranks: the testbed has 2"},
		{"taken", "  - training: {name: a, background: true, trace: good.cm}\n  - training: {name: b, " +
			"trace: good.cm}\n", "file.yaml:5:5: training job: place 2 ranks: the testbed has 2, of " +
			"which other jobs use 2"},
		{"world", "  - training: {name: a, trace: good.txt}\n", "file.yaml:4:5: training job: place 4 " +
			"ranks: the testbed has 2; world: sets the number of ranks"},
		{"nothing to leave out", "  - training: {name: a, trace: good.cm, transport: rd, rd: {droppable: " +
			"2%}}\n", "file.yaml:4:72: training job: droppable has no effect"},
		{"no trace", "  - training: {name: a, trace: none.cm}\n", "file.yaml:4:32: training job: "},
		{"wrong trace", "  - training: {name: a, trace: wrong.cm}\n", "wrong.cm:3: node 1 sends to itself"},
		{"too large", "  - training: {name: a, model: {layers: 1, hidden: 65536, sequence: 32, tflops: 1, " +
			"dp: 2}}\n", "want at most 1GiB: divide bytes-scale by"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"file.yaml": head + c.steps, "good.cm": "Nodes 2\nConnections 1\n0->1 start 0 size 100\n",
			"good.txt": "MICRO all_gpus: 4\n1\nl -1 1 ALLREDUCE 64 1 NONE 0 1 NONE 0 1\n",
			"wrong.cm": "Nodes 2\nConnections 1\n1->1 start 0 size 100\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o := load(t, filepath.Join(dir, "file.yaml"))
		o.Out = filepath.Join(dir, "out")
		_, err := Run(t.Context(), o)
		if !errors.Is(err, ErrTraining) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if _, err := os.Stat(o.Out); !os.IsNotExist(err) {
			t.Errorf("%s: there are results: %v", c.name, err)
		}
	}
}

func TestWaitIsForTheEndOfBackgroundSteps(t *testing.T) {
	background := func(name string) spec.Step {
		return spec.Step{Training: &spec.Training{Name: name, Background: true}}
	}
	steps := []spec.Step{background("long"), background("short"), {Wait: []string{"short"}}, work("after"),
		{Wait: []string{"short", "long"}}, work("last")}
	takes := map[string]time.Duration{"long": 3 * time.Second, "short": time.Second}
	synctest.Test(t, func(t *testing.T) {
		events, _, err := play(t, &script{takes: takes}, t.Context(), steps...)
		if err != nil {
			t.Fatal(err)
		}
		events = events[2:] // both start at once
		want := []string{"1s short ends", "1s after starts", "1s after ends", "3s long ends",
			"3s last starts", "3s last ends"}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Error(diff)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the background job short fails
		s := &script{takes: takes, fails: map[string]error{"short": errors.New("no")}}
		_, records, err := play(t, s, t.Context(), steps...)
		if err == nil || states(records) != "cancelled failed cancelled skipped skipped skipped" &&
			states(records) != "cancelled failed passed cancelled skipped skipped" {
			t.Errorf("%v: %s", err, states(records))
		}
	})
}
