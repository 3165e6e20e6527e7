package judge

import (
	"fmt"
	"path"
	"strconv"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/verdict"
	"railbed/plan/spec"
)

// packetCommands adds to a check the command lines that show its packets: those that break it, or the records
// of switches that it counts, if there are any.
func (e *Evidence) packetCommands(c *report.Check, p *spec.PacketsCheck, r *verify.Result) {
	for _, record := range []struct {
		counted bool
		verdict string
	}{
		{p.Lossless != nil || p.Drops != nil && r.Measured["dropped"]+r.Measured["other-reasons"] > 0,
			"drop"},
		{p.Marks != nil && r.Measured["marked"] > 0, "mark"},
		{p.Trims != nil && r.Measured["trimmed"] > 0, "trim"},
	} {
		if record.counted {
			c.Commands = append(c.Commands, []string{"railbed", "decode", e.Out, "-Y",
				fmt.Sprintf("railbed.verdict == %q", record.verdict), "-c", "20"})
		}
	}
	if c.Excerpt == "" {
		return
	}
	c.Commands = append(c.Commands,
		[]string{"railbed", "decode", path.Join(e.Out, c.Excerpt)},
		[]string{"railbed", "follow", e.Out, "--packet", strconv.Itoa(r.Offenders.First())})
}

// workloadCommands adds to the checks of a workload the command lines that show its messages in the
// recording.
func (e *Evidence) workloadCommands(file *spec.Testbed, checks []report.Check) {
	if e.Captures.packets() == 0 {
		return
	}
	for i, check := range file.Checks {
		name := ""
		switch {
		case check.Workload != nil:
			name = check.Workload.Name
		case check.Packets != nil && check.Packets.BytesPerRank != nil:
			name = check.Packets.BytesPerRank.Workload
		}
		if e.Workload(name) == nil {
			continue
		}
		c := &checks[i]
		c.Commands = append(c.Commands, []string{"railbed", "follow", e.Out, "--workload", name})
		if c.Verdict != verdict.Pass {
			c.Commands = append(c.Commands, []string{"railbed", "why", e.Out, "--workload", name})
		}
	}
}
