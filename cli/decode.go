package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"railbed/capture/display"
	"railbed/capture/follow"
	"railbed/capture/pcapng"
	"railbed/internal/printable"
	"railbed/internal/verdict"
	"railbed/testbed/supervisor"
)

// decodeFlags are the flags of "railbed decode".
type decodeFlags struct {
	filter string
	fields []string
	count  int
	// testbed is the name of a running testbed.
	testbed string
	time    string
	// capture is the only recording to read, of a run with several.
	capture string
}

// Words of --time.
const (
	relative  = "relative"
	absolute  = "absolute"
	ofMessage = "message"
)

func newDecodeCommand(a *app) *cobra.Command {
	var flags decodeFlags
	cmd := &cobra.Command{
		Use:   "decode FILE|RUN|TAP",
		Short: "Print the packets of a capture, one per line",
		Long: `Decode reads a pcapng or pcap file, also compressed by gzip, and prints a line for each
packet: its number, the seconds since the first packet, the tap, addresses and ports,
protocol, length, type and numbers of the innermost header, and the record of a switch.
FILE may be - for standard input, the results directory of a run, or a bundle of a run.
Several recordings of a run are printed as one, in the order of time, and a packet that
two of them recorded at the same tap is printed once. A name without a file is a tap of
a running testbed, as in railbed capture: its packets are printed as they arrive, until
Ctrl-C.

With -Y only packets are printed that match a filter in the language of Wireshark's
display filters. Fields have Wireshark's names; reliable datagrams have names that
begin with rd, records of switches names that begin with railbed. The fields
run.message and run.rank are the number that railbed follow gives to the
packet's message, and the rank that sent it.

With -e the values of fields are printed instead, separated by tabs. Several values of a field
are separated by commas.`,
		Example: `  railbed decode out/run.pcapng -Y 'railbed.verdict == "drop"'
  railbed decode out -Y 'rd.data.message == 7 && ip.src == 10.128.0.1' -c 20
  railbed decode out -Y 'tcp.flags.reset == 1' -e frame.number -e railbed.node -e tcp.port
  railbed decode out -Y 'run.message == 17 && railbed.port == "eth0"'
  railbed decode h0:eth0 -Y 'tcp.flags.reset == 1' -t mycluster
  railbed decode somebody.pcap -Y 'infiniband.bth.opcode in {17, 18}' -o json`,
		Args:              exactArgs(1),
		ValidArgsFunction: completeCaptures,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.decode(cmd.Context(), args[0], flags)
		},
	}
	cmd.Flags().StringVarP(&flags.filter, "filter", "Y", "", "`FILTER` that packets have to match")
	cmd.Flags().StringArrayVarP(&flags.fields, "field", "e", nil, "`FIELD` to print; may be repeated")
	cmd.Flags().IntVarP(&flags.count, "count", "c", 0, "`NUMBER` of packets to print; 0 prints all")
	cmd.Flags().StringVar(&flags.time, "time", relative,
		"`TIME` to print: relative to the first packet, absolute, or message for the start of the message")
	completeFlag(cmd, "time", oneOf(relative, absolute, ofMessage))
	captureFlag(cmd, &flags.capture)
	testbedFlag(cmd, &flags.testbed)
	completeFields(cmd, "field", "filter")
	return cmd
}

// completeFields offers the fields of packets for flags.
func completeFields(cmd *cobra.Command, flags ...string) {
	var names []string
	for i := range display.Fields {
		names = append(names, display.Fields[i].Name)
	}
	for _, flag := range flags {
		completeFlag(cmd, flag, oneOf(names...))
	}
}

func (a *app) decode(ctx context.Context, name string, flags decodeFlags) error {
	if !slices.Contains([]string{relative, absolute, ofMessage}, flags.time) {
		return usage("--time %q: want relative, absolute or message", flags.time)
	}
	filter, err := display.Compile(flags.filter)
	if err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: fmt.Errorf("filter: %w", err)}
	}
	var fields []*display.Field
	for _, name := range flags.fields {
		field := display.FieldNamed(name)
		if field == nil {
			_, err := display.Compile(name)
			return &exitError{Code: verdict.ExitUsage, Err: fmt.Errorf("field %s: %w", name, err)}
		}
		fields = append(fields, field)
	}
	source, contexts, closeSource, err := a.decodeInput(ctx, name, flags, usesContext(filter, flags.fields) ||
		flags.time == ofMessage)
	if err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	defer closeSource()
	packets := display.NewDecoder(source)
	packets.Context = contexts
	packets.Analyse()
	if packets.Keys, err = readKeys("", name); err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	for printed := 0; flags.count == 0 || printed < flags.count; {
		p, err := packets.Next()
		switch {
		case errors.Is(err, io.EOF):
			a.warnMissing(name, source.Missing())
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", name, err)
		case !filter.Match(p):
			continue
		}
		printed++
		if err := a.printPacket(p, fields, flags.time); err != nil {
			return err
		}
	}
	return nil
}

// usesContext reports whether a filter or fields need what a run knows of its packets.
func usesContext(filter *display.Filter, fields []string) bool {
	names := []string{"run.message", "run.rank"}
	return filter.Uses(names...) || slices.ContainsFunc(fields, func(f string) bool {
		return slices.Contains(names, f)
	})
}

// decodeInput opens what is decoded. With asked it first reads the run once to put its packets together to
// messages.
func (a *app) decodeInput(ctx context.Context, name string, flags decodeFlags, asked bool) (
	source pcapng.Source, contexts func(number int) display.Context, closeSource func() error, err error) {
	live := false
	if _, err := os.Stat(name); name != "-" {
		live = errors.Is(err, fs.ErrNotExist) && !strings.Contains(name, "/")
	}
	stream := io.NopCloser(a.input())
	switch {
	case live && asked:
		return nil, nil, nil, errors.New(
			"run.message, run.rank and --time message need the recording of a run that has ended")
	case name == "-" && asked:
		return nil, nil, nil, errors.New(
			"run.message, run.rank and --time message need a file: standard input can be read only once")
	case (live || name == "-") && flags.capture != "":
		return nil, nil, nil, errors.New("--capture: want a run that has ended")
	case live:
		if stream, err = liveTaps(ctx, flags.testbed, name); err != nil {
			return nil, nil, nil, err
		}
		fallthrough
	case name == "-":
		if source, err = pcapng.NewReader(stream); err != nil {
			return nil, nil, nil, errors.Join(err, stream.Close())
		}
		return source, nil, stream.Close, nil
	}
	run, err := openRun(name, flags.capture)
	if err != nil {
		return nil, nil, nil, err
	}
	if asked {
		r, err := follow.ReadRun(ctx, run)
		if err != nil {
			return nil, nil, nil, errors.Join(fmt.Errorf("%s: %w", name, err), run.Close())
		}
		contexts = r.Context
	}
	recordings, err := run.Recordings(run.Captures())
	if err != nil {
		return nil, nil, nil, errors.Join(err, run.Close())
	}
	closeSource = func() error { return errors.Join(recordings.Close(), run.Close()) }
	if source, err = recordings.Packets(); err != nil {
		return nil, nil, nil, errors.Join(err, closeSource())
	}
	return source, contexts, closeSource, nil
}

// liveTaps records a tap, or the taps of a glob, of a running testbed.
func liveTaps(ctx context.Context, testbedName, tap string) (io.ReadCloser, error) {
	tb, err := openTestbed(ctx, testbedName)
	if err != nil {
		return nil, fmt.Errorf("%s is not a file, and not a tap: %w", tap, err)
	}
	in, err := tb.Record(ctx, supervisor.CaptureRequest{At: []string{tap}})
	if err != nil {
		return nil, fmt.Errorf("%s is not a file: %w", tap, err)
	}
	return in, nil
}

// printPacket prints the line of a packet, or its fields. stamp is one of the words of --time.
func (a *app) printPacket(p *display.Packet, fields []*display.Field, stamp string) error {
	if len(fields) > 0 {
		columns := make([]string, len(fields))
		named := map[string][]string{}
		for i, f := range fields {
			texts := f.Texts(p)
			columns[i], named[f.Name] = printable.Line(strings.Join(texts, ",")), texts
		}
		if a.output == "json" {
			return a.printJSONLine(named)
		}
		_, err := fmt.Fprintln(a.stdout, strings.Join(columns, "\t"))
		return err
	}
	s := p.Summary()
	if a.output == "json" {
		return a.printJSONLine(s)
	}
	at := fmt.Sprintf("%12.6f", s.Since.Seconds())
	switch {
	case stamp == absolute:
		at = time.Unix(0, int64(s.Time)).Format("15:04:05.000000")
	case stamp == ofMessage && s.SinceMessage != nil:
		at = fmt.Sprintf("%12.6f", s.SinceMessage.Seconds())
	case stamp == ofMessage:
		at = fmt.Sprintf("%12s", "-")
	}
	tap := s.Tap
	if s.Direction != "" {
		tap += " " + s.Direction
	}
	line := fmt.Sprintf("%6d %s %-16s %s > %s %s %d %s", s.Number, at, tap, s.Source, s.Destination,
		s.Protocol, s.Length, s.Info)
	if s.Record != "" {
		line += " [" + s.Record + "]"
	}
	_, err := fmt.Fprintln(a.stdout, printable.Line(line))
	return err
}
