package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"railbed/capture/bundle"
	"railbed/capture/keep"
	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/capture/verify/fabricchecks"
	"railbed/capture/verify/ranks"
	"railbed/internal/input"
	"railbed/internal/plural"
	"railbed/internal/printable"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/transports/rd/privacy"
)

// verifyFlags are the flags of "railbed verify".
type verifyFlags struct {
	plan, testbedFile, workload string
	keys                        string
	tolerance, minShare         string
	fidelity                    string
	mtu                         int
	// named holds checks in the words of files, and taps the ports of interfaces.
	named, taps []string
	// rules is a file of checks, and offenders the directory for packets that break checks.
	rules, offenders string
	// ran is the report of the run whose recording is judged, or nil.
	ran *report.Report
	// asked reports whether the user gave a flag.
	asked func(flag string) bool
}

// verifyReport is the JSON document of "railbed verify".
type verifyReport struct {
	Verdict verdict.Verdict `json:"verdict"`
	Capture verify.Summary  `json:"capture"`
	Checks  []verify.Result `json:"checks"`
	// NotInPlan lists interfaces of the capture that are not ports of the plan. No check uses them.
	NotInPlan []string `json:"not_in_plan,omitempty"`
	// RestOnTime lists the checks that pass only if the emulation kept time. The report of the run
	// says whether it did. A capture does not.
	RestOnTime []string `json:"rest_on_time,omitempty"`
}

func newVerifyCommand(a *app) *cobra.Command {
	var flags verifyFlags
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Judge the packets of a capture at switches, links and NICs",
		Long: `Verify reads a pcapng or pcap file, also compressed by gzip, once and judges it. FILE may
be any tool's capture, - for standard input, the directory of a run, or its bundle; the
last two also have the plan. Several recordings of a run are judged as one: a packet
in two of them counts once.
Railbed names interfaces NODE:PORT. --tap gives the port of another interface, by its
name or, if it has none, by its number from 0 on.

With --testbed-file or --plan it knows the cluster, and checks that every switch
passed on what it received, that equal-cost paths share the load, that no link
carried more than its rate or, while busy, less, and that no frame is longer than
its link's MTU. With --workload it also checks the bytes that each rank sent and the
NIC by which they left. Without a cluster only the MTU of --mtu is checked.

--check and --rules replace these checks; --mtu and --fidelity then add their checks. A
check is written as under "packets:" in a scenario file; for example:

  ` + strings.Join(verify.Examples(), "\n  ") + `

The rules of roce, over connections of RoCEv2 in anybody's recording, are icrc, psn,
acks, writes, go-back-n, cnp and rate-decrease. A rule that applies to no packet is
INCONCLUSIVE and says NOT-APPLICABLE.

A rule (check "rule") is about packets that display filters select, as in decode -Y. It
names the packets that break it, and --offenders writes them to captures.

The checks of a workload (bytes-per-rank, rank-nic, crossed, rail-local, partial-sums)
need --workload; crossed and most others need the cluster. With --keys the checks of
reliable datagrams read encrypted packets that the capture has whole. A check whose
evidence is missing or incomplete is INCONCLUSIVE, exit code 5.`,
		Example: `  railbed verify out/run.pcapng --testbed-file scenarios/quickstart.yaml
  railbed verify out/run.pcapng --plan out/plan.json --check 'drops: {reason: tail, count: "== 0"}' --check 'lossless: {}'
  railbed plan -o json cluster.yaml > plan.json && railbed verify x.pcapng --plan plan.json -o json
  railbed verify somebody.pcap --mtu 1500
  railbed verify somebody.pcapng --rules rules.yaml --offenders found
  railbed verify tcpdump.pcapng --plan plan.json --tap eth0=h0:eth0 --tap eth1=h1:eth0`,
		Args:              exactArgs(1),
		ValidArgsFunction: completeCaptures,
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.asked = cmd.Flags().Changed
			return a.verify(cmd, args[0], flags)
		},
	}
	flags.define(cmd, a)
	a.settingsFlag(cmd)
	return cmd
}

func (a *app) verify(cmd *cobra.Command, name string, flags verifyFlags) error {
	p, file, err := a.verifyPlan(flags)
	if err != nil {
		return err
	}
	in, err := a.openVerified(name)
	if err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	defer in.Close()
	if p == nil {
		p = in.plan
	}
	flags.ran = in.ran
	checks, err := flags.checks(p, file)
	if err != nil {
		return err
	}
	var judges []verify.Check
	for _, check := range checks {
		judges = append(judges, check.Check)
	}
	taps, err := parseTaps(flags.taps, p)
	if err != nil {
		return err
	}
	keys, err := readKeys(flags.keys, name)
	if err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	o := verify.Options{Plan: p, Keys: keys, Taps: taps}
	if in.ran != nil {
		o.From, o.To = verify.SentIn(in.ran, "")
	}
	results, summary, err := verify.RunAll(cmd.Context(), in.names, in.readers, o, judges...)
	if err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: fmt.Errorf("%s: %w", name, err)}
	}
	if p == nil {
		if err := unknownPorts(checks, summary); err != nil {
			return &exitError{Code: verdict.ExitUsage, Err: err}
		}
	}
	judged := verifyReport{Capture: summary, Checks: results}
	if judged.NotInPlan, err = unknownTaps(summary, taps, p); err != nil {
		return err
	}
	judged.conclude(checks)
	err = writeOffenders(flags.offenders, results)
	if err != nil && !input.Full(err) {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	if a.output == "json" {
		err = errors.Join(err, a.printJSON(judged))
	} else {
		a.printVerify(name, judged)
	}
	if err == nil && judged.Verdict != verdict.Pass {
		exit := &exitError{Code: judged.Verdict.ExitCode()}
		if p == nil && judged.Verdict == verdict.Inconclusive {
			exit.Err = fmt.Errorf("%s: without --testbed-file or --plan the cluster is not known", name)
		}
		return exit
	}
	return err
}

// verified holds the input of "railbed verify": a capture, standard input, or the recordings of a run, which
// has a plan.
type verified struct {
	names   []string
	readers []io.Reader
	plan    *plan.Plan
	ran     *report.Report // of the run, or nil
	closers []io.Closer
}

// Close closes the files, and then the run, which the files need for their further parts.
func (v *verified) Close() (err error) {
	for _, closer := range v.closers {
		err = errors.Join(err, closer.Close())
	}
	return err
}

func (a *app) openVerified(name string) (*verified, error) {
	if name == "-" {
		return &verified{names: []string{name}, readers: []io.Reader{a.input()}}, nil
	}
	if !isRun(name) {
		file, err := keep.OpenFile(name)
		return &verified{names: []string{name}, readers: []io.Reader{file}, closers: []io.Closer{file}}, err
	}
	run, err := bundle.Open(name)
	if err != nil {
		return nil, err
	}
	recordings, err := run.Recordings(run.Captures())
	if err != nil {
		return nil, errors.Join(err, run.Close())
	}
	return &verified{names: run.Captures(), readers: recordings.Readers(), plan: run.Plan,
		ran: run.Report, closers: []io.Closer{recordings, run}}, nil
}

// isRun reports whether a name is of a results directory or of a bundle.
func isRun(name string) bool {
	about, err := os.Stat(name)
	return err == nil && (about.IsDir() || strings.HasSuffix(name, bundle.Suffix))
}

// define adds the flags to the command.
func (f *verifyFlags) define(cmd *cobra.Command, a *app) {
	cmd.Flags().StringVar(&f.testbedFile, "testbed-file", "",
		"the testbed's `FILE`, whose plan is compiled")
	cmd.Flags().StringArrayVar(&f.named, "check", nil,
		"`CHECK` as under packets: in a file, such as 'deadlock: none'; may be repeated")
	cmd.Flags().StringVar(&f.rules, "rules", "",
		"`FILE` with a list of such checks below rules:, as '- rule: {never: FILTER}'")
	cmd.Flags().StringVar(&f.offenders, "offenders", "",
		"`DIRECTORY` for captures of the packets that break checks, with their neighbours")
	cmd.Flags().StringVar(&f.plan, "plan", "",
		"`FILE` with the testbed's plan, as railbed plan -o json prints it")
	cmd.Flags().StringVar(&f.keys, "keys", "",
		"`FILE` with the keys of encrypted reliable datagrams, as a workload's key-log writes it")
	cmd.Flags().StringArrayVar(&f.taps, "tap", nil,
		"`INTERFACE=NODE:PORT`: which port an interface of the capture is; may be repeated")
	cmd.Flags().StringVar(&f.workload, "workload", "",
		"JSON `FILE` that says which packets are a workload's: {name, ranks: [{rank, node, nic, addr, "+
			"port, expected}]}")
	cmd.Flags().StringVar(&f.tolerance, "tolerance", "2%",
		"`SHARE` by which the bytes of a rank may differ from the expected ones")
	cmd.Flags().StringVar(&f.minShare, "min-share", "0%",
		"least load of each equal-cost path, as a `SHARE` of its fair share; 0% demands at least one packet")
	cmd.Flags().StringVar(&f.fidelity, "fidelity", verify.Faithful,
		"worst `VERDICT` on fidelity that passes: faithful or degraded")
	cmd.Flags().IntVar(&f.mtu, "mtu", 0, "`MTU` of links without a plan; 0 does not check them")
	completeFlag(cmd, "testbed-file", completeFiles)
	completeFlag(cmd, "check", oneOf(verify.Examples()...))
	completeFlag(cmd, "rules", completeFiles)
	completeFlag(cmd, "offenders", completeDirs)
	completeFlag(cmd, "plan", completeJSON)
	completeFlag(cmd, "keys", completeAnyFile)
	completeFlag(cmd, "tap", completeTaps(a, f))
	completeFlag(cmd, "workload", completeJSON)
	completeFlag(cmd, "fidelity", oneOf(verify.Faithful, verify.Degraded))
}

// conclude names the results as the checks are titled, and sets the verdict.
func (r *verifyReport) conclude(checks []titled) {
	var verdicts []verdict.Verdict
	for i := range r.Checks {
		result := &r.Checks[i]
		if checks[i].title != "" {
			result.Name = checks[i].title
		}
		verdicts = append(verdicts, result.Verdict)
		if asked := checks[i].asked; asked != nil && result.Verdict == verdict.Pass &&
			verify.Timed(asked.check) {
			r.RestOnTime = append(r.RestOnTime, result.Name)
		}
	}
	r.Verdict = verdict.Worst(verdicts...)
}

// readKeys reads a key log. If no file is named, it reads the key logs of a run's directory. It returns nil
// if there are none.
func readKeys(name, recording string) (*privacy.KeyLog, error) {
	if name == "" {
		if about, err := os.Stat(recording); err != nil || !about.IsDir() {
			return nil, nil
		}
		run, err := bundle.Open(recording)
		if err != nil {
			return nil, err
		}
		defer run.Close()
		return run.Keys()
	}
	file, err := input.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	keys, err := privacy.ReadKeyLog(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return keys, nil
}

// verifyPlan reads the cluster that the flags name. It returns nil if they name none. For a
// testbed's file it also returns the file.
func (a *app) verifyPlan(flags verifyFlags) (p *plan.Plan, file *spec.Testbed, err error) {
	if flags.testbedFile != "" && flags.plan != "" {
		return nil, nil, usage("--plan and --testbed-file: give one of them")
	}
	if flags.testbedFile != "" {
		file, p, err := a.load(flags.testbedFile, "")
		if err != nil {
			return nil, nil, err
		}
		return p, file, nil
	}
	if flags.plan == "" {
		return nil, nil, nil
	}
	p = new(plan.Plan)
	return p, nil, readJSON(flags.plan, p)
}

// readJSON reads a file that must contain one document without unknown fields.
func readJSON(name string, into any) error {
	file, err := input.Open(name)
	if err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	defer file.Close()
	if err := input.DecodeKnownFields(file, into); err != nil {
		return usage("%s: %w", name, err)
	}
	return nil
}

// titled is a check with its name in reports of runs. An empty title means the check's own name.
type titled struct {
	verify.Check
	title string
	// asked is the check as it was written, or nil.
	asked *writtenCheck
}

// checks returns the checks that the flags name. If they name none, it returns all checks for which
// the inputs are known. Steps of the file change rates and arrivals.
func (f verifyFlags) checks(p *plan.Plan, file *spec.Testbed) ([]titled, error) {
	tolerance, err := units.ParseRatio(f.tolerance)
	if err != nil {
		return nil, usage("--tolerance: %w", err)
	}
	share, err := units.ParseRatio(f.minShare)
	if err != nil {
		return nil, usage("--min-share: %w", err)
	}
	if f.fidelity != verify.Faithful && f.fidelity != verify.Degraded {
		return nil, usage("--fidelity %q: want faithful or degraded", f.fidelity)
	}
	if f.mtu < 0 {
		return nil, usage("--mtu %d: want a size in bytes", f.mtu)
	}
	var w *verify.Workload
	if f.workload != "" {
		w = new(verify.Workload)
		if err := readJSON(f.workload, w); err != nil {
			return nil, err
		}
	}
	fidelity := func() titled {
		check := verify.NewFidelity(f.fidelity, verify.HostLoad{Pressure: -1, Steal: -1})
		if file != nil {
			check.Except(file, p)
		}
		if f.ran != nil {
			check.ExceptDuring(f.ran.Acts)
		}
		return titled{Check: check}
	}
	if len(f.named) > 0 || f.rules != "" {
		checks, err := namedChecks(f.named, f.rules, w, p, f.ran)
		if f.asked("mtu") {
			checks = append(checks, titled{Check: fabricchecks.NewMTU(f.mtu)})
		}
		if f.asked("fidelity") {
			checks = append(checks, fidelity())
		}
		return checks, err
	}
	checks := []titled{{Check: fabricchecks.NewMTU(f.mtu)}}
	if p != nil {
		checks = append(checks, titled{Check: fabricchecks.NewConservation("*")})
		if hasEqualCost(p) {
			checks = append(checks, titled{Check: fabricchecks.NewPathSpread(&spec.PathSpread{Switch: "*",
				MinShare: share})})
		}
		checks = append(checks, fidelity())
	}
	if w != nil {
		checks = append(checks, titled{Check: ranks.NewBytesPerRank(*w, tolerance)},
			titled{Check: ranks.NewRankNIC(*w)})
	}
	return checks, nil
}

// hasEqualCost reports whether any switch has a choice of paths.
func hasEqualCost(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Switches, func(s plan.Switch) bool { return s.Routes.Choice() })
}

func (a *app) printVerify(name string, r verifyReport) {
	fmt.Fprint(a.stdout, plural.Text("%s: %d packets of %d taps in %s", printable.Line(name),
		r.Capture.Packets, len(r.Capture.Taps), units.Took(r.Capture.Duration)))
	if r.Capture.Lost > 0 {
		fmt.Fprintf(a.stdout, ", %d lost", r.Capture.Lost)
	}
	if r.Capture.Note != "" {
		fmt.Fprintf(a.stdout, "; %s", printable.Line(r.Capture.Note))
	}
	if len(r.NotInPlan) > 0 {
		fmt.Fprintf(a.stdout, "; not in the plan, and in no check: %s",
			printable.Line(shortened(r.NotInPlan)))
	}
	fmt.Fprint(a.stdout, "\n\n")
	rows := a.newTable("check", "verdict", "found")
	for _, check := range r.Checks {
		rows.AppendRow(table.Row{check.Name, check.Verdict, check.Summary})
	}
	rows.Render()
	for _, check := range r.Checks {
		if check.Verdict != verdict.Pass {
			fmt.Fprintf(a.stdout, "\n%s:\n", printable.Line(check.Name))
			for _, detail := range check.Details {
				fmt.Fprintf(a.stdout, "  %s\n", printable.Line(detail))
			}
			if check.Excerpt != "" {
				fmt.Fprintf(a.stdout, "  these packets and their neighbours are in %s\n",
					printable.Line(check.Excerpt))
			}
		}
	}
	if len(r.RestOnTime) > 0 {
		fmt.Fprintf(a.stdout, "\nnote: %s rest on time: PASS holds only if the emulation kept time, which "+
			"the run's report shows and a capture does not\n",
			printable.Line(shortened(r.RestOnTime)))
	}
	fmt.Fprintf(a.stdout, "\n%s\n", r.Verdict)
}
