package report

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Routing is what routers' daemons did in a run.
type Routing struct {
	// Converged is how long they took to find the plan's routes, part of the bring-up.
	Converged float64    `json:"converged"`
	Reactions []Reaction `json:"reactions"`
	// Ended are daemons that did not run to the end.
	Ended []DaemonEnd `json:"ended,omitempty"`
}

// Reaction is how routers followed changes of links, or the end of a daemon.
type Reaction struct {
	// To is what they followed, and At when that began, from the start of the first step.
	To []string `json:"to"`
	At float64  `json:"at"`
	// Routes are changes of routes in the kernels of so many Routers, up to the next
	// reaction or the end of the run.
	Routes  int `json:"routes"`
	Routers int `json:"routers"`
	// First and Last are how long after At the first one changed, and the last one: from
	// then on the routers were of one mind.
	First float64 `json:"first,omitempty"`
	Last  float64 `json:"last,omitempty"`
}

// DaemonEnd is a routing daemon that ended before its testbed.
type DaemonEnd struct {
	Switch string  `json:"switch"`
	Daemon string  `json:"daemon"`
	At     float64 `json:"at"`
	// How is the exit code or the signal, with the end of what it logged.
	How string `json:"how"`
	// Meant says that a step was to end it.
	Meant bool `json:"meant,omitempty"`
}

// String is a line for people.
func (e DaemonEnd) String() string {
	return fmt.Sprintf("%s of %s ended at %s: %s", e.Daemon, e.Switch, seconds(e.At), e.How)
}

// Head is the heads of the table of reactions, and Rows are its cells.
func (r *Routing) Head() []string {
	return []string{"routers follow", "at", "routes changed", "in routers", "first after", "converged after"}
}

// Rows are the cells of the table of reactions.
func (r *Routing) Rows() (rows [][]string) {
	for _, one := range r.Reactions {
		row := []string{strings.Join(one.To, ", "), seconds(one.At), "0", "0", "-", "-"}
		if one.Routes > 0 {
			row = append(row[:2], fmt.Sprint(one.Routes), fmt.Sprint(one.Routers), seconds(one.First),
				seconds(one.Last))
		}
		rows = append(rows, row)
	}
	return rows
}

// routing prints what the daemons followed and which of them ended.
func (t *textWriter) routing(r *Routing) {
	if r == nil {
		return
	}
	t.printf("routers found all routes in %s of the bring-up\n", seconds(r.Converged))
	for _, end := range r.Ended {
		t.printf("%v\n", end)
	}
	t.printf("\n")
	if len(r.Reactions) == 0 {
		return
	}
	rows := newRows(cells(r.Head())...)
	rightAligned(rows, 2, 3, 4, 5, 6)
	for _, row := range r.Rows() {
		rows.AppendRow(table.Row(cells(row)))
	}
	t.table(rows)
}
