package cli

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"railbed/internal/verdict"
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
		fmt.Fprintf(&out, "| `%s` | %s |\n", strings.ReplaceAll(usageLine(command), "|", "\\|"),
			command.Short)
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

// readmeShows checks that a marked part of README.md, in the folder, equals the expected text. With
// -update it writes the text.
func readmeShows(t *testing.T, folder, mark, what string) {
	t.Helper()
	file := filepath.Join(folder, "README.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	marked := regexp.MustCompile(`(?s)(<!-- ` + mark + ` -->\n).*(<!-- end of ` + mark + ` -->)`)
	if !marked.Match(text) {
		t.Fatalf("%s has no marked %s", file, mark)
	}
	want := marked.ReplaceAll(text, []byte("${1}"+strings.ReplaceAll(what, "$", "$$")+"${2}"))
	switch {
	case bytes.Equal(text, want):
	case *updateReadme:
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has other %s; go test ./cli -run %s -update writes them", file, mark, t.Name())
	}
}

func TestReadmeListsTheCommands(t *testing.T) {
	readmeShows(t, "..", "commands", commandList())
}

// The part of README.md about a third-party recording equals the command's output.
func TestReadmeShowsARecordingOfRoCE(t *testing.T) {
	t.Chdir("..")
	args := []string{"verify", "capture/verify/roce/testdata/rxe/write-lost-behind.pcap", "--check",
		"roce: {rule: acks}", "--check", "roce: {rule: go-back-n}"}
	var stdout, stderr bytes.Buffer
	if code := Main(args, strings.NewReader(""), &stdout, &stderr); code != verdict.ExitPass {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	command := ""
	for _, a := range args {
		if command += " "; strings.Contains(a, " ") {
			a = "'" + a + "'"
		}
		command += a
	}
	readmeShows(t, ".", "recording of roce", "```console\n$ bin/railbed"+command+"\n"+stdout.String()+"```\n")
}
