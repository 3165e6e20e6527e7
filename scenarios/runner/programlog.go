package runner

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

// Limits of a program's log: it has the first mostLog bytes of the program's output, and the last
// logTail bytes of the rest.
const (
	mostLog = 16 << 20
	logTail = 64 << 10
)

// programLog is a log of limited size. It is safe for concurrent use.
type programLog struct {
	mu   sync.Mutex
	file *os.File
	size int64 // bytes printed, including those that are not kept
	tail tailWriter
	runs int // of the command, whose logs have the output of all runs
	// heading is written before the next output.
	heading string
	broken  bool // the output ends within a line
}

// createLog creates a log, as create creates a file.
func (r *results) createLog(path string) (*programLog, error) {
	file, err := r.create(path)
	return &programLog{file: file, tail: tailWriter{limit: logTail}}, lost(err)
}

// Write implements io.Writer. It drops output beyond the limits without an error: the program
// continues.
func (l *programLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if heading := l.heading; heading != "" && len(p) > 0 {
		if l.heading = ""; l.broken {
			heading = "\n" + heading
		}
		if _, err := l.keepLocked([]byte(heading)); err != nil {
			return 0, err
		}
	}
	if len(p) > 0 {
		l.broken = p[len(p)-1] != '\n'
	}
	return l.keepLocked(p)
}

func (l *programLog) keepLocked(p []byte) (int, error) {
	head := min(int64(len(p)), max(0, mostLog-l.size))
	l.size += int64(len(p))
	if n, err := l.file.Write(p[:head]); err != nil {
		return n, lost(err)
	}
	l.tail.Write(p[head:])
	return len(p), nil
}

// Close writes how much was dropped and the end of the output, and closes the file.
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

// lostError is an error of the results directory, such as a full disk. The outcome of the affected
// step then says nothing about the testbed.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// lost marks an error as an error of the results directory.
func lost(err error) error {
	if err == nil {
		return nil
	}
	return &lostError{err}
}
