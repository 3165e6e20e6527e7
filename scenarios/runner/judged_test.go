package runner

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"railbed/scenarios/runner/judge"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/workloads/worker"
)

// judgedChecks are checks of workloads. The results of a run that passes the check, and of a run that breaks
// it, are in good and bad.
func judgedChecks() []struct {
	kind, check string
	good, bad   *judge.Finished
} {
	collective := func(busbw float64, wrong uint64) *judge.Finished {
		return &judge.Finished{Outcome: collectiveOutcome{&report.Workload{BusBW: busbw, Ranks: 8}},
			Wrong: wrong}
	}
	messages := func(p50, p99, most, attained float64) *judge.Finished {
		return &judge.Finished{Outcome: messagesOutcome{&report.Messages{Attained: &attained,
			Times: report.Percentiles{Count: 100, P50: p50, P99: p99, Most: most}}}}
	}
	training := func(iteration, exposed, compute float64) *judge.Finished {
		return &judge.Finished{Outcome: trainingOutcome{&report.Training{Iterations: []float64{iteration},
			PerRank: []report.TrainingRank{{Exposed: exposed, Compute: compute}}}}}
	}
	learning := func(held, accuracy float64) *judge.Finished {
		return &judge.Finished{Outcome: finishSGD(collectiveOutcome{&report.Workload{}},
			&worker.Learning{Held: held, Accuracy: accuracy})}
	}
	serving, slow := messages(0.004, 0.04, 0.15, 0.95), messages(0.008, 0.09, 0.4, 0.7)
	job, other := training(0.4, 0.3, 0.6), training(0.6, 0.5, 0.2)
	return []struct {
		kind, check string
		good, bad   *judge.Finished
	}{
		{"correct", "{name: ar, correct: true}", collective(0.1, 0), collective(0.1, 3)},
		{"busbw", `{name: ar, busbw: ">= 600 Mbit/s"}`, collective(0.1, 0), collective(0.05, 0)},
		{"p50", `{name: web, p50: "<= 5ms"}`, serving, slow},
		{"p99", `{name: web, p99: "<= 50ms"}`, serving, slow},
		{"most", `{name: web, most: "<= 200ms"}`, serving, slow},
		{"attained", `{name: serving, attained: ">= 90%"}`, serving, slow},
		{"loss", `{name: learn, loss: "<= 0.5"}`, learning(0.4, 0.9), learning(0.7, 0.6)},
		{"accuracy", `{name: learn, accuracy: ">= 85%"}`, learning(0.4, 0.9), learning(0.7, 0.6)},
		{"iteration", `{name: gpt, iteration: "<= 500ms"}`, job, other},
		{"exposed", `{name: gpt, exposed: "<= 40%"}`, job, other},
		{"utilisation", `{name: gpt, utilisation: ">= 30%"}`, job, other},
		{"beside", `{name: ar, beside: {workload: other, busbw: ">= 90%"}}`, collective(0.1, 0),
			collective(0.05, 0)},
	}
}

// TestJudgedExamples judges results that pass and results that break each check of workloads and of the
// fidelity. The findings are the examples of `railbed explain` and of the reference.
func TestJudgedExamples(t *testing.T) {
	faithful := &report.Fidelity{Verdict: report.Faithful}
	var made []verify.Judged
	exemplified := map[string]bool{}
	for _, c := range judgedChecks() {
		exemplified[c.kind] = true
	}
	for _, f := range spec.Figures {
		if !exemplified[f.Name] {
			t.Errorf("the bounded figure %s has no example: want a row of judgedChecks", f.Name)
		}
	}
	for _, c := range judgedChecks() {
		check, err := spec.ParsePart[spec.WorkloadCheck]("example", c.check)
		if err != nil {
			t.Fatal(err)
		}
		judge := func(own *judge.Finished, want verdict.Verdict) string {
			var found report.Check
			workload := func(name string) *judge.Finished {
				if name == "other" {
					return judgedChecks()[1].good
				}
				return own
			}
			if judge.JudgeWorkload(&found, &check, workload, faithful); check.Beside != nil {
				judge.JudgeBeside(&found, &check, workload, faithful)
			}
			if found.Verdict != want {
				t.Errorf("%s: %s %q, want %s", c.check, found.Verdict, found.Summary, want)
			}
			return found.Summary
		}
		made = append(made, verify.Judged{Kind: "workload." + c.kind, Check: "workload: " + c.check,
			Pass: judge(c.good, verdict.Pass), Fail: judge(c.bad, verdict.Fail)})
	}
	var good, bad report.Check
	judge.JudgeFidelityCheck(&good, report.Faithful, faithful)
	judge.JudgeFidelityCheck(&bad, report.Faithful, &report.Fidelity{Verdict: report.Degraded})
	if good.Verdict != verdict.Pass || bad.Verdict != verdict.Overloaded {
		t.Errorf("fidelity: %v and %v", good, bad)
	}
	made = append(made, verify.Judged{Kind: "fidelity", Check: "fidelity: faithful", Pass: good.Summary,
		Fail: bad.Summary})
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(made); err != nil {
		t.Fatal(err)
	}
	if f := flag.Lookup("update"); f != nil && f.Value.String() == "true" {
		if err := os.WriteFile("judged.json", text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(text.Bytes(), judged) {
		t.Error("judged.json has other findings; make generate writes it")
	}
}
