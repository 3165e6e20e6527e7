// Package training describes training jobs as data: for each rank, its computations, its exchanges
// with other ranks, and their order.
//
// A Program has tasks for each rank. A computation only takes time. An exchange is one of the
// program's Operations: a collective among some of the ranks, or in the simplest case a transfer
// from one rank to another. Tasks belong to streams, as on a GPU. Tasks of one stream run one after
// the other. Tasks of different streams run at the same time, except where After orders them. All
// computation of a rank is one stream. Each group of ranks with exchanges has one stream at each of
// its ranks, like a communicator of NCCL.
//
// Compile makes a program from the description of a model, and package trace from recorded traces.
// Predict computes an iteration in virtual time. Package collective runs the exchanges in real
// time.
//
// The package is pure. Its functions are safe for concurrent use.
package training

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"railbed/internal/units"
	"railbed/plan/schedule"
)

// AllToAll is the kind of an operation in which each rank sends an equal part of its buffer to each
// rank.
const AllToAll = schedule.AllToAll

// Transfer is the kind that sends a message from a group's first rank to its second.
const Transfer = schedule.Broadcast

// Limits of a program, so that a file cannot ask for more than a host has.
const (
	MaxRanks      = 4096
	MaxOperations = 2048
	MaxTasks      = 1 << 20 // of all ranks
	maxBytes      = 1 << 30 // of an operation
	// maxRankBytes bounds the bytes of all operations of a rank, and MaxJobBytes those of all
	// ranks. Each operation has its own buffers for input, output and intermediate data.
	maxRankBytes = 4 << 30
	maxJobBytes  = 16 << 30
)

// maxTime is the maximum duration of a computation.
const maxTime = 24 * time.Hour

// elementSize is the size of an element. The bytes of an operation are a multiple of it, because
// exchanges are of float32.
const elementSize = 4

// Operation is an exchange that can be performed any number of times.
type Operation struct {
	// Group names the kind of the ranks' group, such as "tp". Operations of one Group and Channel
	// with the same Ranks are performed one after the other, in the same order at all ranks.
	Group   string        `json:"group"`
	Channel int           `json:"channel,omitempty"`
	Kind    schedule.Kind `json:"kind"`
	// Ranks are ranks of the job, in the order of the collective.
	Ranks []int `json:"ranks"`
	// Bytes is the size of the whole buffer: for an all-gather, of each rank's output, and for a
	// reduce-scatter, of each rank's input.
	Bytes uint64 `json:"bytes"`
}

// Kinds of a Task.
const (
	Compute  = "compute"  // the device is busy
	Delay    = "delay"    // time passes without a device
	Exchange = "exchange" // an operation
)

// Task is a computation, a delay or an exchange of a rank in an iteration.
type Task struct {
	// Name is for people: "forward 3".
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Time is the duration of Compute and Delay, in the testbed's time.
	Time time.Duration `json:"time,omitempty"`
	// Operation is the index of the operation of an Exchange.
	Operation int `json:"operation,omitempty"`
	// After are earlier tasks of this rank that must be done first.
	After []int `json:"after,omitempty"`
}

// Program has the operations and tasks of a job in each of its iterations.
type Program struct {
	Operations []Operation `json:"operations"`
	Tasks      [][]Task    `json:"tasks"` // by rank
}

// Stream names the stream of a rank's task: the rank's computation stream, the stream of an
// operation's group or, for a delay, a stream of its own.
func (p *Program) Stream(rank, task int) string {
	switch t := &p.Tasks[rank][task]; t.Kind {
	case Compute:
		return Compute
	case Exchange:
		return p.Operations[t.Operation].stream()
	}
	return fmt.Sprintf("%s %d", Delay, task)
}

func (o *Operation) stream() string { return fmt.Sprintf("%s %d %v", o.Group, o.Channel, o.Ranks) }

// Builder makes a program. It numbers the operations.
type Builder struct {
	Program
	known map[string]int
}

// NewBuilder begins a program for the given number of ranks.
func NewBuilder(ranks int) *Builder {
	return &Builder{Program: Program{Tasks: make([][]Task, ranks)}, known: map[string]int{}}
}

// Operation returns the index of an operation, and adds the operation if it is new. The operation's
// bytes are rounded up to whole elements.
func (b *Builder) Operation(o Operation) int {
	o.Bytes = (o.Bytes + elementSize - 1) / elementSize * elementSize
	key := fmt.Sprint(o)
	i, found := b.known[key]
	if !found {
		i = len(b.Operations)
		b.known[key] = i
		b.Operations = append(b.Operations, o)
	}
	return i
}

// Add adds a task after the other tasks of a rank, and returns its index.
func (b *Builder) Add(rank int, t Task) int {
	b.Tasks[rank] = append(b.Tasks[rank], t)
	return len(b.Tasks[rank]) - 1
}

// Scale has the factors by which all bytes and all times of a program are multiplied, so that a job
// of a large machine fits on a small one. A factor that is not set is 1.
type Scale struct{ Bytes, Times units.Factor }

// Done scales the program and checks it.
func (b *Builder) Done(s Scale) (*Program, error) {
	one := units.Factor{Num: 1, Den: 1}
	b.scale(cmp.Or(s.Bytes, one), cmp.Or(s.Times, one))
	if err := b.Check(); err != nil {
		return nil, err
	}
	return &b.Program, nil
}

func (p *Program) scale(bytes, times units.Factor) {
	for i := range p.Operations {
		o := &p.Operations[i]
		scaled := uint64(bytes.Times(units.Bytes(o.Bytes)))
		if o.Bytes > 0 && scaled != o.Bytes {
			each := elementSize * uint64(len(o.Ranks)) // so that all have equal parts
			o.Bytes = max(scaled, each) / each * each
		}
	}
	for _, tasks := range p.Tasks {
		for i := range tasks {
			tasks[i].Time = time.Duration(min(float64(tasks[i].Time)*times.Float(), 2*float64(maxTime)))
		}
	}
}

// Sent returns the bytes that the rank with the given index in Ranks sends in the operation. It
// uses the closed formula of the first algorithm of the kind in package schedule.
func (o *Operation) Sent(place int) uint64 {
	n := len(o.Ranks)
	if o.Kind == AllToAll {
		elements, own := o.Bytes/elementSize, o.Bytes/elementSize/uint64(n)
		if uint64(place) < elements%uint64(n) {
			own++
		}
		return (elements - own) * elementSize
	}
	return schedule.Sent(o.Kind, schedule.Algorithms(o.Kind)[0], n, place, 0).Of(o.Bytes)
}

// Gradients reports whether the operation is a sum of gradients, of which a little may be left out.
// That is an all-reduce or reduce-scatter of ranks that are data parallel or have the same experts.
func (o *Operation) Gradients() bool {
	return (o.Kind == schedule.AllReduce || o.Kind == schedule.ReduceScatter) &&
		(o.Group == DataParallel || o.Group == ExpertData)
}

// MayMiss returns the number of bytes of sums of gradients that all ranks together may leave out in
// an iteration. share is the share of each message with partial sums that may be left out. A ring
// has n-1 steps with partial sums, and in each step the ranks together send the buffer once.
func (p *Program) MayMiss(share units.Ratio) (sum uint64) {
	for i, uses := range p.Uses() {
		o := &p.Operations[i]
		if !o.Gradients() {
			continue
		}
		sum += uses * uint64(share.Of(units.Bytes(uint64(len(o.Ranks)-1)*o.Bytes)))
	}
	return sum
}

// Uses returns the number of times that each operation is performed in an iteration.
func (p *Program) Uses() []uint64 {
	counts := make([]uint64, len(p.Operations))
	for rank, tasks := range p.Tasks {
		for i := range tasks {
			if t := &tasks[i]; t.Kind == Exchange && p.Operations[t.Operation].Ranks[0] == rank {
				counts[t.Operation]++
			}
		}
	}
	return counts
}

// Volume is the number of bytes that a rank sends in one iteration within one Group.
type Volume struct {
	Group string `json:"group"`
	Bytes uint64 `json:"bytes"`
}

// Volumes returns a rank's volumes in an iteration, sorted by Group.
func (p *Program) Volumes(rank int) []Volume {
	sums := map[string]uint64{}
	for i := range p.Tasks[rank] {
		if t := &p.Tasks[rank][i]; t.Kind == Exchange {
			o := &p.Operations[t.Operation]
			sums[o.Group] += o.Sent(slices.Index(o.Ranks, rank))
		}
	}
	var volumes []Volume
	for group, bytes := range sums {
		volumes = append(volumes, Volume{group, bytes})
	}
	slices.SortFunc(volumes, func(a, b Volume) int { return cmp.Compare(a.Group, b.Group) })
	return volumes
}

// Sent returns the bytes that a rank sends in an iteration.
func (p *Program) Sent(rank int) (bytes uint64) {
	for _, v := range p.Volumes(rank) {
		bytes += v.Bytes
	}
	return bytes
}

// Pairs returns the pairs of a sending and a receiving rank, in order.
func (p *Program) Pairs() [][2]int {
	var pairs [][2]int
	for i := range p.Operations {
		o := &p.Operations[i]
		for _, places := range o.pairs() {
			pairs = append(pairs, [2]int{o.Ranks[places[0]], o.Ranks[places[1]]})
		}
	}
	slices.SortFunc(pairs, func(a, b [2]int) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
	return slices.Compact(pairs)
}

// Demand returns the bytes that each of Pairs carries in an iteration. It assumes that a rank that
// sends to several ranks in an operation sends them equal parts.
func (p *Program) Demand() []units.Bytes {
	sums := map[[2]int]uint64{}
	for i, uses := range p.Uses() {
		o := &p.Operations[i]
		pairs, peers := o.pairs(), map[int]uint64{}
		for _, places := range pairs {
			peers[places[0]]++
		}
		for _, places := range pairs {
			sums[[2]int{o.Ranks[places[0]], o.Ranks[places[1]]}] += uses *
				o.Sent(places[0]) / peers[places[0]]
		}
	}
	var demand []units.Bytes
	for _, pair := range p.Pairs() {
		demand = append(demand, units.Bytes(sums[pair]))
	}
	return demand
}

// pairs returns the pairs of an operation, by index in Ranks.
func (o *Operation) pairs() (pairs [][2]int) {
	if o.Kind != AllToAll {
		s, err := schedule.Make(o.Kind, schedule.Algorithms(o.Kind)[0], len(o.Ranks), 0)
		if err == nil { // as when the program was checked
			pairs = s.Pairs()
		}
		return pairs
	}
	for from := range o.Ranks {
		for to := range o.Ranks {
			if from != to {
				pairs = append(pairs, [2]int{from, to})
			}
		}
	}
	return pairs
}

// Of returns a rank's part of a program. It has only the rank's tasks. It has the rank's operations
// at their indices, and the other operations are empty.
func (p *Program) Of(rank int) *Program {
	part := &Program{Operations: make([]Operation, len(p.Operations)), Tasks: make([][]Task, len(p.Tasks))}
	part.Tasks[rank] = p.Tasks[rank]
	for i := range p.Tasks[rank] {
		if t := &p.Tasks[rank][i]; t.Kind == Exchange {
			part.Operations[t.Operation] = p.Operations[t.Operation]
		}
	}
	return part
}

var errTooManyTasks = fmt.Errorf("check program: more than %d tasks", MaxTasks)

func tooManyRanks(n int) error {
	return fmt.Errorf("check program: %d ranks, want 1 to %d", n, MaxRanks)
}

// Check checks that a program can be run: that it keeps to the limits, that every task and
// operation is well formed, and that it ends whatever its tasks' durations. The error for a program
// that does not end names the task or operation that each rank waits for.
func (p *Program) Check() error {
	if n := len(p.Tasks); n < 1 || n > MaxRanks {
		return tooManyRanks(n)
	}
	if n := len(p.Operations); n > MaxOperations {
		return fmt.Errorf("check program: %d different operations, want at most %d", n, MaxOperations)
	}
	for i := range p.Operations {
		if err := p.checkOperation(&p.Operations[i]); err != nil {
			return fmt.Errorf("check program: operation %d: %w", i, err)
		}
	}
	tasks := 0
	for rank := range p.Tasks {
		if tasks += len(p.Tasks[rank]); tasks > MaxTasks {
			return errTooManyTasks
		}
		for i := range p.Tasks[rank] {
			if err := p.checkTask(rank, i); err != nil {
				return fmt.Errorf("check program: rank %d: task %d, %s: %w", rank, i, p.Tasks[rank][i].Name,
					err)
			}
		}
	}
	if err := p.checkMemory(); err != nil {
		return fmt.Errorf("check program: %w", err)
	}
	_, err := p.Predict(func(*Operation) time.Duration { return 0 })
	return err
}

// checkMemory checks that the operations together are not too large.
func (p *Program) checkMemory() error {
	ranks, all := make([]uint64, len(p.Tasks)), uint64(0)
	for i := range p.Operations {
		for _, rank := range p.Operations[i].Ranks {
			ranks[rank] += p.Operations[i].Bytes
			all += p.Operations[i].Bytes
		}
	}
	most := slices.Max(ranks)
	who := fmt.Sprintf("rank %d has", slices.Index(ranks, most))
	if err := fits(who+" buffers for exchanges of", most, maxRankBytes); err != nil {
		return err
	}
	return fits("all ranks have buffers for exchanges of", all, maxJobBytes)
}

func fits(what string, bytes, most uint64) error {
	if bytes <= most {
		return nil
	}
	return fmt.Errorf("%s %v, want at most %v: divide bytes-scale by %d", what, units.Bytes(bytes),
		units.Bytes(most), (bytes+most-1)/most)
}

func (p *Program) checkOperation(o *Operation) error {
	if len(schedule.Algorithms(o.Kind)) == 0 {
		return fmt.Errorf("kind %q is not known", o.Kind)
	}
	if len(o.Ranks) < 2 {
		return fmt.Errorf("%s among %d ranks, want at least 2", o.Kind, len(o.Ranks))
	}
	if err := fits(fmt.Sprintf("%s of", o.Kind), o.Bytes, maxBytes); err != nil {
		return err
	}
	if barrier := o.Kind == schedule.Barrier; barrier != (o.Bytes == 0) || o.Bytes%elementSize != 0 {
		return fmt.Errorf("%s of %d bytes, want a multiple of %d, or 0 for a barrier", o.Kind, o.Bytes,
			elementSize)
	}
	seen := map[int]bool{}
	for _, rank := range o.Ranks {
		if rank < 0 || rank >= len(p.Tasks) || seen[rank] {
			return fmt.Errorf("rank %d, want ranks from 0 to %d, each once", rank, len(p.Tasks)-1)
		}
		seen[rank] = true
	}
	return nil
}

func (p *Program) checkTask(rank, i int) error {
	t := &p.Tasks[rank][i]
	switch {
	case t.Kind != Compute && t.Kind != Delay && t.Kind != Exchange:
		return fmt.Errorf("kind %q is not known, want %s, %s or %s", t.Kind, Compute, Delay, Exchange)
	case t.Time < 0 || t.Time > maxTime:
		return fmt.Errorf("a time of %v, want 0 to %v", t.Time, maxTime)
	case t.Kind == Exchange && (t.Operation < 0 || t.Operation >= len(p.Operations) ||
		!slices.Contains(p.Operations[t.Operation].Ranks, rank)):
		return errors.New("its operation does not include the rank")
	}
	for _, before := range t.After {
		if before < 0 || before >= i {
			return fmt.Errorf("it waits for task %d, want an earlier task", before)
		}
	}
	return nil
}
