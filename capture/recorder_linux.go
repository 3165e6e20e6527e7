package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"railbed/capture/filter"
	"railbed/capture/layers"
	"railbed/capture/pcapng"
)

// Timing of a session. The kernel hands a block over when it is full, or else
// after the block timeout; a block that opened just after a tick lives for two
// of them. So what was not read at time t is not older than t minus twice the
// timeout, and with the margin for a delayed kernel timer that is the
// hold-back window: 80 ms, or 120 ms with many taps. A packet reaches the
// stream at most that and one tick of the reader after it was on the wire.
const (
	blockTimeout     = 20 * time.Millisecond
	manyBlockTimeout = 40 * time.Millisecond // one kernel timer per tap: fewer wake-ups
	manyTaps         = 128
	orderMargin      = 40 * time.Millisecond
	readerTick       = 20 * time.Millisecond
	flushTick        = 5 * time.Millisecond // under load the reader wakes more often

	// turnBlocks is how many blocks of a tap are read before the next tap's.
	turnBlocks = 4
	// mostTurns bounds the turns between two looks at the clocks, so that a flood does
	// not keep the recording from its end.
	mostTurns = 256
)

// Memory. Of the budget, an eighth holds packets that wait for their turn, a
// part what was not written yet, and the rest is rings.
const (
	// With priority the rings are read in time, but whoever writes may be late:
	// half of the budget is for that, and is touched only then.
	defaultMemory = 64 << 20
	// Without priority the reader is late too: with eight busy workers on two
	// cores by up to 0.6 s.
	patientMemory = 256 << 20
	minOrder      = 2 << 20
	minSpool      = 1 << 20
	ordinalsKept  = 1 << 16
)

// statisticsSize bounds the bytes of one statistics block, which a limit must
// leave room for.
const statisticsSize = 336

// recorder reads the taps and writes the stream. It belongs to one goroutine.
type recorder struct {
	taps     []Tap
	rings    []*ring   // by tap; nil of a soft switch's
	soft     *softTaps // nil without
	epoll    int
	hold     time.Duration
	limit    int64 // bytes for packets; 0 for none
	room     int   // for the spool
	spool    *spool
	out      *pcapng.Writer
	order    *order
	ordinals *layers.Ordinals
	full     bool // the limit was reached
	packet   pcapng.Packet
	start    int64
	end      int64
	flushed  int64 // when out was flushed, by the monotonic clock
	events   []unix.EpollEvent
	ready    []int   // taps with packets to read
	latest   []int64 // time of the last packet read, by tap
	received []uint64
	written  []uint64
	lost     []uint64                 // packets that reached the recorder and could not be recorded
	outside  atomic.Pointer[[]uint64] // TapStats.Outside, set before the end; nil without a count
	// packets outside the recording's time, since the last look at the clocks
	leftOut  []uint64
	notes    []pcapng.TapNote
	disorder uint64
	clock    clockWatch
	failed   bool // nothing can be written any more
}

// newRecorder takes over the sockets, makes their rings, starts them and writes
// the stream's beginning. It closes the sockets when it fails.
func newRecorder(taps []Tap, rings []*ring, options Options, w io.Writer) (r *recorder, err error) {
	s := &recorder{
		taps: taps, rings: rings, epoll: -1,
		received: make([]uint64, len(taps)),
		written:  make([]uint64, len(taps)),
		lost:     make([]uint64, len(taps)),
		leftOut:  make([]uint64, len(taps)),
		notes:    make([]pcapng.TapNote, len(taps)),
		clock:    clockWatch{read: readClocks},
		events:   make([]unix.EpollEvent, len(taps)),
		latest:   make([]int64, len(taps)),
		ordinals: layers.NewOrdinals(ordinalsKept),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	program, err := filter.Compile(options.Filter, options.snap())
	if err != nil {
		return nil, err
	}
	if err := s.open(program, options); err != nil {
		return nil, err
	}
	if s.soft, err = openSoftTaps(taps, program, options); err != nil {
		return nil, err
	}
	if err := s.begin(options, w); err != nil {
		return nil, err
	}
	return s, nil
}

// open makes the rings, silent as yet.
func (s *recorder) open(program []bpf.RawInstruction, options Options) (err error) {
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("make epoll: %w", err)
	}
	size, err := divideMemory(options.Memory, max(1, countRings(s.rings)))
	if err != nil {
		return err
	}
	s.room = size.spool
	timeout := blockTimeout
	if len(s.taps) > manyTaps {
		timeout = manyBlockTimeout
	}
	s.hold = 2*timeout + orderMargin
	s.order = newOrder(0, size.order, s.write)
	err = eachRing(s.rings, func(i int, r *ring) error {
		if err := r.setup(program, options.snap(), size.ring, uint32(timeout.Milliseconds())); err != nil {
			return fmt.Errorf("open tap %s: %w", s.taps[i].Name(), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, r := range s.rings {
		if r == nil {
			continue
		}
		event := &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLERR, Fd: int32(i)}
		if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, r.fd, event); err != nil {
			return fmt.Errorf("watch tap %s: %w", s.taps[i].Name(), err)
		}
	}
	return nil
}

// shares are the parts of the memory budget.
type shares struct{ ring, order, spool int }

// divideMemory shares a budget: the ring of each tap, the room for packets that
// wait to be ordered, and that for blocks that wait to be written.
func divideMemory(budget, taps int) (shares, error) {
	least := taps*minRing + minOrder + minSpool
	hurried := canHurry()
	switch {
	case budget == 0 && hurried:
		budget = max(defaultMemory, 2*least)
	case budget == 0:
		budget = max(patientMemory, 2*least)
	case budget < least:
		return shares{}, fmt.Errorf("%d bytes of memory for %d taps, want at least %d", budget, taps, least)
	}
	s := shares{order: max(minOrder, budget/8), spool: max(minSpool, budget/8)}
	if hurried {
		s.spool = max(minSpool, budget/2)
	}
	if s.ring = (budget - s.order - s.spool) / taps; s.ring < minRing {
		s = shares{ring: minRing, order: minOrder, spool: budget - minOrder - taps*minRing}
	}
	return s, nil
}

// begin activates the taps and writes the header and interfaces.
func (s *recorder) begin(options Options, w io.Writer) error {
	for i, r := range s.rings {
		if r == nil {
			continue
		}
		if err := r.activate(); err != nil {
			return fmt.Errorf("open tap %s: %w", s.taps[i].Name(), err)
		}
	}
	now, _ := s.clock.look()
	s.start = now.real
	s.order.restart(s.start)
	note := pcapng.SectionNote{Dilation: options.Dilation, Epoch: options.Epoch, Plan: options.Plan,
		Testbed: options.Testbed}
	if note.Epoch.IsZero() {
		note.Epoch = time.Unix(0, s.start)
	}
	var err error
	s.spool = newSpool(w, s.room, func() { hurry() })
	s.out, err = pcapng.NewWriter(s.spool, pcapng.Section{
		OS: kernelName(), Application: "railbed", Comments: []string{string(note.AppendTo(nil))},
	})
	if err != nil {
		return err
	}
	for _, tap := range s.taps {
		hardware := pcapng.HardwareSwitchPort
		if tap.NIC {
			hardware = pcapng.HardwareNIC
		}
		_, err := s.out.AddInterface(pcapng.Interface{
			Name:        tap.Name(),
			Description: tap.Link,
			Hardware:    hardware,
			OS:          kernelName(),
			Filter:      options.Filter,
			SnapLen:     uint32(options.SnapLen), LinkType: pcapng.LinkEthernet,
		})
		if err != nil {
			return err
		}
	}
	if options.Limit > 0 {
		s.limit = options.Limit - int64(len(s.taps)*statisticsSize)
		if s.limit < s.out.Written() {
			return fmt.Errorf("limit of %d bytes has no room for the descriptions of %d taps, want at "+
				"least %d",
				options.Limit, len(s.taps), s.out.Written()+int64(len(s.taps)*statisticsSize))
		}
	}
	return s.out.Flush()
}

func kernelName() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return "Linux"
	}
	return unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
}

// stats are the counts once the recording has ended.
func (s *recorder) stats() Stats {
	stats := Stats{Start: time.Unix(0, s.start), End: time.Unix(0, s.end), Bytes: s.out.Written(),
		Unordered: s.disorder, ClockStepped: s.clock.by}
	for i := range s.taps {
		dropped := s.dropped(i)
		stats.Taps = append(stats.Taps, TapStats{
			Tap:      s.taps[i].Name(),
			Received: s.received[i] + dropped,
			Dropped:  dropped,
			Limited:  s.notes[i].Limited,
			Written:  s.written[i],
			Outside:  s.lostOutside(i),
		})
	}
	return stats
}

// dropped is what a tap has lost, as last counted.
func (s *recorder) dropped(tap int) uint64 {
	total := s.lost[tap] + s.soft.lost(tap)
	if r := s.rings[tap]; r != nil {
		total += r.dropped
	}
	return total
}

// close releases everything but the spool's writer.
func (s *recorder) close() error {
	if s.spool != nil {
		_ = s.spool.close() // run has reported it
	}
	errs := []error{closeRings(s.rings), s.soft.close()}
	if s.epoll >= 0 {
		errs = append(errs, unix.Close(s.epoll))
	}
	return errors.Join(errs...)
}

// run records until the context ends, and closes the taps.
func (s *recorder) run(ctx context.Context) error {
	hurry()
	err := s.record(ctx)
	// What was gathered is written even after an error; one error is enough.
	if spooled := s.spool.close(); err == nil {
		err = spooled
	}
	return errors.Join(err, s.close())
}

// record reads until the context ends, then until everything of before that
// moment has come, and writes the counts. How long that takes is measured by the
// monotonic clock.
func (s *recorder) record(ctx context.Context) error {
	var end, ended int64
	for last := false; !last; {
		now := s.look()
		if end == 0 && ctx.Err() != nil {
			end, ended = now.real, now.after
		}
		// A step that begins after the hold-back window finds all that there is,
		// however late the thread was before it.
		last = end != 0 && now.after-ended > int64(s.hold)
		if err := s.step(now, end); err != nil {
			s.abandon()
			return err
		}
	}
	s.end = end
	if err := s.readRest(end); err != nil {
		s.abandon()
		return err
	}
	s.look()
	s.order.releaseAll()
	return s.finish()
}

// step waits for packets, reads them, and writes those whose time has come.
// Packets of after end, where it is set, are left out.
func (s *recorder) step(now clocks, end int64) error {
	count, err := unix.EpollWait(s.epoll, s.events, int(readerTick.Milliseconds()))
	if err != nil && err != unix.EINTR {
		return fmt.Errorf("wait for packets: %w", err)
	}
	s.ready = s.ready[:0]
	for i := range max(count, 0) {
		tap := int(s.events[i].Fd)
		s.ready = append(s.ready, tap)
		if s.events[i].Events&unix.EPOLLERR == 0 {
			continue
		}
		// A link that goes down leaves an error on the socket, which epoll
		// repeats until it is read. The socket records again when the link is up.
		if _, err := unix.GetsockoptInt(s.rings[tap].fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil {
			return fmt.Errorf("tap %s: read socket error: %w", s.taps[tap].Name(), err)
		}
	}
	// After a delay the rings and the feed are full. They are read in turns, so that
	// what is common to all of them can be written and need not be held.
	for fed, turns := s.soft != nil, 0; (fed || len(s.ready) > 0) && turns < mostTurns; turns++ {
		until := int64(math.MaxInt64)
		if fed {
			if fed, err = s.readSoft(end); err != nil {
				return err
			}
			if fed {
				until = s.soft.latest
			}
		}
		horizon, err := s.turn(end, until)
		if err != nil {
			return err
		}
		s.order.release(min(horizon, now.real-int64(s.hold)))
	}
	s.order.release(now.real - int64(s.hold))
	if now.after-s.flushed < int64(flushTick) {
		return nil
	}
	s.flushed = now.after
	if err := s.out.Flush(); err != nil {
		return err
	}
	return s.spool.failed()
}

// turn reads some blocks of every tap that has any, and keeps in ready those
// that may have more. These and the feed, which was read until a time, hold no
// packet before the horizon. Rings are not read further than the feed, because it
// has what their packets' ids follow from.
func (s *recorder) turn(end, until int64) (horizon int64, err error) {
	horizon = until
	kept := s.ready[:0]
	for _, tap := range s.ready {
		if s.latest[tap] > until {
			kept = append(kept, tap)
			continue
		}
		more, err := s.read(tap, end)
		if err != nil {
			return 0, fmt.Errorf("tap %s: %w", s.taps[tap].Name(), err)
		}
		if more {
			kept = append(kept, tap)
			horizon = min(horizon, s.latest[tap])
		}
	}
	s.ready = kept
	return horizon, nil
}

// read takes some of what one tap has.
func (s *recorder) read(tap int, end int64) (more bool, err error) {
	return s.rings[tap].drain(turnBlocks, func(p *captured) { s.add(tap, p, end) })
}

// add takes a packet of a ring.
func (s *recorder) add(tap int, p *captured, end int64) {
	s.latest[tap] = p.time
	within := s.within(tap, p.time, end)
	if !within && !s.soft.joins(tap) {
		return
	}
	if within {
		s.received[tap]++
	}
	e := entry{time: p.time, dropped: p.dropped, length: uint32(p.length), tap: uint32(tap), flags: p.flags,
		unwanted: !within}
	if e.join = s.soft.joins(tap); e.join {
		e.id = joinKey(p.data, p.length, tap)
	} else {
		e.id = s.ordinals.ID(layers.Identity(p.data, p.length),
			uint64(tap)<<1|uint64(p.flags&pcapng.DirectionMask>>1), p.time)
	}
	s.order.add(e, p.data)
}

// packetSize bounds the bytes of a packet's block beside its data.
const packetSize = 96

// write is called by order for each packet in turn. A failed write is kept by
// the writer and returned by its Flush.
func (s *recorder) write(e *entry, data []byte) {
	if e.join {
		s.soft.join(e)
	}
	if e.unwanted {
		return
	}
	if s.failed {
		s.received[e.tap]--
		s.lost[e.tap]++
		return
	}
	if s.limit > 0 && (s.full || s.out.Written()+int64(len(data)+packetSize) > s.limit) {
		// Once a packet was left out all are, so that the stream is whole up
		// to one moment.
		s.full = true
		s.notes[e.tap].Limited++
		return
	}
	s.written[e.tap]++
	if e.unordered {
		s.disorder++
	}
	s.packet = pcapng.Packet{
		Interface: int(e.tap), Time: e.time, Length: int(e.length), Data: data,
		Has: pcapng.HasFlags | pcapng.HasID, Flags: e.flags, ID: e.id,
	}
	if e.note.fed {
		s.annotate(e)
	}
	if e.dropped > 0 {
		s.packet.Has |= pcapng.HasDropCount
		s.packet.DropCount = e.dropped
	}
	s.out.WritePacket(&s.packet)
}
