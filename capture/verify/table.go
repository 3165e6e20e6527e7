package verify

import (
	"fmt"
	"slices"
	"strings"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	_ "railbed/capture/verify/fabricchecks" // each package of checks registers its checks
	_ "railbed/capture/verify/ranks"
	_ "railbed/capture/verify/rdchecks"
	_ "railbed/capture/verify/rocechecks"
	_ "railbed/capture/verify/rules"
	"railbed/plan/spec"
)

// kinds are the checks that files, "railbed run" and "railbed verify" know, in the order of
// spec.PacketsCheck. The file of each check registered it.
var kinds = evidence.Kinds()

// Timed reports whether the verdict of a packet check depends on faithful time.
func Timed(p *spec.PacketsCheck) bool {
	k, known := kindOf(p)
	name, _ := p.Limited()
	return !known || name != "" || k.Timed == nil || k.Timed(p)
}

// Prove examines whether a check of packets, at a path of the file, can get the evidence that it needs.
func Prove(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	if k, known := kindOf(p); known {
		l.Check(path, p, k.Conditions)
	}
}

// kindOf returns the kind of a check of which exactly one field is set.
func kindOf(p *spec.PacketsCheck) (evidence.Kind, bool) {
	key := p.Kind()
	i := slices.IndexFunc(kinds, func(k evidence.Kind) bool { return k.Key == key })
	if i < 0 {
		return evidence.Kind{}, false
	}
	return kinds[i], true
}

// New makes the check that a file asks for. It returns the error of Sources.Traffic, which not all
// checks call.
func New(p *spec.PacketsCheck, s Sources) (Check, error) {
	k, known := kindOf(p)
	if !known {
		return nil, fmt.Errorf("check of packets: unknown kind %q", p.Kind())
	}
	check, err := k.Make(p, s)
	if err != nil {
		return nil, err
	}
	name, outside := p.Limited()
	if name == "" {
		return check, nil
	}
	if s.Active == nil {
		return nil, fmt.Errorf("%s: the times of steps and faults are in the results of a run: "+
			"name the directory of a run, or its bundle", p.TimeWords())
	}
	active, never, err := s.Active(name)
	if err != nil {
		return nil, err
	}
	return evidence.Limited(check, evidence.NewTimes(p.TimeWords(), outside, active, never)), nil
}

// Title returns the name of a check in reports: its key, and the names and words that it is about.
func Title(p *spec.PacketsCheck) string {
	title := p.Kind()
	if title == "" {
		return "packets"
	}
	if p.Rule != nil {
		title += " " + p.Rule.Title()
	}
	for _, n := range p.Names() {
		if p.Rule == nil && !n.Listed && n.Text != "" {
			title += " " + n.Text
		}
	}
	if name, _ := p.Limited(); name != "" {
		title += " " + p.TimeWords()
	}
	return title
}

// Examples returns one check of each kind, in the syntax of a file.
func Examples() []string {
	var examples []string
	for _, k := range kinds {
		examples = append(examples, strings.TrimSpace(k.Key+": "+k.Example))
	}
	return examples
}
