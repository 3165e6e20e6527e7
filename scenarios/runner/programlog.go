package runner

import (
	"errors"
	"fmt"
	"os"
)

// Bounds of a program's log: it has the first mostLog bytes that the program printed,
// and the last logTail of what came after them.
const (
	mostLog = 16 << 20
	logTail = 64 << 10
)

// programLog is a log of bounded size. It is written to by one goroutine at a time.
type programLog struct {
	file *os.File
	size int64 // printed, whether it is kept or not
	tail tailWriter
}

// createLog makes a log, as create does.
func (r *results) createLog(path string) (*programLog, error) {
	file, err := r.create(path)
	return &programLog{file: file, tail: tailWriter{limit: logTail}}, lost(err)
}

// Write implements io.Writer. What is beyond the bounds is not kept, which is no
// error: the program goes on.
func (l *programLog) Write(p []byte) (int, error) {
	head := min(int64(len(p)), max(0, mostLog-l.size))
	l.size += int64(len(p))
	if n, err := l.file.Write(p[:head]); err != nil {
		return n, lost(err)
	}
	l.tail.Write(p[head:])
	return len(p), nil
}

// Close says how much is not kept, writes the end of what was printed, and closes the
// file.
func (l *programLog) Close() error {
	var err error
	if cut := l.size - mostLog - int64(len(l.tail.kept)); cut > 0 {
		_, err = fmt.Fprintf(l.file, "\n[railbed: %d bytes are left out here; a log keeps the first %d "+
			"bytes and the last %d]\n", cut, mostLog, logTail)
	}
	if err == nil {
		_, err = l.file.Write(l.tail.kept)
	}
	return lost(errors.Join(err, l.file.Close()))
}

// lostError is an error of the directory of results, such as a full disk: what becomes
// of a step then says nothing of the testbed.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// lost marks an error as the results' own.
func lost(err error) error {
	if err == nil {
		return nil
	}
	return &lostError{err}
}
