package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"railbed/capture/bundle"
)

// bundleReport is the JSON document of "railbed bundle".
type bundleReport struct {
	File string `json:"file"`
	*bundle.Written
}

func newBundleCommand(a *app) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "bundle RUN",
		Short: "Put all files of a run into one archive, to attach to a bug report",
		Long: `Bundle writes all files of a results directory into one zip archive: the report, the
plan, recordings and logs. Key logs stay out. The commands that read a run read its bundle,
too.

Other texts go into the archive as they are: the environment of nodes is in plan.json, and
the output of programs in logs.`,
		Example: `  railbed bundle out                        # writes out.zip
  railbed bundle out --out issue-17.zip
  railbed follow issue-17.zip --slowest 3`,
		Args:              exactArgs(1),
		ValidArgsFunction: completeDirs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				out = filepath.Clean(args[0]) + bundle.Suffix
			}
			return a.bundle(cmd.Context(), args[0], out)
		},
	}
	outFlag(cmd, &out, "", "file", "`FILE` to write; default: the directory's name and .zip")
	completeFlag(cmd, "out", filesOf("zip"))
	return cmd
}

func (a *app) bundle(ctx context.Context, dir, out string) error {
	if filepath.Ext(out) != bundle.Suffix {
		return usage("--out %s: want a name that ends with %s", out, bundle.Suffix)
	}
	var written *bundle.Written
	if err := writeFile(out, os.O_EXCL, 0o600, func(w io.Writer) (err error) {
		written, err = bundle.Write(ctx, w, dir, nil)
		return err
	}); err != nil {
		return err
	}
	if a.output == "json" {
		return a.printJSON(bundleReport{out, written})
	}
	a.show("%s: %d files, %d MiB before compression", out, len(written.Files), written.Bytes>>20)
	for _, name := range written.LeftOut {
		a.show("left out: %s", name)
	}
	for _, name := range written.Missing {
		a.say("railbed: warning: %s has no %s, which the report names: commands will say so", dir, name)
	}
	return nil
}
