package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"railbed/internal/verdict"
	"railbed/plan/spec"
)

// settingsFlag adds the flag --set to a command that reads testbed files.
func (a *app) settingsFlag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&a.set, "set", nil,
		"give a variable of the file a value, or choose the cells of its matrix with a value of an axis: "+
			"`NAME=VALUE`; may be repeated")
	completeFlag(cmd, "set", func(cmd *cobra.Command, args []string, _ string) ([]string,
		cobra.ShellCompDirective) {
		var names []string
		for _, arg := range args {
			if f, err := spec.LoadFile(arg); err == nil {
				names = append(names, f.Settable()...)
			}
		}
		for i := range names {
			names[i] += "="
		}
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// settings parses the values of --set.
func (a *app) settings() (all []spec.Setting, err error) {
	for _, text := range a.set {
		name, value, found := strings.Cut(text, "=")
		if !found || name == "" {
			return nil, usage("--set %q: want NAME=VALUE", text)
		}
		all = append(all, spec.Setting{Name: name, Value: value})
	}
	return all, nil
}

// readFile reads a file, or standard input for "-".
func (a *app) readFile(name string) (*spec.File, error) {
	if name != "-" {
		return spec.LoadFile(name)
	}
	text, err := spec.ReadTextFrom(stdinName, a.input())
	if err != nil {
		return nil, err
	}
	return spec.Parse(stdinName, text)
}

// readSetFile reads a file as readFile does, and applies --set.
func (a *app) readSetFile(name string) (*spec.File, error) {
	f, err := a.readFile(name)
	if err != nil {
		return nil, err
	}
	settings, err := a.settings()
	if err != nil {
		return nil, err
	}
	return f, setAll(f, settings)
}

// setAll applies settings. An error has the exit code 2.
func setAll(f *spec.File, settings []spec.Setting) error {
	for _, s := range settings {
		if err := f.Set(s); err != nil {
			return &exitError{Code: verdict.ExitUsage, Err: err}
		}
	}
	return nil
}

// settable returns the settings that a file has.
func settable(f *spec.File, settings []spec.Setting) []spec.Setting {
	return slices.DeleteFunc(slices.Clone(settings), func(s spec.Setting) bool {
		return !slices.Contains(f.Settable(), s.Name)
	})
}
