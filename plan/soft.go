package plan

import (
	"fmt"
	"strconv"
	"strings"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// SoftSwitch is what a soft switch does beside forwarding; nothing of it is left
// to a default. Queues are the eight priorities of an egress port.
//
// # Buffer
//
// All ports share Buffer. Reserved of it is set aside for lossless priorities:
// PFC.XOff + PFC.Headroom, or GFC.Limit, for each port and lossless priority. A
// packet of such a priority is counted against what came in by its port, is
// dropped only beyond that, and no dynamic threshold holds for it. The rest is
// Shared: a queue of another priority accepts a packet while it holds at most
// Alpha times what is free of Shared before the packet, and the packet fits.
//
// A frame counts with its length from the Ethernet header on, without its check
// sequence: MTU + 14 bytes for the longest.
type SoftSwitch struct {
	// LoadBalance is one of spec.Flow and its siblings. Flow, Polarised and
	// Flowlet hash with Switch.HashSeed, which Polarised gives to all switches
	// alike.
	LoadBalance string `json:"load_balance"`
	// FlowletGap is the pause after which a flow may change its path.
	FlowletGap units.Duration `json:"flowlet_gap"`
	Buffer     units.Bytes    `json:"buffer"`
	Reserved   units.Bytes    `json:"reserved,omitempty"`
	Shared     units.Bytes    `json:"shared"`
	Alpha      units.Factor   `json:"alpha"`
	Scheduler  Scheduler      `json:"scheduler"`
	// Priorities are by DSCP; what is no IP packet has priority 0. A frame with a
	// tag of VLAN 0 has that of its tag.
	Priorities  PriorityMap  `json:"priorities"`
	ECN         *ECN         `json:"ecn,omitempty"`
	Trim        *Trim        `json:"trim,omitempty"`
	PFC         *PFC         `json:"pfc,omitempty"`
	GFC         *GFC         `json:"gfc,omitempty"`
	INT         bool         `json:"int,omitempty"`
	Aggregation *Aggregation `json:"aggregation,omitempty"`
}

// Features are what the switch does beside forwarding, in the words of files:
// "load-balance flow", "pfc on 3".
func (s *SoftSwitch) Features() []string {
	words := []string{"load-balance " + s.LoadBalance, "buffer " + s.Buffer.String()}
	if s.ECN != nil {
		words = append(words, "ecn "+s.ECN.Kind)
	}
	if s.Trim != nil {
		words = append(words, "trim on "+priorities(s.Trim.Priorities))
	}
	if s.PFC != nil {
		words = append(words, "pfc on "+priorities(s.PFC.Priorities))
	}
	if s.GFC != nil {
		words = append(words, fmt.Sprintf("gfc by %s on %s", s.GFC.Kind, priorities(s.GFC.Priorities)))
	}
	if s.INT {
		words = append(words, "int")
	}
	if s.Aggregation != nil {
		words = append(words, fmt.Sprintf("aggregation of %d slots%s", s.Aggregation.Slots,
			s.Aggregation.members()))
	}
	return words
}

func priorities(list []int) string {
	words := make([]string, len(list))
	for i, q := range list {
		words[i] = strconv.Itoa(q)
	}
	return strings.Join(words, ",")
}

// Scheduler is the order in which the queues of a port are served.
type Scheduler struct {
	// Strict priorities are served first, in this order.
	Strict []int `json:"strict,omitempty"`
	// Weights are of the queues in deficit round robin: each turn gives a queue
	// that waits Weights[q] * Quantum bytes. 0 is a strict queue.
	Weights [spec.Priorities]int `json:"weights"`
	// Quantum is the longest frame of any port, so that a turn of weight 1 sends
	// at least one (Shreedhar and Varghese, SIGCOMM 1995, for O(1) work).
	Quantum units.Bytes `json:"quantum"`
}

// PriorityMap is the priority of each DSCP. It prints as 64 digits, that of DSCP
// 0 first.
type PriorityMap [64]uint8

// MarshalText implements encoding.TextMarshaler.
func (m PriorityMap) MarshalText() ([]byte, error) {
	text := make([]byte, len(m))
	for i, priority := range m {
		text[i] = '0' + priority
	}
	return text, nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *PriorityMap) UnmarshalText(text []byte) error {
	if len(text) != len(m) {
		return fmt.Errorf("priorities of %d DSCPs: want %d", len(text), len(m))
	}
	for i, digit := range text {
		if digit < '0' || digit >= '0'+spec.Priorities {
			return fmt.Errorf("priority %q of DSCP %d: want 0 to %d", digit, i, spec.Priorities-1)
		}
		m[i] = digit - '0'
	}
	return nil
}

// ECN is how queues mark. Kind is spec.RED, with KMin, KMax and PMax, or
// spec.ECNSharp, with Target (ins_target), PersistentTarget (pst_target) and
// Interval (pst_interval). Only packets with ECT(0) or ECT(1) are marked, and
// none is dropped for it.
//
// RED looks at the queue's length in bytes before the packet, without an
// average (as DCQCN does): nothing up to KMin, everything above KMax, and in
// between the share PMax * (length-KMin)/(KMax-KMin).
//
// ECN# looks at a packet's time in the queue when it leaves: it marks every
// packet whose time exceeds Target; and when times have stayed at or above
// PersistentTarget for longer than Interval, it marks one packet, the next one
// Interval later, and after the n-th mark the next one Interval/sqrt(n) later,
// until a time is below PersistentTarget.
type ECN struct {
	Kind             string         `json:"kind"`
	KMin             units.Bytes    `json:"kmin,omitempty"`
	KMax             units.Bytes    `json:"kmax,omitempty"`
	PMax             units.Ratio    `json:"pmax,omitzero"`
	Target           units.Duration `json:"target,omitempty"`
	PersistentTarget units.Duration `json:"persistent_target,omitempty"`
	Interval         units.Duration `json:"interval,omitempty"`
	Priorities       []int          `json:"priorities"`
}

// Trim is what becomes of a packet of one of Priorities that its queue has no
// room for: its first Size bytes, with DSCP, go into Queue.
type Trim struct {
	Size       units.Bytes `json:"size"`
	DSCP       uint8       `json:"dscp"`
	Queue      int         `json:"queue"`
	Priorities []int       `json:"priorities"`
}

// PFC is priority-based flow control; the thresholds of each port are in
// Interface.PFC.
type PFC struct {
	Priorities []int  `json:"priorities"`
	Quanta     uint16 `json:"quanta"`
}

// PortPFC is PFC at one port of a soft switch: of what came in by it at one
// priority and still waits in the switch. See pfc.go for how they are computed.
type PortPFC struct {
	// XOff is the length above which the port pauses its peer.
	XOff units.Bytes `json:"xoff"`
	// XOn is the length at or below which it lets the peer go on.
	XOn units.Bytes `json:"xon"`
	// Headroom is what is accepted above XOff.
	Headroom units.Bytes `json:"headroom"`
	// Given says which of them the file has: those stay as they are when the link
	// changes, and the others follow it.
	Given PFCGiven `json:"given,omitzero"`
}

// PFCGiven names fields of PortPFC.
type PFCGiven struct {
	XOff     bool `json:"xoff,omitempty"`
	XOn      bool `json:"xon,omitempty"`
	Headroom bool `json:"headroom,omitempty"`
}

// GFC is Gentle Flow Control; the thresholds of each port are in Interface.GFC.
type GFC struct {
	Kind       string `json:"kind"` // spec.GFCBuffer, spec.GFCTime
	Priorities []int  `json:"priorities"`
}

// PortGFC is Gentle Flow Control at one port: of what came in by it at one
// priority and still waits in the switch. See gfc.go for how they are computed.
type PortGFC struct {
	// B1 is the length at which the sender is first slowed (the paper's B1, and
	// B0 of time), BM where its rate would end (Bm), and Limit what is accepted.
	B1    units.Bytes `json:"b1"`
	BM    units.Bytes `json:"bm"`
	Limit units.Bytes `json:"limit"`
	// Stages are the thresholds of kind buffer: at or above Stages[k-1] the
	// sender's rate is the link's rate / 2^k, below Stages[0] the link's rate.
	Stages []units.Bytes `json:"stages,omitempty"`
	// Period is the time between messages of kind time, each of which sets the
	// rate to the link's rate * (BM-length)/(BM-B1), at most the link's and at
	// least Least.
	Period units.Duration `json:"period,omitempty"`
	// Least is above 0: a sender that is stopped can be part of a deadlock.
	Least units.Rate `json:"least"`
	// Given says what the file has: that stays as it is when the link changes, and
	// the rest follows it.
	Given GFCGiven `json:"given,omitzero"`
}

// GFCGiven names fields of PortGFC. Stages is how often the rate is halved; 0 is until
// it is below 8kbit.
type GFCGiven struct {
	B1     bool `json:"b1,omitempty"`
	BM     bool `json:"bm,omitempty"`
	Period bool `json:"period,omitempty"`
	Stages int  `json:"stages,omitempty"`
}

// GilbertElliott is the two-state loss of spec.GilbertElliott, resolved.
type GilbertElliott struct {
	Enter    units.Ratio `json:"enter"`
	Leave    units.Ratio `json:"leave"`
	Loss     units.Ratio `json:"loss"`
	LossGood units.Ratio `json:"loss_good,omitzero"`
}

// Flap takes a direction down for For, the first time Every after the setting
// was made, and then from fall to fall after Every.
type Flap struct {
	Every units.Duration `json:"every"`
	For   units.Duration `json:"for"`
}
