package cli

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"railbed/capture/bundle"
	"railbed/capture/display"
	"railbed/capture/follow"
	"railbed/capture/pcapng"
	"railbed/capture/trace"
	"railbed/internal/plural"
	"railbed/internal/verdict"
)

// traceFlags are the flags of "railbed trace".
type traceFlags struct {
	file, filter, capture string
	message               int
	from, to              time.Duration
}

// traceReport is the JSON document of "railbed trace".
type traceReport struct {
	File string `json:"file"`
	trace.Written
}

// traceSuffix ends the default name of a trace.
const traceSuffix = ".perfetto-trace"

func newTraceCommand(a *app) *cobra.Command {
	var flags traceFlags
	cmd := &cobra.Command{
		Use:   "trace RUN",
		Short: "Write a run's packets as a trace for Perfetto or Chrome",
		Long: `Trace writes what a run's recording shows as a trace, to look at on
https://ui.perfetto.dev, which reads the file without sending it anywhere. A name that ends
with .json gives Chrome's JSON form.

Nodes and switches are processes, and their ports threads. A port has slices for the frames
that it sends, and above them for the frames that wait. Counters show the depth of queues and
the rate. Nodes have slices for messages, for the steps of their ranks in the operations of
the report, and for the tasks of training jobs. Arrows follow the path of each packet.`,
		Example: `  railbed trace out                                   # writes out.perfetto-trace
  railbed trace out --from 200ms --to 210ms --out out.json
  railbed trace out --message 17
  railbed trace out -Y 'ip.src == 10.128.0.1'`,
		Args:              exactArgs(1),
		ValidArgsFunction: completeCaptures,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.traceRun(cmd.Context(), args[0], flags)
		},
	}
	outFlag(cmd, &flags.file, "", "file", "`FILE` to write; default: the run's name and "+traceSuffix)
	cmd.Flags().StringVarP(&flags.filter, "filter", "Y", "",
		"`FILTER` that at least one record of a packet has to match")
	cmd.Flags().IntVar(&flags.message, "message", 0, "`NUMBER` of the only message to show")
	cmd.Flags().DurationVar(&flags.from, "from", 0, "`TIME` of the first packets, from the first record")
	cmd.Flags().DurationVar(&flags.to, "to", 0, "`TIME` before which the last packets start; 0 is the end")
	captureFlag(cmd, &flags.capture)
	completeFlag(cmd, "out", completeAnyFile)
	completeFields(cmd, "filter")
	return cmd
}

func (a *app) traceRun(ctx context.Context, name string, flags traceFlags) error {
	filter, err := display.Compile(flags.filter)
	if err != nil {
		return usage("filter: %w", err)
	}
	r, run, err := a.recording(ctx, name, flags.capture)
	if err != nil {
		return err
	}
	defer run.Close()
	o := trace.Options{From: flags.from, To: flags.to, Steps: append(stepsOf(run), stepsOfRanks(run)...)}
	if flags.filter != "" {
		matches, err := matching(run, r, filter)
		if err != nil {
			return &exitError{Code: verdict.ExitUsage, Err: err}
		}
		o.Packet = func(packet int) bool { return matches[packet] }
	}
	if flags.message != 0 {
		if flags.message < 1 || flags.message > len(r.Messages) {
			return usage("--message %d: %s has %s", flags.message, name,
				plural.Count(len(r.Messages), "messages"))
		}
		asked := o.Packet
		o.Packet = func(packet int) bool {
			return r.Packets[packet].Message == flags.message-1 && (asked == nil || asked(packet))
		}
	}
	if flags.file == "" {
		flags.file = strings.TrimSuffix(filepath.Clean(name), filepath.Ext(name)) + traceSuffix
	}
	return a.writeTrace(r, flags.file, o)
}

func (a *app) writeTrace(r *follow.Recording, name string, o trace.Options) error {
	write := trace.Perfetto
	if filepath.Ext(name) == ".json" {
		write = trace.Chrome
	}
	var written trace.Written
	if err := writeFile(name, 0, 0o644, func(w io.Writer) (err error) {
		written, err = write(w, r, o)
		return err
	}); err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(traceReport{name, written})
	}
	a.show("%s: %d packets, %d slices and %d events", name, written.Packets, written.Slices, written.Events)
	return nil
}

// matching returns the packets of which some record matches a filter.
func matching(run *bundle.Run, r *follow.Recording, filter *display.Filter) (map[int]bool, error) {
	recordings, err := run.Recordings(run.Captures())
	if err != nil {
		return nil, err
	}
	defer recordings.Close()
	source, err := recordings.Packets()
	if err != nil {
		return nil, err
	}
	matches := map[int]bool{}
	packets := display.NewDecoder(source)
	packets.Context = r.Context
	packets.Analyse()
	if packets.Keys, err = run.Keys(); err != nil {
		return nil, err
	}
	for {
		p, err := packets.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, pcapng.ErrTruncated) {
			return matches, nil
		}
		if err != nil {
			return nil, err
		}
		if filter.Match(p) {
			matches[r.PacketOf(p.Number)] = true
		}
	}
}

// stepsOf returns the steps of a run. A run whose workloads do not tell the time has none.
func stepsOf(run *bundle.Run) (steps []trace.Step) {
	if run.Report == nil {
		return nil
	}
	began := int64(0) // of the first step
	dilation := float64(max(run.Report.Dilation, 1))
	real := func(seconds float64) int64 { return int64(seconds * 1e9 * dilation) }
	for _, step := range run.Report.Steps {
		for i := range run.Workloads {
			if w := &run.Workloads[i]; began == 0 && w.From != 0 && step.Name == "workload "+w.Name {
				began = w.From - real(step.Start)
			}
		}
	}
	if began == 0 {
		return nil
	}
	for _, step := range run.Report.Steps {
		steps = append(steps, trace.Step{Name: step.Name, From: began + real(step.Start),
			To: began + real(step.End)})
	}
	return steps
}
