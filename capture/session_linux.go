package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"railbed/capture/filter"
)

// Session is a running capture. Its methods are safe for concurrent use.
type Session struct {
	stop  func() // asks the recording to end; may be called again
	done  chan struct{}
	stats Stats // valid once done is closed, like err
	err   error
}

// Start opens every tap and writes the beginning of the stream to w. It returns when all taps
// record. Packets before that moment are left out, so that the capture begins at the same moment at
// all taps.
//
// The recording runs in its own process if this executable has called Parts, and in this process
// otherwise.
//
// The capture lasts until Stop, until ctx is done, or until a write to w fails; Done is closed
// then. While packets arrive, w is written to about every 20 ms. While a write blocks, memory fills
// up, then the rings of the taps, which count the packets that they drop. One goroutine uses w, and
// w is not closed.
func Start(ctx context.Context, taps []Tap, options Options, w io.Writer) (*Session, error) {
	s, err := startSession(ctx, taps, options, w)
	if err != nil {
		return nil, fmt.Errorf("start capture: %w", err)
	}
	return s, nil
}

func startSession(ctx context.Context, taps []Tap, options Options, w io.Writer) (*Session, error) {
	if err := options.validate(taps); err != nil {
		return nil, err
	}
	if _, err := filter.Compile(options.Filter, options.snap()); err != nil {
		return nil, err
	}
	rings, err := openRings(taps)
	if err != nil {
		return nil, err
	}
	if playsParts.Load() {
		return startProcess(ctx, taps, rings, options, w)
	}
	r, err := newRecorder(taps, rings, options, w)
	if err != nil {
		return nil, err
	}
	recording, cancel := context.WithCancel(context.Background())
	halt := sync.OnceFunc(func() {
		r.setOutside(options.lostOutside())
		cancel()
	})
	release := context.AfterFunc(ctx, halt)
	s := &Session{stop: halt, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer release()
		defer cancel()
		s.err = r.run(recording)
		halt()
		s.stats = r.stats()
	}()
	return s, nil
}

// lostOutside calls Outside if it is set.
func (o Options) lostOutside() []uint64 {
	if o.Outside == nil {
		return nil
	}
	return o.Outside()
}

// openRings opens a socket at every tap, inside the tap's namespace. A soft switch's tap has no
// socket.
func openRings(taps []Tap) (rings []*ring, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closeRings(rings))
			rings = nil
		}
	}()
	for i := range taps {
		tap := &taps[i]
		if tap.Soft {
			rings = append(rings, nil)
			continue
		}
		if tap.NS == nil {
			return rings, fmt.Errorf("open tap %s: no namespace", tap.Name())
		}
		err := tap.NS.Do(func() error {
			r, err := openRing(tap.Port)
			if err == nil {
				rings = append(rings, r)
			}
			return err
		})
		if err != nil {
			return rings, fmt.Errorf("open tap %s: %w", tap.Name(), err)
		}
	}
	return rings, nil
}

func closeRings(rings []*ring) error {
	return eachRing(rings, func(_ int, r *ring) error { return r.close() })
}

// Done returns a channel that is closed when the capture has ended, for any reason.
func (s *Session) Done() <-chan struct{} { return s.done }

// Stop ends the capture and returns its counts. It takes as long as packets are held back, about
// 0.1 s, plus the time of the last writes to w. A second Stop returns the same.
func (s *Session) Stop() (Stats, error) {
	s.stop()
	<-s.done
	return s.stats, s.err
}
