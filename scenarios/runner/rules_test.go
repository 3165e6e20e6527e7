package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/capture/pcapng"
	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan/spec"
)

const rulesFile = twoHosts + `steps:
  - capture: {at: [all], file: run.pcapng}
  - traffic: {name: t, from: [h0], to: [h1], rate: 1mbit, size: 500B, for: 100ms, dscp: 24}
checks:
  - packets: {rule: {never: tcp}}
  - packets: {rule: {always: ip.dsfield.dscp == 10, where: udp.length == 466, at: nics}}
  - packets: {rule: {count: udp.length == 466, at: h1, is: ">= 10"}}
  - packets: {latency: {per: flow, max: "<= 10s"}}
  - packets: {link-bytes: {link: h0--leaf1 a-to-b, is: ">= 5KB"}}
`

// A run writes the packets that break a rule to a capture of their own, and the report links it.
func TestOffendersOfRun(t *testing.T) {
	o := options(t, rulesFile)
	r := runAll(t, t.Context(), o)
	carried(t, r)
	for i, want := range []verdict.Verdict{verdict.Pass, verdict.Fail, verdict.Pass, verdict.Pass,
		verdict.Pass} {
		if c := r.Checks[i]; c.Verdict != want || (c.Excerpt != "") != (want == verdict.Fail) {
			t.Errorf("want %s: %+v", want, c)
		}
	}
	name := r.Checks[1].Excerpt
	page, err := os.ReadFile(filepath.Join(o.Out, report.HTMLFile))
	if err != nil || !strings.Contains(string(page), fmt.Sprintf(`<a href="%s">`, name)) {
		t.Errorf("the page does not link %q: %v", name, err)
	}
	file, err := os.Open(filepath.Join(o.Out, name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in, err := pcapng.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	packets := 0
	for ; ; packets++ {
		if _, err := in.Next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if packets < 20 || in.Section().Application != "railbed excerpt" {
		t.Errorf("%d packets by %q", packets, in.Section().Application)
	}
}

// Errors of filters have their places in the file.
func TestRulesAreCompiledBeforeRuns(t *testing.T) {
	text := "name: t\n" +
		strings.Replace(strings.TrimPrefix(rulesFile, "\n"), "never: tcp", "never: tcp && ip.scr", 1)
	err := validate(text)
	var problems spec.Problems
	if !errors.As(err, &problems) || !strings.Contains(err.Error(),
		`f:10:36: no field "ip.scr"; want a field; did you mean "ip.src"?`) {
		t.Errorf("got %v", err)
	}
}
