package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"railbed/capture/report"
	"railbed/fabric"
	"railbed/fabric/port"
	"railbed/fabric/softswitch"
	"railbed/fabric/softswitch/live"
	"railbed/testbed/supervisor"
)

// printQueues prints the queues and counters of the soft switches: a line for each port with events
// other than forwarded packets.
func (a *app) printQueues(s *supervisor.State) {
	if s.Soft == nil {
		return
	}
	var telemetry softswitch.INTCounters
	t := a.newTable("PORT", "WAITING BY PRIORITY", "PAUSED", "MARKED", "TRIMMED", "PAUSES SENT", "RECEIVED",
		"DROPS")
	for _, link := range s.Links {
		for _, end := range []fabric.EndState{link.A, link.B} {
			port := end.Soft
			if port != nil {
				telemetry.Add(&port.Counters.INT)
			}
			if port != nil && eventful(port) {
				t.AppendRow([]any{port.Port, depths(port), paused(port), report.ByReason(port.Marks),
					report.ByReason(port.Trims),
					sum(port.Counters.PausesSent[:]), sum(port.Counters.PausesReceived[:]),
					report.ByReason(port.Drops)})
			}
		}
	}
	fmt.Fprintln(a.stdout)
	if t.Length() > 0 {
		t.Render()
		fmt.Fprintln(a.stdout)
	}
	soft := s.Soft
	fmt.Fprintf(a.stdout, "soft switches: %d packets from nodes, %d to nodes, %d dropped, %d held; packet "+
		"memory %d of %d bytes at most\n",
		soft.Totals.Received, soft.Totals.Delivered, soft.Totals.Dropped, soft.Held, soft.Peak*soft.Cell,
		soft.Memory)
	a.printDrivers(soft.NICs)
	fmt.Fprintf(a.stdout, "released late by: median %v, p99 %v, worst %v\n", soft.Late.P50, soft.Late.P99,
		soft.Late.Worst)
	a.printTiming(&soft.Timing)
	if c := telemetry; c != (softswitch.INTCounters{}) {
		fmt.Fprintf(a.stdout, "telemetry: %d hops written, link use over windows of %v; %d blocks "+
			"int-full, %d int-invalid, %d int-no-room\n",
			c.Written, softswitch.UseWindow, c.Full, c.Invalid, c.NoRoom)
	}
	for i := range soft.Aggregation {
		if s := &soft.Aggregation[i]; s.Above == "" || s.Updates > 0 || len(s.Rejected) > 0 {
			a.printAggregation(s)
		}
	}
	if listed := uint64(len(soft.Deadlocks)); soft.DeadlockCount > listed {
		fmt.Fprintf(a.stdout, "%d deadlocks were found, of which %d are listed\n", soft.DeadlockCount, listed)
	}
	for _, d := range soft.Deadlocks {
		over := "goes on"
		if d.Over {
			over = "is over"
		}
		fmt.Fprintf(a.stdout, "DEADLOCK at priority %d, which %s: %s wait for each other\n", d.Priority, over,
			strings.Join(d.Ports, ", "))
	}
}

// printDrivers prints why NICs do not use the fastest driver, with a line for each driver and the
// first NIC's reason.
func (a *app) printDrivers(nics []live.NICState) {
	without := map[port.Driver]int{}
	for i := range nics {
		if d := nics[i].Description; d.Reason != "" {
			without[d.Driver]++
		}
	}
	for i := range nics {
		if d := nics[i].Description; d.Reason != "" && without[d.Driver] > 0 {
			fmt.Fprintf(a.stdout, "%d of %d NICs use the driver %s: %s\n", without[d.Driver], len(nics),
				d.Driver, d.Reason)
			without[d.Driver] = 0
		}
	}
}

// printTiming prints how late frames were, as measured by the kernel.
func (a *app) printTiming(t *live.Timing) {
	fmt.Fprintf(a.stdout, "arrived late by: median %v, p99 %v, worst %v, of %d frames watched, %d more "+
		"unknown; smallest time of the links in use %v, late in %d of %d seconds\n",
		t.Arrivals.P50, t.Arrivals.P99, t.Arrivals.Worst, t.Arrivals.Frames, t.Unmatched, known(t.Unit),
		t.Late, t.Windows)
	if t.First != nil {
		fmt.Fprintf(a.stdout, "first late second: from %s on, p99 %v, worst %v at %s\n",
			t.First.From.Local().Format(clockFormat), t.First.P99, t.First.Worst,
			t.First.WorstAt.Local().Format(clockFormat))
	}
}

// known formats a time, where 0 means that the time is unknown.
func known(d time.Duration) string {
	if d == 0 {
		return "not yet known"
	}
	return d.String()
}

const clockFormat = "15:04:05.000"

// printAggregation prints the aggregation jobs of a switch.
func (a *app) printAggregation(s *softswitch.AggregationState) {
	over, up := "", ""
	if s.Over {
		over = ", OVER: a participant timed out"
	}
	if s.Above != "" {
		up = fmt.Sprintf(", %d to %s and %d again", s.Partials, s.Above, s.Reasked)
	}
	fmt.Fprintf(a.stdout, "aggregation at %s: job %d, epoch %d, %d workers; %d updates added%s, %d sums, "+
		"%d wait; %d updates repeated, %d results sent again%s%s%s\n",
		s.Switch, s.Job, s.Epoch, s.Workers, s.Updates, up, s.Results, s.Waiting, s.Repeats, s.Again,
		byName("; rejected: ", s.Rejected), byName("; dropped: ", s.Dropped), over)
}

// byName formats counts in the order of their names, after a title. Without counts it returns "".
func byName(title string, counts map[string]uint64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	if len(parts) == 0 {
		return ""
	}
	return title + strings.Join(parts, ", ")
}

// eventful reports whether a port has counters other than packet counters.
func eventful(p *softswitch.PortState) bool {
	c := &p.Counters
	return p.Waiting() > 0 || p.Drops.Total()+p.Marks.Total()+p.Trims.Total()+sum(c.PausesSent[:])+sum(
		c.PausesReceived[:]) > 0
}

// depths formats the lengths of the queues that are not empty, as "3: 1200B".
func depths(p *softswitch.PortState) string {
	var parts []string
	for q, bytes := range p.Depth {
		if bytes != 0 {
			parts = append(parts, fmt.Sprintf("%d: %dB", q, bytes))
		}
	}
	return strings.Join(parts, " ")
}

func paused(p *softswitch.PortState) string {
	var parts []string
	for q, on := range p.Paused {
		if on {
			parts = append(parts, fmt.Sprint(q))
		}
	}
	return strings.Join(parts, " ")
}

func sum(values []uint64) (total uint64) {
	for _, v := range values {
		total += v
	}
	return total
}
