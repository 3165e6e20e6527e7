package spec

import (
	"fmt"
	"strings"
)

// WorkloadCheck judges a workload's own results.
type WorkloadCheck struct {
	// Name is the workload's.
	Name string `yaml:"name" json:"name"`
	// Correct requires every element of every rank's result to be right; of sgd, all
	// ranks to have the same weights after each iteration.
	Correct bool `yaml:"correct,omitempty" json:"correct,omitempty"`
	// BusBW is a comparison such as ">= 600 Mbit/s".
	BusBW string `yaml:"busbw,omitempty" json:"busbw,omitempty"`
	// P50 is the median of the times of a messages step, such as "<= 5ms": from when a
	// message was due, of a cache from when a request came, until all of it had arrived.
	P50 string `yaml:"p50,omitempty" json:"p50,omitempty"`
	// P99 is what 99 of 100 took at most.
	P99 string `yaml:"p99,omitempty" json:"p99,omitempty"`
	// Most is what all of them took at most.
	Most string `yaml:"most,omitempty" json:"most,omitempty"`
	// Attained is the share of the requests of caches, or of blocks, that had what their slo
	// asks, such as ">= 90%".
	Attained string `yaml:"attained,omitempty" json:"attained,omitempty"`
	// Loss is that of sgd at the end, over samples that no rank has learnt from, such as
	// "<= 0.5" nats.
	Loss string `yaml:"loss,omitempty" json:"loss,omitempty"`
	// Accuracy is the share of them that is right, such as ">= 85%".
	Accuracy string `yaml:"accuracy,omitempty" json:"accuracy,omitempty"`
	// Iteration is the median of a training job's iterations, such as "<= 500ms".
	Iteration string `yaml:"iteration,omitempty" json:"iteration,omitempty"`
	// Exposed is the share of time, in the mean of the job's ranks, in which they did not
	// compute while bytes were under way, such as "<= 40%".
	Exposed string `yaml:"exposed,omitempty" json:"exposed,omitempty"`
	// Utilisation is the share in which they computed, such as ">= 30%".
	Utilisation string `yaml:"utilisation,omitempty" json:"utilisation,omitempty"`
	// Beside compares with another workload of the file.
	Beside *Beside `yaml:"beside,omitempty" json:"beside,omitempty"`
}

// Beside compares a workload with another one.
type Beside struct {
	// Workload is the other one.
	Workload string `yaml:"workload" json:"workload"`
	// BusBW is of the other one's, such as ">= 90%".
	BusBW string `yaml:"busbw,omitempty" json:"busbw,omitempty"`
	// Loss is of the other one's, such as "<= 110%".
	Loss string `yaml:"loss,omitempty" json:"loss,omitempty"`
	// P50 is of the other one's median, such as "<= 80%".
	P50 string `yaml:"p50,omitempty" json:"p50,omitempty"`
	// P99 is of what 99 of 100 of the other one's took at most.
	P99 string `yaml:"p99,omitempty" json:"p99,omitempty"`
	// Most is of what all of the other one's took at most.
	Most string `yaml:"most,omitempty" json:"most,omitempty"`
	// Iteration is of the other training job's median iteration, such as "<= 80%".
	Iteration string `yaml:"iteration,omitempty" json:"iteration,omitempty"`
	// Exposed is of the other training job's exposed share.
	Exposed string `yaml:"exposed,omitempty" json:"exposed,omitempty"`
	// Utilisation is of the other training job's utilisation.
	Utilisation string `yaml:"utilisation,omitempty" json:"utilisation,omitempty"`
}

// Figure is a number that a workload comes to, which a check bounds or compares with
// another workload's.
type Figure struct {
	Name string
	Unit string // in which it is shown
	// Kind is that of its bound; the bandwidth's is a Comparison.
	Kind BoundKind
	// Timed says that a host which does not keep up changes it.
	Timed bool
	of    workloadClass
	// Bound and Beside are what a check asks of it, empty where it asks nothing. One
	// without Beside is compared with none.
	Bound  func(*WorkloadCheck) string
	Beside func(*Beside) string
}

// workloadClass is what a workload is, as far as figures are concerned. sgd is two.
type workloadClass int

const (
	collectiveClass workloadClass = iota
	learningClass
	messagesClass
	trainingClass
	workloadClasses
)

// String is what an error calls a workload of the class.
func (k workloadClass) String() string {
	return [...]string{"a collective", "kind: " + KindSGD, "a step of messages", "a training job"}[k]
}

// Figures are all that there are.
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

// classes are those of the workload with a name; none where there is no such workload.
func (t *Testbed) classes(name string) (all [workloadClasses]bool) {
	for _, step := range t.Steps {
		if w := step.Workload; w != nil && w.Name == name {
			all[collectiveClass], all[learningClass] = true, w.Kind == KindSGD
		}
	}
	all[messagesClass], all[trainingClass] = t.messages(name) != nil, t.training(name) != nil
	return all
}

// figures checks what a check asks of figures: that it can be read, and that the workloads
// have them.
func (c *checker) figures(at string, w *WorkloadCheck) {
	if m := c.t.messages(w.Name); w.Attained != "" && m != nil && !m.HasSLO() {
		c.report(at+".attained", "attained of "+clipped(w.Name)+", which has no slo",
			"add slo: a duration to its cache or blocks")
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
		return // a step that could not be decoded, or of a command
	}
	c.reportKey(at+"."+f.Name, fmt.Sprintf("%s of %s, which is %s and not %s", f.Name, clipped(name),
		strings.Join(is, " and "), f.of), "judge "+strings.Join(has, " or "))
}
