package report

import (
	"fmt"
	"strings"

	"railbed/internal/plural"
	"railbed/internal/units"
)

// Messages is the result of messages that do not belong to a collective.
type Messages struct {
	Name      string `json:"name"`      // the step's name
	Transport string `json:"transport"` // tcp, rd, roce or quic
	Count     int    `json:"count"`     // number of messages
	Bytes     uint64 `json:"bytes"`     // payload of all messages
	// PerSecond is the number of items in Times divided by the time, in seconds, until the last
	// item was completed.
	PerSecond float64 `json:"per_second"`
	// What names the items in Times. Times are in seconds. A message counts from its due time, or
	// in a closed loop from its sending, until its sender knows that it has arrived. A block counts
	// from its sending or request until it has arrived. The time to first token counts from a
	// request's arrival until all of its cache has arrived.
	What  string      `json:"what"`
	Times Percentiles `json:"times"`
	// Parts are the results by part if there are several parts, such as reads and writes.
	Parts []MessagesPart `json:"parts,omitempty"`
	// Serving is the result of a workload that transfers caches.
	Serving *Serving `json:"serving,omitempty"`
	// Attained is the share of items that met their objective, nil without an objective. Serving
	// has the objective of caches. SLO is the objective of blocks, in seconds.
	Attained *float64 `json:"attained,omitempty"`
	SLO      float64  `json:"slo,omitempty"`
	// Slowdowns are, by message size, the times of messages divided by their times on an idle
	// network.
	Slowdowns []Slowdown `json:"slowdowns,omitempty"`
	Wrong     uint64     `json:"wrong"` // received bytes that differ from the sent bytes
	// Slow is the rank whose messages took long. It is absent if no rank stands out.
	Slow *SlowRank `json:"slow,omitempty"`
	Conduct
	LeftOut
}

// SlowRank is a rank whose messages, sent or received, took long. Times are in seconds.
type SlowRank struct {
	Rank int    `json:"rank"` // its number
	Node string `json:"node"` // its node
	// Median is the median time of the rank's messages, and Others the median of all other
	// messages.
	Median float64 `json:"median"`
	Others float64 `json:"others"` // the median of all other messages
}

// String returns a sentence for people.
func (s SlowRank) String() string {
	return fmt.Sprintf("messages from and to rank %d on %s took %s in the median, the others %s", s.Rank,
		s.Node, units.Seconds(s.Median), units.Seconds(s.Others))
}

// MessagesPart is the result of a part of the messages.
type MessagesPart struct {
	What      string      `json:"what"`                 // the kind of messages
	PerSecond float64     `json:"per_second,omitempty"` // 0 stands for the rate of the whole
	Times     Percentiles `json:"times"`
}

// Serving is the result of requests to a serving system.
type Serving struct {
	// Prefill and Decode are the numbers of ranks that prefill and decode.
	Prefill int `json:"prefill"`
	Decode  int `json:"decode"`
	// Offered is the rate of arriving requests per second. PrefillBusy is the share of time in
	// which the prefill ranks computed, until the last prefill ended.
	Offered     float64 `json:"offered"`
	PrefillBusy float64 `json:"prefill_busy"`
	// SLO is the objective for the first token, and TokenSLO the objective for each other token, in
	// seconds. Goodput is the number of requests per second that were completed and met the
	// objectives.
	SLO      float64 `json:"slo,omitempty"`
	TokenSLO float64 `json:"token_slo,omitempty"` // the objective for the time between tokens
	Goodput  float64 `json:"goodput,omitempty"`
}

// Told returns a sentence for people about the share of requests that met the objectives. It is
// empty without an objective.
func (m *Messages) Told() string {
	if m.Serving != nil {
		return m.Serving.told(m.Attained)
	}
	if m.Attained == nil {
		return ""
	}
	return fmt.Sprintf("%.0f of %d took longer than %s", (1-*m.Attained)*float64(m.Count), m.Count,
		units.Seconds(m.SLO))
}

func (s *Serving) told(attained *float64) string {
	text := plural.Text("%d ranks prefill and %d decode; %.1f requests came in a second, and ranks "+
		"computed prompts for %s of the time", s.Prefill, s.Decode, s.Offered, units.Percent(s.PrefillBusy))
	if attained == nil {
		return text
	}
	var asked []string
	if s.SLO > 0 {
		asked = append(asked, "the first token within "+units.Seconds(s.SLO))
	}
	if s.TokenSLO > 0 {
		asked = append(asked, "each other within "+units.Seconds(s.TokenSLO))
	}
	return fmt.Sprintf("%s; %s of them had %s, %.1f in a second", text, units.Percent(*attained),
		strings.Join(asked, " and "), s.Goodput)
}

// Percentiles are computed by the nearest-rank method.
type Percentiles struct {
	Count int     `json:"count"` // number of values
	P50   float64 `json:"p50"`   // median
	P95   float64 `json:"p95"`   // 95th percentile
	P99   float64 `json:"p99"`   // 99th percentile
	P999  float64 `json:"p99_9"` // 99.9th percentile
	Most  float64 `json:"most"`  // largest value
}

// Slowdown holds the slowdowns of messages of a range of sizes.
type Slowdown struct {
	AtMost uint64 `json:"at_most"` // bytes
	Percentiles
}
