package cli

import (
	"github.com/spf13/cobra"

	"railbed/plan/spec"
)

func newSchemaCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of testbed files, for editors",
		Long: `Schema prints the JSON Schema (draft 2020-12) of testbed files. Editors that
speak the YAML language server complete and check a file that starts with

  # yaml-language-server: $schema=railbed.schema.json`,
		Example: `  railbed schema > railbed.schema.json`,
		Args:    exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.stdout.Write(spec.Schema())
			return err
		},
	}
}
