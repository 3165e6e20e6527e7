package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan/allocation"
	"railbed/testkit/hosttest"
)

// pacedRates are the rates at which TestPacingOfRecordings sends, with the sizes that it sends.
var pacedRates = []struct {
	rate units.Rate
	size string
}{{1_000_000, "32KiB"}, {30_000_000, "512KiB"}, {1_000_000_000, "8MiB"}}

// TestPacingOfRecordings checks in the recordings of the ranks' NICs that no packet leaves more
// than that one packet ahead of its schedule. The rates go from 1 Mbit/s to more than this machine
// carries. The same recording must fail for a limiter that should have been slower by a third.
func TestPacingOfRecordings(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	text := "\nfabric:\n  topology: single-switch\n  params: {hosts: 2}\n  switch: {kind: router}\n  " +
		"links: {default: {mtu: 4200}}\nsteps:\n  - capture: {at: [nics], file: run.pcapng}\n"
	checks := "checks:\n"
	for i, c := range pacedRates {
		text += fmt.Sprintf("  - workload: {name: w%d, kind: all-reduce, transport: rd, size: %s, "+
			"iterations: 1, warmup: 0, rd: {control: offline, rates: w%d.json}}\n", i, c.size, i)
		checks += fmt.Sprintf("  - packets: {pacing: {workload: w%d, rate: %dbit, tolerance: 5ms}}\n", i,
			uint64(c.rate))
	}
	o := options(t, text+checks)
	for i, c := range pacedRates {
		f := allocation.File{Format: allocation.Format, Ranks: 2,
			Phases: []allocation.Phase{{Rates: []allocation.Entry{{From: 0, To: 1, Rate: c.rate},
				{From: 1, To: 0, Rate: c.rate}}}}}
		file, err := os.Create(filepath.Join(filepath.Dir(o.Path), fmt.Sprintf("w%d.json", i)))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Write(file); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	_, held := runAndHold(t, o)
	for i, c := range rejudge(t, o, held) {
		t.Logf("%s: %s", c.Verdict, c.Summary)
		if c.Verdict != verdict.Pass {
			t.Errorf("%v: %+v", pacedRates[i].rate, c)
		}
	}
	for i := range o.File.Checks {
		o.File.Checks[i].Packets.Pacing.Rate = pacedRates[i].rate * 2 / 3
	}
	for i, c := range rejudge(t, o, held)[:2] { // of the fastest the machine may be slower than that
		if c.Verdict != verdict.Fail {
			t.Errorf("%v, and a third less was asked for: %+v", pacedRates[i].rate, c)
		}
	}
}
