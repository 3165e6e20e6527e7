package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"railbed/internal/plural"
)

// Repeats are the retransmissions of reliable datagrams, over all ranks. The counts by cause are packets.
type Repeats struct {
	Payload uint64 `json:"payload"` // bytes, each counted once
	Bytes   uint64 `json:"bytes"`   // of payload that were sent again
	// Order is the number of packets whose earlier transmission had arrived or still arrived. Loss is
	// the number of other packets that later packets overtook. Timer is the number of packets that a
	// probe of a silent receiver found missing. Refused packets found no room at the receiver.
	Order    uint64 `json:"order"`
	Loss     uint64 `json:"loss"`
	Trimming uint64 `json:"trimming"` // packets sent again because a switch trimmed them
	Timer    uint64 `json:"timer"`
	Refused  uint64 `json:"refused"`
}

// repeatsLimit is the share of the payload from which retransmissions are reported in words.
const repeatsLimit = 0.1

// Share is the number of bytes that were sent again for each byte of payload.
func (r Repeats) Share() float64 { return float64(r.Bytes) / float64(max(r.Payload, 1)) }

// Note is a sentence for people if retransmissions exceed 10 % of the payload, with their causes. It is
// empty if they do not.
func (r Repeats) Note() string {
	if r.Share() <= repeatsLimit {
		return ""
	}
	type cause struct {
		packets uint64
		why     string
	}
	causes := []cause{
		{r.Loss, "lost"},
		{r.Trimming, "trimmed by a full switch"},
		{r.Timer, "missing when the sender's timer ran out"},
		{r.Order, "late or reordered, but not lost"},
		{r.Refused, "refused by a receiver without room"},
	}
	slices.SortStableFunc(causes, func(a, b cause) int { return cmp.Compare(b.packets, a.packets) })
	var words []string
	for _, c := range causes {
		if c.packets > 0 {
			words = append(words, plural.Count(c.packets, "packets")+" "+c.why)
		}
	}
	return fmt.Sprintf("rd sent %.0f%% of the payload again: %s", 100*r.Share(), strings.Join(words, ", "))
}
