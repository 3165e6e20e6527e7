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

// Timing of a session. The kernel hands a block over when the block is full, or at the latest after
// the block timeout. A block that opened just after a tick of its timer stays open for two ticks.
// So at time t, no unread packet is older than t minus twice the timeout. Twice the timeout plus a
// margin for a delayed kernel timer is the hold-back window: 80 ms, or 120 ms with many taps. A
// packet reaches the stream at the latest one window and one tick of the reader after it was on the
// wire.
const (
	blockTimeout     = 20 * time.Millisecond
	manyBlockTimeout = 40 * time.Millisecond // one kernel timer per tap: fewer wake-ups
	manyTaps         = 128
	orderMargin      = 40 * time.Millisecond
	readerTick       = 20 * time.Millisecond
	// readerRest is the time between two turns. Without it, the reader wakes for each block of each tap, and
	// takes the CPU from the senders and switches a thousand times a second. They then lose more time to
	// cold caches and small batches than the reader takes. Feed and rings have room for some 100 ms.
	readerRest = 10 * time.Millisecond
	flushTick  = 20 * time.Millisecond

	// turnBlocks is how many blocks of a tap are read before the next tap is read.
	turnBlocks = 4
	// mostTurns bounds the turns between two readings of the clocks, so that the recording also
	// ends during a flood of packets.
	mostTurns = 256
)

// Memory. An eighth of the budget holds packets that wait to be ordered, a part holds blocks that
// wait to be written, and the rings get the rest.
const (
	// With priority the rings are read in time, but the stream's writer may be late. Half of the
	// budget is for that, and its pages are touched only then.
	defaultMemory = 64 << 20
	// Without priority the reader is late too: by up to 0.6 s with eight busy workers on two cores.
	patientMemory = 256 << 20
	minOrder      = 2 << 20
	minSpool      = 1 << 20
	ordinalsKept  = 1 << 16
)

// statisticsSize bounds the bytes of one statistics block. A limit must leave room for one block
// for each tap.
const statisticsSize = 336

// recorder reads the taps and writes the stream. It belongs to one goroutine.
type recorder struct {
	taps     []Tap
	rings    []*ring   // by tap; nil for a soft switch's tap
	soft     *softTaps // nil if no tap is fed by soft switches
	epoll    int
	hold     time.Duration
	limit    int64 // bytes for packets; 0 for none
	room     int   // bytes for the spool
	spool    *spool
	out      *pcapng.Writer
	order    *order
	ordinals *layers.Ordinals
	full     bool // the limit was reached
	packet   pcapng.Packet
	start    int64
	end      int64
	flushed  int64 // monotonic time of the last flush of out
	events   []unix.EpollEvent
	ready    []int   // taps with packets to read
	latest   []int64 // time of the last packet read, by tap
	received []uint64
	written  []uint64
	lost     []uint64                 // packets that reached the recorder and could not be recorded
	outside  atomic.Pointer[[]uint64] // TapStats.Outside, set before the end; nil without a count
	// packets outside the recording's time, since the last reading of the clocks
	leftOut  []uint64
	notes    []pcapng.TapNote
	disorder uint64
	clock    clockWatch
	failed   bool // nothing can be written any more
}

// newRecorder takes ownership of the sockets, sets up their rings, starts them and writes the
// beginning of the stream. It closes the sockets on failure.
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

// open sets up the rings. They receive nothing yet.
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

// divideMemory divides a budget into the ring of each tap, the room for packets that wait to be
// ordered, and the room for blocks that wait to be written.
func divideMemory(budget, taps int) (shares, error) {
	least := taps*minRing + minOrder + minSpool
	hurried := canRaisePriority()
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

// begin activates the taps and writes the section header and the interfaces.
func (s *recorder) begin(options Options, w io.Writer) error {
	for i, r := range s.rings {
		if r == nil {
			continue
		}
		if err := r.activate(); err != nil {
			return fmt.Errorf("open tap %s: %w", s.taps[i].Name(), err)
		}
	}
	now, _ := s.clock.readClocks()
	s.start = now.real
	s.order.restart(s.start)
	s.soft.begin(s.start)
	note := pcapng.SectionNote{Dilation: options.Dilation, Epoch: options.Epoch, Plan: options.Plan,
		Testbed: options.Testbed, Hits: s.soft != nil}
	if note.Epoch.IsZero() {
		note.Epoch = time.Unix(0, s.start)
	}
	var err error
	s.spool = newSpool(w, s.room, func() { raisePriority() })
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
			Description: pcapng.TapDescription{Link: tap.Link, Ranks: tap.Ranks, Bypass: tap.Bypass}.String(),
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

// stats returns the counts of the ended recording.
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

// dropped returns how many packets a tap has lost, as last counted.
func (s *recorder) dropped(tap int) uint64 {
	total := s.lost[tap] + s.soft.lost(tap)
	if r := s.rings[tap]; r != nil {
		total += r.dropped
	}
	return total
}

// close releases everything except the spool's writer.
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
	raisePriority()
	err := s.record(ctx)
	// The gathered packets are written even after an error. Only the first error is returned.
	if spooled := s.spool.close(); err == nil {
		err = spooled
	}
	return errors.Join(err, s.close())
}

// record reads until the context ends, then until it has read every packet from before that moment,
// and writes the counts. It measures the time after the end by the monotonic clock.
func (s *recorder) record(ctx context.Context) error {
	var end, ended int64
	for last := false; !last; {
		now := s.readClocks()
		if end == 0 && ctx.Err() != nil {
			end, ended = now.real, now.after
		}
		// A step that begins after the hold-back window finds every packet of the recording,
		// however late the thread was before.
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
	s.readClocks()
	s.order.releaseAll()
	return s.finish()
}

// step waits for packets, reads them, and writes those that are older than the hold-back window. If
// end is set, packets after end are left out.
func (s *recorder) step(now clocks, end int64) error {
	unix.Nanosleep(&unix.Timespec{Nsec: int64(readerRest)}, nil) // time.Sleep would wait for another thread
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
		// A link that goes down leaves an error on the socket, which epoll reports until it is
		// read. The socket records again when the link is up.
		if _, err := unix.GetsockoptInt(s.rings[tap].fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil {
			return fmt.Errorf("tap %s: read socket error: %w", s.taps[tap].Name(), err)
		}
	}
	// After a delay the rings and the feed are full. They are read in turns. So packets older than
	// the last packet read from each of them are written at once and need not be held.
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
	return s.spool.wake()
}

// turn reads some blocks of every tap in s.ready and keeps in s.ready the taps that may have more.
// The feed was read until the time `until`. Neither the rings nor the feed hold an unread packet
// older than horizon. A ring is not read beyond that time, because the ids of its packets follow
// from records of the feed.
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

// read reads some blocks of one tap.
func (s *recorder) read(tap int, end int64) (more bool, err error) {
	return s.rings[tap].drain(turnBlocks, func(p *captured) { s.add(tap, p, end) })
}

// add gives a packet of a ring to order.
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
		e.id = layers.Identity(p.data, p.length)
	}
	s.order.add(e, p.data)
}

// guesses reports whether the id of a packet is guessed from equal packets at its tap. A record of a change
// describes a packet that also passes the tap.
func (s *recorder) guesses(e *entry) bool {
	return !e.join && (s.soft == nil || !s.soft.serials) && e.flags&pcapng.DirectionMask != 0
}

// packetSize bounds the bytes of a packet block without the packet's data.
const packetSize = 96

// write writes a packet; order calls it for each packet in the order of time. The writer keeps a
// write error and returns it from Flush.
func (s *recorder) write(e *entry, data []byte) {
	if e.join {
		s.soft.join(e)
	}
	if e.unwanted {
		return
	}
	if s.guesses(e) {
		e.id = s.ordinals.ID(e.id, uint64(e.tap)<<1|uint64(e.flags&pcapng.DirectionMask>>1), e.time)
	}
	if s.failed {
		s.received[e.tap]--
		s.lost[e.tap]++
		return
	}
	if s.limit > 0 && (s.full || s.out.Written()+int64(len(data)+packetSize) > s.limit) {
		// After the first packet over the limit, all packets are left out, so that the stream is
		// complete up to one moment.
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
