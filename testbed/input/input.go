// Package input opens and writes files that a user names, so that no name makes railbed wait
// for ever or fills memory: it refuses FIFOs, devices, sockets and directories.
package input

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// KindError says that a name is of something else than a regular file.
type KindError struct {
	Path string
	// Kind is "a directory", "a FIFO", "a socket" or "a device".
	Kind string
}

// Error implements error.
func (e *KindError) Error() string { return e.Path + " is " + e.Kind + ", want a regular file" }

// Open opens a regular file for reading. Descriptors that the user's shell has opened
// already are taken as they are: /dev/stdin, and /dev/fd/N as process substitution
// names it.
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
	return file, nil
}

// WriteFile is os.WriteFile for a name from the user. It refuses what Open refuses, before it changes anything.
func WriteFile(path string, text []byte, perm fs.FileMode) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !inherited(path) {
		return &KindError{Path: path, Kind: kindOf(info.Mode())}
	}
	// What takes the name's place in between has no reader, and does not make the open wait.
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, perm)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// inherited reports whether a name is of a descriptor of this process.
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

// ReadFile reads a file as Open opens it, of at most so many bytes.
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
		return nil, fmt.Errorf("%s has more than %d bytes, want at most that", path, most)
	}
	return text, nil
}
