package report

import (
	"fmt"
	"strings"
)

// Fault is a fault that a step added.
type Fault struct {
	Name  string `json:"name"`
	Where string `json:"where"`
	// Does says what the fault does, to which packets.
	Does string `json:"does"`
	// Matched counts the packets that matched, at all places together, and Hit those that were harmed.
	Matched uint64 `json:"matched"`
	Hit     uint64 `json:"hit"`
	// Places are the ports at which packets matched.
	Places []FaultPlace `json:"places"`
}

// FaultPlace is a port at which packets matched a fault.
type FaultPlace struct {
	Port    string `json:"port"`
	Matched uint64 `json:"matched"`
	Hit     uint64 `json:"hit"`
}

// faultPlacesShown bounds the places of a fault in a table.
const faultPlacesShown = 4

// At lists the places with the packets hit of those that matched: "leaf1:p0 3 of 10".
func (f Fault) At() string {
	var all []string
	for _, at := range f.Places[:min(len(f.Places), faultPlacesShown)] {
		all = append(all, fmt.Sprintf("%s %d of %d", at.Port, at.Hit, at.Matched))
	}
	if more := len(f.Places) - faultPlacesShown; more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}

// faults prints what the faults did.
func (t *textWriter) faults(faults []Fault) {
	if len(faults) == 0 {
		return
	}
	rows := newRows("fault", "at", "does", "matched", "hit", "where")
	rightAligned(rows, 4, 5)
	for _, f := range faults {
		rows.AppendRow([]any{f.Name, f.Where, f.Does, f.Matched, f.Hit, f.At()})
	}
	t.table(rows)
}
