package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"railbed/capture/filter"
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

// capture checks the filter, which only package filter understands.
func (p *preparation) capture(f stepFrame, c *spec.Capture) step {
	_, err := filter.Compile(c.Filter, int(c.SnapLen))
	p.wrong(ErrWord, f.at+".filter", err)
	return &captureStep{f, c}
}

func (c *captureStep) object() string { return c.spec.File }

func (c *captureStep) limit(clock.Dilation) time.Duration { return controlTimeout }

// recording is a running capture.
type recording struct {
	spec    *spec.Capture
	capture *testbed.Capture
	file    *os.File
	end     context.CancelFunc
}

func (c *captureStep) do(ctx context.Context, s *session) error {
	file, err := s.results.create(c.spec.File)
	if err != nil {
		return lost(err)
	}
	// The recording lasts longer than the step: ctx limits only its start.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	started, err := s.testbed.Capture(life, supervisor.CaptureRequest{
		At: c.spec.At, Filter: c.spec.Filter, SnapLen: int(c.spec.SnapLen), Limit: int64(c.spec.Limit),
		Events: c.spec.Events == "all",
	}, file)
	stop()
	if err != nil {
		end()
		return errors.Join(err, file.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.captures = append(s.captures, &recording{spec: c.spec, capture: started, file: file, end: end})
	return nil
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
		err = errors.Join(err, r.file.Close())
		made := report.Capture{File: r.spec.File, At: r.spec.At, Filter: r.spec.Filter, Bytes: stats.Bytes,
			Complete: err == nil}
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
