package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newManCommand makes the command that writes the man pages, for packages.
func newManCommand(*app) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the man pages of all commands into a directory, for packages",
		Hidden: true,
		Long: `Man writes a man page of section 1 for each command into the directory DIR, which it
makes. The pages have the date of SOURCE_DATE_EPOCH (seconds since 1970), or else
today's.`,
		Args:              exactArgs(1),
		ValidArgsFunction: completeDirs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			// The tag would be a section HISTORY, which says that Cobra made the page.
			cmd.Root().DisableAutoGenTag = true
			header := &doc.GenManHeader{Section: "1", Source: "railbed " + version, Manual: "Railbed"}
			if err := doc.GenManTree(cmd.Root(), header, args[0]); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			return nil
		},
	}
}
