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

// Bounds of what is kept of aborted testbeds. A run directory lies in memory on
// most hosts, so both count.
const (
	// KeptCount is how many are kept, the latest.
	KeptCount = 10
	// KeptFor is how long one is kept.
	KeptFor = 7 * 24 * time.Hour
	// KeptLog is how much of a log is kept, its end, in bytes.
	KeptLog = 1 << 20
)

const (
	// abortedName is the directory under the root directory in which they lie.
	abortedName = ".aborted"
	reportName  = "report.json"
	// foundFormat is the end of a kept directory's name, after a hyphen.
	foundFormat = "20060102T150405.000000Z"
)

// Report is the path of the report that says ABORTED for as long as the testbed
// lives, so that it is there when nobody is left to write one. The supervisor
// writes it, in the format of package report.
func (d Dir) Report() string { return filepath.Join(d.Path, reportName) }

// WriteReport writes Report whole or not at all: who writes it may die meanwhile,
// which is what it is for.
func (d Dir) WriteReport(text []byte) error {
	return writeWhole(d.Report(), text)
}

// Aborted is what is kept of a testbed whose supervisor ended without taking it
// down: supervisor.log and report.json in a directory of their own.
type Aborted struct {
	Name string `json:"name"`
	// Found is when a command found it dead; when it died is not known.
	Found time.Time `json:"found"`
	Dir   string    `json:"dir"`
}

// ListAborted returns what is kept of the calling user's aborted testbeds, the
// oldest first.
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

// beyondBounds are those of a list, oldest first, that are kept no longer.
func beyondBounds(all []Aborted, now time.Time) []Aborted {
	beyond := max(0, len(all)-KeptCount)
	for beyond < len(all) && now.Sub(all[beyond].Found) > KeptFor {
		beyond++
	}
	return all[:beyond]
}

// trimLocked removes what is kept no longer, or with all everything, and returns
// it. It needs the root lock.
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
	// It stays when it is not empty, and may never have been there.
	_ = os.Remove(filepath.Join(root, abortedName))
	return gone, failures
}

// keepLocked moves a dead testbed's log and report to where they are kept, and
// returns that place; it is empty when there was no supervisor that could have
// written a log. It needs the root lock.
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

// writeWhole writes a file in one step, in the place of one that is there.
func writeWhole(path string, text []byte) error {
	fresh := path + ".new"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// keepTail moves a file of the given size, or the lines at its end when it is
// too long.
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

// ReportFormat is the version of the report that is written here; package
// report, which this one may not import, has the same.
const ReportFormat = "railbed-report/1"

// writeReport writes the report of a testbed whose supervisor died before it
// had written one.
func (d Dir) writeReport(path string) error {
	var started time.Time
	if claimed, err := os.Stat(filepath.Join(d.Path, lockName)); err == nil {
		started = claimed.ModTime() // nobody writes into it
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
