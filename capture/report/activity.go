package report

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Activity describes the operations and messages of a step in a part of the run, for a Gantt chart. Spans
// count in seconds from Start, which counts from the start of the first step.
type Activity struct {
	Step string `json:"step"` // the step's name
	// What names the part, such as "the slowest of 20 operations".
	What  string  `json:"what"`
	Start float64 `json:"start"` // from the first step
	// Began is when the first rank of an operation began, and Took how long the last one took, in seconds.
	// They are absent where messages alone show the activity.
	Began time.Time `json:"began,omitzero"`
	Took  float64   `json:"took,omitempty"` // its duration
	// Slowest is set if no other operation of the step took longer.
	Slowest bool `json:"slowest,omitempty"`
	// Source is "ranks", the path of a recording and how many packets that lost, or both.
	Source string `json:"source"`
	Lanes  []Lane `json:"lanes"`
}

// RanksSource is the source of the ranks' own measurements.
const RanksSource = "ranks"

// Bounds of activities, which keep the page below 2 MB.
const (
	ActivitiesKept = 8
	LanesKept      = 64
)

// MessagesKept returns the greatest number of spans of messages in a lane of several.
func MessagesKept(lanes int) int { return min(64, max(8, 512/max(1, lanes))) }

// PartsKept returns the greatest number of parts of an algorithm in a lane of several.
func PartsKept(lanes int) int { return min(8, max(2, 128/max(1, lanes))) }

// Lane has the operations and messages of a rank, or of a node without ranks.
type Lane struct {
	Rank  *int   `json:"rank,omitempty"` // the rank, if it is one
	Node  string `json:"node"`           // the node
	Spans []Span `json:"spans"`
	// Steps are the steps of the rank's algorithm in an operation that was timed alone. StepsLeftOut counts
	// parts of the algorithm whose steps are left out.
	Steps        []RankSteps `json:"steps,omitempty"`
	StepsLeftOut int         `json:"steps_left_out,omitempty"`
}

// RankSteps are the steps of a part of a rank's algorithm. They follow each other: a step begins when the
// step before it ends. A ring all-reduce of n ranks has 2(n-1) steps. collective.StepLog defines steps and
// their ends.
type RankSteps struct {
	// Of names the part, such as "dispatch", "channel 1" or "thread 0", if the rank has several.
	Of string `json:"of,omitempty"`
	// Count is the number of steps. Each value of Ends is the end of Each steps in succession. The last
	// value is the end of the rest.
	Count int       `json:"count"`
	Each  int       `json:"each"`
	Start float64   `json:"start"` // of the first step
	Ends  []float64 `json:"ends"`  // from the first step
}

// TimedStep is a step, or several in succession, with the times at which it began and ended.
type TimedStep struct {
	Name       string // such as "step 3 of 14"
	Start, End float64
}

// Timed returns the steps, one for each of Ends.
func (s *RankSteps) Timed() (all []TimedStep) {
	start, each := s.Start, max(s.Each, 1)
	for i, end := range s.Ends {
		first, last := i*each+1, min((i+1)*each, s.Count)
		name := fmt.Sprintf("step %d of %d", first, s.Count)
		if last > first {
			name = fmt.Sprintf("steps %d to %d of %d", first, last, s.Count)
		}
		if s.Of != "" {
			name = s.Of + ": " + name
		}
		all = append(all, TimedStep{name, start, end})
		start = end
	}
	return all
}

// Timed returns the steps of all parts of the rank's algorithm.
func (l *Lane) Timed() (all []TimedStep) {
	for i := range l.Steps {
		all = append(all, l.Steps[i].Timed()...)
	}
	return all
}

// Span is an operation of a rank, a time in which the rank waited for others, or a message that it sent.
type Span struct {
	// Of is "operation", "wait" or "message". Waits that follow each other closely are one span.
	Of    string  `json:"of"`
	Start float64 `json:"start"` // from the first step
	End   float64 `json:"end"`   // from the first step
	// Waited is the part of an operation in which the rank had nothing to do until another rank sent
	// something.
	Waited float64 `json:"waited,omitempty"`
	// To is the receiver of a message. Message is the number of the message in railbed follow.
	To      string `json:"to,omitempty"`
	Bytes   int64  `json:"bytes,omitempty"` // payload
	Message int    `json:"message,omitempty"`
	// Again counts packets of the message that were sent again.
	Again int `json:"sent_again,omitempty"`
	// Count is the number of messages, if the span is of several.
	Count int `json:"count,omitempty"`
}

// The kinds of spans.
const (
	OperationSpan = "operation"
	WaitSpan      = "wait"
	MessageSpan   = "message"
)

// Distribution is how long things of one kind took. Times[i] is the time that a share of Shares[i] of them
// did not exceed, in seconds.
type Distribution struct {
	Step   string    `json:"step"`   // the step's name
	What   string    `json:"what"`   // "operation", or the kind of message
	Source string    `json:"source"` // as of an Activity
	Count  int       `json:"count"`  // number of values
	Shares []float64 `json:"shares"` // of values up to the time of the same index
	Times  []float64 `json:"times"`  // in ascending order
}

// At returns the time that a share did not exceed.
func (d Distribution) At(share float64) float64 {
	for i := range d.Shares {
		if d.Shares[i] >= share {
			return d.Times[i]
		}
	}
	return 0
}

// distributionPoints bounds the values of a Distribution, besides the tail.
const distributionPoints = 100

// NewDistribution returns the distribution of times in seconds. It sorts them.
func NewDistribution(step, what, source string, times []float64) Distribution {
	slices.Sort(times)
	d := Distribution{Step: step, What: what, Source: source, Count: len(times)}
	add := func(share float64) {
		i := min(max(int(math.Ceil(share*float64(len(times)))), 1), len(times)) - 1 // nearest rank
		d.Shares, d.Times = append(d.Shares, share), append(d.Times, times[i])
	}
	steps := min(len(times), distributionPoints)
	for i := range steps {
		if share := float64(i+1) / float64(steps); share < 1 {
			add(share)
		}
	}
	if len(times) > 1000 {
		add(0.999)
	}
	if len(times) > 0 {
		add(1)
	}
	return d
}
