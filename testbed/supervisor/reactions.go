package supervisor

import (
	"slices"
	"sync"
	"time"
)

const (
	// reactionsKept is the number of reactions that are kept, the latest ones.
	reactionsKept = 1024
	// sameMoment is the longest time between changes that have one reaction. A step that changes
	// several links makes such changes one after the other.
	sameMoment = 20 * time.Millisecond
)

// RoutingState is the history of the routers' daemons.
type RoutingState struct {
	// Converged is the time that they took to find the plan's routes at first.
	Converged time.Duration `json:"converged_ns"`
	Reactions []Reaction    `json:"reactions"`
	Ended     []DaemonEnd   `json:"ended"`
}

// Reaction is the reaction of the routers to changes of links, or to the end of a daemon: the
// changes of their routes until the next such event.
type Reaction struct {
	To []string  `json:"to"`
	At time.Time `json:"at"`
	// Routes is the number of times that a route from a daemon changed, appeared or disappeared,
	// over all routers. Routers is the number of routers with such changes.
	Routes  int `json:"routes"`
	Routers int `json:"routers"`
	// First and Last are the times of the first and the last change, after At.
	First time.Duration `json:"first_ns"`
	Last  time.Duration `json:"last_ns"`
}

// DaemonEnd is the end of a daemon before the end of its testbed.
type DaemonEnd struct {
	Switch string    `json:"switch"`
	Daemon string    `json:"daemon"`
	At     time.Time `json:"at"`
	// How is the exit code or the signal, with the end of the daemon's log.
	How string `json:"how"`
}

// reactions holds a RoutingState. It is safe for concurrent use.
type reactions struct {
	mu      sync.Mutex
	state   RoutingState
	routers map[string]bool // routers whose routes changed in the latest reaction
}

// converged starts the history. Changes of routes before it are not part of a reaction.
func (r *reactions) converged(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Converged = took
}

// begin records an event to which daemons must react, before it happens.
func (r *reactions) begin(to string, at time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.state.Reactions
	if n := len(all); n > 0 && all[n-1].Routes == 0 && at.Sub(all[n-1].At) < sameMoment {
		all[n-1].To = append(all[n-1].To, to)
		return
	}
	if len(all) == reactionsKept {
		all = slices.Delete(all, 0, reactionsKept/4)
	}
	r.state.Reactions, r.routers = append(all, Reaction{To: []string{to}, At: at}), map[string]bool{}
}

// changed records changes of a router's routes.
func (r *reactions) changed(router string, routes int, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.state.Reactions) == 0 {
		return
	}
	latest := &r.state.Reactions[len(r.state.Reactions)-1]
	if latest.Routes == 0 {
		latest.First = at.Sub(latest.At)
	}
	r.routers[router] = true
	latest.Routes, latest.Routers, latest.Last = latest.Routes+routes, len(r.routers), at.Sub(latest.At)
}

// ended records the end of a daemon. A reaction to it has begun already.
func (r *reactions) ended(end DaemonEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Ended = append(r.state.Ended, end)
}

// now returns the state. It returns nil if no router has daemons.
func (r *reactions) now() *RoutingState {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	state := RoutingState{Converged: r.state.Converged, Reactions: []Reaction{},
		Ended: slices.Clone(r.state.Ended)}
	for _, reaction := range r.state.Reactions {
		reaction.To = slices.Clone(reaction.To)
		state.Reactions = append(state.Reactions, reaction)
	}
	return &state
}
