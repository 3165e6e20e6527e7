package capture

import (
	"fmt"
	"io"
	"sync"
)

const (
	// maxFree is how many empty chunks are kept for later writes.
	maxFree = 16
	// wakeAt is how many bytes wait when Write wakes the writing goroutine. A wake-up for each chunk would
	// cost as much as the writing.
	wakeAt = 1 << 20
)

// spool decouples the reader of the rings from a writer that may be slow or be scheduled late: a
// file, or a client at the other end of a socket. It holds a bounded number of bytes. When they are
// used up, Write waits, and the rings begin to drop and count packets.
type spool struct {
	w    io.Writer
	most int

	mu      sync.Mutex
	changed sync.Cond
	waiting [][]byte // whole blocks, oldest first
	free    [][]byte
	held    int
	closed  bool
	err     error
	done    chan struct{}
}

// newSpool starts the writing goroutine, which calls prepare first.
func newSpool(w io.Writer, most int, prepare func()) *spool {
	s := &spool{w: w, most: most, done: make(chan struct{})}
	s.changed.L = &s.mu
	go func() {
		defer close(s.done)
		prepare()
		s.run()
	}()
	return s
}

// Write copies p, which is written after wakeAt bytes or with the next wake. Write waits only for room, and
// returns the error of an earlier write.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && s.held > 0 && s.held+len(p) > s.most {
		s.changed.Broadcast()
		s.changed.Wait()
	}
	if s.err != nil {
		return 0, s.err
	}
	var chunk []byte
	if last := len(s.free) - 1; last >= 0 {
		chunk, s.free = s.free[last], s.free[:last]
	}
	s.waiting = append(s.waiting, append(chunk[:0], p...))
	s.held += len(p)
	if s.held >= wakeAt {
		s.changed.Broadcast()
	}
	return len(p), nil
}

// wake makes the writing goroutine write what waits, and returns the error of an earlier write.
func (s *spool) wake() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
	return s.err
}

func (s *spool) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.waiting) == 0 && !s.closed {
			s.changed.Wait()
		}
		if len(s.waiting) == 0 || s.err != nil {
			return
		}
		chunk := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		_, err := s.w.Write(chunk)
		s.mu.Lock()
		if err != nil {
			s.err = fmt.Errorf("write capture: %w", err)
		}
		s.held -= len(chunk)
		if len(s.free) < maxFree {
			s.free = append(s.free, chunk)
		}
		s.changed.Broadcast()
	}
}

// close waits until everything is written and the goroutine has ended.
func (s *spool) close() error {
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	<-s.done
	return s.err
}
