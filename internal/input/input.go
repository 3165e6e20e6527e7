// Package input opens and writes files that a user names. It refuses FIFOs, devices, sockets and
// directories, so that no name makes railbed wait for ever or fill memory.
package input

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// KindError reports that a name does not refer to a regular file.
type KindError struct {
	Path string
	// Kind is "a directory", "a FIFO", "a socket" or "a device".
	Kind string
}

// Error implements error.
func (e *KindError) Error() string { return e.Path + " is " + e.Kind + ", want a regular file" }

// Open opens a regular file for reading. It accepts any descriptor that the user's shell has
// already opened: /dev/stdin, and /dev/fd/N as process substitution names it. Interrupt ends the reads of
// such a descriptor.
func Open(path string) (*os.File, error) {
	// Without O_NONBLOCK the open of a FIFO waits for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() && !inherited(path) {
		err = &KindError{Path: path, Kind: kindOf(info.Mode())}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	if !info.Mode().IsRegular() {
		interruptible(file)
	}
	return file, nil
}

// Create opens a file for writing, with additional flags of open(2), and empties it. It reports
// whether the file is new. In a directory that everybody can write to, such as /tmp, another user
// could have put the file there. So there Create follows no symbolic link, and refuses an existing
// file that has a second name or does not belong to this user or the owners.
func Create(path string, flags int, perm fs.FileMode, owners ...int) (file *os.File, made bool, err error) {
	flags |= os.O_WRONLY
	file, err = os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, perm)
	if !errors.Is(err, fs.ErrExist) {
		return file, err == nil, err
	}
	dir := filepath.Dir(path)
	above, err := os.Stat(dir)
	if err != nil {
		return nil, false, err
	}
	if above.Mode().Perm()&0o002 == 0 {
		file, err = os.OpenFile(path, flags|os.O_CREATE|os.O_TRUNC, perm)
		return file, false, err
	}
	refused := func(what string) error {
		return fmt.Errorf("%s %s in %s, where everybody can put files; want another name or directory", path,
			what, dir)
	}
	file, err = os.OpenFile(path, flags|syscall.O_NOFOLLOW, perm)
	if errors.Is(err, syscall.ELOOP) {
		return nil, false, refused("is a symbolic link")
	}
	if err != nil {
		return nil, false, err
	}
	info, err := file.Stat()
	if err == nil {
		stat := info.Sys().(*syscall.Stat_t)
		switch owners = append(owners, os.Geteuid()); {
		case !slices.Contains(owners, int(stat.Uid)):
			err = refused(fmt.Sprintf("belongs to user %d", stat.Uid))
		case stat.Nlink > 1:
			err = refused(fmt.Sprintf("has %d hard links", stat.Nlink))
		case info.Mode().IsRegular():
			err = file.Truncate(0)
		}
	}
	if err != nil {
		return nil, false, errors.Join(err, file.Close())
	}
	return file, false, nil
}

// inherited reports whether a name refers to a descriptor of this process.
func inherited(path string) bool {
	path = filepath.Clean(path)
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if strings.HasPrefix(path, dir) {
			return true
		}
	}
	return path == "/dev/stdin" || path == "/dev/stdout" || path == "/dev/stderr"
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	default:
		return "a device"
	}
}

// ReadFile opens a file as Open does and reads it. A file with more bytes than most is an error.
func ReadFile(path string, most int64) ([]byte, error) {
	file, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s has more than the limit of %d bytes", path, most)
	}
	return text, nil
}
