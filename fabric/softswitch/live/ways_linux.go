package live

import (
	"errors"
	"os"

	"railbed/fabric/port"
	"railbed/plan"
)

// Ways are the ways in and out of a plan's NICs.
type Ways struct {
	// Ends are all NICs of the plan, in order.
	Ends []plan.End
	// Own are the ports of NICs, one for each; or nil, and then Trunk is that of
	// all, and Joined says which of its interfaces is which NIC's.
	Own    []*port.Handle
	Trunk  *port.Handle
	Joined []port.TrunkPort
	// Witnesses is how many nodes' arrivals are watched; 0 watches nothing. For
	// node i, NICs[i] are the places of its NICs in Ends and Indexes[i] their
	// interfaces.
	Witnesses int
	NICs      [][]int
	Indexes   [][]int
	// Witness opens the witness of each node and hands it over. The process has
	// started then: descriptors that lie about would be closed one after the
	// other if this process was killed, and that takes time.
	Witness func(hand func(node int, file *os.File) error) error
}

// order is what the process is told of the ways, and the descriptors that go with it.
func (w *Ways) order() (order start, files []*os.File) {
	order = start{Ends: w.Ends, Joined: w.Joined}
	for _, h := range w.Own {
		order.Ports = append(order.Ports, startPort{Description: h.Description, Files: len(h.Files)})
		files = append(files, h.Files...)
	}
	if w.Trunk != nil {
		order.Trunk = &w.Trunk.Description
		files = append(files, w.Trunk.Files...)
	}
	for node := range w.Witnesses {
		order.Witnesses = append(order.Witnesses, startWitness{w.NICs[node], w.Indexes[node]})
	}
	return order, files
}

func closeHandles(handles []*port.Handle) error {
	var errs []error
	for _, h := range handles {
		errs = append(errs, h.Close())
	}
	return errors.Join(errs...)
}
