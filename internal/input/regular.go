package input

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// ErrNotRegular is the error of ReadRegular for a directory, a FIFO, a socket or a device.
var ErrNotRegular = errors.New("not a file")

// LargeError reports a file with more bytes than the limit.
type LargeError struct{ Size, Limit int64 }

// Error implements error.
func (e *LargeError) Error() string {
	return fmt.Sprintf("has %d bytes; want at most %d", e.Size, e.Limit)
}

// ReadRegular reads a regular file of at most the given number of bytes. A device or a FIFO is an
// error, so neither can block the read or fill memory. The errors do not name the file.
func ReadRegular(path string, most int64) ([]byte, error) {
	file, err := Open(path)
	var kind *KindError
	if errors.As(err, &kind) {
		return nil, fmt.Errorf("is %s, %w", kind.Kind, ErrNotRegular)
	}
	if err != nil {
		return nil, unreadableFile{err}
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, unreadableFile{err}
	}
	if info.Size() > most {
		return nil, &LargeError{info.Size(), most}
	}
	text, err := io.ReadAll(io.LimitReader(file, most+1)) // the file may grow
	if err != nil {
		return nil, unreadableFile{err}
	}
	return text, nil
}

// unreadableFile is an error of the system about a file. Its message leaves out the name.
type unreadableFile struct{ error }

func (e unreadableFile) Error() string { return "cannot be read: " + Reason(e.error) }

func (e unreadableFile) Unwrap() error { return e.error }

// Reason returns the text of an error of a read without the name of the file.
func Reason(err error) string {
	if Interrupted(err) {
		return ErrInterrupted.Error()
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
