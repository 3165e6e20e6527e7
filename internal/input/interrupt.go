package input

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
	"weak"
)

// ErrInterrupted is the error of a read that Interrupt ended.
var ErrInterrupted = errors.New("interrupted by a signal")

// lastReads is how long reads may go on after Interrupt. A Ctrl-C also ends the program that writes the pipe,
// and that program may still write its last data.
const lastReads = time.Second

// pipes are the pipes, sockets and terminals that this process reads.
var pipes = struct {
	sync.Mutex
	open  []weak.Pointer[os.File] // that Open opened
	until time.Time               // when reads end, if Interrupt was called
	ended chan struct{}           // closed at that time
}{ended: make(chan struct{})}

// Interrupt ends the reads of all pipes, sockets and terminals of Open and Reader, within a second. Reads of
// files that Open opened then fail with os.ErrDeadlineExceeded, and reads of a Reader with ErrInterrupted.
// The process cannot read from pipes any more. A process calls Interrupt after a signal that it catches:
// otherwise no signal would end a read of an empty pipe.
func Interrupt() {
	pipes.Lock()
	defer pipes.Unlock()
	if !pipes.until.IsZero() {
		return
	}
	pipes.until = time.Now().Add(lastReads)
	time.AfterFunc(lastReads, func() { close(pipes.ended) })
	for _, one := range pipes.open {
		if file := one.Value(); file != nil {
			_ = file.SetReadDeadline(pipes.until) // fails if the file is closed
		}
	}
}

// Interrupted reports whether an error is of a read that Interrupt ended.
func Interrupted(err error) bool {
	pipes.Lock()
	defer pipes.Unlock()
	var read *fs.PathError // sockets have deadlines for other reasons, and errors of another type
	return !pipes.until.IsZero() && (errors.Is(err, ErrInterrupted) ||
		errors.As(err, &read) && errors.Is(read, os.ErrDeadlineExceeded))
}

// interruptible makes Interrupt end the reads of a file that Open opened.
func interruptible(file *os.File) {
	pipes.Lock()
	defer pipes.Unlock()
	if !pipes.until.IsZero() {
		_ = file.SetReadDeadline(pipes.until) // a file without deadlines never waits
		return
	}
	kept := pipes.open[:0]
	for _, one := range pipes.open {
		if one.Value() != nil {
			kept = append(kept, one)
		}
	}
	pipes.open = append(kept, weak.Make(file))
}

// Reader returns a reader of a file that the process has inherited, such as os.Stdin. Interrupt ends its
// reads. The runtime cannot interrupt a read of such a file, as the descriptor is in blocking mode. So each
// read has a goroutine, which remains in the read if Interrupt ends the wait for it. Other readers and
// regular files are returned as they are.
func Reader(from io.Reader) io.Reader {
	file, is := from.(*os.File)
	if !is {
		return from
	}
	if info, err := file.Stat(); err != nil || info.Mode().IsRegular() {
		return from
	}
	return &reader{file: file}
}

// reader is a Reader.
type reader struct {
	file *os.File
	got  []byte // that Read has not returned yet
	err  error
}

// readSize is the size of reads of a pipe, which holds as much by default (pipe(7)).
const readSize = 64 << 10

// Read implements io.Reader.
func (r *reader) Read(b []byte) (int, error) {
	if len(r.got) == 0 && r.err == nil {
		type result struct {
			got []byte
			err error
		}
		done := make(chan result, 1)
		go func() {
			got := make([]byte, readSize)
			n, err := r.file.Read(got)
			done <- result{got[:n], err}
		}()
		select {
		case one := <-done:
			r.got, r.err = one.got, one.err
		case <-pipes.ended:
			r.err = ErrInterrupted
		}
	}
	n := copy(b, r.got)
	if r.got = r.got[n:]; n == 0 {
		return 0, r.err
	}
	return n, nil
}
