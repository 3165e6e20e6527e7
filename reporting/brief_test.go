package reporting

import (
	"slices"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/internal/verdict"
)

// passed returns the report of a run that passed, with a number of everything that the report lists.
func passed(n int) *report.Report {
	r := sample()
	r.Verdict, r.Reason, r.Dilation = verdict.Pass, "", 1
	r.Steps = slices.DeleteFunc(r.Steps, func(s report.Step) bool { return s.State == report.Failed })
	c, w, recorded := r.Checks[0], r.Workloads[0], r.Captures[0]
	c.Near = []string{"busbw: 21.3 Mbit/s, want >= 20 Mbit/s"}
	r.Checks, r.Workloads, r.Captures = nil, nil, nil
	for range n {
		r.Checks, r.Workloads = append(r.Checks, c), append(r.Workloads, w)
		r.Captures, r.Trainings = append(r.Captures, recorded), append(r.Trainings, trained())
		r.Messages = append(r.Messages, report.Messages{Name: "disk", What: "block", PerSecond: 12345.678,
			Times: report.Percentiles{Count: 7, P50: 0.002, P99: 0.00412345}})
		r.Stacks = append(r.Stacks, report.Stack{Name: "mpi", Columns: []string{"# Size", "us"},
			Rows: slices.Repeat([]report.StackRow{{Cells: []string{"8", "3.1"}}}, 24)})
		r.Fidelity.Reasons = append(r.Fidelity.Reasons, strings.Repeat("the host was busy ", 12))
		r.Containers = append(r.Containers, strings.Repeat("h0: out of memory ", 12))
	}
	return r
}

func printed(t *testing.T, r *report.Report, o TextOptions) string {
	t.Helper()
	var text strings.Builder
	if err := WriteText(&text, r, o); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// TestPassFitsAScreen: the report of a run that passed fits 25 rows of a terminal of 100 columns. The verdict
// is first, and results come before all else. A longer report says how much it leaves out. The verbose one
// leaves nothing out.
func TestPassFitsAScreen(t *testing.T) {
	for _, n := range []int{0, 1, 2, 4, 8, 19} {
		r := passed(n)
		text := printed(t, r, TextOptions{Dir: "out"})
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if height(lines) > briefLines {
			t.Errorf("%d of everything: %d lines, want at most %d\n%s", n, height(lines), briefLines, text)
		}
		if !strings.HasPrefix(lines[0], "PASS: ring: ") ||
			n > 0 && !strings.HasPrefix(lines[2], "workload ") {
			t.Errorf("%d of everything: want the verdict, then a table of workloads:\n%s", n, text)
		}
		if of := "\nwhy:      railbed why out\n"; strings.Contains(text, of) != (n > 0) {
			t.Errorf("%d recordings: %q is in the report: %v\n%s", n, of, n == 0, text)
		}
		near := "within 10 % of its bound: workload ar: busbw: 21.3 Mbit/s, want >= 20 Mbit/s"
		if n > 5 && (!strings.Contains(text, " more with -v)") || !strings.Contains(text, near)) {
			t.Errorf("%d of everything: no number near its bound, or nothing is left out:\n%s", n, text)
		}
		all := printed(t, r, TextOptions{Dir: "out", Verbose: true})
		if strings.Contains(all, "with -v") || strings.Count(all, "out/run.pcapng") != n ||
			strings.Count(all, "within 10 %") != n {
			t.Errorf("%d of everything: the verbose report leaves something out:\n%s", n, all)
		}
	}
}

// TestQuantilesOfOperations: the table of collectives has the quantiles of the ranks' operations in its unit.
func TestQuantilesOfOperations(t *testing.T) {
	r := passed(1)
	r.Distributions = []report.Distribution{report.NewDistribution("ar", "rd message", "run.pcapng",
		[]float64{9, 9}),
		report.NewDistribution("ar", report.OperationSpan, report.RanksSource, []float64{0.1, 0.2, 0.3})}
	want := "ar all-reduce tcp 8 16MiB 20 203.5 200.0 300.0 1.154"
	text := printed(t, r, TextOptions{})
	for line := range strings.Lines(text) {
		if strings.Join(strings.Fields(line), " ") == want {
			return
		}
	}
	t.Errorf("no line %q in\n%s", want, text)
}

// TestChecksAlike: checks that were not judged for one reason are one line. The verbose report has each.
func TestChecksAlike(t *testing.T) {
	r := passed(0)
	r.Verdict, r.Reason = verdict.Aborted, "interrupted"
	for _, name := range []string{"a", "b", "c"} {
		r.Checks = append(r.Checks, report.Check{Name: name, Where: "f.yaml:" + name,
			Verdict: verdict.Inconclusive,
			Summary: "not judged: interrupted"})
	}
	r.Checks = append(r.Checks, report.Check{Name: "d", Where: "f.yaml:d", Verdict: verdict.Fail,
		Summary: "lost 3"})
	text := printed(t, r, TextOptions{})
	for want, times := range map[string]int{"\nf.yaml:a: check a and 2 others: INCONCLUSIVE: not judged: " +
		"interrupted\n": 1, "not judged": 1, "f.yaml:d: check d: FAIL: lost 3": 1, "check b": 0} {
		if got := strings.Count(text, want); got != times {
			t.Errorf("%d times %q, want %d, in\n%s", got, want, times, text)
		}
	}
	text = printed(t, r, TextOptions{Verbose: true})
	for _, name := range []string{"a", "b", "c"} {
		want := "f.yaml:" + name + ": check " + name + ": INCONCLUSIVE: not judged"
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
