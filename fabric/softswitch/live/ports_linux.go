package live

import (
	"errors"
	"os"

	"railbed/fabric/port"
	"railbed/plan"
)

// Ports are the ports by which frames reach and leave a plan's NICs.
type Ports struct {
	// Ends lists all NICs of the plan, in order.
	Ends []plan.End
	// Own has one port for each NIC. If it is nil, Trunk is the port of all NICs, and Joined maps
	// its interfaces to NICs.
	Own    []*port.Handle
	Trunk  *port.Handle
	Joined []port.TrunkPort
	// Monitors, a count, is the number of nodes whose arrivals are measured; 0 measures nothing.
	// For node i, NICs[i] are the indexes of its NICs in Ends, and Indexes[i] their interface
	// indexes.
	Monitors int
	NICs     [][]int
	Indexes  [][]int
	// Monitor opens the packet socket of each node and hands it over. It is called once the process
	// has started. Packet sockets left open in this process would be closed one after the other if
	// this process were killed, and that takes time.
	Monitor func(hand func(node int, file *os.File) error) error
}

// order returns the start message for the process, and the descriptors that are sent with it.
func (w *Ports) order() (order start, files []*os.File) {
	order = start{Ends: w.Ends, Joined: w.Joined}
	for _, h := range w.Own {
		order.Ports = append(order.Ports, startPort{Description: h.Description, Files: len(h.Files)})
		files = append(files, h.Files...)
	}
	if w.Trunk != nil {
		order.Trunk = &w.Trunk.Description
		files = append(files, w.Trunk.Files...)
	}
	for node := range w.Monitors {
		order.Monitors = append(order.Monitors, startMonitor{w.NICs[node], w.Indexes[node]})
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
