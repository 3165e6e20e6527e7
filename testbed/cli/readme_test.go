package cli

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var updateReadme = flag.Bool("update", false, "rewrite the command list in README.md")

// commandList is every command with its subcommands, as README.md shows it.
func commandList() string {
	var out strings.Builder
	out.WriteString("| command | |\n|---|---|\n")
	root := newRootCommand(&app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard})
	for _, command := range root.Commands() {
		if command.Hidden || command.Name() == "help" || command.Name() == "completion" {
			continue
		}
		fmt.Fprintf(&out, "| `%s` | %s |\n", strings.ReplaceAll(usageLine(command), "|", "\\|"), command.Short)
	}
	return out.String()
}

// usageLine is a command with its arguments, or with its subcommands.
func usageLine(command *cobra.Command) string {
	if !command.HasAvailableSubCommands() {
		return command.Use
	}
	var names []string
	for _, sub := range command.Commands() {
		names = append(names, sub.Name())
	}
	return command.Name() + " " + strings.Join(names, "|")
}

func TestReadmeListsTheCommands(t *testing.T) {
	const file = "../../README.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	marked := regexp.MustCompile(`(?s)(<!-- commands -->\n).*(<!-- end of commands -->)`)
	if !marked.Match(text) {
		t.Fatalf("%s has no marked command list", file)
	}
	want := marked.ReplaceAll(text, []byte("${1}"+commandList()+"${2}"))
	switch {
	case bytes.Equal(text, want):
	case *updateReadme:
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s lists other commands; go test ./testbed/cli -run %s -update writes them", file, t.Name())
	}
}
