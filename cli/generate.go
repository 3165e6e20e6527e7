package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/plan/topology"
)

// exampleParams are small clusters to start with, for required parameters that the user omits.
var exampleParams = map[string]map[string]int{
	topology.SingleSwitch:  {"hosts": 8},
	topology.LeafSpine:     {"leaves": 2, "spines": 2, "hosts-per-leaf": 4},
	topology.FatTree:       {"k": 4},
	topology.RailOptimized: {"servers": 8, "rails": 4, "spines": 2},
	topology.HPN:           {"segments": 2, "servers": 4, "rails": 2, "aggs": 2},
	topology.Torus:         {"x": 4, "y": 4},
	topology.Dragonfly:     {"groups": 5, "switches": 4},
}

func newGenerateCommand(a *app) *cobra.Command {
	var o generateOptions
	command := &cobra.Command{
		Use:   "generate TOPOLOGY",
		Short: "Print a testbed file to start from",
		Long: `Generate prints a complete file, with comments, for one of the topologies.
Parameters that are not given take small values, so every file comes up on a
laptop. Edit it, or pipe it on. With -o json the file is the text in "file".

--with adds worked examples to the file, which passes as it is:

` + subjectHelp() + `
` + topologyHelp(),
		Example: `  railbed generate leaf-spine > cluster.yaml
  railbed generate rail-optimized --param servers=16 --param rails=8 > rails.yaml
  railbed generate rail-optimized -p servers=4 -p rails=2 --with roce,fault,checks > lossy.yaml
  railbed generate fat-tree --param k=4 | railbed graph - --format svg > fat-tree.svg`,
		Args: exactArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string,
			cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var words []string
			for _, g := range topology.Generators() {
				words = append(words, g.Name+"\t"+g.Summary)
			}
			return append(words, spec.Explicit+"\tnodes and links written out"),
				cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := generate(args[0], o)
			if err != nil {
				return &exitError{Code: verdict.ExitUsage, Err: err}
			}
			if a.output == "json" {
				return a.printJSON(map[string]string{"topology": args[0], "file": text})
			}
			_, err = fmt.Fprint(a.stdout, text)
			return err
		},
	}
	command.Flags().StringArrayVarP(&o.params, "param", "p", nil,
		"a parameter as `NAME=NUMBER`; may be repeated")
	command.Flags().StringVar(&o.name, "name", "", "`NAME` of the testbed (default: the topology's)")
	command.Flags().StringSliceVar(&o.with, "with", nil,
		"add worked examples of these `SUBJECTS`: "+strings.Join(subjectNames(), ", "))
	completeFlag(command, "param", completeParams)
	completeFlag(command, "with", completeSubjects)
	return command
}

// topologyHelp lists the topologies with their parameters.
func topologyHelp() string {
	var text strings.Builder
	text.WriteString("Topologies and their parameters:\n")
	for _, g := range topology.Generators() {
		fmt.Fprintf(&text, "\n  %s: %s\n", g.Name, g.Summary)
		for _, p := range g.Params {
			fmt.Fprintf(&text, "    %-18s%s, %s", p.Name, p.Doc, strings.TrimPrefix(p.Want(), "want "))
			if !p.Required {
				fmt.Fprintf(&text, ", default %d", p.Default)
			}
			text.WriteString("\n")
		}
	}
	text.WriteString("\n  explicit: hosts, switches and links written out")
	return text.String()
}

// completeParams completes the parameters of the topology that was typed.
func completeParams(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	g, _ := topology.Find(args[0])
	var words []string
	for _, p := range g.Params {
		words = append(words, p.Name+"=\t"+p.Doc)
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// carried is the rate that two cores can carry through soft switches and record, over all ranks, in
// Mbit/s. carriedRates are rates of links in Mbit/s.
const carried = 800

var carriedRates = []int{200, 100, 50, 20, 10}

// carriedRate returns the highest of carriedRates at which all ranks can send together.
func carriedRate(ranks int) int {
	for _, rate := range carriedRates {
		if rate*ranks <= carried {
			return rate
		}
	}
	return carriedRates[len(carriedRates)-1]
}

func parseParams(params []string) (map[string]int, error) {
	values := map[string]int{}
	for _, p := range params {
		key, text, found := strings.Cut(p, "=")
		value, err := strconv.Atoi(text)
		if !found || err != nil {
			return nil, fmt.Errorf("parameter %q: want NAME=NUMBER, as in hosts=8", p)
		}
		if _, twice := values[key]; twice {
			return nil, fmt.Errorf("parameter %q is given twice; want it once", key)
		}
		values[key] = value
	}
	return values, nil
}

func generatedFabric(name string, given map[string]int) (string, error) {
	for key, value := range exampleParams[name] {
		if _, isGiven := given[key]; !isGiven {
			given[key] = value
		}
	}
	if _, err := topology.Generate(name, given); err != nil {
		return "", fmt.Errorf("generate %s: %w", name, err)
	}
	g, _ := topology.Find(name)
	var text strings.Builder
	fmt.Fprintf(&text, "  # %s.\n  topology: %s\n  params:\n", g.Summary, name)
	for _, p := range g.Params {
		value, isGiven := given[p.Name]
		mark := ""
		if !isGiven {
			mark, value = "# ", p.Default
		}
		fmt.Fprintf(&text, "    %-20s # %s\n", fmt.Sprintf("%s%s: %d", mark, p.Name, value), p.Doc)
	}
	return text.String(), nil
}

const explicitFabric = `  # Every node, switch and link is written out. A link without port names takes
  # the next free ones: eth0, eth1, ... on hosts and p0, p1, ... on switches.
  topology: explicit
  hosts: [a, b, c, d]
  switches:
    left: {}
    right: {}
  connect:
    - a -- left
    - b:eth0 -- left:p1
    - c -- right
    - d -- right
    - left -- right
`
