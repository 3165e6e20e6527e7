package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"railbed/capture/display"
	"railbed/capture/pcapng"
	"railbed/internal/input"
	"railbed/internal/printable"
	"railbed/internal/verdict"
)

// decodeFlags are the flags of "railbed decode".
type decodeFlags struct {
	filter string
	fields []string
	count  int
}

func newDecodeCommand(a *app) *cobra.Command {
	var flags decodeFlags
	cmd := &cobra.Command{
		Use:   "decode FILE",
		Short: "Print the packets of a capture, one in a line",
		Long: `Decode reads a pcapng or pcap file and prints a line for each packet: its number, the
seconds since the first packet, the tap, addresses and ports, protocol, length, the
header that decides what it is for, and what a switch recorded. FILE may be - for
standard input, or the results directory of a run.

With -Y only the packets print that a filter selects, in the language of Wireshark's
display filters. Fields have Wireshark's names; reliable datagrams have names that
begin with rd, records of switches names that begin with railbed.

With -e the values of fields print instead, separated by tabs. Several values of a field
are separated by commas.`,
		Example: `  railbed decode out/run.pcapng -Y 'railbed.verdict == "drop"'
  railbed decode out -Y 'rd.data.message == 7 && ip.src == 10.128.0.1' -c 20
  railbed decode out -Y 'tcp.flags.reset == 1' -e frame.number -e railbed.node -e tcp.port
  railbed decode somebody.pcap -Y 'infiniband.bth.opcode in {17, 18}' -o json`,
		Args:              exactArgs(1),
		ValidArgsFunction: completeCaptures,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.decode(args[0], flags)
		},
	}
	cmd.Flags().StringVarP(&flags.filter, "filter", "Y", "", "`FILTER` that packets have to match")
	cmd.Flags().StringArrayVarP(&flags.fields, "field", "e", nil, "`FIELD` to print; may be repeated")
	cmd.Flags().IntVarP(&flags.count, "count", "c", 0, "`NUMBER` of packets to print; 0 prints all")
	var names []string
	for i := range display.Fields {
		names = append(names, display.Fields[i].Name)
	}
	completeFlag(cmd, "field", oneOf(names...))
	completeFlag(cmd, "filter", oneOf(names...))
	return cmd
}

func (a *app) decode(name string, flags decodeFlags) error {
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
	var in io.Reader = a.stdin
	if name != "-" {
		file, err := input.Open(captureOf(name))
		if err != nil {
			return &exitError{Code: verdict.ExitUsage, Err: err}
		}
		defer file.Close()
		in = file
	}
	source, err := pcapng.NewReader(in)
	if err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	packets := display.NewDecoder(source)
	for printed := 0; flags.count == 0 || printed < flags.count; {
		p, err := packets.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", name, err)
		case !filter.Match(p):
			continue
		}
		printed++
		if err := a.printPacket(p, fields); err != nil {
			return err
		}
	}
	return nil
}

// captureOf returns the path of a capture: for a results directory, its first capture.
func captureOf(name string) string {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		if found, _ := filepath.Glob(filepath.Join(name, "*.pcapng")); len(found) > 0 {
			return found[0]
		}
	}
	return name
}

func (a *app) printPacket(p *display.Packet, fields []*display.Field) error {
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
	tap := s.Tap
	if s.Direction != "" {
		tap += " " + s.Direction
	}
	line := fmt.Sprintf("%6d %12.6f %-16s %s > %s %s %d %s", s.Number, s.Since.Seconds(), tap, s.Source,
		s.Destination, s.Protocol, s.Length, s.Info)
	if s.Record != "" {
		line += " [" + s.Record + "]"
	}
	_, err := fmt.Fprintln(a.stdout, printable.Line(line))
	return err
}
