package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"railbed/capture/filter"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/testbed/doctor"
	"railbed/workloads/flows"
	"railbed/workloads/worker"
)

// inputs are what the steps of a file do, by step: read from the files that it names, computed
// and proved before anything runs.
type inputs struct {
	trainings  map[int]trainingJob
	schedules  map[int]*flows.Schedule
	rates      map[int]stepRates
	algorithms map[int]*schedule.Schedule // that come from files
}

// readInputs reads and proves them. Its error has every problem as spec.Problems.
func readInputs(o *Options) (in inputs, err error) {
	found := &findings{o: o}
	found.words()
	in.trainings, err = trainings(o)
	found.take(err)
	in.schedules, err = schedules(o)
	found.take(err)
	in.rates, err = offlineRates(o, in.trainings, in.schedules)
	found.take(err)
	in.algorithms, err = workloadAlgorithms(o)
	found.take(err)
	if len(found.problems) == 0 {
		found.jobs(in)
	}
	return in, found.err()
}

// ErrJob is a step that the testbed's ranks cannot do.
var ErrJob = errors.New("step")

// jobs looks at what workers would refuse. That of a switch that adds up exists once the
// testbed is up.
func (f *findings) jobs(in inputs) {
	s := &session{file: f.o.File, plan: f.o.Plan, inputs: in}
	for i, step := range s.file.Steps {
		var job worker.Job
		var err error
		key := "workload"
		switch {
		case step.Workload != nil && step.Workload.Algorithm != spec.InNetwork:
			job, err = s.workloadJob(i, step.Workload)
		case step.Training != nil:
			key, job = "training", s.trainingJob(i, step.Training)
		case step.Messages != nil:
			key, job = "messages", s.messagesJob(i, step.Messages)
		default:
			continue
		}
		if err == nil {
			err = job.Check()
		}
		f.wrong(ErrJob, fmt.Sprintf("steps[%d].%s", i, key), err)
	}
}

// Validate finds what is wrong with a scenario before it runs, as Run does: with the files that
// it names, with the steps that its ranks are to do, and with checks that can never pass. Its
// error has every problem as spec.Problems. Warnings are of checks that will probably not pass,
// and of what containers are made of and is not there yet.
func Validate(o Options) (warnings spec.Problems, err error) {
	found := &findings{o: &o}
	_, err = readInputs(&o)
	found.take(err)
	never, hardly := Provable(o)
	found.problems = append(found.problems, never...)
	return append(hardly, missing(&o)...), found.err()
}

// missing are the files and folders of containers that do not exist. They may be made before
// the run.
func missing(o *Options) (warnings spec.Problems) {
	look := func(path, name string, folder bool) {
		what := "a file"
		if folder {
			what = "a folder"
		}
		info, err := os.Stat(besideFile(o, name))
		if err != nil || info.IsDir() != folder {
			warnings = append(warnings, o.File.Source.Problem(path,
				fmt.Sprintf("%s is not there, or not %s", besideFile(o, name), what),
				"make it before the run"))
		}
	}
	for _, entry := range o.File.Nodes {
		at := fmt.Sprintf("nodes[%q]", entry.Key)
		if build := entry.Value.Build; build != "" {
			look(at+".build", build, true)
		}
		if archive := entry.Value.RootFS; archive != "" {
			look(at+".rootfs", archive, false)
		}
	}
	return warnings
}

// findings are problems with a file, and what kinds they are of.
type findings struct {
	o        *Options
	problems spec.Problems
	kinds    []error
}

// Error implements error.
func (f *findings) Error() string { return f.problems.Error() }

// Unwrap has the problems and their kinds.
func (f *findings) Unwrap() []error { return append([]error{f.problems}, f.kinds...) }

// err is nil where there is none.
func (f *findings) err() error {
	sorted, _ := f.problems.Err().(spec.Problems)
	if sorted == nil {
		return nil
	}
	f.problems = sorted
	return f
}

// wrong notes an error with the value of a path, or with the file that a key below the path
// names. The text of an error about a file's content begins with the place there.
func (f *findings) wrong(kind error, path string, err error) {
	if err == nil {
		return
	}
	var file *fileError
	if errors.As(err, &file) {
		path = strings.TrimSuffix(path, "."+file.key) + "." + file.key
	}
	for line := range strings.Lines(err.Error()) {
		f.problems = append(f.problems,
			f.o.File.Source.Problem(path, fmt.Sprintf("%v: %s", kind, strings.TrimSuffix(line, "\n")), ""))
	}
	f.kinds = append(f.kinds, kind)
}

// take takes over the findings of another error.
func (f *findings) take(err error) {
	var other *findings
	if errors.As(err, &other) {
		f.problems, f.kinds = append(f.problems, other.problems...), append(f.kinds, other.kinds...)
	}
}

// ErrWord is a word of a file that names nothing.
var ErrWord = errors.New("no such word")

// words looks at what the packages below the engine know the names of.
func (f *findings) words() {
	for i, feature := range f.o.File.Requires {
		if !slices.Contains(doctor.Features(), feature) {
			f.wrong(ErrWord, fmt.Sprintf("requires[%d]", i),
				fmt.Errorf("feature %q: want one of %s", feature, strings.Join(doctor.Features(), ", ")))
		}
	}
	for i, step := range f.o.File.Steps {
		if step.Capture != nil {
			_, err := filter.Compile(step.Capture.Filter, int(step.Capture.SnapLen))
			f.wrong(ErrWord, fmt.Sprintf("steps[%d].capture.filter", i), err)
		}
	}
}

// fileError is an error with a file that a key of the file names.
type fileError struct {
	key string // such as rd.rates, below the step's
	error
}

func (e *fileError) Unwrap() error { return e.error }

// inFile says which key names the file that an error is about.
func inFile(key string, err error) error {
	if err == nil {
		return nil
	}
	return &fileError{key, err}
}

// mostInput bounds the files that steps name, in bytes.
const mostInput = 64 << 20

// read reads a file that a key of the file names, relative to it.
func (o *Options) read(key, name string) (path string, text []byte, err error) {
	path = besideFile(o, name)
	if text, err = spec.ReadRegular(path, mostInput); err != nil {
		return path, nil, inFile(key, fmt.Errorf("%s %w", path, err))
	}
	return path, text, nil
}

// besideFile is a path that a file names, relative to it.
func besideFile(o *Options, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(o.Path), name)
}
