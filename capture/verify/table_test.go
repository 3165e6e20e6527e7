package verify

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/capture/verify/fabricchecks"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// Whoever adds a check to files forgets neither "railbed run" nor "railbed
// verify", which both know the checks of the table and no others.
func TestTableHasEveryCheckOfFiles(t *testing.T) {
	var keys []string
	for _, k := range kinds {
		keys = append(keys, k.Key)
	}
	if want := spec.PacketChecks(); !slices.Equal(keys, want) || len(keys) < 12 {
		t.Errorf("the table has %q, files have %q", keys, want)
	}
	sources := Sources{Traffic: func(string) (evidence.Workload, error) {
		return evidence.Workload{Name: "ar"}, nil
	}, Crossing: func(string) (evidence.Crossing, error) { return evidence.Crossing{Name: "mpi"}, nil }}
	for i, example := range Examples() {
		asked, _, err := spec.ParsePacketsCheck("example", example)
		if err != nil {
			t.Errorf("%s: %v", example, err)
			continue
		}
		check, err := New(asked, sources)
		if err != nil || check == nil || asked.Kind() != keys[i] {
			t.Errorf("%s: made %T of kind %q, %v", example, check, asked.Kind(), err)
			continue
		}
		// The check calls itself by the same kind.
		s := verifytest.NewScene(t)
		s.Ring(4)
		if results, _ := s.Run(check); !strings.HasPrefix(results[0].Name, keys[i]) ||
			!strings.HasPrefix(Title(asked), keys[i]) {
			t.Errorf("%s is titled %q and %q", example, results[0].Name, Title(asked))
		}
	}
}

func TestTitles(t *testing.T) {
	for text, want := range map[string]string{
		`drops: {at: "leaf*", from: h0, reason: tail, count: "== 0"}`: "drops leaf* h0 tail",
		"lossless: {}":         "lossless",
		"deadlock: some":       "deadlock some",
		`conservation: spine1`: "conservation spine1",
	} {
		asked, _, err := spec.ParsePacketsCheck("x", text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Title(asked); got != want {
			t.Errorf("%s is titled %q, want %q", text, got, want)
		}
	}
	if _, err := New(&spec.PacketsCheck{}, Sources{}); err == nil {
		t.Error("a check of nothing was made")
	}
}

// A workload that did not end leaves nothing to compare with.
func TestChecksOfAWorkloadNeedIt(t *testing.T) {
	unknown := errors.New("did not come to its end")
	for _, text := range []string{"rank-nic: ar", "rail-local: ar", "partial-sums: ar",
		"bytes-per-rank: {workload: ar, formula: ring-all-reduce, tolerance: 2%}"} {
		asked, _, err := spec.ParsePacketsCheck("x", text)
		if err != nil {
			t.Fatal(err)
		}
		if check, err := New(asked, Sources{Traffic: func(string) (evidence.Workload, error) {
			return evidence.Workload{}, unknown
		}}); !errors.Is(err, unknown) || check != nil {
			t.Errorf("%s: %v, %v", text, check, err)
		}
	}
}

// What two ranks of one node send to each other crosses no link, so that the
// formula cannot be read off the packets.
func TestRanksOnOneNodeAreInconclusive(t *testing.T) {
	s := verifytest.NewScene(t)
	s.Ring(4)
	s.Workload.Ranks[2].Node = s.Workload.Ranks[1].Node
	results, _ := s.Run(checksOf(s)[0])
	if r := results[0]; r.Verdict != unclear ||
		!strings.Contains(r.Summary, "rank 1 sends to rank 2 on the same node, h1") {
		t.Errorf("%v, want INCONCLUSIVE with the two ranks", r)
	}
}

// If only bytes to other nodes are expected, ranks of one node are judged too. Their own counts of
// sent bytes are not compared, because these are larger.
func TestBytesAcrossNodes(t *testing.T) {
	reported := uint64(1)
	for name, test := range map[string]struct {
		change func(w *evidence.Workload)
		says   string
		not    string
	}{
		"too little": {func(w *evidence.Workload) {
			w.Ranks[2].Expected *= 2
		}, "rank 2 (h2:eth0): sent 720000 bytes, the algorithm sends 1440000", ""},
		"none within a node": {func(w *evidence.Workload) {
			w.Ranks[0].Reported = &reported
		}, "the worker counted 1", ""},
		"some within a node": {func(w *evidence.Workload) {
			w.Ranks[0].Reported = &reported
			w.Ranks[2].Node = w.Ranks[1].Node
		}, "rank 2 (h1:eth0): no packet of the workload", "the worker counted"},
	} {
		s := verifytest.NewScene(t)
		s.Ring(4)
		s.Workload.Across = true
		test.change(&s.Workload)
		results, _ := s.Run(checksOf(s)[0])
		details := strings.Join(results[0].Details, "\n")
		if results[0].Verdict == pass || !strings.Contains(details, test.says) ||
			test.not != "" && strings.Contains(details, test.not) {
			t.Errorf("%s: %v %s", name, results[0].Verdict, details)
		}
	}
}

// A check reports a switch that it selects and that was not recorded.
func TestSwitchesThatWereNotCaptured(t *testing.T) {
	for name, c := range map[string]struct {
		check evidence.Check
		left  string
		want  string
	}{
		"conservation":           {fabricchecks.NewConservation("*"), "spine1", "not recorded: spine1:"},
		"conservation of others": {fabricchecks.NewConservation("leaf*"), "spine1", ""},
		"path spread": {fabricchecks.NewPathSpread(&spec.PathSpread{Switch: "*"}), "leaf2",
			"not recorded: leaf2:"},
		"path spread of others": {fabricchecks.NewPathSpread(&spec.PathSpread{Switch: "leaf*"}), "spine2",
			""},
	} {
		s := verifytest.NewScene(t)
		s.Ring(4)
		for _, port := range s.Plan.Switch(c.left).Ports {
			s.Untapped[c.left+":"+port.Name] = true
		}
		verdict := pass
		if c.want != "" {
			verdict = unclear
		}
		results, _ := s.Run(c.check)
		if r := results[0]; r.Verdict != verdict || !strings.Contains(strings.Join(r.Details, "\n"), c.want) {
			t.Errorf("%s: %v, want %s and %q", name, r, verdict, c.want)
		}
	}
}
