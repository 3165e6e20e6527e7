package wireshark

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"railbed/internal/input"
)

// State is the state of an installed file.
type State string

// States. Only Installed, Outdated and Missing files are Railbed's to write or remove.
const (
	Installed State = "installed" // with the text of this version of Railbed
	Outdated  State = "outdated"  // as an earlier installation wrote it
	Missing   State = "missing"
	Changed   State = "changed" // Railbed wrote it, and another program or the user changed it
	Foreign   State = "foreign" // Railbed did not write it
)

// File is a file of the installation.
type File struct {
	Path  string `json:"path"`
	What  string `json:"what"`
	State State  `json:"state"`
}

// Options are the options of Install and Uninstall.
type Options struct {
	Home Home
	// Program is the absolute path of the command railbed. Uninstall does not need it.
	Program string
	// Force makes Install write over files that are Changed or Foreign, and Uninstall remove Changed files.
	Force bool
}

// Result says what was done.
type Result struct {
	Folders Folders  `json:"folders"`
	Wrote   []File   `json:"wrote"`
	Removed []string `json:"removed"`
	// Kept are files and directories that stay because they are not Railbed's, with the reason.
	Kept []Kept `json:"kept"`
}

// Kept is a file or directory that stays.
type Kept struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// mostText is the length of the longest file that is compared, in bytes.
const mostText = 4 << 20

// Install writes the files. If a file at one of the paths is not Railbed's, Install changes nothing.
func Install(ctx context.Context, o Options) (Result, error) {
	folders, recorded, err := o.begin(ctx)
	if err != nil {
		return Result{}, err
	}
	result := Result{Folders: folders}
	files := wantedFiles(folders, o.Program)
	var problems []error
	for _, f := range files {
		state, err := recorded.state(f)
		if err == nil && !o.Force && (state == Changed || state == Foreign) {
			err = fmt.Errorf("%s is %s; move it away, or write over it with --force", f.path, explain(state))
		}
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return result, err
	}
	for _, old := range slices.Clone(recorded.Files) {
		// An earlier installation may have written to a folder that Wireshark reads no more.
		if !slices.ContainsFunc(files, func(f wanted) bool { return f.path == old.Path }) {
			err = errors.Join(err, result.remove(recorded, old, o.Force))
		}
	}
	for _, f := range files {
		made, failed := makeDirs(filepath.Dir(f.path))
		recorded.Dirs = append(recorded.Dirs, made...)
		if failed == nil {
			failed = replace(f.path, f.text, f.mode)
		}
		if err = errors.Join(err, failed); failed != nil {
			break
		}
		recorded.drop(f.path)
		recorded.Files = append(recorded.Files, recordedFile{f.path, sum(f.text)})
		result.Wrote = append(result.Wrote, File{f.path, f.what, Installed})
	}
	return result, errors.Join(err, recorded.write(folders))
}

func explain(s State) string {
	if s == Changed {
		return "not as railbed wrote it"
	}
	return "not railbed's"
}

// Uninstall removes the files and the directories that Install has made, if they are empty.
func Uninstall(ctx context.Context, o Options) (Result, error) {
	folders, recorded, err := o.begin(ctx)
	if err != nil {
		return Result{}, err
	}
	result := Result{Folders: folders}
	for _, f := range slices.Clone(recorded.Files) {
		err = errors.Join(err, result.remove(recorded, f, o.Force))
	}
	if err != nil || len(recorded.Files) > 0 { // a later call with Force finds the rest
		return result, errors.Join(err, recorded.write(folders))
	}
	if err := os.Remove(recordPath(folders)); err == nil {
		result.Removed = append(result.Removed, recordPath(folders))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return result, err
	}
	for _, dir := range slices.Backward(recorded.Dirs) {
		switch err := os.Remove(dir); {
		case err == nil:
			result.Removed = append(result.Removed, dir)
		case !errors.Is(err, fs.ErrNotExist):
			result.Kept = append(result.Kept, Kept{dir, "it is not empty"})
		}
	}
	return result, nil
}

// remove removes a file that an installation wrote, unless it was changed since.
func (r *Result) remove(from *record, f recordedFile, force bool) error {
	have, err := sumOf(f.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		from.drop(f.Path)
		return nil
	case err != nil:
		return err
	case have != f.Sum && !force:
		r.Kept = append(r.Kept, Kept{f.Path, "it is not as railbed wrote it; --force removes it"})
		return nil
	}
	if err := os.Remove(f.Path); err != nil {
		return err
	}
	from.drop(f.Path)
	r.Removed = append(r.Removed, f.Path)
	return nil
}

// Status is the state of the installation.
type Status struct {
	Folders Folders `json:"folders"`
	Files   []File  `json:"files"`
	// Listed is set if tshark -D lists the plugin's interface. Otherwise Tshark has the reason.
	Listed bool   `json:"listed"`
	Tshark string `json:"tshark"`
}

// GetStatus returns the state of each file, and asks tshark whether it finds the plugin.
func GetStatus(ctx context.Context, o Options) (Status, error) {
	folders, recorded, err := o.begin(ctx)
	if err != nil {
		return Status{}, err
	}
	status := Status{Folders: folders}
	for _, f := range wantedFiles(folders, o.Program) {
		state, err := recorded.state(f)
		if err != nil {
			return status, err
		}
		status.Files = append(status.Files, File{f.path, f.what, state})
	}
	switch status.Listed, err = o.Home.Listed(ctx); {
	case err != nil:
		status.Tshark = err.Error()
	case status.Listed:
		status.Tshark = "tshark -D lists the plugin"
	default:
		status.Tshark = "tshark -D does not list the plugin"
	}
	return status, nil
}

// begin finds the folders and what an earlier installation wrote. It refuses the home directory of another
// user: as root it would write where that user may have put links.
func (o Options) begin(ctx context.Context) (Folders, *record, error) {
	if o.Home.Dir != "" {
		dir, err := filepath.Abs(o.Home.Dir)
		if err != nil {
			return Folders{}, nil, err
		}
		o.Home.Dir = dir
	}
	home := o.Home.Dir
	if home == "" {
		home = os.Getenv("HOME")
	}
	if err := checkOwner(home); err != nil {
		return Folders{}, nil, err
	}
	folders, err := o.Home.Folders(ctx)
	if err != nil {
		return folders, nil, err
	}
	recorded, err := readRecord(folders)
	return folders, recorded, err
}

// sumOf returns the hash of a file's contents. Anything but a regular file has no hash that Railbed writes.
func sumOf(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > mostText {
		return "none", nil
	}
	text, err := input.ReadFile(path, mostText)
	if err != nil {
		return "", err
	}
	return sum(text), nil
}

func sum(text []byte) string {
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:])
}

// makeDirs makes a directory and those above it, and returns the new ones, the highest first.
func makeDirs(path string) (made []string, err error) {
	for dir := path; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append([]string{dir}, made...)
	}
	return made, os.MkdirAll(path, 0o755)
}

// replace writes a file in one step: Wireshark finds the old file or the new one, whole.
func replace(path string, text []byte, mode fs.FileMode) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), ".railbed-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	_, err = file.Write(text)
	if err = errors.Join(err, file.Chmod(mode), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
