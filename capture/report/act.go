package report

import "time"

// Act is a change of links or nodes by a step, with its time. Faults of packets are no acts: recordings have
// the packets that they hit.
type Act struct {
	Step string `json:"step"` // the step's name
	// Kind is down or set for links, and the action of a fault of nodes or switches: crash, hang, slow,
	// memory, clock, disk, queue-pairs or reboot. It is NICDownKind if a program in a node took a NIC down.
	// Then Step is the only step that ran a command in the node at this time, or "".
	Kind  string    `json:"kind"`
	Fault string    `json:"fault,omitempty"` // the fault's name
	Links []string  `json:"links,omitempty"` // the links that it changed or took down
	Nodes []string  `json:"nodes,omitempty"` // the nodes that it met
	From  time.Time `json:"from"`            // when the step began
	// To is when the step undid the change. Without To the change was in force until the end of the run.
	To time.Time `json:"to,omitzero"`
	// NIC is the NIC that a program took down, as NODE:PORT.
	NIC string `json:"nic,omitempty"`
}

// SetKind is the kind of acts that change settings of links.
const SetKind = "set"

// NICDownKind is the kind of acts of programs that took a NIC down.
const NICDownKind = "nic-down"
