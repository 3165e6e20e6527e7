package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"railbed/capture/bundle"
	"railbed/capture/follow"
	"railbed/capture/report"
	"railbed/internal/plural"
	"railbed/internal/units"
)

// whyReport is the JSON document of "railbed why".
type whyReport struct {
	// Fidelity is the verdict on the emulation, "" if the run does not tell it, and Reasons are why it is
	// not faithful.
	Fidelity string   `json:"fidelity,omitempty"`
	Reasons  []string `json:"reasons,omitempty"`
	// Nodes are those whose kernels dropped packets that had arrived, or whose programs a limit of CPUs held
	// back.
	Nodes []report.NodeKernel `json:"nodes,omitempty"`
	// Denied are those whose programs had no processor for more than half of the time that they wanted one.
	Denied []report.NodeKernel `json:"denied,omitempty"`
	Lost   uint64              `json:"lost_by_the_capture"`
	// Missing names files of the recording that are missing.
	Missing []string `json:"missing,omitempty"`
	// Truncated is set if the end of the recording is missing.
	Truncated bool `json:"truncated,omitempty"`
	// LeftOut counts the records at the end of the recording that the answers do not take into account, as
	// they do not fit into memory.
	LeftOut int             `json:"left_out,omitempty"`
	Answers []follow.Answer `json:"answers"`
	// Operations are the slowest operation of each workload.
	Operations []slowOperation `json:"operations,omitempty"`

	lacking *report.Contention
}

func newWhyCommand(a *app) *cobra.Command {
	var flags followFlags
	cmd := &cobra.Command{
		Use:   "why RUN",
		Short: "Say why messages of a run were slow or did not arrive",
		Long: `Why compares the messages of each workload with the fastest tenth of the same length. It
names the causes of the others' delays, and their places: the switch that dropped packets, the
link that changed their bytes, the queue and the senders that filled it, the port that sent
less than its link's rate, the port that flow control stopped and the port that first asked
for it, the receiver whose TCP window was full, the sender that sent nothing and the marks
that slowed it down, a node's limit of CPUs, or the emulator, which was late. Each cause has
the message that it delayed most, and the commands that show it.

Faults and changes that the file asked for come first, then other causes at a place, then
circumstances of all messages. Within these, causes for which messages did not arrive come
first. The order of the others is by the sum of the squares of the delays, so that few long
delays come before many short delays of the same sum. Each cause has its share of all delays.`,
		Example: `  railbed why out
  railbed why out --workload ar
  railbed why out -o json | jq '.answers[].causes[0]'`,
		Args:              exactArgs(1),
		ValidArgsFunction: completeCaptures,
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.asked = cmd.Flags().Changed
			return a.why(cmd.Context(), args[0], flags)
		},
	}
	selectFlags(cmd, &flags)
	return cmd
}

func (a *app) why(ctx context.Context, name string, flags followFlags) error {
	r, run, err := a.recording(ctx, name, flags.capture)
	if err != nil {
		return err
	}
	defer run.Close()
	selected, err := flags.selected(r, run)
	if err != nil {
		return err
	}
	if a.noteSelection(flags, r, selected) {
		return nil
	}
	told := newWhyReport(run, r)
	told.Answers = append(told.Answers, r.Why(selected)...)
	told.Operations = slowOperations(run, r, selected)
	if a.output == "json" {
		return a.printJSON(told)
	}
	a.printWhy(flags.again(name), told)
	return nil
}

// throttled is from how many seconds on the answer says that a node's limit of CPUs held its programs back.
const throttled = 0.1

func newWhyReport(run *bundle.Run, r *follow.Recording) *whyReport {
	told := &whyReport{Lost: r.Lost, Missing: r.Missing, Truncated: r.Truncated, LeftOut: r.LeftOut,
		Answers: []follow.Answer{}}
	if run.Report != nil && run.Report.Fidelity != nil {
		told.Fidelity = string(run.Report.Fidelity.Verdict)
		if told.Fidelity != report.Faithful {
			told.Reasons = run.Report.Fidelity.Reasons
		}
		told.lacking = run.Report.Contention()
		for _, n := range run.Report.Fidelity.Nodes {
			if n.Lost() > 0 || n.Throttled > throttled {
				told.Nodes = append(told.Nodes, n)
			}
			if n.Denied() > 0.5 {
				told.Denied = append(told.Denied, n)
			}
		}
	}
	return told
}

// printWhy prints an answer. run are the words of the run in command lines.
func (a *app) printWhy(run string, told *whyReport) {
	if len(told.Reasons) > 0 {
		a.show("The emulation was %s, so times may be the host's and not the fabric's:", told.Fidelity)
		for _, reason := range told.Reasons {
			a.show("  %s", reason)
		}
		fmt.Fprintln(a.stdout)
	}
	if told.lacking != nil {
		a.show("%s", told.lacking)
	}
	for _, n := range told.Nodes {
		if n.Throttled > throttled {
			a.show("%s: the limit of CPUs held its programs back for %s", n.Node,
				units.Took(time.Duration(n.Throttled*1e9)))
		}
		if n.Lost() == 0 {
			continue
		}
		a.show("%s: its kernel dropped %s: %s", n.Node, plural.Count(n.Dropped(), "packets"), n.Reasons())
	}
	if len(told.Answers) == 0 {
		a.show("no such message was recorded")
	}
	for i := range told.Answers {
		a.printAnswer(run, &told.Answers[i])
	}
	for i := range told.Operations {
		a.printOperation(&told.Operations[i])
	}
}

func (a *app) printAnswer(run string, answer *follow.Answer) {
	of := answer.Protocol
	if answer.Workload != "" {
		of = answer.Workload + ", " + of
	}
	a.show("%s: %d messages; the fastest tenth took up to %s, the slowest %s", of, answer.Messages,
		units.Took(answer.Fast), units.Took(answer.Most))
	if answer.Unfinished > 0 {
		text := "%d did not arrive"
		if answer.Protocol == "quic" {
			text = "each is a datagram; %d did not arrive, and QUIC sent their contents in other datagrams"
		}
		a.show(text, answer.Unfinished)
	}
	if answer.Again > 0 {
		a.show("%s sent again, of which %d had arrived before", plural.Count(answer.Again, "packets"),
			answer.Needless)
	}
	if len(answer.Causes) == 0 {
		a.show("no message was slow")
	}
	if !slices.IsSortedFunc(answer.Causes, func(a, b follow.Cause) int {
		return cmp.Or(cmp.Compare(b.Unfinished, a.Unfinished), cmp.Compare(b.Share, a.Share))
	}) {
		a.show("(what the file asked for comes first, and circumstances of all messages last; causes of " +
			"few long delays come before causes of many short delays)")
	}
	for i := range answer.Causes {
		c := &answer.Causes[i]
		effect := plural.Text("%.0f%% of the time beyond the fastest, in %d messages", c.Share*100,
			c.Messages)
		switch {
		case c.Unfinished > 0:
			effect = plural.Count(c.Unfinished, "messages") + " did not arrive"
		case c.Extra == 0:
			effect = "it made no message late"
		}
		a.show("%3d. %s: %s", i+1, shortened(c.Where), c.What)
		a.show("     %s; started between %s and %s", effect, units.Took(c.From), units.Took(c.To))
		if c.Most > 0 {
			a.show("     delayed most: message %d, by %s", c.Worst, units.Took(c.Most))
		}
		a.show("     railbed follow %s --message %d", run, c.Worst)
		if c.File != "" {
			a.show("     Wireshark: %s, frame.number == %d", c.File, c.Frame)
			continue
		}
		a.show("     Wireshark: frame.number == %d", c.Record)
	}
	fmt.Fprintln(a.stdout)
}
