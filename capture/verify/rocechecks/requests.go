package rocechecks

import (
	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
)

// Requests follows the requests of connections where they leave their senders' NICs. With it, checks
// that count bytes recognise repeated packets.
type Requests struct {
	flows   follower[int]        // each with its number, as in Request.Flow
	answers map[pairKey]*answers // of READs, by connection to the requester
}

// Request is the place of a request among the requests of its queue pair.
type Request struct {
	// Flow is the number of the direction of a connection. Directions are numbered in the order of
	// their first requests.
	Flow int
	// Again reports whether the PSN was seen before.
	Again bool
	// Late reports whether it is the first request seen in a life of the queue pair, and is not known
	// to begin that life.
	Late bool
	// Unseen is the number of PSNs right before the request that were left out. For a request that
	// was left out before, it is the number of the request's PSNs, below 0.
	Unseen int
}

// answers are the responses to one connection's READs that have left.
type answers struct {
	latest infiniband.PSN
	number uint32 // of latest, counted on past 24 bits
	seen   evidence.Serials
}

// NewRequests makes a Requests that has seen no packet.
func NewRequests() *Requests {
	return &Requests{flows: newFollower[int](atRequester), answers: map[pairKey]*answers{}}
}

// Place returns the place of a request of a connection. It is not known for other packets, nor for
// flows beyond the number that is followed.
func (r *Requests) Place(p *evidence.Packet) (at Request, known bool) {
	before := len(r.flows.ordered)
	f, place := r.flows.request(p)
	if place == placeNone {
		return Request{}, false
	}
	if len(r.flows.ordered) > before {
		f.own = before
	}
	at = Request{Flow: f.own, Again: place == placeAgain}
	switch start, known := r.flows.starts[f.key]; place {
	case placeFirst:
		at.Late = !known || start.psn != p.RoCE.BTH.PSN
	case placeGap:
		at.Unseen = f.leftOut
	case placeFilled:
		at.Unseen = -f.filled
	}
	return at, true
}

// Answered reports whether a response of a READ has left before. The requester asks again for a lost
// response.
func (r *Requests) Answered(p *evidence.Packet) bool {
	key, psn := keyOf(p), p.RoCE.BTH.PSN
	a := r.answers[key]
	if a == nil {
		if len(r.answers) >= maxFlows {
			return false
		}
		a = &answers{latest: psn}
		r.answers[key] = a
	}
	ahead := psn.From(a.latest)
	if ahead > psnWindow || ahead < -psnWindow { // the queue pair was reused
		*a = answers{}
		ahead = 0
	}
	a.latest, a.number = psn, a.number+uint32(ahead)
	return a.seen.Add(a.number)
}

// Anew returns the number of flows that continued with an unrelated PSN.
func (r *Requests) Anew() uint64 { return r.flows.anew }

// Full reports whether there were more flows than are followed.
func (r *Requests) Full() bool { return r.flows.full }
