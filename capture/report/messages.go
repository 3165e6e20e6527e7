package report

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Messages is what came of messages that are no collective's.
type Messages struct {
	Name      string `json:"name"`
	Transport string `json:"transport"`
	Count     int    `json:"count"`
	Bytes     uint64 `json:"bytes"`
	// PerSecond is how many of those of Times were done in a second, of the time until the
	// last one was.
	PerSecond float64 `json:"per_second"`
	// What Times are of, in seconds: each message, from when it was due, or in a closed loop
	// sent, until its sender knew that it had arrived; each block, from when it was sent, or asked for, until it had
	// arrived; or the time to first token of each request, from when it came until all of its
	// cache had arrived.
	What  string      `json:"what"`
	Times Percentiles `json:"times"`
	// Parts are those of which there are several: reads and writes.
	Parts []MessagesPart `json:"parts,omitempty"`
	// Slowdowns are by size: how many times longer messages took than alone.
	Slowdowns []Slowdown `json:"slowdowns,omitempty"`
	Wrong     uint64     `json:"wrong"` // bytes that came and are not what was sent
	// Slow is the rank whose messages took long; none stands out where it is left out.
	Slow *SlowRank `json:"slow,omitempty"`
	Conduct
	LeftOut
}

// SlowRank is a rank from and to which messages took long, in seconds.
type SlowRank struct {
	Rank int    `json:"rank"`
	Node string `json:"node"`
	// Median is that of the times of its messages, and Others that of all others.
	Median float64 `json:"median"`
	Others float64 `json:"others"`
}

// String is a sentence for people.
func (s SlowRank) String() string {
	return fmt.Sprintf("messages from and to rank %d on %s took %s in the median, the others %s", s.Rank, s.Node, seconds(s.Median), seconds(s.Others))
}

// MessagesPart is a part of messages, with their words.
type MessagesPart struct {
	What      string      `json:"what"`
	PerSecond float64     `json:"per_second"`
	Times     Percentiles `json:"times"`
}

// Percentiles are by nearest rank.
type Percentiles struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99_9"`
	Most  float64 `json:"most"`
}

// Slowdown is of messages of a range of sizes.
type Slowdown struct {
	AtMost uint64 `json:"at_most"` // bytes
	Percentiles
}

// messages prints a line for each step, and one for each range of sizes.
func (t *textWriter) messages(all []Messages) {
	if len(all) == 0 {
		return
	}
	rows := newRows("messages", "over", "of", "count", "per\nsecond", "p50", "p95", "p99", "p99.9", "most", "wrong\nbytes")
	rightAligned(rows, 4, 5, 6, 7, 8, 9, 10, 11)
	slow := newRows("slowdown", "size up to\n(B)", "count", "p50", "p95", "p99", "p99.9", "most")
	rightAligned(slow, 2, 3, 4, 5, 6, 7, 8)
	for i := range all {
		m, p := &all[i], &all[i].Times
		rows.AppendRow(table.Row{m.Name, m.Transport, m.What, p.Count, fmt.Sprintf("%.0f", m.PerSecond), seconds(p.P50), seconds(p.P95), seconds(p.P99), seconds(p.P999), seconds(p.Most), m.Wrong})
		for _, part := range m.Parts {
			p := &part.Times
			rows.AppendRow(table.Row{"", "", part.What, p.Count, fmt.Sprintf("%.0f", part.PerSecond), seconds(p.P50), seconds(p.P95), seconds(p.P99), seconds(p.P999), seconds(p.Most), ""})
		}
		for _, s := range m.Slowdowns {
			slow.AppendRow(table.Row{m.Name, s.AtMost, s.Count, fixed2(s.P50), fixed2(s.P95), fixed2(s.P99), fixed2(s.P999), fixed2(s.Most)})
		}
	}
	t.table(rows)
	if slow.Length() > 0 {
		t.table(slow)
	}
	for i := range all {
		if all[i].Slow != nil {
			t.printf("%s: %v\n\n", all[i].Name, all[i].Slow)
		}
		t.leftOut(all[i].Name, all[i].LeftOut)
		t.conduct(all[i].Name, &all[i].Conduct)
	}
}

func fixed2(v float64) string { return fmt.Sprintf("%.2f", v) }
