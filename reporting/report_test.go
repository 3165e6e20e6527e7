package reporting

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan/perf"
)

var update = flag.Bool("update", false, "write the golden files")

// sample is a report with one of everything, hostile words included.
func sample() *report.Report {
	started := time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
	return &report.Report{
		Format:      report.Format,
		Verdict:     verdict.Fail,
		Reason:      "ring.yaml:12:5: packets rank-nic ar: rank 3 used h3:eth0",
		Name:        "ring",
		Description: `ring all-reduce over <b>"two"</b> spines`,
		File:        "scenarios/ring.yaml",
		PlanHash:    strings.Repeat("ab", 32),
		Seed:        7,
		Dilation:    10,
		Repeat:      []string{"railbed", "run", "my file's.yaml", "--out", "ring-results"},
		Started:     started, Finished: started.Add(6500 * time.Millisecond),
		Versions: report.Versions{Railbed: "v0.1.0", Go: "go1.26.0"},
		Host:     report.Host{Name: "rack7", Kernel: "6.18.0", Arch: "amd64", CPUs: 2, Memory: 16 << 30},
		Testbed: report.Testbed{Nodes: 8, Switches: 4, Links: 12, Ranks: 8, Topology: "leaf-spine",
			BringUp:  0.143,
			TakeDown: 0.021},
		Steps: []report.Step{
			{Name: "capture run.pcapng", Where: "ring.yaml:20:5", State: report.Passed, End: 0.05},
			{Name: "workload ar", Where: "ring.yaml:21:5", State: report.Passed, Start: 0.05, End: 4.2,
				Logs: []string{"logs/h0/ar.out"}},
			{Name: "link leaf1--spine2 down", Where: "ring.yaml:22:5", State: report.Passed, Start: 1,
				End: 1.2},
			{Name: "exec probe", Where: "ring.yaml:23:5", State: report.Failed, Start: 4.2, End: 4.9,
				Error: "ping in h0: exit code 1: <unreachable>\x1b"},
			{Name: "exec serve", Where: "ring.yaml:24:5", State: report.Cancelled, Background: true,
				Start: 4.2,
				End:   4.9},
			{Name: "sleep 1s", Where: "ring.yaml:25:5", State: report.Skipped},
		},
		Workloads: []report.Workload{{
			Name:       "ar",
			Kind:       "all-reduce",
			Algorithm:  "ring",
			Transport:  "tcp",
			Ranks:      8,
			Bytes:      16 << 20,
			Count:      4 << 20,
			Type:       "float",
			RedOp:      "sum",
			Warmup:     1,
			Iterations: 20,
			Time:       203456.7,
			AlgBW:      0.0824,
			BusBW:      0.1443,
			Sent:       []uint64{1, 2},
			Conduct: report.Conduct{Straggler: &report.Straggler{Rank: 3, Node: "h3", Worked: 0.93,
				Others: 0.12}},
			Rows: []perf.Row{
				{Size: 1 << 10, Count: 1 << 8, Type: "float", RedOp: "sum", Root: -1,
					OutOfPlace: perf.Measure{Time: 812.5}, InPlace: &perf.Measure{Time: 799.25}},
				{Size: 16 << 20, Count: 4 << 20, Type: "float", RedOp: "sum", Root: -1,
					OutOfPlace: perf.Measure{Time: 203456.7, AlgBW: 0.0824, BusBW: 0.1443}},
			},
		}},
		Checks: []report.Check{
			{Name: "workload ar", Where: "ring.yaml:30:5", Verdict: verdict.Pass,
				Summary: "correct; busbw 1.154 Gbit/s"},
			{Name: "packets bytes-per-rank ar", Where: "ring.yaml:31:5", Verdict: verdict.Pass,
				Summary: "8 ranks within 0.1% of the formula", Values: []report.Value{
					{Name: "rank 0", Value: 616562688, Unit: "B", Want: "616562688 B ± 2%"},
					{Name: "rank 1", Value: 616562700, Unit: "B", Want: "616562688 B ± 2%"},
				}},
			{Name: "packets rank-nic ar", Where: "ring.yaml:32:5", Verdict: verdict.Fail,
				Summary:  "rank 3 used h3:eth0",
				Commands: [][]string{{"railbed", "follow", "my file", "--workload", "ar"}},
				Details:  []string{"at 1.2s: 10.0.0.3 > 10.0.0.4 <tcp>"}},
			{Name: "packets conservation spine*", Where: "ring.yaml:33:5", Verdict: verdict.Inconclusive,
				Summary: "taps lost 12 packets"},
			{Name: "fidelity", Where: "ring.yaml:34:5", Verdict: verdict.Overloaded,
				Summary: "the emulation was degraded, want faithful"},
			{Name: "packets path-spread leaf0", Where: "ring.yaml:35:5", Verdict: verdict.Unsupported,
				Summary: "one uplink"},
		},
		Fidelity: &report.Fidelity{
			Verdict:        report.Degraded,
			Reasons:        []string{"captures lost 12 of 480012 packets"},
			Pressure:       0.62,
			PressureSource: "/proc/pressure/cpu",
			Steal:          0.01,
			Dropped:        12,
			Samples:        30,
			Undilated:      []report.Undilated{{What: "tcp", Timers: []string{"keepalive"}, Accepted: true}},
			Timing: &report.Timing{
				Arrivals: report.Lateness{Frames: 19922, P50: 3.5, P99: 41, Worst: 19800,
					Buckets: []report.Bucket{{To: 1.024, Frames: 22}, {From: 2.048, To: 4.096, Frames: 11000},
						{From: 16384, To: 32768, Frames: 8900}}},
				Released: report.Lateness{Frames: 480000, P50: 1, P99: 30, Worst: 19700},
				Unit:     12.112,
				Windows:  6,
				Late:     1,
				First: &report.Window{From: 1.1, Length: 1,
					Lateness: report.Lateness{Frames: 900, P50: 4, P99: 12000, Worst: 19800}, WorstAt: 1.53},
				Waited: 0.02, Ran: 0.08, Priority: 2, Nice: 0, Lost: 0, Frames: 480000,
			},
			Links: []report.LinkRate{
				{Link: "h0--leaf0", Direction: "a-to-b", From: "h0:eth0", To: "leaf0:p0", Asked: 1e9,
					Achieved: 991e6, Peak: 1003e6, Busy: 3.9, Packets: 430000, Bytes: 617e6,
					Late: &report.Lateness{Frames: 7, P99: 1e6, Worst: 3e6,
						Buckets: []report.Bucket{{From: 1.024 * (1 << 20), Frames: 7}}}},
				{Link: "leaf0--spine0", Direction: "a-to-b", From: "leaf0:p4", To: "spine0:p0", Asked: 1e9,
					Peak: 402e6, Packets: 200000, Bytes: 291e6, Dropped: 3,
					Drops: map[string][8]uint64{"tail": {2, 0, 0, 1}},
					Marks: map[string][8]uint64{"red": {3: 17}}},
			},
		},
		Captures: []report.Capture{{File: "run.pcapng", At: []string{"all"}, Bytes: 123456789, Complete: true,
			Taps: []report.Tap{{Name: "h0:eth0", Packets: 480000, Dropped: 12}}}},
		Charts: charts(),
	}
}

func TestJSONRoundTrip(t *testing.T) {
	var text bytes.Buffer
	if err := sample().WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	back, err := report.Read(&text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), back); diff != "" {
		t.Error(diff)
	}
	if _, err := report.Read(strings.NewReader(`{"format":"railbed-report/2"}`)); err == nil {
		t.Error("a report of another format was read")
	}
}

// Other programs read the names in report.json. Changing a name makes a new format.
func TestJSONNames(t *testing.T) {
	var text bytes.Buffer
	if err := sample().WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text.Bytes(), &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"format", "verdict", "reason", "name", "file", "plan_hash", "seed",
		"dilation", "repeat", "started", "finished", "versions", "host", "testbed", "steps", "workloads",
		"checks", "fidelity", "captures"} {
		if fields[name] == nil {
			t.Errorf("report.json has no %q", name)
		}
	}
}

// junitShape has the elements and attributes that readers of JUnit files rely on, independent of
// the writer: those of the xunit plugin's junit-10.xsd.
type junitShape struct {
	XMLName xml.Name `xml:"testsuites"`
	Counts
	Suites []struct {
		Counts
		Timestamp string `xml:"timestamp,attr"`
		Cases     []struct {
			Class   string    `xml:"classname,attr"`
			Name    string    `xml:"name,attr"`
			Time    float64   `xml:"time,attr"`
			Failure *struct{} `xml:"failure"`
			Error   *struct{} `xml:"error"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// Counts are the attributes that suites and the file share.
type Counts struct {
	Name     string  `xml:"name,attr"`
	Tests    int     `xml:"tests,attr"`
	Failures int     `xml:"failures,attr"`
	Errors   int     `xml:"errors,attr"`
	Skipped  int     `xml:"skipped,attr"`
	Time     float64 `xml:"time,attr"`
}

func TestJUnit(t *testing.T) {
	var text bytes.Buffer
	if err := WriteJUnit(&text, sample()); err != nil {
		t.Fatal(err)
	}
	strict := xml.NewDecoder(bytes.NewReader(text.Bytes()))
	for {
		if _, err := strict.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
	var got junitShape
	if err := xml.Unmarshal(text.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	var ends []string
	for _, suite := range got.Suites {
		if _, err := time.Parse("2006-01-02T15:04:05", suite.Timestamp); err != nil {
			t.Error(err)
		}
		counted := Counts{Name: suite.Name, Tests: len(suite.Cases), Time: suite.Time}
		for _, c := range suite.Cases {
			end := "ok"
			switch {
			case c.Failure != nil:
				end, counted.Failures = "failure", counted.Failures+1
			case c.Error != nil:
				end, counted.Errors = "error", counted.Errors+1
			case c.Skipped != nil:
				end, counted.Skipped = "skipped", counted.Skipped+1
			}
			if c.Class == "" || c.Name == "" {
				t.Errorf("case %+v lacks a name", c)
			}
			ends = append(ends, c.Name+": "+end)
		}
		if diff := cmp.Diff(counted, suite.Counts); diff != "" {
			t.Errorf("suite %s counts wrongly:\n%s", suite.Name, diff)
		}
	}
	want := []string{
		"run: ok", "1 capture run.pcapng: ok", "2 workload ar: ok", "3 link leaf1--spine2 down: ok",
		"4 exec probe: failure", "5 exec serve: error", "6 sleep 1s: skipped",
		"1 workload ar: ok", "2 packets bytes-per-rank ar: ok", "3 packets rank-nic ar: failure",
		"4 packets conservation spine*: error",
		"5 fidelity: error", "6 packets path-spread leaf0: skipped",
	}
	if diff := cmp.Diff(want, ends); diff != "" {
		t.Error(diff)
	}
	if got.Tests != 13 || got.Failures != 2 || got.Errors != 3 || got.Skipped != 2 {
		t.Errorf("totals %+v, want 13 tests, 2 failures, 3 errors, 2 skipped", got.Counts)
	}
}

// What fails in an overloaded run proves nothing about what was tested: no CI system
// is to count it as failed, nor as passed.
func TestJUnitOfAnOverloadedRun(t *testing.T) {
	r := sample()
	r.Verdict, r.Reason = verdict.Overloaded, "the emulator did not keep up"
	var text bytes.Buffer
	if err := WriteJUnit(&text, r); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text.String(), "<failure") || strings.Count(text.String(), "<error") != 6 ||
		!strings.Contains(text.String(), `message="the emulator did not keep up"`) {
		t.Errorf("want 6 errors and no failure in\n%s", text.String())
	}
}

// A run that ended before its first step is no green file.
func TestJUnitOfARunWithoutSteps(t *testing.T) {
	for end, want := range map[verdict.Verdict]string{verdict.Aborted: "<error",
		verdict.Unsupported: "<skipped", verdict.Inconclusive: "<error", verdict.Overloaded: "<error"} {
		var text bytes.Buffer
		if err := WriteJUnit(&text, &report.Report{Name: "x", Verdict: end, Reason: "because"}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), want) || !strings.Contains(text.String(), `message="because"`) {
			t.Errorf("%s: no %s in\n%s", end, want, text.String())
		}
	}
}

func TestPageIsSelfContained(t *testing.T) {
	var text bytes.Buffer
	if err := WriteHTML(&text, sample(), HTMLOptions{Topology: []byte(`<svg id="topology"/>`)}); err != nil {
		t.Fatal(err)
	}
	page := text.String()
	for _, banned := range []string{"<script", "javascript:", "<link", "@import", "http://", "https://",
		"<b>", "<unreachable>", "<tcp>"} {
		if strings.Contains(page, banned) {
			t.Errorf("the page has %q", banned)
		}
	}
	for _, wanted := range []string{`<svg id="topology"/>`, "FAIL", "&lt;b&gt;",
		"0.9910</td>", "Peak<br>(Gbit/s)", "-0.9%", "prefers-color-scheme: dark", `href="run.pcapng"`,
		"railbed run &#39;my file&#39;", "rank 3 used h3:eth0", "tail 2 at 0, 1 at 3",
		`<rect x="48" y="0" width="20" height="60"><title>2us to 4us: 11000 frames</title>`,
		`<title>1.07s or more: 7 frames</title>`} {
		if !strings.Contains(page, wanted) {
			t.Errorf("the page lacks %q", wanted)
		}
	}
	// Whatever the decoder finds wrong with the nesting of elements.
	decoder := xml.NewDecoder(
		strings.NewReader(regexp.MustCompile(`<(meta|br|img)([^>]*)>`).ReplaceAllString(page, "<$1$2/>")))
	decoder.Entity = xml.HTMLEntity
	for {
		if _, err := decoder.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("the page is not well-formed: %v", err)
		}
	}
}

// A report may end at any moment; what is missing breaks no writer.
func TestWritersTakeAnEmptyReport(t *testing.T) {
	r := &report.Report{Format: report.Format, Verdict: verdict.Aborted, Reason: "killed"}
	err := errors.Join(r.WriteJSON(io.Discard), WriteJUnit(io.Discard, r),
		WriteHTML(io.Discard, r, HTMLOptions{}), WriteText(io.Discard, r, TextOptions{}))
	if err != nil {
		t.Error(err)
	}
}

// TestTextGolden compares the report with testdata/text.golden, and the one with all tables with
// testdata/verbose.golden.
func TestTextGolden(t *testing.T) {
	for _, verbose := range []bool{false, true} {
		var text bytes.Buffer
		if err := WriteText(&text, sample(), TextOptions{Dir: "ring-results", Verbose: verbose}); err != nil {
			t.Fatal(err)
		}
		golden := map[bool]string{false: "testdata/text.golden", true: "testdata/verbose.golden"}[verbose]
		if *update {
			if err := os.WriteFile(golden, text.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), text.String()); diff != "" {
			t.Errorf("-update writes it:\n%s", diff)
		}
	}
}

func TestColoursOnlyOnATerminal(t *testing.T) {
	var plain, coloured bytes.Buffer
	if err := errors.Join(WriteText(&plain, sample(), TextOptions{}),
		WriteText(&coloured, sample(), TextOptions{Color: true})); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b[3") ||
		!strings.Contains(coloured.String(), "\x1b[31mFAIL\x1b[0m") {
		t.Error("want colours with Color and none without")
	}
}

func TestWriteTextReportsErrors(t *testing.T) {
	full := errors.New("disk full")
	if err := WriteText(failingWriter{full}, sample(), TextOptions{}); !errors.Is(err, full) {
		t.Errorf("error %v, want the writer's", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestShellLine(t *testing.T) {
	for want, args := range map[string][]string{
		`railbed run a.yaml`: {"railbed", "run", "a.yaml"}, `'a b' ''`: {"a b", ""},
		`'it'\''s' '$HOME'`: {"it's", "$HOME"},
	} {
		if got := ShellLine(args); got != want {
			t.Errorf("ShellLine(%q) = %s, want %s", args, got, want)
		}
	}
}
