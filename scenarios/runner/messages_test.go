package runner

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/scenarios/runner/judge"

	"railbed/capture/report"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/workloads/flows"
	"railbed/workloads/worker"
)

// messagesColumn is where the value stands that names a file, or the step where none does.
func messagesColumn(keys string) string {
	for _, key := range []string{"file: ", "trace: "} {
		if before, _, found := strings.Cut(keys, key); found {
			return strconv.Itoa(len("  - messages: {name: m, ") + len(before) + len(key) + 1)
		}
	}
	return "5"
}

// Messages that there cannot be on a testbed are errors with their place, before anything runs.
func TestMessagesThatCannotBe(t *testing.T) {
	for _, c := range []struct{ keys, want string }{
		{"open: {file: none.txt, load: 40%, count: 5}", "none.txt cannot be read: no such file"},
		{"closed: {file: fifo.txt, count: 5}", "fifo.txt is a FIFO, not a file"},
		{"open: {file: wrong.txt, load: 40%, count: 5}", `wrong.txt:2: share "most" is no number`},
		{"open: {sizes: data-mining, load: 40%, count: 100000}", "want at most 1GiB"},
		{"cache: {prefill: 2, requests: 1, per-second: 1, layers: 1, layer-time: 1ms, layer-bytes: 1KB}",
			"2 of 2 ranks prefill"},
		{"cache: {prefill: 1, trace: wrong.csv, layers: 1, layer-time: 1ms, layer-bytes: 1KB}",
			`wrong.csv:2: a prompt of "long" tokens`},
		{"blocks: {servers: 2, count: 1}", "2 of 2 ranks have storage"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"file.yaml": "name: t\nfabric: {topology: single-switch, params: {hosts: 2}}\nsteps:\n  - " +
				"messages: {name: m, " + c.keys + "}\n", "wrong.txt": "10 0\n20 most\n",
			"wrong.csv": "Timestamp,Request tokens\n1,long\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := syscall.Mkfifo(filepath.Join(dir, "fifo.txt"), 0o600); err != nil {
			t.Fatal(err)
		}
		o := load(t, filepath.Join(dir, "file.yaml"))
		o.Out = filepath.Join(dir, "out")
		_, err := Run(t.Context(), o)
		if !errors.Is(err, ErrMessages) ||
			!strings.Contains(err.Error(), "file.yaml:4:"+messagesColumn(c.keys)+": messages: ") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.keys, err, c.want)
		}
		if _, err := os.Stat(o.Out); !os.IsNotExist(err) {
			t.Errorf("%s: there are results: %v", c.keys, err)
		}
	}
}

// TestServing compares the reported waits of requests with numbers computed by hand. Two ranks
// prefill in 10 ms. One rank decodes one request at a time, 3 tokens of 5 ms each. Caches arrive 2
// ms after the last layer.
func TestServing(t *testing.T) {
	ms := func(n float64) time.Duration { return time.Duration(n * 1e6) }
	s := &flows.Schedule{Prompts: []flows.Prompt{
		{Arrived: 0, Begun: 0, Computed: ms(10), To: 2, Output: 3},
		{Arrived: ms(1), Begun: ms(1), Computed: ms(11), To: 2, Output: 3},
		{Arrived: ms(4), Begun: ms(10), Computed: ms(20), To: 2, Output: 3},
	}}
	c := &spec.CacheMessages{Prefill: 2, SLO: units.Duration(ms(15)),
		Decode: &spec.CacheDecode{Slots: 1, TokenTime: units.Duration(ms(5)), SLO: units.Duration(ms(9.8))}}
	made := &report.Messages{}
	first := finishServing(made, c, s, []time.Duration{ms(12), ms(13), ms(22)}, ms(22))
	if want := []float64{.012, .012, .018}; !slices.EqualFunc(first, want, near) {
		t.Errorf("first tokens after %v, want %v", first, want)
	}
	most := map[string]float64{}
	for _, p := range made.Parts {
		most[p.What] = p.Times.Most
	}
	// Decoded from 12, 27 and 42 ms on, to 57.
	for what, want := range map[string]float64{"waits for prefill": .006, "prefill": .010,
		"rest of the cache": .002, "waits for decode": .020, "each token": .035 / 3, "whole request": .053} {
		if !near(most[what], want) {
			t.Errorf("%s: %v at most, want %v", what, most[what], want)
		}
	}
	// The third has its first token too late; the second has a token in (42-13)/3 ms.
	v := made.Serving
	if made.Attained == nil || !near(*made.Attained, 2./3) || !near(v.Goodput, 2/.057) ||
		!near(v.Offered, 2/.004) || !near(v.PrefillBusy, 30./40) || v.Decode != 1 {
		t.Errorf("%v", v)
	}
	c.Decode.SLO = units.Duration(ms(9))
	finishServing(made, c, s, []time.Duration{ms(12), ms(13), ms(22)}, ms(22))
	if !near(*made.Attained, 1./3) {
		t.Errorf("%v, want a third", made.Serving)
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6*max(1, math.Abs(b)) }

// Blocks that took longer than is asked are counted, and the check of their share fails by them.
func TestBlocksThatTookLong(t *testing.T) {
	ms := time.Millisecond
	s := &flows.Schedule{Outstanding: 2,
		Messages: []flows.Message{{From: 1, Bytes: 10}, {From: 1, Bytes: 10}, {From: 1, Bytes: 10},
			{From: 1, Bytes: 10}}}
	m := &spec.Messages{Name: "m", Blocks: &spec.BlockMessages{SLO: units.Duration(5 * ms)}}
	r := &worker.Result{Ranks: 2, PerRank: make([]worker.RankResult, 2),
		Own: &worker.Sent{{}, {{Message: 0, Done: 5 * ms}, {Message: 1, Begun: ms, Done: 5 * ms},
			{Message: 2, Begun: 5 * ms, Done: 11 * ms}, {Message: 3, Begun: 5 * ms, Done: 7 * ms}}}}
	done := finishMessages(m, s, r, nil)
	if told := done.Outcome.(messagesOutcome).Told(); told != "1 of 4 took longer than 5ms" {
		t.Errorf("it says %q", told)
	}
	for bound, want := range map[string]verdict.Verdict{">= 75%": verdict.Pass, ">= 76%": verdict.Fail} {
		c := &report.Check{}
		judge.JudgeWorkload(c, &spec.WorkloadCheck{Name: "m", Attained: bound, Most: "<= 6ms"},
			func(string) *judge.Finished { return &done }, &report.Fidelity{Verdict: report.Faithful})
		if c.Verdict != want {
			t.Errorf("%s: %v, %s", bound, c.Verdict, c.Summary)
		}
	}
}
