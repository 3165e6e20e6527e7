// Package reduction is the table with which a soft switch adds up the messages of a job's workers:
// section 3 of fabric/softswitch/PROTOCOL.md. It follows SwitchML (Sapio et al., Scaling
// Distributed Machine Learning with In-Network Aggregation, NSDI 2021).
//
// A job uses one switch, or several in a tree. Each switch adds up the messages of its children,
// which are workers or switches. When all children have sent, every switch except the root sends
// the partial sum to its parent, and passes the result that comes back to its children.
//
// The package has no clock, thread or socket. The caller passes in a message with the time at which
// it arrived, and gets back what to send. New allocates the memory of the slots; no other call
// allocates. A table is not safe for concurrent use.
package reduction

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
)

// rejectEvery is the time between two rejects to a worker: at most 100 a second.
const rejectEvery = 10 * time.Millisecond

// Job is a switch's part in a job, from the plan.
type Job struct {
	Number     uint16
	KeySeed    uint64 // for wire.AggregationKey of workers
	SwitchSeed uint64 // for wire.AggregationKey of switches; workers do not have it
	Slots      int
	Elements   int // elements per slot
	FanIn      int // workers of the whole job
	// Timeout is the time for which a slot waits for the children.
	Timeout  time.Duration
	Children []Child
	// Parent is the switch above; nil at the root.
	Parent *Parent
}

// Station has the possible source addresses of messages from a worker or a switch. IPv4 addresses
// are mapped into IPv6.
type Station struct {
	Addrs [][16]byte
	// Ports are the switch's ports by which its packets may arrive.
	Ports []int
}

// Child is a sender of updates or partial sums: a worker, or a switch below.
type Child struct {
	Station
	// Workers has the bits of the workers whose elements it sends; a worker has one bit.
	Workers uint64
	Switch  bool
}

// worker returns the worker number that identifies a child.
func (c *Child) worker() uint8 { return lowest(c.Workers) }

// lowest returns the lowest worker of a bitmap.
func lowest(bitmap uint64) uint8 { return uint8(bits.TrailingZeros64(bitmap)) }

// Parent is the switch that receives the partial sums.
type Parent struct {
	Station
	// Timeout is the time for which a slot waits for the parent's answer.
	Timeout time.Duration
}

// Reason is the reason why a message was dropped without an answer.
type Reason uint8

// Reasons. Fragment and Checksum are for callers that parse datagrams (Refuse).
const (
	Taken Reason = iota
	Short
	Malformed // unknown kind, type, operation or flags, or inconsistent fields
	NotUpdate
	Stranger // not from an address and port in the plan for this worker
	Late     // a copy of an update or answer of an earlier round
	RejectLimit
	Fragment
	Checksum

	// Reasons is the number of reasons.
	Reasons = int(Checksum) + 1
)

var reasonNames = [Reasons]string{"taken", "short", "malformed", "not-update", "stranger", "late",
	"reject-limit", "fragment", "checksum"}

// String returns the reason in words with hyphens.
func (r Reason) String() string {
	if int(r) < Reasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Action specifies how the switch must handle a message.
type Action uint8

// Actions.
const (
	Drop     Action = iota // Outcome.Reason is the reason.
	Keep                   // It is in the sum, now or already before; nothing is sent.
	SendAll                // Send the result to every child.
	SendOne                // Send the result to Outcome.Child again.
	SendBack               // Send Outcome.Reject back to the sender.
	SendUp                 // Send the partial sum to the parent.
)

// Outcome is the result for a message.
type Outcome struct {
	Action Action
	Reason Reason
	Job    int // its index
	// Set for SendAll, SendOne and SendUp.
	set   int
	again bool
	Child int // its index
	// Reject is a message of wire.AggregationLen bytes.
	Reject wire.AggregationFields
}

// Message is a datagram to the job's address.
type Message struct {
	Data    []byte // the UDP payload
	From    [16]byte
	Port    uint16 // source
	Ingress int    // the switch's port
	Return  Return
}

// Return is the way by which results go to a child: the reverse of its latest update.
type Return struct {
	To, From [16]byte
	Port     uint16 // the child's
	DSCP     uint8
	ECT      bool // its updates are ECN-capable, so its results are, too
}

// Counters count messages of a job. Messages that belong to no job are counted in the first job.
type Counters struct {
	Updates  uint64 // added, from workers and from switches
	Repeats  uint64 // already in the sum
	Partials uint64 // sums sent to the parent
	Reasked  uint64 // sums sent to the parent again
	Results  uint64 // complete sums
	Again    uint64 // results sent again, to one child
	Rejected [wire.AggregationCodes]uint64
	Dropped  [Reasons]uint64
}

// Table holds all jobs of a switch.
type Table struct{ jobs []job }

// job is a job with its slots.
type job struct {
	Job
	counters Counters
	epoch    uint16
	life     uint32 // Changes with the epoch.
	all      uint64 // Bitmap of all workers of the job.
	below    uint64 // Bitmap of the workers below this switch.
	up       uint32 // The key with which it sends to its parent.
	children []child
	at       [wire.AggregationMaxFanIn]int8 // Index, by worker number, of the child identified by it, plus 1.
	sets     []set                          // Two for each slot.
	values   []uint32
	waiting  [2]line              // Incomplete sets, by state.
	over     wire.AggregationCode // Why there are no more sums in this epoch, or 0.
	present  uint64               // The bitmap of participants that are not waited for, then.
	above    uint16               // The parent's epoch, then.
}

type child struct {
	key    uint32
	reject clock.Time // not before
	back   Return
}

// state is the state of a set: whether it waits for children or for the parent, or is complete.
type state uint8

const (
	forChildren state = iota
	forParent
	complete
)

// line is a list of sets in the order in which they began to wait.
type line struct{ oldest, newest int32 }

// set is one of a slot's two sets. It has Job.Elements words of values: the current sum, or the
// current result of another operation, and once the set is complete the final result. Types of 2
// bytes are stored as float32.
type set struct {
	started        clock.Time // start of its current state
	bitmap         uint64     // of workers
	asked          uint64     // children that repeated since the partial sum was last sent
	round, offset  uint32
	life           uint32 // the job's life when the set was begun; a set of another life counts as empty
	previous, next int32  // in its line
	elements       uint16
	kind           wire.AggregationType
	op             wire.AggregationOp
	scale, greater int8 // greatest next scale
	saturated      bool
	state          state
}

// New returns a table.
func New(jobs []Job) (*Table, error) {
	if len(jobs) == 0 {
		return nil, errors.New("make an aggregation table: no job, want at least one")
	}
	t := &Table{jobs: make([]job, len(jobs))}
	for i, planned := range jobs {
		if t.index(planned.Number) < i {
			return nil, fmt.Errorf("make aggregation job %d: another job has this number", planned.Number)
		}
		j := &t.jobs[i]
		*j = job{Job: planned, children: make([]child, len(planned.Children))}
		if err := j.number(); err != nil {
			return nil, fmt.Errorf("make aggregation job %d: %w", planned.Number, err)
		}
		j.sets, j.values = make([]set, 2*planned.Slots), make([]uint32, 2*planned.Slots*planned.Elements)
		j.begin(0)
	}
	return t, nil
}

// number checks the job's numbers and numbers its children.
func (j *job) number() error {
	if j.FanIn < 1 || j.FanIn > wire.AggregationMaxFanIn {
		return fmt.Errorf("%d workers, want 1 to %d", j.FanIn, wire.AggregationMaxFanIn)
	}
	if j.Slots < 1 || j.Slots > 1<<16 || j.Elements < 1 || j.Elements > wire.AggregationMaxElements {
		return fmt.Errorf("%d slots of %d elements, want 1 to %d slots of 1 to %d", j.Slots, j.Elements,
			1<<16, wire.AggregationMaxElements)
	}
	j.all = 1<<(j.FanIn-1)<<1 - 1
	for i := range j.Children {
		c := &j.Children[i]
		if c.Workers == 0 || c.Workers&^j.all != 0 || c.Workers&j.below != 0 ||
			!c.Switch && c.Workers != 1<<c.worker() {
			return fmt.Errorf("child %d has workers %#x: want workers that no other child has (%#x), with "+
				"numbers below %d", i, c.Workers, j.below, j.FanIn)
		}
		j.below |= c.Workers
		j.at[c.worker()] = int8(i + 1)
	}
	if j.below == 0 || j.Parent == nil && j.below != j.all {
		return fmt.Errorf("its children have the workers %#x, want all %d at the root, else at least one",
			j.below, j.FanIn)
	}
	return nil
}

// index returns the index of the job with a number, or the number of jobs if there is none.
func (t *Table) index(number uint16) int {
	for i := range t.jobs {
		if t.jobs[i].Slots > 0 && t.jobs[i].Number == number {
			return i
		}
	}
	return len(t.jobs)
}

// Counters returns the current counts of a job, by its index in New.
func (t *Table) Counters(job int) *Counters { return &t.jobs[job].counters }

// Status is the current state of a job.
type Status struct {
	Number  uint16
	Epoch   uint16
	Workers int  // of the whole job
	Waiting int  // sets that wait for children or for the parent
	Over    bool // until a new epoch, because a participant timed out
}

// Status returns the status of a job, by its index in New.
func (t *Table) Status(index int) Status {
	j := &t.jobs[index]
	s := Status{Number: j.Number, Epoch: j.epoch, Workers: j.FanIn, Over: j.over != 0}
	for _, l := range j.waiting {
		for at := l.oldest; at >= 0; at = j.sets[at].next {
			s.Waiting++
		}
	}
	return s
}

// Jobs returns the number of jobs.
func (t *Table) Jobs() int { return len(t.jobs) }

// begin starts a new epoch of the job; the state of the old one is discarded.
func (j *job) begin(epoch uint16) {
	j.epoch, j.over, j.present = epoch, 0, 0
	j.life++
	for i := range j.waiting {
		j.waiting[i] = line{-1, -1}
	}
	for i := range j.children {
		j.children[i].key = j.key(epoch, i)
	}
	j.up = wire.AggregationKey(j.SwitchSeed, j.Number, epoch, lowest(j.below))
}

// key returns a child's key in an epoch.
func (j *job) key(epoch uint16, i int) uint32 {
	c, seed := &j.Children[i], j.KeySeed
	if c.Switch {
		seed = j.SwitchSeed
	}
	return wire.AggregationKey(seed, j.Number, epoch, c.worker())
}

// Refuse counts a datagram that is not even a message of a job.
func (t *Table) Refuse(why Reason) Outcome { return t.jobs[0].refuse(why) }

func (j *job) refuse(why Reason) Outcome {
	j.counters.Dropped[why]++
	return Outcome{Reason: why}
}

// Take processes a message.
func (t *Table) Take(now clock.Time, m *Message) Outcome {
	a := wire.Aggregation(m.Data)
	if len(a) < wire.AggregationLen {
		return t.Refuse(Short)
	}
	if a.Version() != wire.AggregationVersion {
		return t.rejectUnknown(now, m, wire.AggregationVersionUnknown)
	}
	if !a.Valid() {
		return t.Refuse(Malformed)
	}
	index := t.index(a.Job())
	if a.Kind() != wire.AggregationUpdate && a.Kind() != wire.AggregationPartial {
		if index == len(t.jobs) || t.jobs[index].Parent == nil {
			return t.Refuse(NotUpdate)
		}
		return t.answer(now, m, index)
	}
	if index == len(t.jobs) {
		return t.rejectUnknown(now, m, wire.AggregationJobUnknown)
	}
	j := &t.jobs[index]
	c := int(j.at[a.Worker()]) - 1
	if c < 0 || int(a.FanIn()) != j.FanIn || a.Bitmap() != j.Children[c].Workers ||
		(a.Kind() == wire.AggregationPartial) != j.Children[c].Switch {
		for who := range j.children {
			if j.Children[who].sent(m) {
				return t.reject(now, m, index, who, wire.AggregationWorkerWrong, 0)
			}
		}
		return j.refuse(Stranger)
	}
	if !j.Children[c].sent(m) {
		return j.refuse(Stranger)
	}
	if code := j.enter(a, c); code != 0 {
		return t.reject(now, m, index, c, code, 0)
	}
	if j.expire(now); j.over != 0 {
		return t.reject(now, m, index, c, j.over, j.present)
	}
	if int(a.Slot()) >= j.Slots || int(a.Elements()) > j.Elements {
		return t.reject(now, m, index, c, wire.AggregationSlotUnknown, 0)
	}
	return t.update(now, m, index, c)
}

// sent reports whether the message came from an address and port that the plan has for this
// station.
func (s *Station) sent(m *Message) bool {
	return slices.Contains(s.Addrs, m.From) && slices.Contains(s.Ports, m.Ingress)
}

// enter checks epoch and key, and begins a new epoch when its first message arrives.
func (j *job) enter(a wire.Aggregation, c int) wire.AggregationCode {
	switch ahead := int16(a.Epoch() - j.epoch); {
	case ahead < 0:
		return wire.AggregationEpochOld
	case ahead == 0:
		if a.Key() != j.children[c].key {
			return wire.AggregationWorkerWrong
		}
	case a.Key() != j.key(a.Epoch(), c):
		return wire.AggregationWorkerWrong
	default:
		j.begin(a.Epoch())
	}
	return 0
}

// expire ends the job if a set has waited too long. The switch has no data about workers that are
// not below it. It does not report these as missing until it waits for the parent's sum.
func (j *job) expire(now clock.Time) {
	for who, l := range j.waiting {
		if l.oldest < 0 || j.over != 0 {
			continue
		}
		first := &j.sets[l.oldest]
		switch waited := now.Sub(first.started); {
		case state(who) == forChildren && waited > j.Timeout:
			j.over, j.present = wire.AggregationTimeout, first.bitmap|j.all&^j.below
		case state(who) == forParent && waited > j.Parent.Timeout:
			j.over, j.present = wire.AggregationTimeout, j.below
		}
	}
}

// rejectUnknown rejects a message of no job, if the plan contains the sender.
func (t *Table) rejectUnknown(now clock.Time, m *Message, code wire.AggregationCode) Outcome {
	for i := range t.jobs {
		for c := range t.jobs[i].children {
			if t.jobs[i].Children[c].sent(m) {
				return t.reject(now, m, i, c, code, 0)
			}
		}
	}
	return t.Refuse(Stranger)
}

// reject answers a message of a child. The child must be known to be at the message's source.
func (t *Table) reject(now clock.Time, m *Message, index, who int, code wire.AggregationCode,
	bitmap uint64) Outcome {
	j := &t.jobs[index]
	one := &j.children[who]
	if now < one.reject {
		return j.refuse(RejectLimit)
	}
	one.reject = now.Add(rejectEvery)
	j.counters.Rejected[code]++
	f := wire.Aggregation(m.Data).Fields()
	f.Kind, f.Flags, f.Code, f.Bitmap = wire.AggregationReject, 0, code, bitmap
	f.Elements, f.Scale, f.NextScale = 0, 0, 0
	switch {
	case code == wire.AggregationJobUnknown || code == wire.AggregationVersionUnknown:
	case code == j.over && code == wire.AggregationEpochOld:
		f.Epoch = j.above
	default:
		f.Epoch = j.epoch
	}
	return Outcome{Action: SendBack, Job: index, Child: who, Reject: f}
}
