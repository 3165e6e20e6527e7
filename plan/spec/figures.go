package spec

import (
	"fmt"
	"strings"

	"railbed/internal/printable"
)

// Figure is a result of a workload. A check can bound it or compare it with the same figure of
// another workload. reporting has the list of all figures, from which Figures is made.
type Figure struct {
	Name string
	Unit string // the unit in which it is shown
	// Kind is the kind of its bound. The bus bandwidth has a Comparison instead.
	Kind BoundKind
	// Timed reports whether a host that does not keep up changes the figure.
	Timed bool
	// Falls reports whether a slow host lowers the figure: more of it is better. A slow host raises the
	// others.
	Falls bool
	of    workloadClass
	// Bound and Beside return the bounds that a check sets for the figure, or "". A figure without
	// Beside cannot be compared.
	Bound  func(*WorkloadCheck) string
	Beside func(*Beside) string
}

// workloadClass is a class of workloads that have the same figures. sgd belongs to two classes.
type workloadClass int

const (
	collectiveClass workloadClass = iota
	learningClass
	messagesClass
	trainingClass
	workloadClasses
)

// String returns the name of the class in errors.
func (k workloadClass) String() string {
	return [...]string{"a collective", "kind: " + KindSGD, "a step of messages", "a training job"}[k]
}

// classes returns the classes of the workload with a name, or none if there is no such workload.
func (t *Testbed) classes(name string) (all [workloadClasses]bool) {
	for _, step := range t.Steps {
		if w := step.Workload; w != nil && w.Name == name {
			all[collectiveClass], all[learningClass] = true, w.Kind == KindSGD
		}
	}
	all[messagesClass], all[trainingClass] = t.messages(name) != nil, t.training(name) != nil
	return all
}

// figures checks that the bounds of a check can be parsed and that the workloads have the figures.
func (c *checker) figures(at string, w *WorkloadCheck) {
	if m := c.t.messages(w.Name); w.Attained != "" && m != nil && !m.HasSLO() {
		c.Report(at+".attained", "attained of "+printable.Clip(w.Name)+", which has no slo",
			"add slo: DURATION to its cache or blocks")
	}
	for _, f := range Figures {
		if text := f.Bound(w); text != "" {
			if f.Kind != (BoundKind{}) {
				c.bound(at+"."+f.Name, text, f.Kind)
			} else if _, err := ParseComparison(text); err != nil {
				what, want, _ := strings.Cut(err.Error(), ": want ")
				c.Report(at+"."+f.Name, what, "want "+want)
			}
			c.hasFigure(at, w.Name, f)
		}
		if b := w.Beside; b != nil && f.Beside != nil && f.Beside(b) != "" {
			c.bound(at+".beside."+f.Name, f.Beside(b), BesideBound)
			c.hasFigure(at+".beside", w.Name, f)
			c.hasFigure(at+".beside", b.Workload, f)
		}
	}
}

// hasFigure checks that a workload has a figure.
func (c *checker) hasFigure(at, name string, f Figure) {
	classes := c.t.classes(name)
	if !c.workloads[name] || classes[f.of] {
		return
	}
	var is []string
	var has []string
	for class, so := range classes {
		if !so {
			continue
		}
		is = append(is, workloadClass(class).String())
		for _, other := range Figures {
			if other.of == workloadClass(class) {
				has = append(has, other.Name)
			}
		}
	}
	if len(is) == 0 {
		return // a step that could not be decoded, or a step of a command
	}
	c.ReportKey(at+"."+f.Name, fmt.Sprintf("%s of %s, which is %s and not %s", f.Name, printable.Clip(name),
		strings.Join(is, " and "), f.of), "judge "+strings.Join(has, " or "))
}
