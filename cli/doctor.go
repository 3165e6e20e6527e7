package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"railbed/internal/printable"
	"railbed/internal/verdict"
	"railbed/testbed/doctor"
)

func newDoctorCommand(a *app) *cobra.Command {
	var rootless bool
	command := &cobra.Command{
		Use:   "doctor [FEATURE...]",
		Short: "Try the features of this host, and name remedies for missing features",
		Long: `Doctor tries each feature that Railbed can use, in short-lived processes and
namespaces that leave nothing behind, and prints what depends on it and how to
get it.

It exits with 0 when "railbed up" finds all that it needs (marked with *), or
when all of the named features are there, and with 3 otherwise.`,
		Example: `  railbed doctor              # everything
  railbed doctor netem        # is it there?
  railbed doctor --rootless   # what an ordinary user has, and what not
  railbed doctor -o json | jq '.probes[] | select(.result != "ok")'`,
		ValidArgsFunction: oneOf(doctor.Features()...),
		RunE: func(command *cobra.Command, args []string) error {
			probes, err := doctor.Run(command.Context(), doctor.Options{Features: args, Rootless: rootless})
			if errors.Is(err, doctor.ErrNoSuchFeature) {
				return &exitError{Code: verdict.ExitUsage, Err: err}
			}
			if err != nil {
				return err
			}
			return a.printProbes(probes, len(args) > 0)
		},
	}
	command.Flags().BoolVar(&rootless, "rootless", false,
		"try what an ordinary user has in a user namespace (root tries it as nobody)")
	return command
}

// printProbes prints the probes and returns an error with their exit code. Features that the user
// named are all needed, whatever up needs.
func (a *app) printProbes(probes []doctor.Probe, named bool) error {
	var lacking []string
	for _, p := range probes {
		if p.Result != doctor.OK && (p.Needed || named) {
			lacking = append(lacking, p.Feature)
		}
	}
	if a.output == "json" {
		document := struct {
			Ready  bool           `json:"ready"`
			Probes []doctor.Probe `json:"probes"`
		}{len(lacking) == 0, probes}
		if err := a.printJSON(document); err != nil {
			return err
		}
	} else {
		a.printProbeTable(probes)
	}
	if len(lacking) > 0 {
		return &exitError{Code: verdict.ExitUnsupported,
			Err: fmt.Errorf("missing here: %s", strings.Join(lacking, ", "))}
	}
	return nil
}

func (a *app) printProbeTable(probes []doctor.Probe) {
	rows := a.newTable("feature", "result", "what depends on it", "found")
	for _, p := range probes {
		name := p.Feature
		if p.Needed {
			name += " *"
		}
		rows.AppendRow(table.Row{name, p.Result, p.Gates, p.Detail})
	}
	rows.Render()
	fmt.Fprintln(a.stdout, "* railbed up needs it")
	for _, p := range probes {
		if p.Result != doctor.OK {
			fmt.Fprintf(a.stdout, "\n%s is %s\n  tried:    %s\n  found:    %s\n  remedy:   %s\n", p.Feature,
				p.Result,
				printable.Line(p.Tried), printable.Line(p.Detail), printable.Line(p.Remedy))
		}
	}
}
