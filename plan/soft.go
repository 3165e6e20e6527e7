package plan

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// SoftSwitch holds the settings of a soft switch other than forwarding. All defaults are filled in.
// Queues are the eight priorities of an egress port.
//
// # Buffer
//
// All ports share Buffer. The part Reserved is for lossless priorities: PFC.XOff + PFC.Headroom, or
// GFC.Limit, for each port and lossless priority. A packet of such a priority counts towards the
// ingress bytes of its port. It is dropped only beyond that bound, and no dynamic threshold applies
// to it.
//
// The remaining part is Shared. A queue of another priority accepts a packet on two conditions.
// Before the packet it holds at most Alpha times the free part of Shared, and the packet fits.
//
// A frame counts with its length from the Ethernet header on, without its check sequence: MTU + 14
// bytes for the longest frame.
type SoftSwitch struct {
	// LoadBalance is spec.Flow or another of the load balancing constants. Flow, Polarised and
	// Flowlet hash with Switch.HashSeed. With Polarised all switches have the same seed.
	LoadBalance string `json:"load_balance"`
	// FlowletGap is the pause after which a flow may change its path.
	FlowletGap units.Duration `json:"flowlet_gap"`
	Buffer     units.Bytes    `json:"buffer"`
	Reserved   units.Bytes    `json:"reserved,omitempty"`
	Shared     units.Bytes    `json:"shared"`
	Alpha      units.Factor   `json:"alpha"`
	Scheduler  Scheduler      `json:"scheduler"`
	// Priorities maps DSCPs. A packet that is not IP has priority 0. A frame with a tag of VLAN 0
	// has the priority of its tag.
	Priorities  PriorityMap  `json:"priorities"`
	ECN         *ECN         `json:"ecn,omitempty"`
	Trim        *Trim        `json:"trim,omitempty"`
	PFC         *PFC         `json:"pfc,omitempty"`
	GFC         *GFC         `json:"gfc,omitempty"`
	INT         bool         `json:"int,omitempty"`
	Aggregation *Aggregation `json:"aggregation,omitempty"`
}

// Features returns the settings other than forwarding, in the words of files: "load-balance flow",
// "pfc on 3".
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
	// Weights are the weights of the queues in deficit round robin. In each turn a waiting queue
	// may send Weights[q] * Quantum bytes. A strict queue has 0.
	Weights [spec.Priorities]int `json:"weights"`
	// Quantum is the longest frame of any port, so that a turn of weight 1 sends at least one frame
	// (Shreedhar and Varghese, SIGCOMM 1995, for O(1) work).
	Quantum units.Bytes `json:"quantum"`
}

// PriorityMap holds the priority of each DSCP. Its text is 64 digits, one for each DSCP from 0 on.
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

// ECN configures the marking in queues. Kind is spec.RED, with KMin, KMax and PMax, or
// spec.ECNSharp, with Target (ins_target), PersistentTarget (pst_target) and Interval
// (pst_interval). Only packets with ECT(0) or ECT(1) are marked. ECN drops no packet.
//
// RED uses the queue's length in bytes before the packet, without an average (as DCQCN does). It
// marks nothing up to KMin and everything above KMax. In between it marks the share PMax *
// (length-KMin)/(KMax-KMin).
//
// ECN# uses a packet's time in the queue when the packet leaves. It marks every packet whose time
// exceeds Target. It also marks one packet when times have stayed at or above PersistentTarget for
// longer than Interval. The next mark follows Interval later, and after the n-th mark the next one
// follows Interval/sqrt(n) later, until a time is below PersistentTarget.
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

// Lengths returns the lengths of a queue with the given rate at which marking begins, and above which
// every packet is marked. Of ECN# they are the bytes that take the times of its targets.
func (e *ECN) Lengths(rate units.Rate) (first, every units.Bytes) {
	if e.Kind == spec.ECNSharp {
		return inTime(rate, time.Duration(e.PersistentTarget)), inTime(rate, time.Duration(e.Target))
	}
	return e.KMin, e.KMax
}

// Trim configures the trimming of packets of Priorities for which a queue has no room. The first
// Size bytes of such a packet go into Queue, with DSCP.
type Trim struct {
	Size       units.Bytes `json:"size"`
	DSCP       uint8       `json:"dscp"`
	Queue      int         `json:"queue"`
	Priorities []int       `json:"priorities"`
}

// PFC configures priority-based flow control. Interface.PFC has the thresholds of each port.
type PFC struct {
	Priorities []int  `json:"priorities"`
	Quanta     uint16 `json:"quanta"`
}

// PortPFC holds the thresholds of PFC at one port of a soft switch. They bound the bytes that came
// in by the port at one priority and still wait in the switch. See pfc.go for how they are
// computed.
type PortPFC struct {
	// XOff is the length above which the port pauses its peer.
	XOff units.Bytes `json:"xoff"`
	// XOn is the length at or below which the port lets the peer continue.
	XOn units.Bytes `json:"xon"`
	// Headroom is the number of bytes that the port accepts above XOff.
	Headroom units.Bytes `json:"headroom"`
	// Marks is the length of a queue that ECN marks before the port pauses its peer: a computed XOff
	// is above it. 0 leaves XOff to the link.
	Marks units.Bytes `json:"marks,omitempty"`
	// Given marks the values that the file gives. These stay when the link changes, and the others
	// follow the link.
	Given PFCGiven `json:"given,omitzero"`
}

// PFCGiven specifies which fields of PortPFC the testbed file sets. The compiler computes the others.
type PFCGiven struct {
	XOff     bool `json:"xoff,omitempty"`
	XOn      bool `json:"xon,omitempty"`
	Headroom bool `json:"headroom,omitempty"`
}

// GFC configures Gentle Flow Control. Interface.GFC has the thresholds of each port.
type GFC struct {
	Kind       string `json:"kind"` // spec.GFCBuffer, spec.GFCTime
	Priorities []int  `json:"priorities"`
}

// PortGFC holds the thresholds of Gentle Flow Control at one port. They bound the bytes that came
// in by the port at one priority and still wait in the switch. See gfc.go for how they are
// computed.
type PortGFC struct {
	// B1 is the length at which the sender is first slowed (the paper's B1, and B0 of time). BM is
	// the length at which its rate would reach 0 (Bm). Limit is the length up to which packets are
	// accepted.
	B1    units.Bytes `json:"b1"`
	BM    units.Bytes `json:"bm"`
	Limit units.Bytes `json:"limit"`
	// Stages holds the thresholds of kind buffer. At or above Stages[k-1] the sender's rate is the
	// link's rate / 2^k. Below Stages[0] it is the link's rate.
	Stages []units.Bytes `json:"stages,omitempty"`
	// Period is the time between messages of kind time. Each message sets the rate to the link's
	// rate * (BM-length)/(BM-B1), at most the link's rate and at least Least.
	Period units.Duration `json:"period,omitempty"`
	// Least is above 0, because a stopped sender can be part of a deadlock.
	Least units.Rate `json:"least"`
	// Given marks the values that the file gives. These stay when the link changes, and the others
	// follow the link.
	Given GFCGiven `json:"given,omitzero"`
}

// GFCGiven specifies which fields of PortGFC the testbed file sets. Stages is the number of times that
// the rate is halved. 0 halves it until it is below 8kbit.
type GFCGiven struct {
	B1     bool `json:"b1,omitempty"`
	BM     bool `json:"bm,omitempty"`
	Period bool `json:"period,omitempty"`
	Stages int  `json:"stages,omitempty"`
}
