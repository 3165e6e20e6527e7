package wireshark

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"railbed/internal/input"
)

// recordFormat is the version of the record.
const recordFormat = "railbed-wireshark/1"

// record lists the files of an installation. It is stored as railbed.json beside Wireshark's preferences.
type record struct {
	Format string         `json:"format"`
	Files  []recordedFile `json:"files"`
	Dirs   []string       `json:"dirs"` // that the installation made, the highest first
}

type recordedFile struct {
	Path string `json:"path"`
	Sum  string `json:"sha256"`
}

func recordPath(f Folders) string { return filepath.Join(f.Config, "railbed.json") }

// readRecord reads the record of an earlier installation. Without one the record is empty.
func readRecord(f Folders) (*record, error) {
	path := recordPath(f)
	text, err := input.ReadFile(path, mostText)
	if errors.Is(err, fs.ErrNotExist) {
		return &record{}, nil
	}
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil || r.Format != recordFormat {
		return nil, fmt.Errorf("%s is not the record of an installation (format %.40q, want %q); move "+
			"it away",
			path, r.Format, recordFormat)
	}
	return r, nil
}

// drop forgets a file.
func (r *record) drop(path string) {
	r.Files = slices.DeleteFunc(r.Files, func(f recordedFile) bool { return f.Path == path })
}

func (r *record) write(f Folders) error {
	r.Format = recordFormat
	made, err := makeDirs(f.Config)
	if err != nil {
		return err
	}
	r.Dirs = append(r.Dirs, made...)
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return replace(recordPath(f), append(text, '\n'), 0o644)
}

// state returns the state of a wanted file.
func (r *record) state(f wanted) (State, error) {
	have, err := sumOf(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Missing, nil
	case err != nil:
		return "", err
	case have == sum(f.text):
		return Installed, nil
	}
	for _, recorded := range r.Files {
		switch {
		case recorded.Path != f.path:
		case recorded.Sum == have:
			return Outdated, nil
		default:
			return Changed, nil
		}
	}
	return Foreign, nil
}
