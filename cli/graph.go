package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"railbed/plan/picture"
)

func newGraphCommand(a *app) *cobra.Command {
	var format string
	command := &cobra.Command{
		Use:   "graph FILE",
		Short: "Draw a testbed's fabric",
		Long: `Graph prints a picture of the fabric: tiers as rows with the servers at the
bottom, their NICs as small ports, a colour for each rail, plane or pod, and a
line's width for its rate.

  svg      for people: opens in a browser, follows its light or dark mode, and
           says more where the pointer rests; many servers share a box
  dot      for Graphviz: railbed graph FILE --format dot | dot -Tpdf > fabric.pdf
  mermaid  for Markdown that draws Mermaid, as on GitHub

With -o json the picture is the text in "picture". FILE may be - for standard
input.`,
		Example: `  railbed graph scenarios/quickstart.yaml > fabric.svg
  railbed generate torus | railbed graph - --format mermaid`,
		Args:              exactArgs(1),
		ValidArgsFunction: completeFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			if !slices.Contains(picture.Formats, format) {
				return usage("format %q does not exist; want %s", format, strings.Join(picture.Formats, ", "))
			}
			p, err := a.readPlan(args[0])
			if err != nil {
				return err
			}
			var drawn bytes.Buffer
			if err := picture.Draw(&drawn, p, format); err != nil {
				return fmt.Errorf("graph %s: %w", args[0], err)
			}
			if a.output == "json" {
				return a.printJSON(map[string]string{"format": format, "picture": drawn.String()})
			}
			_, err = drawn.WriteTo(a.stdout)
			return err
		},
	}
	a.settingsFlag(command)
	command.Flags().StringVarP(&format, "format", "f", "svg", "`FORMAT` of the picture: dot, mermaid or svg")
	completeFlag(command, "format", oneOf(picture.Formats...))
	return command
}
