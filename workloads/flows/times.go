package flows

import (
	"math"
	"slices"
	"time"

	"railbed/internal/units"
)

// Sent has the times of a message.
type Sent struct {
	Message int `json:"message"` // its number in the schedule
	// Begun is the time at which the message was posted. Done is the time at which the sender learned
	// that it was placed or, for a request, received the answer. Both count from the start of the
	// schedule.
	Begun time.Duration `json:"begun"`
	Done  time.Duration `json:"done"`
}

// Percentiles are percentiles of times or of slowdowns.
type Percentiles struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99_9"`
	Most  float64 `json:"most"`
}

// PercentilesOf returns the percentiles of values by nearest rank. It sorts values.
func PercentilesOf(values []float64) Percentiles {
	if len(values) == 0 {
		return Percentiles{}
	}
	slices.Sort(values)
	at := func(p float64) float64 { return values[max(0, int(math.Ceil(p*float64(len(values))))-1)] }
	return Percentiles{Count: len(values), P50: at(.5), P95: at(.95), P99: at(.99), P999: at(.999),
		Most: values[len(values)-1]}
}

// Bin holds the slowdowns of messages of a range of sizes.
type Bin struct {
	// AtMost is the largest size in the bin.
	AtMost units.Bytes `json:"at_most"`
	Percentiles
}

// Slowdowns divides messages by size into the given number of bins of equal count. A slowdown is
// the time of a message divided by its time on an idle network, which alone returns. Messages that take no
// time there, because both ranks are on one node, are in no bin.
func (s *Schedule) Slowdowns(sent []Sent, bins int, alone func(Message) time.Duration) []Bin {
	messages := s.Messages
	order := slices.DeleteFunc(slices.Clone(sent),
		func(m Sent) bool { return alone(messages[m.Message]) <= 0 })
	slices.SortStableFunc(order, func(a, b Sent) int {
		return int(messages[a.Message].Bytes) - int(messages[b.Message].Bytes)
	})
	var all []Bin
	for i := range bins {
		part := order[i*len(order)/bins : (i+1)*len(order)/bins]
		if len(part) == 0 {
			continue
		}
		values := make([]float64, len(part))
		for k, m := range part {
			values[k] = float64(s.Took(m)) / float64(alone(messages[m.Message]))
		}
		all = append(all, Bin{AtMost: messages[part[len(part)-1].Message].Bytes,
			Percentiles: PercentilesOf(values)})
	}
	return all
}

// Groups returns the times at which the last message of each group was done. A request's time to
// first token is that time less the request's arrival.
func Groups(messages []Message, sent []Sent) []time.Duration {
	groups := 0
	for _, m := range messages {
		groups = max(groups, m.Group+1)
	}
	done := make([]time.Duration, groups)
	for _, s := range sent {
		group := messages[s.Message].Group
		done[group] = max(done[group], s.Done)
	}
	return done
}

// Whole returns each message with its copies as one, which is done when all are. They are in the order in
// which the first of each was done.
func (s *Schedule) Whole(sent []Sent) (whole []Sent) {
	at := map[int]int{} // index in whole, by first message
	for _, m := range sent {
		first := s.first(m.Message)
		i, known := at[first]
		if !known {
			i = len(whole)
			at[first], whole = i, append(whole, Sent{Message: first, Begun: m.Begun})
		}
		whole[i].Begun, whole[i].Done = min(whole[i].Begun, m.Begun), max(whole[i].Done, m.Done)
	}
	return whole
}

// Took returns the duration of a sent message: from its due time, or in a closed loop from its
// posting.
func (s *Schedule) Took(m Sent) time.Duration {
	if s.Outstanding > 0 {
		return m.Done - m.Begun
	}
	return m.Done - s.Messages[m.Message].At
}

// Straggler is a rank whose messages, sent or received, take long.
type Straggler struct {
	Rank int
	// Median is the median time of its messages, and Others the median of all other messages.
	Median, Others time.Duration
}

// A straggler's messages take stragglerTimes as long as the others, with at least stragglerLeast
// messages of both. Chance and a popular receiver make less difference than that.
const (
	stragglerTimes = 4
	stragglerLeast = 20
)

// Straggler returns the rank that stands out among the given number of ranks, or nil if none does.
func (s *Schedule) Straggler(sent []Sent, ranks int) (found *Straggler) {
	times := 0.0
	for rank := range ranks {
		var own, others []float64
		for _, m := range sent {
			if took := float64(s.Took(m)); s.Messages[m.Message].From == rank ||
				s.Messages[m.Message].To == rank {
				own = append(own, took)
			} else {
				others = append(others, took)
			}
		}
		if min(len(own), len(others)) < stragglerLeast {
			continue
		}
		a, b := PercentilesOf(own).P50, PercentilesOf(others).P50
		if a > max(times, stragglerTimes)*b {
			times, found = a/b, &Straggler{Rank: rank, Median: time.Duration(a), Others: time.Duration(b)}
		}
	}
	return found
}
