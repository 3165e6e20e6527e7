package compare

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"railbed/capture/bundle"
	"railbed/capture/follow"
	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/reporting"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

var update = flag.Bool("update", false, "write the golden files")

const pair = `
name: pair
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {rate: 100mbit, delay: 10us}}
`

// record adds a recording of ten messages of 1,000 bytes to the results of a run. The k-th takes k times 100
// us and extra, in microseconds.
func record(t *testing.T, dir string, extra int64) { recordAs(t, dir, "run.pcapng", extra) }

func recordAs(t *testing.T, dir, file string, extra int64) {
	t.Helper()
	s := verifytest.NewScene(t)
	s.Plan = plantest.Compile(t, pair)
	for k := int64(1); k <= 10; k++ {
		datagram := verifytest.TCP{
			Src:      netip.AddrPortFrom(verifytest.Loopback(&s.Plan.Nodes[0]), 7000),
			Dst:      netip.AddrPortFrom(verifytest.Loopback(&s.Plan.Nodes[1]), 7001),
			Datagram: make([]byte, 1000),
		}
		frame := s.UDPFrame(datagram, 64, s.Plan.Nodes[0].NICs[0].MAC, s.Plan.Nodes[1].NICs[0].MAC)
		sent := verifytest.Start + k*10e6
		for _, at := range []verifytest.Sighting{{Tap: "h0:eth0", Out: true, Time: sent},
			{Tap: "h1:eth0", Time: sent + (k*100+extra)*1000}} {
			at.ID, at.Frame, at.Length = uint64(k), frame, len(frame)
			s.Insert(at)
		}
	}
	var plan bytes.Buffer
	if err := errors.Join(s.Plan.WriteJSON(&plan),
		os.WriteFile(filepath.Join(dir, bundle.PlanFile), plan.Bytes(), 0o644),
		os.WriteFile(filepath.Join(dir, file), s.Write(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// TestRecordings: the quantiles of ten messages, and the part of which their times consist.
func TestRecordings(t *testing.T) {
	names := write(t, withTime(1), withTime(2))
	record(t, names[0], 0)
	record(t, names[1], 300)
	c := runs(t, names[:1], names[1:], Options{})
	for what, want := range map[string][2]float64{
		"messages": {10, 10}, "unfinished": {0, 0}, "p10": {100e-6, 400e-6}, "p50": {500e-6, 800e-6},
		"p90": {900e-6, 1200e-6}, "p99": {1000e-6, 1300e-6}, "most": {1000e-6, 1300e-6},
		"mean": {550e-6, 850e-6}, "mean in unseen": {550e-6, 850e-6}, "mean in queue": {0, 0},
	} {
		n := find(t, c, reporting.RecordingSection, what)
		if math.Abs(n.Base.Median-want[0]) > 1e-9 || math.Abs(n.New.Median-want[1]) > 1e-9 || n.P != nil {
			t.Errorf("%s: %+v, want %v", what, n, want)
		}
	}
	if len(c.Curves) != 1 || len(c.Curves[0].New) != 1 {
		t.Fatalf("curves %+v", c.Curves)
	}
	curve := c.Curves[0]
	middle := slices.Index(curve.Probabilities, 0.5)
	if middle < 0 || curve.Base[0].Seconds[middle] != 500e-6 || curve.New[0].Seconds[middle] != 800e-6 ||
		!slices.IsSorted(curve.New[0].Seconds) {
		t.Errorf("curve %+v", curve)
	}
	if c = runs(t, names[:1], names[1:], Options{NoRecordings: true}); len(c.Curves) != 0 {
		t.Errorf("curves of recordings that were not to be read: %+v", c.Curves)
	}
	if err := os.WriteFile(filepath.Join(names[1], "run.pcapng"), []byte("no capture"), 0o644); err != nil {
		t.Fatal(err)
	}
	c = runs(t, names[:1], names[1:], Options{})
	if notes := strings.Join(c.Notes, "\n"); !strings.Contains(notes,
		"run1: its recording is not compared: ") {
		t.Errorf("notes %q", notes)
	}
}

// TestSeveralRecordings compares recordings of the same name, if a run has several, and otherwise those that
// there are.
func TestSeveralRecordings(t *testing.T) {
	names := write(t, withTime(1), withTime(2))
	recordAs(t, names[0], "run.pcapng", 0)
	recordAs(t, names[0], "zone.pcapng", 100)
	recordAs(t, names[1], "zone.pcapng", 500)
	compared := func(want map[string][2]float64, notes ...string) {
		t.Helper()
		c := runs(t, names[:1], names[1:], Options{})
		got := map[string][2]float64{}
		for _, n := range c.Numbers {
			if n.Section == reporting.RecordingSection && n.What == "p50" {
				got[n.Of] = [2]float64{math.Round(n.Base.Median * 1e6), math.Round(n.New.Median * 1e6)}
			}
		}
		if !maps.Equal(got, want) || len(c.Curves) != len(want) {
			t.Errorf("%v and %d curves, want %v", got, len(c.Curves), want)
		}
		for _, curves := range c.Curves {
			if pair, there := want[curves.Title()]; !there || (pair[1] > 0) != (len(curves.New) > 0) {
				t.Errorf("curves of %s: %+v", curves.Title(), curves)
			}
		}
		for _, note := range notes {
			if all := strings.Join(c.Notes, "\n"); !strings.Contains(all, note) {
				t.Errorf("notes %s; want %s", all, note)
			}
		}
	}
	compared(map[string][2]float64{"run.pcapng: udp": {500, 0}, "zone.pcapng: udp": {600, 1000}},
		"new "+names[1]+" has no recording run.pcapng: recordings are compared with those of the same name")
	recordAs(t, names[1], "run.pcapng", 300)
	compared(map[string][2]float64{"run.pcapng: udp": {500, 800}, "zone.pcapng: udp": {600, 1000}})
	if err := os.WriteFile(filepath.Join(names[0], "zone.pcapng"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	compared(map[string][2]float64{"run.pcapng: udp": {500, 800}, "zone.pcapng: udp": {0, 1000}},
		"base "+names[0]+": its recording zone.pcapng is not compared: ")
	if err := errors.Join(os.Remove(filepath.Join(names[0], "zone.pcapng")),
		os.Remove(filepath.Join(names[1], "run.pcapng"))); err != nil {
		t.Fatal(err)
	}
	compared(map[string][2]float64{"udp": {500, 1000}})
}

// sample is a comparison with one of everything, hostile words included.
func sample(t *testing.T) *Comparison {
	t.Helper()
	var all []*report.Report
	for i := range 16 {
		r := withTime([]float64{100e3, 50e3}[i/8] + float64(i)*1e3)
		r.Name, r.File, r.Versions.Railbed = "ring", []string{"old.yaml", "<b>new</b>.yaml"}[i/8], "v0.1.0"
		r.Verdict = []verdict.Verdict{verdict.Fail, verdict.Pass}[i/8]
		r.Started = began.Truncate(86400e9).AddDate(0, 0, i)
		r.Steps = []report.Step{{Name: "workload ar", State: report.Passed}}
		r.Checks = []report.Check{{Name: "drops", Verdict: r.Verdict, Values: []report.Value{{Name: "dropped",
			Value: float64(12 * (1 - i/8)), Want: "0"}}}}
		r.Fidelity = &report.Fidelity{Verdict: report.Degraded, Pressure: 0.5 + float64(i%8)/10,
			Links: []report.LinkRate{{From: "h0:eth0", To: "leaf0:p0", Achieved: 99e6, Peak: 1e8, Busy: 1,
				Marks: map[string][8]uint64{"red": {3: uint64(i)}}}}}
		all = append(all, r)
	}
	names := write(t, all...)
	t.Chdir(filepath.Dir(names[0]))
	for i, name := range names {
		record(t, name, int64(300*(i/8)+i%8))
		names[i] = filepath.Base(name)
	}
	return runs(t, names[:8], names[8:], Options{})
}

// TestPageIsSelfContained looks at the page as a browser does.
func TestPageIsSelfContained(t *testing.T) {
	golden, err := filepath.Abs("testdata/page.golden") // sample changes the directory
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := sample(t).WriteHTML(&text); err != nil {
		t.Fatal(err)
	}
	page := text.String()
	for _, banned := range []string{"<script", "javascript:", "<link", "@import", "http://", "https://",
		"<b>",
		"ZgotmplZ"} {
		if strings.Contains(page, banned) {
			t.Errorf("the page has %q", banned)
		}
	}
	for _, wanted := range []string{
		"&lt;b&gt;new&lt;/b&gt;.yaml", "prefers-color-scheme: dark", `✗ FAIL</span> <span class="place">(8)`,
		"<strong>differs</strong>",
		"p=0.000 n=8", "✓ better", "✗ worse", "≠ differs", `class="line-base"`, "p50: base 504us, new 804us",
		`<td>base</td><td class="n">554us</td>`,
	} {
		if !strings.Contains(page, wanted) {
			t.Errorf("the page lacks %q", wanted)
		}
	}
	for i, side := range []string{"base", "new"} {
		line := fmt.Sprintf(`<g class="hue%d"><path d="`, i)
		if n := strings.Count(page, line); n != 8 || strings.Count(page, "<title>"+side+": ") != 8 {
			t.Errorf("%d curves of %s, want one for each of 8 runs", n, side)
		}
	}
	// Whatever the decoder finds wrong with the nesting of elements.
	decoder := xml.NewDecoder(strings.NewReader(regexp.MustCompile(`<meta([^>]*)>`).ReplaceAllString(
		strings.ReplaceAll(page, "<br>", "<br/>"), "<meta$1/>")))
	decoder.Entity = xml.HTMLEntity
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the page is not well-formed: %v", err)
		}
	}
	if *update {
		if err := os.WriteFile(golden, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || page != string(want) {
		t.Errorf("the page differs from %s (%v); look at it, and write it with -update", golden, err)
	}
}

// TestHostileTexts puts a hostile text into each text of both reports.
func TestHostileTexts(t *testing.T) {
	const hostile = "x\x1b[2J\u009b31m\u202e\x00\xff\r\n</title><script>PASS"
	var sides [2]*side
	for i := range sides {
		r := &report.Report{}
		fill(reflect.ValueOf(r).Elem(), hostile+[]string{"a", "b"}[i])
		told := messages{Sum: follow.Sum{Workload: hostile, Protocol: hostile}, named: make([]time.Duration,
			6)}
		for k := range probabilities {
			told.times = append(told.times, time.Duration(k+1))
		}
		sides[i] = &side{name: hostile, notes: []string{hostile},
			runs: []*run{{name: hostile, report: r, messages: []messages{told}}}}
	}
	var page bytes.Buffer
	if err := compare(sides, Options{Alpha: DefaultAlpha}).WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if !utf8.ValidString(text) || strings.Contains(text, "<script") ||
		strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Errorf("hostile page:\n%.3000q", text)
	}
}

// TestPageOfNothing: runs that were killed have hardly anything to compare.
func TestPageOfNothing(t *testing.T) {
	none := func() *side { return &side{runs: []*run{{report: &report.Report{}}}} }
	var page bytes.Buffer
	if err := compare([2]*side{none(), none()}, Options{Alpha: DefaultAlpha}).WriteHTML(&page); err != nil {
		t.Error(err)
	}
}
