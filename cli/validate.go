package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"railbed/internal/plural"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/scenarios/runner"
	"railbed/scenarios/runner/suite"
)

// stdinName is the name of standard input in errors.
const stdinName = "stdin"

// readSpec reads the only testbed of a file, or of standard input for "-".
func (a *app) readSpec(file string) (*spec.Testbed, error) {
	f, err := a.readSetFile(file)
	if err != nil {
		return nil, err
	}
	return f.DecodeOnly()
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
	var p *plan.Plan
	if err == nil {
		p, err = compileAs(testbed, name)
	}
	if err == nil {
		err = runner.UnknownFeatures(testbed).Err()
	}
	if err != nil {
		return nil, nil, &exitError{Code: verdict.ExitUsage, Err: err}
	}
	return testbed, p, nil
}

// compileAs compiles a testbed, under another name than the file's if one is given.
func compileAs(testbed *spec.Testbed, name string) (*plan.Plan, error) {
	if name != "" {
		if err := spec.CheckName(name); err != nil {
			return nil, err
		}
		testbed.Name = name
	}
	return plan.Compile(testbed)
}

func newValidateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR...",
		Short: "Print the errors of testbed files, with their positions",
		Long: `Validate reads each file, compiles its plan and prints every problem as

  file:line:column: what is wrong; what would be right

Validate reads and proves the algorithms, traces, matrices, sizes, requests and rates
that steps name, as run does. A check that can never pass with this fabric and capture
is a problem. A check that will probably not pass is a warning, printed in the same
way. So is a missing archive or folder of a container, and a ring that crosses rails
where another order or algorithm would not. Warnings leave the exit code 0.
Of a file with a matrix, each cell is validated. A problem names its cells, unless all
cells have it. Of a directory, the files below it that describe a fabric are validated,
and the other YAML and JSON files are named with the reason.
Validate changes nothing. FILE may be - for standard input; names are then relative
to the current directory. The exit code is 2 if any file has a problem.`,
		Example: `  railbed validate scenarios
  railbed generate fat-tree --param k=4 | railbed validate -
  railbed validate -o json cluster.yaml | jq '.[].problems'`,
		Args:              rangeArgs(1, -1),
		ValidArgsFunction: completeFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.validate(args)
		},
	}
	a.settingsFlag(cmd)
	return cmd
}

// validation is the result of validate for one file.
type validation struct {
	File     string `json:"file"`
	OK       bool   `json:"ok"`
	Name     string `json:"name,omitempty"`
	Nodes    int    `json:"nodes"`
	Switches int    `json:"switches"`
	Links    int    `json:"links"`
	Ranks    int    `json:"ranks"`
	// Cells is the number of cells of the file's matrix, and Repeat the number of runs of each. The other
	// numbers are of the first cell.
	Cells    int           `json:"cells,omitempty"`
	Repeat   int           `json:"repeat,omitempty"`
	Problems spec.Problems `json:"problems,omitempty"`
	// Warnings list checks that will probably not pass, and what may be missing or slow.
	Warnings spec.Problems `json:"warnings,omitempty"`
}

func (a *app) validate(args []string) error {
	files, over, err := filesBelow(args)
	a.printPassedOver(over)
	if err != nil {
		return usage("%w", err)
	}
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

// filesBelow replaces directories by the files below them that describe a fabric. over are the others.
func filesBelow(args []string) (files []string, over []suite.PassedOver, err error) {
	for _, arg := range args {
		if info, err := os.Stat(arg); err != nil || !info.IsDir() {
			files = append(files, arg) // a file that does not exist is a problem like others
			continue
		}
		below, err := scenarioFiles(arg)
		if err != nil {
			return nil, over, err
		}
		files, over = append(files, below.files...), append(over, below.over...)
		if len(below.files) == 0 {
			return nil, over,
				fmt.Errorf("%s: no file below this directory describes a fabric; want .yaml files "+
					"with the key fabric", arg)
		}
	}
	return files, over, nil
}

func (a *app) validateFile(file string) (validation, error) {
	v := validation{File: file}
	f, err := a.readSetFile(file)
	if err != nil {
		if !errors.As(err, &v.Problems) {
			return v, err
		}
		return v, nil
	}
	var problems, warnings []spec.Problems
	for i := range f.Cells {
		p, found, err := validateCell(f, &f.Cells[i])
		var wrong spec.Problems
		if err != nil && !errors.As(err, &wrong) {
			return v, err
		}
		problems, warnings = append(problems, wrong), append(warnings, found)
		if p != nil && i == 0 {
			v.Name = p.Name
			v.Nodes, v.Switches, v.Links, v.Ranks = len(p.Nodes), len(p.Switches), len(p.Links), len(p.Ranks)
		}
	}
	if f.Repeat > 0 {
		v.Cells, v.Repeat = len(f.Cells), f.Repeat
	}
	v.Problems = spec.MergeProblems(len(f.Cells), problems)
	v.Warnings = spec.MergeProblems(len(f.Cells), warnings)
	v.OK = len(v.Problems) == 0
	return v, nil
}

// validateCell validates the testbed of a cell.
func validateCell(f *spec.File, cell *spec.Cell) (p *plan.Plan, warnings spec.Problems, err error) {
	testbed, err := f.Decode(cell)
	if err == nil {
		p, err = plan.Compile(testbed)
	}
	if err == nil {
		warnings, err = runner.Validate(runner.Options{File: testbed, Plan: p, Path: f.Name})
	}
	return p, warnings, err
}

// warn prints warnings.
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
	cells := ""
	if v.Cells > 0 {
		cells = ", " + plural.Count(v.Cells, "cells")
		if v.Repeat > 1 {
			cells += plural.Text(" with %d runs each", v.Repeat)
		}
	}
	a.show("%s: ok, %d nodes, %d switches, %d links%s", v.File, v.Nodes, v.Switches, v.Links, cells)
}
