package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/convert"
	"railbed/plan/spec"
)

// conversion is the JSON document of import and export with -o json.
type conversion struct {
	File string `json:"file"`
	// LeftOut lists what the other format cannot express.
	LeftOut spec.Problems `json:"left_out,omitempty"`
}

// conversionFlags are the flags of both import and export.
type conversionFlags struct {
	out    string
	strict bool
}

func (f *conversionFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.out, "out", "", "write to this `FILE` instead of standard output")
	cmd.Flags().BoolVar(&f.strict, "strict", false,
		"end with code 2, and write nothing, when something is left out or changed")
	completeFlag(cmd, "out", completeFiles)
}

func newImportCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Make a testbed file from another tool's file",
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newImportContainerlabCommand(a))
	return cmd
}

func newImportContainerlabCommand(a *app) *cobra.Command {
	var flags conversionFlags
	var o convert.Options
	cmd := &cobra.Command{
		Use:   "containerlab FILE",
		Short: "Make a testbed file from a containerlab topology",
		Long: `Import prints a testbed file, which always compiles, for a containerlab topology.

Nodes of kind linux with an image become nodes of runtime docker, and their exec
commands become steps. Bridges become bridges, and nodes of other kinds become switches
that route. With --runtime netns nodes run the host's programs and need no engine. A
link between two nodes gets a switch of its own, without delay. Links have the default
rate of testbeds, 1 Gbit/s, and the plan assigns their addresses.

Nodes of FRRouting become routers with "routing: {daemon: frr}". Import reads their
configuration for neighbours, timers and BFD. If the fabric routes, addresses that exec
commands set lead nowhere. Import leaves these commands out, and writes names of nodes
for the addresses in other commands. A command with an address that it cannot replace
follows a step that tries the address, and fails.

Paths in the topology are relative to its folder. Import rewrites the paths of binds for
the folder of --out, or for the current folder, and reads the variables of env-files.
Published ports and the healthcheck are taken over, too.

Standard error lists the omissions and changes, as file:line:column with the reason.
FILE may be - for standard input.`,
		Example: `  railbed import containerlab lab.clab.yml > lab.yaml
  railbed import containerlab lab.clab.yml --strict --out lab.yaml
  railbed import containerlab lab.clab.yml | railbed graph - --format svg > lab.svg`,
		Args:              exactArgs(1),
		ValidArgsFunction: completeFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.importContainerlab(args[0], o, flags)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&o.Name, "name", "", "`NAME` of the testbed (default: the topology's)")
	cmd.Flags().StringVar(&o.Runtime, "runtime", spec.Docker,
		"the `RUNTIME` of nodes with an image: docker, or netns, which leaves the image out")
	completeFlag(cmd, "runtime", oneOf(spec.Docker, spec.Netns))
	return cmd
}

// importContainerlab prints the testbed file for a topology.
func (a *app) importContainerlab(file string, o convert.Options, flags conversionFlags) error {
	name, text, err := a.readText(file)
	if err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	if o.Name != "" {
		if err := spec.CheckName(o.Name); err != nil {
			return &exitError{Code: verdict.ExitUsage, Err: err}
		}
	}
	if o.Runtime != spec.Docker && o.Runtime != spec.Netns {
		return usage("runtime %q: want docker or netns", o.Runtime)
	}
	folder := "."
	if file != "-" {
		folder = filepath.Dir(file)
	}
	if o.Folder, err = wayBetween(filepath.Dir(flags.out), folder); err != nil {
		return err
	}
	o.ReadFile = func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(folder, path)
		}
		return spec.ReadText(path)
	}
	testbed, left, err := convert.FromContainerlab(name, text, o)
	if err != nil {
		a.tellLeft(left) // the notes may explain the error
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	made, err := spec.Marshal(testbed)
	if err != nil {
		return err
	}
	header := fmt.Sprintf("# Made from %s by: railbed import containerlab\n", name)
	return a.printConversion(append([]byte(header), made...), left, flags)
}

// wayBetween returns the relative path from one folder to another.
func wayBetween(from, to string) (string, error) {
	from, err := filepath.Abs(from)
	if err != nil {
		return "", err
	}
	if to, err = filepath.Abs(to); err != nil {
		return "", err
	}
	return filepath.Rel(from, to)
}

func newExportCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Make another tool's file from a testbed file",
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	image := convert.DefaultImage
	add := func(use, short, long, example string,
		export func(*spec.Testbed, *plan.Plan, string) ([]byte, spec.Problems, error)) {
		var flags conversionFlags
		command := &cobra.Command{
			Use: use, Short: short, Long: long, Example: example,
			Args: exactArgs(1), ValidArgsFunction: completeFiles,
			RunE: func(_ *cobra.Command, args []string) error {
				testbed, p, err := a.load(args[0], "")
				if err != nil {
					return err
				}
				text, left, err := export(testbed, p, image)
				if err != nil {
					return err
				}
				return a.printConversion(text, left, flags)
			},
		}
		flags.add(command)
		a.settingsFlag(command)
		command.Flags().StringVar(&image, "image", convert.DefaultImage,
			"the `IMAGE` of nodes that have none; it needs ip and sh")
		cmd.AddCommand(command)
	}
	add("containerlab FILE", "Make a containerlab topology from a testbed file",
		`Export prints a containerlab topology with the testbed's nodes, switches, links,
addresses and routes. Switches that route become containers whose kernel routes.
Bridges stay bridges, which must exist on the host before containerlab runs.

Labels hold rates, delays and the like. containerlab ignores these labels, and
"railbed import containerlab" reads them, so that the plan is the same again.
Standard error has a line for each kind of omission, as file:line:column with the
number of its cases, two examples and the reason.`,
		`  railbed export containerlab cluster.yaml > cluster.clab.yml`, convert.ToContainerlab)
	add("compose FILE", "Make a Compose file from a testbed file",
		`Export prints a Compose file with the testbed's nodes as services, and networks that
join nodes whose NICs reach each other: Compose has no switches and no links.
Standard error has a line for each kind of omission, as for containerlab.`,
		`  railbed export compose cluster.yaml > compose.yaml`, convert.ToCompose)
	return cmd
}

// readText reads a file, or standard input for "-". It also returns the name of the text for
// errors.
func (a *app) readText(file string) (string, []byte, error) {
	if file == "-" {
		text, err := spec.ReadTextFrom(stdinName, a.input())
		return stdinName, text, err
	}
	text, err := spec.ReadText(file)
	return file, text, err
}

// tellLeft prints the notes of a conversion, unless JSON has them.
func (a *app) tellLeft(left spec.Problems) {
	if a.output != "json" {
		for _, p := range left {
			a.complain("", p)
		}
	}
}

// printConversion prints the converted text and the notes about omissions.
func (a *app) printConversion(text []byte, left spec.Problems, flags conversionFlags) error {
	var failed error
	if flags.strict && len(left) > 0 {
		failed = &exitError{Code: verdict.ExitUsage,
			Err: errors.New("--strict: something would be left out or changed, so nothing was written")}
	}
	if failed != nil {
		text = nil
	}
	a.tellLeft(left)
	if flags.out != "" && failed == nil {
		failed = writeFile(flags.out, 0, 0o644, func(w io.Writer) error {
			_, err := w.Write(text)
			return err
		})
	}
	switch {
	case a.output == "json":
		return errors.Join(a.printJSON(conversion{string(text), left}), failed)
	case flags.out != "" || failed != nil:
		return failed
	}
	_, err := a.stdout.Write(text)
	return err
}
