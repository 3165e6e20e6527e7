package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"railbed/capture/report"
	"railbed/internal/input"
	"railbed/internal/verdict"
)

func newReportCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "report DIR",
		Short: "Print the report of an earlier run again",
		Long: `Report prints the tables of a run from the report.json in its directory of
results, and exits with the code of that run. DIR may also be what is kept of a
testbed that died; railbed ls lists these.`,
		Example:           "  railbed report quickstart-results",
		Args:              exactArgs(1),
		ValidArgsFunction: completeDirs,
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := readReport(args[0])
			if err != nil {
				return &exitError{Code: verdict.ExitUsage, Err: err}
			}
			dir := args[0]
			if _, err := os.Stat(filepath.Join(dir, report.HTMLFile)); err != nil {
				dir = "" // a testbed that died has no page
			}
			if err := a.printReport(r, dir); err != nil {
				return err
			}
			return ended(r)
		},
	}
}

func readReport(dir string) (*report.Report, error) {
	file, err := input.Open(filepath.Join(dir, report.JSONFile))
	if err != nil {
		return nil, fmt.Errorf("%s holds no results of railbed run: %w", dir, err)
	}
	defer file.Close()
	r, err := report.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	return r, nil
}
