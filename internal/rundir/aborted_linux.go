package rundir

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"railbed/internal/verdict"
)

// Bounds on the logs and reports of aborted testbeds that are kept. A run directory lies in memory
// on most hosts, so both number and size count.
const (
	// KeptCount is the number of aborted testbeds that are kept; the oldest are removed first.
	KeptCount = 10
	// KeptFor is the time for which an aborted testbed is kept.
	KeptFor = 7 * 24 * time.Hour
	// KeptLog is the length of the end of a log that is kept, in bytes.
	KeptLog = 1 << 20
)

const (
	// abortedName is the directory under the root directory that holds aborted testbeds.
	abortedName = ".aborted"
	reportName  = "report.json"
	// foundFormat is the time format at the end of a kept directory's name, after a hyphen.
	foundFormat = "20060102T150405.000000Z"
)

// Report is the path of a report that says ABORTED. The supervisor writes it while the testbed
// lives, so that a report exists even if the supervisor dies. It has the format of package report.
func (d Dir) Report() string { return filepath.Join(d.Path, reportName) }

// WriteReport writes Report as a whole or not at all, because the writer may die meanwhile: the
// report exists for this case.
func (d Dir) WriteReport(text []byte) error {
	return writeWhole(d.Report(), text)
}

// Aborted describes a kept testbed whose supervisor ended without taking it down. Its directory
// holds supervisor.log and report.json.
type Aborted struct {
	Name string `json:"name"`
	// Found is the time at which a command found the testbed dead; the time of its death is not
	// known.
	Found time.Time `json:"found"`
	Dir   string    `json:"dir"`
}

// Report is the path of the testbed's report.
func (a Aborted) Report() string { return filepath.Join(a.Dir, reportName) }

// ListAborted returns the kept testbeds of the calling user, the oldest first.
func ListAborted() ([]Aborted, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	return listAborted(root)
}

func listAborted(root string) ([]Aborted, error) {
	base := filepath.Join(root, abortedName)
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list aborted testbeds: %w", err)
	}
	var all []Aborted
	for _, entry := range entries {
		cut := strings.LastIndexByte(entry.Name(), '-')
		if cut < 1 {
			continue // not ours
		}
		found, err := time.Parse(foundFormat, entry.Name()[cut+1:])
		if err != nil {
			continue
		}
		all = append(all, Aborted{Name: entry.Name()[:cut], Found: found,
			Dir: filepath.Join(base, entry.Name())})
	}
	slices.SortFunc(all, func(a, b Aborted) int {
		return cmp.Or(a.Found.Compare(b.Found), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// beyondBounds returns the testbeds of a list, oldest first, that exceed the bounds.
func beyondBounds(all []Aborted, now time.Time) []Aborted {
	beyond := max(0, len(all)-KeptCount)
	for beyond < len(all) && now.Sub(all[beyond].Found) > KeptFor {
		beyond++
	}
	return all[:beyond]
}

// trimLocked removes the testbeds that exceed the bounds, or with all every testbed, and returns
// those removed. It needs the root lock.
func trimLocked(root string, all, dryRun bool) ([]Aborted, error) {
	gone, err := listAborted(root)
	if err != nil {
		return nil, err
	}
	if !all {
		gone = beyondBounds(gone, time.Now())
	}
	if dryRun {
		return gone, nil
	}
	var failures error
	for _, aborted := range gone {
		failures = errors.Join(failures, os.RemoveAll(aborted.Dir))
	}
	// The directory stays if it is not empty. It may never have existed.
	_ = os.Remove(filepath.Join(root, abortedName))
	return gone, failures
}

// keepLocked moves a dead testbed's log and report to a kept directory and returns its path. The
// path is empty if there was no supervisor that could have written a log. keepLocked needs the root
// lock.
func (d Dir) keepLocked() (string, error) {
	info, err := os.Lstat(d.Log())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("keep log: %w", err)
	}
	root := filepath.Dir(d.Path)
	dir := filepath.Join(root, abortedName, d.Name+"-"+time.Now().UTC().Format(foundFormat))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("keep log: %w", err)
	}
	if err := keepTail(d.Log(), filepath.Join(dir, logName), info.Size()); err != nil {
		return "", fmt.Errorf("keep log: %w", err)
	}
	err = os.Rename(d.Report(), filepath.Join(dir, reportName))
	if errors.Is(err, fs.ErrNotExist) {
		err = d.writeReport(filepath.Join(dir, reportName))
	}
	if err != nil {
		return "", fmt.Errorf("keep report: %w", err)
	}
	return dir, nil
}

// writeWhole writes a file in one step and replaces an existing one.
func writeWhole(path string, text []byte) error {
	fresh := path + ".new"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// keepTail moves a file of the given size. If the file is too long, it keeps only the lines at the
// end.
func keepTail(from, to string, size int64) error {
	if size <= KeptLog {
		return os.Rename(from, to)
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	tail := make([]byte, KeptLog)
	n, err := in.ReadAt(tail, size-KeptLog)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, lines, whole := strings.Cut(string(tail[:n]), "\n")
	if !whole {
		lines = string(tail[:n])
	}
	return os.WriteFile(to, []byte(lines), 0o600)
}

// ReportFormat is the version of the report that is written here. Package report, which this
// package may not import, has the same constant.
const ReportFormat = "railbed-report/1"

// writeReport writes the report of a testbed whose supervisor died before it had written its own.
func (d Dir) writeReport(path string) error {
	var started time.Time
	if claimed, err := os.Stat(filepath.Join(d.Path, lockName)); err == nil {
		started = claimed.ModTime() // no process writes into the claimed file
	}
	none := []struct{}{}
	text, err := json.MarshalIndent(map[string]any{
		"format": ReportFormat, "verdict": verdict.Aborted,
		"reason": "the testbed's supervisor died before it was up; its log is in " + logName,
		"name":   d.Name, "started": started,
		"steps": none, "workloads": none, "checks": none, "captures": none,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}
