package cli

import (
	"errors"
	"fmt"

	"railbed/capture/verify"
	"railbed/capture/verify/ranks"
	"railbed/plan"
	"railbed/plan/spec"
)

// writtenCheck is a check of packets in the words of files, with the positions of these words.
type writtenCheck struct {
	check  *spec.PacketsCheck
	source *spec.Source
}

// namedChecks makes checks from texts in the words of files. The workload and the plan are nil if
// they are unknown.
func namedChecks(texts []string, w *verify.Workload, p *plan.Plan) ([]titled, error) {
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
	var workloads []string
	if w != nil {
		workloads = []string{w.Name}
	}
	var checks []titled
	for i, text := range texts {
		flag := "--check"
		if len(texts) > 1 {
			flag = fmt.Sprintf("--check %d", i+1)
		}
		asked, source, err := spec.ParsePacketsCheck(flag, text, workloads...)
		if err == nil && p != nil {
			err = p.CheckWords(source, spec.PacketsPath, asked)
		}
		if err != nil {
			return nil, usage("%w", err)
		}
		check, err := verify.New(asked, sources)
		if err != nil {
			return nil, usage("%s: %s: %w", flag, asked.Kind(), err)
		}
		checks = append(checks, titled{check, verify.Title(asked), &writtenCheck{asked, source}})
	}
	return checks, nil
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
			errs = append(errs, plan.CheckPorts(ports, check.asked.source, spec.PacketsPath,
				check.asked.check))
		}
	}
	return errors.Join(errs...)
}
