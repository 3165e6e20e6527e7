package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"railbed/capture/bundle"
	"railbed/capture/report"
	"railbed/internal/input"
	"railbed/internal/verdict"
	"railbed/reporting/compare"
)

// reportFlags are the flags of "railbed report", all for comparisons.
type reportFlags struct {
	page string
	compare.Options
}

func newReportCommand(a *app) *cobra.Command {
	var flags reportFlags
	cmd := &cobra.Command{
		Use:   "report RUN | BASE NEW | BASE... -- NEW...",
		Short: "Print the report of an earlier run again, or compare runs",
		Long: `Report prints the report of a run again, from the report.json in its directory of
results or in its bundle, and exits with the code of that run. -v adds all tables. RUN
may also be the directory kept of a dead testbed, which railbed ls lists.

With two runs, or with base runs and new runs on both sides of --, it compares
them: what changed in the plan, in versions and on the host; verdicts and checks;
all numbers of the reports; and from recordings the times of messages, and where
the time went. If a run has several recordings, those of the same name are
compared. Reports have no settings of steps such as traffic, so these are not
compared. BASE and NEW are directories of results or bundles. A comparison exits
with 0, whatever differs.

Each number has its median over the runs of a side, and the range of its
confidence interval in percent (? if the interval includes 0). A difference is ~
if p of the Mann-Whitney U test is above --alpha. Of many tests some find a
difference by chance. So a number is better, worse or differs if p is so low that
chance alone gives any such number with a probability of at most --alpha, and
perhaps so otherwise. One run of each side only shows values. Four of each are the
least for any difference, and eight suffice for most files.

The test assumes that runs are independent: alternate between base runs and new
runs, so that a slow hour of the machine affects both. The messages of one run are
not independent of each other. So their quantiles describe runs, and the test
takes a quantile as one value of a run.`,
		Example: `  railbed report quickstart-results
  railbed report -v quickstart-results
  railbed report before after
  for i in 1 2 3 4 5 6 7 8; do
    railbed run old.yaml --out old-$i; railbed run new.yaml --out new-$i
  done
  railbed report old-* -- new-*
  railbed report --html comparison.html old-* -- new-*   # flags go before --
  railbed report before.zip after.zip -o json | jq '.numbers[] | select(.section == "workloads")'`,
		Args:              rangeArgs(1, -1),
		ValidArgsFunction: filesOf("zip"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.report(cmd, args, flags)
		},
	}
	cmd.Flags().StringVar(&flags.page, "html", "",
		"`FILE` to write the comparison to, as one page with pictures")
	cmd.Flags().Float64Var(&flags.Alpha, "alpha", compare.DefaultAlpha,
		"`SHARE` of the tests that may find a difference where there is none")
	cmd.Flags().BoolVar(&flags.NoRecordings, "no-recordings", false,
		"do not read recordings (one is read at a time, with some 80 bytes of memory for each record)")
	completeFlag(cmd, "html", filesOf("html"))
	a.verboseFlag(cmd)
	return cmd
}

func (a *app) report(cmd *cobra.Command, args []string, flags reportFlags) error {
	if !(flags.Alpha > 0 && flags.Alpha < 1) {
		return usage("--alpha %v: want a number between 0 and 1, such as 0.01", flags.Alpha)
	}
	if dash := cmd.ArgsLenAtDash(); len(args) > 1 || dash > 0 {
		if a.verbose {
			return usage("--verbose: a comparison has no longer form; want one run")
		}
		base, changed, err := sidesOf(args, dash)
		if err != nil {
			return err
		}
		return a.compareRuns(cmd.Context(), base, changed, flags.page, flags.Options)
	}
	for _, flag := range []string{"html", "alpha", "no-recordings"} {
		if cmd.Flags().Changed(flag) {
			return usage("--%s: want two runs to compare", flag)
		}
	}
	return a.printAgain(args[0])
}

// printAgain prints the report of a run.
func (a *app) printAgain(name string) error {
	r, err := readReport(name)
	if err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	dir := name
	if _, err := os.Stat(filepath.Join(dir, report.HTMLFile)); err != nil {
		dir = "" // a testbed that died has no page, and the page of a bundle cannot be opened
	}
	if err := a.printReport(r, dir); err != nil {
		return err
	}
	return ended(r)
}

// readReport reads the report of a results directory or of a bundle.
func readReport(name string) (*report.Report, error) {
	if strings.HasSuffix(name, bundle.Suffix) {
		run, err := bundle.Open(name)
		if err != nil {
			return nil, err
		}
		defer run.Close()
		if run.Report == nil {
			return nil, fmt.Errorf("%s holds no results of railbed run: it has no %s", name, report.JSONFile)
		}
		return run.Report, nil
	}
	file, err := input.Open(filepath.Join(name, report.JSONFile))
	if err != nil {
		return nil, fmt.Errorf("%s holds no results of railbed run: %w", name, err)
	}
	defer file.Close()
	r, err := report.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	return r, nil
}
