package capture

import (
	"fmt"
	"math"

	"railbed/capture/pcapng"
	"railbed/internal/feed"
)

// readClocks reads the clocks. If the real-time clock was set, packets left out by their timestamps since
// the last call may belong to the recording, so they count as lost. The packets that follow have
// timestamps of the new time, and are ordered among themselves.
func (s *recorder) readClocks() clocks {
	now, stepped := s.clock.readClocks()
	if stepped {
		s.order.restart(now.real)
		if s.soft != nil {
			s.soft.latest = 0
		}
	}
	for tap, left := range s.leftOut {
		if s.clock.stepped {
			s.lost[tap] += left
		}
		s.leftOut[tap] = 0
	}
	return now
}

// within reports whether a time lies within the recording. If not, it counts the tap's packet as
// left out. End is 0 while the recording lasts.
func (s *recorder) within(tap int, at, end int64) bool {
	if at < s.start || end != 0 && at > end {
		s.leftOut[tap]++
		return false
	}
	return true
}

// readRest reads the packets that the feed and the rings hold at the end. Packets that arrive
// during the reading are later than the end.
func (s *recorder) readRest(end int64) error {
	if s.soft != nil {
		count := 0
		_, err := s.soft.reader.Read(math.MaxInt, func(r *feed.Record) {
			s.addSoft(r, end)
			// A step has read the rings, so the feed alone determines how far order may release.
			if count++; count%feedBatch == 0 {
				s.order.release(s.soft.latest)
			}
		})
		if err != nil {
			return err
		}
	}
	for tap, r := range s.rings {
		if r == nil {
			continue
		}
		if _, err := r.drain(r.blocks, func(p *captured) { s.add(tap, p, end) }); err != nil {
			return fmt.Errorf("tap %s: %w", s.taps[tap].Name(), err)
		}
		r.drainOpen(end, func(p *captured) { s.add(tap, p, end) })
	}
	return nil
}

// abandon counts as lost the packets that can no longer be written: those in order, in the rings
// and in the feed.
func (s *recorder) abandon() {
	now := s.readClocks()
	s.end, s.failed = now.real, true
	s.order.releaseAll()
	for tap, r := range s.rings {
		if r == nil {
			continue
		}
		// The first error is reported. A ring that cannot be read has no counts either.
		_, _ = r.drain(r.blocks, func(p *captured) { s.loseWithin(tap, p.time) })
		_ = r.countDrops()
	}
	if s.soft == nil {
		return
	}
	_, _ = s.soft.reader.Read(math.MaxInt, func(r *feed.Record) {
		if tap, known := s.soft.taps[r.Tap]; known && !passes(r) {
			s.loseWithin(tap, r.Time)
		}
	})
	s.soft.freeze()
}

func (s *recorder) loseWithin(tap int, at int64) {
	if s.within(tap, at, s.end) {
		s.lost[tap]++
	}
}

// finish writes a statistics block for every tap.
func (s *recorder) finish() error {
	s.soft.freeze()
	for i, r := range s.rings {
		if r != nil {
			if err := r.countDrops(); err != nil {
				return fmt.Errorf("tap %s: %w", s.taps[i].Name(), err)
			}
		}
		dropped := s.dropped(i)
		s.notes[i].ClockStepped = s.clock.by
		statistics := pcapng.Statistics{
			Interface: i, Time: s.end, Start: s.start, End: s.end,
			Received: s.received[i] + dropped, Dropped: dropped,
			Accepted: s.received[i] + dropped, Delivered: s.written[i],
			Has: pcapng.HasStart | pcapng.HasEnd | pcapng.HasReceived | pcapng.HasDropped |
				pcapng.HasAccepted | pcapng.HasDelivered,
			Comments: []string{string(s.notes[i].AppendTo(nil))},
		}
		if s.outside.Load() != nil {
			statistics.Has |= pcapng.HasOSDropped
			statistics.OSDropped = s.lostOutside(i)
		}
		if err := s.out.WriteStatistics(statistics); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// lostOutside returns how many packets were lost between a tap and the next one.
func (s *recorder) lostOutside(tap int) uint64 {
	counts := s.outside.Load()
	if counts == nil || tap >= len(*counts) {
		return 0
	}
	return (*counts)[tap]
}

// setOutside stores the counts of Options.Outside, by tap. Nil stores nothing.
func (s *recorder) setOutside(counts []uint64) {
	if counts != nil {
		s.outside.Store(&counts)
	}
}
