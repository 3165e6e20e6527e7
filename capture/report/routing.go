package report

import (
	"fmt"

	"railbed/internal/units"
)

// Routing describes the reactions of the routing daemons in a run. Times are in seconds.
type Routing struct {
	// Converged is the time that the daemons took to find the plan's routes, a part of the
	// bring-up.
	Converged float64    `json:"converged"`
	Reactions []Reaction `json:"reactions"`
	// Ended are daemons that ended before the testbed.
	Ended []DaemonEnd `json:"ended,omitempty"`
}

// Reaction is the reaction of routers to changes of links, or to the end of a daemon.
type Reaction struct {
	// To lists the changes. At is the time at which they began, from the start of the first step.
	To []string `json:"to"`
	At float64  `json:"at"`
	// Routes is the number of route changes in the kernels, up to the next reaction or the end of
	// the run. Routers is the number of routers whose routes changed.
	Routes  int `json:"routes"`
	Routers int `json:"routers"`
	// First and Last are the times from At to the first and to the last route change. From the last
	// change on, the routers agreed.
	First float64 `json:"first,omitempty"`
	Last  float64 `json:"last,omitempty"`
}

// DaemonEnd is a routing daemon that ended before its testbed.
type DaemonEnd struct {
	Switch string  `json:"switch"` // the router
	Daemon string  `json:"daemon"` // the program
	At     float64 `json:"at"`     // from the first step
	// How is the exit code or the signal, with the last lines of the daemon's log.
	How string `json:"how"`
	// Meant is set if a step ended the daemon on purpose.
	Meant bool `json:"meant,omitempty"`
}

// String returns a line for people.
func (e DaemonEnd) String() string {
	return fmt.Sprintf("%s of %s ended at %s: %s", e.Daemon, e.Switch, units.Seconds(e.At), e.How)
}
