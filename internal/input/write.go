package input

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Full reports whether an error comes from a disk, or a quota, without free space.
func Full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// Write writes a file with a name from the user, with additional flags of open(2). It refuses the same files
// as Open, before it changes anything. If the content cannot be written to its end, Write removes the file.
// If it cannot remove the file, such as standard output, the error says that the file is not complete.
func Write(path string, flags int, perm fs.FileMode, write func(io.Writer) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !inherited(path) {
		return &KindError{Path: path, Kind: kindOf(info.Mode())}
	}
	// A FIFO that replaced the file since Stat has no reader. O_NONBLOCK keeps the open from
	// waiting for one.
	file, _, err := Create(path, flags|syscall.O_NONBLOCK, perm)
	if err != nil {
		return err
	}
	if err = Fill(file, write); err == nil {
		return nil
	}
	err = fmt.Errorf("write %s: %w", path, err)
	if info, failed := os.Lstat(path); failed == nil && info.Mode().IsRegular() && os.Remove(path) == nil {
		return err
	}
	return fmt.Errorf("%w; the file is not complete", err)
}

// Fill writes the content of a new file, and closes the file. An error of the file comes once and without
// the file's name, whatever write makes of it.
func Fill(file *os.File, write func(io.Writer) error) error {
	to := &failing{to: file}
	buffered := bufio.NewWriter(to)
	err := write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	closed := file.Close()
	switch {
	case to.err != nil:
		return to.err
	case err != nil:
		return err
	}
	return withoutName(closed)
}

// failing keeps the first error of a file.
type failing struct {
	to  io.Writer
	err error
}

// Write implements io.Writer.
func (f *failing) Write(p []byte) (int, error) {
	n, err := f.to.Write(p)
	if f.err == nil {
		f.err = withoutName(err)
	}
	return n, err
}

// withoutName returns the cause of an error of a file.
func withoutName(err error) error {
	var named *fs.PathError
	if errors.As(err, &named) {
		return named.Err
	}
	return err
}
