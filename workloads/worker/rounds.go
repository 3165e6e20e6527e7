package worker

import (
	"fmt"
	"slices"
	"time"

	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/workloads/collective"
)

// Sweep measures several sizes as nccl-tests does. For each size, and in place after out of
// place, ranks do the operations that warm up and those that are timed after each other on
// the same data, without a word of the coordinator in between, and the time is that of all
// divided by their number. Checks follow, each with data of its own. Without a warm-up the
// times include that ranks do not start at the same moment.
type Sweep struct {
	// Sizes are those of the buffer, as Job.Size is, which is not used.
	Sizes []units.Bytes
	// Checks is how many operations of each size and mode are checked. Default 0.
	Checks int
	// Average says whose time an operation took. Default: that of the slowest rank.
	Average Average
	// BusyPoll has ranks that do short operations over tcp look for messages before they
	// sleep (tcp.Endpoint.SetBusyPoll): not where others need the processors, as soft
	// switches do.
	BusyPoll bool
}

// Range is sizes from one to another, as nccl-tests takes them.
type Range struct {
	From, To units.Bytes // with both
	Factor   int         // to the next size; up to 1 means Step
	Step     units.Bytes
}

// Sizes are those of the range for a collective of elements of a type over so many ranks: each as much
// smaller as nccl-tests makes it, so that all ranks have equal shares of whole 16 bytes
// where they have shares. That of a barrier is 0. An error says what is wrong with the range.
func (r Range) Sizes(kind string, ranks int, t element.Type) ([]units.Bytes, error) {
	const most = 10_000 // lines of a table
	if kind == Barrier {
		return []units.Bytes{0}, nil
	}
	if r.From > r.To || r.From == 0 || r.Factor <= 1 && r.Step == 0 && r.From < r.To {
		return nil, fmt.Errorf("sizes from %v to %v by %d or %v: want more than 0, upwards, in steps", r.From,
			r.To, r.Factor, r.Step)
	}
	var sizes []units.Bytes
	for size := r.From; size <= r.To; {
		share := units.Bytes(t.Size())
		if schedule.Kind(kind).Shares() {
			share = 16 * units.Bytes(ranks)
		}
		if sizes = append(sizes, size/share*share); len(sizes) > most {
			return nil, fmt.Errorf("sizes from %v to %v by %d or %v: more than %d", r.From, r.To, r.Factor,
				r.Step, most)
		}
		next := size + r.Step
		if r.Factor > 1 {
			next = size * units.Bytes(r.Factor)
		}
		if next <= size {
			break
		}
		size = next
	}
	return sizes, nil
}

// Average makes one time of those of all ranks.
type Average int

// Averages, of nccl-tests' -a.
const (
	Slowest   Average = iota // -a 3
	MeanRank                 // -a 1
	Fastest                  // -a 2
	FirstRank                // -a 0
)

func (a Average) of(times []time.Duration) time.Duration {
	switch a {
	case MeanRank:
		var total time.Duration
		for _, t := range times {
			total += t
		}
		return total / time.Duration(len(times))
	case Fastest:
		return slices.Min(times)
	case FirstRank:
		return times[0]
	}
	return slices.Max(times)
}

// average is how the job makes one time of those of all ranks.
func (j Job) average() Average {
	if j.Sweep == nil {
		return Slowest
	}
	return j.Sweep.Average
}

// sizes are those of the job's buffers.
func (j Job) sizes() []units.Bytes {
	if j.Sweep == nil {
		return []units.Bytes{j.Size}
	}
	return j.Sweep.Sizes
}

// round is what ranks do between two words of the coordinator: operations before those that
// are timed, and these together.
type round struct {
	operationID
	size          int // index of workerConfig.Sizes
	before, count int
	timed, check  bool
}

// rounds are those of a job, the same for all ranks, numbered from 0.
func (c *workerConfig) rounds() []round {
	var rounds []round
	add := func(r round) {
		r.Index = len(rounds)
		rounds = append(rounds, r)
	}
	modes := []collective.Mode{collective.OutOfPlace}
	if c.InPlace {
		modes = append(modes, collective.InPlace)
	}
	for size := range c.Sizes {
		for _, mode := range modes {
			id := operationID{Mode: mode}
			if c.Together {
				add(round{operationID: id, size: size, before: c.Warmup, count: c.Iterations, timed: true})
				for range c.Checks {
					add(round{operationID: id, size: size, count: 1, check: true})
				}
				continue
			}
			for i := range c.Warmup + c.Iterations {
				add(round{operationID: id, size: size, count: 1, timed: i >= c.Warmup, check: true})
			}
		}
	}
	return rounds
}
