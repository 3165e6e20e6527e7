package worker

import (
	"fmt"
	"slices"
	"time"

	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/plan/spec"
)

// Sweep measures several sizes as nccl-tests does, out of place and then in place for each size.
// Ranks do the warm-up operations and the timed operations back to back on the same data, without a
// message from the coordinator between them. The time of an operation is the time of all timed
// operations divided by their number. The checked operations follow, each with data of its own.
// Without a warm-up the times include the differences between the moments at which ranks start.
type Sweep struct {
	// Sizes are the sizes of the buffer. Sizes replaces Job.Size.
	Sizes []units.Bytes
	// Checks is the number of operations of each size and mode that are checked. Default 0.
	Checks int
	// Average specifies how the ranks' times become the time of an operation. Default: Slowest.
	Average Average
	// BusyPoll makes ranks poll for messages before they sleep (tcp.Endpoint.SetBusyPoll) in short
	// operations over tcp. Do not set it if other processes, such as soft switches, need the
	// processors.
	BusyPoll bool
}

// Range is a range of sizes, as nccl-tests takes it.
type Range struct {
	From, To units.Bytes // both inclusive
	Factor   int         // factor from one size to the next; at most 1 selects Step
	Step     units.Bytes
}

// Sizes returns the sizes of the range for a collective of a kind, an element type and a number of
// ranks. As nccl-tests does, it rounds each size down to a whole number of elements. For a kind
// whose ranks have shares, it rounds down so that all shares are equal and multiples of 16 bytes.
// The size of a barrier is 0. An error describes the fault of the range.
func (r Range) Sizes(kind string, ranks int, t element.Type) ([]units.Bytes, error) {
	const most = 10_000 // maximum number of lines in a table
	if kind == spec.Barrier {
		return []units.Bytes{0}, nil
	}
	if r.From > r.To || r.From == 0 || r.Factor <= 1 && r.Step == 0 && r.From < r.To {
		return nil, fmt.Errorf("sizes from %v to %v by factor %d or step %v: want a range above 0 that rises",
			r.From, r.To, r.Factor, r.Step)
	}
	var sizes []units.Bytes
	for size := r.From; size <= r.To; {
		share := units.Bytes(t.Size())
		if schedule.Kind(kind).Shares() {
			share = 16 * units.Bytes(ranks)
		}
		if sizes = append(sizes, size/share*share); len(sizes) > most {
			return nil, fmt.Errorf("sizes from %v to %v by factor %d or step %v: want at most %d sizes",
				r.From, r.To, r.Factor, r.Step, most)
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

// Average is the rule that combines the times of all ranks into one time.
type Average int

// The averages of nccl-tests' option -a.
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

// average returns how the times of all ranks become one time.
func (j Job) average() Average {
	if j.Sweep == nil {
		return Slowest
	}
	return j.Sweep.Average
}

// sizes returns the sizes of the job's buffer.
func (j Job) sizes() []units.Bytes {
	if j.Sweep == nil {
		return []units.Bytes{j.Size}
	}
	return j.Sweep.Sizes
}
