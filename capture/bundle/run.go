// Package bundle reads the files of a run: from its directory, or from a bundle of it (a zip file). A capture
// alone is a run of which nothing else is known.
package bundle

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"railbed/capture/report"
	"railbed/capture/verify/evidence"
	"railbed/internal/input"
	"railbed/plan"
	"railbed/transports/rd/privacy"
)

// Names of files, besides those of package report.
const (
	PlanFile      = "plan.json"
	WorkloadsFile = "workloads.json" // a list of evidence.Workload
	SupervisorLog = "supervisor.log"
)

// maxDocument bounds the bytes of a document, which may be somebody else's.
const maxDocument = 1 << 28

// Run holds the files of a run. Close it after use.
type Run struct {
	// Name is the name under which the run was opened.
	Name string
	// Plan, Workloads and Report are nil where the run has none.
	Plan      *plan.Plan
	Workloads []evidence.Workload
	Report    *report.Report

	files   fs.FS  // nil of a capture alone
	capture string // name in files
	closer  io.Closer
}

// Open opens a results directory, a bundle or a capture.
func Open(name string) (*Run, error) {
	r := &Run{Name: name}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		root, err := os.OpenRoot(name)
		if err != nil {
			return nil, err
		}
		r.files, r.closer = root.FS(), root
	case strings.HasSuffix(name, Suffix):
		if err := r.openBundle(name); err != nil {
			return nil, err
		}
	default:
		r.capture = path.Base(name)
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
	file, err := r.files.Open(report.JSONFile)
	if errors.Is(err, fs.ErrNotExist) {
		return r.findCapture()
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if r.Report, err = report.Read(io.LimitReader(file, maxDocument)); err != nil {
		return fmt.Errorf("%s: %w", report.JSONFile, err)
	}
	return r.findCapture()
}

// document reads a JSON file, if it is there.
func (r *Run) document(name string, into any) (there bool, err error) {
	file, err := r.files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	if err := json.NewDecoder(io.LimitReader(file, maxDocument)).Decode(into); err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	return true, nil
}

// findCapture takes the report's first capture, or else the first pcapng file.
func (r *Run) findCapture() error {
	if r.Report != nil && len(r.Report.Captures) > 0 {
		r.capture = r.Report.Captures[0].File
		return nil
	}
	found, err := fs.Glob(r.files, "*.pcapng")
	if err == nil && len(found) > 0 {
		r.capture = found[0]
	}
	return err
}

// ErrNoCapture is the error of a run without a recording.
var ErrNoCapture = errors.New(
	"the run has no recording; want a step such as capture: {at: [all], file: run.pcapng}")

// Capture opens the run's recording, or the first of several recordings. Each call opens the file again.
func (r *Run) Capture() (fs.File, error) {
	if r.files == nil {
		return input.Open(r.Name)
	}
	if r.capture == "" {
		return nil, fmt.Errorf("%s: %w", r.Name, ErrNoCapture)
	}
	file, err := r.files.Open(r.capture)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Name, err)
	}
	return file, nil
}

// CaptureFile returns the name of the run's recording within the run, "" without one.
func (r *Run) CaptureFile() string { return r.capture }

// Keys reads the key logs of the run's workloads. It returns nil if there are none.
func (r *Run) Keys() (*privacy.KeyLog, error) {
	if r.files == nil {
		return nil, nil
	}
	names, err := fs.Glob(r.files, "*"+KeysSuffix)
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
