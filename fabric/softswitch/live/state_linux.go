package live

import (
	"fmt"

	"railbed/fabric/port"
	"railbed/fabric/softswitch"
)

// State is the state of the soft switches.
type State struct {
	Ports  []softswitch.PortState `json:"ports,omitempty"`
	NICs   []NICState             `json:"nics"`
	Totals softswitch.Totals      `json:"totals"`
	// Deadlocks are the latest detected cycles of pauses; DeadlockCount is the number of all
	// detected cycles.
	Deadlocks     []softswitch.Deadlock `json:"deadlocks,omitempty"`
	DeadlockCount uint64                `json:"deadlocks_found,omitempty"`
	// Aggregation has the jobs of switches that aggregate.
	Aggregation []softswitch.AggregationState `json:"aggregation,omitempty"`
	// Faults are the faults that were added and not cleared.
	Faults []softswitch.FaultState `json:"faults,omitempty"`
	// Held is the number of packets in queues and on links. Peak is the largest number of packets
	// that were in use at once. Each takes Cell bytes of Memory.
	Held   int   `json:"held"`
	Memory int64 `json:"packet_memory"`
	Peak   int   `json:"peak_packets"`
	Cell   int   `json:"packet_bytes"`
	// RingDropped counts frames from nodes that found no room in the ring, if all NICs share one.
	// It is not known which node sent them.
	RingDropped uint64 `json:"ring_dropped"`
	Heap        Heap   `json:"heap"`
	// Late is the real time from the due time of frames to their release, as the timing thread saw
	// it. Timing has the measurements from outside.
	Late   Histogram `json:"late"`
	Timing Timing    `json:"timing"`
}

// NICState is the state of the connection between a node's NIC and its emulated NIC.
type NICState struct {
	Node        string           `json:"node"`
	NIC         string           `json:"nic"`
	Port        port.Stats       `json:"port"`
	Description port.Description `json:"description"`
	// NoMemory counts frames from the node that found no packet memory. Refused counts frames that
	// the node's own queue had no room for.
	NoMemory uint64 `json:"no_memory"`
	Refused  uint64 `json:"refused"`
	// Backlog counts frames that the node's interface sent and the kernel dropped before the port,
	// because a CPU's backlog was full (net.core.netdev_max_backlog). Package fabric counts them.
	Backlog uint64    `json:"backlog_dropped"`
	Late    Quantiles `json:"late"`
	// Bypass counts what programs exchanged with the NIC past the kernel.
	Bypass BypassState `json:"bypass,omitzero"`
	// Arrivals is the lateness of frames in the link's direction to the node, by the kernel's time
	// stamps. A link between switches crosses no kernel, so it cannot be measured.
	Arrivals Histogram `json:"arrivals"`
}

// BypassState counts the frames that programs of a node exchanged with a NIC past the node's kernel.
type BypassState struct {
	Queues        int    `json:"queues"` // pairs of queues now
	Sent          uint64 `json:"sent"`
	SentBytes     uint64 `json:"sent_bytes"`
	Received      uint64 `json:"received"`
	ReceivedBytes uint64 `json:"received_bytes"`
	// Overrun counts frames for which a program's queue had no room. They are among NICState.Refused.
	Overrun uint64 `json:"overrun"`
	// Refused counts descriptors with lengths that no frame has. Broken counts pairs of queues whose format a
	// program broke.
	Refused uint64 `json:"refused"`
	Broken  uint64 `json:"broken"`
	// MirrorFailed counts frames that the mirror's interface did not take.
	MirrorFailed uint64 `json:"mirror_failed,omitempty"`
}

// Lost returns the number of frames that the emulator lost outside the model: between the kernel
// and the timing thread, and for lack of packet memory.
func (n *NICState) Lost() uint64 {
	return n.Port.KernelDropped + n.Port.SendFailed + n.NoMemory + n.Refused + n.Backlog
}

// Vanished returns the number of frames lost between the NIC and the emulated NIC without a record
// in any capture. Frames that found no packet memory or no room in the node's queue have records.
func (n *NICState) Vanished() uint64 {
	return n.Port.KernelDropped + n.Port.SendFailed + n.Port.Truncated + n.Port.Refused + n.Backlog
}

// state reads everything. The thread does not make the necessary system calls.
func (l *loop) state() (*State, error) {
	s := &State{NICs: make([]NICState, len(l.nics)), Heap: readHeap()}
	l.do(func() {
		s.Ports, s.Totals, s.Held = l.engine.Ports(), l.engine.Totals(), l.engine.Held()
		s.Deadlocks, s.DeadlockCount = l.engine.Deadlocks(), l.engine.DeadlockCount()
		s.Faults = l.engine.Faults()
		s.Aggregation, s.Memory = l.engine.Aggregation(), l.engine.Pool().Budget()
		s.Peak, s.Cell, s.Late = l.engine.Pool().Peak(), l.engine.Pool().Cell(), l.late.Histogram()
		for i := range l.nics {
			s.NICs[i] = NICState{NoMemory: l.nics[i].noMemory, Refused: l.nics[i].refused,
				Late: l.nics[i].late.Quantiles(), Bypass: l.nics[i].bypassed}
			s.NICs[i].Bypass.Queues = len(l.nics[i].queues)
		}
	})
	l.timing(s)
	for i := range l.nics {
		one := &l.nics[i]
		s.NICs[i].Node, s.NICs[i].NIC = one.end.Node, one.end.Port
		if err := l.portState(i, &s.NICs[i]); err != nil {
			return nil, fmt.Errorf("read port %s:%s: %w", one.end.Node, one.end.Port, err)
		}
	}
	if l.trunk != nil {
		var err error
		if s.RingDropped, err = l.trunk.Dropped(); err != nil {
			return nil, err
		}
	}
	return s, nil
}
