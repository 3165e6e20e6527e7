package spec

import (
	"fmt"
	"strings"
)

// WorkloadCheck judges a workload's own results.
type WorkloadCheck struct {
	// Name is the workload's name.
	Name string `yaml:"name" json:"name"`
	// Correct requires that every element of every rank's result is right. For sgd it requires that all
	// ranks have the same weights after each iteration. Default false.
	Correct bool `yaml:"correct,omitempty" json:"correct,omitempty"`
	// BusBW bounds the bus bandwidth, such as ">= 600 Mbit/s". Default: not judged.
	BusBW string `yaml:"busbw,omitempty" json:"busbw,omitempty" unit:"rate"`
	// P50 bounds the median of the times of a messages step, such as "<= 5ms". A time starts when a
	// message was due, or for cache when a request came, and ends when all of it had arrived. Default:
	// not judged.
	P50 string `yaml:"p50,omitempty" json:"p50,omitempty" unit:"duration"`
	// P99 bounds the 99th percentile of the times of a messages step. Default: not judged.
	P99 string `yaml:"p99,omitempty" json:"p99,omitempty" unit:"duration"`
	// Most bounds the longest of the times of a messages step. Default: not judged.
	Most string `yaml:"most,omitempty" json:"most,omitempty" unit:"duration"`
	// Attained bounds the share of the requests of cache, or of the blocks, that met their slo, such as
	// ">= 90%". Default: not judged.
	Attained string `yaml:"attained,omitempty" json:"attained,omitempty" unit:"share"`
	// Loss bounds the loss of sgd at the end, such as "<= 0.5" nats. It is measured over samples on
	// which no rank has trained. Default: not judged.
	Loss string `yaml:"loss,omitempty" json:"loss,omitempty" unit:"nats"`
	// Accuracy bounds the share of samples that sgd classifies correctly, such as ">= 85%". The samples
	// are the same as for loss. Default: not judged.
	Accuracy string `yaml:"accuracy,omitempty" json:"accuracy,omitempty" unit:"share"`
	// Iteration bounds the median time of a training job's iterations, such as "<= 500ms". Default: not
	// judged.
	Iteration string `yaml:"iteration,omitempty" json:"iteration,omitempty" unit:"duration"`
	// Exposed bounds the share of time in which a rank did not compute while bytes were in flight, such
	// as "<= 40%". It is the mean over the job's ranks. Default: not judged.
	Exposed string `yaml:"exposed,omitempty" json:"exposed,omitempty" unit:"share"`
	// Utilisation bounds the share of time in which the ranks computed, such as ">= 30%". Default: not
	// judged.
	Utilisation string `yaml:"utilisation,omitempty" json:"utilisation,omitempty" unit:"share"`
	// Beside compares the workload with another workload of the file. Default none.
	Beside *Beside `yaml:"beside,omitempty" json:"beside,omitempty"`
}

// Beside compares a workload with another workload. Each bound is a share of the other workload's
// figure.
type Beside struct {
	// Workload is the name of the other workload.
	Workload string `yaml:"workload" json:"workload"`
	// BusBW bounds the bus bandwidth as a share of the other workload's, such as ">= 90%". Default: not
	// judged.
	BusBW string `yaml:"busbw,omitempty" json:"busbw,omitempty" unit:"share"`
	// Loss bounds the loss as a share of the other workload's, such as "<= 110%". Default: not judged.
	Loss string `yaml:"loss,omitempty" json:"loss,omitempty" unit:"share"`
	// P50 bounds the median as a share of the other workload's, such as "<= 80%". Default: not judged.
	P50 string `yaml:"p50,omitempty" json:"p50,omitempty" unit:"share"`
	// P99 bounds the 99th percentile as a share of the other workload's. Default: not judged.
	P99 string `yaml:"p99,omitempty" json:"p99,omitempty" unit:"share"`
	// Most bounds the longest time as a share of the other workload's. Default: not judged.
	Most string `yaml:"most,omitempty" json:"most,omitempty" unit:"share"`
	// Iteration bounds the median iteration as a share of the other training job's, such as "<= 80%".
	// Default: not judged.
	Iteration string `yaml:"iteration,omitempty" json:"iteration,omitempty" unit:"share"`
	// Exposed bounds the exposed share as a share of the other training job's. Default: not judged.
	Exposed string `yaml:"exposed,omitempty" json:"exposed,omitempty" unit:"share"`
	// Utilisation bounds the utilisation as a share of the other training job's. Default: not judged.
	Utilisation string `yaml:"utilisation,omitempty" json:"utilisation,omitempty" unit:"share"`
}

// Figure is a result of a workload. A check can bound it or compare it with the same figure of
// another workload.
type Figure struct {
	Name string
	Unit string // the unit in which it is shown
	// Kind is the kind of its bound. The bus bandwidth has a Comparison instead.
	Kind BoundKind
	// Timed reports whether a host that does not keep up changes the figure.
	Timed bool
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

// Figures lists all figures.
var Figures = []Figure{
	{"busbw", "Mbit/s", BoundKind{}, true, collectiveClass, func(w *WorkloadCheck) string { return w.BusBW },
		func(b *Beside) string { return b.BusBW }},
	{"loss", "nats", NumberBound, false, learningClass, func(w *WorkloadCheck) string { return w.Loss },
		func(b *Beside) string { return b.Loss }},
	{"accuracy", "%", ShareBound, false, learningClass, func(w *WorkloadCheck) string { return w.Accuracy },
		nil},
	{"p50", "ms", DurationBound, true, messagesClass, func(w *WorkloadCheck) string { return w.P50 },
		func(b *Beside) string { return b.P50 }},
	{"p99", "ms", DurationBound, true, messagesClass, func(w *WorkloadCheck) string { return w.P99 },
		func(b *Beside) string { return b.P99 }},
	{"most", "ms", DurationBound, true, messagesClass, func(w *WorkloadCheck) string { return w.Most },
		func(b *Beside) string { return b.Most }},
	{"attained", "%", ShareBound, true, messagesClass, func(w *WorkloadCheck) string { return w.Attained },
		nil},
	{"iteration", "ms", DurationBound, true, trainingClass, func(w *WorkloadCheck) string {
		return w.Iteration
	}, func(b *Beside) string { return b.Iteration }},
	{"exposed", "%", ShareBound, true, trainingClass, func(w *WorkloadCheck) string { return w.Exposed },
		func(b *Beside) string { return b.Exposed }},
	{"utilisation", "%", ShareBound, true, trainingClass, func(w *WorkloadCheck) string {
		return w.Utilisation
	}, func(b *Beside) string { return b.Utilisation }},
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
		c.report(at+".attained", "attained of "+clipped(w.Name)+", which has no slo",
			"add slo: DURATION to its cache or blocks")
	}
	for _, f := range Figures {
		if text := f.Bound(w); text != "" {
			if f.Kind != (BoundKind{}) {
				c.bound(at+"."+f.Name, text, f.Kind)
			} else if _, err := ParseComparison(text); err != nil {
				what, want, _ := strings.Cut(err.Error(), ": want ")
				c.report(at+"."+f.Name, what, "want "+want)
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
	c.reportKey(at+"."+f.Name, fmt.Sprintf("%s of %s, which is %s and not %s", f.Name, clipped(name),
		strings.Join(is, " and "), f.of), "judge "+strings.Join(has, " or "))
}
