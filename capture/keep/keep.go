// Package keep writes a part of a recording while it is made: the last seconds or bytes, files of a bounded
// size, or the time around an event.
//
// Each file is a whole pcapng. Its statistics count the packets of the file, and say from when to when it
// holds every packet, so that checks know what they may rest on. Packets that the recording lost between
// two packets of a tap count as lost in the file of the later one.
package keep

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"railbed/capture/display"
	"railbed/capture/pcapng"
)

// Options say what to keep. The zero value keeps everything in one file.
type Options struct {
	// Last and LastBytes bound the time and the bytes of the packets that are kept from the end of the
	// recording. With Start they bound the packets before the start, and everything after it is kept.
	// 0 is no bound.
	Last      time.Duration
	LastBytes int64
	// Keeping starts with the first of the events Start, and ends with the first of the events Stop. They may
	// be nil.
	Start, Stop Triggers
	// After is how long keeping goes on after Stop.
	After time.Duration
	// Counters reads the counters of Start and Stop, if they have any, from another goroutine, every
	// CounterInterval.
	Counters Counters
	// Rotate is the number of bytes after which another file begins; 0 writes one file. Each file has its
	// number (pcapng.SectionNote) and the number of its successor (pcapng.TapNote), so that a reader finds
	// out which files are missing.
	Rotate int64
	// Always writes a file without packets if none is kept.
	Always bool
	// Began is called once at the event of Start. It may be nil.
	Began func()
	// Stopped is called once when keeping has ended before the input. It may be nil. The rest of the input
	// is read for its counts.
	Stopped func()
}

// Kept counts what was written.
type Kept struct {
	Files   int    `json:"files"`
	Packets uint64 `json:"packets"`
	// Taps counts the packets by interface.
	Taps []uint64 `json:"-"`
	// LeftOut is how many packets of the input are in no file.
	LeftOut uint64 `json:"left_out"`
	// Started and Stopped report whether there was an event of Options.Start and Options.Stop.
	Started bool `json:"started"`
	Stopped bool `json:"stopped"`
}

// Copy reads a recording to its end and writes the packets to keep. next opens the file with a number,
// counted from 1.
func Copy(in io.Reader, next func(number int) (io.WriteCloser, error), o Options) (Kept, error) {
	source, err := pcapng.NewReader(in)
	if err != nil {
		return Kept{}, fmt.Errorf("keep packets: %w", err)
	}
	if o.Stopped == nil {
		o.Stopped = func() {}
	}
	if o.Began == nil {
		o.Began = func() {}
	}
	o.Began, o.Stopped = sync.OnceFunc(o.Began), sync.OnceFunc(o.Stopped)
	k := &keeper{Options: o, source: source, next: next}
	watch := k.watch()
	if err := errors.Join(k.copy(), watch()); err != nil {
		return k.kept, errors.Join(fmt.Errorf("keep packets: %w", err), k.abandon())
	}
	// No packet may have come after a counter grew.
	k.kept.Started = k.kept.Started || k.startGrown.Load()
	k.kept.Stopped = k.kept.Stopped || k.stopGrown.Load()
	return k.kept, nil
}

// phase is where a keeper is between the two events.
type phase uint8

const (
	waiting phase = iota // for Start
	keeping
	ending // after Stop, while After has not passed
	over
)

type keeper struct {
	Options
	source *pcapng.Reader
	next   func(number int) (io.WriteCloser, error)
	phase  phase
	until  int64 // when ending is over
	// ring holds packets that may still have to be left out: before Start, or those at the end.
	ring     []pcapng.Packet
	ringSize int64
	evicted  int64 // time of the last packet that left the ring, or that was not kept
	file     *file
	kept     Kept
	first    int64    // time of the first packet that was written
	lost     []uint64 // by interface, as packets have said so far
	last     int64    // time of the last packet
	// A counter has grown enough to start and to stop, as another goroutine has read.
	startGrown, stopGrown atomic.Bool
	begun                 atomic.Bool // the event of Start has been
}

// file is a file that is being written.
type file struct {
	to     io.WriteCloser
	out    *pcapng.Writer
	from   int64
	counts []count // by interface
}

type count struct {
	packets, lost uint64
	note          pcapng.TapNote
}

// rings reports whether packets go through the ring.
func (k *keeper) rings() bool {
	bounded := k.Last > 0 || k.LastBytes > 0
	return bounded && (k.phase == waiting || k.Start == nil)
}

func (k *keeper) copy() error {
	if k.Start == nil {
		k.phase = keeping
	}
	packets := display.NewDecoder(k.source)
	if k.Start.analyses() || k.Stop.analyses() {
		packets.Analyse()
	}
	for {
		p, err := packets.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, pcapng.ErrTruncated) {
			break
		}
		if err != nil {
			return err
		}
		if err := k.take(p); err != nil {
			return err
		}
	}
	if k.phase != waiting {
		if err := k.drain(); err != nil {
			return err
		}
	}
	k.kept.LeftOut += uint64(len(k.ring))
	return k.finish()
}

// take takes a packet of the input.
func (k *keeper) take(p *display.Packet) error {
	raw := p.Raw
	for len(k.lost) <= raw.Interface {
		k.lost = append(k.lost, 0)
	}
	if raw.Has&pcapng.HasDropCount != 0 {
		k.lost[raw.Interface] += raw.DropCount
	}
	k.last = max(k.last, raw.Time)
	tap := k.source.Interfaces()[raw.Interface].Name
	started := k.Start.saw(p, tap, k.phase == waiting)
	if started || k.phase == waiting && k.startGrown.Load() {
		k.evict(raw.Time)
		k.phase, k.kept.Started = keeping, true
		k.begun.Store(true)
		k.Began()
		if err := k.drain(); err != nil {
			return err
		}
	}
	if k.phase == ending && raw.Time > k.until {
		k.phase = over
		k.Stopped()
	}
	switch {
	case k.phase == over:
		k.kept.LeftOut++
		return nil
	case k.rings():
		k.push(raw)
	case k.phase == waiting:
		k.leave(raw)
	default:
		if err := k.write(raw); err != nil {
			return err
		}
	}
	stopped := k.Stop.saw(p, tap, k.phase == keeping)
	if stopped || k.phase == keeping && k.stopGrown.Load() {
		k.phase, k.until, k.kept.Stopped = ending, raw.Time+int64(k.After), true
	}
	return nil
}

// CounterInterval is the time between two readings of the counters of triggers.
const CounterInterval = 100 * time.Millisecond

// watch reads counters until the returned function is called, which returns why they could not be read. When
// a counter has ended the recording, no further packet may come, so that watch calls Stopped.
func (k *keeper) watch() (end func() error) {
	if !k.Start.counts() && !k.Stop.counts() {
		return func() error { return nil }
	}
	ended, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- k.readCounters(ended) }()
	return func() error {
		close(ended)
		return <-done
	}
}

func (k *keeper) readCounters(ended <-chan struct{}) error {
	was := map[*Trigger]float64{}
	pause := CounterInterval
	for ticks := 0; ; ticks++ {
		start, err := k.Start.grown(k.Counters, was)
		stop, err2 := k.Stop.grown(k.Counters, was)
		if err := errors.Join(err, err2); err != nil {
			if ticks > 0 {
				return nil // the testbed ends, and its recording
			}
			k.Stopped()
			return err
		}
		if start {
			k.startGrown.Store(true)
			k.Began()
		}
		if stop && (k.Start == nil || k.begun.Load()) {
			k.stopGrown.Store(true)
			pause = k.After
		}
		select {
		case <-ended:
			return nil
		case <-time.After(pause):
		}
		if k.stopGrown.Load() {
			k.Stopped()
			return nil
		}
	}
}

func (k *keeper) leave(p *pcapng.Packet) {
	k.evicted = max(k.evicted, p.Time)
	k.kept.LeftOut++
}

// push puts a copy into the ring.
func (k *keeper) push(p *pcapng.Packet) {
	copied := *p
	copied.Data = bytes.Clone(p.Data)
	copied.Comments = nil
	for _, c := range p.Comments {
		copied.Comments = append(copied.Comments, bytes.Clone(c))
	}
	k.ring = append(k.ring, copied)
	k.ringSize += int64(len(p.Data))
	k.evict(p.Time)
}

// evict takes out of the ring what its bounds leave no room for at a time.
func (k *keeper) evict(now int64) {
	out := 0
	for out < len(k.ring) && (k.Last > 0 && k.ring[out].Time <= now-int64(k.Last) ||
		k.LastBytes > 0 && k.ringSize > k.LastBytes) {
		k.ringSize -= int64(len(k.ring[out].Data))
		k.leave(&k.ring[out])
		out++
	}
	if k.ring = k.ring[out:]; cap(k.ring) > 4*len(k.ring)+1024 {
		k.ring = slices.Clone(k.ring)
	}
}

// drain writes the ring.
func (k *keeper) drain() error {
	for i := range k.ring {
		if err := k.write(&k.ring[i]); err != nil {
			return err
		}
	}
	k.ring, k.ringSize = nil, 0
	return nil
}

func (k *keeper) write(p *pcapng.Packet) error {
	if k.file != nil && k.Rotate > 0 && k.file.out.Written() >= k.Rotate {
		if err := k.closeFile(p.Time-1, nil, k.kept.Files+1); err != nil {
			return err
		}
		k.evicted = p.Time - 1
	}
	if k.file == nil {
		k.first = cmp.Or(k.first, p.Time)
		if err := k.openFile(); err != nil {
			return err
		}
	}
	if err := k.describe(); err != nil {
		return err
	}
	c := &k.file.counts[p.Interface]
	c.packets++
	if p.Has&pcapng.HasDropCount != 0 {
		c.lost += p.DropCount
	}
	for _, comment := range p.Comments {
		if note, is := pcapng.ParseAnnotation(comment); is {
			c.note.Count(note.Verdict)
		}
	}
	k.kept.Packets++
	for len(k.kept.Taps) <= p.Interface {
		k.kept.Taps = append(k.kept.Taps, 0)
	}
	k.kept.Taps[p.Interface]++
	return k.file.out.WritePacket(p)
}

// describe writes the interfaces that the file lacks.
func (k *keeper) describe() error {
	for i := len(k.file.counts); i < len(k.source.Interfaces()); i++ {
		if _, err := k.file.out.AddInterface(k.source.Interfaces()[i]); err != nil {
			return err
		}
		k.file.counts = append(k.file.counts, count{})
	}
	return nil
}

func (k *keeper) openFile() error {
	to, err := k.next(k.kept.Files + 1)
	if err != nil {
		return err
	}
	out, err := pcapng.NewWriter(to, k.section())
	if err != nil {
		return errors.Join(err, to.Close())
	}
	k.kept.Files++
	k.file = &file{to: to, out: out, from: k.evicted + 1}
	return nil
}

// section returns the section header of the file to open.
func (k *keeper) section() pcapng.Section {
	s := k.source.Section()
	if k.Rotate == 0 {
		return s
	}
	s.Comments = slices.Clone(s.Comments)
	for i, comment := range s.Comments {
		if note, is := pcapng.ParseSectionNote([]byte(comment)); is {
			note.Recording, note.Part = k.first, k.kept.Files+1
			s.Comments[i] = string(note.AppendTo(nil))
		}
	}
	return s
}

// finish writes the end of the last file.
func (k *keeper) finish() error {
	if k.file == nil && k.Always && k.kept.Files == 0 {
		k.evicted = k.last
		if err := errors.Join(k.openFile(), k.describe()); err != nil {
			return err
		}
	}
	if k.file == nil {
		return nil
	}
	end := k.last
	if k.phase == ending || k.phase == over {
		end = min(end, k.until)
	}
	return k.closeFile(end, k.source.Statistics(), 0)
}

// closeFile writes the counts of a file that holds every packet up to a time. The statistics are the
// input's, nil before its end. next is the number of the file that continues the recording, or 0.
func (k *keeper) closeFile(end int64, statistics []pcapng.Statistics, next int) error {
	f := k.file
	for i := range f.counts {
		c := &f.counts[i]
		c.note.Continued = next
		s := pcapng.Statistics{Interface: i, Time: end, Start: f.from, End: end,
			Has: pcapng.HasStart | pcapng.HasEnd | pcapng.HasReceived | pcapng.HasDropped |
				pcapng.HasAccepted | pcapng.HasDelivered}
		for _, whole := range statistics {
			if whole.Interface != i {
				continue
			}
			if s.Start = max(f.from, whole.Start); k.phase == keeping {
				s.End = max(end, whole.End)
			}
			if i < len(k.lost) && whole.Dropped > k.lost[i] {
				c.lost += whole.Dropped - k.lost[i] // behind the tap's last packet
			}
			for _, comment := range whole.Comments {
				if note, is := pcapng.ParseTapNote([]byte(comment)); is {
					c.note.Limited, c.note.ClockStepped = note.Limited, note.ClockStepped
				}
			}
			if whole.Has&pcapng.HasOSDropped != 0 {
				s.Has |= pcapng.HasOSDropped
				s.OSDropped = whole.OSDropped
			}
		}
		s.Dropped, s.Delivered = c.lost, c.packets
		s.Received = c.packets + c.lost + c.note.Limited
		s.Accepted = s.Received
		s.Comments = []string{string(c.note.AppendTo(nil))}
		if err := f.out.WriteStatistics(s); err != nil {
			return err
		}
	}
	k.file = nil
	return errors.Join(f.out.Flush(), f.to.Close())
}

// abandon closes the file of a recording that could not be kept.
func (k *keeper) abandon() error {
	if k.file == nil {
		return nil
	}
	return k.file.to.Close()
}
