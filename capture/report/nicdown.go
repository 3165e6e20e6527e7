package report

import (
	"time"

	"railbed/internal/plural"
)

// NICDown is a NIC that something in its node took down.
type NICDown struct {
	NIC   string `json:"nic"`   // NODE:PORT
	Times uint64 `json:"times"` // how often
	// Lost is the number of packets that a soft switch had for the NIC and that were lost there.
	Lost uint64 `json:"lost,omitempty"`
	// Spans are the times in which it was down, from the sample before to the sample after, at most
	// MaxDownSpans.
	Spans []DownSpan `json:"spans,omitempty"`
}

// MaxDownSpans bounds NICDown.Spans.
const MaxDownSpans = 100

// DownSpan is a time that includes a time in which a NIC was down. Without To it lasted until the end.
type DownSpan struct {
	From time.Time `json:"from"`        // when the last sample had it up
	To   time.Time `json:"to,omitzero"` // when a sample had it up again
}

// String names the cause for people.
func (d NICDown) String() string {
	text := plural.Text(d.NIC+" went down %d times, and no step took its link down", d.Times)
	if d.Lost > 0 {
		text += plural.Text(": %d packets to it were lost", d.Lost)
	}
	return text
}
