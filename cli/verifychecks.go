package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/capture/verify/ranks"
	"railbed/capture/verify/rules"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
)

// writtenCheck is a check of packets in the words of files, with the positions of these words.
type writtenCheck struct {
	check  *spec.PacketsCheck
	source *spec.Source
	path   string // of the check in the source
	where  string // the flag or the file and the position
}

// namedChecks makes checks from texts in the words of files, and from a file of rules. The workload,
// the plan and the report of the run are nil if they are unknown.
func namedChecks(texts []string, rulesFile string, w *verify.Workload, p *plan.Plan,
	ran *report.Report) ([]titled, error) {
	var workloads []string
	if w != nil {
		workloads = []string{w.Name}
	}
	written, err := parseChecks(texts, workloads)
	if err == nil && rulesFile != "" {
		var more []writtenCheck
		more, err = readRules(rulesFile, workloads)
		written = append(written, more...)
	}
	if err != nil {
		return nil, usage("%w", err)
	}
	sources := workloadSources(w)
	if ran != nil {
		sources.Active = func(name string) ([]verify.Active, string, error) {
			return verify.ActiveIn(ran, name)
		}
	}
	var checks []titled
	for _, asked := range written {
		if p != nil {
			err = p.CheckWords(asked.source, asked.path, asked.check)
		}
		if err == nil && asked.check.Rule != nil {
			err = rules.Check(asked.source, asked.path+".rule", asked.check.Rule, rules.Names(p, nil))
		}
		if err != nil {
			return nil, usage("%w", err)
		}
		check, err := verify.New(asked.check, sources)
		if err != nil {
			return nil, usage("%s: %s: %w", asked.where, asked.check.Kind(), err)
		}
		checks = append(checks, titled{check, verify.Title(asked.check), &asked})
	}
	return checks, nil
}

// parseChecks parses the checks of flags.
func parseChecks(texts, workloads []string) (written []writtenCheck, err error) {
	for i, text := range texts {
		flag := "--check"
		if len(texts) > 1 {
			flag = fmt.Sprintf("--check %d", i+1)
		}
		asked, source, err := spec.ParsePacketsCheck(flag, text, workloads...)
		if err != nil {
			return nil, err
		}
		written = append(written, writtenCheck{asked, source, spec.PacketsPath, flag})
	}
	return written, nil
}

// readRules reads a file of rules.
func readRules(name string, workloads []string) (written []writtenCheck, err error) {
	text, err := spec.ReadText(name)
	if err != nil {
		return nil, err
	}
	asked, source, err := spec.ParseRules(name, text, workloads...)
	for i := range asked {
		path := spec.RulesPath(i)
		written = append(written, writtenCheck{&asked[i], source, path, source.Pos(path).String()})
	}
	return written, err
}

// workloadSources returns what checks need of a workload, which is nil if none is known.
func workloadSources(w *verify.Workload) verify.Sources {
	sources := verify.Sources{Traffic: func(name string) (verify.Workload, error) {
		if w == nil {
			return verify.Workload{}, errors.New(
				"give --workload, the file that says which packets are the workload's")
		}
		return *w, nil
	}}
	sources.Crossing = func(name string) (verify.Crossing, error) {
		w, err := sources.Traffic(name)
		return ranks.CrossingOf(w), err
	}
	sources.Numbers = func(name string) (map[string]float64, error) {
		w, err := sources.Traffic(name)
		return w.Numbers(), err
	}
	return sources
}

// writeOffenders writes the packets that break checks into files of a directory, and names the files in
// the results. An empty name writes nothing.
func writeOffenders(dir string, results []verify.Result) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--offenders: %w", err)
	}
	for i := range results {
		r := &results[i]
		if r.Offenders == nil || !r.Offenders.Kept() || r.Verdict == verdict.Pass {
			continue
		}
		name := filepath.Join(dir, fmt.Sprintf("check-%d.pcapng", i+1))
		if err := writeFile(name, 0, 0o644, func(w io.Writer) error {
			return r.Offenders.WriteExcerpt(w, r.Name)
		}); err != nil {
			return err
		}
		r.Excerpt = name
	}
	return nil
}

// unknownPorts reports names in checks that match no tap of a capture without a plan.
func unknownPorts(checks []titled, capture verify.Summary) error {
	var ports []string
	for _, tap := range capture.Taps {
		if tap.Node != "" {
			ports = append(ports, tap.Name)
		}
	}
	var errs []error
	for _, check := range checks {
		if check.asked != nil {
			errs = append(errs, plan.CheckPorts(ports, check.asked.source, check.asked.path,
				check.asked.check))
		}
	}
	return errors.Join(errs...)
}
