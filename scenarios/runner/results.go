package runner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"railbed/internal/input"
	"railbed/scenarios/runner/outdir"
)

// ErrResults is the error of a results directory that cannot be used.
var ErrResults = errors.New("results directory")

const (
	// markerFile marks a directory as made by a run and lists the files that the run wrote there,
	// one path per line. The next run removes these files and no others.
	markerFile = ".railbed-results"
	markerLine = "Made by railbed run, which replaces the files listed here when it runs again."
	dirMode    = 0o755
	fileMode   = 0o644
)

// results is the directory into which a run writes. Everything in it belongs to the user who
// started the run, also under sudo. It is safe for concurrent use.
type results struct {
	dir      string
	root     *os.Root
	uid, gid int // -1 without sudo

	mu     sync.Mutex
	marker *os.File // locked while the run lasts
	listed map[string]bool
}

// openResults makes the directory, or takes over an empty directory or a directory of an earlier run. If
// below is set, the directory is below it, and no link leads out of it.
func openResults(dir string, below *outdir.Dir) (*results, error) {
	r := &results{dir: dir, listed: map[string]bool{}}
	opened, err := openDir(dir, below)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrResults, dir, err)
	}
	r.root, r.uid, r.gid = opened.Root, opened.UID, opened.GID
	if err := r.claim(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w %s: %w", ErrResults, dir, err), r.close())
	}
	return r, nil
}

func openDir(dir string, below *outdir.Dir) (*outdir.Dir, error) {
	if below == nil {
		return outdir.Open(dir)
	}
	at, err := filepath.Rel(below.Name(), dir)
	if err != nil {
		return nil, err
	}
	return below.Below(filepath.ToSlash(at))
}

// claim marks the directory and removes the files of an earlier run.
func (r *results) claim() error {
	directory, err := r.root.Open(".")
	if err != nil {
		return err
	}
	names, err := directory.Readdirnames(-1)
	directory.Close()
	if err != nil {
		return err
	}
	flags := os.O_RDWR
	if len(names) == 0 {
		flags |= os.O_CREATE
	}
	r.marker, err = r.root.OpenFile(markerFile, flags, fileMode)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("is not empty and was not made by railbed run; name another with --out")
	}
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(r.marker.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("another run is writing into it: %w", err)
	}
	kept, err := r.clear()
	if err != nil {
		return err
	}
	return errors.Join(r.relist(kept), r.root.Lchown(markerFile, r.uid, r.gid))
}

// Prune removes the files of a run that is over, except those of the given names. It leaves files that the
// run did not write. below is as in Options.
func Prune(dir string, below *outdir.Dir, keep ...string) error {
	opened, err := openDir(dir, below)
	if err != nil {
		return err
	}
	root := opened.Root
	r := &results{dir: dir, root: root}
	if r.marker, err = root.OpenFile(markerFile, os.O_RDWR, 0); err != nil {
		return errors.Join(err, r.close())
	}
	kept, err := r.clear(keep...)
	if err == nil {
		err = r.relist(kept)
	}
	return errors.Join(err, r.close())
}

// IsResults reports whether a run wrote its results into a directory.
func IsResults(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, markerFile))
	return err == nil
}

// relist writes the list of files anew.
func (r *results) relist(files []string) error {
	if err := r.marker.Truncate(0); err != nil {
		return err
	}
	if _, err := r.marker.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := fmt.Fprintln(r.marker, strings.Join(append([]string{markerLine}, files...), "\n"))
	return err
}

// clear removes what the marker lists, the newest first, so that directories are empty before they
// are removed. A directory into which the user put a file stays. It returns the files to keep.
func (r *results) clear(keep ...string) (kept []string, err error) {
	var listed []string
	for lines := bufio.NewScanner(r.marker); lines.Scan(); {
		listed = append(listed, lines.Text())
	}
	if len(listed) > 0 && listed[0] != markerLine {
		return nil, fmt.Errorf("%s was not written by railbed run; name another directory with --out",
			markerFile)
	}
	for i := len(listed) - 1; i > 0; i-- {
		if slices.Contains(keep, listed[i]) {
			kept = append(kept, listed[i])
			continue
		}
		err := r.root.Remove(listed[i])
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return nil, fmt.Errorf("remove earlier %s: %w", listed[i], err)
		}
	}
	return kept, nil
}

// close releases the directory. The files stay.
func (r *results) close() error {
	var err error
	if r.marker != nil {
		err = r.marker.Close()
	}
	return errors.Join(err, r.root.Close())
}

// create makes a new file and its parent directories. The path is slash-separated and relative to
// the directory. os.Root refuses a path that leads out of the directory.
func (r *results) create(path string) (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.makeParentsLocked(path); err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	if err := r.listLocked(path); err != nil {
		return nil, err
	}
	file, err := r.root.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, fileMode)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", filepath.Join(r.dir, path), err)
	}
	if err := file.Chown(r.uid, r.gid); err != nil {
		return nil, errors.Join(fmt.Errorf("create %s: %w", path, err), file.Close())
	}
	return file, nil
}

func (r *results) makeParentsLocked(path string) error {
	for i, char := range path {
		if char != '/' {
			continue
		}
		if info, err := r.root.Lstat(path[:i]); err == nil && info.IsDir() {
			continue
		}
		if err := errors.Join(r.listLocked(path[:i]), r.root.Mkdir(path[:i], dirMode),
			r.root.Lchown(path[:i], r.uid, r.gid)); err != nil {
			return err
		}
	}
	return nil
}

// listLocked lists a path in the marker before the path exists, so that a killed run leaves no
// unlisted file. The caller holds mu.
func (r *results) listLocked(path string) error {
	if r.listed[path] {
		return nil
	}
	if strings.ContainsAny(path, "\n\r") {
		return fmt.Errorf("create %q: the file name has a line break, want none", path)
	}
	if _, err := r.root.Lstat(path); err == nil {
		return fmt.Errorf("create %s: it exists, and no earlier run made it: remove it",
			filepath.Join(r.dir, path))
	}
	r.listed[path] = true
	if _, err := fmt.Fprintln(r.marker, path); err != nil {
		return fmt.Errorf("list %s in the marker: %w", path, err)
	}
	return nil
}

// discard removes a file that create made, and its parent directories that are then empty.
func (r *results) discard(file string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.root.Remove(file); err != nil {
		return fmt.Errorf("remove %s: %w", filepath.Join(r.dir, file), err)
	}
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if r.root.Remove(dir) != nil {
			break // it is not empty
		}
	}
	return nil
}

// replace writes a file atomically: if the run is killed meanwhile, the earlier file stays.
func (r *results) replace(path string, write func(io.Writer) error) error {
	temporary := path + ".new"
	file, err := r.create(temporary)
	if err != nil {
		return err
	}
	if err = input.Fill(file, write); err == nil {
		err = r.rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(r.dir, path),
			errors.Join(err, r.root.Remove(temporary)))
	}
	return nil
}

func (r *results) rename(from, to string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.listLocked(to); err != nil {
		return err
	}
	return r.root.Rename(from, to)
}
