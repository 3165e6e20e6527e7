package fabric

import (
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"railbed/fabric/bpf"
	"railbed/fabric/softswitch"
	"railbed/internal/feed"
	"railbed/plan"
	"railbed/plan/spec"
)

// hits passes the packets that faults of kernel links and switches hit to recordings.
type hits struct {
	mu      sync.Mutex
	reports *bpf.Reports // nil until a fault or a recording needs them
	sites   []hitSite    // by number (bpf.Load)
	faults  []string     // names of faults, by number from 1
	feeds   map[*hitFeed]struct{}
	reader  *bpf.ReportReader // nil without feeds
	ended   chan struct{}     // closed when the reading has ended
	failed  error             // of the reader
}

// hitSite is a fault at a port.
type hitSite struct {
	loaded     *bpf.Loaded // nil after the fault
	port       plan.End
	fault      uint8 // index in hits.faults plus 1; 0 without a number
	verdict    feed.Verdict
	unreported uint64 // as last read
}

// hitFeed is a recording.
type hitFeed struct {
	writer *feed.Writer
	taps   map[plan.End]uint16
}

const (
	// hitTick is the longest time that a report waits. Recorders hold packets back for four times as long.
	hitTick = 10 * time.Millisecond
	// hitCountTick is the time between two readings of the numbers of packets that were not reported.
	hitCountTick = 50 * time.Millisecond
	// hitFeedSize is the size of a feed, of which the kernel allocates what is used.
	hitFeedSize = 16 << 20
)

// begin makes the map of reports, unless it exists.
func (h *hits) begin() (err error) {
	if h.reports == nil {
		h.reports, err = bpf.NewReports()
	}
	return err
}

// load makes the counters of a fault at a port, whose packets are then reported.
func (h *hits) load(compiled *bpf.Fault, at plan.End) (*bpf.Loaded, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.begin(); err != nil {
		return nil, err
	}
	loaded, err := bpf.Load(compiled, uint32(len(h.sites)))
	if err != nil {
		return nil, err
	}
	key, _ := compiled.Action()
	h.sites = append(h.sites, hitSite{loaded: loaded, port: at, fault: h.number(compiled.Name),
		verdict: hitVerdicts[key]})
	return loaded, nil
}

// hitVerdicts are the verdicts on packets that a fault changes. A packet that it drops has none.
var hitVerdicts = map[string]feed.Verdict{spec.FaultDuplicates: feed.Duplicate,
	spec.FaultCorrupts: feed.Corrupt, spec.FaultTruncates: feed.Truncate, spec.FaultMarks: feed.Mark}

// number returns the number of a fault in feeds. A feed has names for 255 faults.
func (h *hits) number(name string) uint8 {
	if at := slices.Index(h.faults, name); at >= 0 {
		return uint8(at + 1)
	}
	if len(h.faults) == 255 {
		return 0
	}
	h.faults = append(h.faults, name)
	for f := range h.feeds {
		f.writer.NameFault(uint8(len(h.faults)), name)
	}
	return uint8(len(h.faults))
}

// free ends a fault at a port and frees its counters.
func (h *hits) free(loaded *bpf.Loaded) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.sites {
		if h.sites[i].loaded == loaded {
			h.countOf(&h.sites[i])
			h.sites[i].loaded = nil
		}
	}
	return loaded.Close()
}

// record starts writing the packets that faults hit at ports into a feed. A tap's number is the port's index
// in the list.
func (h *hits) record(ports []plan.End) (_ *Feed, err error) {
	file, err := feed.Create(hitFeedSize)
	if err != nil {
		return nil, err
	}
	writer, err := feed.NewWriter(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	one := &hitFeed{writer: writer, taps: map[plan.End]uint16{}}
	for i, port := range ports {
		one.taps[port] = uint16(i)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.listen(); err != nil {
		return nil, errors.Join(err, writer.Close(), file.Close())
	}
	for i, name := range h.faults {
		writer.NameFault(uint8(i+1), name)
	}
	h.count() // what was not reported before is not lost for the new feed
	h.feeds[one] = struct{}{}
	return &Feed{File: file, end: func() error { return h.forget(one) }}, nil
}

// listen starts reading reports, unless they are read already.
func (h *hits) listen() (err error) {
	if h.reader != nil {
		return h.failed
	}
	if err := h.begin(); err != nil {
		return err
	}
	if h.reader, err = h.reports.Open(); err != nil {
		return err
	}
	h.feeds, h.ended, h.failed = map[*hitFeed]struct{}{}, make(chan struct{}), nil
	go h.read(h.reader, h.ended)
	return nil
}

// forget ends a feed.
func (h *hits) forget(one *hitFeed) error {
	h.mu.Lock()
	delete(h.feeds, one)
	err := errors.Join(one.writer.Close(), h.failed)
	if len(h.feeds) > 0 {
		h.mu.Unlock()
		return err
	}
	err = errors.Join(err, h.reader.Close()) // before another reader can begin
	ended := h.ended
	h.reader = nil
	h.mu.Unlock()
	<-ended
	return err
}

// read passes reports on until the reader is closed.
func (h *hits) read(from *bpf.ReportReader, ended chan struct{}) {
	defer close(ended)
	var counted time.Time
	for {
		now := time.Now()
		offset, err := wallOffset()
		if err == nil {
			err = from.Read(now.Add(hitTick), func(one *bpf.Hit) { h.write(one, offset) })
		}
		if errors.Is(err, os.ErrClosed) {
			return
		}
		h.mu.Lock()
		if err != nil {
			h.fail(err)
		}
		if now.Sub(counted) >= hitCountTick {
			counted = now
			h.count()
		}
		h.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// fail records that no more packets are read, at all taps.
func (h *hits) fail(err error) {
	h.failed = err
	for f := range h.feeds {
		for _, tap := range f.taps {
			f.writer.Lose(tap, 1)
		}
	}
}

// wallOffset returns the difference between the wall clock and the clock that programs read, in nanoseconds.
// It reads the clocks several times, because the thread may lose its core in between.
func wallOffset() (offset int64, err error) {
	least := int64(math.MaxInt64)
	for range 3 {
		before, err := monotonic()
		if err != nil {
			return 0, err
		}
		wall := time.Now().UnixNano()
		after, err := monotonic()
		if err != nil {
			return 0, err
		}
		if took := int64(after - before); took < least {
			least, offset = took, wall-int64(before)-took/2
		}
	}
	return offset, nil
}

// write writes a packet into the feeds that record its port.
func (h *hits) write(one *bpf.Hit, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if int(one.Site) >= len(h.sites) {
		return
	}
	site := &h.sites[one.Site]
	r := feed.Record{Time: one.Time + offset, Length: one.Length, Event: feed.Drop, Verdict: site.verdict,
		Reason: uint8(softswitch.FromFault), Fault: site.fault, Data: one.Data}
	if site.verdict != feed.Plain {
		r.Event = feed.Harm
	}
	for f := range h.feeds {
		if tap, wanted := f.taps[site.port]; wanted {
			r.Tap = tap
			f.writer.Write(&r)
		}
	}
}

// count calls countOf for all faults.
func (h *hits) count() {
	for i := range h.sites {
		h.countOf(&h.sites[i])
	}
}

// countOf counts in the feeds the packets at a port that were not reported since the last call.
func (h *hits) countOf(site *hitSite) {
	if site.loaded == nil {
		return
	}
	counts, err := site.loaded.Counts()
	if err != nil || counts.Unreported == site.unreported {
		return // a fault without counters has an error of its own
	}
	for f := range h.feeds {
		if tap, wanted := f.taps[site.port]; wanted {
			f.writer.Lose(tap, counts.Unreported-site.unreported)
		}
	}
	site.unreported = counts.Unreported
}

// close ends all feeds.
func (h *hits) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reports == nil {
		return nil
	}
	err := h.reports.Close()
	h.reports = nil
	return err
}
