package capture

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize is the largest size of a pipe for users without privileges (fs/pipe.c).
const pipeSize = 1 << 20

// Output is a file that another process writes into, for a writer of this process.
type Output struct {
	// File is the writer if it is an *os.File, and otherwise the end of a pipe.
	File   *os.File
	piped  bool
	copied chan error
}

// NewOutput returns an output for w. If it is a pipe, a goroutine copies from the pipe to w until every
// process has closed File, or until a write to w fails. It then closes the pipe, so that the other process
// can no longer write.
func NewOutput(w io.Writer) (*Output, error) {
	o := &Output{copied: make(chan error, 1)}
	if file, isFile := w.(*os.File); isFile {
		o.File = file
		close(o.copied)
		return o, nil
	}
	from, to, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	// If the kernel refuses, the pipe keeps its default of 64 KiB, which costs wake-ups.
	_, _ = unix.FcntlInt(to.Fd(), unix.F_SETPIPE_SZ, pipeSize)
	o.File, o.piped = to, true
	go func() {
		buffer := make([]byte, pipeSize/4)
		_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{from}, buffer)
		_ = from.Close()
		o.copied <- err
	}()
	return o, nil
}

// Passed closes the pipe's end in this process, after File was passed to the other process. The writer
// itself stays open.
func (o *Output) Passed() {
	if o.piped {
		_ = o.File.Close()
	}
}

// Wait waits until everything was copied, and returns the error of copying. It is called once, after Passed.
func (o *Output) Wait() error { return <-o.copied }
