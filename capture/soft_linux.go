package capture

import (
	"fmt"
	"strconv"
	"time"

	"golang.org/x/net/bpf"

	"railbed/capture/layers"
	"railbed/capture/pcapng"
	"railbed/internal/feed"
)

// note is the information of a soft switch about a packet.
type note struct {
	depth   int64
	late    int64
	fed     bool // the other fields are set
	event   feed.Event
	verdict feed.Verdict
	reason  uint8
	queue   uint8
	fault   uint8
}

// softTaps are the taps of soft switches, or of ports whose packets faults hit. One feed carries their
// packets.
type softTaps struct {
	reader  *feed.Reader
	serials bool // the records have serials
	joiner  *joiner
	filter  *bpf.VM // nil accepts everything
	snap    int
	taps    map[uint16]int // by number in the feed
	numbers map[int]uint16 // by tap
	before  map[int]uint64 // lost records at the begin
	after   map[int]uint64 // lost records at the end
	latest  int64          // time of the last record read
	pending []uint64       // lost records to report, by tap
	reasons []string
	events  bool
	comment []byte
	list    [][]byte // the packet's comments
}

// feedBatch is how many records are read between two reads of the rings.
const feedBatch = 1 << 14

// openSoftTaps maps the feed. It returns nil if no tap is fed.
func openSoftTaps(taps []Tap, program []bpf.RawInstruction, options Options) (*softTaps, error) {
	s := &softTaps{
		serials: options.Serials,
		snap:    options.snap(),
		taps:    map[uint16]int{},
		numbers: map[int]uint16{},
		before:  map[int]uint64{},
		reasons: options.Reasons,
		events:  options.Events,
		list:    make([][]byte, 1),
		pending: make([]uint64, len(taps)),
		joiner:  newJoiner(options.Testbed + " " + strconv.FormatInt(options.Epoch.UnixNano(), 10)),
	}
	for i, tap := range taps {
		if tap.Fed {
			s.taps[tap.Number], s.numbers[i] = i, tap.Number
		}
	}
	if len(s.taps) == 0 {
		return nil, nil
	}
	if options.Filter != "" {
		instructions, whole := bpf.Disassemble(program)
		if !whole {
			return nil, fmt.Errorf("filter %q: compiled to an unknown instruction", options.Filter)
		}
		var err error
		if s.filter, err = bpf.NewVM(instructions); err != nil {
			return nil, fmt.Errorf("filter %q: %w", options.Filter, err)
		}
	}
	var err error
	if s.reader, err = feed.NewReader(options.Feed); err != nil {
		return nil, err
	}
	s.reader.Touch()
	for number, tap := range s.taps {
		s.before[tap] = s.reader.Lost(number)
	}
	return s, nil
}

// begin gives the recording ids of its own, which no other recording of the testbed uses.
func (s *softTaps) begin(start int64) {
	if s != nil {
		s.joiner.made = uint64(start)
	}
}

// freeze stores the counts at the end of the recording. No record is read after it.
func (s *softTaps) freeze() {
	if s == nil || s.after != nil {
		return
	}
	s.after = map[int]uint64{}
	for number, tap := range s.taps {
		s.after[tap] = s.reader.Lost(number)
	}
}

func (s *softTaps) close() error {
	if s == nil || s.reader == nil {
		return nil
	}
	s.freeze()
	reader := s.reader
	s.reader = nil
	return reader.Close()
}

// lost returns how many packets of a tap found no room in the feed. Packets that the filter would
// have rejected are included.
func (s *softTaps) lost(tap int) uint64 {
	if s == nil {
		return 0
	}
	number, fed := s.numbers[tap]
	switch {
	case !fed:
		return 0
	case s.after != nil:
		return s.after[tap] - s.before[tap]
	}
	return s.reader.Lost(number) - s.before[tap]
}

// readSoft reads some records of soft switches, and reports whether there may be more.
func (s *recorder) readSoft(end int64) (more bool, err error) {
	count, err := s.soft.reader.Read(feedBatch, func(r *feed.Record) { s.addSoft(r, end) })
	return count == feedBatch, err
}

// addSoft adds one record of a soft switch.
func (s *recorder) addSoft(r *feed.Record, end int64) {
	s.soft.latest = max(s.soft.latest, r.Time) // the record of a sent frame comes a little after its time
	tap, known := s.soft.taps[r.Tap]
	if !known {
		return
	}
	s.soft.pending[tap] += r.Lost
	// Short records are not filtered, because the filter may need bytes that they lack. The joiner
	// discards records that match no packet.
	if s.joinSoft(r, tap); passes(r) {
		return
	}
	data := r.Data
	if s.soft.filter != nil {
		keep, err := s.soft.filter.Run(data)
		if err != nil || keep == 0 {
			return
		}
	}
	if !s.within(tap, r.Time, end) {
		return
	}
	data = data[:min(len(data), s.soft.snap)]
	s.received[tap]++
	dropped := s.soft.pending[tap]
	s.soft.pending[tap] = 0
	flags := pcapng.Outbound
	switch r.Event {
	case feed.Receive, feed.Refuse:
		flags = pcapng.Inbound
	case feed.Enqueue, feed.Dequeue, feed.Harm: // such a packet does not pass the tap
		flags = 0
	}
	e := entry{
		time:    r.Time,
		dropped: dropped,
		length:  uint32(r.Length),
		tap:     uint32(tap),
		flags:   flags,
		note: note{depth: r.Depth, late: r.Late, fed: true, event: r.Event, verdict: r.Verdict,
			reason: r.Reason, queue: r.Queue, fault: r.Fault},
	}
	if s.soft.serials {
		e.id = s.soft.joiner.id(r.Serial)
	} else {
		e.id = layers.Identity(data, r.Length)
	}
	s.order.add(e, data)
}

// joins reports whether the packets that a socket captures at a tap cross a soft switch.
func (s *softTaps) joins(tap int) bool {
	if s == nil {
		return false
	}
	_, fed := s.numbers[tap]
	return fed && s.serials
}

// join finds the id of a packet that a socket captured.
func (s *softTaps) join(e *entry) {
	if e.flags&pcapng.DirectionMask == pcapng.Outbound {
		e.id = s.joiner.sent(e.id, e.time)
	} else {
		e.id = s.joiner.arrived(e.id, e.time)
	}
}

// passes reports whether a record serves the joiner alone.
func passes(r *feed.Record) bool { return r.Event == feed.Enter || r.Event == feed.Leave }

// joinSoft tells the joiner about frames that pass between a node's NIC and its emulated NIC.
func (s *recorder) joinSoft(r *feed.Record, tap int) {
	var key uint64
	switch r.Event {
	case feed.Enter, feed.Leave, feed.Refuse:
		key = joinKey(r.Data[:min(len(r.Data), s.soft.snap)], r.Length, tap)
	}
	switch {
	case r.Event == feed.Enter:
		s.soft.joiner.enter(key, r.Serial, r.Time)
	case r.Event == feed.Leave && r.Time >= s.start: // frames that the node received earlier are not recorded
		s.soft.joiner.left.push(key, r.Serial, r.Time)
	case r.Event == feed.Refuse:
		s.soft.joiner.left.remove(key, r.Serial)
	}
}

// annotate writes into the packet's comment how the soft switch handled the packet.
func (s *recorder) annotate(e *entry) {
	n := &e.note
	if (n.event == feed.Receive || n.depth < 0) && n.verdict == feed.Plain && n.late == 0 {
		return
	}
	a := pcapng.Annotation{Late: time.Duration(n.late), HasLate: s.soft.serials, Verdict: n.verdict.String()}
	if s.soft.serials && n.event != feed.Harm && (n.event != feed.Receive || n.verdict != feed.Plain) {
		a.Depth, a.HasDepth = n.depth, true
		s.packet.Has |= pcapng.HasQueue
		s.packet.Queue = uint32(n.queue)
	}
	switch {
	case n.event == feed.Drop || n.event == feed.Lose || n.event == feed.Refuse:
		a.Verdict = "drop"
	case n.event == feed.Enqueue:
		a.Verdict = "enqueue"
	case n.event == feed.Dequeue, n.event == feed.Send && n.verdict == feed.Plain && s.soft.events:
		a.Verdict = "dequeue"
	}
	if int(n.reason) < len(s.soft.reasons) && n.reason != 0 {
		a.Reason = s.soft.reasons[n.reason]
	}
	if n.fault != 0 {
		a.Name = s.soft.reader.FaultName(n.fault)
	}
	s.soft.comment = a.AppendTo(s.soft.comment[:0])
	s.soft.list[0] = s.soft.comment
	s.packet.Comments = s.soft.list
	s.notes[e.tap].Count(a.Verdict)
}

// countRings returns how many taps have a ring.
func countRings(rings []*ring) (count int) {
	for _, r := range rings {
		if r != nil {
			count++
		}
	}
	return count
}
