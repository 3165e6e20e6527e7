package bundle

import (
	"archive/zip"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"railbed/capture/report"
	"railbed/internal/input"
	"railbed/plan/spec"
)

const (
	// Suffix ends the names of bundles.
	Suffix = ".zip"
	// keysSuffix ends the names of key logs.
	keysSuffix = ".keys"
)

// Written lists the contents of a bundle.
type Written struct {
	Files []string `json:"files"`
	Bytes int64    `json:"bytes"` // of all files
	// LeftOut are files with secrets.
	LeftOut []string `json:"left_out,omitempty"`
	// Missing are recordings, or files of them, that the report names and the directory lacks.
	Missing []string `json:"missing,omitempty"`
}

// Write writes the regular files of a results directory to a zip archive, except key logs and hidden files.
// done is called with the number of bytes read so far. It may be nil.
func Write(ctx context.Context, out io.Writer, dir string, done func(bytes int64)) (*Written, error) {
	if _, err := os.Stat(filepath.Join(dir, report.JSONFile)); err != nil {
		return nil, fmt.Errorf("%s holds no results of railbed run: %w", dir, err)
	}
	folder, err := input.OpenFolder(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	b := &Written{}
	archive := zip.NewWriter(out)
	err = fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(entry.Name(), ".") && name != ".", !entry.Type().IsRegular():
			return nil
		case strings.HasSuffix(name, keysSuffix):
			b.LeftOut = append(b.LeftOut, name)
			return nil
		}
		b.Files = append(b.Files, name)
		return b.add(ctx, archive, folder, name, done)
	})
	// On a full disk, the writer's end fails for the same reason as the file before.
	if err := cmp.Or(err, archive.Close()); err != nil {
		return nil, fmt.Errorf("bundle %s: %w", dir, err)
	}
	b.findMissing(folder)
	return b, nil
}

// maxMissing bounds the files that Written.Missing names.
const maxMissing = 20

// findMissing compares the files with the report. A report that cannot be read names none.
func (b *Written) findMissing(files fs.FS) {
	file, err := files.Open(report.JSONFile)
	if err != nil {
		return
	}
	defer file.Close()
	r, err := report.Read(file)
	if err != nil {
		return
	}
	for _, c := range r.Captures {
		for number := 1; number <= max(c.Files, 1) && len(b.Missing) < maxMissing; number++ {
			name := spec.CapturePart(c.File, number)
			if _, err := fs.Stat(files, name); errors.Is(err, fs.ErrNotExist) {
				b.Missing = append(b.Missing, name)
			}
		}
	}
}

// add copies a file into the archive.
func (b *Written) add(ctx context.Context, archive *zip.Writer, files fs.FS, name string,
	done func(int64)) error {
	file, err := files.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header, err := zip.FileInfoHeader(info)
	if err != nil {
		return err
	}
	header.Name, header.Method = name, zip.Deflate
	into, err := archive.CreateHeader(header)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		n, err := io.CopyN(into, file, 1<<20)
		if b.Bytes += n; done != nil {
			done(b.Bytes)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}
