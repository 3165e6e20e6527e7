// Package aggregate is the table with which a soft switch adds up what the
// workers of a job send: section 3 of fabric/softswitch/PROTOCOL.md, after
// SwitchML (Sapio et al., Scaling Distributed Machine Learning with In-Network
// Aggregation, NSDI 2021).
//
// It is pure: no clock, no thread and no socket. A message goes in with the time
// at which it came, and what is to be sent comes out; its memory is that of the
// slots, taken by New, and no call but New allocates. A table is not safe for
// concurrent use.
package aggregate

import (
	"fmt"
	"slices"
	"time"

	"railbed/fabric/clock"
	"railbed/transports/wire"
)

// rejectEvery is the time between two rejects to a worker: at most 100 a second.
const rejectEvery = 10 * time.Millisecond

// Job is a job as the plan has it.
type Job struct {
	Number   uint16
	KeySeed  uint64 // for wire.AggregationKey
	Slots    int
	Elements int // that a slot holds
	Timeout  time.Duration
	Workers  []Worker
}

// Worker is who may send updates. IPv4 addresses are mapped into IPv6.
type Worker struct {
	Addrs [][16]byte
	// Ports are the switch's ports by which its packets may come in.
	Ports []int
}

// Reason says why a message was dropped without an answer.
type Reason uint8

// Reasons. Fragment and Checksum are for who takes datagrams apart (Refuse).
const (
	Taken Reason = iota
	Short
	Malformed // unknown kind, type or flags, or fields that contradict each other
	NotUpdate
	Stranger // not from an address and port of the plan's for this worker
	Late     // a copy of an update of an earlier round
	RejectLimit
	Fragment
	Checksum

	// Reasons is how many there are.
	Reasons = int(Checksum) + 1
)

var reasonNames = [Reasons]string{"taken", "short", "malformed", "not-update", "stranger", "late", "reject-limit", "fragment", "checksum"}

// String is the reason in words with hyphens.
func (r Reason) String() string {
	if int(r) < Reasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Action is what is to be done about a message.
type Action uint8

// Actions.
const (
	Drop     Action = iota // Outcome.Reason says why
	Keep                   // it is in the sum, or was before; nothing is sent
	SendAll                // the result to every worker
	SendOne                // the result to Outcome.Worker, again
	SendBack               // Outcome.Reject to who sent the message
)

// Outcome is what became of a message.
type Outcome struct {
	Action Action
	Reason Reason
	Job    int // its index
	// Of SendAll and SendOne.
	set    int
	Worker int
	// Reject is a message of wire.AggregationLen bytes.
	Reject wire.AggregationFields
}

// Message is a datagram that came to the job's address.
type Message struct {
	Data    []byte // what UDP carried
	From    [16]byte
	Port    uint16 // source
	Ingress int    // the switch's port
	Return  Return
}

// Return is how results go back to a worker: as its latest update came.
type Return struct {
	To, From [16]byte
	Port     uint16 // the worker's
	DSCP     uint8
	ECT      bool // its updates are ECN-capable, so are its results
}

// Counters count messages.
type Counters struct {
	Updates  uint64 // that were added
	Repeats  uint64 // that were in the sum already
	Results  uint64 // sums that were complete
	Again    uint64 // results that were sent again, to one worker
	Rejected [wire.AggregationCodes]uint64
	Dropped  [Reasons]uint64
}

// Table is all jobs of a switch.
type Table struct {
	jobs     []job
	counters Counters
}

// job is a job with its slots.
type job struct {
	Job
	epoch   uint16
	life    uint32 // changes with the epoch
	full    uint64 // bitmap of all workers
	workers []worker
	sets    []set // two for each slot
	values  []uint32
	// oldest and newest are the ends of the list of sets that wait for workers.
	oldest, newest int32
	over           bool
	missing        uint64 // once it is over, the bitmap of who had come
}

type worker struct {
	key    uint32
	reject clock.Time // not before
	back   Return
}

// set is one of a slot's two sets; values of Job.Elements words belong to it.
type set struct {
	started        clock.Time
	bitmap         uint64
	round, offset  uint32
	life           uint32 // of job when it was begun; another one is a fresh set
	previous, next int32  // in the list of those that wait
	elements       uint16
	kind           wire.AggregationType
	scale, greater int8 // greatest next scale
	saturated      bool
}

// Memory is what the slots of a job take, in bytes, at most.
func Memory(slots, elements int) int64 { return int64(slots) * 2 * int64(64+4*elements) }

// New makes a table.
func New(jobs []Job) (*Table, error) {
	t := &Table{jobs: make([]job, len(jobs))}
	for i, planned := range jobs {
		switch n := len(planned.Workers); {
		case n < 1 || n > wire.AggregationMaxFanIn:
			return nil, fmt.Errorf("make aggregation job %d: %d workers, want 1 to %d", planned.Number, n, wire.AggregationMaxFanIn)
		case planned.Slots < 1 || planned.Slots > 1<<16 || planned.Elements < 1 || planned.Elements > wire.AggregationMaxElements:
			return nil, fmt.Errorf("make aggregation job %d: %d slots of %d elements", planned.Number, planned.Slots, planned.Elements)
		case t.index(planned.Number) < i:
			return nil, fmt.Errorf("make aggregation job %d: there is one of this number", planned.Number)
		}
		j := &t.jobs[i]
		*j = job{
			Job: planned, full: 1<<(len(planned.Workers)-1)<<1 - 1, workers: make([]worker, len(planned.Workers)),
			sets: make([]set, 2*planned.Slots), values: make([]uint32, 2*planned.Slots*planned.Elements),
		}
		j.begin(0)
	}
	return t, nil
}

// index is that of the job of a number, or the number of jobs.
func (t *Table) index(number uint16) int {
	for i := range t.jobs {
		if t.jobs[i].Workers != nil && t.jobs[i].Number == number {
			return i
		}
	}
	return len(t.jobs)
}

// Counters are the counts up to now.
func (t *Table) Counters() *Counters { return &t.counters }

// Status is a job as it is now.
type Status struct {
	Number  uint16
	Epoch   uint16
	Workers int
	Waiting int  // sets that wait for workers
	Over    bool // until a new epoch, because a worker did not come in time
}

// Status is that of a job, by its index in New.
func (t *Table) Status(index int) Status {
	j := &t.jobs[index]
	s := Status{Number: j.Number, Epoch: j.epoch, Workers: len(j.workers), Over: j.over}
	for at := j.oldest; at >= 0; at = j.sets[at].next {
		s.Waiting++
	}
	return s
}

// Jobs is how many there are.
func (t *Table) Jobs() int { return len(t.jobs) }

// begin is a new life of the job: nothing of an old one counts.
func (j *job) begin(epoch uint16) {
	j.epoch, j.over, j.missing = epoch, false, 0
	j.life++
	j.oldest, j.newest = -1, -1
	for i := range j.workers {
		j.workers[i].key = wire.AggregationKey(j.KeySeed, j.Number, epoch, uint8(i))
	}
}

// Refuse counts a datagram that did not even become a message.
func (t *Table) Refuse(why Reason) Outcome {
	t.counters.Dropped[why]++
	return Outcome{Reason: why}
}

// Take takes a message in.
func (t *Table) Take(now clock.Time, m *Message) Outcome {
	a := wire.Aggregation(m.Data)
	if len(a) < wire.AggregationLen {
		return t.Refuse(Short)
	}
	if a.Version() != wire.AggregationVersion {
		return t.rejectUnknown(now, m, wire.AggregationVersionUnknown)
	}
	switch {
	case !a.Valid():
		return t.Refuse(Malformed)
	case a.Kind() != wire.AggregationUpdate:
		return t.Refuse(NotUpdate)
	}
	index := t.index(a.Job())
	if index == len(t.jobs) {
		return t.rejectUnknown(now, m, wire.AggregationJobUnknown)
	}
	j, w := &t.jobs[index], int(a.Worker())
	if w >= len(j.workers) || int(a.FanIn()) != len(j.workers) {
		for who := range j.workers {
			if j.Workers[who].sent(m) {
				return t.reject(now, m, index, who, wire.AggregationWorkerWrong, 0)
			}
		}
		return t.Refuse(Stranger)
	}
	if !j.Workers[w].sent(m) {
		return t.Refuse(Stranger)
	}
	if code := j.enter(a, w); code != 0 {
		return t.reject(now, m, index, w, code, 0)
	}
	if j.expire(now); j.over {
		return t.reject(now, m, index, w, wire.AggregationTimeout, j.missing)
	}
	if int(a.Slot()) >= j.Slots || int(a.Elements()) > j.Job.Elements {
		return t.reject(now, m, index, w, wire.AggregationSlotUnknown, 0)
	}
	return t.update(now, m, index, w)
}

// sent says that the message came from where the plan has this worker.
func (w *Worker) sent(m *Message) bool {
	return slices.Contains(w.Addrs, m.From) && slices.Contains(w.Ports, m.Ingress)
}

// enter compares epoch and key, and begins a new epoch when a worker of it comes.
func (j *job) enter(a wire.Aggregation, w int) wire.AggregationCode {
	switch ahead := int16(a.Epoch() - j.epoch); {
	case ahead < 0:
		return wire.AggregationEpochOld
	case ahead == 0:
		if a.Key() != j.workers[w].key {
			return wire.AggregationWorkerWrong
		}
	case a.Key() != wire.AggregationKey(j.KeySeed, j.Number, a.Epoch(), uint8(w)):
		return wire.AggregationWorkerWrong
	default:
		j.begin(a.Epoch())
	}
	return 0
}

// expire ends the job when a set has waited too long.
func (j *job) expire(now clock.Time) {
	if j.oldest < 0 || j.over {
		return
	}
	if first := &j.sets[j.oldest]; now.Sub(first.started) > j.Timeout {
		j.over, j.missing = true, first.bitmap
	}
}

// rejectUnknown rejects what belongs to no job, if the plan knows the sender.
func (t *Table) rejectUnknown(now clock.Time, m *Message, code wire.AggregationCode) Outcome {
	for i := range t.jobs {
		for w := range t.jobs[i].Workers {
			if t.jobs[i].Workers[w].sent(m) {
				return t.reject(now, m, i, w, code, 0)
			}
		}
	}
	return t.Refuse(Stranger)
}

// reject answers a message of a worker, which must be known to be at the
// message's source.
func (t *Table) reject(now clock.Time, m *Message, index, who int, code wire.AggregationCode, bitmap uint64) Outcome {
	j := &t.jobs[index]
	one := &j.workers[who]
	if now < one.reject {
		return t.Refuse(RejectLimit)
	}
	one.reject = now.Add(rejectEvery)
	t.counters.Rejected[code]++
	f := wire.Aggregation(m.Data).Fields()
	f.Kind, f.Flags, f.Code, f.Bitmap = wire.AggregationReject, 0, code, bitmap
	f.Elements, f.Scale, f.NextScale = 0, 0, 0
	if code != wire.AggregationJobUnknown && code != wire.AggregationVersionUnknown {
		f.Epoch = j.epoch
	}
	return Outcome{Action: SendBack, Job: index, Worker: who, Reject: f}
}
