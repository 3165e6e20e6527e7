package cli

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"railbed/capture/bundle"
	"railbed/capture/follow"
	"railbed/internal/nearest"
	"railbed/plan/topology"
	"railbed/reporting"
)

// selectFlags adds the flags that select messages.
func selectFlags(cmd *cobra.Command, flags *followFlags) {
	cmd.Flags().IntVar(&flags.rank, "rank", 0, "`RANK` that sends or receives")
	cmd.Flags().StringVar(&flags.qp, "qp", "",
		"destination `QP` of RoCEv2, such as 0x12; each node numbers its own, so give --flow, too")
	cmd.Flags().StringVar(&flags.flow, "flow", "",
		"`SENDER,RECEIVER`: nodes, addresses, or addresses with ports")
	cmd.Flags().StringVar(&flags.workload, "workload", "", "`NAME` of a workload")
	captureFlag(cmd, &flags.capture)
}

// selected returns the messages that the flags select.
func (f *followFlags) selected(r *follow.Recording, run *bundle.Run) ([]int, error) {
	if f.workload != "" {
		err := oneOfRun("--workload "+f.workload, f.workload, "workload", workloadsOf(r, run))
		if err != nil {
			return nil, err
		}
	}
	s := follow.Selection{Workload: f.workload}
	if f.asked("rank") {
		s.Rank = &f.rank
	}
	if f.qp != "" {
		qp, err := strconv.ParseUint(f.qp, 0, 24)
		if err != nil {
			return nil, usage("--qp %q: want a number below 2^24", f.qp)
		}
		number := uint32(qp)
		s.QP = &number
	}
	if f.flow != "" {
		var two bool
		if s.From, s.To, two = strings.Cut(f.flow, ","); !two || s.From == "" || s.To == "" {
			return nil, usage("--flow %q: want SENDER,RECEIVER", f.flow)
		}
		for _, end := range []string{s.From, s.To} {
			if err := knownEnd(f.flow, end, endsOf(r, run)); err != nil {
				return nil, err
			}
		}
	}
	return r.Select(s), nil
}

// words are the flags that select some messages only, as on a command line.
func (f *followFlags) words() string {
	var words []string
	if f.workload != "" {
		words = append(words, "--workload", f.workload)
	}
	if f.asked("rank") {
		words = append(words, "--rank", strconv.Itoa(f.rank))
	}
	if f.qp != "" {
		words = append(words, "--qp", f.qp)
	}
	if f.flow != "" {
		words = append(words, "--flow", f.flow)
	}
	return reporting.ShellLine(words)
}

// noteSelection prints that the flags select no message, and then returns true, or that they select queue
// pairs of several nodes.
func (a *app) noteSelection(f followFlags, r *follow.Recording, selected []int) (nothing bool) {
	words := f.words()
	if a.output == "json" || words == "" {
		return false
	}
	if len(selected) == 0 {
		a.show("no recorded message matches %s", words)
		return true
	}
	if f.qp == "" {
		return false
	}
	var ends []string
	for _, i := range selected {
		to := &r.Flows[r.Messages[i].Flow]
		if end := end(to.To, nil, to.Dst.Addr().String()); !slices.Contains(ends, end) {
			ends = append(ends, end)
		}
	}
	if len(ends) > 1 {
		slices.SortFunc(ends, topology.CompareNames)
		a.show("--qp %s is a queue pair of each of %s; --flow SENDER,RECEIVER selects one", f.qp,
			shortened(ends))
		a.show("")
	}
	return false
}

// workloadsOf returns the names of a run's workloads.
func workloadsOf(r *follow.Recording, run *bundle.Run) (names []string) {
	for i := range run.Workloads {
		names = append(names, run.Workloads[i].Name)
	}
	for i := range r.Flows {
		names = append(names, r.Flows[i].Workload)
	}
	if of := run.Report; of != nil { // workloads that did not begin are in the report only
		for i := range of.Workloads {
			names = append(names, of.Workloads[i].Name)
		}
		for i := range of.Trainings {
			names = append(names, of.Trainings[i].Name)
		}
		for i := range of.Messages {
			names = append(names, of.Messages[i].Name)
		}
	}
	return distinct(names)
}

// endsOf returns the names of a run's nodes and switches.
func endsOf(r *follow.Recording, run *bundle.Run) (names []string) {
	if run.Plan != nil {
		for i := range run.Plan.Nodes {
			names = append(names, run.Plan.Nodes[i].Name)
		}
		for i := range run.Plan.Switches {
			names = append(names, run.Plan.Switches[i].Name)
		}
	}
	for i := range r.Flows {
		names = append(names, r.Flows[i].From, r.Flows[i].To)
	}
	return distinct(names)
}

// distinct sorts names, and removes empty names and repetitions.
func distinct(names []string) []string {
	slices.SortFunc(names, topology.CompareNames)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// knownEnd returns an error for an end of --flow that is no address and no name.
func knownEnd(flow, end string, names []string) error {
	if _, err := netip.ParseAddr(end); err == nil {
		return nil
	}
	if _, err := netip.ParseAddrPort(end); err == nil {
		return nil
	}
	return oneOfRun("--flow "+flow, end, "node", names)
}

// oneOfRun returns an error for a name that is not among the names of a run. kind is the kind of the names.
func oneOfRun(flag, name, kind string, names []string) error {
	if slices.Contains(names, name) {
		return nil
	}
	if near := nearest.Word(name, names); near != "" {
		return usage("%s: the run has no %s %q; did you mean %s? It has %s", flag, kind, name, near,
			shortened(names))
	}
	if len(names) == 0 {
		return usage("%s: the recording has no names of %ss; want a results directory that has them", flag,
			kind)
	}
	return usage("%s: the run has no %s %q; it has %s", flag, kind, name, shortened(names))
}
