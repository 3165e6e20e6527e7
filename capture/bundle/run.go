// Package bundle reads the files of a run: from its directory, or from a bundle of it (a zip file). A capture
// alone is a run of which nothing else is known.
package bundle

import (
	"archive/zip"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"railbed/capture/keep"
	"railbed/capture/report"
	"railbed/capture/verify/evidence"
	"railbed/internal/input"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/transports/rd/privacy"
)

// Names of files, besides those of package report.
const (
	PlanFile      = "plan.json"
	WorkloadsFile = "workloads.json" // a list of evidence.Workload
	SupervisorLog = "supervisor.log"
)

// Run holds the files of a run. Close it after use.
type Run struct {
	// Name is the name under which the run was opened.
	Name string
	// Plan, Workloads and Report are nil where the run has none.
	Plan      *plan.Plan
	Workloads []evidence.Workload
	Report    *report.Report

	files    fs.FS // nil of a capture alone
	captures []string
	parted   map[string]bool // captures in several files
	closer   io.Closer
}

// Open opens a results directory, a bundle or a capture.
func Open(name string) (*Run, error) {
	r := &Run{Name: name}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		file, opened := keep.OpenFile(name) // its error names later files of the recording
		if opened != nil {
			return nil, opened
		}
		return nil, errors.Join(err, file.Close())
	case info.IsDir():
		folder, err := input.OpenFolder(name)
		if err != nil {
			return nil, err
		}
		r.files, r.closer = folder, folder
	case strings.HasSuffix(name, Suffix):
		if err := r.openBundle(name); err != nil {
			return nil, err
		}
	default:
		r.captures = []string{path.Base(name)}
		return r, nil
	}
	if err := r.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), r.Close())
	}
	return r, nil
}

func (r *Run) openBundle(name string) error {
	file, err := input.Open(name)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	files, err := zip.NewReader(file, info.Size())
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", name, err), file.Close())
	}
	r.files, r.closer = files, file
	return nil
}

// read reads the documents.
func (r *Run) read() error {
	var p plan.Plan
	there, err := r.document(PlanFile, &p)
	if err != nil {
		return err
	}
	if there {
		r.Plan = &p
	}
	if _, err := r.document(WorkloadsFile, &r.Workloads); err != nil {
		return err
	}
	file, err := r.open(report.JSONFile)
	if err != nil {
		return err
	}
	if file == nil {
		return r.findCaptures()
	}
	defer file.Close()
	if r.Report, err = report.Read(file); err != nil {
		return fmt.Errorf("%s: %w", report.JSONFile, err)
	}
	return r.findCaptures()
}

// open opens a file of the run, and returns nil if it is not there.
func (r *Run) open(name string) (fs.File, error) {
	file, err := r.files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return file, err
}

// document reads a JSON file, if it is there.
func (r *Run) document(name string, into any) (there bool, err error) {
	file, err := r.open(name)
	if file == nil {
		return false, err
	}
	defer file.Close()
	if err := input.DecodeDocument(file, into); err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	return true, nil
}

// findCaptures takes the report's captures, or else the pcapng files.
func (r *Run) findCaptures() error {
	r.parted = map[string]bool{}
	if r.Report != nil && len(r.Report.Captures) > 0 {
		for _, c := range r.Report.Captures {
			r.captures = append(r.captures, c.File)
			r.parted[c.File] = c.Files > 1
		}
		return nil
	}
	found, err := fs.Glob(r.files, "*.pcapng")
	slices.SortFunc(found, byPart)
	r.captures = slices.CompactFunc(found, func(a, b string) bool {
		of, _ := spec.CaptureOf(a)
		of2, _ := spec.CaptureOf(b)
		return of == of2
	})
	return err
}

// byPart sorts the files of a recording by their numbers.
func byPart(a, b string) int {
	of, number := spec.CaptureOf(a)
	of2, number2 := spec.CaptureOf(b)
	return cmp.Or(cmp.Compare(of, of2), cmp.Compare(number, number2))
}

// ErrNoCapture is the error of a run without a recording.
var ErrNoCapture = errors.New(
	"the run has no recording; want a step such as capture: {at: [all], file: run.pcapng}")

// Choose makes the run have one recording only.
func (r *Run) Choose(capture string) error {
	if !slices.Contains(r.captures, capture) {
		return fmt.Errorf("%s has no recording %s; want %s", r.Name, capture, strings.Join(r.captures, ", "))
	}
	r.captures = []string{capture}
	return nil
}

// OpenCapture opens a recording of Captures. If the recording is in several files, reading begins with the
// first that exists. Each call opens the recording again.
func (r *Run) OpenCapture(name string) (*keep.Parts, error) {
	if r.files == nil {
		return keep.OpenFile(r.Name)
	}
	if name == "" {
		return nil, fmt.Errorf("%s: %w", r.Name, ErrNoCapture)
	}
	open := keep.Open
	if r.parted[name] {
		open = keep.OpenFirst
	}
	file, err := open(r.files, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Name, err)
	}
	return file, nil
}

// Captures returns the names of the run's recordings within the run, in the order of its report.
func (r *Run) Captures() []string { return r.captures }

// Keys reads the key logs of the run's workloads. It returns nil if there are none.
func (r *Run) Keys() (*privacy.KeyLog, error) {
	if r.files == nil {
		return nil, nil
	}
	names, err := fs.Glob(r.files, "*"+keysSuffix)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	var all []io.Reader
	for _, name := range names {
		file, err := r.files.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		all = append(all, file)
	}
	return privacy.ReadKeyLog(io.MultiReader(all...))
}

// Close closes the run's files.
func (r *Run) Close() error {
	if r.closer == nil {
		return nil
	}
	return r.closer.Close()
}
