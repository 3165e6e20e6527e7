package cli

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"railbed/capture/pcapng"
	"railbed/internal/input"
	"railbed/internal/nearest"
	"railbed/internal/verdict"
)

// writeFile writes a file that an argument names. On a full disk it leaves no part of the file. An error has
// the code of a failure if the disk is full, and that of a wrong argument otherwise.
func writeFile(path string, flags int, perm fs.FileMode, write func(io.Writer) error) error {
	err := input.Write(path, flags, perm, write)
	if err == nil || input.Full(err) {
		return err
	}
	return &exitError{Code: verdict.ExitUsage, Err: err}
}

// noSuchCommand takes no arguments. On a command that only has subcommands, the remaining arguments
// name a subcommand that does not exist.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := nearest.Word(args[0], names); near != "" {
		return usage("unknown command %q of %s; did you mean %s?", args[0], cmd.CommandPath(), near)
	}
	return usage("unknown command %q of %s; %s --help lists them", args[0], cmd.CommandPath(),
		cmd.CommandPath())
}

// wrongFlag returns the error of flags that cannot be parsed, with a remedy if one is known.
func wrongFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usage("%w", err)
	}
	if strings.Contains(cmd.Use, " -- COMMAND") {
		return usage("%w; put -- before the command that runs in the node: railbed %s", err, cmd.Use)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := nearest.Word(unknown.GetSpecifiedName(), names); near != "" {
		return usage("%w; did you mean --%s?", err, near)
	}
	return usage("%w; %s --help lists the flags", err, cmd.CommandPath())
}

// hint prints a remedy after an error that the arguments or the disk explain.
func (a *app) hint(err error, args []string) {
	switch {
	case input.Full(err):
		a.say("the disk is full: free space on it, or write to a folder elsewhere")
		return
	case !errors.Is(err, pcapng.ErrFormat):
		return
	}
	for _, arg := range args {
		if ext := filepath.Ext(arg); ext == ".yaml" || ext == ".yml" {
			a.say("%s describes a testbed: railbed run %s runs its steps and judges its checks", arg, arg)
		}
	}
}
