package supervisor

import (
	"bytes"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"railbed/capture/report"
	"railbed/internal/verdict"
)

// supervisorDied is the reason in the report of a supervisor that died before it could write its
// own reason.
const supervisorDied = "the testbed's supervisor died; its log is in supervisor.log"

// writeAborted writes a report with the reason. The report stays if this process dies without
// taking the testbed down, because it mostly cannot write one then. A testbed that ends normally
// removes the report together with its run directory.
func (s *supervisor) writeAborted(reason string) error {
	p, file := s.running()
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		return fmt.Errorf("write the report for a crash: %w", err)
	}
	r := &report.Report{
		Format: report.Format, Verdict: verdict.Aborted,
		Reason: reason,
		Name:   p.Name, File: file, PlanHash: p.Hash(), Seed: p.Seed, Started: s.created,
		Versions: report.Versions{Go: runtime.Version()},
		Host: report.Host{
			Name:   unix.ByteSliceToString(system.Nodename[:]),
			Kernel: unix.ByteSliceToString(system.Release[:]),
			Arch:   runtime.GOARCH, CPUs: runtime.NumCPU(), Rootless: s.start.Rootless,
		},
		Testbed: report.Testbed{Nodes: len(p.Nodes), Switches: len(p.Switches), Links: len(p.Links),
			Ranks: len(p.Ranks), Bypass: p.Bypassing()},
		Steps:     []report.Step{},
		Workloads: []report.Workload{},
		Checks:    []report.Check{},
		Captures:  []report.Capture{},
	}
	if r.File != "" {
		r.Repeat = []string{"railbed", "up", r.File, "--name", p.Name}
	}
	var text bytes.Buffer
	if err := r.WriteJSON(&text); err != nil {
		return err
	}
	s.reporting.Lock() // other callers write a report, too
	defer s.reporting.Unlock()
	if err := s.dir.WriteReport(text.Bytes()); err != nil {
		return fmt.Errorf("write the report for a crash: %w", err)
	}
	return nil
}
