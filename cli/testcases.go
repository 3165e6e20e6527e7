package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"railbed/capture/report"
	"railbed/plan/spec"
	"railbed/scenarios/runner"
	"railbed/scenarios/runner/outdir"
	"railbed/scenarios/runner/suite"
)

// testSuite is the scenarios of a suite.
type testSuite struct {
	cases []suite.Case
	// files has the file of each case, and cells its cell, by the name of the case.
	files map[string]*spec.File
	cells map[string]*spec.Cell
	// matrices has the file of each matrix, by its name.
	matrices map[string]*spec.File
	set      []spec.Setting
	// control is set if the cases run without their treatment.
	control bool
	// over are the files that are passed over, and args the arguments of the command.
	over []suite.PassedOver
	args []string
	// out is the directory of the results.
	out *outdir.Dir
}

// selects reports whether a case of an earlier suite should be in this one: whether the arguments, --filter
// and --set select it. With --shard another part may have it.
func (t *testSuite) selects(c *suite.Case, flags testFlags) bool {
	if flags.shard != "" || flags.filter != "" && !named(flags.filter, c.Name) {
		return false
	}
	for _, value := range c.Cell {
		if slices.ContainsFunc(t.set, func(s spec.Setting) bool {
			return s.Name == value.Name && s.Value != value.Value
		}) {
			return false
		}
	}
	return slices.ContainsFunc(t.args, func(arg string) bool {
		below := caseName(arg)
		return below == "." || below == "" || strings.HasPrefix(c.Name+"/", below+"/") ||
			strings.HasPrefix(c.Name+"/", strings.TrimSuffix(below, filepath.Ext(below))+"/")
	})
}

// cases returns the scenarios of the arguments, in the order of their names and cells. repeated is set if the
// user gave --repeat.
func (a *app) cases(args []string, flags testFlags, repeated bool) (*testSuite, error) {
	if len(args) == 0 {
		args = []string{"."}
	}
	switch {
	case flags.jobs < 1:
		return nil, usage("-j %d: want at least 1", flags.jobs)
	case flags.repeat < 1:
		return nil, usage("--repeat %d: want at least 1", flags.repeat)
	case flags.control && (flags.quick || flags.baseline != ""):
		return nil, usage("--control needs all runs of a claim and no earlier suite: want it without " +
			"--quick and --baseline")
	case (flags.baseline == "") != (len(flags.metrics) == 0):
		return nil, usage("--baseline and --metric go together: want both, or neither")
	}
	files, over, err := allCases(args)
	if err != nil {
		return nil, usage("%w", err)
	}
	t, err := a.expand(files, flags.control)
	if err != nil {
		return nil, err
	}
	t.over, t.args = over, args
	for i, c := range t.cases {
		if f := t.files[c.Name]; flags.quick && f != nil && f.Claim != nil {
			t.cases[i].Repeat = quickRuns
		}
	}
	if repeated {
		for i := range t.cases {
			t.cases[i].Repeat = flags.repeat
		}
	}
	if flags.filter != "" {
		t.cases = slices.DeleteFunc(t.cases, func(c suite.Case) bool { return !named(flags.filter, c.Name) })
	}
	if flags.shard != "" {
		part, of, err := parseShard(flags.shard)
		if err != nil {
			return nil, err
		}
		own := shardOf(t.cases, part, of)
		t.cases = own
	}
	if len(t.cases) == 0 && flags.control {
		return nil, usage("no scenario has a claim or the key control, so there is nothing to run with " +
			"--control")
	}
	if len(t.cases) == 0 {
		a.printPassedOver(t.over)
		return nil, usage("no scenarios: want files that describe a fabric, and a --filter and a --shard " +
			"that select some of them")
	}
	return t, nil
}

// shardOf returns a part of the cases. The cells of a matrix, which are compared, stay together.
func shardOf(cases []suite.Case, part, of int) (own []suite.Case) {
	matrices := map[string]int{}
	next := 0
	for _, c := range cases {
		at, known := matrices[c.Matrix]
		if c.Matrix == "" || !known {
			at = next
			next++
			matrices[c.Matrix] = at
		}
		if at%of == part-1 {
			own = append(own, c)
		}
	}
	return own
}

// quickRuns is the number of runs of each cell of a claim with --quick.
const quickRuns = 2

// expand reads the files and replaces each file with a matrix by its cells. A file with a mistake stays a
// case, whose run reports the mistake. For controls it takes only files with a claim or with controls.
func (a *app) expand(files []suite.Case, control bool) (*testSuite, error) {
	t := &testSuite{files: map[string]*spec.File{}, cells: map[string]*spec.Cell{},
		matrices: map[string]*spec.File{}, control: control}
	var err error
	if t.set, err = a.settings(); err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, c := range files {
		f, err := spec.LoadFile(c.Path)
		if err != nil {
			t.cases = append(t.cases, c)
			continue
		}
		for _, name := range f.Settable() {
			known[name] = true
		}
		if err := setAll(f, settable(f, t.set)); err != nil {
			return nil, err
		}
		if control && f.Claim == nil {
			err = t.addControls(c, f)
		} else {
			err = t.add(c, f)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, s := range t.set {
		if !known[s.Name] {
			return nil, usage("--set %s: no file has this variable or axis", s.Name)
		}
	}
	return t, nil
}

// add adds the cells of a file.
func (t *testSuite) add(c suite.Case, f *spec.File) error {
	if f.Repeat > 0 {
		c.Matrix, c.Repeat = c.Name, f.Repeat
		t.matrices[c.Name] = f
	}
	for i := range f.Cells {
		cell := c
		if c.Matrix != "" {
			cell.Cell = f.Cells[i].Values
			if name := f.Cells[i].String(); name != "" {
				cell.Name += "/" + cellName.Replace(name)
			}
		}
		if err := t.addCell(cell, f, &f.Cells[i]); err != nil {
			return err
		}
	}
	return nil
}

// addControls adds a case for each of the file's controls.
func (t *testSuite) addControls(c suite.Case, f *spec.File) error {
	for _, control := range f.Controls {
		changed, err := spec.LoadFile(c.Path)
		if err != nil {
			return err
		}
		if err := setAll(changed, slices.Concat(settable(changed, t.set), control.Settings())); err != nil {
			return err
		}
		one := c
		one.Control = control.String()
		one.Name += "/" + cellName.Replace(one.Control)
		if err := t.addCell(one, changed, &changed.Cells[0]); err != nil {
			return err
		}
	}
	return nil
}

func (t *testSuite) addCell(c suite.Case, f *spec.File, cell *spec.Cell) error {
	if t.cells[c.Name] != nil {
		return usage("two scenarios are called %s; rename a file, or change a value of an axis", c.Name)
	}
	t.files[c.Name], t.cells[c.Name] = f, cell
	t.cases = append(t.cases, c)
	return nil
}

// cellName makes a cell's name a part of a case's name, which names a directory. A value has no control
// characters and no commas.
var cellName = strings.NewReplacer(", ", ",", "/", "%2F")

// runDir matches an element of a case's name that is the name of a run's directory.
var runDir = regexp.MustCompile(`(^|/)run-[0-9]+(/|$)`)

// allCases returns the scenarios of the arguments, and the files below directories that it passes over. A
// file that several arguments name is one case.
func allCases(args []string) (cases []suite.Case, over []suite.PassedOver, err error) {
	of := map[string]string{} // path by name
	seen := map[string]bool{}
	for _, arg := range args {
		found, err := scenarioFiles(arg)
		if err != nil {
			return nil, nil, err
		}
		over = append(over, found.over...)
		for _, file := range found.files {
			path, err := filepath.Abs(file)
			if err != nil {
				return nil, nil, err
			}
			name := caseName(strings.TrimSuffix(file, filepath.Ext(file)))
			switch {
			case seen[path]:
				continue
			case of[name] != "":
				return nil, nil, fmt.Errorf("%s and %s are both called %s; rename one", of[name], file, name)
			case !filepath.IsLocal(name) || name == "." || strings.HasSuffix(name, "/") ||
				runDir.MatchString(name):
				return nil, nil, fmt.Errorf("%s: %q cannot be the name of a scenario; rename the file",
					file, name)
			}
			seen[path], of[name] = true, file
			cases = append(cases, suite.Case{Name: name, Path: file})
		}
	}
	slices.SortFunc(cases, func(x, y suite.Case) int { return strings.Compare(x.Name, y.Name) })
	slices.SortFunc(over, func(x, y suite.PassedOver) int { return strings.Compare(x.Path, y.Path) })
	return cases, slices.Compact(over), nil
}

// caseName returns the name of the scenario with a path.
func caseName(path string) string {
	return strings.TrimLeft(strings.ReplaceAll(filepath.ToSlash(filepath.Clean(path)), "../", ""), "/")
}

// named reports whether a pattern is a part of a name, or a glob that matches the name or its last elements.
func named(pattern, name string) bool {
	if !strings.ContainsAny(pattern, "*?[") {
		return strings.Contains(name, pattern)
	}
	for rest := name; ; {
		if matched, err := path.Match(pattern, rest); err == nil && matched {
			return true
		}
		_, after, more := strings.Cut(rest, "/")
		if !more {
			return false
		}
		rest = after
	}
}

func parseShard(text string) (part, of int, err error) {
	first, second, _ := strings.Cut(text, "/")
	part, err = strconv.Atoi(first)
	of, err2 := strconv.Atoi(second)
	if err != nil || err2 != nil || part < 1 || part > of {
		return 0, 0, usage("--shard %q: want a part and a number of parts, such as 1/4", text)
	}
	return part, of, nil
}

// options reads the testbed of a case's repetition.
func (t *testSuite) options(c suite.Case, repetition int, out string) (runner.Options, error) {
	f, cell := t.files[c.Name], t.cells[c.Name]
	if f == nil { // it has a mistake, unless somebody mended it
		var err error
		if f, err = spec.LoadFile(c.Path); err != nil {
			return runner.Options{}, err
		}
		if cell, err = f.Only(); err != nil {
			return runner.Options{}, err
		}
	}
	flags := runFlags{path: c.Path, out: out}
	if c.Matrix != "" {
		flags.repetition = repetition
	}
	if t.control {
		cell, flags.control = f.Control(cell), f.Claim
	}
	settings := slices.DeleteFunc(settable(f, t.set), func(s spec.Setting) bool {
		return slices.ContainsFunc(cell.Values, func(of spec.Setting) bool { return of.Name == s.Name })
	})
	return cellOptions(f, cell, slices.Concat(cell.Values, settings), flags)
}

// identify sets the content of each case.
func (t *testSuite) identify() {
	for i := range t.cases {
		o, err := t.options(t.cases[i], 1, "")
		if err != nil {
			continue
		}
		if text, err := spec.Marshal(o.File); err == nil {
			hash := sha256.Sum256(fmt.Appendf(text, "# railbed %s\n", version))
			t.cases[i].Content = hex.EncodeToString(hash[:])
		}
	}
}

// run makes a run of a case. For an invalid file it returns an error and no report.
func (t *testSuite) run(ctx context.Context, c suite.Case, repetition int, out string,
	names *turns) (*report.Report, error) {
	o, err := t.options(c, repetition, out)
	if err != nil {
		return nil, err
	}
	// A testbed's name decides about its addresses and paths, so it stays: files of one name take turns.
	defer names.take(o.Plan.Name)()
	o.Below = t.out
	made, err := runner.Run(ctx, o)
	if made != nil && made.Finished.IsZero() {
		made = nil
	}
	return made, err
}
