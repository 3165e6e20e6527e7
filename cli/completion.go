package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
)

// completion returns words for the typed text, each followed by a tab and an explanation if it has
// one.
type completion = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// completeFlag sets the completion of a flag's values.
func completeFlag(cmd *cobra.Command, flag string, c completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, c); err != nil {
		panic(err) // the flag does not exist, or has a completion already
	}
}

// oneOf completes words, and no files.
func oneOf(words ...string) completion {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

// filesOf completes files with these extensions, and directories.
func filesOf(extensions ...string) completion {
	return cobra.FixedCompletions(extensions, cobra.ShellCompDirectiveFilterFileExt)
}

// Completions of files by their kind.
var (
	completeFiles    = filesOf("yaml", "yml")
	completeCaptures = filesOf("pcapng", "pcap")
	completeJSON     = filesOf("json")
	completeAnyFile  = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	completeDirs     = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
)

func completeTestbeds(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names, err := testbed.Testbeds()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// ofTestbed completes words of the plan of a running testbed. name points to the flag that selects
// the testbed.
func ofTestbed(name *string, words func(*plan.Plan) []string) completion {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		tb, err := openTestbed(cmd.Context(), *name)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return words(tb.Plan()), cobra.ShellCompDirectiveNoFileComp
	}
}

// inTurn completes each argument by its own completion, and further arguments by the last one.
func inTurn(of ...completion) completion {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		return of[min(len(args), len(of)-1)](cmd, args, typed)
	}
}

func nodeNames(p *plan.Plan) (names []string) {
	for _, n := range p.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// nodesAndNICs returns the names of nodes, each followed by its NICs as NODE:NIC.
func nodesAndNICs(p *plan.Plan) (names []string) {
	for _, n := range p.Nodes {
		names = append(names, n.Name)
		for _, i := range n.NICs {
			names = append(names, n.Name+":"+i.Name)
		}
	}
	return names
}

// programNames returns the nodes in which programs run: nodes, and routers with daemons.
func programNames(p *plan.Plan) []string {
	names := nodeNames(p)
	for _, sw := range p.Switches {
		if sw.Routing != nil {
			names = append(names, sw.Name)
		}
	}
	return names
}

func linkNames(p *plan.Plan) (names []string) {
	for _, l := range p.Links {
		names = append(names, l.Name)
	}
	return names
}

// faultPlaces returns the words that railbed fault accepts as places, except globs.
func faultPlaces(p *plan.Plan) []string { return append(linkNames(p), tapNames(p)...) }

// tapNames returns the words that railbed capture accepts as taps, except globs.
func tapNames(p *plan.Plan) []string {
	names := append(slices.Clone(spec.PortWords), nodesAndNICs(p)...)
	for _, s := range p.Switches {
		names = append(names, s.Name)
		for _, i := range s.Ports {
			names = append(names, s.Name+":"+i.Name)
		}
	}
	return names
}
