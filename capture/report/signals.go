package report

// Signals counts what soft switches did so that senders slow down or stop. It is absent if no switch has
// PFC or ECN.
type Signals struct {
	PFC    bool   `json:"pfc,omitempty"` // set if some switch has PFC
	ECN    bool   `json:"ecn,omitempty"` // set if some switch has ECN
	Pauses uint64 `json:"pauses"`        // pause frames that ports received
	Marks  uint64 `json:"marks"`         // packets that switches marked
}

// Notes are sentences for people about settings that had no effect.
func (s *Signals) Notes() (notes []string) {
	if s == nil {
		return nil
	}
	if s.PFC && s.Pauses == 0 {
		notes = append(notes, "PFC had nothing to do: no port was paused")
	}
	if s.ECN && s.Marks == 0 {
		notes = append(notes, "ECN had nothing to do: switches marked no packet")
	}
	return notes
}
