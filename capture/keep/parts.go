package keep

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"railbed/internal/input"
	"railbed/plan/spec"
)

// Parts reads a recording that may be in several files (Options.Rotate), of which one is open at a time. A
// pcapng.Reader asks for the others. It is not safe for concurrent use.
type Parts struct {
	folder fs.FS
	names  []string // opened so far
	file   fs.File  // the last of them
}

// Open opens a file of a recording, with which reading begins.
func Open(folder fs.FS, name string) (*Parts, error) {
	file, err := folder.Open(name)
	if err != nil {
		return nil, err
	}
	return &Parts{folder: folder, names: []string{name}, file: file}, nil
}

// OpenFile is Open for a path that a user names. If only later files of the recording are there, its error
// names the first of them.
func OpenFile(path string) (*Parts, error) {
	folder, name := userFolder(filepath.Dir(path)), filepath.Base(path)
	p, err := Open(folder, name)
	if errors.Is(err, fs.ErrNotExist) {
		if later := after(folder, name, 1); later > 0 {
			err = fmt.Errorf("%w; want %s, which may be a later file of it", err,
				spec.CapturePart(path, later))
		}
	}
	return p, err
}

// OpenFirst is Open for the first file of a recording that exists.
func OpenFirst(folder fs.FS, name string) (*Parts, error) {
	p, err := Open(folder, name)
	if errors.Is(err, fs.ErrNotExist) {
		if later := after(folder, name, 1); later > 0 {
			return Open(folder, spec.CapturePart(name, later))
		}
	}
	return p, err
}

// userFolder is a directory that a user names. It opens its files as package input does.
type userFolder string

// Open implements fs.FS.
func (dir userFolder) Open(name string) (fs.File, error) {
	return input.Open(filepath.Join(string(dir), name))
}

// ReadDir implements fs.ReadDirFS.
func (dir userFolder) ReadDir(string) ([]fs.DirEntry, error) { return os.ReadDir(string(dir)) }

// Names returns the names of the files that were read, in order.
func (p *Parts) Names() []string { return p.names }

// Read implements io.Reader. It reads the current file.
func (p *Parts) Read(b []byte) (int, error) { return p.file.Read(b) }

// Seek implements io.Seeker within the first file, to which it returns. A file of an archive cannot seek.
func (p *Parts) Seek(offset int64, whence int) (int64, error) {
	if len(p.names) > 1 {
		if whence != io.SeekStart {
			return 0, errors.New("seek recording: a later file is open")
		}
		file, err := p.folder.Open(p.names[0])
		if err != nil {
			return 0, err
		}
		if err := p.file.Close(); err != nil {
			return 0, errors.Join(err, file.Close())
		}
		p.names, p.file = p.names[:1], file
	}
	seeker, can := p.file.(io.Seeker)
	if !can {
		return 0, errors.New("seek recording: it is a stream")
	}
	return seeker.Seek(offset, whence)
}

// NextPart implements pcapng.Parted.
func (p *Parts) NextPart(number int) (int, error) {
	whole, current := spec.CaptureOf(p.names[len(p.names)-1])
	if current != number-1 { // the number is part of the recording's name
		whole = p.names[len(p.names)-1]
	}
	name := spec.CapturePart(whole, number)
	file, err := p.folder.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		if number = after(p.folder, whole, number); number > 0 {
			name = spec.CapturePart(whole, number)
			file, err = p.folder.Open(name)
		}
	}
	if err != nil {
		return 0, err
	}
	if err := p.file.Close(); err != nil {
		return 0, errors.Join(fmt.Errorf("close %s: %w", p.names[len(p.names)-1], err), file.Close())
	}
	p.names, p.file = append(p.names, name), file
	return number, nil
}

// after returns the number of the first existing file of a recording after a missing file, or 0.
func after(folder fs.FS, whole string, missing int) (first int) {
	entries, err := fs.ReadDir(folder, ".")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		of, number := spec.CaptureOf(e.Name())
		if of == whole && number > missing && (first == 0 || number < first) {
			first = number
		}
	}
	return first
}

// Close closes the current file.
func (p *Parts) Close() error { return p.file.Close() }
