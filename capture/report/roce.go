package report

import (
	"fmt"

	"railbed/internal/plural"
)

// RoCE has the counts of the queue pairs of all ranks together.
type RoCE struct {
	Packets uint64 `json:"packets"`    // sent, those that were sent again included
	Again   uint64 `json:"sent_again"` // requests that were sent again
	// NAKs are the requests to send again that receivers sent, without those of receivers that were not
	// ready. Timeouts counts the times that a sender waited for an acknowledgement in vain.
	NAKs     uint64 `json:"naks"`
	RNRNAKs  uint64 `json:"rnr_naks"` // of receivers that were not ready
	Timeouts uint64 `json:"timeouts"`
	// CNPs are the congestion notification packets that receivers sent. DCQCN is set if senders slow down
	// for them.
	CNPs  uint64 `json:"cnps"`
	DCQCN bool   `json:"dcqcn,omitempty"`
}

// Share is the number of packets that were sent again for each packet that was sent once.
func (r *RoCE) Share() float64 {
	return float64(r.Again) / float64(max(1, r.Packets-min(r.Again, r.Packets)))
}

// Notes are sentences for people if more than 10 % of the packets were sent again, and if DCQCN had nothing
// to do.
func (r *RoCE) Notes() (notes []string) {
	if r.Share() > repeatsLimit {
		notes = append(notes, fmt.Sprintf("roce sent %.0f%% of its packets again, after %s, %s and %s",
			100*r.Share(), plural.Count(r.NAKs, "NAKs"),
			plural.Count(r.RNRNAKs, "RNR NAKs"), plural.Count(r.Timeouts, "timeouts")))
	}
	if r.DCQCN && r.CNPs == 0 {
		notes = append(notes, "DCQCN had nothing to do: receivers got no marked packet, and sent no CNP")
	}
	return notes
}
