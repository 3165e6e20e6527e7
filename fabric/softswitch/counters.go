package softswitch

import (
	"math/bits"

	"railbed/fabric/softswitch/queue"
	"railbed/plan"
)

// Count is a number of packets and of their bytes.
type Count struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

func (c *Count) add(bytes int) {
	c.Packets++
	c.Bytes += uint64(bytes)
}

// Counters are the counters of a port. Bytes count frames without frame check sequence.
type Counters struct {
	Received       Count                    `json:"received"` // from the line
	Sent           Count                    `json:"sent"`     // to the line
	SentByPriority [queue.Priorities]uint64 `json:"sent_by_priority"`
	Corrupted      uint64                   `json:"corrupted"`
	Duplicated     uint64                   `json:"duplicated"`
	PausesSent     [queue.Priorities]uint64 `json:"pauses_sent"`
	PausesReceived [queue.Priorities]uint64 `json:"pauses_received"`
	INT            INTCounters              `json:"int,omitzero"`
}

// ByPriority counts packets by priority.
type ByPriority [queue.Priorities]uint64

// Total returns the packets of all priorities.
func (b *ByPriority) Total() (total uint64) {
	for _, n := range b {
		total += n
	}
	return total
}

// ByReason counts packets by the name of a reason and by priority. It only has reasons with a count
// above zero.
type ByReason map[string]ByPriority

// Total returns the packets of all reasons.
func (b ByReason) Total() (total uint64) {
	for _, of := range b {
		total += of.Total()
	}
	return total
}

// tally counts packets by reason, from a first one on, and by the packet's priority. There is no
// other counter of these packets: a total is their sum.
type tally struct {
	first  Reason
	met    uint32 // a bit for each reason with a count, so that sums can skip the others
	counts []ByPriority
}

func newTally(first, last Reason) tally {
	return tally{first: first, counts: make([]ByPriority, last-first+1)}
}

// add counts a packet. It allocates nothing.
func (t *tally) add(why Reason, priority uint8) {
	t.met |= 1 << (why - t.first)
	t.counts[why-t.first][priority&(queue.Priorities-1)]++
}

// total returns the packets of all reasons.
func (t *tally) total() (total uint64) {
	for left := t.met; left != 0; left &= left - 1 {
		total += t.counts[bits.TrailingZeros32(left)].Total()
	}
	return total
}

// byReason returns the counts by the reasons' names.
func (t *tally) byReason() ByReason {
	if t.met == 0 {
		return nil
	}
	named := ByReason{}
	for left := t.met; left != 0; left &= left - 1 {
		i := bits.TrailingZeros32(left)
		named[(t.first + Reason(i)).String()] = t.counts[i]
	}
	return named
}

// PortState is the current state of a port.
type PortState struct {
	Port     string   `json:"port"` // "leaf1:p0"
	Link     string   `json:"link"`
	Up       bool     `json:"up"`
	Counters Counters `json:"counters"`
	// Drops, Marks and Trims count by the priority of the packet. For a trimmed packet it is the
	// queue that had no room for it. For a packet that was dropped before it was sorted into a
	// queue, it is the priority on the incoming link. For a frame that a NIC cannot sort, it is 0.
	Drops  ByReason                `json:"drops,omitempty"`
	Marks  ByReason                `json:"marks,omitempty"`
	Trims  ByReason                `json:"trims,omitempty"`
	Depth  [queue.Priorities]int64 `json:"depth"` // queued bytes by priority
	Paused [queue.Priorities]bool  `json:"paused"`
	Slowed bool                    `json:"slowed,omitempty"` // some priority is below the line's rate
	// PFC and GFC are the thresholds in force, which follow the link. GFC's stages are omitted;
	// they follow from its B1 and BM.
	PFC plan.PortPFC `json:"pfc,omitzero"`
	GFC plan.PortGFC `json:"gfc,omitzero"`
}

// Waiting returns the queued bytes of all priorities.
func (s *PortState) Waiting() (total int64) {
	for _, n := range s.Depth {
		total += n
	}
	return total
}

// Ports returns the current state of all ports of switches and emulated NICs.
func (e *Engine) Ports() []PortState {
	states := make([]PortState, len(e.ports))
	for i, one := range e.ports {
		at := one.thresholds()
		state := PortState{
			Port:     one.name,
			Link:     one.link.plan.Name,
			Up:       one.link.up,
			Counters: one.count,
			PFC:      at.PFC,
			GFC:      at.GFC,
			Drops:    one.dropped.byReason(), Marks: one.marked.byReason(), Trims: one.trimmed.byReason(),
		}
		for q := range uint8(queue.Priorities) {
			state.Depth[q] = one.egress.Depth(q)
			state.Paused[q] = one.told[q] > e.now
			state.Slowed = state.Slowed || one.egress.Rate(q) > 0
		}
		states[i] = state
	}
	return states
}
