package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/scenarios/runner"
)

// stdinName is the name of standard input in errors.
const stdinName = "stdin"

// readSpec reads a testbed from a file, or from standard input for "-".
func (a *app) readSpec(file string) (*spec.Testbed, error) {
	if file == "-" {
		return spec.Read(stdinName, a.stdin)
	}
	return spec.Load(file)
}

// readPlan reads and compiles a testbed. An error in the file has the exit code 2.
func (a *app) readPlan(file string) (*plan.Plan, error) {
	_, p, err := a.load(file, "")
	return p, err
}

// load reads and compiles a testbed, under another name than the file's if one is given. An error
// in either has the exit code 2.
func (a *app) load(file, name string) (*spec.Testbed, *plan.Plan, error) {
	testbed, err := a.readSpec(file)
	if err == nil && name != "" {
		err = spec.CheckName(name)
		testbed.Name = name
	}
	var p *plan.Plan
	if err == nil {
		p, err = plan.Compile(testbed)
	}
	if err != nil {
		return nil, nil, &exitError{Code: verdict.ExitUsage, Err: err}
	}
	return testbed, p, nil
}

func newValidateCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Print the errors of testbed files, with their positions",
		Long: `Validate reads each file, compiles its plan and prints every problem as

  file:line:column: what is wrong; what would be right

Validate reads and proves the algorithms, traces, matrices, sizes, requests and rates
that steps name, as run does. A check that can never pass with this fabric and capture
is a problem. A check that will probably not pass is a warning, printed in the same
way. So is a missing archive or folder of a container. Warnings leave the exit code 0.
Validate changes nothing. FILE may be - for standard input; names are then relative
to the current directory. The exit code is 2 if any file has a problem.`,
		Example: `  railbed validate scenarios/*.yaml
  railbed generate fat-tree --param k=4 | railbed validate -
  railbed validate -o json cluster.yaml | jq '.[].problems'`,
		Args:              rangeArgs(1, -1),
		ValidArgsFunction: completeFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.validate(args)
		},
	}
}

// validation is the result of validate for one file.
type validation struct {
	File     string        `json:"file"`
	OK       bool          `json:"ok"`
	Name     string        `json:"name,omitempty"`
	Nodes    int           `json:"nodes"`
	Switches int           `json:"switches"`
	Links    int           `json:"links"`
	Ranks    int           `json:"ranks"`
	Problems spec.Problems `json:"problems,omitempty"`
	// Warnings list checks that will probably not pass.
	Warnings spec.Problems `json:"warnings,omitempty"`
}

func (a *app) validate(files []string) error {
	var all []validation
	bad := false
	for _, file := range files {
		v, err := a.validateFile(file)
		if err != nil {
			return err
		}
		bad = bad || !v.OK
		all = append(all, v)
		if a.output != "json" {
			a.printValidation(v)
		}
	}
	if a.output == "json" {
		if err := a.printJSON(all); err != nil {
			return err
		}
	}
	if bad {
		return &exitError{Code: verdict.ExitUsage}
	}
	return nil
}

func (a *app) validateFile(file string) (validation, error) {
	v := validation{File: file}
	testbed, err := a.readSpec(file)
	var p *plan.Plan
	if err == nil {
		p, err = plan.Compile(testbed)
	}
	if err == nil {
		v.Warnings, err = runner.Validate(runner.Options{File: testbed, Plan: p, Path: file})
	}
	if err != nil {
		if !errors.As(err, &v.Problems) {
			return v, err
		}
		return v, nil
	}
	v.OK, v.Name = true, p.Name
	v.Nodes, v.Switches, v.Links, v.Ranks = len(p.Nodes), len(p.Switches), len(p.Links), len(p.Ranks)
	return v, nil
}

// warn prints warnings about checks that will probably not pass.
func (a *app) warn(warnings spec.Problems) {
	for _, w := range warnings {
		w.What = "warning: " + w.What
		fmt.Fprintln(a.stderr, w.Error())
	}
}

func (a *app) printValidation(v validation) {
	a.warn(v.Warnings)
	if !v.OK {
		fmt.Fprintln(a.stderr, v.Problems.Error())
		return
	}
	a.show("%s: ok, %s, %s, %s", v.File, count(v.Nodes, "node"), count(v.Switches, "switch"),
		count(v.Links, "link"))
}

// count returns text such as "1 node", "2 nodes" or "2 switches".
func count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case noun == "switch":
		return fmt.Sprintf("%d switches", n)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
