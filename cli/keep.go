package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"railbed/capture"
	"railbed/capture/keep"
	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

// keepFlags are the flags that choose a part of a recording.
type keepFlags struct {
	last, after       time.Duration
	lastBytes, rotate string
	start, stop       []string
}

func (f *keepFlags) add(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.last, "last", 0, "keep the packets of the last `TIME` only")
	cmd.Flags().StringVar(&f.lastBytes, "last-bytes", "",
		"keep the last packets of this `SIZE` only, such as 64MiB")
	cmd.Flags().StringVar(&f.rotate, "rotate", "",
		"begin another file after this `SIZE`: run.pcapng, run-2.pcapng, run-3.pcapng\n"+
			"(other commands read them all, given the first)")
	cmd.Flags().StringArrayVar(&f.start, "start", nil, "`EVENT` with which to start: a filter, "+
		"100th FILTER, pause > TIME [at TAP],\nor counter SERIES > NUMBER (any of them if repeated)")
	cmd.Flags().StringArrayVar(&f.stop, "stop", nil, "`EVENT` with which to stop")
	cmd.Flags().DurationVar(&f.after, "after", 0, "go on for this `TIME` after the event of --stop")
	completeFields(cmd, "start", "stop")
}

// options returns the part to keep, or nil for everything.
func (f *keepFlags) options() (*keep.Options, error) {
	if reflect.ValueOf(*f).IsZero() {
		return nil, nil
	}
	o := &keep.Options{Last: f.last, After: f.after}
	for _, size := range []struct {
		flag, text string
		into       *int64
	}{{"last-bytes", f.lastBytes, &o.LastBytes}, {"rotate", f.rotate, &o.Rotate}} {
		if size.text == "" {
			continue
		}
		bytes, err := units.ParseBytes(size.text)
		if err != nil {
			return nil, usage("--%s: %w", size.flag, err)
		}
		*size.into = int64(bytes)
	}
	var err error
	if o.Start, err = keep.ParseTriggers(f.start); err != nil {
		return nil, usage("--start: %w", err)
	}
	if o.Stop, err = keep.ParseTriggers(f.stop); err != nil {
		return nil, usage("--stop: %w", err)
	}
	switch {
	case f.rotate != "" && (o.Rotate < int64(spec.MinRotate) || o.Rotate > int64(spec.MaxRotate)):
		return nil, usage("--rotate %s: want %s to %s", f.rotate, spec.MinRotate, spec.MaxRotate)
	case f.after > 0 && o.Stop == nil:
		return nil, usage("--after: want --stop, too")
	case f.last < 0 || f.after < 0:
		return nil, usage("--last and --after: want a time above 0")
	}
	return o, nil
}

// captureKeep records, and keeps a part.
func (a *app) captureKeep(ctx context.Context, tb *testbed.Testbed, request supervisor.CaptureRequest,
	path string, o keep.Options) error {
	if path == "-" {
		return usage("capture: with --last, --last-bytes, --rotate, --start or --stop want -w FILE")
	}
	in, err := tb.Record(ctx, request)
	if err != nil {
		return err
	}
	o.Stopped, o.Counters = in.End, func(series string) (float64, error) { return tb.Counter(ctx, series) }
	fmt.Fprintln(a.stderr, "recording; Ctrl-C ends it")
	kept, err := keep.Copy(in, func(number int) (io.WriteCloser, error) {
		return &lateFile{path: spec.CapturePart(path, number)}, nil
	}, o)
	if err := errors.Join(err, in.Close()); err != nil {
		return err
	}
	stats, err := in.Stats()
	if err != nil {
		return err
	}
	return a.printKeptPackets(kept, stats, o)
}

func (a *app) printKeptPackets(kept keep.Kept, stats capture.Stats, o keep.Options) error {
	if a.output == "json" {
		if err := a.printJSON(struct {
			keep.Kept
			Capture capture.Stats `json:"capture"`
		}{kept, stats}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.stderr, "%d packets kept in %s, %d left out, %d dropped\n", kept.Packets,
			plural.Count(kept.Files, "files"), kept.LeftOut, stats.Dropped())
	}
	switch {
	case o.Start != nil && !kept.Started:
		return &exitError{Code: verdict.ExitInconclusive,
			Err: fmt.Errorf("no event of --start occurred: %s", o.Start)}
	case o.Stop != nil && !kept.Stopped:
		return &exitError{Code: verdict.ExitInconclusive,
			Err: fmt.Errorf("no event of --stop occurred: %s", o.Stop)}
	case stats.Dropped() > 0:
		return &exitError{Code: verdict.ExitInconclusive, Err: errLossy}
	}
	return nil
}
