package cli

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Root is the root command.
func Root() *cobra.Command {
	return newRootCommand(&app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard})
}

// CommandPaths are all commands that do something, as they are typed.
func CommandPaths() []string {
	root := Root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var paths []string
	var walk func(*cobra.Command)
	walk = func(command *cobra.Command) {
		for _, sub := range command.Commands() {
			walk(sub)
		}
		if command.Runnable() && command != root && !command.HasSubCommands() {
			paths = append(paths, strings.TrimPrefix(command.CommandPath(), root.Name()+" "))
		}
	}
	walk(root)
	return paths
}
