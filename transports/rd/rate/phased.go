package rate

import (
	"time"

	"railbed/internal/clock"
)

// Phased keeps to the rates that a plan gives to one pair in phases. The clock determines the
// phase, so the clocks of all senders of the plan must agree. In a phase without a rate nothing is
// sent.
type Phased struct {
	Line
	// Rates are the rates of the phases, in bit/s.
	Rates []uint64
	// Each is the length of a phase. The first phase begins at Epoch.
	Each  time.Duration
	Epoch clock.Time
	// Guard is the time before the end of a phase after which no packet is sent, so that the last
	// packet has passed when the next phase begins.
	Guard time.Duration
}

// Allowed implements Controller.
func (p *Phased) Allowed(now clock.Time) Allowance {
	if len(p.Rates) == 0 || p.Each <= 0 {
		return Allowance{}
	}
	at := max(now, p.Epoch)
	number := int64(at.Sub(p.Epoch) / p.Each)
	begins := p.Epoch.Add(time.Duration(number) * p.Each)
	if at.Sub(begins) > p.Each-p.Guard {
		number, begins = number+1, begins.Add(p.Each)
	}
	for range p.Rates {
		if r := p.Rates[number%int64(len(p.Rates))]; r > 0 {
			return Allowance{Rate: r, From: max(begins, at)}
		}
		number, begins = number+1, begins.Add(p.Each)
	}
	return Allowance{From: clock.Never}
}
