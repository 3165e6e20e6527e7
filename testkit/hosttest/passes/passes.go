// Package passes divides the tests of the module among the passes of make test. It reads the marks of
// package hosttest in the sources, so that neither a test nor a package needs a line in the Makefile.
package passes

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Names are the passes that Divide knows. The pass root has all tests. The pass user has those that root runs
// again as an ordinary user. The pass long has those that RAILBED_SAMPLE, RAILBED_LONG and RAILBED_MOMENTS
// shorten or leave out. The pass userns has short tests with namespaces or testbeds, below the floor of
// workloads: an ordinary user runs them.
var Names = []string{"root", "user", "long", "userns"}

// Run is one run of go test: of some packages the tests in Only, or all but those in Skip.
type Run struct {
	Flags      []string
	Only, Skip []string
	Packages   []string
}

// Args returns the arguments of go test. No argument contains a space.
func (r Run) Args() []string {
	args := slices.Clone(r.Flags)
	if len(r.Only) > 0 {
		args = append(args, "-run="+either(r.Only))
	}
	if len(r.Skip) > 0 {
		args = append(args, "-skip="+either(r.Skip))
	}
	for _, folder := range r.Packages {
		args = append(args, "./"+strings.TrimPrefix(folder, "."))
	}
	return args
}

// Runs reports whether go test runs this test of a package with the arguments.
func (r Run) Runs(folder, test string) bool {
	matches := func(names []string) bool { return regexp.MustCompile(either(names)).MatchString(test) }
	return slices.Contains(r.Packages, folder) &&
		(len(r.Only) == 0 || matches(r.Only)) && (len(r.Skip) == 0 || !matches(r.Skip))
}

func either(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }

// Divide returns the runs of a pass in their order. The flags of runs with the race detector include
// raceFlag, if there is one.
func Divide(packages []Package, pass, raceFlag string) ([]Run, error) {
	var race []string
	if raceFlag != "" {
		race = []string{raceFlag}
	}
	long := func(in selection) selection {
		return func(p Package, t Test) bool { return t.long() && in(p, t) }
	}
	switch pass {
	case "root":
		return slices.Concat(runs(packages, raced, race), runs(packages, unraced, nil)), nil
	case "long":
		return slices.Concat(runs(packages, long(raced), race), runs(packages, long(unraced), nil)), nil
	case "user":
		return runs(packages, asNobody, nil), nil
	case "userns":
		return runs(together(packages), inUserNS, nil), nil
	}
	return nil, fmt.Errorf("unknown pass %q; want one of %s", pass, strings.Join(Names, ", "))
}

// selection reports whether a pass runs a test of a package.
type selection func(Package, Test) bool

func raced(p Package, t Test) bool {
	return t.uses.any("hosttest.Raced") || !unraced(p, t)
}

func unraced(p Package, t Test) bool {
	return p.marks.any("hosttest.Unraced") || t.uses.any("hosttest.Unraced") || t.guest()
}

func asNobody(p Package, t Test) bool {
	return p.marks.any("hosttest.AsNobody") && !t.uses.any("hosttest.NotAsNobody")
}

// together returns the packages without their marks, so that none is tested alone.
func together(packages []Package) []Package {
	unmarked := slices.Clone(packages)
	for i := range unmarked {
		unmarked[i].marks = nil
	}
	return unmarked
}

func inUserNS(p Package, t Test) bool {
	top, _, _ := strings.Cut(p.Folder, "/")
	return slices.Contains([]string{"internal", "transports", "fabric", "nodes", "testbed"}, top) &&
		t.uses.any("hosttest.Netns", "hosttest.InNetns", "hosttest.InUserNS", "hosttest.UserNS",
			"hosttest.Testbed", "porttest.Run", "porttest.Need") &&
		!t.uses.any("hosttest.Root", "browsertest.Open") && !t.guest() && !t.long()
}

// guest reports whether the test runs in a virtual machine, or has nodes there.
func (t Test) guest() bool { return t.uses.any("hosttest.VM", "vmtest.InGuest", "vmtest.Run") }

func (t Test) long() bool {
	return t.uses.any("hosttest.Long", "hosttest.Sampled", "hosttest.FewMoments")
}

// share is a pass's share of the tests of a package.
type share struct {
	selected, others []string
	alone            bool
}

// shareOf divides the package's tests. A guest has processors of its own and so is not tested alone.
func shareOf(p Package, in selection) (s share) {
	for _, t := range p.Tests {
		if !in(p, t) {
			s.others = append(s.others, t.Name)
			continue
		}
		s.selected = append(s.selected, t.Name)
		s.alone = s.alone || p.marks.any("hosttest.Alone") && !t.guest()
	}
	return s
}

// runs returns the runs of the selected tests: first those that are tested two packages at once, then those
// that are tested alone. Packages of which few tests are selected have a run that names these tests. The
// other packages have a run that skips their other tests. The longest packages are at the end of the
// alphabet, and go first.
func runs(packages []Package, in selection, flags []string) []Run {
	var all []Run
	for _, alone := range []bool{false, true} {
		atOnce := "-p=2"
		if alone {
			atOnce = "-p=1"
		}
		most := Run{Flags: append(slices.Clone(flags), atOnce)}
		few := Run{Flags: most.Flags}
		for _, p := range slices.Backward(packages) {
			s := shareOf(p, in)
			switch {
			case len(s.selected) == 0 || s.alone != alone:
			case len(s.selected) < len(s.others):
				few.Packages, few.Only = append(few.Packages, p.Folder), append(few.Only, s.selected...)
			default:
				most.Packages, most.Skip = append(most.Packages, p.Folder), append(most.Skip, s.others...)
			}
		}
		for _, run := range []Run{most, few} {
			if len(run.Packages) > 0 {
				all = append(all, run)
			}
		}
	}
	return all
}
