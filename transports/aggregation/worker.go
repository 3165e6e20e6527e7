// Package aggregation is the worker's side of in-network aggregation, section 3 of
// fabric/softswitch/PROTOCOL.md. It sends a tensor to a switch in chunks, a window of slots at a
// time, and overwrites the tensor with the sums.
//
// A Worker is the protocol without socket and clock, for tests in virtual time. A Client runs a
// Worker over UDP.
package aggregation

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"railbed/internal/clock"
	"railbed/internal/element"
	"railbed/internal/wire"
	"railbed/plan"
)

// Config configures a worker of a job. All fields but Worker and the times come from the plan and
// are the same for all workers.
type Config struct {
	Job     uint16
	Epoch   uint16 // agreed by the workers' owner; each use of the job has a greater epoch
	KeySeed uint64
	Worker  int
	FanIn   int
	// Slots is the number of chunks in flight at once, Elements the length of a chunk in elements.
	Slots, Elements int
	// InitialRTO, MinRTO and MaxRTO bound the time after which an update is sent again. InitialRTO is that
	// time before any round trip was measured, default 1s (RFC 6298, 2.1). MinRTO is its minimum
	// afterwards, default 200ms as in Linux. All results wait for the slowest worker, so without
	// that minimum a host that runs another process for a while looks like a loss. MaxRTO bounds
	// both, and the time between two repeats, default 500ms. A loss is detected earlier where later
	// updates follow.
	InitialRTO, MinRTO, MaxRTO time.Duration
	// Patience is the time for which the switch may send no answer at all. Default 30s.
	Patience time.Duration
	// Landed is called with the number of each chunk whose result is in the tensor, by Handle or by the
	// methods of Client. Default: nothing is called.
	Landed func(chunk int) `json:"-"`
}

// Of returns the configuration of a worker of a plan's job, by its number in the job. MaxRTO
// allows ten repeats before the nearest switch's timeout, and Patience is longer than any switch
// waits.
func Of(job *plan.AggregationJob, worker int, epoch uint16) Config {
	return Config{
		Job:      job.Number,
		Epoch:    epoch,
		KeySeed:  job.KeySeed,
		Worker:   worker,
		FanIn:    len(job.Workers),
		Slots:    job.Slots,
		Elements: job.Elements,
		MaxRTO:   time.Duration(job.Timeout) / 10,
		Patience: max(silence, job.Patience(0)+2*time.Duration(job.Timeout)),
	}
}

// silence is the default of Config.Patience.
const silence = 30 * time.Second

// overtakers is how many later updates must be answered until an unanswered update, or its result,
// counts as lost: as many as the acknowledgements of RFC 5681. All workers send in the order in
// which results arrived, which is the same for all, so only a loss causes it.
const overtakers = 3

// ErrSaturated is returned when a fixed-point sum left the range of its integers.
var ErrSaturated = errors.New("aggregate: a sum left the range of 32 bits")

// ErrSilent is returned when the switch did not answer for Config.Patience.
var ErrSilent = errors.New("aggregate: no answer from the switch")

// RejectError reports that the switch refuses this worker's updates.
type RejectError struct {
	Code wire.AggregationCode
	// Present is the bitmap of the workers whose updates had arrived at a timeout.
	Present uint64
	Epoch   uint16 // the switch's
}

// Error implements error.
func (e *RejectError) Error() string {
	text := fmt.Sprintf("aggregate: the switch rejects updates: %s", e.Code)
	switch e.Code {
	case wire.AggregationTimeout:
		text += fmt.Sprintf(", only the workers of bitmap %#x sent theirs", e.Present)
	case wire.AggregationEpochOld:
		text += fmt.Sprintf(", it is at epoch %d", e.Epoch)
	}
	return text
}

// Counters count a worker's messages.
type Counters struct {
	Sent, Repeated uint64 // updates; repeated updates count as sent, too
	Overtaken      uint64 // repeats before the timer, because later updates were answered
	Results        uint64
	Ignored        uint64 // messages that answer no open update
}

// Worker is the state of one worker. It is not safe for concurrent use.
type Worker struct {
	config Config
	key    uint32
	slots  []slot
	ready  []int // slots whose update is to be sent now, in order
	buffer []byte

	tensor   tensor
	open     int // chunks without a result
	progress clock.Time
	err      error
	rtt      roundTrip
	order    uint64 // sequence number of the latest update that was not a repeat
	counters Counters
}

// slot is one slot of the switch as this worker uses it.
type slot struct {
	round    uint32 // of the open update, or of the next one
	chunk    int
	busy     bool // an update is open
	learning bool // the open update only agrees on a scale
	queued   bool
	sent     bool
	repeated bool
	scale    int8
	order    uint64 // sequence number of its first transmission
	passed   int    // later updates that were answered
	firstAt  clock.Time
	deadline clock.Time
	rto      time.Duration
}

// New makes a worker whose slots are all at round 0.
func New(c Config) (*Worker, error) {
	switch {
	case c.FanIn < 1 || c.FanIn > wire.AggregationMaxFanIn || c.Worker < 0 || c.Worker >= c.FanIn:
		return nil, fmt.Errorf("aggregate: worker %d with fan-in %d: want worker 0 to fan-in - 1, and "+
			"fan-in 1 to %d", c.Worker, c.FanIn, wire.AggregationMaxFanIn)
	case c.Slots < 1 || c.Slots > 1<<16 || c.Elements < 1 || c.Elements > wire.AggregationMaxElements:
		return nil, fmt.Errorf("aggregate: %d slots of %d elements: want 1 to %d slots of 1 to %d elements",
			c.Slots, c.Elements, 1<<16, wire.AggregationMaxElements)
	}
	for _, d := range []struct {
		at        *time.Duration
		otherwise time.Duration
	}{{&c.InitialRTO, time.Second}, {&c.MinRTO, 200 * time.Millisecond}, {&c.MaxRTO, 500 * time.Millisecond},
		{&c.Patience, silence}} {
		if *d.at <= 0 {
			*d.at = d.otherwise
		}
	}
	return &Worker{
		config: c,
		key:    wire.AggregationKey(c.KeySeed, c.Job, c.Epoch, uint8(c.Worker)),
		slots:  make([]slot, c.Slots),
		buffer: make([]byte, wire.AggregationLongest(c.Elements)),
		rtt:    roundTrip{rto: min(c.InitialRTO, c.MaxRTO), at: -1},
	}, nil
}

// Counters returns the counts up to now.
func (w *Worker) Counters() Counters { return w.counters }

// Combine begins an operation on a tensor in memory, in the machine's byte order. The results
// replace the tensor. Every tensor must have the same length at all workers, and the previous
// tensor must be done. For an average, switches compute sums: each worker divides its elements
// first, or divides integers at the end.
func (w *Worker) Combine(now clock.Time, t element.Type, op element.Op, memory []byte) error {
	kind, known := types[t]
	does, can := ops[op]
	if !known || !can || len(memory)%t.Size() != 0 {
		return fmt.Errorf("aggregate: %s of %d bytes of type %s: want an operation and a type that "+
			"switches support, and whole elements", op, len(memory), t)
	}
	element.Prepare(t, op, w.config.FanIn, memory)
	w.begin(now, tensor{memory: memory, kind: kind, op: does, finish: func() {
		element.Finish(t, op, w.config.FanIn, memory)
	}})
	return nil
}

// Fixed begins to sum a tensor whose elements are sent as integers, with a scale that the workers
// agree on for each chunk. Sums are exact but for the rounding of the inputs, and the same in every
// run. All elements must be finite.
func (w *Worker) Fixed(now clock.Time, data []float32) error {
	for i, v := range data {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return fmt.Errorf("aggregate: element %d is %v, want a finite number", i, v)
		}
	}
	w.begin(now, tensor{floats: data, kind: wire.AggregationFixed})
	return nil
}

// Int32 begins to sum integers. A sum that leaves 32 bits ends the worker with ErrSaturated.
func (w *Worker) Int32(now clock.Time, data []int32) {
	w.begin(now, tensor{ints: data, kind: wire.AggregationFixed})
}

func (w *Worker) begin(now clock.Time, t tensor) {
	if w.open > 0 {
		panic("aggregation: a tensor is begun before the previous tensor is done")
	}
	w.tensor, w.progress = t, now
	w.open = t.chunks(w.config.Elements)
	for i := range min(w.open, len(w.slots)) {
		w.ask(i, i, t.floats != nil)
	}
}

// ask opens an update for a chunk.
func (w *Worker) ask(at, chunk int, learning bool) {
	s := &w.slots[at]
	s.chunk, s.learning, s.busy, s.sent, s.repeated, s.passed, s.rto = chunk, learning, true, false, false, 0,
		w.rtt.rto
	w.queue(at)
}

func (w *Worker) queue(at int) {
	if s := &w.slots[at]; !s.queued {
		s.queued = true
		w.ready = append(w.ready, at)
	}
}

// Done reports whether the tensor is summed, or never will be because of Err.
func (w *Worker) Done() bool { return w.open == 0 || w.err != nil }

// Err is the error that ended the worker. Every later tensor fails with it, too.
func (w *Worker) Err() error { return w.err }

// Next is the time at which Poll has a message to send, or clock.Never.
func (w *Worker) Next() clock.Time {
	if w.Done() {
		return clock.Never
	}
	if len(w.ready) > 0 {
		return 0
	}
	next := w.progress.Add(w.config.Patience)
	for i := range w.slots {
		if s := &w.slots[i]; s.busy {
			next = min(next, s.deadline)
		}
	}
	return next
}

// Late reports whether an update is to be repeated.
func (w *Worker) Late(now clock.Time) bool {
	return !w.Done() && slices.ContainsFunc(w.slots, func(s slot) bool {
		return s.busy && s.sent && s.deadline <= now
	})
}

// Poll returns the next message to send now, valid until the next call, or nil.
func (w *Worker) Poll(now clock.Time) []byte {
	if w.Done() {
		return nil
	}
	if now.Sub(w.progress) >= w.config.Patience {
		w.err = fmt.Errorf("%w for %v", ErrSilent, w.config.Patience)
		return nil
	}
	if len(w.ready) == 0 {
		for i := range w.slots {
			if s := &w.slots[i]; s.busy && s.deadline <= now {
				s.repeated = true
				s.rto = min(2*s.rto, w.config.MaxRTO)
				// If all updates are repeated there is no sample, and only this lets the timeout
				// grow (RFC 6298, 5.5 to 5.7). The next sample brings it back. A sample since this
				// update was first sent means that the update or its result was lost rather than
				// late.
				if w.rtt.at < s.firstAt {
					w.rtt.rto = max(w.rtt.rto, s.rto)
				}
				w.queue(i)
			}
		}
	}
	for len(w.ready) > 0 {
		at := w.ready[0]
		w.ready = w.ready[:copy(w.ready, w.ready[1:])]
		s := &w.slots[at]
		if s.queued = false; s.busy { // else it was answered meanwhile
			return w.update(now, at)
		}
	}
	return nil
}

// update writes the open update of a slot.
func (w *Worker) update(now clock.Time, at int) []byte {
	s := &w.slots[at]
	w.counters.Sent++
	if !s.sent {
		w.order++
		s.sent, s.firstAt, s.order = true, now, w.order
	}
	s.deadline = now.Add(s.rto)
	c := &w.config
	from, to := w.tensor.chunk(s.chunk, c.Elements)
	f := wire.AggregationFields{
		Kind:   wire.AggregationUpdate,
		Type:   w.tensor.kind,
		Op:     w.tensor.op,
		Job:    c.Job,
		Epoch:  c.Epoch,
		Slot:   uint16(at),
		Worker: uint8(c.Worker),
		FanIn:  uint8(c.FanIn), Key: w.key, Round: s.round, Offset: uint32(from), Bitmap: 1 << c.Worker,
	}
	if s.repeated {
		f.Flags |= wire.AggregationRepeat
		w.counters.Repeated++
	}
	message := wire.Aggregation(w.buffer)
	if s.learning {
		f.Elements, f.NextScale = 1, w.tensor.scale(from, to, c.FanIn)
		message.SetFixed(0, 0)
	} else {
		f.Elements = uint16(to - from)
		if w.tensor.floats != nil {
			f.Scale, f.NextScale = s.scale, math.MinInt8
			if from, to := w.tensor.chunk(s.chunk+len(w.slots), c.Elements); from < to {
				f.NextScale = w.tensor.scale(from, to, c.FanIn)
			}
		}
		w.tensor.write(message, from, to, s.scale)
	}
	message.Encode(&f)
	return message[:wire.AggregationMessageLen(f.Type, int(f.Elements))]
}

// Handle processes a message from the switch.
func (w *Worker) Handle(now clock.Time, message []byte) {
	a := wire.Aggregation(message)
	c := &w.config
	if w.Done() || len(a) < wire.AggregationLen || a.Job() != c.Job || a.Key() != w.key ||
		int(a.Worker()) != c.Worker || int(a.Slot()) >= len(w.slots) {
		w.counters.Ignored++
		return
	}
	s := &w.slots[a.Slot()]
	if a.Kind() == wire.AggregationReject && a.Code() != 0 {
		if s.busy && a.Round() == s.round {
			w.err = &RejectError{Code: a.Code(), Present: a.Bitmap(), Epoch: a.Epoch()}
		}
		return
	}
	from, to := w.tensor.chunk(s.chunk, c.Elements)
	elements := to - from
	if s.learning {
		elements = 1
	}
	if !a.Valid() || a.Kind() != wire.AggregationResult || a.Epoch() != c.Epoch ||
		int(a.FanIn()) != c.FanIn || !s.busy || !s.sent ||
		a.Round() != s.round || int(a.Offset()) != from || int(a.Elements()) != elements ||
		a.Type() != w.tensor.kind || a.Op() != w.tensor.op || a.Bitmap() != 1<<(c.FanIn-1)<<1-1 {
		w.counters.Ignored++
		return
	}
	w.counters.Results++
	w.progress = now
	if !s.repeated { // Karn: the answer to a repeated update is ambiguous
		w.rtt.sample(now, now.Sub(s.firstAt), c.MinRTO, c.MaxRTO)
		w.overtake(s.order)
	}
	if a.Flags()&wire.AggregationSaturated != 0 {
		w.err = ErrSaturated
		return
	}
	w.take(int(a.Slot()), a, from, to)
}

// overtake repeats an update once enough later updates were answered before it. It does so once: if
// the repeat is lost, too, the slot's timer repeats it.
func (w *Worker) overtake(order uint64) {
	for i := range w.slots {
		s := &w.slots[i]
		if !s.busy || !s.sent || s.repeated || s.order >= order {
			continue
		}
		if s.passed++; s.passed == overtakers {
			s.repeated = true
			w.counters.Overtaken++
			w.queue(i)
		}
	}
}

// take stores a result in the tensor and opens the slot's next update.
func (w *Worker) take(at int, a wire.Aggregation, from, to int) {
	s := &w.slots[at]
	s.busy = false
	s.round++
	if s.learning {
		s.scale = a.NextScale()
		w.ask(at, s.chunk, false)
		return
	}
	w.tensor.read(a, from, to, a.Scale())
	if w.config.Landed != nil {
		w.config.Landed(s.chunk)
	}
	if w.open--; w.open == 0 && w.tensor.finish != nil {
		w.tensor.finish()
	}
	s.scale = a.NextScale()
	if next := s.chunk + len(w.slots); next < w.tensor.chunks(w.config.Elements) {
		w.ask(at, next, false)
	}
}

// roundTrip computes the retransmission timeout: RFC 6298, 2.
type roundTrip struct {
	smooth, variation, rto time.Duration
	at                     clock.Time // of the last sample
}

func (r *roundTrip) sample(now clock.Time, took, least, longest time.Duration) {
	r.at = now
	if r.smooth == 0 {
		r.smooth, r.variation = took, took/2
	} else {
		r.variation += ((r.smooth - took).Abs() - r.variation) / 4
		r.smooth += (took - r.smooth) / 8
	}
	r.rto = min(max(r.smooth+4*r.variation, least), longest)
}
