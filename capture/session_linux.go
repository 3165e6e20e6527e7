package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"
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
)

// Memory. Of the budget, an eighth holds packets that wait for their turn, an
// eighth what was not written yet, and the rest is rings.
const (
	defaultMemory = 64 << 20
	// patientMemory is the default where the threads cannot have priority.
	// With eight busy workers on two cores they waited for up to 0.6 s.
	patientMemory = 256 << 20
	minOrder      = 2 << 20
	minSpool      = 1 << 20
	ordinalsKept  = 1 << 16
	defaultSnap   = 256 << 10 // as tcpdump's; above any frame
)

// statisticsSize bounds the bytes of one statistics block, which a limit must
// leave room for.
const statisticsSize = 192

// Session is a running capture. Its methods are safe for concurrent use.
type Session struct {
	taps  []Tap
	rings []*ring
	epoll int
	hold  time.Duration
	limit int64 // bytes for packets; 0 for none
	stop  context.CancelFunc
	done  chan struct{}
	once  sync.Once

	// The rest belongs to the reading goroutine until done is closed.
	room     int // for the spool
	spool    *spool
	out      *pcapng.Writer
	order    *order
	ordinals *layers.Ordinals
	full     bool // the limit was reached
	packet   pcapng.Packet
	start    int64
	end      int64
	flushed  int64 // when out was flushed
	events   []unix.EpollEvent
	ready    []int   // taps with packets to read
	latest   []int64 // time of the last packet read, by tap
	received []uint64
	written  []uint64
	limited  []uint64
	disorder uint64
	err      error
}

// Start opens every tap and writes the stream's beginning to w. It returns
// when all taps record; packets of before that moment are left out, so that
// the taps agree about where the capture begins.
//
// The capture lasts until Stop, until ctx is done, or until a write to w
// fails, which Done tells. Writes to w are whole blocks, some 20 ms apart
// while packets come. While a write blocks, memory fills up, and then the taps,
// which count what they lose. w is used by one goroutine and not closed.
func Start(ctx context.Context, taps []Tap, options Options, w io.Writer) (*Session, error) {
	if err := options.validate(taps); err != nil {
		return nil, err
	}
	snap := options.SnapLen
	if snap == 0 {
		snap = defaultSnap
	}
	program, err := filter.Compile(options.Filter, snap)
	if err != nil {
		return nil, fmt.Errorf("start capture: %w", err)
	}
	s := &Session{
		taps: taps, done: make(chan struct{}), epoll: -1,
		received: make([]uint64, len(taps)), written: make([]uint64, len(taps)), limited: make([]uint64, len(taps)),
		events: make([]unix.EpollEvent, len(taps)), latest: make([]int64, len(taps)), ordinals: layers.NewOrdinals(ordinalsKept),
	}
	if err := s.open(program, snap, options.Memory); err != nil {
		return nil, errors.Join(fmt.Errorf("start capture: %w", err), s.close())
	}
	if err := s.begin(options, w); err != nil {
		return nil, errors.Join(fmt.Errorf("start capture: %w", err), s.close())
	}
	ctx, s.stop = context.WithCancel(ctx)
	go s.run(ctx)
	return s, nil
}

// open makes all sockets and rings, silent as yet.
func (s *Session) open(program []bpf.RawInstruction, snap, memory int) (err error) {
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("make epoll: %w", err)
	}
	size, err := divideMemory(memory, len(s.taps))
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
	for i := range s.taps {
		tap := &s.taps[i]
		if tap.NS == nil {
			return fmt.Errorf("open tap %s: no namespace", tap.Name())
		}
		err := tap.NS.Do(func() error {
			r, err := openRing(tap.Port)
			if err == nil {
				s.rings = append(s.rings, r)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("open tap %s: %w", tap.Name(), err)
		}
		if err := s.rings[i].setup(program, snap, size.ring, uint32(timeout.Milliseconds())); err != nil {
			return fmt.Errorf("open tap %s: %w", tap.Name(), err)
		}
		event := &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLERR, Fd: int32(i)}
		if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, s.rings[i].fd, event); err != nil {
			return fmt.Errorf("watch tap %s: %w", tap.Name(), err)
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
	switch {
	case budget == 0:
		budget = defaultMemory
		if !canHurry() {
			budget = patientMemory
		}
		budget = max(budget, 2*least)
	case budget < least:
		return shares{}, fmt.Errorf("%d bytes of memory for %d taps, want at least %d", budget, taps, least)
	}
	s := shares{order: max(minOrder, budget/8), spool: max(minSpool, budget/8)}
	if s.ring = (budget - s.order - s.spool) / taps; s.ring < minRing {
		s = shares{ring: minRing, order: minOrder, spool: budget - minOrder - taps*minRing}
	}
	return s, nil
}

// begin activates the taps and writes the header and interfaces.
func (s *Session) begin(options Options, w io.Writer) error {
	for i, r := range s.rings {
		if err := r.activate(); err != nil {
			return fmt.Errorf("open tap %s: %w", s.taps[i].Name(), err)
		}
	}
	now := time.Now()
	s.start = now.UnixNano()
	s.order.next, s.order.last = s.start>>bucketShift, s.start>>bucketShift
	epoch := options.Epoch
	if epoch.IsZero() {
		epoch = now
	}
	var err error
	s.spool = newSpool(w, s.room, func() { hurry() })
	s.out, err = pcapng.NewWriter(s.spool, pcapng.Section{
		OS: kernelName(), Application: "railbed", Comments: []string{headerComment(options.Dilation, epoch)},
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
			Name: tap.Name(), Description: tap.Link, Hardware: hardware, OS: kernelName(), Filter: options.Filter,
			SnapLen: uint32(options.SnapLen), LinkType: pcapng.LinkEthernet,
		})
		if err != nil {
			return err
		}
	}
	if options.Limit > 0 {
		s.limit = options.Limit - int64(len(s.taps)*statisticsSize)
		if s.limit < s.out.Written() {
			return fmt.Errorf("limit of %d bytes has no room for the descriptions of %d taps, want at least %d",
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

// Done is closed when the capture has ended, for whatever reason.
func (s *Session) Done() <-chan struct{} { return s.done }

// Stop ends the capture and returns its counts. It takes as long as packets
// are held back, about 0.1 s, and as long as the last write to w. A second
// Stop returns the same.
func (s *Session) Stop() (Stats, error) {
	s.stop()
	<-s.done
	s.once.Do(func() { s.err = errors.Join(s.err, s.close()) })
	stats := Stats{Start: time.Unix(0, s.start), End: time.Unix(0, s.end), Bytes: s.out.Written(), Unordered: s.disorder}
	for i, r := range s.rings {
		stats.Taps = append(stats.Taps, TapStats{
			Tap: s.taps[i].Name(), Received: s.received[i] + r.dropped, Dropped: r.dropped, Limited: s.limited[i], Written: s.written[i],
		})
	}
	return stats, s.err
}

func (s *Session) close() error {
	var errs []error
	if s.spool != nil {
		_ = s.spool.close() // run has reported it
	}
	for _, r := range s.rings {
		errs = append(errs, r.close())
	}
	if s.epoll >= 0 {
		errs = append(errs, unix.Close(s.epoll))
	}
	return errors.Join(errs...)
}

// hurry puts the calling goroutine's thread before everything that the testbed
// runs, where the host allows it: on a busy host a thread of equal rank waits
// for tenths of a second, longer than a ring lasts. A nice value does not help,
// because it counts within a session's autogroup only, and every worker is a
// session. The threads use some tenths of a core at full rate, far from where
// the kernel throttles real-time threads. They are not given back; they end
// with their goroutines. It reports whether the host allowed it; in a user
// namespace it does not, and larger rings must do.
func hurry() bool {
	runtime.LockOSThread()
	attributes := &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}
	return unix.SchedSetAttr(0, attributes, 0) == nil
}

// canHurry tries hurry on a thread that ends with it.
func canHurry() bool {
	answer := make(chan bool)
	go func() { answer <- hurry() }()
	return <-answer
}

// run is the reading goroutine.
func (s *Session) run(ctx context.Context) {
	defer close(s.done)
	hurry()
	s.err = s.record(ctx)
	// What was gathered is written even after an error; one error is enough.
	if err := s.spool.close(); s.err == nil {
		s.err = err
	}
}

// record reads until the context ends, then until everything of before that
// moment has come, and writes the counts.
func (s *Session) record(ctx context.Context) error {
	var end int64
	for {
		now := time.Now().UnixNano()
		if end == 0 && ctx.Err() != nil {
			end = now
		}
		if end != 0 && now-end > int64(s.hold) {
			break
		}
		if err := s.step(now, end); err != nil {
			s.end = time.Now().UnixNano()
			return err
		}
	}
	s.end = end
	s.order.releaseAll()
	return s.finish()
}

// step waits for packets, reads them, and writes those whose time has come.
// Packets of after end, where it is set, are left out.
func (s *Session) step(now, end int64) error {
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
	// After a delay the rings are full. They are read in turns of some blocks,
	// so that what is common to all of them can be written and need not be held.
	for len(s.ready) > 0 {
		horizon, err := s.turn(end)
		if err != nil {
			return err
		}
		s.order.release(min(horizon, now-int64(s.hold)))
	}
	s.order.release(now - int64(s.hold))
	if now-s.flushed < int64(flushTick) {
		return nil
	}
	s.flushed = now
	if err := s.out.Flush(); err != nil {
		return err
	}
	return s.spool.failed()
}

// turn reads some blocks of every tap that has any, and keeps in ready those
// that may have more. No packet of before the horizon is in these.
func (s *Session) turn(end int64) (horizon int64, err error) {
	horizon = math.MaxInt64
	kept := s.ready[:0]
	for _, tap := range s.ready {
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
func (s *Session) read(tap int, end int64) (more bool, err error) {
	return s.rings[tap].drain(turnBlocks, func(p *captured) {
		s.latest[tap] = p.time
		if p.time < s.start || end != 0 && p.time > end {
			return
		}
		s.received[tap]++
		outbound := uint64(0)
		if p.flags&pcapng.DirectionMask == pcapng.Outbound {
			outbound = 1
		}
		id := s.ordinals.ID(layers.Identity(p.data, p.length), uint64(tap)<<1|outbound, p.time)
		s.order.add(entry{
			time: p.time, id: id, dropped: p.dropped, length: uint32(p.length), tap: uint32(tap), flags: p.flags,
		}, p.data)
	})
}

// packetSize bounds the bytes of a packet's block beside its data.
const packetSize = 96

// write is called by order for each packet in turn. A failed write is kept by
// the writer and returned by its Flush.
func (s *Session) write(e *entry, data []byte) {
	if s.limit > 0 && (s.full || s.out.Written()+int64(len(data)+packetSize) > s.limit) {
		// Once a packet was left out all are, so that the stream is whole up
		// to one moment.
		s.full = true
		s.limited[e.tap]++
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
	if e.dropped > 0 {
		s.packet.Has |= pcapng.HasDropCount
		s.packet.DropCount = e.dropped
	}
	s.out.WritePacket(&s.packet)
}

// finish writes the counts of every tap.
func (s *Session) finish() error {
	for i, r := range s.rings {
		if err := r.countDrops(); err != nil {
			return fmt.Errorf("tap %s: %w", s.taps[i].Name(), err)
		}
		statistics := pcapng.Statistics{
			Interface: i, Time: s.end, Start: s.start, End: s.end,
			Received: s.received[i] + r.dropped, Dropped: r.dropped,
			Accepted: s.received[i] + r.dropped, Delivered: s.written[i],
			Has: pcapng.HasStart | pcapng.HasEnd | pcapng.HasReceived | pcapng.HasDropped | pcapng.HasAccepted | pcapng.HasDelivered,
		}
		if s.limited[i] > 0 {
			statistics.Comments = []string{fmt.Sprintf("railbed limited=%d", s.limited[i])}
		}
		if err := s.out.WriteStatistics(statistics); err != nil {
			return err
		}
	}
	return s.out.Flush()
}
