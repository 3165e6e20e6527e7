package verify

import "railbed/internal/infiniband"

// Requests follows the requests of connections where they leave their senders' NICs. It tells checks
// that count bytes which packets are repeats.
type Requests struct {
	flows   roceFlows[int]           // each with its number, as in Request.Flow
	answers map[roceKey]*roceAnswers // of READs, by connection to the requester
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
	// Unseen is the number of PSNs right before the request that were left out. It is -1 for a
	// request that was left out before.
	Unseen int
}

// roceAnswers are the responses to one connection's READs that have left.
type roceAnswers struct {
	latest infiniband.PSN
	number uint32 // of latest, counted on past 24 bits
	seen   serialSet
}

// NewRequests makes a Requests that has seen no packet.
func NewRequests() *Requests {
	return &Requests{flows: newRoCEFlows[int](atRequester), answers: map[roceKey]*roceAnswers{}}
}

// Place returns the place of a request of a connection. It is not known for other packets, nor for
// flows beyond the number that is followed.
func (r *Requests) Place(p *Packet) (at Request, known bool) {
	before := len(r.flows.ordered)
	f, place := r.flows.request(p)
	if place == roceNone {
		return Request{}, false
	}
	if len(r.flows.ordered) > before {
		f.own = before
	}
	at = Request{Flow: f.own, Again: place == roceAgain}
	switch start, known := r.flows.starts[f.key]; place {
	case roceFirst:
		at.Late = !known || start.psn != p.RoCE.BTH.PSN
	case roceGap:
		at.Unseen = f.leftOut
	case roceFilled:
		at.Unseen = -1
	}
	return at, true
}

// Answered reports whether a response of a READ has left before. The requester asks again for a lost
// response.
func (r *Requests) Answered(p *Packet) bool {
	key, psn := roceKeyOf(p), p.RoCE.BTH.PSN
	a := r.answers[key]
	if a == nil {
		if len(r.answers) >= maxRoCEFlows {
			return false
		}
		a = &roceAnswers{latest: psn}
		r.answers[key] = a
	}
	ahead := psn.From(a.latest)
	if ahead > roceWindow || ahead < -roceWindow { // the queue pair was reused
		*a = roceAnswers{}
		ahead = 0
	}
	a.latest, a.number = psn, a.number+uint32(ahead)
	return a.seen.add(a.number)
}

// Anew returns how many flows continued with an unrelated PSN.
func (r *Requests) Anew() uint64 { return r.flows.anew }

// Full reports whether there were more flows than are followed.
func (r *Requests) Full() bool { return r.flows.full }
