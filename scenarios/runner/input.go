package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"railbed/capture/verify/rules"
	"railbed/internal/input"
	"railbed/internal/nearest"
	"railbed/plan/spec"
	"railbed/testbed/doctor"
)

// prepare makes the file's steps. Its error has every problem as spec.Problems.
func prepare(o *Options) ([]step, error) {
	p := &preparation{findings: &findings{o: o}}
	p.words()
	p.rules()
	steps := p.steps()
	if len(p.problems) == 0 {
		p.jobs(steps)
	}
	return steps, p.err()
}

// ErrJob is the error of a step that the testbed's ranks cannot do.
var ErrJob = errors.New("step")

// jobs finds jobs that the workers would refuse. It skips in-network jobs: their aggregator is
// chosen only when the testbed is up.
func (f *findings) jobs(steps []step) {
	s := &session{file: f.o.File, plan: f.o.Plan}
	for _, step := range steps {
		if r, is := step.(ranked); is && r.frame().Transport != spec.InSwitch {
			job, err := r.job(s)
			if err == nil {
				err = job.Check()
			}
			f.wrong(ErrJob, r.frame().at, err)
		}
	}
}

// Validate finds the problems of a scenario before it runs, as Run does. It checks the files that
// the scenario names and the steps for its ranks. It also finds checks that can never pass. Its
// error has every problem as spec.Problems. Warnings are about checks that will probably not pass,
// slow rings, and sources of containers that do not exist yet.
func Validate(o Options) (warnings spec.Problems, err error) {
	found := &findings{o: &o}
	_, err = prepare(&o)
	found.take(err)
	never, hardly := Provable(o)
	found.problems = append(found.problems, never...)
	return slices.Concat(hardly, Missing(o), missingPrograms(&o)), found.err()
}

// Missing returns a problem for each file or folder of a container that does not exist. For Validate it is a
// warning, because the user may make the file before the run. Later it is a mistake.
func Missing(o Options) (problems spec.Problems) {
	look := func(path, name, what string, fits func(fs.FileInfo) bool) {
		info, err := os.Stat(besideFile(&o, name))
		if err != nil || !fits(info) {
			problems = append(problems, o.File.Source.Problem(path,
				fmt.Sprintf("%s does not exist, or is not %s", besideFile(&o, name), what),
				"make it first"))
		}
	}
	folder := func(info fs.FileInfo) bool { return info.IsDir() }
	for _, entry := range o.File.Nodes {
		at := fmt.Sprintf("nodes[%q]", entry.Key)
		if build := entry.Value.Build; build != "" {
			look(at+".build", build, "a folder", folder)
		}
		if archive := entry.Value.RootFS; archive != "" {
			look(at+".rootfs", archive, "a file", func(info fs.FileInfo) bool { return !info.IsDir() })
		}
		for i, bind := range entry.Value.Binds {
			source, _, _ := strings.Cut(bind, ":")
			look(fmt.Sprintf("%s.binds[%d]", at, i), source, "a file or a folder",
				func(fs.FileInfo) bool { return true })
		}
	}
	return problems
}

// findings are problems of a file, and the kinds of errors that they are.
type findings struct {
	o        *Options
	problems spec.Problems
	kinds    []error
}

// Error implements error.
func (f *findings) Error() string { return f.problems.Error() }

// Unwrap returns the problems and their kinds.
func (f *findings) Unwrap() []error { return append([]error{f.problems}, f.kinds...) }

// err returns nil if there are no problems.
func (f *findings) err() error {
	sorted, _ := f.problems.Err().(spec.Problems)
	if sorted == nil {
		return nil
	}
	f.problems = sorted
	return f
}

// wrong records an error with the value at a path, or with the file that a key below the path
// names. The text of an error about a file's content begins with the position in that file.
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

// take adds the findings of another error.
func (f *findings) take(err error) {
	var other *findings
	if errors.As(err, &other) {
		f.problems, f.kinds = append(f.problems, other.problems...), append(f.kinds, other.kinds...)
	}
}

// rules compiles the filters of rules, which only package rules understands.
func (f *findings) rules() {
	faults := []string{}
	for _, step := range f.o.File.Steps {
		if step.Fault != nil {
			faults = append(faults, step.Fault.Name)
		}
	}
	names := rules.Names(f.o.Plan, faults)
	for i, check := range f.o.File.Checks {
		if check.Packets == nil || check.Packets.Rule == nil {
			continue
		}
		path := fmt.Sprintf("checks[%d].packets.rule", i)
		err := rules.Check(f.o.File.Source, path, check.Packets.Rule, names)
		var problems spec.Problems
		if errors.As(err, &problems) {
			f.problems, f.kinds = append(f.problems, problems...), append(f.kinds, ErrWord)
		}
	}
}

// ErrWord is the error of an invalid filter, event, rule or feature in a file.
var ErrWord = errors.New("invalid value")

// words checks the features, which only the doctor knows.
func (f *findings) words() {
	if problems := UnknownFeatures(f.o.File); len(problems) > 0 {
		f.problems, f.kinds = append(f.problems, problems...), append(f.kinds, ErrWord)
	}
}

// UnknownFeatures returns a problem for each feature that the file requires, that the doctor does not know,
// and that looks like a misspelt feature. Others are programs. So is a program that a step names.
func UnknownFeatures(file *spec.Testbed) spec.Problems {
	var problems spec.Problems
	known := doctor.Features()
	for i, feature := range file.Requires {
		near := nearest.Word(feature, known)
		named := func(s spec.Step) bool {
			command, _ := s.Command()
			return spec.Names(command, feature)
		}
		if slices.Contains(known, feature) || near == "" || spec.RequiredFile(feature) ||
			slices.ContainsFunc(file.Steps, named) {
			continue
		}
		problems = append(problems, file.Source.Problem(fmt.Sprintf("requires[%d]", i),
			fmt.Sprintf("%v: feature %q", ErrWord, feature), fmt.Sprintf("want one of %s, or a program that "+
				"a step names; did you mean %q?", strings.Join(known, ", "), near)))
	}
	return problems
}

// fileError is an error with a file that a key of the scenario file names.
type fileError struct {
	key string // such as rd.rates, below the step's
	error
}

func (e *fileError) Unwrap() error { return e.error }

// inFile adds to an error the key that names the affected file.
func inFile(key string, err error) error {
	if err == nil {
		return nil
	}
	return &fileError{key, err}
}

// mostInput is the maximum size in bytes of a file that a step names.
const mostInput = 64 << 20

// read reads a file that a key of the scenario file names. The name is relative to the scenario
// file.
func (o *Options) read(key, name string) (path string, text []byte, err error) {
	path = besideFile(o, name)
	if text, err = input.ReadRegular(path, mostInput); err != nil {
		return path, nil, inFile(key, fmt.Errorf("%s %w", path, err))
	}
	return path, text, nil
}

// besideFile resolves a path that a scenario file names relative to the scenario file.
func besideFile(o *Options, name string) string {
	return spec.BesideFile(o.Path, name)
}
