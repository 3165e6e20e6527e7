package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"railbed/capture"
	"railbed/capture/filter"
	"railbed/capture/keep"
	"railbed/capture/report"
	"railbed/internal/clock"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

// captureStep starts a recording.
type captureStep struct {
	stepFrame
	spec *spec.Capture
}

var _ = makes((*preparation).capture)

// capture checks the filter, which only package filter understands.
func (p *preparation) capture(f stepFrame, c *spec.Capture) step {
	_, err := filter.Compile(c.Filter, int(c.SnapLen))
	p.wrong(ErrWord, f.at+".filter", err)
	made := &captureStep{stepFrame: f, spec: c}
	for _, trigger := range []struct {
		name  string
		texts []string
	}{{"start", c.Start}, {"stop", c.Stop}} {
		for i, text := range trigger.texts {
			_, err := keep.ParseTrigger(text)
			p.wrong(ErrWord, fmt.Sprintf("%s.%s[%d]", f.at, trigger.name, i), err)
		}
	}
	return made
}

// part returns the part of the recording to keep, or nil for everything. stopped ends the recording.
func (c *captureStep) part(dilation uint64, stopped func()) (*keep.Options, error) {
	if c.spec.Last == 0 && c.spec.LastBytes == 0 && c.spec.Start == nil && c.spec.Stop == nil &&
		c.spec.Rotate == 0 {
		return nil, nil
	}
	start, err := keep.ParseTriggers(c.spec.Start) // they have state, of this recording
	stop, err2 := keep.ParseTriggers(c.spec.Stop)
	real := time.Duration(max(dilation, 1))
	return &keep.Options{Last: time.Duration(c.spec.Last) * real, LastBytes: int64(c.spec.LastBytes),
		Start: start.Dilated(real), Stop: stop.Dilated(real), After: time.Duration(c.spec.After) * real,
		Rotate: int64(c.spec.Rotate), Always: true, Stopped: stopped}, errors.Join(err, err2)
}

func (c *captureStep) object() string { return c.spec.File }

func (c *captureStep) limit(clock.Dilation) time.Duration { return controlTimeout }

// recording is a running capture.
type recording struct {
	spec    *spec.Capture
	capture *testbed.Capture
	file    *os.File
	end     context.CancelFunc
	part    <-chan keptPart // nil if everything is kept in one file
	files   int             // written, 0 for one
}

// keptPart is the result of keeping a part of a recording, or of writing it to several files.
type keptPart struct {
	keep.Kept
	bytes int64 // of the files after the first
	err   error
}

// keepPart writes a part of the recording that comes through the returned writer to a file, and to the files
// that follow it.
func keepPart(o *keep.Options, file *os.File, next func(number int) (*os.File, error)) (*io.PipeWriter,
	<-chan keptPart) {
	in, out := io.Pipe()
	done := make(chan keptPart, 1)
	go func() {
		var part keptPart
		part.Kept, part.err = keep.Copy(in, func(number int) (io.WriteCloser, error) {
			if number == 1 {
				return unclosed{file}, nil
			}
			later, err := next(number)
			if err != nil {
				return nil, err
			}
			return sizedFile{later, &part.bytes}, nil
		}, *o)
		in.CloseWithError(part.err)
		done <- part
	}()
	return out, done
}

// unclosed is a file that its owner closes.
type unclosed struct{ *os.File }

// Close implements io.Closer.
func (unclosed) Close() error { return nil }

// sizedFile is a file that adds its size to a sum when it is closed.
type sizedFile struct {
	*os.File
	sum *int64
}

// Close implements io.Closer.
func (f sizedFile) Close() error {
	info, err := f.Stat()
	if err == nil {
		*f.sum += info.Size()
	}
	return errors.Join(err, f.File.Close())
}

func (c *captureStep) do(ctx context.Context, s *session) error {
	file, err := s.results.create(c.spec.File)
	if err != nil {
		return lost(err)
	}
	// The recording lasts longer than the step: ctx limits only its start.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	var into io.Writer = file
	var pipe *io.PipeWriter
	var part <-chan keptPart
	limit := int64(c.spec.Limit)
	o, err := c.part(s.plan.Dilation, end)
	if err != nil {
		end()
		return errors.Join(err, file.Close())
	}
	if o != nil {
		o.Counters = func(series string) (float64, error) { return s.testbed.Counter(life, series) }
		pipe, part = keepPart(o, file, func(number int) (*os.File, error) {
			return s.results.create(spec.CapturePart(c.spec.File, number))
		})
		if into = pipe; o.Start == nil && o.LastBytes > 0 {
			limit = 0 // LastBytes is the limit of the files
		}
	}
	started, err := s.testbed.Capture(life, supervisor.CaptureRequest{
		At: c.spec.At, Filter: c.spec.Filter, SnapLen: int(c.spec.SnapLen), Limit: limit,
		Events: c.spec.Events == "all",
	}, into)
	stop()
	if err != nil {
		end()
		if part != nil {
			pipe.CloseWithError(err)
			<-part
		}
		return errors.Join(err, file.Close())
	}
	if part != nil {
		go func() { // the recording may end by itself, at stop
			<-started.Done()
			pipe.Close()
		}()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.captures = append(s.captures, &recording{spec: c.spec, capture: started, file: file, end: end,
		part: part})
	return nil
}

// cut waits for the end of the part that is kept, and replaces the counts of the whole recording by its
// counts.
func (r *recording) cut(stats *capture.Stats) error {
	kept := <-r.part
	if kept.Files > 1 {
		r.files = kept.Files
	}
	if kept.err != nil {
		return kept.err
	}
	for i := range stats.Taps {
		stats.Taps[i].Written = 0
		if i < len(kept.Taps) {
			stats.Taps[i].Written = kept.Taps[i]
		}
	}
	info, err := r.file.Stat()
	if err == nil {
		stats.Bytes = info.Size() + kept.bytes
	}
	return err
}

// stopCaptures stops all recordings and returns their contents. A recording that failed is in the
// list and not complete. The error says why it failed.
func (s *session) stopCaptures() ([]report.Capture, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stopped := []report.Capture{}
	var errs []error
	for _, r := range s.captures {
		stats, err := r.capture.Stop()
		r.end()
		if r.part != nil {
			err = errors.Join(err, r.cut(&stats))
		}
		err = errors.Join(err, r.file.Close())
		made := report.Capture{File: r.spec.File, Files: r.files, At: r.spec.At, Filter: r.spec.Filter,
			Bytes: stats.Bytes, Complete: err == nil}
		for _, tap := range stats.Taps {
			made.Taps = append(made.Taps, report.Tap{Name: tap.Tap, Packets: tap.Written,
				Dropped: tap.Dropped, Limited: tap.Limited})
		}
		stopped = append(stopped, made)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.spec.File, err))
		}
	}
	s.captures = nil
	return stopped, errors.Join(errs...)
}
