package spec

import (
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"

	"railbed/internal/nearest"
	"railbed/internal/printable"
	"railbed/internal/strictyaml"
)

// workloadRole is the key that names a workload in place of the values of a cell.
const workloadRole = "workload"

// Claim is a claim of a publication, which the comparisons of the file prove. `railbed test --control` runs
// the baseline in place of the treatment, and the comparisons must not all pass.
type Claim struct {
	// System is the published system, such as "DCQCN".
	System string `yaml:"system" json:"system"`
	// Source is the publication: its title, its venue and the year.
	Source string `yaml:"source" json:"source"`
	// Published is the published result, as it was published.
	Published string `yaml:"published" json:"published"`
	// Holds is the result that the comparisons demand in its place, with the reason of the difference.
	Holds string `yaml:"holds" json:"holds"`
	// Baseline has the values of the cell without the system. For two workloads of one run it names a
	// workload, as in {workload: fixed}.
	Baseline map[string]string `yaml:"baseline" json:"baseline" scalar:"any"`
	// Treatment has the values of the cell with the system, or names the workload with it.
	Treatment map[string]string `yaml:"treatment" json:"treatment" scalar:"any"`
}

// Lines describe the claim for people.
func (c *Claim) Lines() []string {
	return []string{"claim: " + c.System + ", from " + c.Source, "published: " + c.Published,
		"here: " + c.Holds}
}

// Control has values of variables that take the treatment out of a file.
type Control map[string]string

// String lists the values: "encrypt=false".
func (c Control) String() string { return Cell{Values: c.Settings()}.String() }

// readClaim reads the key claim.
func (f *file) readClaim(key, node *yaml.Node) {
	if f.Repeat == 0 {
		f.Fail(key, claimKey, "claim without a matrix",
			"add a matrix with the baseline and the treatment, or of one cell with repetitions")
		return
	}
	holder := struct {
		Claim Claim `yaml:"claim"`
	}{}
	c := f.decodeKey(claimKey, node, &holder, &holder.Claim)
	claim := &holder.Claim
	roles := map[string]map[string]string{"baseline": claim.Baseline, "treatment": claim.Treatment}
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		at := strictyaml.FieldPath(claimKey, role)
		if len(roles[role]) == 0 && f.Source.Has(at) {
			c.Report(at, role+" is empty", "write values of axes, or {workload: NAME}")
		}
		for name, value := range roles[role] {
			path := strictyaml.EntryPath(at, name)
			switch {
			case name != workloadRole:
				f.cellValue(c, path, name, value)
			case find(f.axes, name) != nil:
				c.ReportKey(path, "an axis is called workload, which names a workload here",
					"rename the axis")
			}
		}
	}
	if len(claim.Baseline) > 0 && len(claim.Treatment) > 0 && len(c.Problems) == 0 {
		names := func(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
		switch {
		case !slices.Equal(names(claim.Baseline), names(claim.Treatment)):
			c.Report(claimKey, "baseline and treatment have different keys", "give both the same keys")
		case maps.Equal(claim.Baseline, claim.Treatment):
			c.Report(claimKey, "baseline and treatment are the same", "give them different values")
		}
	}
	if len(c.Problems) == 0 {
		f.Claim = claim
		for i := range f.Cells {
			if cell := &f.Cells[i]; cell.has(claim.Treatment) &&
				f.changed(cell, claim.Baseline) < 0 {
				c.Report(claimKey, "no cell is the baseline of cell "+cell.String(),
					"exclude this cell, too, or neither")
				break
			}
		}
	}
	f.Problems = append(f.Problems, c.Problems...)
}

// takeRoles gives a comparison the baseline and the treatment of the claim, unless it names cells itself.
func (c *Compare) takeRoles(claim *Claim) {
	treatment, baseline := maps.Clone(claim.Treatment), maps.Clone(claim.Baseline)
	if name := treatment[workloadRole]; name != "" && (c.Of == "" || c.Of == name) && c.BesideOf == "" {
		c.Of, c.BesideOf = name, baseline[workloadRole]
	}
	delete(treatment, workloadRole)
	delete(baseline, workloadRole)
	if len(c.Beside) > 0 || len(treatment) == 0 {
		return
	}
	maps.Copy(treatment, c.Cells)
	c.Cells, c.Beside = treatment, baseline
}

// Compared reports whether a comparison of two cells is one of the treatment and the baseline. A file without
// a claim has none.
func (c *Claim) Compared(check *Compare, own, other []Setting) bool {
	if c == nil {
		return false
	}
	workload, beside := c.Treatment[workloadRole], c.Baseline[workloadRole]
	if workload != "" && (check.Of != workload || check.BesideOf != beside) {
		return false
	}
	return Cell{Values: own}.has(c.Treatment) && Cell{Values: other}.has(c.Baseline)
}

// Control returns the cell whose testbed the control runs in place of the given cell: the baseline of a cell
// with the treatment, and otherwise the same cell.
func (f *File) Control(cell *Cell) *Cell {
	if f.Claim == nil || !cell.has(f.Claim.Treatment) {
		return cell
	}
	return &f.Cells[f.changed(cell, f.Claim.Baseline)] // readClaim has found it
}

// Replace puts the baseline's step in place of the treatment's, if the claim is about two steps of one run.
// The step keeps the name of the treatment's. An error means that the testbed has no such steps.
func (c *Claim) Replace(t *Testbed) error {
	name, other := c.Treatment[workloadRole], c.Baseline[workloadRole]
	if name == "" {
		return nil
	}
	with, without := t.named(name), t.named(other)
	switch {
	case with == nil || without == nil:
		return fmt.Errorf("%s: the claim is about %q and %q: want the names of two steps", t.Name, name,
			other)
	case replaceAction(&with.Workload, without.Workload), replaceAction(&with.Training, without.Training),
		replaceAction(&with.Messages, without.Messages), replaceAction(&with.Stack, without.Stack):
	default:
		return fmt.Errorf("%s: the claim is about %s and %s: want two workloads, trainings, messages or "+
			"stacks",
			t.Name, name, other)
	}
	with.rename(name)
	return nil
}

// replaceAction replaces an action by a copy of another one of its kind, if both are there.
func replaceAction[T any](with **T, without *T) bool {
	if *with == nil || without == nil {
		return false
	}
	changed := *without
	*with = &changed
	return true
}

// rename gives another name to a step that a claim can be about.
func (s *Step) rename(name string) {
	switch {
	case s.Workload != nil:
		s.Workload.Name = name
	case s.Training != nil:
		s.Training.Name = name
	case s.Messages != nil:
		s.Messages.Name = name
	case s.Stack != nil:
		s.Stack.Name = name
	}
}

// named returns the step with a name, or nil.
func (t *Testbed) named(name string) *Step {
	if i := slices.IndexFunc(t.Steps, func(s Step) bool { return s.Traits().Name == name }); i >= 0 {
		return &t.Steps[i]
	}
	return nil
}

// Settings returns the values in the order of their names.
func (c Control) Settings() (all []Setting) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		all = append(all, Setting{name, c[name]})
	}
	return all
}

// compared reports whether a comparison is about the claim.
func (f *File) compared() bool {
	return slices.ContainsFunc(f.Compare, func(c Compare) bool {
		return slices.ContainsFunc(c.Pairs, func(pair [2]*Cell) bool {
			return f.Claim.Compared(&c, pair[0].Values, pair[1].Values)
		})
	})
}

// readControls reads the key control.
func (f *file) readControls(key, node *yaml.Node) {
	if f.Repeat > 0 {
		f.Fail(key, controlKey, "control beside a matrix",
			"remove one; the control of a claim runs the baseline in place of the treatment")
		return
	}
	holder := struct {
		Control []Control `yaml:"control" scalar:"any"`
	}{}
	c := f.decodeKey(controlKey, node, &holder, &holder.Control)
	for i, one := range holder.Control {
		at := fmt.Sprintf("%s[%d]", controlKey, i)
		if len(one) == 0 {
			c.Report(at, at+" changes nothing", "write values of variables, as in {encrypt: false}")
		} else if slices.ContainsFunc(holder.Control[:i], func(earlier Control) bool {
			return maps.Equal(earlier, one)
		}) {
			c.Report(at, "control "+one.String()+" appears twice", "remove one")
		}
		for _, name := range slices.Sorted(maps.Keys(one)) {
			path := strictyaml.EntryPath(at, name)
			if v := find(f.variables, name); v == nil {
				_, hint := nearest.Suggest(name, namesOf(f.variables))
				c.ReportKey(path, fmt.Sprintf("%q is no variable", printable.Clip(name)), hint)
			} else if v.value.Value == one[name] {
				c.Report(path, fmt.Sprintf("%s is %s anyway", name, printable.Clip(one[name])),
					"write a value that takes the treatment away")
			}
		}
	}
	f.Problems = append(f.Problems, c.Problems...)
	f.Controls = holder.Control
}

// decodeKey decodes the value of a key of the file into a field of holder, and checks the tags.
func (f *file) decodeKey(key string, node *yaml.Node, holder, field any) *checker {
	values := map[string]*yaml.Node{}
	for _, v := range f.variables {
		values[v.name] = v.value
	}
	replace(f.Decoder, node, values, func(*yaml.Node, reference) {})
	f.Decoder.Decode(node, key, field)
	c := newChecker(&Testbed{Source: f.Source}, f.Wrong)
	c.Tags("", holder)
	return c
}
