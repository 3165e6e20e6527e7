package supervisor

import (
	"slices"
	"sync"
	"time"
)

const (
	// reactionsKept is of how many reactions is told, the latest ones.
	reactionsKept = 1024
	// sameMoment is how far apart changes are that have one reaction: those of a step
	// that changes several links follow each other.
	sameMoment = 20 * time.Millisecond
)

// RoutingState is what the routers' daemons have done.
type RoutingState struct {
	// Converged is how long they took to find the plan's routes at first.
	Converged time.Duration `json:"converged_ns"`
	Reactions []Reaction    `json:"reactions"`
	Ended     []DaemonEnd   `json:"ended"`
}

// Reaction is how routers followed changes of links, or the end of a daemon: what their
// routes did from then on to the next such moment.
type Reaction struct {
	To []string  `json:"to"`
	At time.Time `json:"at"`
	// Routes are how often a route that a daemon had found changed, came or went, in all
	// routers, and Routers in how many of them.
	Routes  int `json:"routes"`
	Routers int `json:"routers"`
	// First and Last are when, after At.
	First time.Duration `json:"first_ns"`
	Last  time.Duration `json:"last_ns"`
}

// DaemonEnd is a daemon that ended before its testbed.
type DaemonEnd struct {
	Switch string    `json:"switch"`
	Daemon string    `json:"daemon"`
	At     time.Time `json:"at"`
	// How is the exit code or the signal, with the end of what it logged.
	How string `json:"how"`
}

// reactions keeps a RoutingState. It is safe for concurrent use.
type reactions struct {
	mu      sync.Mutex
	state   RoutingState
	routers map[string]bool // whose routes changed in the latest reaction
}

// converged begins it all: what routes did before was no reaction.
func (r *reactions) converged(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Converged = took
}

// begin notes something that daemons have to follow, before it is done.
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

// changed notes changes of a router's routes.
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

// ended notes the end of a daemon, of which a reaction has begun.
func (r *reactions) ended(end DaemonEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Ended = append(r.state.Ended, end)
}

// now is the state; nil where no router has daemons.
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
