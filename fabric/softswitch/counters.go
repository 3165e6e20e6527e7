package softswitch

import (
	"railbed/fabric/softswitch/queue"
	"railbed/testbed/plan"
)

// Count is packets and their bytes.
type Count struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

func (c *Count) add(bytes int) {
	c.Packets++
	c.Bytes += uint64(bytes)
}

// Counters are what a port counts. Bytes are of frames without frame check
// sequence.
type Counters struct {
	Received       Count                    `json:"received"` // from the line
	Sent           Count                    `json:"sent"`     // to the line
	SentByPriority [queue.Priorities]uint64 `json:"sent_by_priority"`
	Marked         uint64                   `json:"marked"`
	Trimmed        uint64                   `json:"trimmed"`
	Corrupted      uint64                   `json:"corrupted"`
	Duplicated     uint64                   `json:"duplicated"`
	PausesSent     [queue.Priorities]uint64 `json:"pauses_sent"`
	PausesReceived [queue.Priorities]uint64 `json:"pauses_received"`
	INT            INTCounters              `json:"int,omitzero"`
	Dropped        [reasons]uint64          `json:"-"`
}

// PortState is a port as it is now.
type PortState struct {
	Port     string                  `json:"port"` // "leaf1:p0"
	Link     string                  `json:"link"`
	Up       bool                    `json:"up"`
	Counters Counters                `json:"counters"`
	Drops    map[string]uint64       `json:"drops,omitempty"` // by reason
	Depth    [queue.Priorities]int64 `json:"depth"`           // bytes that wait, by priority
	Paused   [queue.Priorities]bool  `json:"paused"`
	Slowed   bool                    `json:"slowed,omitempty"` // some priority is kept below the line's rate
	// PFC and GFC are the thresholds in force, which follow the link. GFC's stages, which
	// follow from its B1 and BM, are left out.
	PFC plan.PortPFC `json:"pfc,omitzero"`
	GFC plan.PortGFC `json:"gfc,omitzero"`
}

// Dropped is how many packets the port dropped, for whatever reason.
func (s *PortState) Dropped() (total uint64) {
	for _, n := range s.Drops {
		total += n
	}
	return total
}

// Waiting is the bytes that wait at all priorities.
func (s *PortState) Waiting() (total int64) {
	for _, n := range s.Depth {
		total += n
	}
	return total
}

// Ports are all ports of switches and emulated NICs as they are now.
func (e *Engine) Ports() []PortState {
	states := make([]PortState, len(e.ports))
	for i, one := range e.ports {
		at := one.thresholds()
		state := PortState{Port: one.name, Link: one.link.plan.Name, Up: one.link.up, Counters: one.count, PFC: at.PFC, GFC: at.GFC}
		for q := range uint8(queue.Priorities) {
			state.Depth[q] = one.egress.Depth(q)
			state.Paused[q] = one.told[q] > e.now
			state.Slowed = state.Slowed || one.egress.Rate(q) > 0
		}
		for r, n := range one.count.Dropped {
			if n > 0 {
				if state.Drops == nil {
					state.Drops = map[string]uint64{}
				}
				state.Drops[Reason(r).String()] = n
			}
		}
		states[i] = state
	}
	return states
}
