package report

import (
	"fmt"
	"strings"
)

// Fault is a fault that a step added.
type Fault struct {
	Name  string `json:"name"`  // the file's name of the fault, or a number
	Where string `json:"where"` // the place as the file has it
	// Does describes the action of the fault and the packets that it picks.
	Does string `json:"does"`
	// Late is the time in seconds from when the fault was due until it was in force: from the time of "at",
	// or from the start of its step. For a repeated step it is the longest such time. The end of a packet
	// fault is on time to the nanosecond, by the clock that delivers packets.
	Late float64 `json:"late"`
	// Matched is the number of packets that matched at all places. Hit is the number of packets on which the
	// fault acted. For a fault of nodes, Matched is the number of nodes. Hit is then the number of processes
	// that a crash or hang killed or stopped, of queue pairs that were lost, or of nodes for other faults.
	Matched uint64 `json:"matched"`
	Hit     uint64 `json:"hit"`
	// Joined is the number of matches at kernel links that were several packets of a connection in one.
	// Refused is the number of packets there that the kernel did not let the fault change.
	Joined  uint64 `json:"joined,omitempty"`
	Refused uint64 `json:"refused,omitempty"`
	// Places are the ports at which packets matched, or the nodes of a fault of nodes.
	Places []FaultPlace `json:"places"`
}

// FaultPlace is a port at which packets matched a fault, or a node that the fault met.
type FaultPlace struct {
	Port    string `json:"port"`    // the port
	Matched uint64 `json:"matched"` // packets that matched
	Hit     uint64 `json:"hit"`     // packets that were hit
	// Killed is the number of processes of the node that were killed because they had too little memory.
	Killed uint64 `json:"killed,omitempty"`
}

// faultPlacesShown is the most places that a table lists for a fault.
const faultPlacesShown = 4

// At lists the places, each with its numbers of hit and of matched packets: "leaf1:p0 3 of 10".
func (f Fault) At() string {
	var all []string
	for _, at := range f.Places[:min(len(f.Places), faultPlacesShown)] {
		text := fmt.Sprintf("%s %d of %d", at.Port, at.Hit, at.Matched)
		if at.Killed > 0 {
			text += fmt.Sprintf(" (processes killed: %d)", at.Killed)
		}
		all = append(all, text)
	}
	if more := len(f.Places) - faultPlacesShown; more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}
