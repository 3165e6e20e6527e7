package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"railbed/capture"
	"railbed/capture/keep"
	"railbed/internal/input"
	"railbed/internal/verdict"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

func newCaptureCommand(a *app) *cobra.Command {
	var name, path, events string
	var request supervisor.CaptureRequest
	var part keepFlags
	cmd := &cobra.Command{
		Use:   "capture [TAP]...",
		Short: "Record packets of a running testbed into one pcapng",
		Long: `Record packets until Ctrl-C. Every port is a tap. A packet is recorded at each tap
that it passes, with the same id at all of them. TAP selects taps: all (the default),
nics, switches, a node's or switch's name, NODE:PORT, or a glob of these. With -w -
the pcapng goes to standard output while it is recorded, for Wireshark.

To keep a part of the recording, give --last or --last-bytes (its end), --rotate
(several files), or --start and --stop (the time between two events). With --start,
--last is the time to keep before that event. An event is one of
  FILTER                    the first packet that a filter of railbed decode matches
  100th FILTER              the hundredth such packet
  pause > 10ms [at TAP]     a port that flow control has stopped for longer
  counter SERIES > NUMBER   a counter of the testbed's /metrics that grew by more
With several --start, or several --stop, the first of the events counts.

The packet comment records marks, trims, pauses and drops of soft switches, with the
reason and the queue's depth. With --events all each packet that enters a queue is
recorded as well, without a direction.

With -o json the counts of each tap are printed as JSON at the end: on standard
output, or with -w - as the last line on standard error. The exit code is 5 when
packets were dropped.`,
		Example: `  railbed capture -w all.pcapng
  railbed capture h0:eth0 'leaf*' --filter 'tcp port 18600' -w run.pcapng
  railbed capture -w - | wireshark -k -i -
  railbed capture -w drop.pcapng --last 2s --stop 'railbed.verdict == "drop"' --after 100ms
  railbed capture -w storm.pcapng --last 1s --stop 'pause > 10ms' --stop '100th railbed.verdict == "drop"'`,
		ValidArgsFunction: ofTestbed(&name, tapNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.At = args
			if len(args) == 0 {
				request.At = []string{"all"}
			}
			if request.Events = events != ""; request.Events && events != "all" {
				return usage("--events %q: want all", events)
			}
			kept, err := part.options()
			if err != nil {
				return err
			}
			tb, err := openTestbed(cmd.Context(), name)
			if err != nil {
				return err
			}
			return a.capture(cmd.Context(), tb, request, path, kept)
		},
	}
	outFlag(cmd, &path, "w", "write", "`FILE` to write, or - for standard output (required)")
	cmd.Flags().StringVarP(&request.Filter, "filter", "f", "",
		"`EXPRESSION` of pcap-filter(7), as tcpdump takes it")
	cmd.Flags().IntVarP(&request.SnapLen, "snaplen", "s", 0, "`BYTES` kept of each packet; 0 is all")
	cmd.Flags().Int64Var(&request.Limit, "limit", 0,
		"write no packet after this many `BYTES`, and count the packets left out; 0 is no limit")
	cmd.Flags().StringVar(&events, "events", "",
		"all: also record packets that enter queues of soft switches")
	completeFlag(cmd, "out", completeCaptures)
	completeFlag(cmd, "events", oneOf("all"))
	part.add(cmd)
	testbedFlag(cmd, &name)
	return cmd
}

var errLossy = errors.New("the recording lost packets; record fewer taps or a smaller snaplen")

// capture records into a file, or into several. kept says which part to keep, and is nil for everything.
func (a *app) capture(ctx context.Context, tb *testbed.Testbed, request supervisor.CaptureRequest,
	path string, kept *keep.Options) error {
	var out io.Writer = a.rawStdout
	var file lateFile
	switch {
	case path == "":
		return usage("capture: no file named; give -w FILE, or -w - for standard output")
	case path == "-" && isTerminal(a.rawStdout):
		return usage("capture: standard output is a terminal; pipe it into wireshark -k -i - or give -w FILE")
	case kept != nil:
		return a.captureKeep(ctx, tb, request, path, *kept)
	case path != "-":
		file.path = path
		out = &file
	}
	recording, err := tb.Capture(ctx, request, out)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stderr, "recording; Ctrl-C ends it")
	<-recording.Done()
	stats, err := recording.Stop()
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := a.printCaptured(stats, path == "-"); err != nil {
		return err
	}
	if stats.Dropped() > 0 {
		return &exitError{Code: verdict.ExitInconclusive, Err: errLossy}
	}
	return nil
}

// printCaptured prints the statistics of a capture. taken reports whether stdout carries the
// packets.
func (a *app) printCaptured(stats capture.Stats, taken bool) error {
	switch {
	case a.output != "json":
		fmt.Fprintf(a.stderr, "%d packets recorded, %d dropped, %d over the limit\n", stats.Written(),
			stats.Dropped(), stats.Limited())
		return nil
	case taken:
		return json.NewEncoder(a.stderr).Encode(stats)
	}
	return a.printJSON(stats)
}

// lateFile creates the file with the first byte. A capture that cannot start therefore leaves an
// earlier file unchanged. A new file belongs to the invoking user, and an existing file keeps its
// owner.
type lateFile struct {
	path string
	file *os.File
}

// Write implements io.Writer.
func (l *lateFile) Write(p []byte) (int, error) {
	if l.file == nil {
		if err := l.open(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(p)
	if err != nil {
		err = fmt.Errorf("%w; the recording is not complete", err)
	}
	return n, err
}

func (l *lateFile) open() error {
	uid, gid := testbed.InvokingUser()
	file, made, err := input.Create(l.path, 0, 0o644, uid)
	if err != nil {
		return err
	}
	l.file = file
	if made {
		err = file.Chown(uid, gid)
	}
	return err
}

// Close closes the file, if there is one.
func (l *lateFile) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
