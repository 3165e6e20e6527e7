package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newManCommand makes the pages that packages install. It is hidden, because users have the pages.
func newManCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write a manual page of each command into a directory",
		Long: `Man writes railbed.1 and a manual page of each command, such as railbed-run.1, into a
directory, which it makes. The date in the pages is SOURCE_DATE_EPOCH, or today.`,
		Example: `  railbed man out/man && man -l out/man/railbed-run.1`,
		Args:    exactArgs(1),
		Hidden:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("man: %w", err)
			}
			root := cmd.Root()
			markLong(root)
			root.DisableAutoGenTag = true // a line with the date
			header := &doc.GenManHeader{Section: "1", Source: "railbed " + version, Manual: "Railbed"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("man: %w", err)
			}
			return nil
		},
		ValidArgsFunction: completeDirs,
	}
}

// markLong marks indented lines of descriptions as blocks of code, because manual pages are made from them as
// Markdown.
func markLong(cmd *cobra.Command) {
	cmd.Long = markdownOf(cmd.Long)
	for _, sub := range cmd.Commands() {
		markLong(sub)
	}
}

// markdownOf sets lines that are indented apart from the text around them, with the indent of code.
func markdownOf(long string) string {
	var out strings.Builder
	code := false
	for line := range strings.SplitSeq(long, "\n") {
		if indented := strings.HasPrefix(line, "  "); line != "" && indented != code {
			out.WriteString("\n")
			code = indented
		}
		if code && line != "" {
			line = "    " + strings.TrimPrefix(line, "  ")
		}
		out.WriteString(line + "\n")
	}
	return strings.TrimSpace(out.String())
}
